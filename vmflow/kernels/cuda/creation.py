"""New arrays from sizes and ranges."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, into_outs
from .sources import STORED
from .walks import Walk, Walked, walk, walked


@builds("empty", package=PACKAGE)
def _empty(problem: Problem) -> Kernel:
    return Kernel(into_outs(lambda launcher, operands, outs: None, problem), casts=True)


@builds("arange", package=PACKAGE)
def _build_range(problem: Problem) -> Kernel:
    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (start, step), (out,) = operands, outs
        whole = isinstance(start, int) and isinstance(step, int)
        numbers = (int(start), int(step)) if whole else (float(start), float(step))
        program = _range(out.dtype.name, whole)
        walk(launcher, program, out.shape, [walked(out)], [], [(1,)], numbers)

    return Kernel(into_outs(launch, problem), casts=True)


@lru_cache(None)
def _range(dtype: str, whole: bool) -> Walk:
    lines = (f"out[out_place] = converted<{STORED[dtype]}>(start + step * n_place);",)
    numbers, real = (("start", "step"), ()) if whole else ((), ("start", "step"))
    return Walk("arange", (("out", dtype),), (), ("n",), numbers, lines, real)


@builds("linspace", package=PACKAGE)
def _build_linspace(problem: Problem) -> Kernel:
    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (start, end), (out,) = operands, outs
        steps = out.size
        step = (end - start) / (steps - 1) if steps > 1 else 0.0
        numbers = (steps, float(start), float(end), float(step))
        walk(launcher, _linspace(out.dtype.name), out.shape, [walked(out)], [], [(1,)], numbers)

    return Kernel(into_outs(launch, problem), casts=True)


@lru_cache(None)
def _linspace(dtype: str) -> Walk:
    """Build the program of ``linspace``: the first half counts from the start, the second from the end, so that both
    ends are exact.
    """
    lines = (
        "const double value = 2 * n_place < steps ? start + step * n_place : end - step * (steps - 1 - n_place);",
        f"out[out_place] = converted<{STORED[dtype]}>(value);",
    )
    return Walk("linspace", (("out", dtype),), (), ("n",), ("steps",), lines, ("start", "end", "step"))


@builds("eye", package=PACKAGE)
def _build_eye(problem: Problem) -> Kernel:
    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (out,) = outs
        walk(launcher, _eye(out.dtype.name), out.shape, [walked(out)], [], [(-1, 1)])

    return Kernel(into_outs(launch, problem), casts=True)


@lru_cache(None)
def _eye(dtype: str) -> Walk:
    lines = (f"out[out_place] = converted<{STORED[dtype]}>(from_diagonal_place == 0);",)
    return Walk("eye", (("out", dtype),), (), ("from_diagonal",), (), lines)


@builds("triangle_places", package=PACKAGE)
def _build_triangle_places(problem: Problem) -> Kernel:
    _, rows, columns, offset, lower = problem.attributes

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (out,) = outs
        each, one = (stride // out.itemsize for stride in out.strides)
        numbers = (each, one, rows, columns, offset + lower, int(lower))
        walk(launcher, _triangle_places(out.dtype.name), (out.shape[1],), [Walked(out, (0,))], [], [(1,)], numbers)

    return Kernel(into_outs(launch, problem), casts=True)


@lru_cache(None)
def _triangle_places(dtype: str) -> Walk:
    """Build the program of ``tril_indices`` and ``triu_indices``: element number n lies in the last row that has at
    most n elements before it, found by bisection.
    """
    lines = (
        # `in_front` counts the elements left of the diagonal (for `lower`, also on it) in the first `row` rows, and
        # `chosen` the elements of the triangle in these rows.
        "auto sum_to = [&](int64 row) { return row * (row - 1) / 2 + row * met; };",
        "auto in_front = [&](int64 row) {",
        "const int64 first = least(most(-met, 0), row), full = least(most(columns - met, first), row);",
        "return sum_to(full) - sum_to(first) + (row - full) * columns;",
        "};",
        "auto chosen = [&](int64 row) { return lower ? in_front(row) : row * columns - in_front(row); };",
        "int64 low = 0, high = rows;",
        "while (high - low > 1) {",
        "const int64 middle = (low + high) / 2;",
        "if (chosen(middle) <= n_place) low = middle; else high = middle;",
        "}",
        "const int64 begin = lower ? 0 : within(low + met, columns + 1);",
        f"out[n_place * one] = converted<{STORED[dtype]}>(low);",
        f"out[each + n_place * one] = converted<{STORED[dtype]}>(begin + n_place - chosen(low));",
    )
    numbers = ("each", "one", "rows", "columns", "met", "lower")
    return Walk("triangle_places", (("out", dtype),), (), ("n",), numbers, lines)
