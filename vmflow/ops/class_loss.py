"""Losses of classes: the cross-entropy between scores, or log-probabilities, and the right classes.

Of class indices each loss is one op, and so is its gradient where that is not recorded itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from vmflow import interpreter as _interpreter
from vmflow.autograd.grad_mode import is_grad_enabled
from vmflow.dtypes import FLOATING, INTEGER, float32
from vmflow.instructions.blob import Array, TensorMeta, meta
from vmflow.kernels.native.arrays import Call
from vmflow.kernels.native.rows import (
    CrossEntropy,
    CrossEntropyGradient,
    cross_entropy_call,
    cross_entropy_gradient_call,
)
from vmflow.kernels.numpy import rows

from .activation import log_softmax, softmax
from .autocasting import autocast_as_op
from .elementwise import CHEAP, DEAR, check_tensors
from .gathering import one_hot
from .layer_operands import check_floating, check_shape, computes_in
from .loss import check_reduction, reduced
from .selection import where
from .table import Attributes, Form, Inferred, Kinds, Metas, OpExpr, array_module, common_device, computed_by

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor


class _Options(NamedTuple):
    """What a loss of class indices depends on besides its operands; the attributes of the ops below.

    Attributes:
        ignored: the target that does not count.
        reduction: "mean", "sum" or "none".
        smoothing: how much of the probability is spread evenly over all classes.
    """

    ignored: int
    reduction: str
    smoothing: float


def _towards(name: str, shape: tuple[int, ...], target: tuple[int, ...], axis: int) -> str:
    """What to do about class indices that do not fit, as far as that can be guessed."""
    wanted = shape[:axis] + shape[axis + 1 :]
    if shape and target == (*wanted, 1):
        return "; use target.squeeze(-1)"
    if shape and target == (*shape[:axis], 1, *shape[axis + 1 :]):
        return f"; use target.squeeze({axis})"
    if target == shape and name == "cross_entropy":
        return "; if they are the probabilities of the classes, such as zeros and ones, convert them with .float()"
    return f"; expected {list(wanted)}" if shape else ""


class _Cases:
    """Scores or log-probabilities seen as a matrix, one row for each target.

    Attributes:
        classes: how many there are, the columns.
        count: how many targets, the rows.
        axis: the dimension of the classes.
    """

    def __init__(self, name: str, metas: Metas, options: _Options) -> None:
        source, target, *weight = metas
        common_device(name, metas)
        shape = tuple(source.shape)
        check_floating(name, source)
        if target.dtype.category != INTEGER:
            raise TypeError(f"{name}: class indices must be integers, not {target.dtype.name}; convert with .long()")
        if options.reduction not in ("none", "mean", "sum"):
            raise ValueError(f"{name}: reduction must be 'none', 'mean' or 'sum', not {options.reduction!r}")
        self.axis = 1 if len(shape) > 1 else 0
        if not shape or shape[: self.axis] + shape[self.axis + 1 :] != target.shape:
            raise ValueError(
                f"{name}: an input of shape {list(shape)}, with the classes in dimension {self.axis}, does not fit "
                f"class indices of shape {list(target.shape)}{_towards(name, shape, tuple(target.shape), self.axis)}"
            )
        self.classes: int = shape[self.axis]
        if weight and weight[0].shape != (self.classes,):
            raise ValueError(
                f"{name}: {self.classes} classes need a weight of shape [{self.classes}], got {list(weight[0].shape)}"
            )
        self.name = name
        self.count = target.numel
        self.shape = shape
        self.options = options
        self.compute = computes_in(source)
        self.dtype = source.dtype

    def check_gradient(self, gradient: TensorMeta, target: TensorMeta, total: TensorMeta) -> None:
        """Raise unless these are a gradient by the loss, and what the loss was divided by."""
        check_floating(self.name, gradient)
        check_shape(self.name, "a gradient", gradient, target.shape if self.options.reduction == "none" else ())
        if total.shape or total.dtype is not self.compute:
            raise ValueError(f"{self.name}: {total} is not what the loss was divided by")

    def rows(self, xp: Any, array: Array) -> Array:
        """The input as a matrix of the dtype to compute in."""
        moved = xp.moveaxis(array, self.axis, -1) if array.ndim > 2 else array
        return xp.ascontiguousarray(moved, self.compute.numpy).reshape(self.count, self.classes)

    def back(self, xp: Any, rows: Array) -> Array:
        """A matrix in the input's shape."""
        rest = self.shape[: self.axis] + self.shape[self.axis + 1 :]
        result = rows.reshape(*rest, self.classes)
        return xp.moveaxis(result, -1, self.axis) if len(self.shape) > 2 else result.reshape(self.shape)

    def places(self, xp: Any, target: Array) -> tuple[Array, Array | None]:
        """The class of each row, 0 where it does not count, and whether it does; None if every one does.

        Raises:
            IndexError: for an index that names no class.
        """
        target = target.reshape(-1)
        none_ignored = not 0 <= self.options.ignored < self.classes
        # Most often this is all there is to find out.
        if none_ignored and self.count and target.min() >= 0 and target.max() < self.classes:
            return target, None
        kept = target != self.options.ignored
        wrong = kept & ((target < 0) | (target >= self.classes))
        if wrong.any():
            raise IndexError(
                f"{self.name}: class index {int(target[wrong][0])} is out of range for {self.classes} classes"
            )
        return xp.where(kept, target, 0), kept

    def plain(self) -> bool:
        """Whether the loss is a mean or sum over all rows in float32, none of which is ignored, without smoothing."""
        none_ignored = not 0 <= self.options.ignored < self.classes
        return (
            none_ignored
            and not self.options.smoothing
            and self.options.reduction != "none"
            and self.compute is float32
            and self.dtype is float32
        )

    def reduce(self, xp: Any, logs: Array, target: Array, weight: Array | None) -> tuple[Array, Array]:
        """The loss, and what the mean is divided by."""
        places, kept = self.places(xp, target)
        smoothing = logs.dtype.type(self.options.smoothing)
        losses = logs[xp.arange(self.count), places]
        weights = kept if weight is None else _counted(xp, kept, weight[places])
        if weights is None:
            total = logs.dtype.type(self.count)
        else:
            weights = weights.astype(logs.dtype, copy=False)
            losses = _counted(xp, kept, losses * weights)  # also what is no number does not count
            total = weights.sum()
        if smoothing:
            spread = logs.sum(1) if weight is None else logs @ weight
            losses = losses * (1 - smoothing) + _counted(xp, kept, spread) * (smoothing / self.classes)
        if self.options.reduction == "none":
            return -losses.reshape(target.shape), total
        loss = 0 - losses.sum()  # of nothing it is 0, not -0
        return xp.asarray(loss / total if self.options.reduction == "mean" else loss), xp.asarray(total)

    def factors(self, xp: Any, gradient: Array, total: Array, kept: Array | None) -> Array:
        """The gradient by the loss of each row, before weights; one number if it is that of every row."""
        if self.options.reduction == "mean":
            gradient = gradient / total
        return _counted(xp, kept, xp.asarray(gradient).astype(self.compute.numpy, copy=False).reshape(-1))


