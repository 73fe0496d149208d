"""Copies, casts and filling."""

from __future__ import annotations

from typing import Any

from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, into_outs
from .pointwise import copy_array, fill_array


@builds("cast", "copy_", package=PACKAGE)
def _copy(problem: Problem) -> Kernel:
    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        copy_array(launcher, operands[0], outs[0])

    return Kernel(into_outs(launch, problem), casts=True)


@builds("fill", package=PACKAGE)
def _fill(problem: Problem) -> Kernel:
    dtype = problem.outputs[0].dtype

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (value,), (out,) = operands, outs
        fill_array(launcher, out, bool(value) if dtype.name == "bool" else value)

    return Kernel(into_outs(launch, problem), casts=True)
