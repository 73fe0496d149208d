"""Choosing between two tensors, and limiting one."""

from __future__ import annotations

from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.kernels.numpy.ufuncs import constant, saturated
from vmflow.kernels.problems.elementwise import REVERSED

from .arrays import PACKAGE
from .generated import single_kernel


@builds("where", package=PACKAGE)
def _where(problem: Problem) -> Kernel:
    values = list(range(1, len(problem.inputs) + len(problem.scalars)))
    if problem.attributes == REVERSED:
        values.reverse()
    return single_kernel(problem, problem.outputs[0].dtype, (0, *values), constant)


@builds("clamp", package=PACKAGE)
def _clamp(problem: Problem) -> Kernel:
    # A limit counts as it is rounded in the dtype of the result.
    return single_kernel(problem, problem.outputs[0].dtype, range(3), saturated)
