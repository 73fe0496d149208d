"""The likelihood of a sequence, summed over all its alignments in time; see `vmflow.kernels.numpy.ctc_loss`.

Until the error is reported, the nearest valid value stands in for a wrong length or class.
"""

from __future__ import annotations

from typing import Any, Final

from vmflow import dtypes
from vmflow.kernels.choosing import Problem

from .arrays import by_arrays

_LOWEST: Final = dtypes.finfo(dtypes.float64).min


class _States:
    """The states of a batch of alignments, as many as the longest target could have.

    Attributes:
        log_probs: (times, batch, classes), in float64.
        times, lengths: of each case's input and target.
        classes: (batch, states): what each state emits.
        skips: (batch, states): 0 where a state may follow the one two before it, else minus infinity.
        emissions: (times, batch, states): the log-probability of what each state emits.
    """

    def __init__(self, xp: Any, blank: int, log_probs: Any, targets: Any, times: Any, lengths: Any) -> None:
        self.xp = xp
        self.log_probs = log_probs.astype("float64")
        steps, batch, classes = self.log_probs.shape
        self.times = xp.clip(times.astype("int64"), 0, steps)
        self.lengths = xp.clip(lengths.astype("int64"), 0, targets.shape[-1])
        emitted = xp.clip(self._padded(blank, targets), 0, classes - 1)
        blanks = xp.full_like(emitted, blank)
        # Blanks before, between and behind.
        between = xp.stack((blanks, emitted), axis=2).reshape(batch, 2 * emitted.shape[1])
        self.classes = xp.concatenate((between, xp.full((batch, 1), blank)), axis=1)
        before = xp.concatenate((xp.full((batch, 2), blank), self.classes[:, :-2]), axis=1)[:, : self.classes.shape[1]]
        free = xp.logical_and(self.classes != blank, self.classes != before)
        self.skips = xp.where(free, 0.0, -xp.inf)
        self.cases = xp.arange(batch)
        self.emissions = self.log_probs[:, self.cases[:, None], self.classes]

    def _padded(self, blank: int, targets: Any) -> Any:
        """(batch, the longest length there could be): the targets with blanks behind."""
        xp, places = self.xp, self.xp.arange(targets.shape[-1])
        inside = places < self.lengths[:, None]
        if targets.ndim == 1:
            starts = xp.cumsum(self.lengths) - self.lengths
            targets = targets[xp.clip(starts[:, None] + places, 0, max(targets.shape[0] - 1, 0))]
        return xp.where(inside, targets.astype("int64"), blank)

    def ends(self) -> Any:
        """Zero for the states with which an alignment may end, minus infinity for others."""
        behind = 2 * self.lengths[:, None] - self.xp.arange(self.classes.shape[1])
        return self.xp.where(self.xp.logical_or(behind == 0, behind == 1), 0.0, -self.xp.inf)

    def forwards(self) -> Any:
        """(times, batch, states): the log-likelihood of all beginnings that are in this state at this time."""
        xp, (steps, batch, states) = self.xp, self.emissions.shape
        # Two states before the first that nothing is ever in.
        result = xp.full((steps, batch, states + 2), -xp.inf)
        result[:1, :, 2:4] = self.emissions[:1, :, :2]
        for step in range(1, steps):
            before = result[step - 1]
            summed = self._summed(before[:, 2:], before[:, 1:-1], before[:, :-2] + self.skips)
            result[step, :, 2:] = summed + self.emissions[step]
        return result[:, :, 2:]

    def backwards(self) -> Any:
        """(times, batch, states): the log-likelihood of all that can follow this state at this time."""
        xp, (steps, batch, states) = self.xp, self.emissions.shape
        ends, result = self.ends(), xp.empty(self.emissions.shape)
        # Two states behind the last that nothing is ever in.
        after = xp.full((batch, states + 2), -xp.inf)
        skips = xp.full((batch, states), -xp.inf)
        skips[:, :-2] = self.skips[:, 2:]
        for step in reversed(range(steps)):
            now = self._summed(after[:, :-2], after[:, 1:-1], after[:, 2:] + skips)
            result[step] = xp.where((self.times == step + 1)[:, None], ends, now)
            after[:, :-2] = result[step] + self.emissions[step]
        return result

    def _summed(self, first: Any, second: Any, third: Any) -> Any:
        """``log(exp(first) + exp(second) + exp(third))``."""
        xp = self.xp
        # No less than the lowest number: the difference of two infinities would be nan.
        top = xp.maximum(xp.maximum(xp.maximum(first, second), third), _LOWEST)
        return xp.log(xp.exp(first - top) + xp.exp(second - top) + xp.exp(third - top)) + top

    def losses(self, forwards: Any) -> Any:
        """The negative log likelihood of each case."""
        xp = self.xp
        # An input of no length has one alignment, that of an empty target.
        empty = xp.where(self.lengths == 0, 0.0, xp.inf)
        if not forwards.shape[0]:
            return empty
        final = forwards[xp.maximum(self.times, 1) - 1, self.cases] + self.ends()
        top = xp.maximum(xp.amax(final, axis=1), _LOWEST)
        total = xp.log(xp.sum(xp.exp(final - top[:, None]), axis=1)) + top
        return xp.where(self.times == 0, empty, -total)

    def gradient(self) -> tuple[Any, Any]:
        """The losses, and the gradient of each by log-probabilities that sum to one."""
        xp, steps = self.xp, self.emissions.shape[0]
        forwards = self.forwards()
        losses = self.losses(forwards)
        likelihoods = xp.exp(forwards + self.backwards() + losses[:, None])
        result = xp.exp(self.log_probs)
        number = xp.arange(steps)[:, None]
        xp.subtract.at(result, (number[:, :, None], self.cases[:, None], self.classes), likelihoods)
        return losses, xp.where((number >= self.times)[:, :, None], 0.0, result)


