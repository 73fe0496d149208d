"""New arrays from sizes and ranges."""

from __future__ import annotations

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.kernels.choosing import Function, Problem, builds, kernel_of


@builds("empty")
def _empty(problem: Problem) -> Function:
    (output,) = problem.outputs
    return lambda out: np.empty(output.shape, output.dtype.numpy) if out is None else out


@kernel_of("arange")
def _range(problem: Problem, start: float, step: float, out: Array | None) -> Array:
    (output,) = problem.outputs
    to = output.dtype.numpy
    count = np.arange(output.numel)
    return (start + step * count).astype(to) if step != 1 or start != 0 else count.astype(to)


@kernel_of("linspace")
def _linspace(problem: Problem, start: float, end: float, out: Array | None) -> Array:
    (output,) = problem.outputs
    steps = output.numel
    step = (end - start) / (steps - 1) if steps > 1 else 0.0
    count = np.arange(steps)
    # The first half counts from the start, the second from the end, so that both ends are exact.
    values = np.where(count < steps / 2, start + step * count, end - step * (steps - 1 - count))
    return values.astype(output.dtype.numpy)


@kernel_of("eye")
def _eye(problem: Problem, out: Array | None) -> Array:
    (output,) = problem.outputs
    return np.eye(*output.shape, dtype=output.dtype.numpy)


@kernel_of("triangle_places")
def _triangle_places(problem: Problem, out: Array | None) -> Array:
    output, row, col, offset, lower = problem.attributes
    # For each row, the column where the lower triangle ends, or the upper one begins.
    border = (np.arange(row) + (offset + lower)).clip(0, col)
    counts = border if lower else col - border
    first = (0 if lower else border) - (np.cumsum(counts) - counts)
    found = np.empty(output.shape, output.dtype.numpy)
    found[0] = np.repeat(np.arange(row), counts)
    found[1] = np.arange(found.shape[1]) + np.repeat(first, counts)
    return found
