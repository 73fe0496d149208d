"""Several elementwise ops as one kernel, or, if one of them cannot be written so, by their own kernels one by one."""

from __future__ import annotations

from typing import Any

from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.kernels.native.loading import LOADER
from vmflow.kernels.problems.fused import Fused
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, into_outs
from .generated import chain, divided_by_zero
from .pointwise import copy_array, launch_pointwise


@builds("fused", package=PACKAGE)
def _fused(problem: Problem) -> Kernel:
    fused: Fused = problem.details
    generated = chain([meta.dtype.name for meta in problem.inputs], fused.steps, fused.outputs)

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        assert generated is not None
        function, numbers = generated
        # Ops that happen to follow each other should not block an event loop while they are compiled as one.
        wait = not fused.occasional or LOADER.mode == "wait"
        if not launch_pointwise(launcher, function, operands, numbers, outs, divided_by_zero, wait=wait):
            launch_one_by_one(launcher, operands, outs)

    def launch_one_by_one(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        # An output may share an operand's memory, which later steps may still read.
        wanted = dict(zip(fused.outputs, outs, strict=True))
        written = {place: out for place, out in wanted.items() if not _overlaps(out, operands)}
        values = list(operands)
        for place, step in enumerate(fused.steps):
            given = [values[operand] for operand in step.operands]
            values.append(step.kernel.function(*given, *step.scalars, written.get(place)))
        for place in wanted.keys() - written.keys():
            copy_array(launcher, values[len(operands) + place], wanted[place])

    return Kernel(into_outs(launch_one_by_one if generated is None else launch, problem), casts=True)


def _overlaps(out: DeviceArray, operands: tuple[Any, ...]) -> bool:
    """Whether a result overlaps with an operand."""
    low, high = out.extent()
    extents = [operand.extent() for operand in operands]
    return any([start < high and low < stop for start, stop in extents])