# The meaning of a number of `_note_wrong`, by its remainder; the quotient is the class.
_KINDS: Final = 8
_TIMES, _NEGATIVE, _SUM, _BEYOND, _CLASS = range(1, 6)


def _error(problem: Problem, number: int) -> Exception:
    log_probs, targets, *_ = problem.inputs
    steps, _, classes = log_probs.shape
    found, kind = divmod(number, _KINDS)
    if kind == _CLASS:
        return IndexError(f"ctc_loss: class index {found} is out of range for {classes} classes")
    messages = {
        _TIMES: f"input lengths must be within 0 and {steps}",
        _NEGATIVE: "target lengths cannot be negative",
        _SUM: f"the target lengths must add up to the {targets.shape[0]} targets given one after the other",
        _BEYOND: f"some target lengths are beyond targets of shape {list(targets.shape)}",
    }
    return ValueError(f"ctc_loss: {messages[kind]}")


def _note_wrong(xp: Any, number: Any, log_probs: Any, targets: Any, times: Any, lengths: Any) -> None:
    """Write what is wrong with the operands, 0 if nothing is."""
    steps, _, classes = log_probs.shape
    if targets.ndim == 1:
        inside = xp.ones(targets.shape, "bool")
        misfit, kind = xp.sum(lengths) != targets.shape[0], _SUM
    else:
        inside = xp.arange(targets.shape[1]) < lengths[:, None]
        misfit, kind = xp.any(lengths > targets.shape[1]), _BEYOND
    number.fill(0)
    if targets.size:
        wrong = xp.logical_and(inside, xp.logical_or(targets < 0, targets >= classes)).reshape(-1)
        first = xp.argmax(wrong)
        found = xp.take(targets.reshape(-1), first).astype("int64") * _KINDS + _CLASS
        xp.copyto(number, xp.where(xp.take(wrong, first), found, 0))
    found = xp.where(misfit, kind, number)
    found = xp.where(xp.any(lengths < 0), _NEGATIVE, found)
    xp.copyto(number, xp.where(xp.any(xp.logical_or(times < 0, times > steps)), _TIMES, found))


@by_arrays("ctc_loss", verify=_error)
def _ctc_loss(
    xp: Any, problem: Problem, log_probs: Any, targets: Any, times: Any, lengths: Any, out: Any, number: Any
) -> None:
    _note_wrong(xp, number, log_probs, targets, times, lengths)
    blank, zero_infinity = problem.attributes
    states = _States(xp, blank, log_probs, targets, times, lengths)
    losses = states.losses(states.forwards())
    xp.copyto(out, xp.where(xp.isinf(losses), 0.0, losses) if zero_infinity else losses, casting="unsafe")


@by_arrays("ctc_loss_gradient")
def _ctc_loss_gradient(
    xp: Any, problem: Problem, log_probs: Any, targets: Any, times: Any, lengths: Any, gradient: Any, out: Any
) -> None:
    blank, zero_infinity = problem.attributes
    losses, result = _States(xp, blank, log_probs, targets, times, lengths).gradient()
    result = result * gradient.astype("float64")[:, None]
    if zero_infinity:
        result = xp.where(xp.isinf(losses)[:, None], 0.0, result)
    xp.copyto(out, result, casting="unsafe")
