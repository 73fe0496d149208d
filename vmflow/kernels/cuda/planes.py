"""Images as planes, one for each sample and channel: the largest elements of windows, and gathering and scattering by
indices in flat planes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.driver import Argument
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, into_outs
from .checks import check_range
from .pointwise import bits_of
from .sources import COMPUTED, STORED
from .walks import Walk, Walked, along, contiguous, in_order, standing, steps_of, walk, walked
from .windows import Loop, names, searched


def over_planes(
    launcher: Launcher, program: Walk, array: DeviceArray, outs: Sequence[DeviceArray], numbers: Sequence[Argument]
) -> None:
    """Run a program for each element of the result ``outs[0]``, (samples, channels, ...); the element's indices in its
    plane are the counters p0, p1, ...

    The strides of `array`, the program's `x`, within a plane are the program's first numbers: x_stride0...  Then come
    `numbers`.
    """
    sample, channel, *strides = steps_of(array)
    shape, rank = outs[0].shape, len(strides)
    source = Walked(array, (sample, channel, *(0,) * rank))
    counters = [along(2 + axis, 2 + rank) for axis in range(rank)]
    walk(launcher, program, shape, list(map(walked, outs)), [source], counters, (*strides, *numbers))


def launch_largest(
    launcher: Launcher,
    loops: tuple[Loop, ...],
    known: tuple[str, ...],
    better: str,
    array: DeviceArray,
    outs: Sequence[DeviceArray],
    numbers: Sequence[Argument],
) -> None:
    """Find the largest element of each window, and if there is a second result, its index in the flat plane.

    Args:
        launcher: of the stream.
        loops: the loops over a window, one for each dimension.
        known: the names of the numbers that the loops need for each dimension; `size` is among them.
        better: a C++ condition: whether an element `v` replaces the `best` one before it.
        array: the images, (samples, channels, ...).
        outs: the results.
        numbers: the values of the numbers in `known`, for all dimensions.
    """
    over_planes(launcher, _largest(loops, known, better, array.dtype.name, len(outs) > 1), array, outs, numbers)


@lru_cache(None)
def _largest(loops: tuple[Loop, ...], known: tuple[str, ...], better: str, dtype: str, places: bool) -> Walk:
    rank, compute = len(loops), COMPUTED[dtype]
    index = "at0"
    for axis in range(1, rank):
        index = f"({index}) * size{axis} + at{axis}"
    place = " + ".join(["x_place", *[f"at{axis} * x_stride{axis}" for axis in range(rank)]])
    body = [
        f"const {STORED[dtype]} bits = x[{place}];",
        f"const {compute} v = converted<{compute}>(bits);",
        f"if (found < 0 || {better}) {{ best = v; kept = bits; found = {index}; }}",
    ]
    lines = [
        "int64 found = -1;",
        f"{compute} best = 0;",
        f"{STORED[dtype]} kept = converted<{STORED[dtype]}>(0);",
        *searched(loops, body),
        "out[out_place] = kept;",
    ]
    outs: tuple[tuple[str, str], ...] = (("out", dtype),)
    if places:
        lines.append("places[places_place] = found;")
        outs += (("places", "int64"),)
    numbers = (*names(rank, ("x_stride",)), *names(rank, known))
    return Walk("largest", outs, (("x", dtype),), names(rank, ("p",)), numbers, tuple(lines))


# Gathering and scattering by flat indices into all dimensions behind the channels


def _check_places(launcher: Launcher, problem: Problem, places: DeviceArray, plane: int) -> None:
    def explain(position: int, value: int) -> Exception:
        return IndexError(f"{problem.op}: index {value} is out of range for a plane of {plane} elements")

    check_range(launcher, places, 0, plane, explain)


@builds("plane_gather", package=PACKAGE)
def _build_gather(problem: Problem) -> Kernel:
    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        array, places = operands
        (out,) = outs
        plane = prod(array.shape[2:])
        _check_places(launcher, problem, places, plane)
        if not plane:
            return
        source = contiguous(launcher, array)
        sample, channel, *_ = steps_of(source)
        steps = (sample, channel, *(0,) * (out.ndim - 2))
        walked_through = [Walked(source, steps), walked(places)]
        walk(launcher, _gather(bits_of(out.dtype)), out.shape, [walked(out)], walked_through, (), (plane,))

    return Kernel(into_outs(launch, problem), casts=True)


@lru_cache(None)
def _gather(dtype: str) -> Walk:
    lines = (
        "const int64 place = within(places[places_place], plane);",
        "out[out_place] = x[x_place + place];",
    )
    return Walk("plane_gather", (("out", dtype),), (("x", dtype), ("places", "int64")), (), ("plane",), lines)


@builds("plane_scatter", package=PACKAGE)
def _build_scatter(problem: Problem) -> Kernel:
    """Build the kernel that sums up, for each element of the result, the values whose index names it: 0 without any.
    Overlapping windows may share their largest element: their gradients are added in the order of windows.

    Threads link each element's values to a list, in any order.  After max pooling, a list is no longer than the number
    of windows that contain an element; so the element's thread searches the list again and again for the next
    value in order.
    """
    int64 = np.dtype(np.int64)

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        values, places = [contiguous(launcher, operand) for operand in operands]
        plane, count = prod(outs[0].shape[2:]), prod(values.shape[2:])
        _check_places(launcher, problem, places, plane)
        with in_order(launcher, outs[0]) as out:
            if not out.size:
                return
            heads, following = launcher.scratch((out.size,), int64), launcher.scratch((values.size,), int64)
            launcher.fill(heads, 255)
            lists = [standing(heads, 1), standing(following, 1)]
            walk(launcher, _LINK, (values.size,), lists, [standing(places, 1)], [(1,)], (count, plane))
            program = _sum_of_list(values.dtype.name, out.dtype.name)
            walk(launcher, program, (out.size,), [Walked(out, (1,))], [*lists, standing(values, 1)], [(1,)])

    return Kernel(into_outs(launch, problem), casts=True)


_LINK = Walk(
    "link",
    (("heads", "int64"), ("following", "int64")),
    (("places", "int64"),),
    ("n",),
    ("per_plane", "plane"),
    (
        "const int64 place = n_place / per_plane * plane + within(places[n_place], plane);",
        "following[n_place] = atomicExch((unsigned long long*)heads + place, (unsigned long long)n_place);",
    ),
)


@lru_cache(None)
def _sum_of_list(given: str, wanted: str) -> Walk:
    compute = COMPUTED[given]
    lines = (
        f"{compute} total = 0;",
        "const int64 first = heads[n_place];",
        "for (int64 last = -1, next; first >= 0; last = next) {",
        "next = -1;",
        "for (int64 at = first; at >= 0; at = following[at])",
        "if (at > last && (next < 0 || at < next)) next = at;",
        "if (next < 0) break;",
        f"total = total + converted<{compute}>(values[next]);",
        "}",
        f"out[out_place] = converted<{STORED[wanted]}>(total);",
    )
    arrays = (("heads", "int64"), ("following", "int64"), ("values", given))
    return Walk("sum_of_list", (("out", wanted),), arrays, ("n",), (), lines)
