"""`CallSite`: a place from which C functions are called, which remembers how they were.

To find out which function computes something, whether the arrays are such as it takes, and where they are, takes longer
than to compute some thousand numbers; behind a kernel that has filled the caches it takes twice as long.  But most
calls are like the one before, only that arrays are elsewhere.  So each place keeps its latest calls, and asks a
function in C to make one again: that looks whether arrays are of the same kind and lie alike, and where.  In compilers
this is an inline cache (Deutsch and Schiffman, 1984).
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np

from vmflow.kernels.intra_op import get_num_threads

from . import team
from .addresses import alignment
from .functions import text_of
from .loading import LOADER

Array: TypeAlias = Any

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
        for call in self._calls:
            if call.arrived == LOADER.arrived and call.threads == get_num_threads() and call.again(arrays):
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
        known, run = _known(), 0 if function else team.address_of_run()
        # In this order: if C is switched off meanwhile, the call does not count.
        arrived = LOADER.arrived
        if LOADER.mode == "off" or known is None or not (function or run):
            return
        kept = [it for it in self._calls if it.arrived == arrived and it.threads == get_num_threads()]
        if not kept:
            self._noted = 0  # whatever was noted before was of other times
        if self._noted >= _NOTED:
            return
        self._noted += 1
        head = [run, function, team.wakes(work), len(words), len(arrays), written, in_place, _HEAD, _ITEMS]
        self._calls = (_Call(known, arrived, [*head, *words], places, arrays), *kept[: _KEPT - 1])


class _Call:
    """One call, but for the addresses.

    Args:
        method: what functions that are `call_again` are made of.
        arrived: `Loader.arrived` from before it was made: later another may be better, or none be wanted.
        words: see there: what comes before the arrays.
        places, arrays: see `CallSite.note`.

    Attributes:
        again: makes it for a tuple of arrays, if they lie so; whether they do.
        arrived: that.
        threads: how many there were.
        shape, dtype: of the last array.
    """

    __slots__ = ("_dtypes", "_words", "again", "arrived", "dtype", "shape", "threads")

    def __init__(
        self,
        method: int,
        arrived: int,
        words: list[int],
        places: Sequence[int],
        arrays: tuple[Array, ...],
    ) -> None:
        self.arrived = arrived
        self.threads = get_num_threads()
        self.shape = arrays[-1].shape
        self.dtype = arrays[-1].dtype
        # By their addresses they are told from others.
        self._dtypes = [it.dtype for it in arrays]
        for place, it in zip(places, arrays, strict=True):
            low, high = _extent(it)
            words += [
                place,
                alignment(it.dtype) - 1,
                id(type(it)),
                id(it.dtype),
                low,
                high,
                it.ndim,
                *it.shape,
                *it.strides,
            ]
        self._words = array("q", words)
        words_at = self._words.buffer_info()[0]
        self.again: Callable[[tuple[Array, ...]], bool] = _new_function(method, words_at, None)


def _extent(of: Array) -> tuple[int, int]:
    """Of an array's bytes, counted from where its first element is: the first, and the one behind the last."""
    reaches = [(size - 1) * stride for size, stride in zip(of.shape, of.strides, strict=True)]
    return sum([min(it, 0) for it in reaches]), sum([max(it, 0) for it in reaches]) + of.itemsize


# What Python's objects begin with, and tuples before their items.
_HEAD: Final = object.__basicsize__
_ITEMS: Final = tuple.__basicsize__

_WORD: Final = ctypes.sizeof(ctypes.c_void_p)


class _Fields(ctypes.Structure):
    """`struct array` of call_site.c."""

    _fields_: ClassVar = [
        ("data", ctypes.c_void_p),
        ("dimensions", ctypes.c_int),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("base", ctypes.c_void_p),
        ("dtype", ctypes.c_void_p),
        ("flags", ctypes.c_int),
    ]


def _are_as_expected() -> bool:
    """Whether arrays and tuples lie in memory as call_site.c takes them to, which no other version of them need do."""
    trial = np.arange(24, dtype=np.float32).reshape(4, 6)[1:, ::2]
    pair = trial, trial.dtype
    seen = _Fields.from_address(id(trial) + _HEAD)
    return (
        ctypes.sizeof(ctypes.c_int64) == _WORD
        and ctypes.c_void_p.from_address(id(trial) + _HEAD - _WORD).value == id(np.ndarray)
        and seen.data == trial.ctypes.data
        and seen.dimensions == trial.ndim
        and seen.dtype == id(trial.dtype)
        and seen.flags == trial.flags.num
        and _numbers_at(seen.shape, trial.ndim) == trial.shape
        and _numbers_at(seen.strides, trial.ndim) == trial.strides
        and ctypes.c_ssize_t.from_address(id(pair) + _HEAD).value == len(pair)
        and ctypes.c_void_p.from_address(id(pair) + _ITEMS).value == id(trial)
        and ctypes.c_void_p.from_address(id(pair) + _ITEMS + _WORD).value == id(trial.dtype)
    )


def _numbers_at(start: int, count: int) -> tuple[int, ...]:
    return tuple((ctypes.c_int64 * count).from_address(start))


# What call_site.c needs of Python, in the order in which it takes them.
_OF_PYTHON: Final = ("PyEval_SaveThread", "PyEval_RestoreThread", "PyLong_AsVoidPtr", "PyBool_FromLong")


# From what it is made of, and an integer that it knows, to a function.
_new_function: Final = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
    ("PyCFunction_NewEx", ctypes.pythonapi)
)


# What functions that are `call_again` are made of; and when it was looked for in vain, see `Loader.arrived`.
_method: int | None = None
_looked = -1


def _known() -> int | None:
    return _method if _method is not None or _looked == LOADER.arrived else _look()


def _look() -> int | None:
    global _method, _looked
    arrived = LOADER.arrived
    library = LOADER.request(text_of("call_site.c")) if _are_as_expected() else None
    if library is None or library.loaded is None:
        _looked = arrived
        return None
    of_python = [ctypes.cast(getattr(ctypes.pythonapi, it), ctypes.c_void_p).value for it in _OF_PYTHON]
    begin: Any = library.function("call_site_begin")
    begin.restype = ctypes.c_void_p
    _method = begin((ctypes.c_void_p * len(of_python))(*of_python))
    return _method


def _forget() -> None:
    global _method, _looked
    _method, _looked = None, -1


LOADER.watchers.append(_forget)
