"""Where arrays begin, and whether C may read elements from there."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

Array: TypeAlias = Any

# Where an array object keeps the address of its memory: behind what every object begins with.  To ask numpy by its
# public ways takes as long as computing a few thousand elements.
_FIELD: Final = object.__basicsize__


def _public_address(array: Array) -> int:
    found: int = array.__array_interface__["data"][0]
    return found


def _field_address(array: Array) -> int:
    return _Word.from_address(id(array) + _FIELD).value


_Word: Final = ctypes.c_ssize_t
_trial = np.arange(8)[3:]

# Where an array's first element is; it must be a numpy array.
address: Final[Callable[[Array], int]] = (
    _field_address if _field_address(_trial) == _public_address(_trial) else _public_address
)

# The largest of the types as which C reads elements.
_WIDEST: Final = 8


def alignment(of: np.dtype[Any]) -> int:
    """The number that the addresses of elements must be multiples of in C.

    numpy asks for less of complex numbers, which C may move as integers of their size.
    """
    return min(of.itemsize, _WIDEST)


def is_aligned(array: Array) -> bool:
    """Whether all elements are where C may read them: numpy's arrays may begin at any byte, and be parts of records."""
    return bool(array.flags.aligned) and address(array) % alignment(array.dtype) == 0


def is_plain(array: Array) -> bool:
    """Whether an array is as most functions in C take it: aligned, and without gaps, row after row."""
    return bool(array.flags.c_contiguous) and is_aligned(array)


def plain(array: Array) -> Array:
    """The array if it is so, else a copy that is."""
    return array if is_plain(array) else array.copy()


def realigned(array: Array) -> Array:
    """A copy if nothing but its address keeps C from the array, so that results do not depend on that; else itself."""
    wrong = isinstance(array, np.ndarray) and array.flags.c_contiguous and not is_aligned(array)
    return array.copy() if wrong else array


def places_of(array: Array, leading: Sequence[int]) -> Array:
    """Where each of the arrays begins of which this one consists, by its leading dimensions."""
    found = np.full(1, address(array), np.int64)
    for count, stride in zip(leading, array.strides, strict=False):
        found = (found[:, np.newaxis] + np.arange(count) * stride).reshape(-1)
    return found
