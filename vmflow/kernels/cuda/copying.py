"""Copies, casts and filling."""

from __future__ import annotations

from typing import Any

from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, into_outs
from .pointwise import Pointwise, copy_array, fill_array, launch_pointwise


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
        if dtype.is_complex:
            part = "float" if dtype.itemsize == 8 else "double"
            made = f"{dtype.name}{{({part})s0, ({part})s1}}"
            function = Pointwise("fill", (), ("float64", "float64"), (), ((made, dtype.name),))
            launch_pointwise(launcher, function, (), (float(value.real), float(value.imag)), outs)
        else:
            kind = bool if dtype.name == "bool" else int
            fill_array(launcher, out, float(value) if dtype.is_floating_point else int(kind(value)))

    return Kernel(into_outs(launch, problem), casts=True)
