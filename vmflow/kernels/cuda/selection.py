"""Choosing between two tensors, and limiting one."""

from __future__ import annotations

from typing import Any

from vmflow.kernels.choosing import Problem
from vmflow.kernels.numpy.ufuncs import constant, saturated
from vmflow.kernels.problems.elementwise import REVERSED

from .arrays import by_arrays
from .half import computes_in


@by_arrays("where")
def _where(xp: Any, problem: Problem, condition: Any, *arguments: Any) -> None:
    *operands, out = arguments
    (output,) = problem.outputs
    arrays, to = len(problem.inputs) - 1, output.dtype.numpy
    values = [array.astype(to, copy=False) for array in operands[:arrays]]
    values += [constant(number, to).item() for number in operands[arrays:]]
    if problem.attributes == REVERSED:
        values.reverse()
    xp.copyto(out, xp.where(condition, *values), casting="unsafe")


@by_arrays("clamp")
def _clamp(xp: Any, problem: Problem, array: Any, low: Any, high: Any, out: Any) -> None:
    (output,) = problem.outputs
    to, compute = output.dtype.numpy, computes_in(output.dtype)
    least, most = (saturated(limit, to).astype(compute)[()] for limit in (low, high))
    # Into the dtype of the result first: a limit counts as it is rounded there.
    wide = array.astype(to, copy=False).astype(compute, copy=False)
    xp.copyto(out, xp.minimum(xp.maximum(wide, least), most), casting="unsafe")
