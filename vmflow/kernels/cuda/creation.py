"""New arrays from sizes and ranges."""

from __future__ import annotations

from typing import Any

from vmflow.kernels.choosing import Kernel, Problem, builds

from .arrays import PACKAGE, by_arrays, into_outs


@builds("empty", package=PACKAGE)
def _empty(problem: Problem) -> Kernel:
    return Kernel(into_outs(lambda launcher, operands, outs: None, problem), casts=True)


@by_arrays("arange")
def _range(xp: Any, problem: Problem, start: float, step: float, out: Any) -> None:
    count = xp.arange(out.size)
    xp.copyto(out, start + step * count if step != 1 or start != 0 else count, casting="unsafe")


@by_arrays("linspace")
def _linspace(xp: Any, problem: Problem, start: float, end: float, out: Any) -> None:
    steps = out.size
    step = (end - start) / (steps - 1) if steps > 1 else 0.0
    count = xp.arange(steps)
    # From both ends, so that both are met exactly.
    values = xp.where(count < steps / 2, start + step * count, end - step * (steps - 1 - count))
    xp.copyto(out, values, casting="unsafe")


@by_arrays("eye")
def _eye(xp: Any, problem: Problem, out: Any) -> None:
    rows, columns = (xp.arange(size) for size in out.shape)
    xp.copyto(out, rows[:, None] == columns, casting="unsafe")


@by_arrays("triangle_places")
def _triangle_places(xp: Any, problem: Problem, out: Any) -> None:
    _, row, col, offset, lower = problem.attributes
    # Where each row meets the diagonal.
    met = xp.clip(xp.arange(row) + (offset + lower), 0, col)
    counts = met if lower else col - met
    ends = xp.cumsum(counts)
    first = (counts if lower else col) - ends
    number = xp.arange(out.shape[1])
    rows = xp.searchsorted(ends, number, side="right")
    xp.copyto(out[0], rows, casting="unsafe")
    xp.copyto(out[1], number + first[rows], casting="unsafe")
