"""`CallSite`: a place from which C functions are called, which remembers how they were.

To find out which function computes something, whether the arrays are such as it takes, and where they are, takes longer
than to compute some thousand numbers; behind a kernel that has filled the caches it takes twice as long.  But most
calls are like the one before, only that arrays are elsewhere.  So each place keeps its latest calls, and asks a
function in C to make one again, which checks that arrays are of the same kind and lie alike, and finds their addresses.
In compilers this is an inline cache (Deutsch and Schiffman, 1984).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from vmflow.kernels.generation import GENERATION

from . import team
from .addresses import Array, alignment
from .loading import LOADER

# An extension module, which is built with the package where there is a C compiler.  Without it no call is remembered.
_extension: Any
try:
    from . import _call_site as _extension
except ImportError:
    _extension = None

# Calls that a place keeps, and how many it notes in all: one that is different each time is looked up each time.
_KEPT: Final = 4
_NOTED: Final = 64


class CallSite:
    """The latest calls from one place."""

    __slots__ = ("_calls", "_noted")

    def __init__(self) -> None:
        self._calls: tuple[_Call, ...] = ()
        self._noted = 0

    def again(self, arrays: tuple[Array, ...]) -> bool:
        """Make a call that was made before for other arrays; whether there is one for such.

        Args:
            arrays: whatever they are, those that are written last.
        """
        for call in self._calls:  # noqa: SIM110 (a generator takes as long again)
            if call.generation == GENERATION.number and call.again(arrays):
                return True
        return False

    def result(self, read: Sequence[Array], out: Array | None) -> Array | None:
        """The same for what has one result, which is returned; None if there was no such call.

        Args:
            read: the arrays, but for that of the result.
            out: where that should go, or None.
        """
        if not self._calls:
            return None
        if out is None:
            out = np.empty(self._calls[0].shape, self._calls[0].dtype)
        return out if self.again((*read, out)) else None

    def note(
        self,
        function: int,
        words: Sequence[int],
        places: Sequence[int],
        arrays: tuple[Array, ...],
        work: float,
        *,
        written: int = 1,
        in_place: bool = False,
    ) -> None:
        """Remember a call.

        Args:
            function: the address of a C function of an array of words; 0 for a job of the team's.
            words: what it takes, or the job.
            places: which of these are the addresses of the arrays.
            arrays: with which it was made, none of them empty; those that are written last.
            work: see `team.run`.
            written: how many are.
            in_place: whether they may be just where something is read.
        """
        run = 0 if function else team.address_of_run()
        # In this order: if C is switched off meanwhile, the call does not count.
        generation = GENERATION.number
        if LOADER.mode == "off" or _extension is None or not (function or run):
            return
        kept = [call for call in self._calls if call.generation == generation]
        if not kept:
            self._noted = 0  # whatever was noted before was of other times
        if self._noted >= _NOTED:
            return
        self._noted += 1
        head = [run, function, team.wakes(work), len(words), len(arrays), written, in_place]
        self._calls = (_Call(generation, [*head, *words], places, arrays), *kept[: _KEPT - 1])


class _Call:
    """One call, but for the addresses.

    Args:
        generation: from before it was made: later another call may be better, or none be wanted.
        words: what comes before the arrays, see `struct call` in call_site.c.
        places, arrays: see `CallSite.note`.

    Attributes:
        again: makes it for a tuple of arrays, if they lie so; whether they do.
        generation: that.
        shape, dtype: of the last array.
    """

    __slots__ = ("_dtypes", "again", "dtype", "generation", "shape")

    def __init__(self, generation: int, words: list[int], places: Sequence[int], arrays: tuple[Array, ...]) -> None:
        self.generation = generation
        self.shape = arrays[-1].shape
        self.dtype = arrays[-1].dtype
        # By their addresses they are told from others.
        self._dtypes = [array.dtype for array in arrays]
        for place, value in zip(places, arrays, strict=True):
            low, high = _extent(value)
            words += [
                place,
                alignment(value.dtype) - 1,
                id(value.dtype),
                low,
                high,
                value.ndim,
                *value.shape,
                *value.strides,
            ]
        self.again: Callable[[tuple[Array, ...]], bool] = _extension.remember(array("q", words).tobytes())


def _extent(of: Array) -> tuple[int, int]:
    """The first byte of an array and the one behind the last, counted from its first element."""
    reaches = [(size - 1) * stride for size, stride in zip(of.shape, of.strides, strict=True)]
    return sum([min(reach, 0) for reach in reaches]), sum([max(reach, 0) for reach in reaches]) + of.itemsize
