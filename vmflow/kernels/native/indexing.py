"""From numpy arrays to the kernels of indexing.c: elements by index, and rows added where an index names them."""

from __future__ import annotations

from math import prod
from typing import Any, Final, NamedTuple, Self, TypeAlias

import numpy as np

from . import team
from .addresses import address, is_plain, plain
from .arrays import NativeCall
from .call_site import CallSite
from .functions import CFunction, function

Array: TypeAlias = Any

_INDEX: Final = np.dtype(np.int64)

# What is only moved is moved by its size.
_BY_SIZE: Final = {1: "int8_t", 2: "int16_t", 4: "int32_t", 8: "int64_t"}
_ADDED: Final = {
    np.dtype(np.float32): "float",
    np.dtype(np.float64): "double",
    np.dtype(np.int8): "int8_t",
    np.dtype(np.int16): "int16_t",
    np.dtype(np.int32): "int32_t",
    np.dtype(np.int64): "int64_t",
}

# Work for an element, which is looked for where it may not be in the cache.
_WORK: Final = 8

# Columns of a piece: whole lines of the cache, also where elements have one byte.
_COLUMNS: Final = 64

# Of an array with gaps a copy is needed: not for fewer elements than one in so many of it.
_COPIED: Final = 8


class _Kernel(NamedTuple):
    """A function in C.

    Attributes:
        function: that.
        gathers: whether it reads from the array that is indexed, and does not write there.
        dtype: of the arrays.
    """

    function: CFunction
    gathers: bool
    dtype: np.dtype[Any]


def _kernel(name: str, kind: str | None, dtype: np.dtype[Any], elements: int) -> _Kernel | None:
    """The function for elements of a kind, which C may not have, and of this dtype, and for so many of them."""
    found = None if kind is None or not elements else function(f"{name}_{kind}", elements)
    return None if found is None else _Kernel(found, name == "gather", dtype)


class _ByIndex:
    """A function in C, as it is called from one place.

    Args:
        kernel: the function.
        dim: the dimension along which the index counts.
    """

    __slots__ = ("_dim", "_kernel", "_site")

    def __init__(self, kernel: _Kernel, dim: int) -> None:
        self._kernel = kernel
        self._dim = dim
        self._site = CallSite()


class Gather(_ByIndex):
    """Elements by an index for each along a dimension, as they are called from one place."""

    __slots__ = ()

    @classmethod
    def of(cls, dtype: np.dtype[Any], dim: int, elements: int) -> Self | None:
        """The op for arrays of this dtype and so many indices; None if C has none now."""
        kernel = _kernel("gather", _BY_SIZE.get(dtype.itemsize), dtype, elements)
        return None if kernel is None else cls(kernel, dim)

    def call(self, array: Array, places: Array) -> Array | None:
        """The elements; None if that is not possible, as where an index is out of range.

        Args:
            array: of any shape.
            places: integers, of as many dimensions.
        """
        values, wrong = np.empty(places.shape, array.dtype), np.zeros((), _INDEX)
        if not self._site.again((array, places, values, wrong)):
            if not array.flags.c_contiguous and places.size * _COPIED < array.size:
                return None
            whole, index = plain(array), plain(np.asarray(places, _INDEX))
            found = _by_element(self._kernel, self._dim, whole, index, values, wrong)
            if found is None:
                return None
            found.make(self._site)
        return None if wrong.item() else values


class Scatter(_ByIndex):
    """Elements put, or added, where an index for each says along a dimension, as they are called from one place."""

    __slots__ = ()

    @classmethod
    def of(cls, dtype: np.dtype[Any], dim: int, adds: bool, elements: int) -> Self | None:
        """The op for arrays of this dtype and so many indices; None if C has none now.

        Args:
            dtype: of the array.
            dim: see the class.
            adds: whether elements are added.
            elements: how many indices there are.
        """
        kind = _ADDED.get(dtype) if adds else _BY_SIZE.get(dtype.itemsize)
        kernel = _kernel("scatter_add" if adds else "scatter", kind, dtype, elements)
        return None if kernel is None else cls(kernel, dim)

    def call(self, array: Array, places: Array, values: Array) -> bool | None:
        """Put them; None if that is not possible, and False if an index is out of range: then some may have been put.

        Args:
            array: to be changed: contiguous, of any shape.
            places: integers, of as many dimensions.
            values: of the array's dtype and of the shape of `places`.
        """
        wrong = np.zeros((), _INDEX)
        if not self._site.again((places, values, array, wrong)):
            index, new = plain(np.asarray(places, _INDEX)), plain(values)
            found = _by_element(self._kernel, self._dim, array, index, new, wrong)
            if found is None:
                return None
            found.make(self._site)
        return not wrong.item()


