"""Complex tensors seen as real ones and the other way round, sharing their memory: each has what the other is given."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from vmflow import dtypes, interpreter as _interpreter
from vmflow.dtypes import dtype as DType
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.copying import cast, clone, contiguous, copy_
from vmflow.ops.declaration import attribute, function, public
from vmflow.ops.destination import out_by_copy
from vmflow.ops.in_place import copied_in_place
from vmflow.ops.shape.joining import stack
from vmflow.ops.shape.view import broadcast_tensors, select
from vmflow.ops.table import Attributes, ViewExpr

from .arithmetic import atan2, conj, sign
from .comparison import isnan
from .pointwise import check_tensors
from .selection import where
from .transcendental import cos, sin

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

Shape = tuple[int, ...]

_TO_COMPLEX = {dtypes.float32: dtypes.complex64, dtypes.float64: dtypes.complex128}


def _to_real(dtype: DType) -> DType:
    if not dtype.is_complex:
        raise RuntimeError(f"view_as_real: expected a complex tensor, got {dtype.name}")
    return dtype.to_real()


def _to_complex(dtype: DType) -> DType:
    if dtype not in _TO_COMPLEX:
        raise RuntimeError(f"view_as_complex: expected a float32 or float64 tensor, got {dtype.name}")
    return _TO_COMPLEX[dtype]


def _view_real(attributes: Attributes, shape: Shape, strides: Shape, offset: int) -> tuple[Shape, Shape, int]:
    return (*shape, 2), (*[2 * stride for stride in strides], 1), 2 * offset


def _view_complex(attributes: Attributes, shape: Shape, strides: Shape, offset: int) -> tuple[Shape, Shape, int]:
    if not shape or shape[-1] != 2:
        raise RuntimeError(f"view_as_complex: the last dimension must have size 2, got shape {list(shape)}")
    if strides[-1] != 1 or offset % 2 or any([stride % 2 for stride in strides[:-1]]):
        raise RuntimeError(
            f"view_as_complex: real and imaginary parts must lie next to each other from an even place, got strides "
            f"{list(strides)} from {offset}; use contiguous()"
        )
    return shape[:-1], tuple([stride // 2 for stride in strides[:-1]]), offset // 2


VIEW_AS_REAL = ViewExpr("view_as_real", _view_real, _to_real)
VIEW_AS_COMPLEX = ViewExpr("view_as_complex", _view_complex, _to_complex)


@VIEW_AS_REAL.gradient()
def _view_as_real_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    # A part of something may be contiguous and begin at an odd place.
    even = gradient.storage_offset() % 2 == 0
    return (view_as_complex(contiguous(gradient) if even else clone(gradient)),)


@VIEW_AS_COMPLEX.gradient()
def _view_as_complex_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (view_as_real(gradient),)


@function()
def view_as_real(input: Tensor) -> Tensor:
    """A complex tensor as a real one with a last dimension for the real and the imaginary part; a view.

    Raises:
        RuntimeError: for a real tensor.
    """
    check_tensors("view_as_real", input)
    return _interpreter.dispatch_view(VIEW_AS_REAL, input)


@function()
@autocast_as_op
def view_as_complex(input: Tensor) -> Tensor:
    """A real tensor, whose last dimension has real and imaginary parts, as a complex one; a view.

    Raises:
        RuntimeError: for other dtypes than float32 and float64, or if the parts do not lie next to each other.
    """
    check_tensors("view_as_complex", input)
    return _interpreter.dispatch_view(VIEW_AS_COMPLEX, input)


@function()
def real(input: Tensor) -> Tensor:
    """The real part, a view; of a real tensor the tensor itself."""
    check_tensors("real", input)
    return select(view_as_real(input), -1, 0) if input.dtype.is_complex else input


@function()
def imag(input: Tensor) -> Tensor:
    """The imaginary part of a complex tensor, a view.

    Raises:
        RuntimeError: for a real tensor, which has none to share memory with.
    """
    check_tensors("imag", input)
    if not input.dtype.is_complex:
        raise RuntimeError(f"imag: expected a complex tensor, got {input.dtype.name}")
    return select(view_as_real(input), -1, 1)


@function()
@out_by_copy()
@autocast_as_op
def complex(real: Tensor, imag: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The complex tensor with these parts, which broadcast.

    Raises:
        TypeError: unless both are float32, or both float64.
    """
    check_tensors("complex", real, imag)
    if real.dtype is not imag.dtype or real.dtype not in _TO_COMPLEX:
        raise TypeError(
            f"complex: expected two of float32 or two of float64, got {real.dtype.name} and {imag.dtype.name}"
        )
    return view_as_complex(stack(list(broadcast_tensors(real, imag)), -1))


