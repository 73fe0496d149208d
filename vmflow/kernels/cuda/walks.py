"""Kernels that run C++ statements, which read and write arrays, for each place (tuple of indices) of a shape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from math import prod
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from vmflow.kernels.strides import with_merged_dimensions
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.driver import Argument
from vmflow.streams.cuda.launching import Launcher

from .complex_functions import COMPLEX_FUNCTIONS
from .pointwise import copy_array
from .sources import ELEMENTS_PRELUDE, STORED, CudaKernel

_KERNELS: Final = 1024

# For each dimension, the distance between neighbouring places: of an array, its stride in elements.
Steps: TypeAlias = tuple[int, ...]


class Walk(NamedTuple):
    """C++ statements for one place, and the names of the arrays and numbers that they use.

    Attributes:
        name: for people, and a part of the kernel's name.
        outs: the names and dtypes of the arrays that are written.
        arrays: the names and dtypes of the arrays that are only read.  For any array `x`, also a written one, the
            variable `x` is the pointer to its first element, and `x_place` the place's position in it.
        counters: names of sums of the place's indices, each index times a number: for `c`, the sum is `c_place`.
        numbers: the names of integers.
        lines: statements.
        real: the names of floating-point numbers, which come behind the integers.
        functions: the source of functions that the statements call, besides the functions that each walk has.
    """

    name: str
    outs: tuple[tuple[str, str], ...]
    arrays: tuple[tuple[str, str], ...]
    counters: tuple[str, ...]
    numbers: tuple[str, ...]
    lines: tuple[str, ...]
    real: tuple[str, ...] = ()
    functions: str = ""


class Walked(NamedTuple):
    """An array, or 0 for none, and its steps along a walk's dimensions; threads may use other elements, too."""

    array: DeviceArray | int
    steps: Steps


def walk(
    launcher: Launcher,
    program: Walk,
    shape: tuple[int, ...],
    outs: Sequence[Walked],
    arrays: Sequence[Walked],
    counters: Sequence[Steps] = (),
    numbers: Sequence[Argument] = (),
) -> None:
    """Run a program for each place of a shape; `outs` overlap no arrays, unless each place reads only elements that it
    writes.  Arrays, counters and numbers come in the order of the program's names.
    """
    every = [each.steps for each in (*outs, *arrays)] + list(counters)
    sizes, steps = with_merged_dimensions(shape, every)
    if not sizes:
        sizes, steps = (1,), [[0] for _ in every]
    arguments: list[Argument] = [each.array for each in (*outs, *arrays)]
    arguments += [*numbers, prod(sizes), *sizes[1:], *[step for each in steps for step in each]]
    _kernel(program, len(sizes)).launch_over(launcher, prod(shape), arguments)


