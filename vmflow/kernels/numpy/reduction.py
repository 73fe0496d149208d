"""Reductions along dimensions: sums, products, means, norms and extrema, and the indices of extrema."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from vmflow import dtypes
from vmflow.instructions.blob import Array, TensorMeta
from vmflow.kernels import intra_op
from vmflow.kernels.choosing import Function, Problem, builds, kernel_of
from vmflow.kernels.native.rows import RowReduction

from . import sums

# reduce(array, dimensions, whether they are kept with size 1) -> result
Reduce: TypeAlias = Callable[[Array, "tuple[int, ...]", bool], Array]

# Any, since numpy's types know no `keepdims` but literal ones.
_ADD: Final[Any] = np.add.reduce
_MULTIPLY: Final[Any] = np.multiply.reduce


def accumulated(source: dtypes.dtype, output: dtypes.dtype) -> np.dtype[Any]:
    """Return the dtype to accumulate in: the output's; float32 for half-precision sources, whose sums stop growing."""
    return dtypes.float32.numpy if source in (dtypes.float16, dtypes.bfloat16) else output.numpy


def _sum(source: TensorMeta, output: TensorMeta) -> Reduce:
    wide = accumulated(source.dtype, output.dtype)
    rows, columns = RowReduction.of("sums", wide, source.numel), sums.columns_in_c(wide, source.numel)

    def total(array: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
        if array.dtype == wide and sums.suits(array):
            found = sums.over(array, axis, rows, columns)
            if found is not None:
                return found.reshape(_with_ones(array.shape, axis)) if keepdims else found
        return _ADD(array, axis, wide, None, keepdims)

    return total


def _with_ones(shape: tuple[int, ...], dims: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([1 if axis in dims else size for axis, size in enumerate(shape)])


def _prod(source: TensorMeta, output: TensorMeta) -> Reduce:
    wide = accumulated(source.dtype, output.dtype)
    if wide == dtypes.float32.numpy:
        wide = dtypes.float64.numpy  # as in C: in float64, products of up to 8 factors of float32 cannot overflow
    return lambda array, axis, keepdims: _MULTIPLY(array, axis, wide, None, keepdims)


def _mean(source: TensorMeta, output: TensorMeta) -> Reduce:
    add_up = _sum(source, output)

    def mean(array: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
        total = add_up(array, axis, keepdims)
        count = math.prod([array.shape[dim] for dim in axis])
        return np.true_divide(total, count, dtype=total.dtype)

    return mean


def _norm(source: TensorMeta, output: TensorMeta) -> Reduce:
    add_up = _sum(source, output)
    wide = accumulated(source.dtype, output.dtype)  # float16's squares neither overflow nor vanish in float32
    return lambda array, axis, keepdims: np.sqrt(add_up(np.square(array, dtype=wide), axis, keepdims))


def _by(ufunc: np.ufunc) -> Callable[[TensorMeta, TensorMeta], Reduce]:
    """Return a `_Reduction.function` that reduces by a ufunc, for any metas."""
    reduce: Any = ufunc.reduce  # Any, see `_ADD`
    # Positional arguments, which numpy takes faster.
    return lambda source, output: lambda array, axis, keepdims: reduce(array, axis, None, None, keepdims)


class _Reduction(NamedTuple):
    """The computation of an op with attributes ``(dims, keepdim)``.

    Attributes:
        function: returns the reduction for the metas of input and output.
        by_products: whether `sums` may add floating-point numbers, by C or BLAS; both have threads of their own, so
            rows are not divided among threads here.
        in_c: the name of the `RowReduction` for float32 over the last dimensions; None if there is none, or
            if the one of `function` suffices.
        finish: turns the result of `in_c` into the op's; None if both are the same.
    """

    function: Callable[[TensorMeta, TensorMeta], Reduce]
    by_products: bool = False
    in_c: str | None = None
    finish: Callable[[Array], Array] | None = None


_REDUCTIONS: Final = {
    "sum": _Reduction(_sum, by_products=True),
    "prod": _Reduction(_prod, in_c="products"),
    "mean": _Reduction(_mean, by_products=True),
    "amax": _Reduction(_by(np.maximum), in_c="largest"),
    "amin": _Reduction(_by(np.minimum), in_c="smallest"),
    "norm": _Reduction(_norm, by_products=True, in_c="squares", finish=lambda squares: np.sqrt(squares, squares)),
    "all": _Reduction(_by(np.logical_and)),
    "any": _Reduction(_by(np.logical_or)),
}


@builds(*_REDUCTIONS)
def _reduction(problem: Problem) -> Function:
    dims, keepdim = problem.attributes
    (source,), (output,) = problem.inputs, problem.outputs
    function, by_products, in_c, finish = _REDUCTIONS[problem.op]
    reduces = function(source, output)
    whole = by_products and source.dtype.category == dtypes.FLOATING
    kernel = _kernel(reduces, dims, keepdim, output) if whole else _by_rows(reduces, dims, keepdim, source, output)
    rows = None
    if in_c is not None and source.numel and _are_last(dims, source):
        rows = RowReduction.of(in_c, source.dtype.numpy, source.numel)
    return kernel if rows is None else _in_c(rows, finish, output, kernel)


def _kernel(function: Reduce, dims: tuple[int, ...], keepdim: bool, output: TensorMeta) -> Function:
    to = output.dtype.numpy

    def kernel(array: Array, out: Array | None) -> Array:
        result = function(array, dims, keepdim)
        return result if result.dtype == to else result.astype(to)

    return kernel


def _by_rows(
    function: Reduce, dims: tuple[int, ...], keepdim: bool, source: TensorMeta, output: TensorMeta
) -> Function:
    """Like `_kernel`, but on the CPU, many contiguous elements are reduced over the last dimensions by several threads.

    A single row is not divided.
    """
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


def _in_c(
    rows: RowReduction, finish: Callable[[Array], Array] | None, output: TensorMeta, otherwise: Function
) -> Function:
    def kernel(array: Array, out: Array | None) -> Array:
        if array.flags.c_contiguous and isinstance(array, np.ndarray):
            found = rows.call(array.reshape(output.numel, -1))
            if found is not None:
                return (found if finish is None else finish(found)).reshape(output.shape)
        return otherwise(array, out)

    return kernel


# Indices of extrema


@kernel_of("argmax", "argmin")
def _arg(problem: Problem, array: Array, out: Array | None) -> Array:
    dim, keepdim = problem.attributes
    find = np.argmax if problem.op == "argmax" else np.argmin
    return find(array, axis=dim if array.ndim else None, keepdims=keepdim)
