"""Steps of an optimizer for many parameters at once: one call of C for all that are small.

To call a function costs as much as a step of ten thousand elements, and most parameters have fewer.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, TypeAlias
from weakref import ref

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
    """The steps of one group of parameters; where what is written lies is kept from one step to the next.

    Args:
        name: of the function in updates.c, without the dtype.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._layout: _Layout | None = None

    def begin(self, written: Sequence[Sequence[Array]], gradients: Sequence[Array]) -> Step | None:
        """The step of those parameters that are small; None if there are none, or C is not to be had.

        Args:
            written: the parameters, and of each kind what else is changed with them.
            gradients: of all parameters.
        """
        dtype = written[0][0].dtype
        kind = _KINDS.get(dtype)
        name = f"{self._name}_{kind}"
        kernel = None if kind is None else function(name, sum([it.size for it in written[0]]))
        if kernel is None:
            return None
        layout = self._layout
        if layout is None or not layout.is_of(written):
            layout = self._layout = _Layout(written, None)  # only its last step changes: other threads may have it
        fitting = [it for it in layout.small if _fits(gradients[it], dtype, written[0][it].size)]
        if len(fitting) < len(layout.small):
            layout = _Layout(written, fitting)
        if not fitting:
            return None
        # Most gradients lie where those of the step before were.
        places = [address(gradients[it]) for it in fitting]
        before = layout.step
        if before is not None and before.places == places and before.kernel is kernel:
            return before
        ends = [start + nbytes for start, nbytes in zip(places, layout.sizes, strict=True)]
        if any([layout.writes(start, end) for start, end in zip(places, ends, strict=True)]):
            return None  # a gradient changes with its parameter, or with another, in numpy's order
        step = layout.step = Step(name, kernel, layout, places)
        return step


class _Layout:
    """Where the small parameters are, and what is changed with them.

    Args:
        written: see `Steps.begin`.
        chosen: which of them; None for all that are small.

    Attributes:
        small: the positions of those.
        sizes: the bytes of each.
        table: what the C functions take, without the gradients.
        width: of a row of it.
        ranges: the memory that is written, sorted: the first byte of each array, and the first behind it.
        apart: whether no two of these overlap.
        size: elements that are read and written.
        step: the last one that was made of it.
    """

    def __init__(self, written: Sequence[Sequence[Array]], chosen: list[int] | None) -> None:
        first = written[0]
        dtype = first[0].dtype
        rows = list(zip(*written, strict=True))
        small = [position for position, row in enumerate(rows) if _are_small(row, dtype)] if chosen is None else chosen
        numbers = [number for it in small for number in (*map(address, rows[it]), 0, first[it].size)]
        # Not the arrays: whoever takes their place may want their memory.
        self._written = [ref(array) for column in written for array in column]
        self.small = small
        self.sizes = [first[it].nbytes for it in small]
        self.table = (ctypes.c_int64 * len(numbers))(*numbers)
        self.width = len(written) + 2
        self.ranges = sorted([(address(it), address(it) + it.nbytes) for row in small for it in rows[row] if it.nbytes])
        self.apart = all([end <= start for (_, end), (start, _) in pairwise(self.ranges)])
        self.size = sum([first[it].size for it in small]) * (len(written) + 1)
        self.step: Step | None = None

    def is_of(self, written: Sequence[Sequence[Array]]) -> bool:
        """Whether it was made of these very arrays."""
        arrays = [it for column in written for it in column]
        return len(arrays) == len(self._written) and all(
            [known() is it for known, it in zip(self._written, arrays, strict=True)]
        )

    def writes(self, start: int, end: int) -> bool:
        """Whether any of what is written lies in between."""
        place = bisect_left(self.ranges, (end, end))
        return place > 0 and self.ranges[place - 1][1] > start


class Step:
    """One step of some parameters, which `take` takes.

    Args:
        name: of the function.
        kernel: that.
        layout: of what is written.
        places: where the gradients are.

    Attributes:
        positions: of the parameters.
        kernel, places: those.
    """

    def __init__(self, name: str, kernel: Callable[..., Any], layout: _Layout, places: list[int]) -> None:
        self.positions = layout.small
        self.kernel = kernel
        self.places = places
        self._name = name
        table = self._table = type(layout.table).from_buffer_copy(layout.table)
        for row, start in enumerate(places):
            table[(row + 1) * layout.width - 2] = start
        # Where memory is shared, the steps are taken one after the other.
        self._work = layout.size if layout.apart else 0

    def take(self, numbers: Sequence[float], *settings: float) -> None:
        """Take it.

        Args:
            numbers: of one parameter after the other, what each has for itself.
            settings: what all have in common.
        """
        own, count = (ctypes.c_double * len(numbers))(*numbers), len(self.positions)
        tables = self._table, own

        def cut() -> team.Cut:
            return team.Cut(2, tuple(enumerate([ctypes.sizeof(it) // count for it in tables])))

        arguments = (ctypes.addressof(self._table), ctypes.addressof(own), count, *settings)
        call, given, _ = as_call(self._name, self.kernel, arguments, cut, self._work, at_once=True)
        call(*given)


def _are_small(row: Sequence[Array], dtype: np.dtype[Any]) -> bool:
    size = row[0].size
    return size < _LARGE and all([_fits(it, dtype, size) for it in row])


def _fits(array: Array, dtype: np.dtype[Any], size: int) -> bool:
    return type(array) is np.ndarray and array.dtype is dtype and array.flags.c_contiguous and array.size == size
