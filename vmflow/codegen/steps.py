"""Steps of an optimizer for many parameters at once: one call of C for all that are small.

To call a function costs as much as a step of ten thousand elements, and most parameters have fewer.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from operator import is_
from typing import Any, Final, TypeAlias

import numpy as np

from . import team
from .arrays import as_call
from .elementwise import address
from .kernels import function

Array: TypeAlias = Any

_KINDS: Final = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}

# Elements of a parameter whose step takes so long that a call of its own does not matter.
_LARGE: Final = 1 << 16


class Steps:
    """The steps of one group of parameters.

    Args:
        name: of the function in updates.c, without the dtype.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._seen: list[Array] = []
        self._function = ""
        self._work = 0
        self._chosen: list[int] = []
        self._table: ctypes.Array[ctypes.c_int64] | None = None
        self._kernel: Callable[..., Any] | None = None

    def chosen(self, columns: Sequence[Sequence[Array]]) -> list[int]:
        """The positions of the parameters whose steps `take` takes.

        Args:
            columns: of all parameters: themselves, what else is changed with them, and the gradients.
        """
        first = columns[0][0]
        kind = _KINDS.get(first.dtype)
        self._function = f"{self._name}_{kind}"
        self._kernel = None if kind is None else function(self._function, sum([it.size for it in columns[0]]))
        if self._kernel is None:  # any more, perhaps: C can be switched off between two steps
            self._chosen, self._seen = [], []
            return []
        arrays = [it for column in columns for it in column]
        # In a graph they are the same at each launch.
        if len(arrays) != len(self._seen) or not all(map(is_, arrays, self._seen)):
            self._look_at(columns)
            self._seen = arrays
        return self._chosen

    def _look_at(self, columns: Sequence[Sequence[Array]]) -> None:
        dtype = columns[0][0].dtype
        rows = [list(row) for row in zip(*columns, strict=True)]
        self._chosen = [
            position
            for position, row in enumerate(rows)
            if row[0].size < _LARGE and all([_fits(it, dtype) and it.size == row[0].size for it in row])
        ]
        numbers = [
            number for it in self._chosen for number in (*[address(array) for array in rows[it]], rows[it][0].size)
        ]
        self._table = (ctypes.c_int64 * len(numbers))(*numbers)
        self._work = sum([rows[it][0].size * len(rows[it]) for it in self._chosen])

    def take(self, numbers: Sequence[float], *settings: float) -> None:
        """The steps of those that were `chosen` last.

        Args:
            numbers: of one after the other, what each has for itself.
            settings: what all have in common.
        """
        if not self._chosen:
            return
        assert self._kernel is not None
        assert self._table is not None
        own, count = (ctypes.c_double * len(numbers))(*numbers), len(self._chosen)
        arguments = (ctypes.addressof(self._table), ctypes.addressof(own), count, *settings)
        bytes_of_each = [ctypes.sizeof(it) // count for it in (self._table, own)]
        cut = team.Cut(2, tuple(enumerate(bytes_of_each)))
        call, given, _ = as_call(self._function, self._kernel, arguments, cut, self._work)
        call(*given)


def _fits(array: Array, dtype: np.dtype[Any]) -> bool:
    return type(array) is np.ndarray and array.dtype is dtype and array.flags.c_contiguous
