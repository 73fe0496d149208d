"""Losses that compare predictions, real values or probabilities, with targets of the same shape."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING

from vmflow import interpreter as _interpreter
from vmflow.arguments import flag
from vmflow.dtypes import BOOL, FLOATING, promote_types
from vmflow.instructions import origin
from vmflow.instructions.blob import TensorMeta
from vmflow.operands import check_tensors
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.elementwise.activation import sigmoid, softplus
from vmflow.ops.elementwise.inference import EXPENSIVE
from vmflow.ops.elementwise.selection import where
from vmflow.ops.formula import formula
from vmflow.ops.table import Attributes, Form, Inferred, Kinds, Metas, OpExpr, broadcast_shapes, common_device

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

REDUCTIONS = ("mean", "sum", "none")


def chosen_reduction(reduction: str, size_average: bool | None, reduce: bool | None) -> str:
    """Return the reduction of a loss: `reduction`, or, with a warning, that of PyTorch's old arguments if one is given.

    Args:
        reduction: the result if the other arguments are None.
        size_average: whether losses are averaged instead of summed; None counts as True.
        reduce: whether losses are reduced; None counts as True.

    Raises:
        TypeError: if a reduction is passed in the position of `size_average`.
    """
    if size_average is None and reduce is None:
        return reduction
    if isinstance(size_average, str):
        raise TypeError(f"size_average must be True, False or None, not {size_average!r}; give reduction= by its name")
    if reduce is False:
        chosen = "none"
    else:
        chosen = "sum" if size_average is False else "mean"
    warnings.warn(
        f"size_average and reduce are deprecated names; give reduction={chosen!r} instead", stacklevel=origin.depth()
    )
    return chosen


def reduced(name: str, loss: Tensor, reduction: str) -> Tensor:
    check_reduction(name, reduction)
    if reduction == "mean":
        if loss.dtype.category < FLOATING:
            raise TypeError(
                f"{name}: there is no mean of {loss.dtype.name} losses; convert the predictions or the targets with "
                ".float(), or give reduction='sum'"
            )
        return loss.mean()
    return loss.sum() if reduction == "sum" else loss


def check_reduction(name: str, reduction: str) -> None:
    if reduction not in REDUCTIONS:
        raise ValueError(f"{name}: reduction must be one of {', '.join(REDUCTIONS)}, not {reduction!r}")


def check_same(name: str, input: Tensor, target: Tensor) -> None:
    """Raise TypeError unless both are tensors, and ValueError unless their shapes are equal.

    PyTorch only warns about other shapes, but broadcasting in a loss is mostly wrong.
    """
    check_tensors(name, input, target)
    if input.shape != target.shape:
        raise ValueError(
            f"{name}: predictions of shape {list(input.shape)} and targets of shape {list(target.shape)} must agree; "
            f"{_towards(tuple(input.shape), tuple(target.shape))}"
        )


def _check_real(name: str, input: Tensor, target: Tensor) -> None:
    for tensor in (input, target):
        if tensor.dtype.is_complex:
            raise TypeError(f"{name} is not defined for complex tensors; compare vmflow.view_as_real() of them")


def _towards(shape: tuple[int, ...], target: tuple[int, ...]) -> str:
    """Return a hint, for an error, on how to make predictions of `shape` and targets of another shape agree."""
    if shape == (*target, 1):
        return "use target.unsqueeze(-1), or input.squeeze(-1)"
    if target == (*shape, 1):
        return "use target.squeeze(-1)"
    if math.prod(shape) == math.prod(target):
        return "reshape one of them"
    return "neither is broadcast, which would nearly always be a mistake; where it is meant, use expand_as()"


# Losses of real values


def _as_numbers(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """If one tensor is bool, convert it to the other's dtype, since bools cannot be subtracted; return both tensors."""
    if input.dtype is target.dtype:
        return input, target
    if target.dtype.category == BOOL:
        return input, target.to(input.dtype)
    return (input.to(target.dtype) if input.dtype.category == BOOL else input), target


def _reduced_by_weight(name: str, losses: Tensor, weight: Tensor, reduction: str) -> Tensor:
    """Reduce ``losses * weight``, of one shape; the mean is the sum of the products divided by that of the weights."""
    check_reduction(name, reduction)
    check_tensors(name, weight)
    if weight.shape != losses.shape:
        raise ValueError(
            f"{name}: the weights must have the shape of the predictions, {list(losses.shape)}, got "
            f"{list(weight.shape)}"
        )
    losses = losses * weight
    if reduction == "mean":
        return losses.sum() / weight.sum()
    return reduced(name, losses, reduction)


