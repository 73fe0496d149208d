"""Threads for C kernels: a kernel's work is cut into pieces, which threads that know nothing of Python help to compute.

A piece can be small: handing one to a waiting helper takes a microsecond, where Python's threads (`intra_op`), which
have to be woken and need the interpreter's lock, take 25 to 100.  The threads are in team.c; this module turns a
kernel's arguments into a job.  `intra_op` holds the number of threads.

The results of all pieces together do not depend on the number of pieces: to the bit, but for the sign of nan.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from vmflow.kernels.choosing import Call
from vmflow.kernels.intra_op import get_num_threads

from .functions import address_of, text_of
from .loading import LOADER

# The least work in a piece; counted like `intra_op.LEAST`.  So many additions take 3 microseconds, three times as long
# as handing them over.
LEAST: Final = 1 << 14

# From so much work on, sleeping helpers are woken, which takes the caller some microseconds and the helpers up to 54.
_WAKES: Final = 1 << 18

_MOST_PIECES: Final = 1 << 12

# See team.c.
Job: TypeAlias = "array[int]"

# Pieces begin at multiples of so many elements, so that no two threads write to one cache line.
TOGETHER: Final = 64


class Cut(NamedTuple):
    """How the words of a whole call become the words of a piece.

    Attributes:
        count_at: the position of the word that counts the items.
        moves: for each address that advances, its position among the words, and its step in bytes from item to item.
        multiple: all pieces but the last have a multiple of this many items.
        shares: the most pieces for each thread: a thread that is late, or is interrupted, takes fewer.
    """

    count_at: int
    moves: tuple[tuple[int, int], ...]
    multiple: int = 1
    shares: int = 4


def helps(work: float) -> bool:
    """Whether work is worth sharing, and there are threads to share it with."""
    return work >= 2 * LEAST and get_num_threads() > 1 and _run() is not None


def call_of(job: Job, work: float) -> Call | None:
    """A job as one call; None if there are no helpers.

    The arrays must be kept alive as long as the call is used, which keeps the present number of threads.
    """
    run = _run()
    return None if run is None else (run, ((ctypes.c_int64 * len(job))(*job), wakes(work)), None)


def wakes(work: float) -> bool:
    """Whether to wake sleeping helper threads for so much work; the result is the second argument of C's `team_run`."""
    return work >= _WAKES


def address_of_run() -> int:
    """The address of the C function that runs jobs; 0 if there are no helpers."""
    run = _run()
    return 0 if run is None else address_of(run)


def job(function: int, words: Sequence[int], cut: Cut, work: float) -> Job | None:
    """The job for `run`, integers that end with the words; None if the work is not worth sharing.

    Args:
        function: the address of a C function of an array of words.
        words: its words for the whole call.
        cut: see there.
        work: see `intra_op.LEAST`.
    """
    if not helps(work):
        return None
    threads, count = get_num_threads(), words[cut.count_at]
    step = -(-count // min(cut.shares * threads, int(work) // LEAST, _MOST_PIECES))
    step += -step % cut.multiple
    if step >= count:
        return None
    moves = [number for move in cut.moves for number in move]
    return array("q", (function, threads, cut.count_at, count, step, len(cut.moves), len(words), *moves, *words))


def run(job: Job, work: float) -> bool:
    """Compute a job; returns False if C has been switched off meanwhile."""
    found = _run()
    if found is None:
        return False
    found(job.buffer_info()[0], wakes(work))
    return True


# No other library is made of this source, since the threads belong to this one.

_function: Callable[..., Any] | None = None
# `Loader.arrived` at the last failed lookup.
_looked = -1


def _run() -> Callable[..., Any] | None:
    return _function if _function is not None or _looked == LOADER.arrived else _look()


def _look() -> Callable[..., Any] | None:
    global _function, _looked
    arrived = LOADER.arrived
    library = LOADER.request(text_of("team.c"), apart=True)
    if library is None or library.loaded is None:
        _looked = arrived
        return None
    found: Any = library.function("team_run")
    found.argtypes = (ctypes.c_void_p, ctypes.c_int64)
    _function = found
    return _function


def _forget() -> None:
    global _function, _looked
    _function, _looked = None, -1


LOADER.watchers.append(_forget)
