"""Choosing between two tensors (``where``), and limiting one (``clamp``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from vmflow import dtypes
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
    to = problem.outputs[0].dtype
    # Half precision is moved as int16: variables hold it in float32, and the conversion would change the bits of some
    # nans.
    if dtypes.is_half(to) and all([meta.dtype is to for meta in problem.inputs[1:]]):
        return single_kernel(problem, dtypes.int16, (0, *values), _bits_of(to), moves=True)
    return single_kernel(problem, to, (0, *values), constant)


def _bits_of(half: dtypes.dtype) -> Any:
    return lambda number, _: constant(number, half.numpy).view(np.int16)


@builds("clamp", package=PACKAGE)
def _clamp(problem: Problem) -> Kernel:
    # A limit is converted to the result's dtype before elements are compared with it.
    return single_kernel(problem, problem.outputs[0].dtype, range(3), saturated)
