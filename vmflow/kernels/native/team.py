"""Threads for C kernels: a kernel's work is cut into pieces, and threads that know nothing of Python help with them.

A piece can be small: to hand one to a helper that is awake takes a microsecond, where threads of Python, which have to
be woken and need the interpreter's lock (`intra_op`), take 25 to 100.  All that is in team.c; here a kernel's
arguments become a job.  How many threads there may be is said there.

Kernels are cut so that all pieces together make what the whole would make, however many there are: to the bit, but for
the sign of what is no number.
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

# Work in a piece, at least; counted as `intra_op.LEAST` is.  That many additions take 3 microseconds, which is
# three times as long as it takes to hand them over.
LEAST: Final = 1 << 14

# From so much work on helpers that sleep are woken, which takes the caller some microseconds and them up to 54.
_WAKES: Final = 1 << 18

_MOST_PIECES: Final = 1 << 12

# See team.c.
Job: TypeAlias = "array[int]"

# Elements that threads do not share: no line of the cache should be written by two.
TOGETHER: Final = 64


class Cut(NamedTuple):
    """How the words that a C function is called with for the whole become those for a piece.

    Attributes:
        count_at: which word says how many there are of what a piece has some of.
        moves: of each address that goes on, which word it is, and by how many bytes for each of them.
        multiple: of which all pieces but the last have some.
        shares: how many pieces there are for each thread, at most: who is late, or has something else to do, takes
            fewer.
    """

    count_at: int
    moves: tuple[tuple[int, int], ...]
    multiple: int = 1
    shares: int = 4


def helps(work: float) -> bool:
    """Whether work is worth sharing, and there may be somebody to share it with."""
    return work >= 2 * LEAST and get_num_threads() > 1 and _run() is not None


def call_of(job: Job, work: float) -> Call | None:
    """A job as one call; None if nobody is there.

    The arrays must be kept alive as long as it is used, and the number of threads is that of now.
    """
    run = _run()
    return None if run is None else (run, ((ctypes.c_int64 * len(job))(*job), wakes(work)), None)


def wakes(work: float) -> bool:
    """Whether helpers that sleep are to be woken for so much work: what else is said to whom runs a job."""
    return work >= _WAKES


def address_of_run() -> int:
    """Where the function is that runs jobs; 0 if nobody is there."""
    run = _run()
    return 0 if run is None else address_of(run)


def job(function: int, words: Sequence[int], cut: Cut, work: float) -> Job | None:
    """What `run` computes, as numbers of which the last are the words; None if it is not worth sharing.

    Args:
        function: the address of a C function of an array of words.
        words: what it would be called with for the whole.
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
    """Compute a job; False if C has been switched off meanwhile."""
    found = _run()
    if found is None:
        return False
    found(job.buffer_info()[0], wakes(work))
    return True


# The library is the only one of its source, since the threads are its own.

_function: Callable[..., Any] | None = None
# When it was looked for in vain; see `Loader.arrived`.
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
