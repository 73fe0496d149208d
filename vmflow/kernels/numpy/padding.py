"""Elements added around arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from vmflow import dtypes
from vmflow.instructions.blob import Array
from vmflow.kernels.choosing import Function, Problem, builds, kernel_of

from .half import in_single
from .ufuncs import constant

# The numbers of elements added at the beginning and the end of each dimension.
Pairs: TypeAlias = Sequence[tuple[int, int]]


@builds("pad")
def _pad(problem: Problem) -> Function:
    (source,), (output,) = problem.inputs, problem.outputs
    shape, to = output.shape, output.dtype.numpy
    inside = tuple(
        [slice(before, before + size) for size, (before, _) in zip(source.shape, problem.attributes, strict=True)]
    )

    def kernel(array: Array, value: Any, out: Array | None) -> Array:
        if out is None:
            out = np.empty(shape, to)
        out[...] = constant(value, to)
        out[inside] = array
        return out

    return kernel


# Borders made of interior elements


def interior(pairs: Pairs, shape: Sequence[int]) -> tuple[slice, ...]:
    return tuple([slice(before, length - after) for length, (before, after) in zip(shape, pairs, strict=True)])


def border_part(axis: int, part: slice, pairs: Pairs, shape: Sequence[int]) -> tuple[slice, ...]:
    """Return an index that takes `part` of dimension `axis`, all of earlier ones, and the interior of later ones."""
    return (*[slice(None)] * axis, part, *interior(pairs, shape)[axis + 1 :])


def copies(mode: str, pair: tuple[int, int], length: int) -> list[tuple[slice, slice]]:
    """Return (border, repeated elements), slices along a padded dimension, for each border that is not empty."""
    before, after = pair
    end = length - after
    found: list[tuple[slice, slice]] = []
    if mode == "replicate":
        found = [(slice(0, before), slice(before, before + 1)), (slice(end, length), slice(end - 1, end))]
    elif mode == "circular":
        found = [(slice(0, before), slice(end - before, end)), (slice(end, length), slice(before, before + after))]
    else:
        # "reflect": a border repeats the interior backwards, without the interior's outermost element.
        stop = end - 2 - after
        left, right = slice(2 * before, before, -1), slice(end - 2, stop if stop >= 0 else None, -1)
        found = [(slice(0, before), left), (slice(end, length), right)]
    return [value for value, size in zip(found, pair, strict=True) if size]


@kernel_of("pad_borders")
def _borders(problem: Problem, array: Array, out: Array | None) -> Array:
    mode, pairs = problem.attributes
    (output,) = problem.outputs
    shape, to = output.shape, output.dtype.numpy
    inside = interior(pairs, shape)
    result = np.empty(shape, to) if out is None else out
    result[inside] = array
    for axis, pair in enumerate(pairs):
        for border, origin in copies(mode, pair, shape[axis]):
            result[border_part(axis, border, pairs, shape)] = result[border_part(axis, origin, pairs, shape)]
    return result


@builds("pad_borders_gradient")
def _borders_gradient(problem: Problem) -> Function:
    mode, pairs = problem.attributes
    (gradient,) = problem.inputs
    shape = gradient.shape
    inside = interior(pairs, shape)

    def kernel(array: Array, out: Array | None) -> Array:
        whole = np.array(array, order="C")
        for axis, pair in reversed(list(enumerate(pairs))):
            for border, origin in copies(mode, pair, shape[axis]):
                part = whole[border_part(axis, border, pairs, shape)]
                if mode == "replicate":
                    part = np.add.reduce(part, axis, keepdims=True)
                target = whole[border_part(axis, origin, pairs, shape)]
                np.add(target, part, target)
        return np.ascontiguousarray(whole[inside])

    return in_single(kernel, dtypes.is_half(gradient.dtype))
