"""``im2col``: the windows of images as columns; and ``col2im``: columns added up to images."""

from __future__ import annotations

import numpy as np

from vmflow import dtypes
from vmflow.instructions.blob import Array
from vmflow.kernels.choosing import Function, Problem, builds
from vmflow.kernels.problems.convolution import Geometry

from .columns import Layout
from .half import in_single


@builds("im2col")
def _unfold(problem: Problem) -> Function:
    (output,) = problem.outputs
    geometry: Geometry = problem.details
    layout = Layout(geometry, geometry.samples)
    (samples, rows, pixels), to = output.shape, output.dtype.numpy

    def kernel(array: Array, out: Array | None) -> Array:
        result = np.empty((samples, rows, pixels), to) if out is None else out
        columns = layout.columns(array)
        if layout.batch_last:
            result[...] = columns.reshape(rows, pixels, samples).transpose(2, 0, 1)
        else:
            result[...] = columns.reshape(rows, samples, pixels).transpose(1, 0, 2)
        return result

    return kernel


@builds("col2im")
def _fold(problem: Problem) -> Function:
    geometry: Geometry = problem.details
    layout = Layout(geometry, geometry.samples)

    def kernel(array: Array, out: Array | None) -> Array:
        inside = array.transpose(1, 2, 0) if layout.batch_last else array.transpose(1, 0, 2)
        return np.array(layout.from_columns(np.ascontiguousarray(inside)), order="C")

    return in_single(kernel, dtypes.is_half(problem.inputs[0].dtype))
