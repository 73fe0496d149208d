"""Ops that combine the elements along dimensions: sums, means, extrema, counts."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from vmflow import dtypes
from vmflow import interpreter as _interpreter
from vmflow.dtypes import BOOL, COMPLEX, FLOATING, INTEGER
from vmflow.dtypes import dtype as DType
from vmflow.instructions.blob import Array, TensorMeta, meta
from vmflow.instructions.op_call import Kernel

from .elementwise import CHEAP, conj_if_complex, exp, log, where
from .table import Attributes, Inferred, Kinds, Metas, OpExpr, array_module, normalize_dim, normalize_dims

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensor import Tensor

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
        if not of_nothing and any(source.shape[axis] == 0 for axis in dims):
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


def _wide(source: TensorMeta) -> Any:
    """The dtype to accumulate in: sums of half precision lose everything past 2048 ones."""
    return dtypes.float32.numpy if source.dtype in (dtypes.float16, dtypes.bfloat16) else None


def _widen_integers(dtype: DType) -> DType:
    return dtypes.int64 if dtype.category <= INTEGER else dtype


def _same(dtype: DType) -> DType:
    return dtype


def _to_bool(dtype: DType) -> DType:
    return dtypes.bool_


def _sum_function(xp: Any, source: TensorMeta, output: DType) -> Callable[..., Array]:
    wide = _wide(source) or (output.numpy if source.dtype.category <= INTEGER else None)
    return lambda array, axis, keepdims: xp.add.reduce(array, axis, wide, None, keepdims)


def _prod_function(xp: Any, source: TensorMeta, output: DType) -> Callable[..., Array]:
    wide = _wide(source) or (output.numpy if source.dtype.category <= INTEGER else None)
    return lambda array, axis, keepdims: xp.multiply.reduce(array, axis, wide, None, keepdims)


def _mean_function(xp: Any, source: TensorMeta, output: DType) -> Callable[..., Array]:
    wide = _wide(source)

    def mean(array: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
        total = xp.add.reduce(array, axis, wide, None, keepdims)
        count = prod([array.shape[it] for it in axis])
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


def _reduce(op: OpExpr, input: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    # An empty list of dimensions means all of them, as in PyTorch.
    dims = normalize_dims(op.name, dim if dim != () and dim != [] else None, input.ndim)
    return _interpreter.dispatch(op, (input,), (dims, bool(keepdim)))


def sum(input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """The sum along `dim` (None: all); bools and integers sum to int64."""
    return _reduce(_SUM, input if dtype is None else input.to(dtype), dim, keepdim)


def prod_(input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """The product along `dim` (None: all); bools and integers multiply to int64."""
    return _reduce(_PROD, input if dtype is None else input.to(dtype), dim, keepdim)


def mean(input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """The mean along `dim` (None: all).

    Raises:
        TypeError: for bools and integers.
    """
    return _reduce(_MEAN, input if dtype is None else input.to(dtype), dim, keepdim)


def amax(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """The largest element along `dim`; equal ones share the gradient."""
    return _reduce(_AMAX, input, dim, keepdim)


def amin(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """The smallest element along `dim`; equal ones share the gradient."""
    return _reduce(_AMIN, input, dim, keepdim)


def all(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Whether all elements along `dim` are non-zero."""
    return _reduce(_ALL, input, dim, keepdim)


