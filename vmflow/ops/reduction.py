"""Ops that combine the elements along dimensions: sums, products, means and extrema.

Several of them have the names of Python's built-in functions, which are `builtins.any` and so on here.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from vmflow import dtypes
from vmflow import interpreter as _interpreter
from vmflow.dtypes import BOOL, COMPLEX, FLOATING
from vmflow.dtypes import dtype as DType
from vmflow.instructions.blob import Array, TensorMeta, meta
from vmflow.instructions.op_call import Kernel
from vmflow.kernels import intra_op
from vmflow.kernels.native.rows import RowReduction
from vmflow.kernels.numpy import sums

from .arithmetic import conj_if_complex
from .comparison import ne
from .destination import delivered, written
from .elementwise import CHEAP
from .running_sums import accumulated, flipped, product_before, widen_integers
from .selection import where
from .table import Attributes, Dim, Form, Inferred, Kinds, Metas, OpExpr, array_module, computed_by, normalize_dims

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

Dims = int | tuple[int, ...] | list[int] | None


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
    by_products: bool = False,
    in_c: str | None = None,
    finish: Callable[[Array], Array] | None = None,
) -> OpExpr:
    """Declare an op with attributes ``(dims, keepdim)``.

    Args:
        function: from (array module, input, output dtype) to ``f(array, axis, keepdims, out)``.
        output_dtype: from the input's dtype.
        least, most: the categories accepted.
        of_nothing: whether an empty dimension can be reduced.
        by_products: whether floating-point numbers are left to BLAS, which has threads of its own, and whose results
            depend on how many rows it is given.
        in_c: what finds the same of float32 over the last dimensions, see `RowReduction`; but for `finish`, which takes
            what it has found.
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
        reduces = function(array_module(source.device), source, output.dtype)
        whole = by_products and source.dtype.category == FLOATING
        kernel = _kernel(reduces, dims, keepdim, output) if whole else _by_rows(reduces, dims, keepdim, source, output)
        if in_c is not None and source.dtype is dtypes.float32 and source.numel and _are_last(dims, source):
            kernel = _in_c(RowReduction(in_c), finish, output, kernel)
        return computed_by(output, kernel, source.numel * CHEAP)

    return OpExpr(name, infer, Form(1, tuple[tuple[Dim, ...], bool]))


def _kernel(function: Callable[..., Array], dims: tuple[int, ...], keepdim: bool, output: TensorMeta) -> Kernel:
    to = output.dtype.numpy

    def kernel(array: Array, out: Array | None) -> Array:
        result = function(array, dims, keepdim)
        return result if result.dtype == to else result.astype(to)

    return kernel


