"""Selection of elements by a condition, and limits on elements."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, overload

from vmflow import dtypes, interpreter as _interpreter, tensors as _tensors
from vmflow.dtypes import FLOATING, INTEGER
from vmflow.instructions.blob import meta
from vmflow.operands import check_tensors
from vmflow.ops.copying import full_of
from vmflow.ops.declaration import function, method, public
from vmflow.ops.destination import delivered, out_by_copy
from vmflow.ops.in_place import copied_in_place
from vmflow.ops.indexing.index_expression import nonzero
from vmflow.ops.table import (
    Attributes,
    Form,
    Inferred,
    Kinds,
    Metas,
    OpExpr,
    broadcast_shapes,
    common_device,
)
from vmflow.transfers import beside

from .comparison import isnan, logical_not
from .inference import CHEAP, ELEMENTWISE, REVERSED, fitting, number, result_dtype
from .pointwise import Binary, change_by_binary, into

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

    from .inference import Scalar


def _infer_where(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    device = common_device("where", metas)
    if metas[0].dtype is not dtypes.bool_:
        raise TypeError(f"where: the condition must be a bool tensor, not {metas[0].dtype.name}")
    shape = broadcast_shapes("where", *[operand.shape for operand in metas])
    output = meta(shape, result_dtype(metas[1:], kinds), device)
    return Inferred(output, output.numel * CHEAP * 3)


_WHERE = OpExpr("where", _infer_where, Form((1, 3), tuple[Literal["reversed"], ...], scalars=(0, 2)), "selection")


@_WHERE.gradient(inputs=(0,))
def _where_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, ...]:
    condition = node.input(0)
    if len(node.metas) == 2:
        selected = logical_not(condition) if node.attributes == REVERSED else condition
        return None, where(selected, gradient, 0.0)
    _, first, second = node.needs
    return (
        None,
        where(condition, gradient, 0.0) if first else None,
        where(condition, 0.0, gradient) if second else None,
    )


@overload
def where(condition: Tensor) -> tuple[Tensor, ...]: ...


@overload
def where(
    condition: Tensor, input: Tensor | Scalar, other: Tensor | Scalar, *, out: Tensor | None = None
) -> Tensor: ...


@function()
def where(
    condition: Tensor,
    input: Tensor | Scalar | None = None,
    other: Tensor | Scalar | None = None,
    *,
    out: Tensor | None = None,
) -> Any:
    """`input` where the bool `condition` holds, else `other`.  The three shapes broadcast.

    With `condition` alone, the indices of its non-zero elements: ``nonzero(condition, as_tuple=True)``.

    Raises:
        TypeError: if `condition` is no tensor, or not bool with `input` and `other`; if only one of these is given, or
            one is neither a tensor nor a number; for `out` with `condition` alone.
        ValueError: if the shapes do not broadcast.
        OverflowError: for an integer beyond int64 and uint64.

    Example:
        >>> flow.where(flow.tensor([True, False]), flow.tensor([1, 2]), 0)
        tensor([1, 0])
    """
    if input is None or other is None:
        if input is not other:
            raise TypeError("where: expected both input and other, or neither")
        if out is not None:
            raise TypeError("where: out needs input and other; the indices of a condition have no out")
        return nonzero(condition, as_tuple=True)
    if out is not None:
        return delivered("where", out, (condition, input, other), lambda: where(condition, input, other))
    if isinstance(input, _tensors.Tensor):
        if isinstance(other, _tensors.Tensor):
            return _interpreter.dispatch(_WHERE, (condition, input, other))
        return _interpreter.dispatch(_WHERE, (condition, input), (), (number("where", other),))
    if isinstance(other, _tensors.Tensor):
        return _interpreter.dispatch(_WHERE, (condition, other), REVERSED, (number("where", input),))
    return _interpreter.dispatch(_WHERE, (condition,), (), (number("where", input), number("where", other)))


@method("where", own=False)
def chosen_where(self: Tensor, condition: Tensor, other: Tensor | Scalar) -> Tensor:
    """The tensor where the bool `condition` holds, else `other`.  The three shapes broadcast.

    Raises:
        TypeError, ValueError, OverflowError: as `vmflow.where`.

    Example:
        >>> flow.tensor([1, 2]).where(flow.tensor([True, False]), 0)
        tensor([1, 0])
    """
    result: Tensor = where(condition, self, other)
    return result


@public()
def masked_fill(input: Tensor, mask: Tensor, value: Tensor | Scalar) -> Tensor:
    """A copy of `input` with `value` where the bool `mask` holds.  The shapes broadcast.

    Args:
        input, mask: tensors.
        value: a number, or a 0-d tensor, converted to the dtype of `input`.

    Raises:
        TypeError: if `input` is no tensor, `mask` no bool tensor, or `value` no number or tensor, or a complex number
            for a real dtype.
        ValueError: if the value is a tensor with dimensions, or a number out of the dtype's range, or the shapes do not
            broadcast.
        OverflowError: for an integer beyond int64 and uint64.

    Example:
        >>> flow.masked_fill(flow.tensor([1, 2, 3]), flow.tensor([True, False, True]), 0)
        tensor([0, 2, 0])
    """
    check_tensors("masked_fill", input)
    filling, order, scalars = _filling("masked_fill", input, value)
    return _interpreter.dispatch(_WHERE, (mask, *filling, input), order, scalars)


@function()
def fill(input: Tensor, value: Tensor | Scalar) -> Tensor:
    """A tensor of the shape and dtype of `input` whose elements are all `value`; the gradient of `input` is zero.

    Raises:
        TypeError, ValueError, OverflowError: as `masked_fill`.

    Example:
        >>> flow.fill(flow.tensor([1, 2]), 7)
        tensor([7, 7])
    """
    check_tensors("fill", input)
    everywhere = beside(full_of(meta((), dtypes.bool_, input.device), True), input)
    return masked_fill(input, everywhere, value)


@method()
def masked_fill_(input: Tensor, mask: Tensor, value: Tensor | Scalar) -> Tensor:
    """Write `value` into `input` where the bool `mask`, which broadcasts to the shape of `input`, is True."""
    check_tensors("masked_fill_", input, mask)
    filling, order, scalars = _filling("masked_fill_", input, value)
    return into(_WHERE, input, (mask, *filling, input), order, scalars)


def _filling(
    name: str, input: Tensor, value: Tensor | Scalar
) -> tuple[tuple[Tensor, ...], Attributes, tuple[Any, ...]]:
    """Convert `value` to an operand, attributes and scalars of an op `where` that selects between `value` and `input`.

    A number becomes a scalar; a 0-d tensor becomes an operand, cast to the dtype of `input`."""
    if not isinstance(value, _tensors.Tensor):
        return (), REVERSED, (fitting(name, value, input.dtype),)
    if value.shape:
        raise ValueError(f"{name}: the value must be a number or a 0-d tensor, not of shape {list(value.shape)}")
    return (value.to(input.dtype),), (), ()


_CLAMP_MIN = Binary(
    "clamp_min",
    least=1,
    most=FLOATING,
)
_CLAMP_MAX = Binary(
    "clamp_max",
    least=1,
    most=FLOATING,
)
change_by_binary(_CLAMP_MIN)
change_by_binary(_CLAMP_MAX)


@_CLAMP_MIN.tensors.gradient(inputs=(0, 1))
def _clamp_min_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    return _limited_gradient(node, gradient, node.input(0) < node.input(1))


@_CLAMP_MAX.tensors.gradient(inputs=(0, 1))
def _clamp_max_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    return _limited_gradient(node, gradient, node.input(0) > node.input(1))


def _limited_gradient(node: OpNode, gradient: Tensor, beyond: Tensor) -> tuple[Tensor | None, Tensor | None]:
    needs_input, needs_limit = node.needs
    return (
        where(beyond, 0.0, gradient) if needs_input else None,
        where(beyond, gradient, 0.0) if needs_limit else None,
    )


@_CLAMP_MIN.scalar.gradient(inputs=(0,))
def _clamp_min_scalar_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (where(node.input(0) < node.scalars[0], 0.0, gradient),)


@_CLAMP_MAX.scalar.gradient(inputs=(0,))
def _clamp_max_scalar_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (where(node.input(0) > node.scalars[0], 0.0, gradient),)


def _infer_clamp(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (source,) = metas
    compute = result_dtype(metas, kinds)
    if not INTEGER <= compute.category <= FLOATING:
        raise TypeError(f"clamp is not defined for {compute.name} tensors")
    output = meta(source.shape, compute, source.device)
    return Inferred(output, output.numel * CHEAP)


ELEMENTWISE.add("clamp")
_CLAMP = OpExpr("clamp", _infer_clamp, Form(1, scalars=2), "selection")


@_CLAMP.gradient(inputs=(0,))
def _clamp_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    low, high = node.scalars
    return (where((node.input(0) < low) | (node.input(0) > high), 0.0, gradient),)


@public("clip")
def clamp(
    input: Tensor,
    min: Tensor | Scalar | None = None,
    max: Tensor | Scalar | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Each element limited to [`min`, `max`]; None is no limit.  The shapes broadcast.

    An integer limit beyond the range of an integer dtype counts as the end of the range.

    Where `min` is above `max`, the result is `max`, and the gradient of the element is 0.  Elsewhere, an element that
    equals a limit has the gradient 1.

    Raises:
        TypeError: if no operand is a tensor, one is neither a tensor nor a number, or the common dtype is bool or
            complex.
        ValueError: if both limits are None, or the shapes do not broadcast.
        OverflowError: for an integer beyond int64 and uint64.

    Example:
        >>> flow.clamp(flow.tensor([-1, 5, 9]), 0, 6)
        tensor([0, 5, 6])
    """
    if min is None and max is None:
        raise ValueError("clamp: give min, max or both")
    if out is not None:
        if min is None:
            assert max is not None
            return clamp_max(input, max, out=out)
        return clamp_min(input, min, out=out) if max is None else clamp_max(clamp_min(input, min), max, out=out)
    if min is not None:
        if _are_numbers(input, min, max):
            return _interpreter.dispatch(_CLAMP, (input,), (), (number("clamp", min), number("clamp", max)))
        input = _CLAMP_MIN.of(input, min)
    return input if max is None else _CLAMP_MAX.of(input, max)


