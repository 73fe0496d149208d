"""Complex tensors: views of them as real tensors and back, real and imaginary parts, angles and signs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from vmflow import dtypes, interpreter as _interpreter
from vmflow.dtypes import dtype as DType
from vmflow.operands import check_tensors
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
            f"view_as_complex: real and imaginary parts must be adjacent in memory, at an even offset, got strides "
            f"{list(strides)} and offset {offset}; use clone()"
        )
    return shape[:-1], tuple([stride // 2 for stride in strides[:-1]]), offset // 2


VIEW_AS_REAL = ViewExpr("view_as_real", _view_real, _to_real)
VIEW_AS_COMPLEX = ViewExpr("view_as_complex", _view_complex, _to_complex)


@VIEW_AS_REAL.gradient()
def _view_as_real_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    # A contiguous view of real numbers may start at an odd offset, where no complex number can start: copy it then.
    even = gradient.storage_offset() % 2 == 0
    return (view_as_complex(contiguous(gradient) if even else clone(gradient)),)


@VIEW_AS_COMPLEX.gradient()
def _view_as_complex_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (view_as_real(gradient),)


@function()
def view_as_real(input: Tensor) -> Tensor:
    """View a complex tensor (...) as a real one, (..., 2): the new last dimension holds real and imaginary parts.

    Raises:
        TypeError: if `input` is no tensor.
        RuntimeError: if `input` is real.

    Example:
        >>> flow.view_as_real(flow.tensor([1 + 2j]))
        tensor([[1., 2.]])
    """
    check_tensors("view_as_real", input)
    return _interpreter.dispatch_view(VIEW_AS_REAL, input)


@function()
@autocast_as_op
def view_as_complex(input: Tensor) -> Tensor:
    """View a real tensor (..., 2) as a complex one, (...): the last dimension holds real and imaginary parts.

    Raises:
        RuntimeError: if `input` is neither float32 nor float64, its last dimension is not 2, or real and
            imaginary parts are not adjacent in memory at even offsets; then use ``clone()``.

    Example:
        >>> flow.view_as_complex(flow.tensor([[1.0, 2.0]]))
        tensor([1.+2.j])
    """
    check_tensors("view_as_complex", input)
    return _interpreter.dispatch_view(VIEW_AS_COMPLEX, input)


@function()
def real(input: Tensor) -> Tensor:
    """The real part of each element, a view of the same shape; a real tensor is returned itself.

    Raises:
        TypeError: if `input` is no tensor.

    Example:
        >>> flow.real(flow.tensor([1 + 2j]))
        tensor([1.])
    """
    check_tensors("real", input)
    return select(view_as_real(input), -1, 0) if input.dtype.is_complex else input


@function()
def imag(input: Tensor) -> Tensor:
    """The imaginary part of each element of a complex tensor, a view of the same shape.

    Raises:
        RuntimeError: if `input` is real: a view needs imaginary parts in memory.

    Example:
        >>> flow.imag(flow.tensor([1 + 2j]))
        tensor([2.])
    """
    check_tensors("imag", input)
    if not input.dtype.is_complex:
        raise RuntimeError(f"imag: expected a complex tensor, got {input.dtype.name}")
    return select(view_as_real(input), -1, 1)


@function()
@out_by_copy()
@autocast_as_op
def complex(real: Tensor, imag: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The complex tensor with these real and imaginary parts.  The shapes broadcast.

    Raises:
        TypeError: unless both operands are float32 tensors, or both float64 tensors.
        ValueError: if the shapes do not broadcast.

    Example:
        >>> flow.complex(flow.tensor([1.0]), flow.tensor([2.0]))
        tensor([1.+2.j])
    """
    check_tensors("complex", real, imag)
    if real.dtype is not imag.dtype or real.dtype not in _TO_COMPLEX:
        raise TypeError(
            f"complex: expected two float32 or two float64 tensors, got {real.dtype.name} and {imag.dtype.name}"
        )
    return view_as_complex(stack(list(broadcast_tensors(real, imag)), -1))


