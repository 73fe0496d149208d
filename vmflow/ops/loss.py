"""Losses: how far predictions are from what they should be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from vmflow import dtypes
from vmflow import interpreter as _interpreter
from vmflow.dtypes import FLOATING
from vmflow.instructions.blob import Array, TensorMeta, meta

from .activation import log_softmax, softplus
from .elementwise import CHEAP, where
from .table import Attributes, Inferred, Kinds, Metas, OpExpr, array_module, common_device

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensor import Tensor

_REDUCTIONS = ("mean", "sum", "none")


def _reduced(name: str, loss: Tensor, reduction: str) -> Tensor:
    _check_reduction(name, reduction)
    if reduction == "mean":
        return loss.mean()
    return loss.sum() if reduction == "sum" else loss


def _check_reduction(name: str, reduction: str) -> None:
    if reduction not in _REDUCTIONS:
        raise ValueError(f"{name}: reduction must be one of {', '.join(_REDUCTIONS)}, not {reduction!r}")


def _check_same(name: str, input: Tensor, target: Tensor) -> None:
    """PyTorch broadcasts these, with a warning, since it is nearly always a mistake; here it is an error."""
    if input.shape != target.shape:
        raise ValueError(
            f"{name}: predictions of shape {list(input.shape)} and targets of shape {list(target.shape)} must agree; "
            "reshape one of them"
        )


# Of class indices: the log-probability of the right class


def _infer_pick(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (ignored,) = cast("tuple[int]", attributes)
    source, target = metas
    device = common_device("nll_loss", metas)
    if source.dtype.category != FLOATING:
        raise TypeError(f"nll_loss is not defined for {source.dtype.name} tensors")
    if target.dtype.category != dtypes.INTEGER:
        raise TypeError(f"nll_loss: class indices must be integers, not {target.dtype.name}")
    shape = tuple(source.shape)
    if not shape or (shape[:1] + shape[2:] if len(shape) > 1 else ()) != tuple(target.shape):
        raise ValueError(
            f"nll_loss: log-probabilities of shape {list(shape)}, with the classes in "
            f"dimension {1 if len(shape) > 1 else 0}, do not fit class indices of shape {list(target.shape)}"
        )
    xp = array_module(device)
    classes = shape[1] if len(shape) > 1 else shape[0]
    output = meta(tuple(target.shape), source.dtype, device)

    def kernel(array: Array, places: Array, out: Any) -> Array:
        kept = places != ignored
        check_classes("nll_loss", places, kept, classes)
        chosen = xp.where(kept, places, 0)
        axis = 1 if array.ndim > 1 else 0
        picked = xp.take_along_axis(array, xp.expand_dims(chosen, axis), axis).reshape(target.shape)
        return xp.ascontiguousarray(xp.where(kept, picked, 0).astype(source.dtype.numpy)).reshape(target.shape)

    return Inferred(output, kernel, output.numel * CHEAP * 20)


def check_classes(name: str, places: Array, kept: Array, classes: int) -> None:
    """Raise IndexError unless each kept index names one of so many classes."""
    wrong = kept & ((places < 0) | (places >= classes))
    if wrong.any():
        raise IndexError(f"{name}: class index {int(places[wrong].flat[0])} is out of range for {classes} classes")


_PICK = OpExpr("pick_class", _infer_pick)


@_PICK.gradient(inputs=(1,))
def _pick_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor, None]:
    source = node.meta(0)
    output = meta(tuple(source.shape), gradient.dtype, source.device)
    return _interpreter.dispatch(_PLACE, (gradient, node.input(1)), (output, *node.attributes)), None


def _infer_place(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    output, ignored = cast("tuple[TensorMeta, int]", attributes)
    xp = array_module(output.device)

    def kernel(values: Array, places: Array, out: Any) -> Array:
        result = xp.zeros(output.shape, output.dtype.numpy)
        axis = 1 if result.ndim > 1 else 0
        kept = places != ignored
        chosen = xp.expand_dims(xp.where(kept, places, 0), axis)
        xp.put_along_axis(result, chosen, xp.expand_dims(xp.where(kept, values, 0), axis), axis)
        return result

    return Inferred(output, kernel, output.numel * CHEAP)


_PLACE = OpExpr("place_class", _infer_place)


@_PLACE.gradient(inputs=(1,))
def _place_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor, None]:
    return _interpreter.dispatch(_PICK, (gradient, node.input(1)), node.attributes[1:]), None


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """The negative log-likelihood of the right classes.

    Args:
        input: log-probabilities, (N, C), (C,) or (N, C, ...).
        target: class indices, (N,), () or (N, ...); checked when the op runs.
        weight: of each class, (C,).
        ignore_index: a target that does not count.
        reduction: "mean" (weighted, over what counts), "sum" or "none".

    Raises:
        TypeError, ValueError: for dtypes and shapes that do not fit.
    """
    _check_reduction("nll_loss", reduction)
    losses = -_interpreter.dispatch(_PICK, (input, target), (int(ignore_index),))
    if weight is None and reduction == "sum":
        return losses.sum()
    kept = target != ignore_index
    if weight is None:
        return losses.sum() / kept.sum().to(losses.dtype) if reduction == "mean" else losses
    classes = input.shape[1] if input.ndim > 1 else input.shape[0]
    if tuple(weight.shape) != (classes,):
        raise ValueError(f"nll_loss: {classes} classes need as many weights, got shape {list(weight.shape)}")
    weights = where(kept, weight[where(kept, target, 0)], 0.0)
    losses = losses * weights
    return losses.sum() / weights.sum() if reduction == "mean" else _reduced("nll_loss", losses, reduction)


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """The cross-entropy between unnormalised scores and the right classes.

    Args:
        input: scores, (N, C), (C,) or (N, C, ...).
        target: class indices as for `nll_loss`, or floating-point probabilities of the shape of `input`.
        weight: of each class, (C,).
        ignore_index: a class index that does not count.
        reduction: "mean", "sum" or "none".
        label_smoothing: how much of the probability is spread evenly over all classes, within [0, 1].

    Raises:
        TypeError, ValueError: for dtypes and shapes that do not fit.
    """
    _check_reduction("cross_entropy", reduction)
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"cross_entropy: label_smoothing must be within [0, 1], got {label_smoothing}")
    axis = 1 if input.ndim > 1 else 0
    logs = log_softmax(input, axis)
    if target.dtype.category >= FLOATING:
        return _of_probabilities(logs, target, weight, reduction, label_smoothing, axis)
    hard = nll_loss(logs, target, weight, ignore_index, reduction)
    if label_smoothing == 0:
        return hard
    kept = target != ignore_index
    shape = [1] * input.ndim
    shape[axis] = input.shape[axis]
    weighted = logs if weight is None else logs * weight.reshape(shape)
    smooth = where(kept, -weighted.sum(axis), 0.0)
    if reduction == "mean":
        count = kept.sum().to(logs.dtype) if weight is None else where(kept, weight[where(kept, target, 0)], 0.0).sum()
        smooth = smooth.sum() / count
    elif reduction == "sum":
        smooth = smooth.sum()
    return hard * (1 - label_smoothing) + smooth * (label_smoothing / input.shape[axis])


def _of_probabilities(
    logs: Tensor, target: Tensor, weight: Tensor | None, reduction: str, smoothing: float, axis: int
) -> Tensor:
    _check_same("cross_entropy", logs, target)
    if smoothing:
        target = target * (1 - smoothing) + smoothing / logs.shape[axis]
    if weight is not None:
        shape = [1] * logs.ndim
        shape[axis] = logs.shape[axis]
        logs = logs * weight.reshape(shape)
    losses = -(logs * target).sum(axis)
    if reduction == "mean":
        return losses.sum() / max(losses.numel(), 1)
    return _reduced("cross_entropy", losses, reduction)


# Of real values


def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """The squared difference."""
    _check_same("mse_loss", input, target)
    return _reduced("mse_loss", (input - target).square(), reduction)


def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """The absolute difference."""
    _check_same("l1_loss", input, target)
    return _reduced("l1_loss", (input - target).abs(), reduction)


def smooth_l1_loss(input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """``d**2 / (2 * beta)`` for a difference d below `beta`, else ``d - beta / 2``."""
    _check_same("smooth_l1_loss", input, target)
    if beta < 0:
        raise ValueError(f"smooth_l1_loss: beta cannot be negative, got {beta}")
    if beta == 0:
        return l1_loss(input, target, reduction)
    size = (input - target).abs()
    return _reduced("smooth_l1_loss", where(size < beta, size * size * (0.5 / beta), size - 0.5 * beta), reduction)


def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """``d**2 / 2`` for a difference d below `delta`, else ``delta * (d - delta / 2)``."""
    _check_same("huber_loss", input, target)
    if delta <= 0:
        raise ValueError(f"huber_loss: delta must be positive, got {delta}")
    size = (input - target).abs()
    return _reduced("huber_loss", where(size < delta, size * size * 0.5, (size - 0.5 * delta) * delta), reduction)


# Of probabilities


def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """The cross-entropy of probabilities and targets, both in [0, 1]; logarithms are taken no lower than -100."""
    _check_same("binary_cross_entropy", input, target)
    losses = -(target * input.log().clamp(min=-100) + (1 - target) * (1 - input).log().clamp(min=-100))
    return _reduced("binary_cross_entropy", losses if weight is None else losses * weight, reduction)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """`binary_cross_entropy` of ``sigmoid(input)``, accurate for scores of any size.

    Args:
        input: scores.
        target: in [0, 1], of the same shape.
        weight: of each element, broadcast.
        reduction: "mean", "sum" or "none".
        pos_weight: of the positive targets, broadcast.
    """
    _check_same("binary_cross_entropy_with_logits", input, target)
    # -log(sigmoid(x)) is softplus(-x), whose large branch neither overflows nor loses digits.
    positive = softplus(-input, threshold=30)
    losses = (1 - target) * input + (
        positive if pos_weight is None else positive * ((pos_weight - 1) * target + 1)
    )
    return _reduced("binary_cross_entropy_with_logits", losses if weight is None else losses * weight, reduction)


def kl_div(input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """The Kullback-Leibler divergence ``target * (log(target) - input)``, of log-probabilities `input`.

    Args:
        input: log-probabilities.
        target: probabilities, or with `log_target` their logarithms.
        reduction: "mean" (over all elements), "batchmean" (over the first dimension), "sum" or "none".
        log_target: as above.
    """
    if log_target:
        losses = target.exp() * (target - input)
    else:
        # 0 * log(0) is 0.
        losses = where(target > 0, target * (where(target > 0, target, 1.0).log() - input), 0.0)
    if reduction == "batchmean":
        return losses.sum() / input.shape[0]
    return _reduced("kl_div", losses, reduction)
