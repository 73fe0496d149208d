"""Reading and writing parts of an array, by indices and by strides."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from vmflow import dtypes
from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.kernels.problems.indexing import Geometry, Part, Writing
from vmflow.streams.cuda.arrays import DeviceArray, contiguous_strides
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, into_outs
from .checks import check_indices, check_range
from .pointwise import bits_of, copy_array
from .rows import RowReduction, reduce_rows
from .running import running
from .scans import scan
from .scattering import (
    ADD,
    ADD_TO_ZERO,
    Chosen,
    Places,
    Slices,
    broadcast_steps,
    combine_at,
    places_of,
    put_at,
)
from .walks import (
    Steps,
    Walk,
    Walked,
    along,
    changing,
    contiguous,
    in_order,
    part_of,
    separate,
    standing,
    steps_of,
    walk,
    walked,
)

# By indices


@builds("index", package=PACKAGE)
def _build_index(problem: Problem) -> Kernel:
    dims, from_the_end = problem.attributes

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (array, *indices), (out,) = operands, outs
        for dim, index in zip(dims, indices, strict=True):
            check_indices(launcher, "index_select", index, array.shape, dim, from_the_end)
        if array.size:
            array = separate(launcher, array, out)
            indices = [separate(launcher, index, out) for index in indices]
            read_at(launcher, array, dims, indices, out)

    return Kernel(into_outs(launch, problem), casts=True)


def read_at(
    launcher: Launcher, array: DeviceArray, dims: Sequence[int], indices: Sequence[DeviceArray], out: DeviceArray
) -> None:
    """Copy to `out` the elements that `indices` for the dimensions `dims` choose from an array, which has any strides,
    and is not empty.
    """
    if not array.ndim:  # indexed as an array of one element
        array = array.strided((1,), array.dtype)
    chosen = Chosen.by(array.ndim, dims, [index.shape for index in indices])
    own = steps_of(array)
    arrays = [Walked(array, chosen.steps_of_others(own))]
    arrays += [Walked(index, chosen.steps_of_joint(broadcast_steps(index))) for index in indices]
    numbers = [number for dim in dims for number in (array.shape[dim], own[dim])]
    program = _read(bits_of(array.dtype), tuple([index.dtype.name for index in indices]))
    walk(launcher, program, out.shape, [walked(out)], arrays, (), numbers)


@lru_cache(None)
def _read(dtype: str, indices: tuple[str, ...]) -> Walk:
    places = [f"wrapped(i{number}[i{number}_place], size{number}) * stride{number}" for number in range(len(indices))]
    lines = (f"out[out_place] = x[{' + '.join(['x_place', *places])}];",)
    arrays = (("x", dtype), *[(f"i{number}", index) for number, index in enumerate(indices)])
    numbers = tuple([f"{name}{number}" for number in range(len(indices)) for name in ("size", "stride")])
    return Walk("index", (("out", dtype),), arrays, (), numbers, lines)


def _whole(shape: Sequence[int]) -> Geometry:
    """Return the geometry (shape, strides, offset, in elements) of a contiguous array."""
    return tuple(shape), contiguous_strides(tuple(shape), 1), 0


def _named(
    launcher: Launcher,
    geometry: Geometry,
    dims: Sequence[int],
    indices: Sequence[DeviceArray],
    values: DeviceArray,
) -> tuple[Places, DeviceArray, Steps, tuple[int, ...], Slices]:
    """Return the arguments of `put_at` and `combine_at` that follow the target's memory, for `values` of the shape that
    the indices choose.
    """
    sizes, strides, offset = geometry
    chosen = Chosen.by(len(sizes), dims, [index.shape for index in indices])
    places = places_of(launcher, chosen, dims, indices, sizes, strides, offset)
    if isinstance(places.places, DeviceArray) and _may_overlap(sizes, strides):
        # Different indices, with different keys, may name the same place here, so the places are used as keys.
        reach = sum([(size - 1) * abs(stride) for size, stride in zip(sizes, strides, strict=True)])
        places = Places(places.places, offset + reach + 1, 0)
    own, at, end = broadcast_steps(values), chosen.at, chosen.end
    slices = Slices(
        tuple([sizes[axis] for axis in chosen.others]),
        tuple([strides[axis] for axis in chosen.others]),
        own[:at] + own[end:],
    )
    return places, values, own[at:end], chosen.joint, slices


def _may_overlap(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether different indices of an array with these sizes and strides may name the same element of memory."""
    reach = 0
    for stride, size in sorted([(abs(stride), size) for size, stride in zip(sizes, strides, strict=True) if size > 1]):
        if stride <= reach:
            return True
        reach += (size - 1) * stride
    return False


@builds("index_add_to_zeros", package=PACKAGE)
def _build_index_add_to_zeros(problem: Problem) -> Kernel:
    output, dims = problem.attributes

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        values, *indices = operands
        with in_order(launcher, outs[0]) as target:
            if target.size:
                launcher.fill(target, 0)
                named = _named(launcher, _whole(output.shape or (1,)), dims, indices, values)
                combine_at(launcher, ADD_TO_ZERO, target, *named)

    return Kernel(into_outs(launch, problem), casts=True)


@builds("index_put", package=PACKAGE)
def _build_index_put(problem: Problem) -> Kernel:
    dims, accumulate, part = problem.attributes
    details: Writing = problem.details
    shape = details.shape

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (array, new, *indices), (out,) = operands, outs
        view = part or _whole(array.shape or (1,))
        for dim, index in zip(dims, indices, strict=True):
            check_indices(launcher, "index_put", index, part[0] if part else array.shape, dim, from_the_end=True)
        new, *indices = [separate(launcher, operand, out) for operand in (new, *indices)]
        with changing(launcher, array, out) as target:
            if not prod(view[0]):
                return
            named = _named(launcher, view, dims, indices, _spread(new, shape))
            if accumulate:
                combine_at(launcher, ADD, target, *named)
            else:
                put_at(launcher, target, *named)

    return Kernel(into_outs(launch, problem), casts=True)


