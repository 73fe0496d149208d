"""The addresses of numpy arrays' elements, and whether the arrays are aligned and contiguous enough for C."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

Array: TypeAlias = Any

# The offset, in an ndarray object, of the pointer to its data: the pointer follows the header of all objects.  numpy's
# public ways to get this address take as long as computing a few thousand elements.
_FIELD: Final = object.__basicsize__


def _public_address(array: Array) -> int:
    found: int = array.__array_interface__["data"][0]
    return found


def _field_address(array: Array) -> int:
    return _Word.from_address(id(array) + _FIELD).value


_Word: Final = ctypes.c_ssize_t
_trial = np.arange(8)[3:]

# Returns the address of the first element of a numpy array.
address: Final[Callable[[Array], int]] = (
    _field_address if _field_address(_trial) == _public_address(_trial) else _public_address
)

# The size, in bytes, of the largest type as which C functions read elements.
_WIDEST: Final = 8


def alignment(of: np.dtype[Any]) -> int:
    """Return the alignment in bytes that C functions require of elements of a dtype.

    numpy requires less of complex64, which C may move as integers of 8 bytes.
    """
    return min(of.itemsize, _WIDEST)


def is_aligned(array: Array) -> bool:
    """Whether an array is aligned for C; complex64 elements behind the first are only checked as numpy requires."""
    return bool(array.flags.aligned) and address(array) % alignment(array.dtype) == 0


def is_plain(array: Array) -> bool:
    """Whether an array is aligned and C-contiguous, as most C functions need it."""
    return bool(array.flags.c_contiguous) and is_aligned(array)


def plain(array: Array) -> Array:
    """Return the array if it is aligned and C-contiguous, else a copy that is."""
    return array if is_plain(array) else array.copy()


def realigned(array: Array) -> Array:
    """Return the array, or an aligned copy if it is C-contiguous but not aligned.

    C cannot compute an unaligned array, and numpy's result may differ: with the copy, results do not depend on the
    address.  A value that is no array is returned as it is.
    """
    wrong = isinstance(array, np.ndarray) and array.flags.c_contiguous and not is_aligned(array)
    return array.copy() if wrong else array


def places_of(array: Array, leading: Sequence[int]) -> Array:
    """Return a vector of the addresses of ``array[i, j, ...]`` for all indices into its first dimensions.

    `leading` holds the sizes of those dimensions.
    """
    found = np.full(1, address(array), np.int64)
    for count, stride in zip(leading, array.strides, strict=False):
        found = (found[:, np.newaxis] + np.arange(count) * stride).reshape(-1)
    return found
