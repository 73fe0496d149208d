"""Calls of C functions with numpy arrays.  Each class computes a result, or returns that C cannot compute it.

C can where the function is loaded, and the arrays are contiguous and of the dtypes that the function is written for.
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

# The work of one element of an op of one operand, in additions; see `intra_op.LEAST`.
_ADDITIONS: Final = 2


def fits(array: Array, dtype: np.dtype[Any] = SINGLE) -> bool:
    """Whether C takes an array: a plain numpy array of exactly this dtype."""
    return type(array) is np.ndarray and array.dtype is dtype and is_plain(array)


def takes(out: Array, shape: tuple[int, ...], dtype: np.dtype[Any] = SINGLE) -> bool:
    """Whether C can write a result of this shape and dtype to `out`."""
    return fits(out, dtype) and out.shape == shape and bool(out.flags.writeable)


def clear_of(out: Array, array: Array) -> bool:
    """Whether two arrays share no memory, or are the same memory."""
    start, other = address(out), address(array)
    return start == other or start + out.nbytes <= other or other + array.nbytes <= start


def cut_by_row(arrays: Sequence[Array]) -> team.Cut:
    """The cut of a kernel whose first arguments are the addresses of arrays with rows, followed by their number."""
    return team.Cut(len(arrays), tuple([(place, array.nbytes // len(array)) for place, array in enumerate(arrays)]))


class NativeCall(NamedTuple):
    """A C kernel and the arguments of one call.

    Attributes:
        kernel: the function.
        arguments: those of the whole call.
        cut: returns the `team.Cut` of the pieces; only called if threads can help.
        work: see `intra_op.LEAST`.
        arrays, written, in_place: see `CallSite.note`.
        places: the positions of the arrays' addresses among the arguments; None for the first ones.
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
        """Return a call to repeat while the arrays stay at their addresses; threads share it where that pays."""
        job = self._job()
        shared = None if job is None else team.call_of(job, self.work)
        return shared or self.kernel.alone(self.arguments)

    def make(self, site: CallSite | None) -> None:
        """Make the call, by several threads where that pays; the site remembers the call unless it is None."""
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
    """A C function, as it is called from one place.

    Args:
        kernel: the function.
        dtype: of the arrays.

    Attributes:
        kernel, dtype: see above.
        site: remembers the calls.
    """

    def __init__(self, kernel: CFunction, dtype: np.dtype[Any]) -> None:
        self.kernel = kernel
        self.dtype = dtype
        self.site = CallSite()

    @classmethod
    def of(cls, name: str, dtype: np.dtype[Any], elements: int, *settings: Any) -> Self | None:
        """An instance for so many elements of this dtype; None if C has no function for them now.

        Args:
            name: of the computation.
            dtype, elements: of the arrays.
            settings: the further arguments of the class.
        """
        in_c = cls._name_in_c(name, dtype)
        kernel = function(in_c, elements) if in_c is not None and elements else None
        return None if kernel is None else cls(kernel, dtype, *settings)

    @staticmethod
    def _name_in_c(name: str, dtype: np.dtype[Any]) -> str | None:
        """The name of the C function for this dtype; None if there is none."""
        return name if dtype == SINGLE else None

    def makes(self, call: NativeCall | None) -> bool:
        """Make the call, unless it is None, and remember it; return whether there was a call."""
        if call is not None:
            call.make(self.site)
        return call is not None


class Single(InC):
    """An op of one or two operands of float32, element by element.

    Arrays with gaps are copied and not left to numpy: an op computes the same bits for any layout of its operands.
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
            The result, which is in other memory if `out` does not fit; None if C cannot compute it.
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
        """Return `call` as one call for arrays that stay at their addresses; None if C cannot compute it.

        The call keeps the present number of threads.
        """
        together = (*arrays, *outs)
        if not all([fits(array) and array.shape == outs[0].shape for array in together]):
            return None
        return [self._call(together).placed()] if all([clear_of(outs[0], array) for array in arrays]) else None

    def _call(self, arrays: tuple[Array, ...]) -> NativeCall:
        """The call for arrays of one shape; the last of them is the result's."""
        arguments = (*[address(array) for array in arrays], arrays[0].size)
        moves = tuple([(place, SINGLE.itemsize) for place in range(len(arrays))])
        work = _ADDITIONS * arrays[0].size
        cut = team.Cut(len(arrays), moves, team.TOGETHER)
        return NativeCall(self.kernel, arguments, lambda: cut, work, arrays, in_place=True)
