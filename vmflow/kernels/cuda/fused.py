"""A chain of elementwise ops as one generated kernel, or, where that is missing, as the ops' kernels one by one."""

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
        # Compiling a kernel for eager ops that happen to follow each other must not block an event loop, except in the
        # mode "wait": until the kernel is compiled, the ops run one by one.
        wait = not fused.occasional or LOADER.mode == "wait"
        if not launch_pointwise(launcher, function, operands, numbers, outs, divided_by_zero, wait=wait):
            launch_one_by_one(launcher, operands, outs)

    def launch_one_by_one(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        # A result whose memory overlaps with an operand is written last, since later steps may still read the operand.
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
    """Return whether the memory of the result `out` may overlap with an operand's."""
    low, high = out.extent()
    extents = [operand.extent() for operand in operands]
    return any([start < high and low < stop for start, stop in extents])