@formula("squared_difference", operands=2)
def _squared_difference(input: Tensor, target: Tensor) -> Tensor:
    return (input - target).square()


@autocast_as_op
def mse_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    weight: Tensor | None = None,
    *,
    size_average: bool | None = None,
    reduce: bool | None = None,
) -> Tensor:
    """The squared difference, reduced.

    Args:
        input: predictions.
        target: of the same shape; dtypes promote.
        reduction: "mean", "sum" or "none".
        weight: the weight of each loss, of the same shape; with "mean", the sum is divided by that of the weights.
        size_average, reduce: older names for the reduction, deprecated.

    Raises:
        TypeError: for operands that are no tensors, complex or both bool, or the unweighted mean of integers.
        ValueError: for shapes that differ, or another reduction.

    Example:
        >>> flow.nn.functional.mse_loss(flow.tensor([1.0, 2.0]), flow.tensor([1.0, 4.0]))
        tensor(2.)
    """
    reduction = chosen_reduction(reduction, size_average, reduce)
    check_same("mse_loss", input, target)
    _check_real("mse_loss", input, target)
    losses = _squared_difference(*_as_numbers(input, target))
    if weight is not None:
        return _reduced_by_weight("mse_loss", losses, weight, reduction)
    return reduced("mse_loss", losses, reduction)


@formula("absolute_difference", operands=2)
def _absolute_difference(input: Tensor, target: Tensor) -> Tensor:
    return (input - target).abs()


@autocast_as_op
def l1_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    weight: Tensor | None = None,
    *,
    size_average: bool | None = None,
    reduce: bool | None = None,
) -> Tensor:
    """The absolute difference, reduced.

    Args:
        input, target, reduction, weight, size_average, reduce: as of `mse_loss`.

    Raises:
        TypeError: if `input` or `target` is no tensor, or bool, or for the unweighted mean of integers.
        ValueError: for shapes that differ, or another reduction.

    Example:
        >>> flow.nn.functional.l1_loss(flow.tensor([1.0, 2.0]), flow.tensor([1.0, 4.0]))
        tensor(1.)
    """
    reduction = chosen_reduction(reduction, size_average, reduce)
    check_same("l1_loss", input, target)
    losses = _absolute_difference(input, target)
    if weight is not None:
        return _reduced_by_weight("l1_loss", losses, weight, reduction)
    return reduced("l1_loss", losses, reduction)


@formula("smooth_l1", operands=2)
def _smooth_l1(input: Tensor, target: Tensor, beta: float) -> Tensor:
    size = (input - target).abs()
    return where(size < beta, size * size * (0.5 / beta), size - 0.5 * beta)


@autocast_as_op
def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    beta: float = 1.0,
    *,
    size_average: bool | None = None,
    reduce: bool | None = None,
) -> Tensor:
    """``d**2 / (2 * beta)`` for an absolute difference d below `beta`, else ``d - beta / 2``.

    Args:
        input, target, reduction, size_average, reduce: as of `mse_loss`.
        beta: the difference from which the loss grows linearly, not negative.

    Raises:
        TypeError: for operands that are no tensors, complex or both bool; for a `beta` of 0 also as `l1_loss`.
        ValueError: for shapes that differ, another reduction, or a negative `beta`.

    Example:
        >>> flow.nn.functional.smooth_l1_loss(flow.tensor([1.0, 0.0]), flow.tensor([2.0, 2.0]), reduction="none")
        tensor([0.5000, 1.5000])
    """
    reduction = chosen_reduction(reduction, size_average, reduce)
    check_same("smooth_l1_loss", input, target)
    _check_real("smooth_l1_loss", input, target)
    if not beta >= 0:
        raise ValueError(f"smooth_l1_loss: beta cannot be negative, got {beta}")
    if beta == 0:
        return l1_loss(input, target, reduction)
    return reduced("smooth_l1_loss", _smooth_l1(*_as_numbers(input, target), beta), reduction)


@formula("huber", operands=2)
def _huber(input: Tensor, target: Tensor, delta: float) -> Tensor:
    size = (input - target).abs()
    return where(size < delta, size * size * 0.5, (size - 0.5 * delta) * delta)


