"""Ops that join, repeat, flip or roll arrays, or set the elements on one side of a diagonal to zero."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np

from vmflow import dtypes
from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, into_outs
from .checks import check_range
from .pointwise import apart, bits_of, copy_array
from .rows import RowReduction, reduce_rows
from .running import running
from .scans import scan
from .walks import Walk, Walked, along, part_of, separate, standing, steps_of, walk, walked


@builds("cat", package=PACKAGE)
def _build_cat(problem: Problem) -> Kernel:
    (axis,) = problem.attributes

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (out,) = outs
        start = 0
        for array in [separate(launcher, operand, out) for operand in operands]:
            end = start + array.shape[axis]
            copy_array(launcher, array, part_of(out, axis, start, end))
            start = end

    return Kernel(into_outs(launch, problem), casts=True)


@builds("repeat", package=PACKAGE)
def _build_repeat(problem: Problem) -> Kernel:
    (repeats,) = problem.attributes

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (array,), (out,) = operands, outs
        array = separate(launcher, array, out)
        ndim = max(array.ndim, len(repeats))
        sizes = (1,) * (ndim - array.ndim) + array.shape
        strides = (0,) * (ndim - array.ndim) + array.strides
        times = (1,) * (ndim - len(repeats)) + tuple(repeats)
        # Each dimension of the result is viewed as two: the repetitions, which have stride 0 in the operand, and the
        # elements.
        shape = tuple([number for pair in zip(times, sizes, strict=True) for number in pair])
        source = tuple([number for stride in strides for number in (0, stride)])
        own = [(stride * size, stride) for size, stride in zip(sizes, out.strides, strict=True)]
        target = tuple([number for pair in own for number in pair])
        view = array.strided(shape, array.dtype, 0, source)
        copy_array(launcher, view, out.strided(shape, out.dtype, 0, target))

    return Kernel(into_outs(launch, problem), casts=True)


_SUM: Final = RowReduction("sum", "0", "v", "p + q", "total", "int64")


@builds("repetitions", package=PACKAGE)
def _build_repetitions(problem: Problem) -> Kernel:
    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (array,), (out,) = operands, outs

        def explain(position: int, value: int) -> Exception:
            return ValueError(
                f"repeat_interleave: expected {array.size} numbers that are not negative, got {value} at {position}"
            )

        check_range(launcher, array, 0, np.iinfo(np.int64).max, explain)
        reduce_rows(launcher, _SUM, array, range(array.ndim), out)

    return Kernel(into_outs(launch, problem), casts=True)


@builds("repeated_places", package=PACKAGE)
def _build_repeated_places(problem: Problem) -> Kernel:
    (total,) = problem.attributes
    running_sum = running("cumsum", problem.inputs[0].dtype, dtypes.int64)

    def changed(position: int, found: int) -> Exception:
        return RuntimeError(
            f"repeat_interleave: {found} repetitions where {total} were counted: they were changed meanwhile"
        )

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (array,), (out,) = operands, outs
        if array.size:
            ends = launcher.scratch(array.shape, np.dtype(np.int64))
            scan(launcher, running_sum, (array,), 0, ends)
            check_range(launcher, part_of(ends, 0, array.size - 1, array.size), total, total + 1, changed)
            walk(launcher, _BEHIND, out.shape, [walked(out)], [standing(ends, 1)], [(1,)], (array.size,))

    return Kernel(into_outs(launch, problem), casts=True)


# For each number n, the position of the first of the ascending `ends` that is greater than n, found by bisection.
_BEHIND: Final = Walk(
    "repeated_places",
    (("out", "int64"),),
    (("ends", "int64"),),
    ("n",),
    ("size",),
    (
        "int64 low = 0, high = size - 1;",
        "while (low < high) {",
        "const int64 middle = (low + high) / 2;",
        "if (ends[middle] > n_place) high = middle; else low = middle + 1;",
        "}",
        "out[out_place] = low;",
    ),
)


@builds("flip", package=PACKAGE)
def _build_flip(problem: Problem) -> Kernel:
    (dims,) = problem.attributes

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (array,), (out,) = operands, outs
        array = separate(launcher, array, out)
        if array.size:
            begin = sum([(array.shape[dim] - 1) * array.strides[dim] for dim in dims])
            strides = tuple([-step if axis in dims else step for axis, step in enumerate(array.strides)])
            copy_array(launcher, array.strided(array.shape, array.dtype, begin, strides), out)

    return Kernel(into_outs(launch, problem), casts=True)


@builds("roll", package=PACKAGE)
def _build_roll(problem: Problem) -> Kernel:
    shifts, dims = problem.attributes

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (array,), (out,) = operands, outs
        array = separate(launcher, array, out)
        if not array.size:
            return
        by_dim: dict[int, int] = {}
        for shift, dim in zip(shifts, dims, strict=True):
            by_dim[dim] = (by_dim.get(dim, 0) + shift) % array.shape[dim]
        own = steps_of(array)
        source = Walked(array, tuple([0 if axis in by_dim else step for axis, step in enumerate(own)]))
        numbers = [number for dim, shift in by_dim.items() for number in (shift, array.shape[dim], own[dim])]
        counters = [along(dim, out.ndim) for dim in by_dim]
        walk(launcher, _rolled(bits_of(out.dtype), len(by_dim)), out.shape, [walked(out)], [source], counters, numbers)

    return Kernel(into_outs(launch, problem), casts=True)


@lru_cache(None)
def _rolled(dtype: str, dims: int) -> Walk:
    places = [
        f"(p{dim}_place < shift{dim} ? p{dim}_place - shift{dim} + size{dim} : p{dim}_place - shift{dim}) * stride{dim}"
        for dim in range(dims)
    ]
    lines = (f"out[out_place] = x[{' + '.join(['x_place', *places])}];",)
    numbers = tuple([f"{name}{dim}" for dim in range(dims) for name in ("shift", "size", "stride")])
    return Walk("roll", (("out", dtype),), (("x", dtype),), tuple([f"p{dim}" for dim in range(dims)]), numbers, lines)


@builds("triangle", package=PACKAGE)
def _build_triangle(problem: Problem) -> Kernel:
    lower, diagonal = problem.attributes

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (array,), (out,) = operands, outs
        array = apart(launcher, array, out)
        from_diagonal = (0,) * (out.ndim - 2) + (-1, 1)
        program = _triangle(bits_of(out.dtype), lower)
        walk(launcher, program, out.shape, [walked(out)], [walked(array)], [from_diagonal], (diagonal,))

    return Kernel(into_outs(launch, problem), casts=True)


@lru_cache(None)
def _triangle(dtype: str, lower: bool) -> Walk:
    kept = "from_diagonal_place <= diagonal" if lower else "from_diagonal_place >= diagonal"
    lines = (f"const auto bits = x[x_place]; out[out_place] = {kept} ? bits : decltype(bits){{}};",)
    return Walk("triangle", (("out", dtype),), (("x", dtype),), ("from_diagonal",), ("diagonal",), lines)
