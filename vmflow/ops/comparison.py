"""Comparison, logic and bits."""

from __future__ import annotations

from numbers import Number
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from vmflow import interpreter as _interpreter
from vmflow import tensors as _tensors
from vmflow.dtypes import FLOATING, INTEGER

from .declaration import method, public
from .destination import written
from .elementwise import TO_BOOL, elementwise
from .pointwise import Binary

if TYPE_CHECKING:
    from vmflow.tensors import Tensor

    from .elementwise import Scalar


_EQ = Binary("eq", TO_BOOL)
_NE = Binary("ne", TO_BOOL)
_LT = Binary("lt", TO_BOOL, most=FLOATING)
_LE = Binary("le", TO_BOOL, most=FLOATING)
_GT = Binary("gt", TO_BOOL, most=FLOATING)
_GE = Binary("ge", TO_BOOL, most=FLOATING)
_LOGICAL_AND = Binary("logical_and", TO_BOOL)
_LOGICAL_OR = Binary("logical_or", TO_BOOL)
_LOGICAL_XOR = Binary("logical_xor", TO_BOOL)
_LOGICAL_NOT = elementwise("logical_not", TO_BOOL)
_BITWISE_AND = Binary("bitwise_and", most=INTEGER)
_BITWISE_OR = Binary("bitwise_or", most=INTEGER)
_BITWISE_XOR = Binary("bitwise_xor", most=INTEGER)
_LEFT_SHIFT = Binary("bitwise_left_shift", least=INTEGER, most=INTEGER)
_RIGHT_SHIFT = Binary("bitwise_right_shift", least=INTEGER, most=INTEGER)
_BITWISE_NOT = elementwise("bitwise_not", most=INTEGER)
_ISNAN = elementwise("isnan", TO_BOOL)
_ISINF = elementwise("isinf", TO_BOOL)
_ISFINITE = elementwise("isfinite", TO_BOOL)


@public()
def eq(input: Tensor, other: Tensor | Scalar, *, out: Tensor | None = None) -> Tensor:
    """Whether equal, element by element; a bool tensor."""
    if out is not None:
        return _EQ.written(out, input, other)
    return _EQ.of(input, other)


@public("not_equal")
def ne(input: Tensor, other: Tensor | Scalar, *, out: Tensor | None = None) -> Tensor:
    """Whether not equal."""
    if out is not None:
        return _NE.written(out, input, other)
    return _NE.of(input, other)


@public("less", "__lt__")
def lt(input: Tensor, other: Tensor | Scalar, *, out: Tensor | None = None) -> Tensor:
    """Whether less."""
    if out is not None:
        return _LT.written(out, input, other)
    return _LT.of(input, other)


@public("less_equal", "__le__")
def le(input: Tensor, other: Tensor | Scalar, *, out: Tensor | None = None) -> Tensor:
    """Whether less or equal."""
    if out is not None:
        return _LE.written(out, input, other)
    return _LE.of(input, other)


@public("greater", "__gt__")
def gt(input: Tensor, other: Tensor | Scalar, *, out: Tensor | None = None) -> Tensor:
    """Whether greater."""
    if out is not None:
        return _GT.written(out, input, other)
    return _GT.of(input, other)


@public("greater_equal", "__ge__")
def ge(input: Tensor, other: Tensor | Scalar, *, out: Tensor | None = None) -> Tensor:
    """Whether greater or equal."""
    if out is not None:
        return _GE.written(out, input, other)
    return _GE.of(input, other)


@public()
def logical_and(input: Tensor, other: Tensor | Scalar, *, out: Tensor | None = None) -> Tensor:
    """Whether both are non-zero."""
    if out is not None:
        return _LOGICAL_AND.written(out, input, other)
    return _LOGICAL_AND.of(input, other)


@public()
def logical_or(input: Tensor, other: Tensor | Scalar, *, out: Tensor | None = None) -> Tensor:
    """Whether one is non-zero."""
    if out is not None:
        return _LOGICAL_OR.written(out, input, other)
    return _LOGICAL_OR.of(input, other)


@public()
def logical_xor(input: Tensor, other: Tensor | Scalar, *, out: Tensor | None = None) -> Tensor:
    """Whether exactly one is non-zero."""
    if out is not None:
        return _LOGICAL_XOR.written(out, input, other)
    return _LOGICAL_XOR.of(input, other)


@public()
def logical_not(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Whether zero."""
    if out is not None:
        return written(_LOGICAL_NOT, out, (input,))
    return _interpreter.dispatch(_LOGICAL_NOT, (input,))


@public("__and__", "__rand__")
def bitwise_and(input: Tensor, other: Tensor | Scalar, *, out: Tensor | None = None) -> Tensor:
    """The bits set in both; integers and bools."""
    if out is not None:
        return _BITWISE_AND.written(out, input, other)
    return _BITWISE_AND.of(input, other)


@public("__or__", "__ror__")
def bitwise_or(input: Tensor, other: Tensor | Scalar, *, out: Tensor | None = None) -> Tensor:
    """The bits set in one; integers and bools."""
    if out is not None:
        return _BITWISE_OR.written(out, input, other)
    return _BITWISE_OR.of(input, other)


@public("__xor__", "__rxor__")
def bitwise_xor(input: Tensor, other: Tensor | Scalar, *, out: Tensor | None = None) -> Tensor:
    """The bits set in exactly one; integers and bools."""
    if out is not None:
        return _BITWISE_XOR.written(out, input, other)
    return _BITWISE_XOR.of(input, other)


@public("__invert__")
def bitwise_not(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The bits inverted; integers and bools."""
    if out is not None:
        return written(_BITWISE_NOT, out, (input,))
    return _interpreter.dispatch(_BITWISE_NOT, (input,))


@public("__lshift__", reflected="__rlshift__")
def bitwise_left_shift(input: Tensor | Scalar, other: Tensor | Scalar, *, out: Tensor | None = None) -> Tensor:
    """The bits moved up by `other` places; integers.  Nothing is left after as many places as the dtype has bits."""
    if out is not None:
        return _LEFT_SHIFT.written(out, input, other)
    return _LEFT_SHIFT.of(input, other)


@public("__rshift__", reflected="__rrshift__")
def bitwise_right_shift(input: Tensor | Scalar, other: Tensor | Scalar, *, out: Tensor | None = None) -> Tensor:
    """The bits moved down by `other` places, the sign filling up; integers."""
    if out is not None:
        return _RIGHT_SHIFT.written(out, input, other)
    return _RIGHT_SHIFT.of(input, other)


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


# An array as well, of which the op says what to do: that a tensor differs from every array would be silently wrong.
_OPERANDS = (_tensors.Tensor, Number, np.generic, np.ndarray)


@method()
def __eq__(self: Tensor, other: object) -> Any:
    return eq(self, cast(Any, other)) if isinstance(other, _OPERANDS) else NotImplemented


@method()
def __ne__(self: Tensor, other: object) -> Any:
    return ne(self, cast(Any, other)) if isinstance(other, _OPERANDS) else NotImplemented
