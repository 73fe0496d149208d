"""What depends on how numbers are written: their sign bits and neighbours, and extrema that leave nan aside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmflow import dtypes
from vmflow import interpreter as _interpreter
from vmflow.dtypes import FLOATING

from .autocasting import autocast_as_op
from .declaration import public
from .destination import written
from .elementwise import TO_BOOL, TO_FLOAT, elementwise
from .pointwise import Binary, check_tensors
from .selection import where

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

    from .elementwise import Scalar


_SIGNBIT = elementwise("signbit", TO_BOOL, most=FLOATING)
_COPYSIGN = Binary("copysign", TO_FLOAT, most=FLOATING)
_NEXTAFTER = elementwise("nextafter", operands=2, least=FLOATING, most=FLOATING)
_FMAX = elementwise("fmax", operands=2, most=FLOATING)
_FMIN = elementwise("fmin", operands=2, most=FLOATING)
_HEAVISIDE = elementwise("heaviside", operands=2, most=FLOATING)


@_COPYSIGN.tensors.gradient(inputs=(0,), outputs=(0,))
def _copysign_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    first, second = node.needs
    return (
        _turned(gradient, node.input(0), node.output(0)) if first else None,
        gradient * 0.0 if second else None,
    )


@_COPYSIGN.scalar.gradient(inputs=(0,), outputs=(0,))
def _copysign_scalar_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (_turned(gradient, node.input(0), node.output(0)) if not node.attributes else gradient * 0.0,)


def _turned(gradient: Tensor, before: Tensor, after: Tensor) -> Tensor:
    """The gradient, turned where the sign was; 0 at 0, which has no derivative."""
    return where(before == 0, 0.0, where(before == after, gradient, -gradient))


@_FMAX.gradient(inputs=(0, 1))
def _fmax_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    return _given_to(node, gradient, node.input(0) >= node.input(1))


@_FMIN.gradient(inputs=(0, 1))
def _fmin_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    return _given_to(node, gradient, node.input(0) <= node.input(1))


def _given_to(node: OpNode, gradient: Tensor, first_wins: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Of two equal elements the first has all of the gradient, as in PyTorch."""
    first_wins = first_wins | node.input(1).isnan()
    first, second = node.needs
    return where(first_wins, gradient, 0.0) if first else None, where(first_wins, 0.0, gradient) if second else None


@public()
def signbit(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Whether the sign is set: of what is negative, -0.0 and some nan; a bool tensor."""
    if out is not None:
        return written(_SIGNBIT, out, (input,))
    return _interpreter.dispatch(_SIGNBIT, (input,))


@public()
def copysign(input: Tensor | Scalar, other: Tensor | Scalar, *, out: Tensor | None = None) -> Tensor:
    """The size of `input` with the sign of `other`; integers give the default dtype."""
    if out is not None:
        return _COPYSIGN.written(out, input, other)
    return _COPYSIGN.of(input, other)


@public()
def nextafter(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The number next to `input` towards `other`, of those that the dtype holds."""
    if out is not None:
        return written(_NEXTAFTER, out, (input, other))
    return _interpreter.dispatch(_NEXTAFTER, (input, other))


@public()
def fmax(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The larger of two elements; nan only if both are."""
    if out is not None:
        return written(_FMAX, out, (input, other))
    return _interpreter.dispatch(_FMAX, (input, other))


@public()
def fmin(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The smaller of two elements; nan only if both are."""
    if out is not None:
        return written(_FMIN, out, (input, other))
    return _interpreter.dispatch(_FMIN, (input, other))


@public()
@autocast_as_op
def heaviside(input: Tensor, values: Tensor, *, out: Tensor | None = None) -> Tensor:
    """0 where `input` is negative or nan, `values` where it is 0, 1 where it is positive; it has no gradient.

    Raises:
        TypeError: for two dtypes.
    """
    check_tensors("heaviside", input, values)
    check_one_dtype("heaviside", input, values)
    if out is not None:
        return written(_HEAVISIDE, out, (input, values))
    return _interpreter.dispatch(_HEAVISIDE, (input, values))


def check_one_dtype(name: str, input: Tensor, other: Tensor) -> None:
    """Raise TypeError unless both have the same dtype."""
    if input.dtype is not other.dtype:
        raise TypeError(f"{name}: expected one dtype, got {input.dtype.name} and {other.dtype.name}")


@public()
def positive(input: Tensor) -> Tensor:
    """`input` itself.

    Raises:
        TypeError: for bools.
    """
    if input.dtype is dtypes.bool_:
        raise TypeError("positive is not defined for bool tensors")
    return input
