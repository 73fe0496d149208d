"""Takes an optimizer's step for many parameters in one call of a C function.

For a small parameter, a call of its own would take longer than its step.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final
from weakref import ref

import numpy as np

from vmflow.kernels.generation import GENERATION

from . import team
from .addresses import Array, address, is_plain
from .functions import function

_KINDS: Final = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}

# Parameters of at most this many elements are not divided among threads.
_WHOLE: Final = 1 << 12

# The number of groups of parameters' parts for each thread; with several, a late thread can take fewer.
_SHARES: Final = 4

# The parts of a parameter, except the last, have a multiple of this many elements, so that two parts seldom share a
# cache line.
_LINES: Final = 64


class Steps:
    """Prepares the optimizer steps of one group of parameters; keeps addresses of parameters and state between steps.

    Args:
        name: the name of the function in updates.c, without the dtype.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._layout: _Layout | None = None

    def begin(self, written: Sequence[Sequence[Array]], gradients: Sequence[Array]) -> Step | None:
        """Prepare the step of all parameters that C can change; None if there are none, or gradients overlap `written`.

        Args:
            written: the parameters, and the arrays of each kind of the optimizer's state, in the same order.
            gradients: the gradients of all parameters.
        """
        layout = self._layout
        if layout is None or layout.generation != GENERATION.number or not layout.is_of(written):
            # A layout is never changed, except for its attribute `step`, since other threads may use it.
            layout = self._layout = _Layout(self._name, written, None)
        before = layout.step
        if before is not None and before.is_of(gradients):
            return before
        fitting = [
            position
            for position in layout.chosen
            if _fits(gradients[position], layout.dtype, written[0][position].size)
        ]
        if len(fitting) < len(layout.chosen):
            layout = _Layout(self._name, written, fitting)
        if not fitting:
            return None
        # If the gradients have the addresses of the step before, as is common, the same `Step` serves again.
        places = [address(gradients[position]) for position in fitting]
        before = layout.step
        if before is not None and before.places == places:
            return before
        ends = [start + nbytes for start, nbytes in zip(places, layout.sizes, strict=True)]
        if any([layout.writes(start, end) for start, end in zip(places, ends, strict=True)]):
            return None  # gradients overlap `written`: numpy takes the parameters' steps one after the other
        step = layout.step = Step(layout, places, gradients)
        return step


class _Layout:
    """The addresses of parameters and of the optimizer's state, and their division into parts for threads.

    Args:
        name: see `Steps`.
        written: see `Steps.begin`.
        chosen: the positions of the parameters to change; None for all that C can change.

    Attributes:
        generation: `GENERATION.number` before all else was read: in a later generation another function or number of
            threads may be wanted.
        kernel: the C function; None if it is not loaded, or there is none for `dtype`.
        dtype: the dtype of the first parameter.
        chosen: the positions of the parameters that the step changes.
        sizes: the bytes of each chosen parameter.
        table: the argument of the C function, without the gradients' addresses: (groups, parts of a group, columns).
        owners, offsets: for each group and part, the number of its parameter among the chosen ones, and the offset of
            the part in this parameter, in bytes.
        ranges: the memory that the step writes, sorted: the (first byte, end) of each array.
        work: the work of a step, see `intra_op.LEAST`; 0 if only one thread may take the step.
        step: the last step that was prepared with this layout.
    """

    def __init__(self, name: str, written: Sequence[Sequence[Array]], chosen: list[int] | None) -> None:
        self.generation = GENERATION.number
        # Weak references, so that the layout does not keep the memory of replaced parameters.
        self._written = [ref(array) for column in written for array in column]
        first = written[0]
        dtype = self.dtype = first[0].dtype
        elements = sum([value.size for value in first])
        self.kernel = function(f"{name}_{_KINDS[dtype]}", elements) if dtype in _KINDS else None
        arrays = list(zip(*written, strict=True))
        if self.kernel is None:
            chosen = []
        elif chosen is None:
            chosen = [
                place for place, row in enumerate(arrays) if all([_fits(value, dtype, row[0].size) for value in row])
            ]
        self.chosen = chosen
        self.sizes = [first[position].nbytes for position in chosen]
        self.ranges = sorted(
            [(address(value), address(value) + value.nbytes) for row in chosen for value in arrays[row] if value.nbytes]
        )
        apart = all([end <= start for (_, end), (start, _) in pairwise(self.ranges)])
        # If parameters share memory, one thread changes them one after the other.
        self.work = sum([first[position].size for position in chosen]) * (len(written) + 1) if apart else 0
        parts = _parts(
            [first[position].size for position in chosen], _SHARES * team.threads() if team.helps(self.work) else 1
        )
        self.owners = parts[:, :, 0]
        self.offsets = parts[:, :, 1] * dtype.itemsize
        self.table = np.zeros((*self.owners.shape, len(written) + 3), np.int64)
        for kind, column in enumerate(written):
            starts = np.array([address(column[position]) for position in chosen], np.int64)
            self.table[:, :, kind] = starts[self.owners] + self.offsets if chosen else 0
        self.table[:, :, -2] = parts[:, :, 2]
        self.table[:, :, -1] = self.owners
        self.step: Step | None = None

    def is_of(self, written: Sequence[Sequence[Array]]) -> bool:
        """Whether the layout was made for these very arrays, all of which are still alive."""
        return _are(self._written, [value for column in written for value in column])

    def writes(self, start: int, end: int) -> bool:
        """Whether the step writes to any byte from address `start` up to `end`; not exact if `ranges` overlap."""
        place = bisect_left(self.ranges, (end, end))
        return place > 0 and self.ranges[place - 1][1] > start