@function()
@autocast_as_op
@out_by_copy()
def polar(abs: Tensor, angle: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The complex tensor with these absolute values and angles in radians, which broadcast.

    Raises:
        TypeError: unless both are float32, or both float64.

    >>> flow.polar(flow.tensor([2.0]), flow.tensor([0.0]))
    tensor([2.+0.j])
    """
    check_tensors("polar", abs, angle)
    if abs.dtype is not angle.dtype or abs.dtype not in _TO_COMPLEX:
        raise TypeError(
            f"polar: expected two of float32 or two of float64, got {abs.dtype.name} and {angle.dtype.name}"
        )
    return complex(abs * cos(angle), abs * sin(angle))


@public()
@out_by_copy()
def angle(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The angle of complex numbers in radians; of real ones pi where negative, else 0, and nan where nan.

    Integers give the default dtype.  The angle of a real number has the derivative 0, and so has that of the complex 0.
    """
    check_tensors("angle", input)
    if input.dtype.is_complex:
        return atan2(imag(input), real(input))
    # The product keeps nan, and that the result depends on the input.
    wide = input if input.dtype.is_floating_point else cast(input, dtypes.get_default_dtype())
    return where(wide < 0, math.pi, where(isnan(wide), wide, wide.sign() * 0.0 + 0.0))


@public()
@copied_in_place()
@out_by_copy()
def sgn(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """`sign`, also of complex numbers: of these the number divided by its absolute value, 0 where it is 0."""
    check_tensors("sgn", input)
    if not input.dtype.is_complex:
        return sign(input)
    size = input.abs()
    nothing = size == 0
    return where(nothing, 0.0, input / where(nothing, 1.0, size))


@public()
def isreal(input: Tensor) -> Tensor:
    """Whether the imaginary part is zero, as it is of all real numbers."""
    check_tensors("isreal", input)
    return imag(input) == 0 if input.dtype.is_complex else input.new_ones(input.shape, dtype=dtypes.bool_)


@public()
@copied_in_place()
@out_by_copy()
def conj_physical(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """`conj`: the complex conjugate, whose values are computed, as all are here."""
    return conj(input)


@public()
def resolve_conj(input: Tensor) -> Tensor:
    """The tensor itself: conjugates are computed at once here."""
    return input


@public()
def resolve_neg(input: Tensor) -> Tensor:
    """The tensor itself: negatives are computed at once here."""
    return input


@public()
def is_conj(input: Tensor) -> bool:
    """False: no tensor is one that has yet to be conjugated."""
    return False


@public()
def is_neg(input: Tensor) -> bool:
    """False: no tensor is one that has yet to be negated."""
    return False


def _set_real(self: Tensor, value: Tensor | float) -> None:
    copy_(real(self), value)


def _set_imag(self: Tensor, value: Tensor | float) -> None:
    copy_(imag(self), value)


@attribute("real", _set_real)
def real_part(self: Tensor) -> Tensor:
    """The real part, a view, to which can be assigned; of a real tensor the tensor itself."""
    return real(self)


@attribute("imag", _set_imag)
def imag_part(self: Tensor) -> Tensor:
    """The imaginary part of a complex tensor, a view, to which can be assigned."""
    return imag(self)
