"""Steps of an optimizer for many parameters at once: one call of C for all that are small.

To call a function costs as much as a step of ten thousand elements, and most parameters have fewer.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from itertools import pairwise
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
    """The steps of one group of parameters, kept from one step to the next: what is written stays where it is.

    Args:
        name: of the function in updates.c, without the dtype.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._function = ""
        self._kernel: Callable[..., Any] | None = None
        # What was looked at last, and which of the parameters are small.
        self._written: list[Array] = []
        self._small: list[int] = []
        # Of those that were chosen.
        self._chosen: list[int] = []
        self._table: ctypes.Array[ctypes.c_int64] | None = None
        # What several threads may do of them: nothing if they share memory, for then the order matters.
        self._work = 0

    def chosen(self, written: Sequence[Sequence[Array]], gradients: Sequence[Array]) -> list[int]:
        """The positions of the parameters whose steps `take` takes.

        Args:
            written: the parameters, and of each kind what else is changed with them.
            gradients: of all parameters.
        """
        first = written[0][0]
        kind = _KINDS.get(first.dtype)
        self._function = f"{self._name}_{kind}"
        self._kernel = None if kind is None else function(self._function, sum([it.size for it in written[0]]))
        if self._kernel is None:  # any more, perhaps: C can be switched off between two steps
            self._chosen, self._written = [], []
            return []
        arrays = [it for column in written for it in column]
        if len(arrays) != len(self._written) or not all(map(is_, arrays, self._written)):
            self._written = arrays
            rows = list(zip(*written, strict=True))
            self._small = [position for position, row in enumerate(rows) if _are_small(row, first.dtype)]
            self._fill(self._small, written)
        fitting = [it for it in self._small if _fits(gradients[it], first.dtype, written[0][it].size)]
        if fitting != self._chosen:
            self._fill(fitting, written)
        # Not kept: a gradient's memory goes back when nobody wants it.
        table, width = self._table, len(written) + 2
        assert table is not None
        for number, position in enumerate(fitting):
            table[number * width + width - 2] = address(gradients[position])
        return fitting

    def _fill(self, chosen: list[int], written: Sequence[Sequence[Array]]) -> None:
        """The table of these, without the gradients."""
        numbers = [
            number
            for position in chosen
            for number in (*[address(column[position]) for column in written], 0, written[0][position].size)
        ]
        self._chosen = chosen
        self._table = (ctypes.c_int64 * len(numbers))(*numbers)
        together = [column[position] for column in written for position in chosen]
        self._work = sum([it.size for it in together]) if _are_apart(together) else 0

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
        tables = self._table, own

        def cut() -> team.Cut:
            return team.Cut(2, tuple(enumerate([ctypes.sizeof(it) // count for it in tables])))

        call, given, _ = as_call(self._function, self._kernel, arguments, cut, self._work)
        call(*given)


def _are_apart(arrays: Sequence[Array]) -> bool:
    """Whether no two have memory in common."""
    places = sorted([(address(it), it.nbytes) for it in arrays if it.nbytes])
    return all([start + nbytes <= after for (start, nbytes), (after, _) in pairwise(places)])


def _are_small(row: Sequence[Array], dtype: np.dtype[Any]) -> bool:
    size = row[0].size
    return size < _LARGE and all([_fits(it, dtype, size) for it in row])


def _fits(array: Array, dtype: np.dtype[Any], size: int) -> bool:
    return type(array) is np.ndarray and array.dtype is dtype and array.flags.c_contiguous and array.size == size
