"""Discrete Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.kernels.choosing import Function, Problem, builds, kernel_of

# transform(array, *attributes) returns the transform; the first attribute is the dimensions to transform.
Transform: TypeAlias = Callable[..., Array]


@kernel_of("fourier")
def _transformed(problem: Problem, array: Array, out: Array | None) -> Array:
    (output,) = problem.outputs
    if output.numel == 0:
        return np.empty(output.shape, output.dtype.numpy)
    found = _TRANSFORMS[problem.op](array, *problem.attributes)
    return np.ascontiguousarray(found).astype(output.dtype.numpy, copy=False)


def _whole(array: Array, dims: tuple[int, ...], inverse: bool, norm: Any) -> Array:
    function = np.fft.ifftn if inverse else np.fft.fftn
    return function(array, axes=dims, norm=norm)


def _to_half(array: Array, dims: tuple[int, ...], norm: Any) -> Array:
    return np.fft.rfftn(array, axes=dims, norm=norm)


def _from_half(array: Array, dims: tuple[int, ...], length: int, norm: Any) -> Array:
    """Transform a half spectrum back to a real array, whose last transformed dimension has `length` elements."""
    lengths = [*[array.shape[dim] for dim in dims[:-1]], length]
    return np.fft.irfftn(array, lengths, dims, norm)


_TRANSFORMS: Final[dict[str, Transform]] = {"fft": _whole, "rfft": _to_half, "irfft": _from_half}


@builds("weighted_half")
def _weighted(problem: Problem) -> Function:
    dim, length, weight = problem.attributes
    (source,) = problem.inputs
    weights = np.full(length // 2 + 1, weight, source.dtype.numpy)
    weights[0] = 1
    if length % 2 == 0:
        weights[-1] = 1
    weights = weights.reshape((-1,) + (1,) * (len(source.shape) - dim - 1))
    return lambda array, out: np.ascontiguousarray(np.multiply(array, weights))


@builds("frequencies")
def _frequencies(problem: Problem) -> Function:
    output, length, half = problem.attributes
    count = np.arange(output.numel)
    if not half:
        count[(length + 1) // 2 :] -= length
    return lambda distance, out: (count / (length * distance)).astype(output.dtype.numpy)
