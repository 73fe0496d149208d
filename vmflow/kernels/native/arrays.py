"""From numpy arrays to the kernels written by hand: each function here computes, or says that it cannot.

They can where the arrays are contiguous, of the dtypes that the kernels are written for, and where these are there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Self, TypeAlias

import numpy as np

from . import team
from .addresses import address, is_plain, plain
from .call_site import CallSite
from .functions import CFunction, function

Array: TypeAlias = Any

# A function, its arguments, and the array that it returns, or None.
Call: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...], Array | None]

_SINGLE: Final = np.dtype(np.float32)

# As many additions as an element of an op of one operand takes the time of, about.
_ADDITIONS: Final = 2


def fits(array: Array, dtype: np.dtype[Any] = _SINGLE) -> bool:
    """Whether it is as the kernels take arrays."""
    return type(array) is np.ndarray and array.dtype is dtype and is_plain(array)


def takes(out: Array, shape: tuple[int, ...]) -> bool:
    """Whether a result of float32 can be written there."""
    return fits(out) and out.shape == shape and bool(out.flags.writeable)


def clear_of(out: Array, array: Array) -> bool:
    """Whether they have no memory in common, or all of it."""
    start, other = address(out), address(array)
    return start == other or start + out.nbytes <= other or other + array.nbytes <= start


class Single:
    """An op of one or two operands of float32, element by element, as it is called from one place.

    Arrays with gaps are copied and not left to numpy: however they lie, an op makes the same of the same numbers.

    Args:
        kernel: the C function.

    Attributes:
        site: where its calls are remembered.
    """

    __slots__ = ("_kernel", "site")

    def __init__(self, kernel: CFunction) -> None:
        self._kernel = kernel
        self.site = CallSite()

    @classmethod
    def of(cls, name: str, dtype: np.dtype[Any], elements: int) -> Self | None:
        """The op for operands of this dtype and a result of so many elements; None if C has none now.

        Args:
            name: see `functions.SINGLE`.
            dtype, elements: those.
        """
        kernel = function(f"single_{name}", elements) if dtype == _SINGLE else None
        return None if kernel is None else cls(kernel)

    def call(self, arrays: Sequence[Array], out: Array | None) -> Array | None:
        """Compute it.

        Args:
            arrays: the operands.
            out: where the result should go, or None.

        Returns:
            The result, which is elsewhere if it cannot be put there; None if it cannot be computed so.
        """
        found = self.site.result(arrays, out)
        return self._found(arrays, out) if found is None else found

    def _found(self, arrays: Sequence[Array], out: Array | None) -> Array | None:
        if not all([type(it) is np.ndarray and it.dtype is _SINGLE for it in arrays]):
            return None
        alike = [*arrays] if len(arrays) == 1 else np.broadcast_arrays(*arrays)
        shape = alike[0].shape
        given = [plain(it) for it in alike]
        if out is None or not takes(out, shape) or not all([clear_of(out, it) for it in given]):
            out = np.empty(shape, _SINGLE)
        _single(self._kernel, (*given, out)).make(self.site)
        return out

    def calls(self, arrays: Sequence[Array], outs: Sequence[Array]) -> list[Call] | None:
        """The same as one call, for arrays that stay where they are; None if it cannot be had.

        The number of threads is that of now.
        """
        together = (*arrays, *outs)
        if not all([fits(it) and it.shape == outs[0].shape for it in together]):
            return None
        if not all([clear_of(outs[0], it) for it in arrays]):
            return None
        return [_single(self._kernel, together).placed()]


def _single(kernel: CFunction, arrays: tuple[Array, ...]) -> NativeCall:
    """The call of a kernel on arrays of one shape, the last of them the result's."""
    arguments = (*[address(it) for it in arrays], arrays[0].size)
    work = _ADDITIONS * arrays[0].size
    return NativeCall(kernel, arguments, lambda: _by_element(arrays), work, arrays, in_place=True)


class NativeCall(NamedTuple):
    """A kernel written by hand, and what it is called with for the whole.

    Attributes:
        kernel: the function.
        arguments: for the whole.
        cut, work: see `as_call`.
        arrays, written, in_place: see `CallSite.note`.
        places: which of the arguments are the addresses of the arrays; None for the first ones.
    """

    kernel: CFunction
    arguments: tuple[Any, ...]
    cut: Callable[[], team.Cut]
    work: float
    arrays: tuple[Array, ...]
    places: tuple[int, ...] | None = None
    written: int = 1
    in_place: bool = False

    def placed(self) -> Call:
        """The call, for arrays that stay where they are."""
        return as_call(self.kernel, self.arguments, self.cut, self.work)

    def make(self, site: CallSite) -> None:
        """Make it, by several threads where that is worth it, for the site to remember."""
        at = self.kernel.by_words
        words = self.kernel.words(self.arguments)
        job = team.job(at, words, self.cut(), self.work) if team.helps(self.work) else None
        if job is not None and team.run(job, self.work):
            at = 0
        else:
            job = None
            self.kernel.call(*self.arguments)
        if all([it.size for it in self.arrays]):
            taken = words if job is None else job
            before = len(taken) - len(words)
            places = [before + it for it in self.places or range(len(self.arrays))]
            site.note(at, taken, places, self.arrays, self.work, written=self.written, in_place=self.in_place)


def _by_element(arrays: Sequence[Array]) -> team.Cut:
    """For kernels whose arguments begin with the addresses of arrays of one shape and dtype, and how many elements."""
    itemsize = arrays[0].itemsize
    return team.Cut(len(arrays), tuple([(place, itemsize) for place in range(len(arrays))]), team.TOGETHER)


def as_call(kernel: CFunction, arguments: tuple[Any, ...], cut: Callable[[], team.Cut], work: float) -> Call:
    """A kernel written by hand with its arguments, as one call, by several threads where that is worth it.

    Args:
        kernel: the function.
        arguments: for the whole.
        cut: makes one, for which arguments are words; not called where nobody would help.
        work: see `intra_op.LEAST`.
    """
    if team.helps(work):
        found = team.shared(kernel.by_words, kernel.words(arguments), cut(), work)
        if found is not None:
            return found
    return kernel.call, arguments, None