@function()
@autocast_as_op
@out_by_copy()
def polar(abs: Tensor, angle: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The complex tensor with these absolute values and angles in radians.  The shapes broadcast.

    Raises:
        TypeError, ValueError: as `complex`.

    Example:
        >>> flow.polar(flow.tensor([2.0]), flow.tensor([0.0]))
        tensor([2.+0.j])
    """
    check_tensors("polar", abs, angle)
    if abs.dtype is not angle.dtype or abs.dtype not in _TO_COMPLEX:
        raise TypeError(
            f"polar: expected two float32 or two float64 tensors, got {abs.dtype.name} and {angle.dtype.name}"
        )
    return complex(abs * cos(angle), abs * sin(angle))


@public()
@out_by_copy()
def angle(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The angle of each element in radians.

    The angle of a real number is pi if the number is negative, else 0, and nan for nan.  The derivative for real
    numbers, and at the complex 0, is 0.  Integers give the default dtype.

    Raises:
        TypeError: if `input` is no tensor.

    Example:
        >>> flow.angle(flow.tensor([1j, -1.0]))
        tensor([1.5708, 3.1416])
    """
    check_tensors("angle", input)
    if input.dtype.is_complex:
        return atan2(imag(input), real(input))
    # `angle` of a real number that is not negative is 0, computed as ``sign * 0 + 0``, which has a gradient of 0.
    floating = input if input.dtype.is_floating_point else cast(input, dtypes.get_default_dtype())
    return where(floating < 0, math.pi, where(isnan(floating), math.nan, floating.sign() * 0.0 + 0.0))


@public()
@copied_in_place()
@out_by_copy()
def sgn(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """`sign` of a real tensor; for complex elements the element divided by its absolute value, and 0 for 0.

    Raises:
        TypeError: if `input` is no tensor.

    Example:
        >>> flow.sgn(flow.tensor([3 + 4j, 0]))
        tensor([0.6000+0.8000j, 0.0000+0.0000j])
    """
    check_tensors("sgn", input)
    if not input.dtype.is_complex:
        return sign(input)
    size = input.abs()
    is_zero = size == 0
    return where(is_zero, 0.0, input / where(is_zero, 1.0, size))


@public()
def isreal(input: Tensor) -> Tensor:
    """Whether the imaginary part of each element is zero; True for real dtypes.

    Raises:
        TypeError: if `input` is no tensor.

    Example:
        >>> flow.isreal(flow.tensor([1 + 0j, 1j]))
        tensor([ True, False])
    """
    check_tensors("isreal", input)
    return imag(input) == 0 if input.dtype.is_complex else input.new_ones(input.shape, dtype=dtypes.bool_)


@public()
@copied_in_place()
@out_by_copy()
def conj_physical(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The complex conjugate of each element, the same as `conj`: vmflow has no lazy conjugates.

    Raises:
        TypeError: if `input` is no tensor.
        RuntimeError: if `out` has another shape or a dtype that does not hold the result.

    Example:
        >>> flow.conj_physical(flow.tensor([1 + 2j]))
        tensor([1.-2.j])
    """
    return conj(input)


@public()
def resolve_conj(input: Tensor) -> Tensor:
    """The tensor itself, of any shape: vmflow has no lazy conjugates.

    Raises no error.

    Example:
        >>> flow.resolve_conj(flow.tensor([1, 2]))
        tensor([1, 2])
    """
    return input


@public()
def resolve_neg(input: Tensor) -> Tensor:
    """The tensor itself, of any shape: vmflow has no lazy negatives.

    Raises no error.

    Example:
        >>> flow.resolve_neg(flow.tensor([1, 2]))
        tensor([1, 2])
    """
    return input


@public()
def is_conj(input: Tensor) -> bool:
    """False for tensors of every shape: vmflow has no lazy conjugates.

    Raises no error.

    Example:
        >>> flow.is_conj(flow.conj(flow.tensor([1j])))
        False
    """
    return False


@public()
def is_neg(input: Tensor) -> bool:
    """False for tensors of every shape: vmflow has no lazy negatives.

    Raises no error.

    Example:
        >>> flow.is_neg(flow.neg(flow.tensor([1])))
        False
    """
    return False


def _set_real(self: Tensor, value: Tensor | float) -> None:
    copy_(real(self), value)


def _set_imag(self: Tensor, value: Tensor | float) -> None:
    copy_(imag(self), value)


@attribute("real", _set_real)
def real_part(self: Tensor) -> Tensor:
    """The real part of each element, a view that can be assigned to; a real tensor is returned itself.

    Example:
        >>> x = flow.tensor([1 + 2j])
        >>> x.real = 5
        >>> x
        tensor([5.+2.j])
    """
    return real(self)


@attribute("imag", _set_imag)
def imag_part(self: Tensor) -> Tensor:
    """The imaginary part of each element of a complex tensor, a view that can be assigned to.

    Raises:
        RuntimeError: if the tensor is real.

    Example:
        >>> x = flow.tensor([1 + 2j])
        >>> x.imag = 5
        >>> x
        tensor([1.+5.j])
    """
    return imag(self)
