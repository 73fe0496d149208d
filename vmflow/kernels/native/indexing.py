"""Calls of the functions in indexing.c: elements by index, and rows added to the rows that an index names."""

from __future__ import annotations

from math import prod
from typing import Any, Final

import numpy as np

from . import team
from .addresses import Array, address, is_plain, plain
from .arrays import INDEX, InC, NativeCall
from .functions import CFunction

# Elements that are only moved are treated as integers of their size.
_BY_SIZE: Final = {1: "int8_t", 2: "int16_t", 4: "int32_t", 8: "int64_t"}
_ADDED: Final = {
    np.dtype(np.float32): "float",
    np.dtype(np.float64): "double",
    np.dtype(np.int8): "int8_t",
    np.dtype(np.int16): "int16_t",
    np.dtype(np.int32): "int32_t",
    np.dtype(np.int64): "int64_t",
}

# Work for an element, whose cache line is likely to be missing.
_WORK: Final = 8

# Columns of a piece: whole cache lines, even for elements of one byte.
_COLUMNS: Final = 64

# An array with gaps has to be copied, which pays if at least one of so many elements is read.
_COPIED: Final = 8


class _ByIndex(InC):
    """A function that reads or writes an array by an index.

    Args:
        kernel, dtype: see `InC`.
        dim: the dimension along which the index counts.
    """

    # Whether the function reads the indexed array instead of writing to it.
    gathers = False

    def __init__(self, kernel: CFunction, dtype: np.dtype[Any], dim: int) -> None:
        super().__init__(kernel, dtype)
        self._dim = dim

    @staticmethod
    def _name_in_c(name: str, dtype: np.dtype[Any]) -> str | None:
        kind = _BY_SIZE.get(dtype.itemsize) if name in ("gather", "scatter") else _ADDED.get(dtype)
        return None if kind is None else f"{name}_{kind}"

    def _by_element(self, array: Array, places: Array, values: Array, wrong: Array) -> NativeCall | None:
        """Return the kernel's call for an index array that has an index for each element of `values`."""
        dim = self._dim
        if array.shape[1:dim] != places.shape[1:dim] or array.shape[dim + 1 :] != places.shape[dim + 1 :]:
            return None  # the index has gaps between its rows, as seen from the array
        sizes = prod(places.shape[:dim]), places.shape[dim], array.shape[dim], prod(places.shape[dim + 1 :])
        steps = places.itemsize, sizes[1] * sizes[3] * places.itemsize
        return self._call((array, places, values), sizes, wrong, steps)

    def _call(
        self, arrays: tuple[Array, Array, Array], sizes: tuple[int, int, int, int], wrong: Array, steps: tuple[int, int]
    ) -> NativeCall | None:
        """The kernel's call.

        Args:
            arrays: the indexed array, the index and the values.
            sizes: see indexing.c.
            wrong: becomes 1 if an index is out of range.
            steps: the index's step in bytes from column to column, and from one outer element to the next.
        """
        array, places, values = arrays
        if not values.size or array.dtype != self.dtype:
            return None
        if not all([type(array) is np.ndarray and is_plain(array) for array in arrays]):
            return None
        written, read = (values, array) if self.gathers else (array, values)
        if not written.flags.writeable or any([np.may_share_memory(written, array) for array in (read, places)]):
            return None
        outer, count, size, inner = sizes
        by_column, by_outer = steps
        itemsize = array.itemsize

        def cut() -> team.Cut:
            if outer > 1:
                return team.Cut(3, ((0, size * inner * itemsize), (1, by_outer), (2, count * inner * itemsize)))
            return team.Cut(6, ((0, itemsize), (1, by_column), (2, itemsize)), _COLUMNS)

        # The written arrays come last.
        order = (0, 1, 2) if self.gathers else (1, 2, 0)
        return NativeCall(
            self.kernel,
            (*map(address, arrays), outer, count, size, inner, inner, address(wrong)),
            cut,
            values.size * _WORK,
            (*[arrays[value] for value in order], wrong),
            places=(*order, 8),
            written=2,
        )


class Gather(_ByIndex):
    """Elements by index along a dimension, with an index for each element: "gather"."""

    gathers = True

    def call(self, array: Array, places: Array) -> Array | None:
        """The elements; None if C cannot gather them, as where an index is out of range.

        Args:
            array: of any shape.
            places: the index: integers, of as many dimensions.
        """
        values, wrong = np.empty(places.shape, array.dtype), np.zeros((), INDEX)
        if not self.site.again((array, places, values, wrong)):
            if not array.flags.c_contiguous and places.size * _COPIED < array.size:
                return None
            whole, index = plain(array), plain(np.asarray(places, INDEX))
            if not self.makes(self._by_element(whole, index, values, wrong)):
                return None
        return None if wrong.item() else values


class Scatter(_ByIndex):
    """Elements put ("scatter") or added ("scatter_add") by index along a dimension, with an index for each element."""

    def call(self, array: Array, places: Array, values: Array) -> bool | None:
        """Put the elements; None if C cannot, and False if an index is out of range: some may have been put then.

        Args:
            array: is changed: contiguous, of any shape.
            places: the index: integers, of as many dimensions.
            values: of the array's dtype and of the shape of `places`.
        """
        wrong = np.zeros((), INDEX)
        if not self.site.again((places, values, array, wrong)):
            index, new = plain(np.asarray(places, INDEX)), plain(values)
            if not self.makes(self._by_element(array, index, new, wrong)):
                return None
        return not wrong.item()


class AddRows(_ByIndex):
    """Slices added to the slices of an array that an index names along a dimension: "add_rows"."""

    def call(self, array: Array, places: Array, values: Array) -> bool:
        """Add the slices; False if C cannot, as where an index is out of range: nothing has been added then.

        Args:
            array: is changed: contiguous, of any shape.
            places: the index: integers, of at least one dimension; negative ones count from the end.
            values: of the array's dtype, and of its shape with that of `places` in place of the dimension.
        """
        wrong = np.zeros((), INDEX)
        if not self.site.again((places, values, array, wrong)):
            index, new = plain(np.asarray(places, INDEX)), plain(values)
            shape = array.shape
            sizes = prod(shape[: self._dim]), places.size, shape[self._dim], prod(shape[self._dim + 1 :])
            if not self.makes(self._call((array, index, new), sizes, wrong, (0, 0))):
                return False
        return not wrong.item()
