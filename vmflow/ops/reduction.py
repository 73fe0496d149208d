"""Ops that combine the elements along dimensions: sums, means, extrema, norms, running sums and products.

Several of them have the names of Python's built-in functions, which are `builtins.any` and so on here.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from vmflow import dtypes
from vmflow import interpreter as _interpreter
from vmflow.dtypes import BOOL, COMPLEX, FLOATING, INTEGER
from vmflow.dtypes import dtype as DType
from vmflow.instructions.blob import Array, TensorMeta, meta
from vmflow.instructions.op_call import Kernel

from .arithmetic import abs, conj_if_complex, square
from .comparison import ne
from .destination import delivered, written
from .elementwise import CHEAP, result_dtype
from .selection import where
from .table import (
    Attributes,
    Inferred,
    Kinds,
    Metas,
    OpExpr,
    array_module,
    common_device,
    normalize_dim,
    normalize_dims,
)
from .transcendental import exp, log

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

Dims = int | tuple[int, ...] | list[int] | None


class ValuesIndices(NamedTuple):
    """Extrema or sorted elements, and where they were."""

    values: Tensor
    indices: Tensor


def reduced_shape(shape: tuple[int, ...], dims: tuple[int, ...], keepdim: bool) -> tuple[int, ...]:
    """What is left of `shape`."""
    if keepdim:
        return tuple([1 if axis in dims else size for axis, size in enumerate(shape)])
    return tuple([size for axis, size in enumerate(shape) if axis not in dims])


def _reduction(
    name: str,
    function: Callable[[Any, TensorMeta, DType], Callable[..., Array]],
    output_dtype: Callable[[DType], DType],
    *,
    least: int = BOOL,
    most: int = COMPLEX,
    of_nothing: bool = True,
) -> OpExpr:
    """Declare an op with attributes ``(dims, keepdim)``.

    Args:
        function: from (array module, input, output dtype) to ``f(array, axis, keepdims, out)``.
        output_dtype: from the input's dtype.
        least, most: the categories accepted.
        of_nothing: whether an empty dimension can be reduced.
    """

    def infer(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
        dims, keepdim = cast("tuple[tuple[int, ...], bool]", attributes)
        (source,) = metas
        if not least <= source.dtype.category <= most:
            raise TypeError(f"{name} is not defined for {source.dtype.name} tensors")
        if not of_nothing and 0 in [source.shape[axis] for axis in dims]:
            raise IndexError(
                f"{name}: dimensions {list(dims)} of shape {list(source.shape)} have no elements to choose from"
            )
        output = meta(reduced_shape(source.shape, dims, keepdim), output_dtype(source.dtype), source.device)
        return Inferred(
            output,
            _kernel(function(array_module(source.device), source, output.dtype), dims, keepdim, output),
            source.numel * CHEAP,
        )

    return OpExpr(name, infer)


def _kernel(function: Callable[..., Array], dims: tuple[int, ...], keepdim: bool, output: TensorMeta) -> Kernel:
    to = output.dtype.numpy

    def kernel(array: Array, out: Array | None) -> Array:
        result = function(array, dims, keepdim)
        return result if result.dtype == to else result.astype(to)

    return kernel


def _accumulated(source: DType, output: DType) -> np.dtype[Any]:
    """The dtype to accumulate in: sums of half precision would lose everything past 2048 ones."""
    return dtypes.float32.numpy if source in (dtypes.float16, dtypes.bfloat16) else output.numpy


def _widen_integers(dtype: DType) -> DType:
    return dtypes.int64 if dtype.category <= INTEGER else dtype


def _same(dtype: DType) -> DType:
    return dtype


def _to_bool(dtype: DType) -> DType:
    return dtypes.bool_


def _sum_function(xp: Any, source: TensorMeta, output: DType) -> Callable[..., Array]:
    wide = _accumulated(source.dtype, output)
    return lambda array, axis, keepdims: xp.add.reduce(array, axis, wide, None, keepdims)


def _prod_function(xp: Any, source: TensorMeta, output: DType) -> Callable[..., Array]:
    wide = _accumulated(source.dtype, output)
    return lambda array, axis, keepdims: xp.multiply.reduce(array, axis, wide, None, keepdims)


def _mean_function(xp: Any, source: TensorMeta, output: DType) -> Callable[..., Array]:
    wide = _accumulated(source.dtype, output)

    def mean(array: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
        total = xp.add.reduce(array, axis, wide, None, keepdims)
        count = math.prod([array.shape[it] for it in axis])
        return xp.true_divide(total, count, dtype=total.dtype)

    return mean


_SUM = _reduction("sum", _sum_function, _widen_integers)
_PROD = _reduction("prod", _prod_function, _widen_integers)
_MEAN = _reduction("mean", _mean_function, _same, least=FLOATING)
_AMAX = _reduction(
    "amax",
    lambda xp, source, output: lambda array, axis, keepdims: xp.maximum.reduce(array, axis, None, None, keepdims),
    _same,
    most=FLOATING,
    of_nothing=False,
)
_AMIN = _reduction(
    "amin",
    lambda xp, source, output: lambda array, axis, keepdims: xp.minimum.reduce(array, axis, None, None, keepdims),
    _same,
    most=FLOATING,
    of_nothing=False,
)
_ALL = _reduction(
    "all", lambda xp, source, output: lambda array, axis, keepdims: xp.all(array, axis, keepdims=keepdims), _to_bool
)
_ANY = _reduction(
    "any", lambda xp, source, output: lambda array, axis, keepdims: xp.any(array, axis, keepdims=keepdims), _to_bool
)


def _reduce(op: OpExpr, input: Tensor, dim: Dims, keepdim: bool, out: Tensor | None = None) -> Tensor:
    # An empty list of dimensions means all of them, as in PyTorch.
    dims = normalize_dims(op.name, dim if dim != () and dim != [] else None, input.ndim)
    if out is not None:
        return written(op, out, (input,), (dims, bool(keepdim)))
    return _interpreter.dispatch(op, (input,), (dims, bool(keepdim)))


def sum(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None, out: Tensor | None = None
) -> Tensor:
    """The sum along `dim` (None: all), as `dtype`; without one, bools and integers sum to int64."""
    if dtype is None:
        return _reduce(_SUM, input, dim, keepdim, out)
    if out is not None:
        return delivered("sum", out, (input,), lambda: sum(input, dim, keepdim, dtype=dtype))
    return _reduce(_SUM, input.to(dtype), dim, keepdim).to(dtype)


def prod(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None, out: Tensor | None = None
) -> Tensor:
    """The product along `dim` (None: all), as `dtype`; without one, bools and integers multiply to int64."""
    if dtype is None:
        return _reduce(_PROD, input, dim, keepdim, out)
    if out is not None:
        return delivered("prod", out, (input,), lambda: prod(input, dim, keepdim, dtype=dtype))
    return _reduce(_PROD, input.to(dtype), dim, keepdim).to(dtype)


def mean(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None, out: Tensor | None = None
) -> Tensor:
    """The mean along `dim` (None: all).

    Raises:
        TypeError: for bools and integers.
    """
    return _reduce(_MEAN, input if dtype is None else input.to(dtype), dim, keepdim, out)


def amax(input: Tensor, dim: Dims = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """The largest element along `dim`; equal ones share the gradient."""
    return _reduce(_AMAX, input, dim, keepdim, out)


def amin(input: Tensor, dim: Dims = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """The smallest element along `dim`; equal ones share the gradient."""
    return _reduce(_AMIN, input, dim, keepdim, out)


def all(input: Tensor, dim: Dims = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Whether all elements along `dim` are non-zero; of an empty `dim`, each for itself."""
    if dim == () or dim == []:
        return ne(input, 0, out=out)
    return _reduce(_ALL, input, dim, keepdim, out)


