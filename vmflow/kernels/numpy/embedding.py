"""Embeddings: rows of a table by index, limits of the rows' norms, and the maxima's positions in each bag of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from vmflow import dtypes
from vmflow.instructions.blob import Array
from vmflow.kernels.choosing import Function, Problem, builds, kernel_of
from vmflow.kernels.native.indexing import AddRows
from vmflow.kernels.problems.embedding import wrong_offset


def _check_rows(index: Array, rows: int) -> None:
    """Raise IndexError unless all indices are from 0 to `rows` - 1; negative indices do not count from the end."""
    if index.size:
        low, high = int(index.min()), int(index.max())
        if low < 0 or high >= rows:
            raise IndexError(f"embedding: index {low if low < 0 else high} is out of range for a table of {rows} rows")


@kernel_of("embedding")
def _embedding(problem: Problem, places: Array, values: Array, out: Array | None) -> Array:
    _check_rows(places, len(values))
    # The indices are in range, so "clip" changes none.  By default numpy would check them, and buffer `out` for that.
    return np.take(values, places, 0, out, "clip")


@builds("embedding_gradient")
def _embedding_gradient(problem: Problem) -> Function:
    padding, by_frequency, rows = problem.attributes
    (output,) = problem.outputs
    width = output.shape[1]
    wide = dtypes.float32.numpy if dtypes.is_half(output.dtype) else output.dtype.numpy
    in_c = AddRows.of("add_rows", wide, problem.inputs[0].numel, 0) if output.device.type == "cpu" else None

    def kernel(array: Array, places: Array, out: Any) -> Array:
        _check_rows(places, rows)
        places = places.reshape(-1).astype(np.int64, copy=False)
        part = array.reshape(places.size, width).astype(wide, copy=False)
        if by_frequency:
            part = part / np.bincount(places, minlength=rows).astype(wide)[places][:, None]
        table = np.zeros(output.shape, wide)
        if in_c is None or not in_c.call(table, places, part):
            # By the positions of single elements, since numpy's `add.at` of whole rows takes several times as long.
            np.add.at(table.reshape(-1), (places[:, None] * width + np.arange(width)).reshape(-1), part.reshape(-1))
        if padding >= 0:
            table[padding] = 0
        return table.astype(output.dtype.numpy, copy=False)

    return kernel


@kernel_of("embedding_limit_norms")
def _limit_norms(problem: Problem, values: Array, places: Array, out: Array | None) -> Array:
    limit, order = problem.attributes
    if out is None:
        out = values.copy()
    elif out is not values:
        out[...] = values
    # An index out of range is skipped: the look-up that follows reports it, and the table's values are not lost.
    named = np.unique(places)
    named = named[(named >= 0) & (named < len(values))]
    norms = np.linalg.norm(values[named].astype(np.float64), order, 1)
    named, norms = named[norms > limit], norms[norms > limit]
    out[named] = (values[named] * (limit / (norms + 1e-7))[:, None]).astype(out.dtype)
    return out


@kernel_of("checked_offsets")
def _checked_offsets(problem: Problem, offsets: Array, out: Array | None) -> Array:
    (count,) = problem.attributes
    checked = offsets.astype(np.int64)
    limits = np.full(len(checked), count)
    limits[:1] = 0
    wrong = np.flatnonzero((checked < np.append(0, checked[:-1])[: len(checked)]) | (checked > limits))
    if wrong.size:
        raise wrong_offset(int(wrong[0]), int(checked[wrong[0]]), count)
    return checked


@kernel_of("largest_of_bag")
def _largest_of_bag(problem: Problem, values: Array, bag: Array, out: Array | None) -> Array:
    (bags,) = problem.attributes
    result = np.full(problem.outputs[0].shape, -1, np.int64)
    kept = np.flatnonzero(bag >= 0)
    # Among the kept rows, those of a bag are neighbours, and the bags' numbers ascend.
    borders = np.searchsorted(bag[kept], np.arange(bags + 1))
    for number in range(bags):
        places = kept[borders[number] : borders[number + 1]]
        if places.size:
            result[number] = places[values[places].argmax(0)]
    return result
