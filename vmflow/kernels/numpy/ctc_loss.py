"""CTC loss: minus the log-likelihood of a sequence; its likelihood is the sum over all its alignments in time.

The states of an alignment are the target's n classes with blanks before, between and behind them: 2 n + 1 states.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from vmflow import dtypes
from vmflow.instructions.blob import Array
from vmflow.kernels.choosing import Problem, kernel_of

_LOWEST: Final = dtypes.finfo(dtypes.float64).min


class _States:
    """The states of a batch of alignments.

    Attributes:
        log_probs: (times, batch, classes), in float64.
        times, lengths: the length of each sample's input, and of its target.
        classes: (batch, states): the class that each state emits.
        skips: (batch, states): 0 if a state may follow the one two before it, else minus infinity.
        emissions: (times, batch, states): the log-probability of each state's class.
    """

    def __init__(self, blank: int, log_probs: Array, targets: Array, times: Array, lengths: Array) -> None:
        self.log_probs = np.asarray(log_probs, dtype=np.float64)
        self.times = np.asarray(times, dtype=np.int64)
        self.lengths = np.asarray(lengths, dtype=np.int64)
        steps, batch, classes = self.log_probs.shape
        self._check_lengths(steps, targets)
        longest = int(self.lengths.max()) if batch else 0
        padded = np.full((batch, longest), blank, np.int64)
        inside = np.arange(longest) < self.lengths[:, None]
        if targets.ndim == 1:
            padded[inside] = targets
        else:
            padded[inside] = targets[:, :longest][inside]
        wrong = inside & ((padded < 0) | (padded >= classes))
        if wrong.any():
            raise IndexError(f"ctc_loss: class index {int(padded[wrong][0])} is out of range for {classes} classes")
        self.classes = np.full((batch, 2 * longest + 1), blank, np.int64)
        self.classes[:, 1::2] = padded
        self.skips = np.full(self.classes.shape, -np.inf)
        free = (self.classes[:, 2:] != blank) & (self.classes[:, 2:] != self.classes[:, :-2])
        self.skips[:, 2:][free] = 0
        self.cases = np.arange(batch)
        self.emissions = np.take_along_axis(self.log_probs, self.classes[None], 2)

    def _check_lengths(self, steps: int, targets: Array) -> None:
        if ((self.times < 0) | (self.times > steps)).any():
            raise ValueError(f"ctc_loss: input lengths must be within 0 and {steps}, got {self.times.tolist()}")
        if (self.lengths < 0).any():
            raise ValueError(f"ctc_loss: target lengths cannot be negative, got {self.lengths.tolist()}")
        if targets.ndim == 1 and int(self.lengths.sum()) != targets.shape[0]:
            raise ValueError(
                f"ctc_loss: the target lengths {self.lengths.tolist()} must add up to the {targets.shape[0]} targets "
                "given one after the other"
            )
        if targets.ndim == 2 and (self.lengths > targets.shape[1]).any():
            raise ValueError(
                f"ctc_loss: target lengths {self.lengths.tolist()} are beyond targets of shape {list(targets.shape)}"
            )

    def ends(self) -> Array:
        """Return (batch, states): 0 for the states with which an alignment may end, minus infinity for others."""
        states = np.arange(self.classes.shape[1])
        behind = 2 * self.lengths[:, None] - states
        return np.where((behind == 0) | (behind == 1), 0.0, -np.inf)

    def forwards(self) -> Array:
        """Return (times, batch, states): the log-likelihood of all beginnings of alignments up to a time and state."""
        steps = self.log_probs.shape[0]
        # Two states in front, which are never reached, so that each state has two before it.
        result = np.full((steps, len(self.cases), self.classes.shape[1] + 2), -np.inf)
        if steps:
            result[0, :, 2:4] = self.emissions[0, :, :2]
        for step in range(1, steps):
            before = result[step - 1]
            result[step, :, 2:] = self._summed(before[:, 2:], before[:, 1:-1], before[:, :-2] + self.skips)
            result[step, :, 2:] += self.emissions[step]
        return result[:, :, 2:]

    def backwards(self) -> Array:
        """Return (times, batch, states): the log-likelihood of all continuations behind a time and state."""
        steps = self.log_probs.shape[0]
        ends = self.ends()
        result = np.full((steps, *self.classes.shape), -np.inf)
        # Two states behind the last, which are never reached, so that each state has two behind it.
        after = np.full((len(self.cases), self.classes.shape[1] + 2), -np.inf)
        skips = np.full(self.classes.shape, -np.inf)
        skips[:, :-2] = self.skips[:, 2:]
        for step in reversed(range(steps)):
            now = result[step]
            if step + 1 < steps:
                np.add(result[step + 1], self.emissions[step + 1], after[:, :-2])
                now[...] = self._summed(after[:, :-2], after[:, 1:-1], after[:, 2:] + skips)
            last = self.times == step + 1
            now[last] = ends[last]
        return result

    def _summed(self, first: Array, second: Array, third: Array) -> Array:
        """Compute ``log(exp(first) + exp(second) + exp(third))``, in fewer steps than by `logaddexp`."""
        top = np.maximum(np.maximum(first, second), third)
        np.maximum(top, _LOWEST, out=top)  # the difference of two negative infinities would be nan
        total = np.exp(first - top)
        total += np.exp(second - top)
        total += np.exp(third - top)
        np.log(total, total)
        total += top
        return total

    def losses(self, forwards: Array) -> Array:
        """Return the negative log-likelihood of each sample's target."""
        # An input of no steps has one alignment, if the target is empty.
        empty = np.where(self.lengths == 0, 0.0, np.inf)
        if not forwards.shape[0]:
            return empty
        final = forwards[np.maximum(self.times, 1) - 1, self.cases] + self.ends()
        return np.where(self.times == 0, empty, -np.logaddexp.reduce(final, 1))

    def gradient(self) -> tuple[Array, Array]:
        """Return the losses, and their gradients (times, batch, classes) by log-probabilities made by a log_softmax.

        The gradients of an infinite loss can be nan.
        """
        forwards = self.forwards()
        losses = self.losses(forwards)
        likelihoods = np.exp(forwards + self.backwards() + losses[:, None])
        result = np.exp(self.log_probs)
        for step in range(result.shape[0]):
            np.subtract.at(result[step], (self.cases[:, None], self.classes), likelihoods[step])
        beyond = np.arange(result.shape[0])[:, None] >= self.times
        result[beyond] = 0
        return losses, result


@kernel_of("ctc_loss")
def _ctc_loss(
    problem: Problem, log_probs: Array, targets: Array, times: Array, lengths: Array, out: Array | None
) -> Array:
    blank, zero_infinity = problem.attributes
    states = _States(blank, log_probs, targets, times, lengths)
    losses = states.losses(states.forwards())
    if zero_infinity:
        losses = np.where(np.isinf(losses), 0.0, losses)
    return losses.astype(problem.outputs[0].dtype.numpy)


@kernel_of("ctc_loss_gradient")
def _ctc_loss_gradient(
    problem: Problem, log_probs: Array, targets: Array, times: Array, lengths: Array, gradient: Array, out: Array | None
) -> Array:
    blank, zero_infinity = problem.attributes
    losses, result = _States(blank, log_probs, targets, times, lengths).gradient()
    result *= np.asarray(gradient, dtype=np.float64)[:, None]
    if zero_infinity:
        result[:, np.isinf(losses)] = 0
    return result.astype(problem.outputs[0].dtype.numpy)
