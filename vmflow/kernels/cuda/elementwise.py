"""Elementwise ops, each by one generated kernel.

Operands are cast to the dtype in which the op computes, and numbers are converted as on the CPU.
Half precision is computed in float32, and the result is rounded.
"""

from __future__ import annotations

from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.kernels.numpy import arithmetic as _conversions_of_numbers  # noqa: F401 (which it declares)
from vmflow.kernels.numpy.ufuncs import number_of
from vmflow.kernels.problems.elementwise import REVERSED, Elementwise

from .arrays import PACKAGE
from .generated import single_kernel


@builds("elementwise", package=PACKAGE)
def _build(problem: Problem) -> Kernel:
    details: Elementwise = problem.details
    order = list(range(len(problem.inputs) + len(problem.scalars)))
    if problem.attributes == REVERSED:
        order.reverse()
    return single_kernel(problem, details.compute, order, number_of(problem.op))
