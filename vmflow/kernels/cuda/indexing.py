"""Reading and writing parts of an array, by indices and by how they lie in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vmflow.kernels.choosing import Problem
from vmflow.kernels.problems.indexing import Geometry, Part, Writing
from vmflow.streams.cuda.arrays import contiguous_strides
from vmflow.streams.cuda.launching import Launcher

from .arrays import by_arrays
from .bits import as_bits, comparable, converted
from .checks import check_indices
from .scattering import add_at, changing, coordinates, places_in, put_at, within

# By indices


def _check_read(launcher: Launcher, problem: Problem, operands: tuple[Any, ...]) -> None:
    array, *indices = operands
    dims, from_the_end = problem.attributes
    for dim, index in zip(dims, indices, strict=True):
        check_indices(launcher, "index_select", index, array.shape, dim, from_the_end)


def _check_written(launcher: Launcher, problem: Problem, operands: tuple[Any, ...]) -> None:
    array, _, *indices = operands
    dims, _, part = problem.attributes
    for dim, index in zip(dims, indices, strict=True):
        check_indices(launcher, "index_put", index, part[0] if part else array.shape, dim, from_the_end=True)


@by_arrays("index", check=_check_read)
def _index(xp: Any, problem: Problem, array: Any, *rest: Any) -> None:
    *indices, out = rest
    dims, from_the_end = problem.attributes
    source, target = as_bits(array), as_bits(out)
    name = "index" if from_the_end else "index_select"
    found = {
        dim: within(xp, name, index, array.shape, dim, from_the_end) for dim, index in zip(dims, indices, strict=True)
    }
    if len(found) == 1:
        xp.take(source, found[dims[0]], axis=dims[0], out=target)
        return
    # Indices without dimensions are applied before the others, as integers are.
    for dim in sorted(dims, reverse=True):
        if not found[dim].ndim:
            source = xp.take(source, found[dim], axis=dim)
    place = [found.get(axis, slice(None)) for axis in range(array.ndim)]
    xp.copyto(target, source[tuple([item for item in place if isinstance(item, slice) or item.ndim])])


def _indexed(xp: Any, geometry: Geometry, dims: Sequence[int], indices: Sequence[Any]) -> Any:
    """The places of the elements that an index chooses from a view of flat memory, in the order of numpy's rule.

    Adjacent indices are replaced by the dimensions of all of them together; separated ones are so at the front.
    """
    sizes, strides, offset = geometry
    chosen = {
        dim: within(xp, "index", index, sizes, dim, from_the_end=True) for dim, index in zip(dims, indices, strict=True)
    }
    left = [axis for axis in range(len(sizes)) if axis not in chosen or chosen[axis].ndim]
    replaced = [position for position, axis in enumerate(left) if axis in chosen]
    adjacent = bool(replaced) and replaced[-1] - replaced[0] + 1 == len(replaced)
    at = replaced[0] if adjacent else 0
    joint = max([index.ndim for index in chosen.values()])
    others = [axis for axis in left if axis not in chosen]
    ndim = len(others) + joint
    places = xp.full((1,) * ndim, offset, np.int64)
    for dim, index in chosen.items():
        behind = (1,) * (ndim - at - joint) if index.ndim else ()
        places = places + index.reshape(index.shape + behind) * strides[dim]
    for position, axis in enumerate(others):
        there = position if position < at else position + joint
        places = places + coordinates(xp, sizes[axis], there, ndim) * strides[axis]
    return places


def _whole(shape: Sequence[int]) -> Geometry:
    """A contiguous array."""
    return tuple(shape), contiguous_strides(tuple(shape), 1), 0


@by_arrays("index_add_to_zeros")
def _index_add_to_zeros(xp: Any, problem: Problem, part: Any, *rest: Any) -> None:
    *indices, out = rest
    output, dims = problem.attributes
    places = _indexed(xp, _whole(output.shape), dims, indices)
    as_bits(out).fill(0)
    with changing(xp, out, out) as flat:
        add_at(xp, flat, places, part)


@by_arrays("index_put", check=_check_written)
def _index_put(xp: Any, problem: Problem, array: Any, new: Any, *rest: Any) -> None:
    *indices, out = rest
    dims, accumulate, part = problem.attributes
    details: Writing = problem.details
    # A copy of the value, since it may be a part of what is changed.
    new = converted(new.reshape(new.shape[max(new.ndim - len(details.shape), 0) :]), out.dtype)
    new = xp.broadcast_to(new, details.shape)
    places = _indexed(xp, part or _whole(out.shape), dims, indices)
    with changing(xp, array, out) as flat:
        if accumulate:
            add_at(xp, flat, places, new)
        else:
            put_at(flat, places, new)


# By how they lie in memory


def _seen(xp: Any, flat: Any, part: Part, shape: Sequence[int]) -> Any:
    """The part of a contiguous array of that shape, sharing the flat memory."""
    sizes, strides, offset = part or _whole(shape)
    if 0 in sizes:
        return flat[:0].reshape(sizes)
    in_bytes = tuple([stride * flat.dtype.itemsize for stride in strides])
    return xp.lib.stride_tricks.as_strided(flat[offset:], sizes, in_bytes)


@by_arrays("strided_put")
def _strided_put(xp: Any, problem: Problem, array: Any, new: Any, out: Any) -> None:
    (part,) = problem.attributes
    new = converted(new, out.dtype)  # a copy, since it may be a part of what is changed
    with changing(xp, array, out) as flat:
        xp.copyto(_seen(xp, flat, part, out.shape), new)


@by_arrays("strided_get")
def _strided_get(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    (part,) = problem.attributes
    xp.copyto(out, _seen(xp, array.reshape(-1), part, array.shape))


@by_arrays("respread")
def _respread(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    written, read = problem.attributes
    low, size = problem.details
    memory = xp.zeros(size, out.dtype)
    add_at(xp, memory, _spread(xp, written, low), array)
    xp.copyto(as_bits(out), as_bits(memory)[_spread(xp, read, low)])


def _spread(xp: Any, geometry: Geometry, low: int) -> Any:
    """Where each element lies, counted from `low`."""
    shape, strides, offset = geometry
    return xp.broadcast_to(places_in(xp, shape, strides, offset - low), shape)


@by_arrays("count_nonzero")
def _count_nonzero(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    xp.copyto(out, xp.sum(comparable(array) != 0, dtype=np.int64))


def _changed(problem: Problem, more: int) -> Exception:
    count, _ = problem.attributes
    return RuntimeError(
        f"nonzero: {count} elements were counted, and {count + more} found: the tensor was changed meanwhile"
    )


@by_arrays("nonzero", verify=_changed)
def _nonzero(xp: Any, problem: Problem, array: Any, out: Any, more: Any) -> None:
    """The place of each element that is found goes to where the number of those before it says."""
    count, by_dimension = problem.attributes
    if not array.ndim:
        more.fill(0)
        return
    found = (comparable(array) != 0).reshape(-1)
    ranks = xp.cumsum(found, dtype=np.int64) - 1
    xp.copyto(more, xp.sum(found, dtype=np.int64) - count)
    places = xp.zeros(count + 1, np.int64)
    places[xp.where(found, xp.minimum(ranks, count), count)] = xp.arange(found.size, dtype=np.int64)
    strides = contiguous_strides(array.shape, 1)
    for axis, (size, stride) in enumerate(zip(array.shape, strides, strict=True)):
        row = out[axis] if by_dimension else out[:, axis]
        xp.copyto(row, places[:count] // stride % max(size, 1))
