"""Rows of a table, by index, and the largest among those of a bag."""

from __future__ import annotations

from typing import Any

from vmflow.kernels.choosing import Problem
from vmflow.kernels.numpy.half import computes_in
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher

from .arrays import by_arrays
from .checks import check_range
from .scattering import add_at, put_at, within


def _check_rows(launcher: Launcher, places: DeviceArray, rows: int) -> None:
    """Report an index that names none of so many rows; none counts from the end."""

    def explain(position: int, value: int) -> Exception:
        return IndexError(f"embedding: index {value} is out of range for a table of {rows} rows")

    check_range(launcher, places, 0, rows, explain)


def _check_look_up(launcher: Launcher, problem: Problem, operands: tuple[Any, ...]) -> None:
    places, values = operands
    _check_rows(launcher, places, values.shape[0])


def _check_gradient(launcher: Launcher, problem: Problem, operands: tuple[Any, ...]) -> None:
    _, _, rows = problem.attributes
    _check_rows(launcher, operands[1], rows)


@by_arrays("embedding", check=_check_look_up)
def _embedding(xp: Any, problem: Problem, places: Any, values: Any, out: Any) -> None:
    places = within(xp, problem.op, places, values.shape, 0)
    if out.size:
        xp.copyto(out, xp.take(values, places, axis=0))


@by_arrays("embedding_gradient", check=_check_gradient)
def _embedding_gradient(xp: Any, problem: Problem, gradient: Any, places: Any, out: Any) -> None:
    padding, by_frequency, rows = problem.attributes
    wide = computes_in(problem.outputs[0].dtype)
    table = xp.zeros(out.shape, wide)
    places = within(xp, problem.op, places.reshape(-1), out.shape, 0)
    if gradient.size:
        part = gradient.reshape(places.size, out.shape[1]).astype(wide, copy=False)
        if by_frequency:
            counts = xp.zeros(rows, wide)
            add_at(xp, counts, places, xp.ones(places.size, wide))
            part = part / counts[places][:, None]
        width = out.shape[1]
        add_at(xp, table.reshape(-1), places[:, None] * width + xp.arange(width), part)
    if padding >= 0:
        table[padding] = 0
    xp.copyto(out, table, casting="unsafe")


@by_arrays("embedding_limit_norms")
def _limit_norms(xp: Any, problem: Problem, values: Any, places: Any, out: Any) -> None:
    limit, order = problem.attributes
    xp.copyto(out, values)
    if not (places.size and out.size):
        return
    # An index out of range is left to the look-up, which fails; it must not cost another row its values.  So it is
    # replaced by one that is in range, or by -1 if there is none, and then nothing changes.
    places = places.reshape(-1)
    valid = xp.logical_and(places >= 0, places < len(values))
    places = xp.where(valid, places, xp.amax(xp.where(valid, places, -1)))
    # Where a row is named several times, the same values are written several times.
    named = xp.maximum(places, 0)
    rows = out[named].astype("float64")
    norms = xp.linalg.norm(rows, ord=order, axis=1)
    limited = rows * (limit / (norms + 1e-7))[:, None]
    # In this dtype, and not in one of half precision, for which CuPy has no `where`.
    changed = xp.where(xp.logical_and(norms > limit, places >= 0)[:, None], limited, rows)
    put_at(out, named, changed.astype(out.dtype))


@by_arrays("largest_of_bag")
def _largest_of_bag(xp: Any, problem: Problem, values: Any, bag: Any, out: Any) -> None:
    (bags,) = problem.attributes
    count = len(bag)
    # One row more, for what is in no bag.
    result = xp.full((bags + 1, *out.shape[1:]), -1, dtype=out.dtype)
    if count:
        bag = xp.where(bag < 0, bags, bag)
        order = xp.argsort(bag, kind="stable")
        bag = bag[order]
        best = _largest_so_far(xp, values[order], bag)
        ends = xp.concatenate([bag[1:] != bag[:-1], xp.ones(1, bool)])
        result[xp.where(ends, bag, bags)] = order[best]
    xp.copyto(out, result[:bags])


def _largest_so_far(xp: Any, values: Any, bag: Any) -> Any:
    """For each row and column, where the first of the largest elements is among those before it in the same bag.

    With each turn, an element has looked at twice as many.
    """
    count = len(bag)
    best = xp.broadcast_to(xp.arange(count)[:, None], values.shape).copy()
    reach = 1
    while reach < count:
        earlier, later = best[:-reach], best[reach:]
        former = xp.take_along_axis(values, earlier, axis=0)
        latter = xp.take_along_axis(values, later, axis=0)
        # nan is the largest, and only nan differs from itself.
        better = xp.logical_or(former >= latter, former != former)
        better = xp.logical_and(better, (bag[:-reach] == bag[reach:])[:, None])
        best = xp.concatenate([best[:reach], xp.where(better, earlier, later)])
        reach *= 2
    return best
