"""Reductions along dimensions: sums, products, means, norms and extrema, and where extrema are."""

from __future__ import annotations

from math import prod
from typing import Any

from vmflow import dtypes
from vmflow.kernels.choosing import Problem
from vmflow.kernels.numpy.reduction import accumulated

from .arrays import by_arrays
from .half import widened


def _wide(problem: Problem) -> Any:
    """The dtype to accumulate in."""
    return accumulated(problem.inputs[0].dtype, problem.outputs[0].dtype)


def _seen(array: Any, dims: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
    """The array and dimensions to reduce it along; over none of them, each element is reduced alone."""
    return (array, dims) if dims else (array.reshape(*array.shape, 1), (array.ndim,))


def _sum(xp: Any, problem: Problem, array: Any) -> Any:
    dims, keepdim = problem.attributes
    array, axis = _seen(array, dims)
    return xp.sum(array, axis=axis, dtype=_wide(problem), keepdims=keepdim and bool(dims))


@by_arrays("sum")
def _total(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    xp.copyto(out, _sum(xp, problem, array), casting="unsafe")


@by_arrays("mean")
def _mean(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    dims, _ = problem.attributes
    count = prod([array.shape[dim] for dim in dims])
    xp.copyto(out, xp.true_divide(_sum(xp, problem, array), count), casting="unsafe")


@by_arrays("norm")
def _norm(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    # In the dtype to accumulate in, squares of half precision neither overflow nor vanish.
    squares = xp.square(array.astype(_wide(problem), copy=False))
    xp.copyto(out, xp.sqrt(_sum(xp, problem, squares)), casting="unsafe")


@by_arrays("prod")
def _product(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    dims, keepdim = problem.attributes
    wide = _wide(problem)
    if wide == dtypes.float32.numpy:
        wide = dtypes.float64.numpy  # large and small factors, in whatever order, must not end in infinity
    array, axis = _seen(array, dims)
    xp.copyto(out, xp.prod(array, axis=axis, dtype=wide, keepdims=keepdim and bool(dims)), casting="unsafe")


@by_arrays("amax", "amin", "all", "any")
def _extremum(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    dims, keepdim = problem.attributes
    if not out.size:
        return  # CuPy refuses to look for an extremum in an empty array
    # Of truth CuPy finds the extrema of bools alone, whatever the dtype.
    array = array != 0 if problem.op in ("all", "any") else widened(array, problem.inputs[0].dtype)
    array, axis = _seen(array, dims)
    found = getattr(xp, problem.op)(array, axis=axis, keepdims=keepdim and bool(dims))
    xp.copyto(out, found, casting="unsafe")


@by_arrays("argmax", "argmin")
def _place(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    dim, keepdim = problem.attributes
    if not out.size:
        return
    if not array.ndim:
        out.fill(0)
        return
    array = widened(array, problem.inputs[0].dtype)
    if dim is None:
        array, keepdim = array.reshape(-1), False
    found = getattr(xp, problem.op)(array, axis=dim or 0, keepdims=keepdim)
    xp.copyto(out, found.reshape(out.shape), casting="unsafe")
