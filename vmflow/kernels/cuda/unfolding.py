"""``im2col``: the windows of images as columns; and ``col2im``: columns added up to images."""

from __future__ import annotations

from typing import Any

from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.kernels.problems.convolution import Geometry
from vmflow.streams.cuda.arrays import DeviceArray, contiguous_strides
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, into_outs
from .columns import column_shape, from_columns, to_columns
from .walks import Steps, contiguous, in_order


def _steps(sizes: Geometry) -> Steps:
    """Return the steps of contiguous columns (samples, channels and taps, pixels) along the dimensions of
    `column_shape`.
    """
    channels, *rest = column_shape(sizes, sizes.samples)
    taps, samples, pixels = rest[: sizes.rank], rest[sizes.rank], rest[sizes.rank + 1 :]
    sample, *steps = contiguous_strides((samples, channels, *taps, *pixels), 1)
    return (*steps[: sizes.rank + 1], sample, *steps[sizes.rank + 1 :])


@builds("im2col", package=PACKAGE)
def _build_unfold(problem: Problem) -> Kernel:
    sizes: Geometry = problem.details

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        with in_order(launcher, outs[0]) as out:
            to_columns(launcher, operands[0], sizes, out, _steps(sizes))

    return Kernel(into_outs(launch, problem), casts=True)


@builds("col2im", package=PACKAGE)
def _build_fold(problem: Problem) -> Kernel:
    sizes: Geometry = problem.details

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        from_columns(launcher, contiguous(launcher, operands[0]), _steps(sizes), sizes, outs[0])

    return Kernel(into_outs(launch, problem), casts=True)
