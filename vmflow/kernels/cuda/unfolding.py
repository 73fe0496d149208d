"""The windows of images as columns, and columns added up to images."""

from __future__ import annotations

from typing import Any

from vmflow.kernels.choosing import Problem
from vmflow.kernels.numpy.half import computes_in
from vmflow.kernels.problems.convolution import Geometry

from .arrays import by_arrays
from .columns import columns, from_columns


@by_arrays("im2col")
def _unfold(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    it: Geometry = problem.details
    samples, rows, pixels = out.shape
    xp.copyto(out, columns(xp, array, it).reshape(rows, samples, pixels).swapaxes(0, 1))


@by_arrays("col2im")
def _fold(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    it: Geometry = problem.details
    wide = computes_in(problem.inputs[0].dtype)
    rows = array.swapaxes(0, 1).astype(wide, copy=False)
    xp.copyto(out, from_columns(xp, rows, it, len(array)), casting="unsafe")
