"""Connectionist temporal classification: the likelihood of a class sequence, summed over all its alignments in time.

A. Graves et al., 2006.  An alignment assigns one class to each time step; merging repeated classes and then dropping
blanks gives the target.  The states of the forward algorithm are the target's classes, with blanks before, between and
behind them: 2 * length + 1 states.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from vmflow import dtypes, interpreter as _interpreter
from vmflow.arguments import flag, whole_number
from vmflow.dtypes import INTEGER
from vmflow.instructions.blob import meta
from vmflow.operands import check_tensors
from vmflow.ops.creation.creation import tensor
from vmflow.ops.elementwise.inference import EXPENSIVE
from vmflow.ops.nn.layer_operands import check_class_indices, check_floating
from vmflow.ops.table import Attributes, Form, Inferred, Kinds, Metas, OpExpr, common_device
from vmflow.tensors import Tensor
from vmflow.transfers import beside

from .loss import check_reduction

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

_NAME = "ctc_loss"


class _Options(NamedTuple):
    """The attributes of the op `ctc_loss` and of its gradient.

    Attributes:
        blank, zero_infinity: see the function `ctc_loss`.
    """

    blank: int
    zero_infinity: bool


def _infer_ctc_loss(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    source = metas[0]
    output = meta((source.shape[1],), source.dtype, common_device(_NAME, metas))
    return Inferred(output, _cost(metas))


def _infer_ctc_loss_gradient(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    return Inferred(metas[0], 3 * _cost(metas))


def _cost(metas: Metas) -> float:
    steps, batch, _ = metas[0].shape
    states = 2 * (metas[1].shape[-1] if metas[1].shape else 0) + 1
    return steps * (batch * states * EXPENSIVE * 4 + 10_000)


_CTC_LOSS = OpExpr("ctc_loss", _infer_ctc_loss, Form(4, _Options), "ctc_loss")
_CTC_LOSS_GRADIENT = OpExpr("ctc_loss_gradient", _infer_ctc_loss_gradient, Form(5, _Options), "ctc_loss")


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
    """The negative log-likelihood of target sequences over all alignments in time (A. Graves et al., 2006).

    As in PyTorch the gradient holds for the logarithms of probabilities which sum to one at each time, as those of
    `log_softmax` do, and has no gradient itself.

    Args:
        log_probs: (T, N, C), or (T, C) for a single case.
        targets: class indices, (N, S) or, one case after the other, (sum of the target lengths,); checked when the op
            runs, as are the lengths.
        input_lengths: the number of time steps that each case uses, (N,).
        target_lengths: the length of each target, (N,).
        blank: the index of the blank class, which stands for no class.
        reduction: "mean" (of the losses divided by the target lengths, where 0 counts as 1), "sum" or "none".
        zero_infinity: whether infinite losses, such as of targets that are too long for their input, and their
            gradients become 0.

    Raises:
        TypeError, ValueError: for dtypes, shapes and a blank that do not fit, or another reduction.
        ValueError, IndexError: for a length out of range, or a target that is no class, when the result is read.

    Example:
        >>> log_probs = flow.full((1, 1, 2), 0.5).log()
        >>> flow.nn.functional.ctc_loss(log_probs, flow.tensor([[1]]), (1,), (1,))
        tensor(0.6931)
    """
    check_tensors(_NAME, log_probs, targets)
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
    check_class_indices(_NAME, targets._blob.meta)
    if targets.ndim == 2 and targets.shape[0] != batch:
        raise ValueError(f"{_NAME}: {batch} cases do not fit targets of shape {list(targets.shape)}")
    if not 0 <= whole_number(_NAME, "the blank", blank) < classes:
        raise ValueError(f"{_NAME}: the blank must be one of {classes} classes, not {blank}")
    times = _lengths("input", input_lengths, batch, log_probs)
    lengths = _lengths("target", target_lengths, batch, log_probs)
    options = _Options(int(blank), flag(_NAME, "zero_infinity", zero_infinity))
    losses = _interpreter.dispatch(_CTC_LOSS, (log_probs, targets, times, lengths), options)
    if reduction == "mean":
        return (losses / lengths.clamp(min=1).to(losses.dtype)).mean()
    if reduction == "sum":
        return losses.sum()
    return losses.reshape(()) if single else losses


def _lengths(what: str, lengths: Tensor | Sequence[int] | int, batch: int, like: Tensor) -> Tensor:
    if not isinstance(lengths, Tensor):
        lengths = beside(tensor(lengths, dtype=dtypes.int64, device=like.device), like)
    if lengths.dtype.category != INTEGER:
        raise TypeError(f"{_NAME}: {what} lengths must be integers, not {lengths.dtype.name}")
    if lengths.numel() != batch or lengths.ndim > 1:
        raise ValueError(f"{_NAME}: {batch} cases need as many {what} lengths, got shape {list(lengths.shape)}")
    return lengths.reshape(batch)