def _counted(xp: Any, kept: Array | None, values: Array) -> Array:
    """The values of the rows that count, and 0 for the others."""
    return values if kept is None else xp.where(kept, values, 0)


def _outputs(cases: _Cases, metas: Metas) -> tuple[TensorMeta, TensorMeta]:
    source, target = metas[:2]
    shape = tuple(target.shape) if cases.options.reduction == "none" else ()
    return meta(shape, source.dtype, source.device), meta((), cases.compute, source.device)


def _infer_nll_loss(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    cases = _Cases("nll_loss", metas, cast("_Options", attributes))
    source = metas[0]
    xp = array_module(source.device)
    to, compute = source.dtype.numpy, cases.compute.numpy

    def kernel(array: Array, target: Array, *rest: Any) -> tuple[Array, Array]:
        weight = rest[0].astype(compute, copy=False) if len(rest) > 1 else None
        loss, total = cases.reduce(xp, cases.rows(xp, array), target, weight)
        return loss.astype(to, copy=False), total

    return computed_by(_outputs(cases, metas), kernel, cases.count * 50 + 10000)


def _infer_nll_loss_gradient(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    options, source = cast("tuple[_Options, TensorMeta]", attributes)
    gradient, target, total, *weight = metas
    cases = _Cases("nll_loss", (source, target, *weight), options)
    cases.check_gradient(gradient, target, total)
    xp = array_module(source.device)
    to, compute = source.dtype.numpy, cases.compute.numpy

    def kernel(gradient: Array, target: Array, total: Array, *rest: Any) -> Array:
        places, kept = cases.places(xp, target)
        factors = cases.factors(xp, gradient, total, kept)
        if len(rest) > 1:
            factors = factors * rest[0].astype(compute, copy=False)[places]
        result = xp.zeros((cases.count, cases.classes), to)
        result[xp.arange(cases.count), places] = -factors
        return xp.ascontiguousarray(cases.back(xp, result))

    return computed_by(source, kernel, source.numel * CHEAP + cases.count * 50 + 10000)


def _infer_cross_entropy(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    cases = _Cases("cross_entropy", metas, cast("_Options", attributes))
    source = metas[0]
    xp = array_module(source.device)
    to, compute = source.dtype.numpy, cases.compute.numpy

    def kernel(array: Array, target: Array, *rest: Any) -> tuple[Array, Array, Array]:
        scores = array if is_matrix and array.flags.c_contiguous else cases.rows(xp, array)
        if plain and len(rest) == 1:
            found = in_c.call(scores, target if is_matrix else target.reshape(-1))
            if found is not None:
                return found
        weight = rest[0].astype(compute, copy=False) if len(rest) > 1 else None
        logs = rows.room(None if rest[-1] is None else rest[-1][2], scores)
        if scores.size:
            rows.softmax(scores, logs, logarithm=True)
        loss, total = cases.reduce(xp, logs, target, weight)
        return loss.astype(to, copy=False), total, logs

    def placed(inputs: Sequence[Array], outs: Sequence[Array]) -> list[Call] | None:
        scores, target = inputs
        if not (scores.flags.c_contiguous and target.flags.c_contiguous):
            return None
        matrix = scores.reshape(cases.count, cases.classes)
        compute = cross_entropy_call(matrix, target.reshape(-1), averages, outs)

        def otherwise() -> None:
            for out, result in zip(outs, kernel(*inputs, None), strict=True):
                np.copyto(out, result)

        return None if compute is None else [(_compute, (compute, otherwise), None)]

    plain, averages = cases.plain(), cases.options.reduction == "mean"
    in_c = CrossEntropy(averages)
    is_matrix = len(cases.shape) == 2 and cases.compute is cases.dtype
    logs_meta = meta((cases.count, cases.classes), cases.compute, source.device)
    cost = source.numel * (DEAR + 4 * CHEAP) + 10000
    by_row = plain and len(metas) == 2 and len(cases.shape) < 3
    return computed_by((*_outputs(cases, metas), logs_meta), kernel, cost, placed=placed if by_row else None)


def _compute(compute: Callable[[], bool], otherwise: Callable[[], None]) -> None:
    """What can be computed so unless a class does not count, or does not exist."""
    if not compute():
        otherwise()


def _infer_cross_entropy_gradient(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    options, source = cast("tuple[_Options, TensorMeta]", attributes)
    gradient, target, total, kept, *weight = metas
    cases = _Cases("cross_entropy", (source, target, *weight), options)
    cases.check_gradient(gradient, target, total)
    if kept.shape != (cases.count, cases.classes) or kept.dtype is not cases.compute:
        raise ValueError(f"cross_entropy: {kept} are not the logarithms kept of {source}")
    xp = array_module(source.device)
    to, compute = source.dtype.numpy, cases.compute.numpy
    smoothing = compute.type(options.smoothing)
    share = compute.type(options.smoothing / max(cases.classes, 1))
    plain, averages = cases.plain(), options.reduction == "mean"
    in_c = CrossEntropyGradient(averages)

    def kernel(gradient: Array, target: Array, total: Array, logs: Array, *rest: Any) -> Array:
        weight = rest[0].astype(compute, copy=False) if len(rest) > 1 else None
        if plain and weight is None:
            found = in_c.call(gradient, target.reshape(-1), total, logs)
            if found is not None:
                return xp.ascontiguousarray(cases.back(xp, found))
        places, kept = cases.places(xp, target)
        factors = cases.factors(xp, gradient, total, kept)
        hard = factors * (1 - smoothing) if weight is None else factors * weight[places] * (1 - smoothing)
        soft = factors * share
        whole = hard + soft * (cases.classes if weight is None else weight.sum())
        result = xp.exp(logs)
        result *= whole[:, None]
        if smoothing:
            result -= soft[:, None] if weight is None else soft[:, None] * weight
        result[xp.arange(cases.count), places] -= hard
        return xp.ascontiguousarray(cases.back(xp, result.astype(to, copy=False)))

    def placed(inputs: Sequence[Array], outs: Sequence[Array]) -> list[Call] | None:
        gradient, target, total, logs = inputs
        if not (target.flags.c_contiguous and outs[0].flags.c_contiguous):
            return None
        out = outs[0].reshape(cases.count, cases.classes)
        compute = cross_entropy_gradient_call(gradient, target.reshape(-1), total, logs, averages, out)

        def otherwise() -> None:
            np.copyto(outs[0], kernel(*inputs, None))

        return None if compute is None else [(_compute, (compute, otherwise), None)]

    cost = source.numel * (DEAR + 4 * CHEAP) + 10000
    by_row = plain and not weight and len(cases.shape) < 3
    return computed_by(source, kernel, cost, placed=placed if by_row else None)


_NLL_LOSS = OpExpr("nll_loss", _infer_nll_loss, Form((2, 3), _Options))
_NLL_LOSS_GRADIENT = OpExpr("nll_loss_gradient", _infer_nll_loss_gradient, Form((3, 4), tuple[_Options, TensorMeta]))
_CROSS_ENTROPY = OpExpr("cross_entropy", _infer_cross_entropy, Form((2, 3), _Options))
_CROSS_ENTROPY_GRADIENT = OpExpr(
    "cross_entropy_gradient", _infer_cross_entropy_gradient, Form((4, 5), tuple[_Options, TensorMeta])
)


class _Recorded:
    """The parts of both gradients where they are recorded themselves, in ops that can be differentiated again.

    Attributes:
        factors: the gradient by the loss of each case, with the class's weight, shaped to broadcast over the classes.
        unweighted: the same without the weight.
        chosen: one at each case's class, zero elsewhere.
        weight: shaped to broadcast over the cases; None for none.
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
        # Not a product: where nothing counts, the mean's gradient is infinite.
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
        return (-(parts.chosen * parts.factors), *none)
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
    result = (share - parts.chosen) * parts.factors * (1 - smoothing)
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
    check_reduction("nll_loss", reduction)
    check_tensors("nll_loss", input, target)
    operands = (input, target) if weight is None else (input, target, weight)
    return _interpreter.dispatch_several(_NLL_LOSS, operands, _Options(int(ignore_index), reduction, 0.0))[0]


@autocast_as_op
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
        reduction: "mean" (of class indices weighted, over what counts; of probabilities over N), "sum" or "none".
        label_smoothing: how much of the probability is spread evenly over all classes, within [0, 1].

    Raises:
        TypeError, ValueError: for dtypes and shapes that do not fit.
    """
    check_reduction("cross_entropy", reduction)
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"cross_entropy: label_smoothing must be within [0, 1], got {label_smoothing}")
    check_tensors("cross_entropy", input, target)
    if target.dtype.category >= FLOATING:
        return _of_probabilities(input, target, weight, reduction, label_smoothing)
    options = _Options(int(ignore_index), reduction, float(label_smoothing))
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
