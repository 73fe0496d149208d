"""Comparisons, logic and bitwise operations."""

from __future__ import annotations

import math
from numbers import Number
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from vmflow import interpreter as _interpreter, tensors as _tensors
from vmflow.dtypes import FLOATING, INTEGER
from vmflow.operands import check_tensors
from vmflow.ops.declaration import METHODS, method, public

from .inference import TO_BOOL, elementwise
from .pointwise import binary, unary

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


eq = binary(
    "eq",
    TO_BOOL,
    doc="Whether two elements are equal.",
    example=("flow.eq(flow.tensor([1, 2]), flow.tensor([1, 3]))", "tensor([ True, False])"),
)
ne = binary(
    "ne",
    TO_BOOL,
    also=("not_equal",),
    doc="Whether two elements differ.",
    example=("flow.ne(flow.tensor([1, 2]), flow.tensor([1, 3]))", "tensor([False,  True])"),
)
lt = binary(
    "lt",
    TO_BOOL,
    most=FLOATING,
    also=("less", "__lt__"),
    doc="Whether `input` is less than `other`.",
    example=("flow.lt(flow.tensor([1, 2]), 2)", "tensor([ True, False])"),
)
le = binary(
    "le",
    TO_BOOL,
    most=FLOATING,
    also=("less_equal", "__le__"),
    doc="Whether `input` is less than or equal to `other`.",
    example=("flow.le(flow.tensor([1, 2, 3]), 2)", "tensor([ True,  True, False])"),
)
gt = binary(
    "gt",
    TO_BOOL,
    most=FLOATING,
    also=("greater", "__gt__"),
    doc="Whether `input` is greater than `other`.",
    example=("flow.gt(flow.tensor([1, 2, 3]), 2)", "tensor([False, False,  True])"),
)
ge = binary(
    "ge",
    TO_BOOL,
    most=FLOATING,
    also=("greater_equal", "__ge__"),
    doc="Whether `input` is greater than or equal to `other`.",
    example=("flow.ge(flow.tensor([1, 2, 3]), 2)", "tensor([False,  True,  True])"),
)
logical_and = binary(
    "logical_and",
    TO_BOOL,
    doc="Whether both elements are non-zero.",
    example=("flow.logical_and(flow.tensor([0, 2]), flow.tensor([1, 1]))", "tensor([False,  True])"),
)
logical_or = binary(
    "logical_or",
    TO_BOOL,
    doc="Whether an element or its partner is non-zero.",
    example=("flow.logical_or(flow.tensor([0, 2]), flow.tensor([0, 0]))", "tensor([False,  True])"),
)
logical_xor = binary(
    "logical_xor",
    TO_BOOL,
    doc="Whether exactly one of two elements is non-zero.",
    example=("flow.logical_xor(flow.tensor([0, 2]), flow.tensor([1, 1]))", "tensor([ True, False])"),
)
logical_not = unary(
    "logical_not",
    TO_BOOL,
    doc="Whether an element is zero.",
    example=("flow.logical_not(flow.tensor([0, 2]))", "tensor([ True, False])"),
)
bitwise_and = binary(
    "bitwise_and",
    most=INTEGER,
    also=("__and__", "__rand__"),
    doc="The bits that both operands have.",
    example=("flow.bitwise_and(flow.tensor([6, 5]), 3)", "tensor([2, 1])"),
)
bitwise_or = binary(
    "bitwise_or",
    most=INTEGER,
    also=("__or__", "__ror__"),
    doc="The bits that either operand has.",
    example=("flow.bitwise_or(flow.tensor([6, 5]), 3)", "tensor([7, 7])"),
)
bitwise_xor = binary(
    "bitwise_xor",
    most=INTEGER,
    also=("__xor__", "__rxor__"),
    doc="The bits that exactly one operand has.",
    example=("flow.bitwise_xor(flow.tensor([6, 5]), 3)", "tensor([5, 6])"),
)
bitwise_left_shift = binary(
    "bitwise_left_shift",
    least=INTEGER,
    most=INTEGER,
    also=("__lshift__",),
    reflected="__rlshift__",
    doc="`input` shifted left by `other` bits; 0 once all bits are shifted out.",
    example=("flow.bitwise_left_shift(flow.tensor([1, 3]), flow.tensor([4, 2]))", "tensor([16, 12])"),
)
bitwise_right_shift = binary(
    "bitwise_right_shift",
    least=INTEGER,
    most=INTEGER,
    also=("__rshift__",),
    reflected="__rrshift__",
    doc="`input` shifted right by `other` bits; the sign bit fills the gap.",
    example=("flow.bitwise_right_shift(flow.tensor([16, -4]), flow.tensor([2, 1]))", "tensor([ 4, -2])"),
)
METHODS["__ilshift__"] = METHODS["bitwise_left_shift_"]
METHODS["__irshift__"] = METHODS["bitwise_right_shift_"]
METHODS["__iand__"] = METHODS["bitwise_and_"]
METHODS["__ior__"] = METHODS["bitwise_or_"]
METHODS["__ixor__"] = METHODS["bitwise_xor_"]
bitwise_not = unary(
    "bitwise_not",
    most=INTEGER,
    also=("__invert__",),
    doc="The inverted bits; `logical_not` for bools.",
    example=("flow.bitwise_not(flow.tensor([0, 5]))", "tensor([-1, -6])"),
)
_ISNAN = elementwise("isnan", TO_BOOL)
_ISINF = elementwise("isinf", TO_BOOL)
_ISFINITE = elementwise("isfinite", TO_BOOL)


