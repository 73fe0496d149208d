"""Adaptive pooling: the windows divide each pooled dimension as evenly as possible.

If the number of windows does not divide the size, neighbouring windows may share an element, and their lengths may
differ by one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.driver import Argument
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, into_outs
from .planes import launch_largest, over_planes
from .sources import COMPUTED, STORED
from .walks import Walk
from .windows import EVEN_NUMBERS, Loop, even_window, even_windows_of_place, names, summed


def _numbers(given: DeviceArray, wanted: DeviceArray) -> list[Argument]:
    """Return for each pooled dimension the numbers of elements (`given`) and windows (`wanted`): see `EVEN_NUMBERS`."""
    return [number for pair in zip(given.shape[2:], wanted.shape[2:], strict=True) for number in pair]


@builds("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", package=PACKAGE)
def _build_max(problem: Problem) -> Kernel:
    loops = tuple([even_window(axis) for axis in range(len(problem.inputs[0].shape) - 2)])

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (array,), (out, _) = operands, outs
        # The last nan of a window is its largest element, as in PyTorch.
        better = "v != v || v > best"
        launch_largest(launcher, loops, EVEN_NUMBERS, better, array, outs, _numbers(array, out))

    return Kernel(into_outs(launch, problem), casts=True)


@builds("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", package=PACKAGE)
def _build_mean(problem: Problem) -> Kernel:
    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (array,), (out,) = operands, outs
        program = _mean(array.ndim - 2, True, array.dtype.name, out.dtype.name)
        over_planes(launcher, program, array, outs, _numbers(array, out))

    return Kernel(into_outs(launch, problem), casts=True)


@builds("adaptive_avg_pool1d_gradient", "adaptive_avg_pool2d_gradient", "adaptive_avg_pool3d_gradient", package=PACKAGE)
def _build_mean_gradient(problem: Problem) -> Kernel:
    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (gradient,), (out,) = operands, outs
        program = _mean(gradient.ndim - 2, False, gradient.dtype.name, out.dtype.name)
        over_planes(launcher, program, gradient, outs, _numbers(out, gradient))

    return Kernel(into_outs(launch, problem), casts=True)


@lru_cache(None)
def _mean(rank: int, by_window: bool, given: str, wanted: str) -> Walk:
    """Build average pooling (`by_window`), or its gradient: for each element, the sum of the gradients of the windows
    that contain it, each divided by the window's number of elements.
    """
    compute = COMPUTED[given]

    def divided(loop: Loop, value: str) -> str:
        return f"{value} / ({compute}){loop.length}"

    place = " + ".join(["x_place", *[f"at{axis} * x_stride{axis}" for axis in range(rank)]])
    value = f"converted<{compute}>(x[{place}])"
    if by_window:
        lines, result = summed([(axis, even_window(axis)) for axis in range(rank)], compute, value, total=divided)
    else:
        loops = [(axis, even_windows_of_place(axis)) for axis in reversed(range(rank))]
        lines, result = summed(loops, compute, value, share=divided)
    lines = [*lines, f"out[out_place] = converted<{STORED[wanted]}>({result});"]
    numbers = (*names(rank, ("x_stride",)), *names(rank, EVEN_NUMBERS))
    name = "mean_of_part" if by_window else "shares_of_parts"
    return Walk(name, (("out", wanted),), (("x", given),), names(rank, ("p",)), numbers, tuple(lines))
