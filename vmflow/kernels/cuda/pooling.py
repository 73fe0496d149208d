"""Pooling: loops go through windows, or, for the gradient of averages, through the windows that contain an element."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.kernels.problems.pooling import Window
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.driver import Argument
from vmflow.streams.cuda.launching import Launcher

from . import adaptive_pooling as adaptive_pooling, planes as planes
from .arrays import PACKAGE, into_outs
from .planes import launch_largest, over_planes
from .sources import COMPUTED, STORED
from .walks import Walk
from .windows import WINDOW_NUMBERS, names, summed, taps_of_window, window_numbers, windows_of_place


@builds("max_pool1d", "max_pool2d", "max_pool3d", package=PACKAGE)
@builds("max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices", package=PACKAGE)
def _build_max(problem: Problem) -> Kernel:
    windows: tuple[Window, ...] = problem.details
    loops = tuple([taps_of_window(axis) for axis in range(len(windows))])

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        # The last nan of a window is its largest element.
        better = "v != v || v > best"
        launch_largest(launcher, loops, WINDOW_NUMBERS, better, operands[0], outs, window_numbers(windows))

    return Kernel(into_outs(launch, problem), casts=True)


@builds("avg_pool1d", "avg_pool2d", "avg_pool3d", package=PACKAGE)
def _build_mean(problem: Problem) -> Kernel:
    return _build_sum(problem, by_window=True)


@builds("avg_pool1d_gradient", "avg_pool2d_gradient", "avg_pool3d_gradient", package=PACKAGE)
def _build_mean_gradient(problem: Problem) -> Kernel:
    return _build_sum(problem, by_window=False)


def _build_sum(problem: Problem, by_window: bool) -> Kernel:
    windows: tuple[Window, ...] = problem.details
    options = problem.attributes
    numbers: list[Argument] = [options.override or 0, *window_numbers(windows, options.with_padding)]

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (array,), (out,) = operands, outs
        program = _sum(len(windows), by_window, options.override is not None, array.dtype.name, out.dtype.name)
        over_planes(launcher, program, array, outs, numbers)

    return Kernel(into_outs(launch, problem), casts=True)


@lru_cache(None)
def _sum(rank: int, by_window: bool, overridden: bool, given: str, wanted: str) -> Walk:
    """Build average pooling (`by_window`), or its gradient: for each element, the sum of the gradients of the windows
    that contain it, each divided by the window's divisor.
    """
    compute = COMPUTED[given]
    loops = [(axis, taps_of_window(axis) if by_window else windows_of_place(axis)) for axis in range(rank)]
    counted = " * ".join([loop.length for _, loop in loops])
    divisor = f"({compute})({'override' if overridden else counted})"
    place = " + ".join(["x_place", *[f"at{axis} * x_stride{axis}" for axis in range(rank)]])
    value = f"converted<{compute}>(x[{place}])"
    if by_window:
        # The divisor is used behind the loops, where variables of inner loops are gone: so it uses others, begin0, ...
        starts = [f"const int64 begin{axis} = p{axis}_place * stride{axis} - padding{axis};" for axis in range(rank)]
        for axis in range(rank):
            divisor = divisor.replace(f"start{axis}", f"begin{axis}")
        lines, total = summed(loops, compute, value)
        lines = [*starts, *lines]
        result = f"{total} / {divisor}"
    else:
        lines, result = summed(loops[::-1], compute, f"{value} / {divisor}")
    lines = [*lines, f"out[out_place] = converted<{STORED[wanted]}>({result});"]
    numbers = (*names(rank, ("x_stride",)), "override", *names(rank, WINDOW_NUMBERS))
    counters = names(rank, ("p",))
    name = "mean_of_window" if by_window else "shares_of_windows"
    return Walk(name, (("out", wanted),), (("x", given),), counters, numbers, tuple(lines))