@public()
def isnan(input: Tensor) -> Tensor:
    """Whether each element is nan: a bool tensor of the shape of `input`.

    Raises:
        TypeError: if `input` is no tensor.

    Example:
        >>> flow.isnan(flow.tensor([1.0, flow.nan]))
        tensor([False,  True])
    """
    return _interpreter.dispatch(_ISNAN, (input,))


@public()
def isinf(input: Tensor) -> Tensor:
    """Whether each element is infinite: a bool tensor of the shape of `input`.

    Raises:
        TypeError: if `input` is no tensor.

    Example:
        >>> flow.isinf(flow.tensor([1.0, -flow.inf]))
        tensor([False,  True])
    """
    return _interpreter.dispatch(_ISINF, (input,))


@public()
def isfinite(input: Tensor) -> Tensor:
    """Whether each element is neither infinite nor nan: a bool tensor of the shape of `input`.

    Raises:
        TypeError: if `input` is no tensor.

    Example:
        >>> flow.isfinite(flow.tensor([1.0, flow.inf, flow.nan]))
        tensor([ True, False, False])
    """
    return _interpreter.dispatch(_ISFINITE, (input,))


@public()
def isposinf(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Whether each element is positive infinity: a bool tensor of the shape of `input`.

    Raises:
        TypeError: if `input` is complex, as complex numbers have no sign.

    Example:
        >>> flow.isposinf(flow.tensor([1.0, flow.inf, -flow.inf]))
        tensor([False,  True, False])
    """
    return _is_infinity("isposinf", input, math.inf, out)


@public()
def isneginf(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Whether each element is negative infinity: a bool tensor of the shape of `input`.

    Raises:
        TypeError: as `isposinf`.

    Example:
        >>> flow.isneginf(flow.tensor([1.0, flow.inf, -flow.inf]))
        tensor([False, False,  True])
    """
    return _is_infinity("isneginf", input, -math.inf, out)


def _is_infinity(name: str, input: Tensor, infinity: float, out: Tensor | None) -> Tensor:
    check_tensors(name, input)
    if input.dtype.is_complex:
        raise TypeError(f"{name} is not defined for {input.dtype.name} tensors; look at their real and imag")
    return eq(input, infinity, out=out)


# `__eq__` and `__ne__` pass operands of these types on to the op, which raises an error for arrays.  If `__eq__`
# returned NotImplemented for an array, Python would compare identities, and `tensor == array` would always, and
# wrongly, be False.
_OPERANDS = (_tensors.Tensor, Number, np.generic, np.ndarray)


@method()
def __eq__(self: Tensor, other: object) -> Any:
    return eq(self, cast(Any, other)) if isinstance(other, _OPERANDS) else NotImplemented


@method()
def __ne__(self: Tensor, other: object) -> Any:
    return ne(self, cast(Any, other)) if isinstance(other, _OPERANDS) else NotImplemented