def any(input: Tensor, dim: Dims = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Whether an element along `dim` is non-zero; of an empty `dim`, each for itself."""
    if dim == () or dim == []:
        return ne(input, 0, out=out)
    return _reduce(_ANY, input, dim, keepdim, out)


def _spread(node: OpNode, reduced: Tensor) -> Tensor:
    """A reduced tensor expanded back over the input's shape."""
    dims, keepdim = cast("tuple[tuple[int, ...], bool]", node.attributes)
    shape = node.meta(0).shape
    if not keepdim:
        reduced = reduced.reshape(reduced_shape(shape, dims, True))
    return reduced.expand(shape)


@_SUM.gradient()
def _sum_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (_spread(node, gradient),)


@_MEAN.gradient()
def _mean_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    dims, _ = cast("tuple[tuple[int, ...], bool]", node.attributes)
    count = math.prod([node.meta(0).shape[axis] for axis in dims])
    return (_spread(node, gradient / builtins.max(count, 1)),)


@_PROD.gradient(inputs=(0,))
def _prod_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    """The product of all others, from the products of those before and those behind, which zeros do not spoil."""
    source = conj_if_complex(node.input(0))
    dims, _ = cast("tuple[tuple[int, ...], bool]", node.attributes)
    gradient = _spread(node, gradient)
    if not source.numel():
        return (gradient,)
    order = [axis for axis in range(source.ndim) if axis not in dims] + list(dims)
    moved = source.permute(order)
    flat = moved.reshape((*moved.shape[: source.ndim - len(dims)], -1))
    behind = _flipped(_product_before(_flipped(flat, -1), -1), -1)
    others = (_product_before(flat, -1) * behind).reshape(moved.shape)
    return (gradient * others.permute(sorted(range(len(order)), key=order.__getitem__)),)


def _product_before(input: Tensor, dim: int) -> Tensor:
    """The product of the elements before each one along `dim`, which is not empty."""
    from .joining import cat

    shape = list(input.shape)
    shape[dim] = 1
    return cumprod(cat([input.new_ones(shape), input.narrow(dim, 0, input.shape[dim] - 1)], dim), dim)


def _flipped(input: Tensor, dim: int) -> Tensor:
    from .joining import flip

    return flip(input, (dim,))


def _extremum_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    source = node.input(0)
    chosen = source == _spread(node, node.output(0))
    dims, _ = cast("tuple[tuple[int, ...], bool]", node.attributes)
    count = sum(chosen, dims, keepdim=True) if dims else 1
    return (where(chosen, _spread(node, gradient), 0.0) / count,)


_AMAX.gradient(inputs=(0,), outputs=(0,))(_extremum_gradient)
_AMIN.gradient(inputs=(0,), outputs=(0,))(_extremum_gradient)


# Where the extremum is


def _arg(name: str, function: str) -> OpExpr:
    def infer(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
        dim, keepdim = cast("tuple[int | None, bool]", attributes)
        (source,) = metas
        if not source.dtype.category <= FLOATING:
            raise TypeError(f"{name} is not defined for {source.dtype.name} tensors")
        dims = tuple(range(len(source.shape))) if dim is None else (dim,) if source.shape else ()
        if 0 in [source.shape[axis] for axis in dims]:
            raise IndexError(f"{name}: dimension {dim} of shape {list(source.shape)} has no elements to choose from")
        find = getattr(array_module(source.device), function)
        output = meta(reduced_shape(source.shape, dims, keepdim), dtypes.int64, source.device)
        axis = dim if source.shape else None

        def kernel(array: Array, out: Array | None) -> Array:
            return find(array, axis=axis, keepdims=keepdim)

        return Inferred(output, kernel, source.numel * CHEAP)

    return OpExpr(name, infer)


_ARGMAX = _arg("argmax", "argmax")
_ARGMIN = _arg("argmin", "argmin")


def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """The index, int64, of the largest element along `dim`, or in the flattened tensor; the first of equal ones."""
    axis = None if dim is None else normalize_dim("argmax", dim, input.ndim)
    if out is not None:
        return written(_ARGMAX, out, (input,), (axis, bool(keepdim)))
    return _interpreter.dispatch(_ARGMAX, (input,), (axis, bool(keepdim)))


def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """The index, int64, of the smallest element along `dim`, or in the flattened tensor; the first of equal ones."""
    axis = None if dim is None else normalize_dim("argmin", dim, input.ndim)
    if out is not None:
        return written(_ARGMIN, out, (input,), (axis, bool(keepdim)))
    return _interpreter.dispatch(_ARGMIN, (input,), (axis, bool(keepdim)))


def _along(input: Tensor, dim: int, keepdim: bool, indices: Tensor) -> ValuesIndices:
    from .gathering import gather

    if input.ndim == 0:
        return ValuesIndices(input.clone(), indices)
    values = gather(input, dim, indices)
    if keepdim:
        return ValuesIndices(values, indices)
    return ValuesIndices(values.squeeze(dim), indices.squeeze(dim))


def max(input: Tensor, dim: int | Tensor | None = None, keepdim: bool = False) -> Any:
    """The largest element; with `dim` a pair (values, indices); with another tensor the element-wise `maximum`."""
    return _max_or_min(input, dim, keepdim, amax, argmax, "maximum")


def min(input: Tensor, dim: int | Tensor | None = None, keepdim: bool = False) -> Any:
    """The smallest element; with `dim` a pair (values, indices); with another tensor the element-wise `minimum`."""
    return _max_or_min(input, dim, keepdim, amin, argmin, "minimum")


def _max_or_min(
    input: Tensor, dim: Any, keepdim: bool, extremum: Any, position: Any, pairwise: str
) -> Tensor | ValuesIndices:
    if dim is None:
        return cast("Tensor", extremum(input))
    if isinstance(dim, int):
        return _along(input, dim, keepdim, position(input, dim, True))
    from . import arithmetic

    return cast("Tensor", getattr(arithmetic, pairwise)(input, dim))


# Built from the above


def _half_widened(input: Tensor) -> Tensor:
    """Half precision as float32, in which squares neither overflow nor lose the small ones."""
    return input.to(dtypes.float32) if input.dtype in (dtypes.float16, dtypes.bfloat16) else input


def var(
    input: Tensor,
    dim: Dims | bool = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The variance along `dim` (None: all), divided by the count less `correction`; nan where that is not positive.

    Args:
        input: floating-point or complex; the variance of complex numbers is real.
        dim: the dimensions to reduce; a bool stands for `unbiased`, as in PyTorch.
        unbiased: PyTorch's older word for a correction of 1 or 0.
        keepdim: whether the reduced dimensions stay, with size 1.
        correction: 1 by default.

    Raises:
        TypeError: for bools and integers.
        ValueError: if both `unbiased` and `correction` are given.
    """
    if out is not None:
        return delivered("var", out, (input,), lambda: var(input, dim, unbiased, keepdim, correction=correction))
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None:
        if correction is not None:
            raise ValueError("var: give unbiased or correction, not both")
        correction = 1 if unbiased else 0
    if input.dtype.category < FLOATING:
        raise TypeError(f"var is not defined for {input.dtype.name} tensors; convert with .float() first")
    dims = normalize_dims("var", None if dim == () or dim == [] else dim, input.ndim)
    freedom = math.prod([input.shape[axis] for axis in dims]) - (1 if correction is None else correction)
    wide = _half_widened(input)
    centred = wide - mean(wide, dims, keepdim=True)
    squares = square(abs(centred) if wide.dtype.is_complex else centred)
    return (sum(squares, dims, keepdim) / builtins.max(freedom, 0)).to(input.dtype.to_real())


def std(
    input: Tensor,
    dim: Dims | bool = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The square root of `var`; where it is 0 its gradient is taken as 0."""
    if out is not None:
        return delivered("std", out, (input,), lambda: std(input, dim, unbiased, keepdim, correction=correction))
    spread = var(_half_widened(input), dim, unbiased, keepdim, correction=correction)
    return _root(spread, 2).to(input.dtype.to_real())


def _root(total: Tensor, p: float) -> Tensor:
    """The `p`-th root of a sum of powers.

    Its derivative at 0 is infinite; times that of the sum, which is 0, it would be nan.
    """
    nothing = total == 0
    return where(nothing, 0.0, where(nothing, 1.0, total) ** (1.0 / p))


def var_mean(
    input: Tensor,
    dim: Dims | bool = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """`var` and `mean`."""
    average = mean(input, None if isinstance(dim, bool) else dim, keepdim)
    return var(input, dim, unbiased, keepdim, correction=correction), average


def std_mean(
    input: Tensor,
    dim: Dims | bool = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """`std` and `mean`."""
    average = mean(input, None if isinstance(dim, bool) else dim, keepdim)
    return std(input, dim, unbiased, keepdim, correction=correction), average


def norm(
    input: Tensor,
    p: float | str | None = "fro",
    dim: Dims = None,
    keepdim: bool = False,
    dtype: DType | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The vector norm along `dim`: ``sum(|x|**p) ** (1/p)``; `p` may be inf, -inf, 0, or "fro" for 2.

    Where the norm is 0 its gradient is taken as 0.

    Raises:
        TypeError: for bools and integers.
        ValueError: for another string as `p`.
    """
    if out is not None:
        return delivered("norm", out, (input,), lambda: norm(input, p, dim, keepdim, dtype))
    if dtype is not None:
        input = input.to(dtype)
    if p is None or p == "fro":
        p = 2.0
    if isinstance(p, str):
        raise ValueError(f"norm: p must be a number or 'fro', not {p!r}")
    if input.dtype.category < FLOATING:
        raise TypeError(f"norm is not defined for {input.dtype.name} tensors; convert with .float() first")
    size = _half_widened(input).abs()
    if p == math.inf:
        result = amax(size, dim, keepdim)
    elif p == -math.inf:
        result = amin(size, dim, keepdim)
    elif p == 0:
        result = sum(size != 0, dim, keepdim, dtype=size.dtype)
    elif p == 1:
        result = sum(size, dim, keepdim)
    else:
        result = _root(sum(square(size) if p == 2 else size**p, dim, keepdim), p)
    return result.to(input.dtype.to_real())


def count_nonzero(input: Tensor, dim: Dims = None) -> Tensor:
    """How many elements along `dim` (None: all) are not zero, int64."""
    return sum(input != 0, dim)


class MinMax(NamedTuple):
    """The smallest and the largest element."""

    min: Tensor
    max: Tensor


def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> MinMax:
    """`amin` and `amax`."""
    return MinMax(amin(input, dim, keepdim), amax(input, dim, keepdim))


def nansum(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None, out: Tensor | None = None
) -> Tensor:
    """The sum of what is not nan."""
    if out is not None:
        return delivered("nansum", out, (input,), lambda: nansum(input, dim, keepdim, dtype=dtype))
    return sum(where(input.isnan(), 0, input), dim, keepdim, dtype=dtype)


def nanmean(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None, out: Tensor | None = None
) -> Tensor:
    """The mean of what is not nan."""
    if out is not None:
        return delivered("nanmean", out, (input,), lambda: nanmean(input, dim, keepdim, dtype=dtype))
    return nansum(input, dim, keepdim, dtype=dtype) / sum(~input.isnan(), dim, keepdim)


def logsumexp(
    input: Tensor, dim: int | tuple[int, ...] | list[int], keepdim: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """``log(sum(exp(input)))`` along `dim`, without overflow; -inf of nothing.

    Raises:
        TypeError: for complex tensors.
    """
    if out is not None:
        return delivered("logsumexp", out, (input,), lambda: logsumexp(input, dim, keepdim))
    if input.dtype.is_complex:
        raise TypeError(f"logsumexp is not defined for {input.dtype.name} tensors")
    dims = normalize_dims("logsumexp", dim if dim != () and dim != [] else None, input.ndim)
    wide = input if input.dtype.category == FLOATING else input.to(dtypes.get_default_dtype())
    wide = _half_widened(wide)
    if 0 in [input.shape[axis] for axis in dims]:
        result = log(sum(exp(wide), dims, keepdim=True))
    else:
        largest = amax(wide.detach(), dims, keepdim=True)
        # inf - inf would be nan; the limit is the infinity itself.
        largest = where(largest.isfinite(), largest, 0.0)
        result = log(sum(exp(wide - largest), dims, keepdim=True)) + largest
    if not keepdim:
        result = result.reshape(reduced_shape(input.shape, dims, False))
    return result.to(input.dtype) if input.dtype.category == FLOATING else result


# Running sums and products


def _running(name: str, function: str) -> OpExpr:
    def infer(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
        (dim,) = cast("tuple[int]", attributes)
        (source,) = metas
        output = meta(source.shape, _widen_integers(source.dtype), source.device)
        accumulate = getattr(array_module(source.device), function).accumulate
        to = output.dtype.numpy
        wide = _accumulated(source.dtype, output.dtype)

        def kernel(array: Array, out: Array | None) -> Array:
            if array.ndim == 0:
                return array.astype(to)
            return accumulate(array, dim, wide, out if wide == to else None).astype(to, copy=False)

        return Inferred(output, kernel, source.numel * CHEAP * 4)

    return OpExpr(name, infer)


_CUMSUM = _running("cumsum", "add")
_CUMPROD = _running("cumprod", "multiply")


def cumsum(input: Tensor, dim: int, *, dtype: DType | None = None, out: Tensor | None = None) -> Tensor:
    """The running sum along `dim`, as `dtype`; without one, of bools and integers int64."""
    axis = normalize_dim("cumsum", dim, input.ndim)
    if out is not None and dtype is None:
        return written(_CUMSUM, out, (input,), (axis,))
    if out is not None:
        return delivered("cumsum", out, (input,), lambda: cumsum(input, dim, dtype=dtype))
    result = _interpreter.dispatch(_CUMSUM, (input if dtype is None else input.to(dtype),), (axis,))
    return result if dtype is None else result.to(dtype)


def cumprod(input: Tensor, dim: int, *, dtype: DType | None = None, out: Tensor | None = None) -> Tensor:
    """The running product along `dim`, as `dtype`; without one, of bools and integers int64."""
    axis = normalize_dim("cumprod", dim, input.ndim)
    if out is not None and dtype is None:
        return written(_CUMPROD, out, (input,), (axis,))
    if out is not None:
        return delivered("cumprod", out, (input,), lambda: cumprod(input, dim, dtype=dtype))
    result = _interpreter.dispatch(_CUMPROD, (input if dtype is None else input.to(dtype),), (axis,))
    return result if dtype is None else result.to(dtype)


@_CUMSUM.gradient()
def _cumsum_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    (dim,) = cast("tuple[int]", node.attributes)
    if gradient.ndim == 0:
        return (gradient,)
    return (_flipped(cumsum(_flipped(gradient, dim), dim), dim),)


@_CUMPROD.gradient(inputs=(0,))
def _cumprod_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    """Dividing the products by the element would be shorter, and nan where there are zeros.

    The gradient by x[j] is the product of all before j, times the sum over k >= j of g[k] x[j+1] ... x[k]; that sum
    is the solution of a recurrence.
    """
    (dim,) = cast("tuple[int]", node.attributes)
    if gradient.ndim == 0 or gradient.numel() == 0:
        return (gradient,)
    source = conj_if_complex(node.input(0))
    return (_product_before(source, dim) * _recurrence(source, gradient, dim),)


def _infer_recurrence(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (dim,) = cast("tuple[int]", attributes)
    _, terms = metas
    device = common_device("recurrence", metas)
    output = meta(terms.shape, result_dtype(metas), device)
    xp = array_module(device)
    wide = _accumulated(output.dtype, output.dtype)
    length = terms.shape[dim]

    def kernel(factor: Array, term: Array, out: Array | None) -> Array:
        # Doubling: after each round `total` covers twice as many terms, and `product` the factors between.  It takes
        # log2(length) passes, where following the recurrence would take a Python step for each element.
        total = xp.moveaxis(term.astype(wide, order="C"), dim, -1)
        product = xp.moveaxis(factor.astype(wide, order="C"), dim, -1)[..., 1:]
        reach = 1
        while reach < length:
            total[..., :-reach] += product * total[..., reach:]
            product = product[..., :-reach] * product[..., reach:]
            reach *= 2
        return xp.ascontiguousarray(xp.moveaxis(total, -1, dim)).astype(output.dtype.numpy, copy=False)

    return Inferred(output, kernel, output.numel * CHEAP * 8 * builtins.max(length, 2).bit_length())


_RECURRENCE = OpExpr("recurrence", _infer_recurrence)


@_RECURRENCE.gradient(inputs=(0,), outputs=(0,))
def _recurrence_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """The same recurrence from the other end."""
    from .joining import cat, roll

    (dim,) = cast("tuple[int]", node.attributes)
    factors = conj_if_complex(node.input(0))
    terms = _flipped(_recurrence(roll(_flipped(factors, dim), 1, dim), _flipped(gradient, dim), dim), dim)
    by_factors = None
    if node.needs[0]:
        first = terms.narrow(dim, 0, 1)
        before = cat([first.new_zeros(first.shape), terms.narrow(dim, 0, terms.shape[dim] - 1)], dim)
        by_factors = before * conj_if_complex(node.output(0))
    return by_factors, terms


def _recurrence(factors: Tensor, terms: Tensor, dim: int) -> Tensor:
    """The s with ``s[j] = terms[j] + factors[j + 1] * s[j + 1]`` along `dim`, and nothing behind the end."""
    return _interpreter.dispatch(_RECURRENCE, (factors, terms), (dim,))