def _are_numbers(input: Tensor, min: Any, max: Any) -> bool:
    """Return whether one op can apply `min`, not None, and `max`: only `input` is a tensor, and `max` is given."""
    tensors = isinstance(min, _tensors.Tensor) or isinstance(max, _tensors.Tensor)
    return max is not None and not tensors and isinstance(input, _tensors.Tensor)


@method("clip_")
def clamp_(input: Tensor, min: Tensor | Scalar | None = None, max: Tensor | Scalar | None = None) -> Tensor:
    """In-place `clamp`."""
    if min is None and max is None:
        raise ValueError("clamp_: give min, max or both")
    if min is not None:
        if _are_numbers(input, min, max):
            return into(_CLAMP, input, (input,), (), (number("clamp_", min), number("clamp_", max)))
        _CLAMP_MIN.into(input, min)
    return input if max is None else _CLAMP_MAX.into(input, max)


@public()
def clamp_min(input: Tensor, min: Tensor | Scalar, *, out: Tensor | None = None) -> Tensor:
    """The larger of each element and `min`; see `clamp`.  The shapes broadcast.

    Raises:
        TypeError, OverflowError: as `clamp`; TypeError if `min` is None.
        ValueError: if the shapes do not broadcast.

    Example:
        >>> flow.clamp_min(flow.tensor([-1, 5]), 0)
        tensor([0, 5])
    """
    if out is not None:
        return _CLAMP_MIN.written(out, input, min)
    return _CLAMP_MIN.of(input, min)


