"""The polygamma functions."""

from __future__ import annotations

import math
from typing import Any

from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.kernels.numpy import special as of_cpu
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, into_outs
from .functions import polynomial
from .pointwise import Pointwise, launch_pointwise


@builds("polygamma", package=PACKAGE)
def _polygamma(problem: Problem) -> Kernel:
    (n,) = problem.attributes
    result = ("result", problem.outputs[0].dtype.name)
    function = Pointwise(f"polygamma_{n}", (problem.inputs[0].dtype.name,), (), tuple(_polygamma_lines(n)), (result,))

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        launch_pointwise(launcher, function, operands, (), outs)

    return Kernel(into_outs(launch, problem), casts=True)


def _polygamma_lines(n: int) -> list[str]:
    """Return C++ statements that compute polygamma(n, x) as the CPU does: in float64, by Hurwitz's zeta function of n +
    1, and by reflection where x is below 0.
    """
    sign, places = -1.0 if n % 2 == 0 else 1.0, of_cpu.FAR + 2
    lines = [
        "const double x = x0;",
        "const bool reflected = x < 0;",
        "const double y = reflected ? 1 - x : x;",
        "double total = 0;",
        f"for (int place = 0; place < {places}; place++) total += pow(y + place, {-float(n + 1)!r});",
        f"const double start = y + {places}, square = start * start;",
        f"const double power = pow(start, {-float(n + 1)!r});",
        f"total = total + power * start / {n} + power * 0.5;",
        f"double factor = {n + 1} / start;",
    ]
    for place, number in enumerate(of_cpu.BERNOULLI, 1):
        lines.append(f"total += power * factor * {number / math.factorial(2 * place)!r};")
        lines.append(f"factor *= {(n + 2 * place) * (n + 1 + 2 * place)} / square;")
    cotangent = polynomial("cotangent", of_cpu.derivative_of_cotangent(n))
    return [
        *lines,
        f"const double value = {sign * math.factorial(n)!r} * total;",
        "const double cotangent = 1 / tan(3.14159265358979323846 * (x - rint(x)));",
        f"const double result = reflected ? {-sign!r} * value - {math.pi ** (n + 1)!r} * {cotangent} : value;",
    ]
