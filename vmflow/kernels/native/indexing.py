"""Calls of the C functions in indexing.c: gather, scatter, scatter_add, and adding rows at an index."""

from __future__ import annotations

from math import prod
from typing import Any, Final

import numpy as np

from . import team
from .addresses import Array, address, is_plain, plain
from .arrays import INDEX, InC, NativeCall
from .functions import CFunction

# The C type by the size of an element, for functions that only move elements, as integers of their size; and by dtype,
# for functions that add elements.
_BY_SIZE: Final = {1: "int8_t", 2: "int16_t", 4: "int32_t", 8: "int64_t"}
_ADDED: Final = {
    np.dtype(np.float32): "float",
    np.dtype(np.float64): "double",
    np.dtype(np.int8): "int8_t",
    np.dtype(np.int16): "int16_t",
    np.dtype(np.int32): "int32_t",
    np.dtype(np.int64): "int64_t",
}

# The work of an element that is read or written by index, whose cache line is likely to be missing; see
# `intra_op.LEAST`.
_WORK: Final = 8

# Threads that share columns begin at multiples of this many: whole cache lines apart, even for elements of one byte.
_COLUMNS: Final = 64

# A strided array has to be copied before C gathers from it, which pays if at least one in this many elements is read.
_COPIED: Final = 8


class _ByIndex(InC):
    """A C function that reads or writes the elements of an array at indices along one dimension.

    Args:
        kernel, dtype: see `InC`.
        dim: the dimension along which the index counts.
    """

    # Whether the C function reads the indexed array, as gather does, instead of writing to it.
    gathers = False

    def __init__(self, kernel: CFunction, dtype: np.dtype[Any], dim: int) -> None:
        super().__init__(kernel, dtype)
        self._dim = dim

    @staticmethod
    def _name_in_c(name: str, dtype: np.dtype[Any]) -> str | None:
        kind = _BY_SIZE.get(dtype.itemsize) if name in ("gather", "scatter") else _ADDED.get(dtype)
        return None if kind is None else f"{name}_{kind}"

    def _by_element(self, array: Array, places: Array, values: Array, wrong: Array) -> NativeCall | None:
        """Return the call of a C function that takes an index for each element; None if C cannot make it."""
        dim = self._dim
        if array.shape[1:dim] != places.shape[1:dim] or array.shape[dim + 1 :] != places.shape[dim + 1 :]:
            return None  # the index is smaller than the array in a dimension that the C function takes as equal
        sizes = prod(places.shape[:dim]), places.shape[dim], array.shape[dim], prod(places.shape[dim + 1 :])
        steps = places.itemsize, sizes[1] * sizes[3] * places.itemsize
        return self._call((array, places, values), sizes, wrong, steps)

    def _call(
        self, arrays: tuple[Array, Array, Array], sizes: tuple[int, int, int, int], wrong: Array, steps: tuple[int, int]
    ) -> NativeCall | None:
        """Return the call of the C function; None if it cannot take the arrays.

        Args:
            arrays: the indexed array, the index and the values.
            sizes: the arguments outer, count, size and inner; see indexing.c.
            wrong: an array without dimensions that becomes 1 if an index is out of range.
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

        # The call site expects the written arrays last.
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
    """The op "gather": read elements along a dimension, with an index for each element of the result."""

    gathers = True

    def call(self, array: Array, places: Array) -> Array | None:
        """Gather the elements of `array`; None if C cannot, for instance if an index is negative or too large.

        Args:
            array: the array, of at least one dimension.
            places: the index: integers, of as many dimensions as `array`.
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
    """The ops "scatter" and "scatter_add": write or add elements along a dimension, with an index for each element."""

    def call(self, array: Array, places: Array, values: Array) -> bool | None:
        """Write `values` to `array`, or add them, and return True; None if C cannot.

        Returns False if an index is negative or too large; then other values may have been written.

        Args:
            array: the array to change: contiguous, of at least one dimension.
            places: the index: integers, of as many dimensions as `array`.
            values: the values, of the array's dtype and of the shape of `places`.
        """
        wrong = np.zeros((), INDEX)
        if not self.site.again((places, values, array, wrong)):
            index, new = plain(np.asarray(places, INDEX)), plain(values)
            if not self.makes(self._by_element(array, index, new, wrong)):
                return None
        return not wrong.item()


class AddRows(_ByIndex):
    """The op "add_rows": add slices of values to the slices of an array at given indices of a dimension."""

    def call(self, array: Array, places: Array, values: Array) -> bool:
        """Add the slices to `array`, and return True.

        Returns False, adding nothing, if C cannot or an index is out of range.

        Args:
            array: the array to change: contiguous, of at least one dimension.
            places: the index: integers, of at least one dimension; negative ones count from the end.
            values: the slices: of the array's dtype and shape, but with the shape of `places` in place of the size of
                dimension `dim`.
        """
        wrong = np.zeros((), INDEX)
        if not self.site.again((places, values, array, wrong)):
            index, new = plain(np.asarray(places, INDEX)), plain(values)
            shape = array.shape
            sizes = prod(shape[: self._dim]), places.size, shape[self._dim], prod(shape[self._dim + 1 :])
            if not self.makes(self._call((array, index, new), sizes, wrong, (0, 0))):
                return False
        return not wrong.item()
