"""`nll_loss` and `cross_entropy`: losses of log-probabilities or scores against the right classes.

With class indices, each loss is one op, and so is its gradient, unless the backward pass is recorded for higher
derivatives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from vmflow import interpreter as _interpreter
from vmflow.arguments import whole_number
from vmflow.autograd.grad_mode import is_grad_enabled
from vmflow.dtypes import FLOATING
from vmflow.instructions.blob import TensorMeta, meta
from vmflow.kernels.problems.class_loss import Cases
from vmflow.operands import check_tensors
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.elementwise.activation import log_softmax, softmax
from vmflow.ops.elementwise.inference import CHEAP, EXPENSIVE
from vmflow.ops.elementwise.selection import where
from vmflow.ops.indexing.gathering import one_hot
from vmflow.ops.nn.layer_operands import check_class_indices, check_floating, check_shape, computes_in
from vmflow.ops.table import Attributes, Form, Inferred, Kinds, Metas, OpExpr, common_device

from .loss import check_reduction, chosen_reduction, reduced

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor


class _Options(NamedTuple):
    """The attributes of the ops `nll_loss` and `cross_entropy`, and the first attribute of their gradients.

    Attributes:
        ignored: the class index of targets that do not count, `ignore_index`.
        reduction: "mean", "sum" or "none".
        smoothing: the share of the probability that is spread evenly over all classes.
    """

    ignored: int
    reduction: str
    smoothing: float


def _towards(name: str, shape: tuple[int, ...], target: tuple[int, ...], axis: int) -> str:
    """Return a hint, for an error on class indices whose shape does not fit the scores; "" if there is none."""
    wanted = shape[:axis] + shape[axis + 1 :]
    if shape and target == (*wanted, 1):
        return "; use target.squeeze(-1)"
    if shape and target == (*shape[:axis], 1, *shape[axis + 1 :]):
        return f"; use target.squeeze({axis})"
    if target == shape and name == "cross_entropy":
        return "; if they are the probabilities of the classes, such as zeros and ones, convert them with .float()"
    return f"; expected {list(wanted)}" if shape else ""


def _cases(name: str, metas: Metas, options: _Options) -> Cases:
    """Check a loss's operands (scores, class indices, perhaps class weights), and describe them for the kernels.

    Raises:
        TypeError, ValueError: for operands that do not fit.
    """
    source, target, *weight = metas
    common_device(name, metas)
    shape = tuple(source.shape)
    check_floating(name, source)
    check_class_indices(name, target)
    if options.reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{name}: reduction must be 'none', 'mean' or 'sum', not {options.reduction!r}")
    axis = 1 if len(shape) > 1 else 0
    if not shape or shape[:axis] + shape[axis + 1 :] != target.shape:
        raise ValueError(
            f"{name}: an input of shape {list(shape)}, with the classes in dimension {axis}, does not fit "
            f"class indices of shape {list(target.shape)}{_towards(name, shape, tuple(target.shape), axis)}"
        )
    classes = shape[axis]
    if weight and weight[0].shape != (classes,):
        raise ValueError(f"{name}: {classes} classes need a weight of shape [{classes}], got {list(weight[0].shape)}")
    return Cases(name, shape, axis, classes, target.numel, source.dtype, computes_in(source), *options)


def _check_gradient(cases: Cases, gradient: TensorMeta, target: TensorMeta, total: TensorMeta) -> None:
    """Raise TypeError or ValueError unless `gradient` fits the loss, and `total` can be the divisor of its mean."""
    name = cases.name
    check_floating(name, gradient)
    check_shape(name, "a gradient", gradient, target.shape if cases.reduction == "none" else ())
    if total.shape or total.dtype is not cases.compute:
        raise ValueError(f"{name}: {total} cannot be the divisor of the loss")


def _outputs(cases: Cases, metas: Metas) -> tuple[TensorMeta, TensorMeta]:
    source, target = metas[:2]
    shape = tuple(target.shape) if cases.reduction == "none" else ()
    return meta(shape, source.dtype, source.device), meta((), cases.compute, source.device)


def _infer_nll_loss(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    cases = _cases("nll_loss", metas, cast("_Options", attributes))
    return Inferred(_outputs(cases, metas), cases.rows * 50 + 10000, cases)


def _infer_nll_loss_gradient(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    options, source = cast("tuple[_Options, TensorMeta]", attributes)
    gradient, target, total, *weight = metas
    cases = _cases("nll_loss", (source, target, *weight), options)
    _check_gradient(cases, gradient, target, total)
    return Inferred(source, source.numel * CHEAP + cases.rows * 50 + 10000, cases)


def _infer_cross_entropy(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    cases = _cases("cross_entropy", metas, cast("_Options", attributes))
    source, target = metas[:2]
    logs = meta((*target.shape, cases.classes), cases.compute, source.device)
    return Inferred((*_outputs(cases, metas), logs), source.numel * (EXPENSIVE + 4 * CHEAP) + 10000, cases)


def _infer_cross_entropy_gradient(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    options, source = cast("tuple[_Options, TensorMeta]", attributes)
    gradient, target, total, kept, *weight = metas
    cases = _cases("cross_entropy", (source, target, *weight), options)
    _check_gradient(cases, gradient, target, total)
    if kept.shape != (*target.shape, cases.classes) or kept.dtype is not cases.compute:
        raise ValueError(f"cross_entropy: {kept} are not the logarithms kept of {source}")
    return Inferred(source, source.numel * (EXPENSIVE + 4 * CHEAP) + 10000, cases)


_NLL_LOSS = OpExpr("nll_loss", _infer_nll_loss, Form((2, 3), _Options), "class_loss")
_NLL_LOSS_GRADIENT = OpExpr(
    "nll_loss_gradient", _infer_nll_loss_gradient, Form((3, 4), tuple[_Options, TensorMeta]), "class_loss"
)
_CROSS_ENTROPY = OpExpr("cross_entropy", _infer_cross_entropy, Form((2, 3), _Options), "class_loss")
_CROSS_ENTROPY_GRADIENT = OpExpr(
    "cross_entropy_gradient", _infer_cross_entropy_gradient, Form((4, 5), tuple[_Options, TensorMeta]), "class_loss"
)


class _Recorded:
    """Tensors from which differentiable ops compute the gradients of `nll_loss` and `cross_entropy` by the scores.

    Attributes:
        factors: the gradient of each case's loss times its class weight, shaped to broadcast over the classes.
        unweighted: the gradient of each case's loss, shaped likewise.
        chosen: 1 at the right class of each case, at class 0 if the case does not count; 0 elsewhere.
        weight: the class weights, shaped to broadcast over the cases; None if there are none.
        axis: the dimension of the classes.
        options: the attributes of the op.
    """

    def __init__(self, node: OpNode, gradient: Tensor) -> None:
        options = cast("_Options", node.attributes)
        source, target = node.meta(0), node.input(1)
        axis = 1 if len(source.shape) > 1 else 0
        kept = target != options.ignored
        places = where(kept, target, 0)
        weight = node.input(2) if len(node.metas) > 2 else None
        weights = kept.to(gradient.dtype) if weight is None else where(kept, weight[places], 0.0)
        if options.reduction == "mean":
            gradient = gradient / weights.sum()
        # `where`, and no product with 0: if no target counts, the mean divides by 0, and its gradient is infinite.
        gradient = where(kept, gradient, 0.0)
        self.factors = (gradient * weights).unsqueeze(axis)
        self.unweighted = gradient.unsqueeze(axis)
        self.chosen = one_hot(places, source.shape[axis]).movedim(-1, axis).to(gradient.dtype)
        self.weight = None if weight is None else weight.reshape(-1, *[1] * (len(source.shape) - axis - 1))
        self.axis = axis
        self.options = options


@_NLL_LOSS.gradient(inputs=(1, 2), outputs=(1,))
def _nll_loss_gradient(node: OpNode, gradient: Tensor, *_: Tensor | None) -> tuple[Tensor | None, ...]:
    none = (None,) * (len(node.metas) - 1)
    if is_grad_enabled():
        parts = _Recorded(node, gradient)
        return (0.0 - parts.chosen * parts.factors, *none)  # a zero is 0.0, not -0.0
    operands = (gradient, node.input(1), node.output(1), *_weight_of(node))
    return (_interpreter.dispatch(_NLL_LOSS_GRADIENT, operands, (node.attributes, node.meta(0))), *none)


@_CROSS_ENTROPY.gradient(inputs=(0, 1, 2), outputs=(1, 2))
def _cross_entropy_gradient(node: OpNode, gradient: Tensor, *_: Tensor | None) -> tuple[Tensor | None, ...]:
    none = (None,) * (len(node.metas) - 1)
    if not is_grad_enabled():
        operands = (gradient, node.input(1), node.output(1), node.output(2), *_weight_of(node))
        return (_interpreter.dispatch(_CROSS_ENTROPY_GRADIENT, operands, (node.attributes, node.meta(0))), *none)
    parts = _Recorded(node, gradient)
    smoothing, weight = parts.options.smoothing, parts.weight
    share = softmax(node.input(0), parts.axis)
    result = (share * parts.factors - parts.chosen * parts.factors) * (1 - smoothing)
    if smoothing:
        even = share * share.shape[parts.axis] - 1 if weight is None else share * weight.sum() - weight
        result = result + even * parts.unweighted * (smoothing / share.shape[parts.axis])
    return (result, *none)


def _weight_of(node: OpNode) -> tuple[Tensor, ...]:
    return (node.input(2),) if len(node.metas) > 2 else ()


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    *,
    size_average: bool | None = None,
    reduce: bool | None = None,
) -> Tensor:
    """The negative log-likelihood of the right classes.

    Args:
        input: log-probabilities, (N, C), (C,) or (N, C, ...).
        target: class indices, (N,), () or (N, ...); checked when the op runs.
        weight: of each class, (C,).
        ignore_index: a target that does not count.
        reduction: "mean" (weighted, over the targets that count), "sum" or "none".
        size_average, reduce: older names for the reduction, deprecated.

    Raises:
        TypeError: for dtypes that do not fit.
        ValueError: for shapes that do not fit, or another reduction.
        IndexError: if a target is no class, when the result is read.

    Example:
        >>> flow.nn.functional.nll_loss(flow.tensor([[-1.0, -2.0], [-3.0, -4.0]]), flow.tensor([0, 1]))
        tensor(2.5000)
    """
    reduction = chosen_reduction(reduction, size_average, reduce)
    check_reduction("nll_loss", reduction)
    check_tensors("nll_loss", input, target, optional=(weight,))
    operands = (input, target) if weight is None else (input, target, weight)
    return _interpreter.dispatch_several(
        _NLL_LOSS, operands, _Options(whole_number("nll_loss", "ignore_index", ignore_index), reduction, 0.0)
    )[0]


@autocast_as_op
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    *,
    size_average: bool | None = None,
    reduce: bool | None = None,
) -> Tensor:
    """The cross-entropy between unnormalised scores and the right classes.

    Args:
        input: scores, (N, C), (C,) or (N, C, ...).
        target: class indices as for `nll_loss`, or floating-point probabilities of the shape of `input`.
        weight, size_average, reduce: as of `nll_loss`.
        ignore_index: a class index that does not count; without effect on probabilities.
        reduction: "mean" (for class indices weighted, over the targets that count; for probabilities over all cases),
            "sum" or "none".
        label_smoothing: the share of the probability that is spread evenly over all classes, within [0, 1].

    Raises:
        TypeError: for dtypes that do not fit.
        ValueError: for shapes that do not fit, another reduction, or a `label_smoothing` out of range.
        IndexError: if a target is no class, when the result is read.

    Example:
        >>> flow.nn.functional.cross_entropy(flow.zeros(1, 2), flow.tensor([0]))
        tensor(0.6931)
    """
    reduction = chosen_reduction(reduction, size_average, reduce)
    check_reduction("cross_entropy", reduction)
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"cross_entropy: label_smoothing must be within [0, 1], got {label_smoothing}")
    check_tensors("cross_entropy", input, target, optional=(weight,))
    ignored = whole_number("cross_entropy", "ignore_index", ignore_index)
    if target.dtype.is_complex:
        raise TypeError(f"cross_entropy: targets are class indices or probabilities, not {target.dtype.name}")
    if target.dtype.category == FLOATING:
        return _of_probabilities(input, target, weight, reduction, label_smoothing)
    options = _Options(ignored, reduction, float(label_smoothing))
    operands = (input, target) if weight is None else (input, target, weight)
    return _interpreter.dispatch_several(_CROSS_ENTROPY, operands, options)[0]


def _of_probabilities(input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, smoothing: float) -> Tensor:
    if input.shape != target.shape:
        raise ValueError(
            f"cross_entropy: {target.dtype.name} targets are the probabilities of the classes, which have the shape of "
            f"the input, {list(input.shape)}; got {list(target.shape)}. If they are class indices, convert them with "
            ".long()"
        )
    if input.ndim == 0:
        raise ValueError("cross_entropy: expected an input (N, C), (C,) or (N, C, ...), got a 0-d tensor")
    axis = 1 if input.ndim > 1 else 0
    classes = input.shape[axis]
    logs = log_softmax(input, axis)
    if smoothing:
        target = target * (1 - smoothing) + smoothing / classes
    if weight is not None:
        if weight.shape != (classes,):
            raise ValueError(
                f"cross_entropy: {classes} classes need a weight of shape [{classes}], got {list(weight.shape)}"
            )
        logs = logs * weight.reshape(-1, *[1] * (input.ndim - axis - 1))
    return reduced("cross_entropy", -(logs * target).sum(axis), reduction)