def _spread(array: DeviceArray, shape: tuple[int, ...]) -> DeviceArray:
    """Return a view of an array, broadcast to `shape`; the array's surplus leading dimensions of one element are
    dropped.
    """
    extra = max(array.ndim - len(shape), 0)
    sizes, strides = array.shape[extra:], array.strides[extra:]
    strides = tuple([0 if size == 1 else stride for size, stride in zip(sizes, strides, strict=True)])
    missing = len(shape) - len(sizes)
    return array.strided(shape, array.dtype, 0, (0,) * missing + strides)


# By strides


def _view(whole: DeviceArray, part: Part) -> DeviceArray:
    """Return the view of a contiguous array that `part` (sizes, strides, offset) describes; all if that is None."""
    if part is None:
        return whole
    sizes, strides, offset = part
    size = whole.itemsize
    return whole.strided(
        sizes, whole.dtype, 0 if 0 in sizes else offset * size, tuple([stride * size for stride in strides])
    )


@builds("strided_put", package=PACKAGE)
def _build_strided_put(problem: Problem) -> Kernel:
    (part,) = problem.attributes

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (array, new), (out,) = operands, outs
        new = separate(launcher, new, out)
        with changing(launcher, array, out) as target:
            copy_array(launcher, new, _view(target, part))

    return Kernel(into_outs(launch, problem), casts=True)


@builds("strided_get", package=PACKAGE)
def _build_strided_get(problem: Problem) -> Kernel:
    (part,) = problem.attributes

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (array,), (out,) = operands, outs
        copy_array(launcher, separate(launcher, _view(contiguous(launcher, array), part), out), out)

    return Kernel(into_outs(launch, problem), casts=True)


@builds("respread", package=PACKAGE)
def _build_respread(problem: Problem) -> Kernel:
    written, read = problem.attributes
    low, size = problem.details

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (array,), (out,) = operands, outs
        memory = launcher.scratch((size,), out.dtype)
        if size:
            launcher.fill(memory, 0)
        if array.size and size:
            shape, strides, offset = written
            keys = launcher.scratch((array.size,), np.dtype(np.int64))
            own = contiguous_strides(shape, 1)
            walk(launcher, _COUNTED, shape, [Walked(keys, own)], [], [strides], (offset - low,))
            rest = (steps_of(array), array.shape, Slices())
            combine_at(launcher, ADD_TO_ZERO, memory, Places(keys, size, 0), array, *rest)
        copy_array(launcher, _view(memory, (read[0], read[1], read[2] - low)), out)

    return Kernel(into_outs(launch, problem), casts=True)


_COUNTED = Walk(
    "counted", (("out", "int64"),), (), ("place",), ("offset",), ("out[out_place] = place_place + offset;",)
)

_COUNT = RowReduction("count", "0", "v", "p + q", "total", "int64")


@builds("count_nonzero", package=PACKAGE)
def _build_count_nonzero(problem: Problem) -> Kernel:
    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (array,), (out,) = operands, outs
        found = launcher.scratch(array.shape, np.dtype(np.bool_))
        copy_array(launcher, array, found)
        reduce_rows(launcher, _COUNT, found, range(array.ndim), out)

    return Kernel(into_outs(launch, problem), casts=True)


@builds("nonzero", package=PACKAGE)
def _build_nonzero(problem: Problem) -> Kernel:
    """Build the kernel of ``nonzero``: the indices of a nonzero element are written at a position that is the count of
    nonzero elements before it.
    """
    count, by_dimension = problem.attributes
    running_count = running("cumsum", dtypes.bool_, dtypes.int64)

    def changed(position: int, found: int) -> Exception:
        return RuntimeError(
            f"nonzero: {count} elements were counted, and {found} found: the tensor was changed meanwhile"
        )

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (array,), (out,) = operands, outs
        if not (array.ndim and array.size):
            return
        found = launcher.scratch((array.size,), np.dtype(np.bool_))
        copy_array(launcher, array, found.strided(array.shape, found.dtype))
        ranks = launcher.scratch(found.shape, np.dtype(np.int64))
        scan(launcher, running_count, (found,), 0, ranks)
        check_range(launcher, part_of(ranks, 0, array.size - 1, array.size), count, count + 1, changed)
        steps = steps_of(out)
        each, axis = steps[::-1] if by_dimension else steps
        own = contiguous_strides(array.shape, 1)
        arrays = [Walked(found, own), Walked(ranks, own)]
        counters = [along(dim, array.ndim) for dim in range(array.ndim)]
        walk(launcher, _put_indices(array.ndim), array.shape, [standing(out, array.ndim)], arrays, counters,
             (count, each, axis))  # fmt: skip

    return Kernel(into_outs(launch, problem), casts=True)


@lru_cache(None)
def _put_indices(ndim: int) -> Walk:
    lines = [
        "const int64 rank = ranks[ranks_place] - 1;",
        "if (!found[found_place] || rank >= count_of_all) continue;",
        *[f"out[rank * each + {axis} * axis_stride] = p{axis}_place;" for axis in range(ndim)],
    ]
    arrays = (("found", "bool"), ("ranks", "int64"))
    counters = tuple([f"p{axis}" for axis in range(ndim)])
    return Walk("nonzero", (("out", "int64"),), arrays, counters, ("count_of_all", "each", "axis_stride"), tuple(lines))