def _by_rows(
    function: Callable[..., Array], dims: tuple[int, ...], keepdim: bool, source: TensorMeta, output: TensorMeta
) -> Kernel:
    """The same, of several threads where much is reduced to many over the last dimensions."""
    plain = _kernel(function, dims, keepdim, output)
    if (
        not _are_last(dims, source)
        or output.numel < 2
        or source.numel < 4 * intra_op.LEAST
        or source.device.type != "cpu"
    ):
        return plain

    def kernel(array: Array, out: Array | None) -> Array:
        if not array.flags.c_contiguous:
            return plain(array, out)
        matrix = array.reshape(output.numel, -1)
        found = np.empty(output.numel, output.dtype.numpy)

        def part(start: int, stop: int) -> None:
            np.copyto(found[start:stop], function(matrix[start:stop], (1,), False), casting="unsafe")

        intra_op.over(len(matrix), matrix.size // 2, part)
        return found.reshape(output.shape)

    return kernel


def _are_last(dims: tuple[int, ...], source: TensorMeta) -> bool:
    rank = len(source.shape)
    return dims == tuple(range(rank - len(dims), rank))


def _in_c(rows: RowReduction, finish: Callable[[Array], Array] | None, output: TensorMeta, otherwise: Kernel) -> Kernel:
    def kernel(array: Array, out: Array | None) -> Array:
        if array.flags.c_contiguous and isinstance(array, np.ndarray):
            found = rows.call(array.reshape(output.numel, -1))
            if found is not None:
                return (found if finish is None else finish(found)).reshape(output.shape)
        return otherwise(array, out)

    return kernel


def _same(dtype: DType) -> DType:
    return dtype


def _to_bool(dtype: DType) -> DType:
    return dtypes.bool_


def _sum_function(xp: Any, source: TensorMeta, output: DType) -> Callable[..., Array]:
    wide = accumulated(source.dtype, output)
    in_c = RowReduction("sums")

    def total(array: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
        if array.dtype == wide and sums.suits(array):
            found = sums.over(array, axis, in_c)
            if found is not None:
                return found.reshape(reduced_shape(array.shape, axis, True)) if keepdims else found
        return xp.add.reduce(array, axis, wide, None, keepdims)

    return total


def _prod_function(xp: Any, source: TensorMeta, output: DType) -> Callable[..., Array]:
    wide = accumulated(source.dtype, output)
    if wide == dtypes.float32.numpy:
        wide = dtypes.float64.numpy  # as C does: large and small factors, in whatever order, must not end in infinity
    return lambda array, axis, keepdims: xp.multiply.reduce(array, axis, wide, None, keepdims)


def _mean_function(xp: Any, source: TensorMeta, output: DType) -> Callable[..., Array]:
    add_up = _sum_function(xp, source, output)

    def mean(array: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
        total = add_up(array, axis, keepdims)
        count = math.prod([array.shape[it] for it in axis])
        return xp.true_divide(total, count, dtype=total.dtype)

    return mean


def _norm_function(xp: Any, source: TensorMeta, output: DType) -> Callable[..., Array]:
    add_up = _sum_function(xp, source, output)
    wide = accumulated(source.dtype, output)  # in which squares of half precision neither overflow nor vanish
    return lambda array, axis, keepdims: xp.sqrt(add_up(xp.square(array, dtype=wide), axis, keepdims))


_SUM = _reduction("sum", _sum_function, widen_integers, by_products=True)
_PROD = _reduction("prod", _prod_function, widen_integers, in_c="products")
_MEAN = _reduction("mean", _mean_function, _same, least=FLOATING, by_products=True)
_AMAX = _reduction(
    "amax",
    lambda xp, source, output: lambda array, axis, keepdims: xp.maximum.reduce(array, axis, None, None, keepdims),
    _same,
    most=FLOATING,
    of_nothing=False,
    in_c="largest",
)
_AMIN = _reduction(
    "amin",
    lambda xp, source, output: lambda array, axis, keepdims: xp.minimum.reduce(array, axis, None, None, keepdims),
    _same,
    most=FLOATING,
    of_nothing=False,
    in_c="smallest",
)
_NORM = _reduction(
    "norm",
    _norm_function,
    _same,
    least=FLOATING,
    most=FLOATING,
    by_products=True,
    in_c="squares",
    finish=lambda squares: np.sqrt(squares, squares),
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


def euclidean_norm(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """The root of the sum of squares along `dim`, of real floating-point numbers; where it is 0, so is its gradient."""
    return _reduce(_NORM, input, dim, keepdim)


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


def half_widened(input: Tensor) -> Tensor:
    """Half precision as float32, in which squares neither overflow nor lose the small ones."""
    return input.to(dtypes.float32) if input.dtype in (dtypes.float16, dtypes.bfloat16) else input


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
    behind = flipped(product_before(flipped(flat, -1), -1), -1)
    others = (product_before(flat, -1) * behind).reshape(moved.shape)
    return (gradient * others.permute(sorted(range(len(order)), key=order.__getitem__)),)


def _extremum_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    source = node.input(0)
    chosen = source == _spread(node, node.output(0))
    dims, keepdim = cast("tuple[tuple[int, ...], bool]", node.attributes)
    count = sum(chosen, dims, keepdim)
    # More elements may share it than half precision can count.  Where none is chosen, it is nan that was found.
    share = half_widened(gradient) / count
    rest = where(count == 0, math.nan, 0.0)
    return (where(chosen, _spread(node, share), _spread(node, rest)),)


_AMAX.gradient(inputs=(0,), outputs=(0,))(_extremum_gradient)
_AMIN.gradient(inputs=(0,), outputs=(0,))(_extremum_gradient)


@_NORM.gradient(inputs=(0,), outputs=(0,))
def _norm_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    """The unit vector; where there is none, 0 and not nan."""
    size = node.output(0)
    nothing = size == 0
    share = where(nothing, 0.0, gradient / where(nothing, 1.0, size))
    return (node.input(0) * _spread(node, share),)
