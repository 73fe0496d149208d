"""Comparison, logic and bits."""

from __future__ import annotations

import math
from numbers import Number
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from vmflow import interpreter as _interpreter, tensors as _tensors
from vmflow.dtypes import FLOATING, INTEGER
from vmflow.ops.declaration import METHODS, method, public

from .inference import TO_BOOL, elementwise
from .pointwise import binary, unary

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


eq = binary("eq", TO_BOOL, doc="Whether equal, element by element; a bool tensor.")
ne = binary("ne", TO_BOOL, also=("not_equal",), doc="Whether not equal.")
lt = binary("lt", TO_BOOL, most=FLOATING, also=("less", "__lt__"), doc="Whether less.")
le = binary("le", TO_BOOL, most=FLOATING, also=("less_equal", "__le__"), doc="Whether less or equal.")
gt = binary("gt", TO_BOOL, most=FLOATING, also=("greater", "__gt__"), doc="Whether greater.")
ge = binary("ge", TO_BOOL, most=FLOATING, also=("greater_equal", "__ge__"), doc="Whether greater or equal.")
logical_and = binary("logical_and", TO_BOOL, doc="Whether both are non-zero.")
logical_or = binary("logical_or", TO_BOOL, doc="Whether one is non-zero.")
logical_xor = binary("logical_xor", TO_BOOL, doc="Whether exactly one is non-zero.")
logical_not = unary("logical_not", TO_BOOL, doc="Whether zero.")
bitwise_and = binary(
    "bitwise_and", most=INTEGER, also=("__and__", "__rand__"), doc="The bits set in both; integers and bools."
)
bitwise_or = binary(
    "bitwise_or", most=INTEGER, also=("__or__", "__ror__"), doc="The bits set in one; integers and bools."
)
bitwise_xor = binary(
    "bitwise_xor", most=INTEGER, also=("__xor__", "__rxor__"), doc="The bits set in exactly one; integers and bools."
)
bitwise_left_shift = binary(
    "bitwise_left_shift",
    least=INTEGER,
    most=INTEGER,
    also=("__lshift__",),
    reflected="__rlshift__",
    doc="The bits moved up by `other` places; integers.  Nothing is left after as many places as the dtype has bits.",
)
bitwise_right_shift = binary(
    "bitwise_right_shift",
    least=INTEGER,
    most=INTEGER,
    also=("__rshift__",),
    reflected="__rrshift__",
    doc="The bits moved down by `other` places, the sign filling up; integers.",
)
METHODS["__ilshift__"] = METHODS["bitwise_left_shift_"]
METHODS["__irshift__"] = METHODS["bitwise_right_shift_"]
METHODS["__iand__"] = METHODS["bitwise_and_"]
METHODS["__ior__"] = METHODS["bitwise_or_"]
METHODS["__ixor__"] = METHODS["bitwise_xor_"]
bitwise_not = unary("bitwise_not", most=INTEGER, also=("__invert__",), doc="The bits inverted; integers and bools.")
_ISNAN = elementwise("isnan", TO_BOOL)
_ISINF = elementwise("isinf", TO_BOOL)
_ISFINITE = elementwise("isfinite", TO_BOOL)


@public()
def isnan(input: Tensor) -> Tensor:
    """Whether nan."""
    return _interpreter.dispatch(_ISNAN, (input,))


@public()
def isinf(input: Tensor) -> Tensor:
    """Whether infinite."""
    return _interpreter.dispatch(_ISINF, (input,))


@public()
def isfinite(input: Tensor) -> Tensor:
    """Whether neither infinite nor nan."""
    return _interpreter.dispatch(_ISFINITE, (input,))


@public()
def isposinf(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Whether infinite and positive.

    Raises:
        TypeError: for complex numbers, which have no sign.
    """
    return _is_infinity("isposinf", input, math.inf, out)


@public()
def isneginf(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Whether infinite and negative.

    Raises:
        TypeError: for complex numbers, which have no sign.
    """
    return _is_infinity("isneginf", input, -math.inf, out)


def _is_infinity(name: str, input: Tensor, infinity: float, out: Tensor | None) -> Tensor:
    if input.dtype.is_complex:
        raise TypeError(f"{name} is not defined for {input.dtype.name} tensors; look at their real and imag")
    return eq(input, infinity, out=out)


# An array as well, of which the op says what to do: that a tensor differs from every array would be silently wrong.
_OPERANDS = (_tensors.Tensor, Number, np.generic, np.ndarray)


@method()
def __eq__(self: Tensor, other: object) -> Any:
    return eq(self, cast(Any, other)) if isinstance(other, _OPERANDS) else NotImplemented


@method()
def __ne__(self: Tensor, other: object) -> Any:
    return ne(self, cast(Any, other)) if isinstance(other, _OPERANDS) else NotImplemented
