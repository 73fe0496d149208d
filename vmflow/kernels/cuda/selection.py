"""Choosing between two tensors, and limiting one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.kernels.numpy.ufuncs import constant, saturated
from vmflow.kernels.problems.elementwise import REVERSED
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, array_kernel, into_outs
from .generated import numbers_as, single
from .half import computes_in
from .pointwise import Pointwise, launch_pointwise


@builds("where", package=PACKAGE)
def _build_where(problem: Problem) -> Kernel:
    inputs = [meta.dtype.name for meta in problem.inputs]
    numbers, to = len(problem.scalars), problem.outputs[0].dtype
    values = list(range(1, len(inputs) + numbers))
    if problem.attributes == REVERSED:
        values.reverse()
    function = single("where", inputs, numbers, (0, *values), to, to)
    return array_kernel(_where, problem) if function is None else _generated(problem, function, constant)


@builds("clamp", package=PACKAGE)
def _build_clamp(problem: Problem) -> Kernel:
    to = problem.outputs[0].dtype
    function = single("clamp", [problem.inputs[0].dtype.name], 2, range(3), to, to)
    # A limit counts as it is rounded in the dtype of the result.
    return array_kernel(_clamp, problem) if function is None else _generated(problem, function, saturated)


def _generated(problem: Problem, function: Pointwise, number: Callable[[Any, Any], Any]) -> Kernel:
    to, arrays = problem.outputs[0].dtype, len(problem.inputs)

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        held = [number(value, to.numpy) for value in operands[arrays:]]
        launch_pointwise(launcher, function, operands[:arrays], numbers_as(to, held), outs)

    return Kernel(into_outs(launch, problem), casts=True)


def _where(xp: Any, problem: Problem, condition: Any, *arguments: Any) -> None:
    *operands, out = arguments
    (output,) = problem.outputs
    arrays, to = len(problem.inputs) - 1, output.dtype.numpy
    values = [array.astype(to, copy=False) for array in operands[:arrays]]
    values += [constant(number, to).item() for number in operands[arrays:]]
    if problem.attributes == REVERSED:
        values.reverse()
    xp.copyto(out, xp.where(condition, *values), casting="unsafe")


def _clamp(xp: Any, problem: Problem, array: Any, low: Any, high: Any, out: Any) -> None:
    (output,) = problem.outputs
    to, compute = output.dtype.numpy, computes_in(output.dtype)
    least, most = (saturated(limit, to).astype(compute)[()] for limit in (low, high))
    # Into the dtype of the result first: a limit counts as it is rounded there.
    wide = array.astype(to, copy=False).astype(compute, copy=False)
    xp.copyto(out, xp.minimum(xp.maximum(wide, least), most), casting="unsafe")
