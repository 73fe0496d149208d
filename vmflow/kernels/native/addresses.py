"""The addresses of arrays, and whether C may read elements from there."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

Array: TypeAlias = Any

# Where an array object keeps the address of its memory: behind the header of every object.  numpy's public ways take as
# long as computing a few thousand elements.
_FIELD: Final = object.__basicsize__


def _public_address(array: Array) -> int:
    found: int = array.__array_interface__["data"][0]
    return found


def _field_address(array: Array) -> int:
    return _Word.from_address(id(array) + _FIELD).value


_Word: Final = ctypes.c_ssize_t
_trial = np.arange(8)[3:]

# The address of an array's first element; the array must be numpy's.
address: Final[Callable[[Array], int]] = (
    _field_address if _field_address(_trial) == _public_address(_trial) else _public_address
)

# The size of the largest type as which C reads elements.
_WIDEST: Final = 8


def alignment(of: np.dtype[Any]) -> int:
    """The alignment in bytes that C requires of elements of this dtype.

    numpy requires less of complex numbers, which C may move as integers of their size.
    """
    return min(of.itemsize, _WIDEST)


def is_aligned(array: Array) -> bool:
    """Whether C may read all elements: numpy's arrays may begin at any byte, and be parts of records."""
    return bool(array.flags.aligned) and address(array) % alignment(array.dtype) == 0


def is_plain(array: Array) -> bool:
    """Whether an array is laid out as most C functions need it: aligned, and without gaps, row after row."""
    return bool(array.flags.c_contiguous) and is_aligned(array)


def plain(array: Array) -> Array:
    """The array if it is aligned and without gaps, else a copy that is."""
    return array if is_plain(array) else array.copy()


def realigned(array: Array) -> Array:
    """The array, copied if it is contiguous but not aligned, so that results do not depend on its address."""
    wrong = isinstance(array, np.ndarray) and array.flags.c_contiguous and not is_aligned(array)
    return array.copy() if wrong else array


def places_of(array: Array, leading: Sequence[int]) -> Array:
    """The addresses of the arrays that lie along an array's leading dimensions."""
    found = np.full(1, address(array), np.int64)
    for count, stride in zip(leading, array.strides, strict=False):
        found = (found[:, np.newaxis] + np.arange(count) * stride).reshape(-1)
    return found
