"""Threads for C kernels: a call is cut into pieces, and helper threads that know nothing of Python take some.

A piece can be small: handing one to a waiting helper thread takes about a microsecond.  Python's threads (`intra_op`),
which have to be woken and need the interpreter's lock, take tens of microseconds.  The threads are in team.c; this
module turns a kernel's arguments into a job for them.  `intra_op` holds the number of threads.

The results do not depend on the number of pieces: to the bit, but for the sign of nan.
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

# The least work in a piece for a C thread, in additions as in `intra_op.LEAST`.  This many take 3 microseconds, three
# times as long as handing the piece over.
LEAST: Final = 1 << 14

# The least work of a call that is worth waking sleeping helper threads.  Waking takes the caller some microseconds, and
# the helpers tens of them.
_WAKES: Final = 1 << 18

_MOST_PIECES: Final = 1 << 12

# MOST_THREADS of team.c.
_MOST_THREADS: Final = 256

# See team.c.
Job: TypeAlias = "array[int]"

# Threads share innermost elementwise loops in multiples of this many elements, so that two seldom write to one cache
# line.
TOGETHER: Final = 64


class Cut(NamedTuple):
    """How a call of a C function, whose arguments are int64 words, is cut into pieces of its items, such as rows.

    Attributes:
        count_at: the position of the word that counts the items.
        moves: for each other word that differs between pieces, such as an address: its position, its increase per item.
        multiple: all pieces but the last have a multiple of this many items.
        shares: the most pieces divided by the number of threads; if it is above 1, a late thread can take fewer.
    """

    count_at: int
    moves: tuple[tuple[int, int], ...]
    multiple: int = 1
    shares: int = 4


def threads() -> int:
    """Return the most threads that share a call."""
    return min(get_num_threads(), _MOST_THREADS)


def helps(work: float) -> bool:
    """Whether a call with this much work should be shared with helper threads, and their library is loaded."""
    return work >= 2 * LEAST and get_num_threads() > 1 and _run() is not None


def call_of(job: Job, work: float) -> Call | None:
    """Return a job as one prepared `Call`; None if the library of helper threads is not loaded.

    The call does not keep the job's arrays alive.  It keeps the number of threads with which the job was made.
    """
    run = _run()
    return None if run is None else (run, ((ctypes.c_int64 * len(job))(*job), wakes(work)), None)


def wakes(work: float) -> bool:
    """Whether this much work is worth waking sleeping helper threads: the second argument of C's `team_run`."""
    return work >= _WAKES


def address_of_run() -> int:
    """Return the address of C's `team_run`, which runs jobs; 0 if its library is not loaded."""
    run = _run()
    return 0 if run is None else address_of(run)


def job(function: int, words: Sequence[int], cut: Cut, work: float) -> Job | None:
    """Make a job for `run`: an array of int64 that ends with `words`; None if the call should not be shared.

    Args:
        function: the address of a C function that takes an array of words.
        words: the function's words for the whole call.
        cut: how the call is cut into pieces.
        work: the work of the whole call; see `intra_op.LEAST`.
    """
    if not helps(work):
        return None
    most, count = threads(), words[cut.count_at]
    step = -(-count // min(cut.shares * most, int(work) // LEAST, _MOST_PIECES))
    step += -step % cut.multiple
    if step >= count:
        return None
    moves = [number for move in cut.moves for number in move]
    return array("q", (function, most, cut.count_at, count, step, len(cut.moves), len(words), *moves, *words))


def run(job: Job, work: float) -> bool:
    """Run a job on this thread and any free helper threads; returns False, doing nothing, if C is switched off."""
    found = _run()
    if found is None:
        return False
    found(job.buffer_info()[0], wakes(work))
    return True


# team.c is compiled as a library of its own, since it owns the threads and must exist only once.

_function: Callable[..., Any] | None = None
# The value of `LOADER.arrived` when C's `team_run` was last looked up and not found.
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