def _parts(sizes: Sequence[int], groups: int) -> Array:
    """Divide parameters of `sizes` elements among `groups`; return (groups, parts, 3): owner, first element and count.

    A large parameter is cut into shares, one for each group in order until none is left; a small one goes to the group
    with the fewest elements.  Groups of fewer parts are padded with parts of no elements.
    """
    found: list[list[tuple[int, int, int]]] = [[] for _ in range(groups)]
    for owner, size in enumerate(sizes):
        if size <= _WHOLE or groups == 1:
            fewest = min(found, key=lambda group: sum([count for _, _, count in group]))
            fewest.append((owner, 0, size))
            continue
        share = -(-size // groups)
        share += -share % _LINES
        for group, start in zip(found, range(0, size, share), strict=False):
            group.append((owner, start, min(share, size - start)))
    most = max([len(group) for group in found])
    return np.array([group + [(0, 0, 0)] * (most - len(group)) for group in found], np.int64).reshape(groups, most, 3)


class Step:
    """An optimizer's step of some parameters, prepared for given addresses of their gradients.

    Args:
        layout: the addresses of the parameters and of the optimizer's state.
        places: the addresses of the gradients of the parameters that the step changes.
        gradients: the gradients of all parameters.

    Attributes:
        positions: the positions of the parameters that the step changes.
        places: see above.
    """

    def __init__(self, layout: _Layout, places: list[int], gradients: Sequence[Array]) -> None:
        assert layout.kernel is not None
        self.positions = layout.chosen
        self._kernel = layout.kernel.call
        self.places = places
        self._gradients = [ref(array) for array in gradients]
        table = self._table = layout.table.copy()
        table[:, :, -3] = np.array(places, np.int64)[layout.owners] + layout.offsets
        groups, rows = layout.owners.shape
        self._arguments = address(table), 0, groups, rows
        self._work = layout.work
        cut = team.Cut(2, ((0, table.strides[0]),), 1, _SHARES)
        self._job = team.job(layout.kernel.by_words, self._arguments, cut, layout.work)

    def is_of(self, gradients: Sequence[Array]) -> bool:
        """Whether the step was made for these very gradient arrays, as in a graph, which reuses them."""
        return _are(self._gradients, gradients)

    def take(self, own: Sequence[float], *settings: float) -> None:
        """Change the parameters and the optimizer's state by one step.

        Args:
            own: the values that differ between the changed parameters, one parameter after the other.
            settings: the values that all parameters share.
        """
        values = array("d", (*settings, *own))
        if self._job is not None:
            job = self._job[:]
            job[len(job) - len(self._arguments) + 1] = values.buffer_info()[0]
            if team.run(job, self._work):
                return
        table, _, groups, rows = self._arguments
        self._kernel(table, values.buffer_info()[0], groups, rows)


def _are(known: Sequence[ref[Array]], arrays: Sequence[Array]) -> bool:
    """Whether the weak references refer to exactly these arrays, in order; False if one has died."""
    return len(known) == len(arrays) and all([value() is array for value, array in zip(known, arrays, strict=True)])


def _fits(array: Array, dtype: np.dtype[Any], size: int) -> bool:
    return type(array) is np.ndarray and array.dtype is dtype and array.size == size and is_plain(array)