def steps_of(array: DeviceArray) -> Steps:
    """Return an array's strides along its own dimensions, in elements."""
    return tuple([stride // array.itemsize for stride in array.strides])


def walked(array: DeviceArray) -> Walked:
    """Return an array with the steps of its own dimensions."""
    return Walked(array, steps_of(array))


def standing(array: DeviceArray | int, ndim: int) -> Walked:
    """Return an array with steps of 0, so that the threads compute positions in it by themselves."""
    return Walked(array, (0,) * ndim)


def along(axis: int, ndim: int, step: int = 1) -> Steps:
    """Return the steps of a counter that grows by `step` along the dimension `axis`, and is constant along others."""
    return (0,) * axis + (step,) + (0,) * (ndim - axis - 1)


# Arrays


def contiguous(launcher: Launcher, array: DeviceArray, dtype: np.dtype[Any] | None = None) -> DeviceArray:
    """Return the array, or a copy, if it is not contiguous or has another dtype than `dtype` (None: any)."""
    to = array.dtype if dtype is None else dtype
    if array.contiguous and array.dtype == to:
        return array
    copied = launcher.scratch(array.shape, to)
    copy_array(launcher, array, copied)
    return copied


def separate(launcher: Launcher, array: DeviceArray, *outs: DeviceArray) -> DeviceArray:
    """Return the array, or a copy of it if it may share memory with one of `outs`, which are written."""
    start, stop = array.extent()
    for low, high in [out.extent() for out in outs]:
        if start < high and low < stop:
            copied = launcher.scratch(array.shape, array.dtype)
            copy_array(launcher, array, copied)
            return copied
    return array


def transposed(array: DeviceArray, order: Sequence[int]) -> DeviceArray:
    """Return a view of the array with its dimensions in another order."""
    shape = tuple([array.shape[axis] for axis in order])
    return array.strided(shape, array.dtype, 0, tuple([array.strides[axis] for axis in order]))


def part_of(array: DeviceArray, axis: int, start: int, stop: int, step: int = 1) -> DeviceArray:
    """Return a view of every `step`-th slice from `start` to before `stop` along the dimension `axis`."""
    count = max(len(range(start, stop, step)), 0)
    shape = (*array.shape[:axis], count, *array.shape[axis + 1 :])
    strides = (*array.strides[:axis], array.strides[axis] * step, *array.strides[axis + 1 :])
    return array.strided(shape, array.dtype, start * array.strides[axis] if count else 0, strides)


@contextmanager
def in_order(launcher: Launcher, out: DeviceArray, dtype: np.dtype[Any] | None = None) -> Iterator[DeviceArray]:
    """Yield a contiguous array to be written, of `dtype` (None: that of `out`), whose contents `out` has afterwards."""
    fits = out.contiguous and dtype in (None, out.dtype)
    whole = out if fits else launcher.scratch(out.shape, out.dtype if dtype is None else dtype)
    yield whole
    if whole is not out:
        copy_array(launcher, whole, out)


@contextmanager
def changing(launcher: Launcher, array: DeviceArray, out: DeviceArray) -> Iterator[DeviceArray]:
    """Yield a contiguous array with the elements of `array`, to be changed, whose contents `out` has afterwards."""
    with in_order(launcher, out) as whole:
        if (whole.pointer, whole.strides, whole.dtype) != (array.pointer, array.strides, array.dtype):
            copy_array(launcher, separate(launcher, array, whole), whole)
        yield whole


# Sources

# Functions that statements may call.
_FUNCTIONS: Final = """
__device__ __forceinline__ int64 least(int64 p, int64 q) { return p < q ? p : q; }
__device__ __forceinline__ int64 most(int64 p, int64 q) { return p > q ? p : q; }
// The number from 0 to size - 1 that is nearest to an index.
__device__ __forceinline__ int64 within(int64 index, int64 size) { return most(least(index, size - 1), 0); }
// The number from 0 to size - 1 that is nearest to an index, which counts from the end if it is negative.
__device__ __forceinline__ int64 wrapped(int64 index, int64 size) {
    return within(index < 0 ? index + size : index, size);
}
"""


@lru_cache(_KERNELS)
def _kernel(program: Walk, rank: int) -> CudaKernel:
    arrays = (*program.outs, *program.arrays)
    dtypes = dict.fromkeys([dtype for _, dtype in arrays])
    name = f"{program.name}_{'_'.join(dtypes)}_{rank}"
    parameters = [f"{STORED[dtype]}* {out}" for out, dtype in program.outs]
    parameters += [f"const {STORED[dtype]}* {array}" for array, dtype in program.arrays]
    parameters += [f"int64 {number}" for number in program.numbers] + [f"double {number}" for number in program.real]
    parameters += ["int64 count", *[f"int64 walk_size{axis}" for axis in range(1, rank)]]
    names = [*[array for array, _ in arrays], *program.counters]
    parameters += [f"int64 {each}_step{axis}" for each in names for axis in range(rank)]
    body = "\n        ".join([*_places(names, rank), *program.lines])
    prelude = ELEMENTS_PRELUDE + COMPLEX_FUNCTIONS if any([dtype.startswith("complex") for dtype in dtypes]) else ""
    source = f"""{_FUNCTIONS}{prelude}{program.functions}
extern "C" __global__ void {name}({", ".join(parameters)}) {{
    const int64 threads = (int64)gridDim.x * blockDim.x;
    for (int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) {{
        {body}
    }}
}}
"""
    return CudaKernel(name, source, range(len(program.outs)))


def _places(names: Sequence[str], rank: int) -> list[str]:
    """Return C++ statements that compute the positions in arrays, and the counters' sums, from the place's number `i`.

    `names` are those of the arrays and counters.
    """
    lines = ["int64 left = i;", *[f"int64 {name}_place = 0;" for name in names]]
    for axis in range(rank - 1, 0, -1):
        lines.append(f"const int64 walk_index{axis} = left % walk_size{axis}; left /= walk_size{axis};")
        lines += [f"{name}_place += walk_index{axis} * {name}_step{axis};" for name in names]
    return [*lines, *[f"{name}_place += left * {name}_step0;" for name in names]]
