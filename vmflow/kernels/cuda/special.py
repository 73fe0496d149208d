"""The polygamma functions."""

from __future__ import annotations

from typing import Any

from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.kernels.numpy import special as of_cpu
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, into_outs
from .pointwise import Pointwise, launch_pointwise


@builds("polygamma", package=PACKAGE)
def _polygamma(problem: Problem) -> Kernel:
    (n,) = problem.attributes
    result = ("result", problem.outputs[0].dtype.name)
    function = Pointwise(f"polygamma_{n}", (problem.inputs[0].dtype.name,), (), (_polygamma_line(n),), (result,))

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        launch_pointwise(launcher, function, operands, (), outs)

    return Kernel(into_outs(launch, problem), casts=True)


def _polygamma_line(n: int) -> str:
    """Return a C++ statement that computes polygamma(n, x) in float64."""
    unit, scale, scale_of_rest = of_cpu.polygamma_scales(n)
    return f"const double result = polygamma_of({n}, {unit!r}, {scale!r}, {scale_of_rest!r}, x0);"