@public()
def clamp_max(input: Tensor, max: Tensor | Scalar, *, out: Tensor | None = None) -> Tensor:
    """The smaller of each element and `max`; see `clamp`.  The shapes broadcast.

    Raises:
        TypeError, ValueError, OverflowError: as `clamp_min`.

    Example:
        >>> flow.clamp_max(flow.tensor([-1, 5]), 0)
        tensor([-1,  0])
    """
    if out is not None:
        return _CLAMP_MAX.written(out, input, max)
    return _CLAMP_MAX.of(input, max)


@public()
@copied_in_place()
@out_by_copy()
def nan_to_num(
    input: Tensor,
    nan: Scalar | None = None,
    posinf: Scalar | None = None,
    neginf: Scalar | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Each element, with nan replaced by `nan`, and infinities by `posinf` and `neginf`; a copy of integers and bools.

    The default is 0 for nan, and the dtype's largest and smallest number for infinities.  Real and imaginary parts of
    complex numbers are replaced separately.

    Raises:
        TypeError: if `input` is no tensor, or if it is floating-point or complex and a replacement is neither a number
            nor a tensor.
        RuntimeError: if both `input` and a replacement are complex.

    Example:
        >>> flow.nan_to_num(flow.tensor([1.0, flow.nan, flow.inf]), posinf=9)
        tensor([1., 0., 9.])
    """
    check_tensors("nan_to_num", input)
    if input.dtype.category < FLOATING:
        return input.clone()
    if input.dtype.is_complex:
        from .complex_parts import view_as_complex, view_as_real  # which imports this module

        return view_as_complex(nan_to_num(view_as_real(input), nan, posinf, neginf))
    limits = dtypes.finfo(input.dtype)
    result = where(isnan(input), 0.0 if nan is None else nan, input)
    result = where(input == math.inf, limits.max if posinf is None else posinf, result)
    return where(input == -math.inf, limits.min if neginf is None else neginf, result)
