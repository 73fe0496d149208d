"""`CallSite`: remembers the latest calls of a C function, and repeats them for other arrays.

Finding the function of an op, checking its arrays and finding their addresses takes longer than computing some thousand
numbers.  But most calls differ from the one before only in the addresses of the arrays.  So each call site keeps its
latest calls.  A C function checks that new arrays have the same dtypes, shapes and strides, finds their addresses, and
repeats the call.  Compilers call this an inline cache (Deutsch and Schiffman, 1984).
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

# The extension module that repeats calls, built with the package if there is a C compiler; without the module, no call
# is remembered.
_extension: Any
try:
    from . import _call_site as _extension
except ImportError:
    _extension = None

# The most calls that a call site keeps, and the most that it notes in one generation: if each call is new, noting them
# does not pay.
_KEPT: Final = 4
_NOTED: Final = 64


class CallSite:
    """The latest calls of a C function from one place, to be repeated for other arrays of the same layouts."""

    __slots__ = ("_calls", "_noted")

    def __init__(self) -> None:
        self._calls: tuple[_Call, ...] = ()
        self._noted = 0

    def again(self, arrays: tuple[Array, ...]) -> bool:
        """Repeat a remembered call for other arrays; returns False if none of this generation's calls can take them.

        Args:
            arrays: the arrays, of any types and dtypes; the written ones come last.
        """
        for call in self._calls:  # noqa: SIM110 (a generator takes as long again)
            if call.generation == GENERATION.number and call.again(arrays):
                return True
        return False

    def result(self, read: Sequence[Array], out: Array | None) -> Array | None:
        """Repeat a remembered call that has one result, and return the result; None if none was repeated.

        Args:
            read: all arrays except the result.
            out: memory for the result; None for a new array with the shape and dtype of the latest noted call's result.
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
        """Remember a call that was made, if such calls can be repeated and not too many have been noted.

        Args:
            function: the address of a C function that takes an array of words; 0 for a job that threads share.
            words: the function's array of words, or the job; see `team.job`.
            places: the positions of the arrays' addresses among the words.
            arrays: the arrays of the call, none of them empty; the written ones come last.
            work: the work of the call; see `intra_op.LEAST`.
            written: the number of written arrays.
            in_place: whether a written array may be the same memory as a read one.
        """
        run = 0 if function else team.address_of_run()
        # The generation is read before the mode: if another thread then switches C off, the call is not remembered, or
        # is remembered with an old generation and so not used.
        generation = GENERATION.number
        if LOADER.mode == "off" or _extension is None or not (function or run):
            return
        kept = [call for call in self._calls if call.generation == generation]
        if not kept:
            self._noted = 0  # calls noted under an earlier generation do not count
        if self._noted >= _NOTED:
            return
        self._noted += 1
        head = [run, function, team.wakes(work), len(words), len(arrays), written, in_place]
        self._calls = (_Call(generation, [*head, *words], places, arrays), *kept[: _KEPT - 1])


class _Call:
    """A remembered call of a C function, to be repeated for arrays at any addresses.

    Args:
        generation: `GENERATION.number` at the call: later, another function may be better, or C switched off.
        words: the fields before the arrays, see `struct call` in call_site.c.
        places, arrays: see `CallSite.note`.

    Attributes:
        again: repeats the call for a tuple of arrays of the same dtypes and layouts; returns False if it cannot take
            them.
        generation: see above.
        shape, dtype: the shape and dtype of the last array, which is the result of a call with one result.
    """

    __slots__ = ("_dtypes", "again", "dtype", "generation", "shape")

    def __init__(self, generation: int, words: list[int], places: Sequence[int], arrays: tuple[Array, ...]) -> None:
        self.generation = generation
        self.shape = arrays[-1].shape
        self.dtype = arrays[-1].dtype
        # C compares dtypes by the addresses of their objects, so these are kept alive here.
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
    """Return the offsets, in bytes from an array's first element, of its lowest byte and of the end of its memory."""
    reaches = [(size - 1) * stride for size, stride in zip(of.shape, of.strides, strict=True)]
    return sum([min(reach, 0) for reach in reaches]), sum([max(reach, 0) for reach in reaches]) + of.itemsize