def _by_element(
    kernel: _Kernel, dim: int, array: Array, places: Array, values: Array, wrong: Array
) -> NativeCall | None:
    """The call of a kernel with an index for each element."""
    if array.shape[1:dim] != places.shape[1:dim] or array.shape[dim + 1 :] != places.shape[dim + 1 :]:
        return None  # the index has gaps between its rows, as seen from the array
    sizes = prod(places.shape[:dim]), places.shape[dim], array.shape[dim], prod(places.shape[dim + 1 :])
    by_column, by_outer = places.itemsize, sizes[1] * sizes[3] * places.itemsize
    return _call(kernel, (array, places, values), sizes, wrong, (by_column, by_outer))


class AddRows(_ByIndex):
    """Slices added to those of an array that an index names along a dimension, as they are called from one place."""

    __slots__ = ()

    @classmethod
    def of(cls, dtype: np.dtype[Any], dim: int, elements: int) -> Self | None:
        """The op for arrays of this dtype and so many values; None if C has none now."""
        kernel = _kernel("add_rows", _ADDED.get(dtype), dtype, elements)
        return None if kernel is None else cls(kernel, dim)

    def call(self, array: Array, places: Array, values: Array) -> bool:
        """Add them; False if that is not possible, as where an index is out of range, and nothing has been added.

        Args:
            array: to be changed: contiguous, of any shape.
            places: integers, of at least one dimension; those below 0 count from the end.
            values: of the array's dtype, and of its shape but for the dimension, where that of `places` is.
        """
        wrong = np.zeros((), _INDEX)
        if not self._site.again((places, values, array, wrong)):
            index, new = plain(np.asarray(places, _INDEX)), plain(values)
            shape = array.shape
            sizes = prod(shape[: self._dim]), places.size, shape[self._dim], prod(shape[self._dim + 1 :])
            found = _call(self._kernel, (array, index, new), sizes, wrong, (0, 0))
            if found is None:
                return False
            found.make(self._site)
        return not wrong.item()


def _call(
    kernel: _Kernel,
    arrays: tuple[Array, Array, Array],
    sizes: tuple[int, int, int, int],
    wrong: Array,
    steps: tuple[int, int],
) -> NativeCall | None:
    """A kernel's call.

    Args:
        kernel: that.
        arrays: that which is indexed, the index and the values.
        sizes: see indexing.c.
        wrong: what becomes 1.
        steps: by how many bytes the index goes on for each column, and for each of the outer ones.
    """
    array, places, values = arrays
    compute, gathers, dtype = kernel
    if not values.size or array.dtype != dtype or not all([type(it) is np.ndarray and is_plain(it) for it in arrays]):
        return None
    written, read = (values, array) if gathers else (array, values)
    if not written.flags.writeable or any([np.may_share_memory(written, it) for it in (read, places)]):
        return None
    outer, count, size, inner = sizes
    by_column, by_outer = steps
    itemsize = array.itemsize

    def cut() -> team.Cut:
        if outer > 1:
            return team.Cut(3, ((0, size * inner * itemsize), (1, by_outer), (2, count * inner * itemsize)))
        return team.Cut(6, ((0, itemsize), (1, by_column), (2, itemsize)), _COLUMNS)

    # Those that are written come last.
    order = (0, 1, 2) if gathers else (1, 2, 0)
    return NativeCall(
        compute,
        (*map(address, arrays), outer, count, size, inner, inner, address(wrong)),
        cut,
        values.size * _WORK,
        (*[arrays[it] for it in order], wrong),
        places=(*order, 8),
        written=2,
    )
