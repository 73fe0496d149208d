"""Connectionist temporal classification: the likelihood of a sequence, summed over all its alignments in time.

A. Graves et al., 2006.  An alignment gives each time one class; merging repetitions and then dropping blanks leads from
it to the target.  Its states are the target's classes with blanks before, between and behind: twice as many and one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from vmflow import dtypes
from vmflow import interpreter as _interpreter
from vmflow.dtypes import INTEGER
from vmflow.instructions.blob import Array, meta

from .creation import tensor
from .elementwise import DEAR
from .layer_operands import check_floating
from .loss import check_reduction
from .table import Attributes, Form, Inferred, Kinds, Metas, OpExpr, array_module, common_device, computed_by

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

_NAME = "ctc_loss"
_LOWEST: Final = dtypes.finfo(dtypes.float64).min


class _Options(NamedTuple):
    """The attributes of the ops below.

    Attributes:
        blank: the class that stands for nothing.
        zero_infinity: whether targets without an alignment cost nothing.
    """

    blank: int
    zero_infinity: bool


class _States:
    """The states of a batch of alignments.

    Attributes:
        log_probs: (times, batch, classes), in float64.
        times, lengths: of each case's input and target.
        classes: (batch, states): what each state emits.
        skips: (batch, states): 0 where a state may follow the one two before it, else minus infinity.
        emissions: (times, batch, states): the log-probability of what each state emits.
    """

    def __init__(
        self, xp: Any, options: _Options, log_probs: Array, targets: Array, times: Array, lengths: Array
    ) -> None:
        self.xp = xp
        self.log_probs = xp.asarray(log_probs, dtype=xp.float64)
        self.times = xp.asarray(times, dtype=xp.int64)
        self.lengths = xp.asarray(lengths, dtype=xp.int64)
        steps, batch, classes = self.log_probs.shape
        self._check_lengths(steps, targets)
        longest = int(self.lengths.max()) if batch else 0
        padded = xp.full((batch, longest), options.blank, xp.int64)
        inside = xp.arange(longest) < self.lengths[:, None]
        if targets.ndim == 1:
            padded[inside] = targets
        else:
            padded[inside] = targets[:, :longest][inside]
        wrong = inside & ((padded < 0) | (padded >= classes))
        if wrong.any():
            raise IndexError(f"{_NAME}: class index {int(padded[wrong][0])} is out of range for {classes} classes")
        self.classes = xp.full((batch, 2 * longest + 1), options.blank, xp.int64)
        self.classes[:, 1::2] = padded
        self.skips = xp.full(self.classes.shape, -xp.inf)
        free = (self.classes[:, 2:] != options.blank) & (self.classes[:, 2:] != self.classes[:, :-2])
        self.skips[:, 2:][free] = 0
        self.cases = xp.arange(batch)
        self.emissions = xp.take_along_axis(self.log_probs, self.classes[None], 2)

    def _check_lengths(self, steps: int, targets: Array) -> None:
        if ((self.times < 0) | (self.times > steps)).any():
            raise ValueError(f"{_NAME}: input lengths must be within 0 and {steps}, got {self.times.tolist()}")
        if (self.lengths < 0).any():
            raise ValueError(f"{_NAME}: target lengths cannot be negative, got {self.lengths.tolist()}")
        if targets.ndim == 1 and int(self.lengths.sum()) != targets.shape[0]:
            raise ValueError(
                f"{_NAME}: the target lengths {self.lengths.tolist()} must add up to the {targets.shape[0]} targets "
                "given one after the other"
            )
        if targets.ndim == 2 and (self.lengths > targets.shape[1]).any():
            raise ValueError(
                f"{_NAME}: target lengths {self.lengths.tolist()} are beyond targets of shape {list(targets.shape)}"
            )

    def ends(self) -> Array:
        """Zero for the states with which an alignment may end, minus infinity for others."""
        states = self.xp.arange(self.classes.shape[1])
        behind = 2 * self.lengths[:, None] - states
        return self.xp.where((behind == 0) | (behind == 1), 0.0, -self.xp.inf)

    def forwards(self) -> Array:
        """(times, batch, states): the log-likelihood of all beginnings that are in this state at this time."""
        xp = self.xp
        steps = self.log_probs.shape[0]
        # Two states before the first that nothing is ever in.
        result = xp.full((steps, len(self.cases), self.classes.shape[1] + 2), -xp.inf)
        if steps:
            result[0, :, 2:4] = self.emissions[0, :, :2]
        for step in range(1, steps):
            before = result[step - 1]
            result[step, :, 2:] = self._summed(before[:, 2:], before[:, 1:-1], before[:, :-2] + self.skips)
            result[step, :, 2:] += self.emissions[step]
        return result[:, :, 2:]

    def backwards(self) -> Array:
        """(times, batch, states): the log-likelihood of all that can follow this state at this time."""
        xp = self.xp
        steps = self.log_probs.shape[0]
        ends = self.ends()
        result = xp.full((steps, *self.classes.shape), -xp.inf)
        # Two states behind the last that nothing is ever in.
        after = xp.full((len(self.cases), self.classes.shape[1] + 2), -xp.inf)
        skips = xp.full(self.classes.shape, -xp.inf)
        skips[:, :-2] = self.skips[:, 2:]
        for step in reversed(range(steps)):
            now = result[step]
            if step + 1 < steps:
                xp.add(result[step + 1], self.emissions[step + 1], after[:, :-2])
                now[...] = self._summed(after[:, :-2], after[:, 1:-1], after[:, 2:] + skips)
            last = self.times == step + 1
            now[last] = ends[last]
        return result

    def _summed(self, first: Array, second: Array, third: Array) -> Array:
        """``log(exp(first) + exp(second) + exp(third))``, in fewer steps than by `logaddexp`."""
        xp = self.xp
        top = xp.maximum(xp.maximum(first, second), third)
        xp.maximum(top, _LOWEST, out=top)  # the difference of two infinities would be nan
        total = xp.exp(first - top)
        total += xp.exp(second - top)
        total += xp.exp(third - top)
        xp.log(total, total)
        total += top
        return total

    def losses(self, forwards: Array) -> Array:
        """The negative log likelihood of each case."""
        xp = self.xp
        # Of no time at all there is one alignment, that of an empty target.
        empty = xp.where(self.lengths == 0, 0.0, xp.inf)
        if not forwards.shape[0]:
            return empty
        final = forwards[xp.maximum(self.times, 1) - 1, self.cases] + self.ends()
        return xp.where(self.times == 0, empty, -xp.logaddexp.reduce(final, 1))

    def gradient(self) -> tuple[Array, Array]:
        """The losses, and the gradient of each by log-probabilities that sum to one."""
        xp = self.xp
        forwards = self.forwards()
        losses = self.losses(forwards)
        likelihoods = xp.exp(forwards + self.backwards() + losses[:, None])
        result = xp.exp(self.log_probs)
        for step in range(result.shape[0]):
            xp.subtract.at(result[step], (self.cases[:, None], self.classes), likelihoods[step])
        beyond = xp.arange(result.shape[0])[:, None] >= self.times
        result[beyond] = 0
        return losses, result


def _infer_ctc_loss(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    options = _Options(*cast("tuple[int, bool]", attributes))
    source = metas[0]
    output = meta((source.shape[1],), source.dtype, common_device(_NAME, metas))
    xp = array_module(source.device)

    def kernel(log_probs: Array, targets: Array, times: Array, lengths: Array, out: Array | None) -> Array:
        states = _States(xp, options, log_probs, targets, times, lengths)
        losses = states.losses(states.forwards())
        if options.zero_infinity:
            losses = xp.where(xp.isinf(losses), 0.0, losses)
        return losses.astype(output.dtype.numpy)

    return computed_by(output, kernel, _cost(metas))


def _infer_ctc_loss_gradient(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    options = _Options(*cast("tuple[int, bool]", attributes))
    source = metas[0]
    xp = array_module(source.device)

    def kernel(
        log_probs: Array, targets: Array, times: Array, lengths: Array, gradient: Array, out: Array | None
    ) -> Array:
        losses, result = _States(xp, options, log_probs, targets, times, lengths).gradient()
        result *= xp.asarray(gradient, dtype=xp.float64)[:, None]
        if options.zero_infinity:
            result[:, xp.isinf(losses)] = 0
        return result.astype(source.dtype.numpy)

    return computed_by(source, kernel, 3 * _cost(metas))


def _cost(metas: Metas) -> float:
    steps, batch, _ = metas[0].shape
    states = 2 * (metas[1].shape[-1] if metas[1].shape else 0) + 1
    return steps * (batch * states * DEAR * 4 + 10_000)


_CTC_LOSS = OpExpr("ctc_loss", _infer_ctc_loss, Form(4, _Options))
_CTC_LOSS_GRADIENT = OpExpr("ctc_loss_gradient", _infer_ctc_loss_gradient, Form(5, _Options))


@_CTC_LOSS.gradient(inputs=(0, 1, 2, 3))
def _ctc_loss_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor, None, None, None]:
    operands = (*[node.input(place) for place in range(4)], gradient)
    return _interpreter.dispatch(_CTC_LOSS_GRADIENT, operands, node.attributes), None, None, None


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """The negative log likelihood of target sequences, whatever their alignment in time.

    As in PyTorch the gradient is that of log-probabilities which sum to one at each time, as those of `log_softmax` do,
    and has no gradient itself.

    Args:
        log_probs: (T, N, C), or (T, C) for a single case.
        targets: class indices, (N, S) or, one case after the other, (sum of the target lengths,); checked when the op
            runs, as are the lengths.
        input_lengths: how much of T each case uses, (N,).
        target_lengths: how long its target is, (N,).
        blank: the class that stands for nothing.
        reduction: "mean" (of the losses divided by the target lengths), "sum" or "none".
        zero_infinity: count targets that are too long for their input as 0, with a gradient of 0.

    Raises:
        TypeError, ValueError: for dtypes, shapes and a blank that do not fit.
    """
    check_reduction(_NAME, reduction)
    single = log_probs.ndim == 2
    if single:
        log_probs = log_probs.unsqueeze(1)
        targets = targets.unsqueeze(0) if targets.ndim == 1 else targets
    if log_probs.ndim != 3 or targets.ndim not in (1, 2):
        raise ValueError(
            f"{_NAME}: expected log-probabilities (T, N, C) or (T, C) and targets (N, S) or one after the other, got "
            f"shapes {list(log_probs.shape)} and {list(targets.shape)}"
        )
    _, batch, classes = log_probs.shape
    check_floating(_NAME, log_probs._blob.meta)
    if targets.dtype.category != INTEGER:
        raise TypeError(f"{_NAME}: class indices must be integers, not {targets.dtype.name}")
    if targets.ndim == 2 and targets.shape[0] != batch:
        raise ValueError(f"{_NAME}: {batch} cases do not fit targets of shape {list(targets.shape)}")
    if not 0 <= blank < classes:
        raise ValueError(f"{_NAME}: the blank must be one of {classes} classes, not {blank}")
    times = _lengths("input", input_lengths, batch, log_probs)
    lengths = _lengths("target", target_lengths, batch, log_probs)
    options = _Options(int(blank), bool(zero_infinity))
    losses = _interpreter.dispatch(_CTC_LOSS, (log_probs, targets, times, lengths), options)
    if reduction == "mean":
        return (losses / lengths.clamp(min=1).to(losses.dtype)).mean()
    if reduction == "sum":
        return losses.sum()
    return losses.reshape(()) if single else losses


def _lengths(what: str, given: Tensor | Sequence[int] | int, batch: int, like: Tensor) -> Tensor:
    from vmflow.tensors import Tensor

    if not isinstance(given, Tensor):
        given = tensor(given, dtype=dtypes.int64, device=like.device)
    if given.dtype.category != INTEGER:
        raise TypeError(f"{_NAME}: {what} lengths must be integers, not {given.dtype.name}")
    if given.numel() != batch or given.ndim > 1:
        raise ValueError(f"{_NAME}: {batch} cases need as many {what} lengths, got shape {list(given.shape)}")
    return given.reshape(batch)
