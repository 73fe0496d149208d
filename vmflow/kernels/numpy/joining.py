"""Ops that join, repeat, flip or roll arrays, or keep their triangles."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.kernels.choosing import Function, Problem, builds, kernel_of


@builds("cat")
def _cat(problem: Problem) -> Function:
    (axis,) = problem.attributes
    (output,) = problem.outputs
    to = output.dtype.numpy

    def kernel(*arguments: Any) -> Array:
        *arrays, out = arguments
        if out is None:
            out = np.empty(output.shape, to)
        return np.concatenate(arrays, axis, out)

    return kernel


@kernel_of("repeat")
def _repeat(problem: Problem, array: Array, out: Array | None) -> Array:
    return np.ascontiguousarray(np.tile(array, *problem.attributes)).reshape(problem.outputs[0].shape)


@kernel_of("repetitions")
def _repetitions(problem: Problem, array: Array, out: Array | None) -> Array:
    if (array < 0).any():
        raise ValueError(
            f"repeat_interleave: expected {len(array)} numbers that are not negative, got {array.tolist()}"
        )
    return np.asarray(np.add.reduce(array, dtype=np.int64))


@kernel_of("repeated_places")
def _repeated_places(problem: Problem, array: Array, out: Array | None) -> Array:
    (total,) = problem.attributes
    found = np.repeat(np.arange(len(array)), array.astype(np.int64, copy=False))
    if len(found) != total:
        raise RuntimeError(
            f"repeat_interleave: {len(found)} repetitions where {total} were counted: they were changed meanwhile"
        )
    return found


@kernel_of("flip")
def _flip(problem: Problem, array: Array, out: Array | None) -> Array:
    (dims,) = problem.attributes
    return np.flip(array, dims).copy(order="C") if dims else array.copy(order="C")


@kernel_of("roll")
def _roll(problem: Problem, array: Array, out: Array | None) -> Array:
    return np.ascontiguousarray(np.roll(array, *problem.attributes)).reshape(array.shape)


# The most rows of a triangle that are computed together.
_BAND: Final = 64


@kernel_of("triangle")
def _triangle(problem: Problem, array: Array, out: Array | None) -> Array:
    lower, diagonal = problem.attributes
    nothing = np.zeros((), array.dtype)
    result = np.empty(array.shape, array.dtype) if out is None else out
    rows, columns = array.shape[-2:]
    for start in range(0, rows, _BAND):
        band = slice(start, min(start + _BAND, rows))
        # Left of column `first` the whole band is kept if `lower`, else cleared; from `second` on, the reverse.
        first = min(max(band.start + diagonal + (1 if lower else 0), 0), columns)
        second = min(max(band.stop + diagonal, first), columns)
        kept, cleared = (slice(first), slice(second, None)) if lower else (slice(second, None), slice(first))
        result[..., band, kept] = array[..., band, kept]
        result[..., band, cleared] = 0
        offset = start + diagonal - first - (0 if lower else 1)
        below = np.tri(band.stop - start, second - first, offset, dtype=bool)
        result[..., band, first:second] = np.where(below == lower, array[..., band, first:second], nothing)
    return result
