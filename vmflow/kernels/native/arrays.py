"""Calls of C functions with numpy arrays: `InC` and `NativeCall`.

Methods of `InC` that compute a result return None or False if C cannot.  C needs the function's library to be loaded,
and arrays of the dtypes that the function is written for, most functions also contiguous ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Self

import numpy as np

from vmflow.kernels.choosing import Call

from . import team
from .addresses import Array, address, is_plain, plain
from .call_site import CallSite
from .functions import CFunction, function

SINGLE: Final = np.dtype(np.float32)
INDEX: Final = np.dtype(np.int64)

# The work of a function of `Single` for an element, in additions; see `intra_op.LEAST`.
_ADDITIONS: Final = 2


def fits(array: Array, dtype: np.dtype[Any] = SINGLE) -> bool:
    """Whether a C function can take `array`: an aligned, C-contiguous array, no subclass, of this very dtype object."""
    return type(array) is np.ndarray and array.dtype is dtype and is_plain(array)


def takes(out: Array, shape: tuple[int, ...], dtype: np.dtype[Any] = SINGLE) -> bool:
    """Whether a C function can write a result of this shape and dtype into `out`."""
    return fits(out, dtype) and out.shape == shape and bool(out.flags.writeable)


def clear_of(out: Array, array: Array) -> bool:
    """Whether two contiguous arrays have no memory in common, or begin at the same address."""
    start, other = address(out), address(array)
    return start == other or start + out.nbytes <= other or other + array.nbytes <= start


def cut_by_row(arrays: Sequence[Array]) -> team.Cut:
    """Return the `team.Cut` of a C function by the arrays' rows, along their first dimension.

    The function takes the arrays' addresses, and behind them the number of rows.
    """
    return team.Cut(len(arrays), tuple([(place, array.nbytes // len(array)) for place, array in enumerate(arrays)]))


class NativeCall(NamedTuple):
    """A C kernel with the arguments of one call.

    Attributes:
        kernel: the C function.
        arguments: the function's arguments, if one thread computes all.
        cut: returns the `team.Cut` for sharing the call among threads; only called if threads can help.
        work: the call's work; see `intra_op.LEAST`.
        arrays, written, in_place: see `CallSite.note`.
        places: the positions of the arrays' addresses among the arguments; None if they come first, in order.
    """

    kernel: CFunction
    arguments: tuple[Any, ...]
    cut: Callable[[], team.Cut]
    work: float
    arrays: tuple[Array, ...]
    places: Sequence[int] | None = None
    written: int = 1
    in_place: bool = False

    def placed(self) -> Call:
        """Return the call as a `Call`, valid while the arrays keep their addresses; threads share a large call."""
        job = self._job()
        shared = None if job is None else team.call_of(job, self.work)
        return shared or self.kernel.alone(self.arguments)

    def make(self, site: CallSite | None) -> None:
        """Make the call, which threads share if it is large; `site`, unless None, notes it if no array is empty."""
        job = self._job()
        if job is None or not team.run(job, self.work):
            job = None
            call, arguments, _ = self.kernel.alone(self.arguments)
            call(*arguments)
        if site is not None and all([array.size for array in self.arrays]):
            at, words = (self.kernel.by_words, self.kernel.words(self.arguments)) if job is None else (0, job)
            before = len(words) - len(self.arguments)
            places = [before + place for place in self.places or range(len(self.arrays))]
            site.note(at, words, places, self.arrays, self.work, written=self.written, in_place=self.in_place)

    def _job(self) -> team.Job | None:
        if not team.helps(self.work):
            return None
        return team.job(self.kernel.by_words, self.kernel.words(self.arguments), self.cut(), self.work)


class InC:
    """A C function for one op, with a `CallSite` that remembers its latest calls.

    Args:
        kernel: the C function.
        dtype: the dtype of the arrays.

    Attributes:
        kernel, dtype: see above.
        site: remembers the latest calls.
    """

    def __init__(self, kernel: CFunction, dtype: np.dtype[Any]) -> None:
        self.kernel = kernel
        self.dtype = dtype
        self.site = CallSite()

    @classmethod
    def of(cls, name: str, dtype: np.dtype[Any], elements: int, *settings: Any) -> Self | None:
        """Make an instance for arrays of a dtype and size; None if no C function for them may be used now.

        Args:
            name: the computation's name, such as "softmax".
            dtype: the dtype of the arrays.
            elements: the number of their elements; with 0, the result is None.
            settings: the further arguments of the class.
        """
        in_c = cls._name_in_c(name, dtype)
        kernel = function(in_c, elements) if in_c is not None and elements else None
        return None if kernel is None else cls(kernel, dtype, *settings)

    @staticmethod
    def _name_in_c(name: str, dtype: np.dtype[Any]) -> str | None:
        """Return the name of the C function that does the computation `name` for `dtype`; None if there is none."""
        return name if dtype == SINGLE else None

    def makes(self, call: NativeCall | None) -> bool:
        """Make a call, unless it is None, and let `site` note it; returns whether it was made."""
        if call is not None:
            call.make(self.site)
        return call is not None


class Single(InC):
    """A C function of `functions.SINGLE`: an elementwise op of one or two float32 operands, such as `exp`.

    `call` copies strided arrays and does not leave them to numpy: the op computes the same bits for any layout.
    """

    @staticmethod
    def _name_in_c(name: str, dtype: np.dtype[Any]) -> str | None:
        return f"single_{name}" if dtype == SINGLE else None

    def call(self, arrays: Sequence[Array], out: Array | None) -> Array | None:
        """Compute the op.

        Args:
            arrays: the operands.
            out: memory for the result, or None.

        Returns:
            The result, in other memory if C cannot write it to `out`; None if C cannot compute it.
        """
        found = self.site.result(arrays, out)
        return self._found(arrays, out) if found is None else found

    def _found(self, arrays: Sequence[Array], out: Array | None) -> Array | None:
        if not all([type(array) is np.ndarray and array.dtype is SINGLE for array in arrays]):
            return None
        same_shape = [*arrays] if len(arrays) == 1 else np.broadcast_arrays(*arrays)
        shape = same_shape[0].shape
        given = [plain(value) for value in same_shape]
        if out is None or not takes(out, shape) or not all([clear_of(out, array) for array in given]):
            out = np.empty(shape, SINGLE)
        self._call((*given, out)).make(self.site)
        return out

    def calls(self, arrays: Sequence[Array], outs: Sequence[Array]) -> list[Call] | None:
        """Prepare the op as one call for arrays that keep their addresses; None if C cannot compute it without copies.

        The call keeps the present number of threads.
        """
        together = (*arrays, *outs)
        if not all([fits(array) and array.shape == outs[0].shape for array in together]):
            return None
        return [self._call(together).placed()] if all([clear_of(outs[0], array) for array in arrays]) else None

    def _call(self, arrays: tuple[Array, ...]) -> NativeCall:
        """Return the C function's call for arrays of one shape, the last of which is the result."""
        arguments = (*[address(array) for array in arrays], arrays[0].size)
        moves = tuple([(place, SINGLE.itemsize) for place in range(len(arrays))])
        work = _ADDITIONS * arrays[0].size
        cut = team.Cut(len(arrays), moves, team.TOGETHER)
        return NativeCall(self.kernel, arguments, lambda: cut, work, arrays, in_place=True)
