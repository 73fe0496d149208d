"""Discrete Fourier transforms: complex to complex, real to half a spectrum, and half a spectrum to real.

These three are ops, over any number of dimensions.  They are linear, so that one of the three, in the opposite
direction, computes the gradient of each.  Half a spectrum of a real signal omits the
elements that mirror others along the last transformed dimension.  A fourth op, for gradients, scales the elements of
half a spectrum that stand for two elements of the whole spectrum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from vmflow import dtypes, interpreter as _interpreter
from vmflow.arguments import whole_number
from vmflow.dtypes import COMPLEX, FLOATING, dtype as DType
from vmflow.instructions.blob import TensorMeta, meta
from vmflow.operands import check_tensors
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.destination import delivered
from vmflow.ops.elementwise.arithmetic import conj
from vmflow.ops.elementwise.inference import CHEAP
from vmflow.ops.shape.joining import cat, roll
from vmflow.ops.shape.view import sliced
from vmflow.ops.table import (
    Attributes,
    Count,
    Dim,
    Form,
    Inferred,
    Kinds,
    Metas,
    OpExpr,
    normalize_dim,
)

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

Dims: TypeAlias = tuple[int, ...]
_Along: TypeAlias = tuple[Dim, ...]
_Norm: TypeAlias = Literal["forward", "backward", "ortho"]

# For each normalization of a transform, the one of its adjoint: the same factor in the opposite direction.
_OPPOSITE: Final = {"backward": "forward", "ortho": "ortho", "forward": "backward"}

_TO_COMPLEX: Final = {dtypes.float32: dtypes.complex64, dtypes.float64: dtypes.complex128}


def _cost(source: TensorMeta, dims: Dims) -> float:
    """Estimate the nanoseconds of a transform of `source` along `dims`."""
    length = math.prod([source.shape[dim] for dim in dims])
    return 2.0 * source.numel * (1 + math.log2(max(length, 1))) + 20_000


def _declared(
    name: str,
    lengths: Callable[[tuple[int, ...], Attributes], tuple[int, ...]],
    result: Callable[[DType], DType],
    options: Any,
) -> OpExpr:
    """Declare the op of a Fourier transform, with attributes of the type `options`, the dimensions first.

    `lengths` gives the result's shape for the input's shape and the attributes, `result` the result's dtype for the
    input's."""

    def infer(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
        (source,) = metas
        dims = cast(Dims, attributes[0])
        output = meta(lengths(source.shape, attributes), result(source.dtype), source.device)
        return Inferred(output, _cost(source if source.numel > output.numel else output, dims))

    return OpExpr(name, infer, Form(1, options), "fourier")


def _with_last(shape: tuple[int, ...], dims: Dims, length: int) -> tuple[int, ...]:
    """Return `shape` with `length` as size of the last dimension in `dims`, along which half spectra are halved."""
    return (*shape[: dims[-1]], length, *shape[dims[-1] + 1 :])


# Attributes: (dimensions, whether inverse, norm)


_FFT = _declared("fft", lambda shape, attributes: shape, lambda dtype: dtype, tuple[_Along, bool, _Norm])


@_FFT.gradient()
def _fft_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    dims, inverse, norm = cast("tuple[Dims, bool, str]", node.attributes)
    return (_interpreter.dispatch(_FFT, (_complex(gradient),), (dims, not inverse, _OPPOSITE[norm])),)


# Attributes: (dimensions, norm)


def _half_lengths(shape: tuple[int, ...], attributes: Attributes) -> tuple[int, ...]:
    dims = cast(Dims, attributes[0])
    return _with_last(shape, dims, shape[dims[-1]] // 2 + 1)


_RFFT = _declared("rfft", _half_lengths, lambda dtype: _TO_COMPLEX[dtype], tuple[_Along, _Norm])


@_RFFT.gradient()
def _rfft_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    dims, norm = cast("tuple[Dims, str]", node.attributes)
    length = node.meta(0).shape[dims[-1]]
    halved = _weighted(_complex(gradient), dims[-1], length, 0.5)
    return (_interpreter.dispatch(_IRFFT, (halved,), (dims, length, _OPPOSITE[norm])),)


# Attributes: (dimensions, the result's size along the last of these dimensions, norm)


def _whole_lengths(shape: tuple[int, ...], attributes: Attributes) -> tuple[int, ...]:
    dims, length, _ = cast("tuple[Dims, int, str]", attributes)
    return _with_last(shape, dims, length)


_IRFFT = _declared("irfft", _whole_lengths, lambda dtype: dtype.to_real(), tuple[_Along, Count, _Norm])


@_IRFFT.gradient()
def _irfft_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    dims, length, norm = cast("tuple[Dims, int, str]", node.attributes)
    half = _interpreter.dispatch(_RFFT, (gradient,), (dims, _OPPOSITE[norm]))
    return (_weighted(half, dims[-1], length, 2.0),)


def _infer_weighted(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (source,) = metas
    dim, length, _ = cast("tuple[int, int, float]", attributes)
    if source.dtype.category != COMPLEX:
        raise TypeError(f"weighted_half is not defined for {source.dtype.name} tensors")
    if source.shape[dim] != length // 2 + 1:
        raise ValueError(f"weighted_half: {list(source.shape)} is not half a spectrum of {length} along {dim}")
    return Inferred(source, source.numel * CHEAP * 2)


# Attributes: (the halved dimension, its size in the whole spectrum, the factor)
_WEIGHTED = OpExpr("weighted_half", _infer_weighted, Form(1, tuple[Dim, Count, float]), "fourier")


@_WEIGHTED.gradient()
def _weighted_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (_interpreter.dispatch(_WEIGHTED, (gradient,), node.attributes),)


def _weighted(half: Tensor, dim: int, length: int, weight: float) -> Tensor:
    """Multiply by `weight` the elements of half a spectrum that stand for two elements of the whole spectrum.

    `length` is the whole spectrum's size along `dim`."""
    return _interpreter.dispatch(_WEIGHTED, (half,), (dim, length, weight))


# Operands


def _complex(input: Tensor) -> Tensor:
    return input if input.dtype.is_complex else input.to(_TO_COMPLEX[input.dtype])


def _operand(name: str, input: Tensor, real: bool) -> Tensor:
    """Convert the input of the transform `name` to floating-point: real numbers if `real`, else complex numbers.

    Raises:
        TypeError: for no tensor, for complex numbers if `real`, and for half precision, which has no transforms.
    """
    check_tensors(name, input)
    if input.dtype.category == COMPLEX:
        if real:
            raise TypeError(f"{name}: expected a real tensor, got {input.dtype.name}; use fft for complex ones")
        return input
    if input.dtype.category < FLOATING:
        input = input.to(dtypes.get_default_dtype())
    if input.dtype not in _TO_COMPLEX:
        raise TypeError(f"{name}: {input.dtype.name} has no Fourier transform; use .float()")
    return input if real else _complex(input)


def _norm(name: str, norm: str | None) -> str:
    chosen = "backward" if norm is None else norm
    if chosen not in _OPPOSITE:
        raise ValueError(f"{name}: norm must be 'forward', 'backward' or 'ortho', not {norm!r}")
    return chosen


def length_of(name: str, length: Any) -> int:
    """Convert an argument that is a length to an int; raise TypeError if it is no integer."""
    return whole_number(name, "a length", length)


def _plan(
    name: str, input: Tensor, s: Sequence[int] | int | None, dim: Sequence[int] | int | None
) -> tuple[Dims, list[int | None]]:
    """Return the dimensions to transform, counted from the front, and their lengths; None keeps the length of `input`.

    `s`, where -1 also keeps a length, and `dim` are the arguments of the public function `name`."""
    sizes = None if s is None else list(s) if isinstance(s, Sequence) else [s]
    if dim is None:
        count = input.ndim if sizes is None else len(sizes)
        if count > input.ndim:
            raise ValueError(f"{name}: {count} lengths for a tensor of {input.ndim} dimensions")
        dims = tuple(range(input.ndim - count, input.ndim))
    else:
        listed_dims = list(dim) if isinstance(dim, Sequence) else [dim]
        if input.ndim == 0 and listed_dims:
            raise IndexError(f"{name}: a 0-d tensor has no dimension to transform")
        dims = tuple([normalize_dim(name, listed_dim, input.ndim) for listed_dim in listed_dims])
        if len(set(dims)) != len(dims):
            raise ValueError(f"{name}: dim {tuple(listed_dims)} names one dimension twice")
    if sizes is None:
        return dims, [None] * len(dims)
    if len(sizes) != len(dims):
        raise ValueError(f"{name}: {len(sizes)} lengths {sizes} for {len(dims)} dimensions {dims}")
    lengths = [length_of(name, length) for length in sizes]
    return dims, [None if length == -1 else length for length in lengths]


def _fitted(name: str, input: Tensor, dims: Dims, lengths: Sequence[int | None]) -> Tensor:
    """Cut the dimensions `dims` of `input` to `lengths`, or pad them with zeros at the end; None keeps a length.

    Raises:
        ValueError: for a length below 1, also a kept one.
    """
    for dim, wanted in zip(dims, lengths, strict=True):
        have = input.shape[dim]
        length = have if wanted is None else wanted
        if length < 1:
            raise ValueError(f"{name}: expected at least one element along dimension {dim}, got {length}")
        if length < have:
            input = sliced(input, dim, 0, length)
        elif length > have:
            missing = (*input.shape[:dim], length - have, *input.shape[dim + 1 :])
            input = cat([input, input.new_zeros(missing)], dim)
    return input


def _into_out(compute: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Add an argument `out`, after `norm`, to a transform function: the tensor to write the result into, or None."""

    def call(
        name: str,
        input: Tensor,
        s: Sequence[int] | int | None,
        dim: Sequence[int] | int | None,
        norm: str | None,
        out: Tensor | None,
        **options: bool,
    ) -> Tensor:
        if out is None:
            return compute(name, input, s, dim, norm, **options)
        return delivered(name, out, (input,), lambda: compute(name, input, s, dim, norm, **options))

    return call


def _prepared(
    name: str,
    input: Tensor,
    s: Sequence[int] | int | None,
    dim: Sequence[int] | int | None,
    norm: str | None,
    real: bool,
) -> tuple[Tensor, Dims, Sequence[int | None], str]:
    """Check and convert the arguments of the transform `name`.

    Returns the input in a dtype that has transforms, the dimensions, their lengths (None for unchanged), and the
    normalization."""
    factor = _norm(name, norm)
    operand = _operand(name, input, real=real)
    dims, lengths = _plan(name, operand, s, dim)
    return operand, dims, lengths, factor


@_into_out
@autocast_as_op
def transformed(
    name: str,
    input: Tensor,
    s: Sequence[int] | int | None,
    dim: Sequence[int] | int | None,
    norm: str | None,
    *,
    inverse: bool,
) -> Tensor:
    """Compute a complex Fourier transform over some dimensions; real input is converted to complex numbers.

    Args:
        name: of the public function.
        input: of any dtype except half precision.
        s: the lengths to which the dimensions are cut, or padded with zeros, before the transform; None keeps all, -1
            keeps one.
        dim: the dimensions; by default as many of the last ones as `s` has lengths, or all.
        norm: the direction that divides by the number of elements: "forward", "backward" (the default), or "ortho" if
            both divide by its root.
        inverse: whether this is the inverse transform.
    """
    operand, dims, lengths, factor = _prepared(name, input, s, dim, norm, False)
    operand = _fitted(name, operand, dims, lengths)
    return _interpreter.dispatch(_FFT, (operand,), (dims, inverse, factor)) if dims else operand.clone()


@_into_out
@autocast_as_op
def halved(
    name: str,
    input: Tensor,
    s: Sequence[int] | int | None,
    dim: Sequence[int] | int | None,
    norm: str | None,
    *,
    hermitian: bool = False,
) -> Tensor:
    """Compute the Fourier transform of a real signal, without the second half along the last dimension in `dim`.

    Args:
        name, input, s, dim, norm: as of `transformed`; `input` is real.
        hermitian: whether to compute the inverse transform instead, as `ihfft` does.
    """
    operand, dims, lengths, factor = _prepared(name, input, s, dim, norm, True)
    if not dims:
        raise ValueError(f"{name}: expected at least one dimension to transform")
    operand = _fitted(name, operand, dims, lengths)
    half = _interpreter.dispatch(_RFFT, (operand,), (dims, _OPPOSITE[factor] if hermitian else factor))
    return conj(half) if hermitian else half


@_into_out
@autocast_as_op
def completed(
    name: str,
    input: Tensor,
    s: Sequence[int] | int | None,
    dim: Sequence[int] | int | None,
    norm: str | None,
    *,
    hermitian: bool = False,
) -> Tensor:
    """Compute the real signal whose half spectrum is `input`: the inverse of `halved`.

    Args:
        name, input, dim, norm: as of `transformed`.
        s: the lengths of the result; by default, or for -1, those of `input`, but ``2 * (length - 1)``, an even number,
            for the last dimension in `dim`.
        hermitian: whether to compute the forward transform instead, as `hfft` does.
    """
    operand, dims, lengths, factor = _prepared(name, input, s, dim, norm, False)
    if not dims:
        raise ValueError(f"{name}: expected at least one dimension to transform")
    last = lengths[-1]
    whole = 2 * (operand.shape[dims[-1]] - 1) if last is None else last
    if whole < 1:
        raise ValueError(f"{name}: expected at least one element along dimension {dims[-1]}, got {whole}")
    operand = _fitted(name, operand, dims, [*lengths[:-1], whole // 2 + 1])
    if hermitian:
        operand, factor = conj(operand), _OPPOSITE[factor]
    return _interpreter.dispatch(_IRFFT, (operand,), (dims, whole, factor))


# Shifted spectra


def _shift_dims(name: str, input: Tensor, dim: Sequence[int] | int | None) -> Dims:
    check_tensors(name, input)
    return _plan(name, input, None, dim)[0]


def fftshift(input: Tensor, dim: Sequence[int] | int | None = None) -> Tensor:
    """The spectrum rolled so that frequency 0 is in the middle of each dimension in `dim`, by default of all.

    Raises:
        TypeError: if `input` is no tensor, or a dimension no integer.
        ValueError: if `dim` has a dimension twice.
        IndexError: if a dimension does not exist.

    Example:
        >>> flow.fft.fftshift(flow.tensor([0, 1, -2, -1]))
        tensor([-2, -1,  0,  1])
    """
    dims = _shift_dims("fftshift", input, dim)
    return roll(input, tuple([input.shape[axis] // 2 for axis in dims]), dims) if dims else input.clone()


def ifftshift(input: Tensor, dim: Sequence[int] | int | None = None) -> Tensor:
    """The inverse of `fftshift`, of the same shape.

    Raises:
        TypeError, ValueError, IndexError: as `fftshift`.

    Example:
        >>> flow.fft.ifftshift(flow.tensor([-2, -1, 0, 1]))
        tensor([ 0,  1, -2, -1])
    """
    dims = _shift_dims("ifftshift", input, dim)
    return roll(input, tuple([-(input.shape[axis] // 2) for axis in dims]), dims) if dims else input.clone()
