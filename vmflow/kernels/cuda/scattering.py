"""Elements put, added and reduced where an array of places says, on devices whose threads do so all at once.

A *place* is the position of an element in a flat array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from vmflow.streams.cuda.arrays import contiguous_strides

from .bits import as_bits

# Places


def within(xp: Any, name: str, indices: Any, shape: tuple[int, ...], dim: int, from_the_end: bool = False) -> Any:
    """Indices along a dimension as int64 from 0 on; one that is out of range becomes the nearest that is not.

    Args:
        xp: the array module.
        name: of the op, for errors.
        indices: integers.
        shape: of the array that is indexed.
        dim: which of its dimensions; of a shape without dimensions, the one that holds its element.
        from_the_end: whether indices below 0 count from the end.

    Raises:
        IndexError: if the dimension has no elements, and so none for any index.
    """
    size = shape[dim] if shape else 1
    if not size and indices.size:
        raise IndexError(f"{name}: dimension {dim} has no elements, and {indices.size} indices ask for some")
    indices = indices.astype(np.int64, copy=False)
    if from_the_end:
        indices = xp.where(indices < 0, indices + size, indices)
    return xp.clip(indices, 0, max(size - 1, 0))


def coordinates(xp: Any, size: int, axis: int, ndim: int) -> Any:
    """0, 1, ... along one axis of an array of so many dimensions, of size 1 along the others."""
    return xp.arange(size, dtype=np.int64).reshape((1,) * axis + (size,) + (1,) * (ndim - axis - 1))


def places_in(xp: Any, shape: Sequence[int], strides: Sequence[int], offset: int) -> Any:
    """The place of each element of a view of flat memory."""
    places = xp.full((1,) * len(shape), offset, np.int64)
    for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        places = places + coordinates(xp, size, axis, len(shape)) * stride
    return places


def places_along(xp: Any, indices: Any, shape: tuple[int, ...], dim: int) -> Any:
    """The places that `indices` name along one dimension of a contiguous array, as `gather` and `scatter` take them."""
    if not shape:
        return indices
    strides = contiguous_strides(shape, 1)
    places = indices * strides[dim]
    for axis, size in enumerate(indices.shape):
        if axis != dim:
            places = places + coordinates(xp, size, axis, len(shape)) * strides[axis]
    return places


# Changes


@contextmanager
def changing(xp: Any, array: Any, out: Any) -> Iterator[Any]:
    """A flat array with the elements of `array` to be changed in place: what it holds at the end is in `out`."""
    whole = out if out.flags.c_contiguous else xp.empty(out.shape, out.dtype)
    if whole is not out or not xp.may_share_memory(out, array):
        xp.copyto(whole, array)
    yield whole.reshape(-1)
    if whole is not out:
        xp.copyto(out, whole)


def put_at(flat: Any, places: Any, values: Any) -> None:
    """``flat[places] = values``; of several elements for one place any may win."""
    as_bits(flat)[places] = as_bits(values)


def add_at(xp: Any, flat: Any, places: Any, values: Any) -> None:
    """``flat[places] += values``, where each repetition of a place counts.

    The array module adds in a few dtypes only: others are added in one of them that is as exact.
    """
    dtype = flat.dtype
    if dtype.kind == "c":
        parts = flat.view(values.real.dtype)
        add_at(xp, parts, 2 * places, values.real)
        add_at(xp, parts, 2 * places + 1, values.imag)
    elif dtype == np.int64:
        xp.add.at(flat.view(np.uint64), places, values.view(np.uint64))  # which wraps alike
    elif dtype.itemsize < 4:
        wide = np.dtype(np.int32 if dtype.kind in "biu" else np.float32)
        total = flat.astype(wide)
        xp.add.at(total, places, values.astype(wide))
        xp.copyto(flat, total, casting="unsafe")
    else:
        xp.add.at(flat, places, values)


def reduce_at(xp: Any, combine: Callable[[Any, Any], Any], flat: Any, places: Any, values: Any) -> None:
    """``flat[place] = combine(flat[place], value)`` for each of them, one after the other.

    The values are sorted by their places, and neighbours of one place combined in distances of 1, 2, 4 and so on.

    Args:
        xp: the array module.
        combine: an associative function.
        flat: of a dtype in which nothing is lost.
        places, values: of one shape.
    """
    if not places.size:
        return
    order = xp.argsort(places.reshape(-1))
    keys, values = places.reshape(-1)[order], values.reshape(-1)[order]
    distance = 1
    while distance < keys.size:
        later = values[distance:]
        together = xp.where(keys[distance:] == keys[:-distance], combine(values[:-distance], later), later)
        values = xp.concatenate([values[:distance], together])
        distance *= 2
    # The last value for a place has all of them in it.
    last = xp.searchsorted(keys, keys, side="right") - 1
    flat[keys] = combine(flat[keys], values[last])


def extreme(dtype: np.dtype[Any], highest: bool) -> Any:
    """The highest number of a dtype, or the lowest."""
    if dtype.kind == "b":
        return highest
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return limits.max if highest else limits.min
    return float("inf") if highest else -float("inf")