@autocast_as_op
def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """``d**2 / 2`` for an absolute difference d below `delta`, else ``delta * (d - delta / 2)``.

    Args:
        input: predictions; if they are floating-point, the losses have their dtype.
        target: of the same shape.
        reduction: "mean", "sum" or "none".
        delta: the difference from which the loss grows linearly, positive.
        weight: of each loss, of the same shape; the mean is still taken over all elements.

    Raises:
        TypeError: for operands that are no tensors, complex or both bool.
        ValueError: for shapes that differ, another reduction, or a `delta` that is not positive.

    Example:
        >>> flow.nn.functional.huber_loss(flow.tensor([1.0, 0.0]), flow.tensor([2.0, 3.0]), reduction="none")
        tensor([0.5000, 2.5000])
    """
    check_same("huber_loss", input, target)
    _check_real("huber_loss", input, target)
    if not delta > 0:
        raise ValueError(f"huber_loss: delta must be positive, got {delta}")
    losses = _huber(*_as_numbers(input, target), delta)
    if input.dtype.category == FLOATING and losses.dtype is not input.dtype:
        losses = losses.to(input.dtype)
    if weight is not None:
        check_tensors("huber_loss", weight)
        if weight.shape != input.shape:
            raise ValueError(
                f"huber_loss: the weights must have the shape of the predictions, {list(input.shape)}, got "
                f"{list(weight.shape)}"
            )
        losses = losses * weight
    return reduced("huber_loss", losses, reduction)


# Losses of probabilities


def _check_binary(name: str, metas: Metas) -> TensorMeta:
    source, target = metas
    common_device(name, metas)
    if source.dtype.category != FLOATING or source.dtype is not target.dtype:
        # `binary_cross_entropy_with_logits` takes two floating-point dtypes, so that its errors may not ask for one.
        one = " of one dtype" if source.dtype.category == target.dtype.category == FLOATING else ""
        raise TypeError(
            f"{name}: expected two floating-point tensors{one}, got {source.dtype.name} and {target.dtype.name}; "
            "convert with .float() or target.to(input.dtype)"
        )
    return source


def _infer_binary_cross_entropy(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    source = _check_binary("binary_cross_entropy", metas)
    return Inferred(source, source.numel * EXPENSIVE * 3)


def _infer_binary_cross_entropy_with_logits(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    source = _check_binary("binary_cross_entropy_with_logits", metas)
    return Inferred(source, source.numel * EXPENSIVE * 3)


_BINARY_CROSS_ENTROPY = OpExpr("binary_cross_entropy", _infer_binary_cross_entropy, Form(2), "loss")
_BINARY_CROSS_ENTROPY_WITH_LOGITS = OpExpr(
    "binary_cross_entropy_with_logits", _infer_binary_cross_entropy_with_logits, Form(2), "loss"
)


@_BINARY_CROSS_ENTROPY.gradient(inputs=(0, 1))
def _binary_cross_entropy_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    source, target = node.input(0), node.input(1)
    by_input = by_target = None
    if node.needs[0]:
        # As in PyTorch, the gradient where a logarithm is bounded below is large and finite, instead of 0.
        by_input = gradient * (source - target) / ((1 - source) * source).clamp(min=1e-12)
    if node.needs[1]:
        by_target = gradient * ((1 - source).log().clamp(min=-100) - source.log().clamp(min=-100))
    return by_input, by_target


@_BINARY_CROSS_ENTROPY_WITH_LOGITS.gradient(inputs=(0, 1))
def _binary_cross_entropy_with_logits_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    return (
        gradient * (sigmoid(node.input(0)) - node.input(1)) if node.needs[0] else None,
        -gradient * node.input(0) if node.needs[1] else None,
    )


@autocast_as_op
def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    *,
    size_average: bool | None = None,
    reduce: bool | None = None,
) -> Tensor:
    """The cross-entropy of probabilities and targets; logarithms are bounded below by -100.

    Args:
        input: probabilities, within [0, 1]; checked when the op runs.
        target: within [0, 1], of the same shape and dtype.
        weight: of each element, broadcast.
        reduction: "mean", "sum" or "none".
        size_average, reduce: older names for the reduction, deprecated.

    Raises:
        TypeError: for operands that are no tensors, probabilities and targets that are not of one floating-point dtype,
            or complex weights.
        ValueError: for shapes that differ, weights that do not broadcast to them, or another reduction.
        RuntimeError: if a probability is out of range, when the result is read.

    Example:
        >>> flow.nn.functional.binary_cross_entropy(flow.tensor([0.5, 1.0]), flow.tensor([1.0, 1.0]), reduction="none")
        tensor([0.6931, -0.0000])
    """
    reduction = chosen_reduction(reduction, size_average, reduce)
    check_same("binary_cross_entropy", input, target)
    losses = _interpreter.dispatch(_BINARY_CROSS_ENTROPY, (input, target))
    losses = _weighted("binary_cross_entropy", losses, weight)
    return reduced("binary_cross_entropy", losses if losses.dtype is input.dtype else losses.to(input.dtype), reduction)


@autocast_as_op
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
    *,
    size_average: bool | None = None,
    reduce: bool | None = None,
) -> Tensor:
    """`binary_cross_entropy` of ``sigmoid(input)``, accurate for scores of any size.

    Args:
        input: scores.
        target: within [0, 1], of the same shape.  Its floating-point dtype, which may be another than that of the
            scores, is that of the result.
        weight, reduction, size_average, reduce: as of `binary_cross_entropy`.
        pos_weight: the weight of positive targets, broadcast.

    Raises:
        TypeError: for operands that are no tensors, scores or targets that are not floating-point, or complex weights.
        ValueError: for shapes that differ, weights that do not broadcast to them, or another reduction.

    Example:
        >>> flow.nn.functional.binary_cross_entropy_with_logits(flow.zeros(2), flow.tensor([1.0, 0.0]))
        tensor(0.6931)
    """
    reduction = chosen_reduction(reduction, size_average, reduce)
    name = "binary_cross_entropy_with_logits"
    check_same(name, input, target)
    check_tensors(name, optional=(weight, pos_weight))
    # The result has the dtype of the targets, though the losses may be computed in another dtype.
    result = target.dtype
    if input.dtype is not result and input.dtype.category == result.category == FLOATING:
        common = promote_types(input.dtype, result)
        input, target = input.to(common), target.to(common)
    if pos_weight is None:
        losses = _interpreter.dispatch(_BINARY_CROSS_ENTROPY_WITH_LOGITS, (input, target))
    else:
        _check_binary(name, (input._blob.meta, target._blob.meta))
        # -log(sigmoid(x)) is softplus(-x).  Above 40, softplus(y) equals y to the last digit of float64.
        positive = softplus(-input, threshold=40)
        losses = (1 - target) * input + _weighted(name, positive, (pos_weight - 1) * target + 1)
    losses = _weighted(name, losses, weight)
    return reduced(name, losses if losses.dtype is result else losses.to(result), reduction)