def any(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Whether an element along `dim` is non-zero."""
    return _reduce(_ANY, input, dim, keepdim)


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
    count = prod([node.meta(0).shape[axis] for axis in dims])
    return (_spread(node, gradient / max(count, 1)),)


@_PROD.gradient(inputs=(0,))
def _prod_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    """The product of all others: exclusive products from both sides, which zeros do not spoil."""
    source = node.input(0)
    dims, _ = cast("tuple[tuple[int, ...], bool]", node.attributes)
    rest = [axis for axis in range(source.ndim) if axis not in dims]
    moved = source.permute(*rest, *dims)
    flat = moved.reshape(*[source.shape[axis] for axis in rest], -1)
    ones = flat.narrow(-1, 0, 1) * 0 + 1
    from .joining import cat

    before = cumprod(cat([ones, flat.narrow(-1, 0, flat.shape[-1] - 1)], -1), -1)
    behind = flip_last(cumprod(cat([ones, flip_last(flat).narrow(-1, 0, flat.shape[-1] - 1)], -1), -1))
    others = conj_if_complex(before * behind).reshape(moved.shape)
    order = [*rest, *dims]
    return (_spread(node, gradient) * others.permute(sorted(range(len(order)), key=order.__getitem__)),)


def flip_last(input: Tensor) -> Tensor:
    """The last dimension reversed."""
    from .joining import flip

    return flip(input, (-1,))


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
        if prod([source.shape[axis] for axis in dims]) == 0:
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


def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index, int64, of the largest element along `dim`, or in the flattened tensor; the first of equal ones."""
    axis = None if dim is None else normalize_dim("argmax", dim, input.ndim)
    return _interpreter.dispatch(_ARGMAX, (input,), (axis, keepdim))


def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index, int64, of the smallest element along `dim`, or in the flattened tensor; the first of equal ones."""
    axis = None if dim is None else normalize_dim("argmin", dim, input.ndim)
    return _interpreter.dispatch(_ARGMIN, (input,), (axis, keepdim))


def _along(input: Tensor, dim: int, keepdim: bool, indices: Tensor) -> ValuesIndices:
    from .indexing import gather

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
    from . import elementwise

    return cast("Tensor", getattr(elementwise, pairwise)(input, dim))


# Built from the above


def var(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float = 1,
) -> Tensor:
    """The variance along `dim`, divided by the count less `correction` (`unbiased=False` means 0)."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None:
        correction = 1 if unbiased else 0
    dims = normalize_dims("var", dim, input.ndim)
    count = prod([input.shape[axis] for axis in dims])
    centred = input - mean(input, dims or None, keepdim=True)
    squares = (centred * conj_if_complex(centred)) if input.dtype.is_complex else centred * centred
    total = sum(squares, dims or None, keepdim)
    freedom = count - correction
    return total / freedom if freedom > 0 else total * float("nan")


def std(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float = 1,
) -> Tensor:
    """The square root of `var`."""
    return var(input, dim, unbiased, keepdim, correction=correction).sqrt()


def norm(
    input: Tensor, p: float | str | None = "fro", dim: Dims = None, keepdim: bool = False, dtype: DType | None = None
) -> Tensor:
    """The vector norm along `dim`: ``sum(|x|**p) ** (1/p)``; `p` may be inf, -inf, 0, or "fro" for 2."""
    if dtype is not None:
        input = input.to(dtype)
    if p is None or p == "fro":
        p = 2.0
    if isinstance(p, str):
        raise ValueError(f"norm: p must be a number or 'fro', not {p!r}")
    size = input.abs()
    if p == float("inf"):
        return amax(size, dim, keepdim)
    if p == float("-inf"):
        return amin(size, dim, keepdim)
    if p == 0:
        return sum((size != 0).to(size.dtype), dim, keepdim)
    if p == 1:
        return sum(size, dim, keepdim)
    if p == 2:
        return sum(size * size, dim, keepdim).sqrt()
    return sum(size**p, dim, keepdim) ** (1.0 / p)


def logsumexp(input: Tensor, dim: int | tuple[int, ...], keepdim: bool = False) -> Tensor:
    """``log(sum(exp(input)))`` along `dim`, without overflow."""
    dims = normalize_dims("logsumexp", dim, input.ndim)
    largest = amax(input, dims, keepdim=True).detach()
    # inf - inf would be nan; the limit is the infinity itself.
    largest = where(largest.isfinite(), largest, 0.0)
    result = log(sum(exp(input - largest), dims, keepdim=True)) + largest
    return result if keepdim else result.reshape(reduced_shape(input.shape, dims, False))


# Running sums and products


def _running(name: str, function: str) -> OpExpr:
    def infer(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
        (dim,) = cast("tuple[int]", attributes)
        (source,) = metas
        output = meta(source.shape, _widen_integers(source.dtype), source.device)
        accumulate = getattr(array_module(source.device), function)
        to = output.dtype.numpy
        wide = _wide(source) or to

        def kernel(array: Array, out: Array | None) -> Array:
            if array.ndim == 0:
                return array.astype(to)
            return accumulate.accumulate(array, dim, wide, None).astype(to, copy=False)

        return Inferred(output, kernel, source.numel * CHEAP * 4)

    return OpExpr(name, infer)


_CUMSUM = _running("cumsum", "add")
_CUMPROD = _running("cumprod", "multiply")


def cumsum(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """The running sum along `dim`."""
    if dtype is not None:
        input = input.to(dtype)
    return _interpreter.dispatch(_CUMSUM, (input,), (normalize_dim("cumsum", dim, input.ndim),))


def cumprod(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """The running product along `dim`."""
    if dtype is not None:
        input = input.to(dtype)
    return _interpreter.dispatch(_CUMPROD, (input,), (normalize_dim("cumprod", dim, input.ndim),))


@_CUMSUM.gradient()
def _cumsum_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    from .joining import flip

    (dim,) = cast("tuple[int]", node.attributes)
    if gradient.ndim == 0:
        return (gradient,)
    return (flip(cumsum(flip(gradient, (dim,)), dim), (dim,)),)


@_CUMPROD.gradient(inputs=(0,), outputs=(0,))
def _cumprod_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    """Exact where no element is zero; nan or inf otherwise."""
    from .joining import flip

    (dim,) = cast("tuple[int]", node.attributes)
    if gradient.ndim == 0:
        return (gradient,)
    weighted = flip(cumsum(flip(gradient * conj_if_complex(node.output(0)), (dim,)), dim), (dim,))
    return (weighted / conj_if_complex(node.input(0)),)
