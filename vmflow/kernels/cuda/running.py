"""Running sums, products and extrema, running sums of exponentials, and the recurrence behind gradients of products."""

from __future__ import annotations

from typing import Any

from vmflow import dtypes
from vmflow.kernels.choosing import Problem
from vmflow.kernels.numpy.reduction import accumulated

from .arrays import by_arrays
from .half import widened


@by_arrays("cumsum", "cumprod")
def _running(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    dim, reverses = problem.attributes
    if not array.ndim:
        xp.copyto(out, array, casting="unsafe")
        return
    kept = accumulated(problem.inputs[0].dtype, problem.outputs[0].dtype)
    # Errors of single precision would add up.
    wide = dtypes.float64.numpy if kept == dtypes.float32.numpy else kept
    seen = array.astype(wide, copy=False)
    seen = xp.flip(seen, dim) if reverses else seen
    result = getattr(xp, problem.op)(seen, axis=dim).astype(kept, copy=False)
    xp.copyto(out, xp.flip(result, dim) if reverses else result, casting="unsafe")


@by_arrays("recurrence")
def _recurrence(xp: Any, problem: Problem, factor: Any, term: Any, out: Any) -> None:
    (dim,) = problem.attributes
    (output,) = problem.outputs
    wide, length = accumulated(output.dtype, output.dtype), output.shape[dim]
    # Doubling: after each round `total` covers twice as many terms, and `product` the factors between.
    total = xp.moveaxis(term.astype(wide), dim, -1)
    product = xp.moveaxis(factor.astype(wide), dim, -1)[..., 1:]
    reach = 1
    while reach < length:
        total[..., :-reach] += product * total[..., reach:]
        product = product[..., :-reach] * product[..., reach:]
        reach *= 2
    xp.copyto(out, xp.moveaxis(total, -1, dim), casting="unsafe")


def scanned(combine: Any, array: Any) -> Any:
    """Combines each element of the last dimension with all before it, by `combine`.

    It takes as many rounds as the length has bits, each of which covers twice as many elements as the one before.

    Args:
        combine: an associative function of two arrays.
        array: it is changed and returned.
    """
    reach = 1
    while reach < array.shape[-1]:
        array[..., reach:] = combine(array[..., reach:], array[..., :-reach])
        reach *= 2
    return array


@by_arrays("cummax", "cummin")
def _places(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    """The index of the extremum up to each place; the last of equal ones."""
    (dim,) = problem.attributes
    if not array.ndim:
        out.fill(0)
        return
    array = xp.moveaxis(widened(array, problem.inputs[0].dtype), dim, -1)
    extremum = xp.maximum if problem.op == "cummax" else xp.minimum
    # A nan is the extremum from its place on; it equals nothing.
    reached = xp.logical_or(array == scanned(extremum, array.astype(array.dtype)), array != array)
    found = scanned(xp.maximum, xp.where(reached, xp.arange(array.shape[-1]), 0))
    xp.copyto(out, xp.moveaxis(found, -1, dim))


@by_arrays("logcumsumexp")
def _logcumsumexp(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    if not array.ndim:
        xp.copyto(out, array)
        return
    (dim,) = problem.attributes
    wide = widened(array, problem.inputs[0].dtype)
    found = scanned(xp.logaddexp, xp.moveaxis(wide.astype(wide.dtype), dim, -1))
    xp.copyto(out, xp.moveaxis(found, -1, dim), casting="unsafe")