def _weighted(name: str, losses: Tensor, weight: Tensor | None) -> Tensor:
    if weight is None:
        return losses
    check_tensors(name, weight)
    if weight.dtype.is_complex:
        raise TypeError(f"{name}: weights must be real, not {weight.dtype.name}; use weight.real")
    if broadcast_shapes(name, tuple(losses.shape), tuple(weight.shape)) != losses.shape:
        raise ValueError(
            f"{name}: a weight of shape {list(weight.shape)} does not broadcast to losses of shape {list(losses.shape)}"
        )
    return losses * weight


@autocast_as_op
def kl_div(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    log_target: bool = False,
    *,
    size_average: bool | None = None,
    reduce: bool | None = None,
) -> Tensor:
    """The Kullback-Leibler divergence ``target * (log(target) - input)``, of log-probabilities `input`.

    Args:
        input: log-probabilities.
        target: probabilities, or with `log_target` their logarithms; a negative probability has the loss nan.
        reduction: "mean" (over all elements), "batchmean" (the sum, divided by the first size), "sum" or "none".
        size_average, reduce: older names for the reduction, deprecated.
        log_target: whether `target` holds logarithms of probabilities.

    Raises:
        TypeError: if `input` or `target` is no floating-point tensor.
        ValueError: for shapes that differ, or another reduction.

    Example:
        >>> flow.nn.functional.kl_div(flow.tensor([-1.0, -2.0]), flow.tensor([1.0, 1.0]), reduction="sum")
        tensor(3.)
    """
    reduction = chosen_reduction(reduction, size_average, reduce)
    if reduction not in (*REDUCTIONS, "batchmean"):
        raise ValueError(f"kl_div: reduction must be one of {', '.join(REDUCTIONS)}, batchmean, not {reduction!r}")
    check_same("kl_div", input, target)
    log_target = flag("kl_div", "log_target", log_target)
    for tensor in (input, target):
        if tensor.dtype.category != FLOATING:
            raise TypeError(f"kl_div is not defined for {tensor.dtype.name} tensors; convert with .float() first")
    if log_target:
        losses = target.exp() * (target - input)
    else:
        # 0 * log(0) is 0.
        losses = where(target == 0, 0.0, target * (where(target == 0, 1.0, target).log() - input))
    if reduction == "batchmean":
        return losses.sum() / (input.shape[0] if input.ndim else 1)
    return reduced("kl_div", losses, reduction)
