"""Threads within an op: kernels of large arrays are cut into pieces, which several cores compute in parallel.

numpy's loops and C release the interpreter's lock while they compute, so Python's threads suffice.  The caller of a
kernel begins with the first piece, and helpers with the last.  The caller also computes the pieces that no helper has
begun by then: next to other threads a helper may have to wait for the interpreter for milliseconds, and the caller does
not wait for a helper that is still idle.

All pieces together compute the result of the whole, to the bit, for any number of pieces.

There is one pool for the process.  While it works for one caller, all other callers, and kernels that are cut within a
piece, compute alone: nothing is queued, and so nothing can deadlock.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Final, TypeAlias

import numpy as np

from .generation import GENERATION

Array: TypeAlias = Any

# The least work in a piece.  Work is counted in additions of two floats from arrays; this many take 100 microseconds.
# Measured on two cores: handing a piece over takes 13 to 25 microseconds, and hearing that it is done takes 13; two
# cores also wait longer for memory than one.  In two pieces 0.25M additions take 1.6 times as long as in one, 0.5M 1.1
# times, 1M 0.9 times and 4M 0.65 times as long; 0.25M exponentials, each as long as three to four additions, take 1.0
# times, and rows of as many for softmax 0.75 times as long.  On a virtual machine whose idle cores take 54 microseconds
# to wake, and whose vectors make an exponential as cheap as an addition, 0.25M took 2.0 times as long in two pieces, 1M
# 1.2 times and 4M 0.65 times: see `vmflow.kernels.numpy.spreading.work`.
LEAST: Final = 1 << 19

# Pieces of flat arrays begin at multiples of so many elements, so that numpy's vector loops end where they would in the
# whole: the larger of two zeros depends on its position in the loop.
_WHOLE: Final = 64

_get_ident: Final = threading.get_ident

# The owner of the pieces that the calling thread computes.
_CALLER: Final = object()


class _Job:
    """A kernel in pieces.

    Claiming a piece and ending it are single assignments: wherever Ctrl-C comes between, no thread waits for a
    piece that no thread computes.

    Attributes:
        function: called with the numbers or arrays of each piece.
        pieces: see `run`.
        owners: by piece, the owner: the caller, or a helper's claim, a new object for each look.
        ended: the pieces that helpers have computed.
        errors: by piece, the exception that it has raised.
        bell: receives one item from a helper for each piece.
    """

    __slots__ = ("bell", "ended", "errors", "function", "owners", "pieces")

    def __init__(self, function: Callable[..., object], pieces: Sequence[tuple[Any, ...]]) -> None:
        self.function = function
        self.pieces = pieces
        self.owners: dict[int, object] = {}
        self.ended: set[int] = set()
        self.errors: dict[int, BaseException] = {}
        self.bell: SimpleQueue[None] = SimpleQueue()

    def work(self) -> None:
        """Compute the unclaimed pieces, as the caller."""
        for number, piece in enumerate(self.pieces):
            if self.owners.setdefault(number, _CALLER) is _CALLER:
                try:
                    self.function(*piece)
                except Exception as error:
                    self.errors[number] = error

    def help(self) -> None:
        """Compute the unclaimed pieces, as a helper."""
        me = object()
        for number in reversed(range(len(self.pieces))):
            if self.owners.setdefault(number, me) is me:
                try:
                    self.function(*self.pieces[number])
                except BaseException as error:
                    self.errors[number] = error
                self.ended.add(number)
                self.bell.put(None)

    def settle(self) -> None:
        """Let helpers claim no further pieces, and wait for the claimed ones; Ctrl-C is raised afterwards."""
        interruption: BaseException | None = None
        while True:
            try:
                owned = [self.owners.setdefault(number, _CALLER) for number in range(len(self.pieces))]
                while not all([owner is _CALLER or number in self.ended for number, owner in enumerate(owned)]):
                    self.bell.get()
                break
            except BaseException as error:
                interruption = error
        if interruption is not None:
            raise interruption

    def check(self) -> None:
        """Raise the exception of the first piece that has failed, if any."""
        if self.errors:
            raise self.errors.pop(min(self.errors))


class _Pool:
    """The helper threads.

    Attributes:
        threads: the most threads of a kernel, with the caller's; 0 until it is first needed.
        owner: the thread whose kernel they work for.  It is taken like a `TurnLock`, by one assignment before a `try`.
        helpers: the number of helpers.
        inbox: a queue of jobs, for all of them.
    """

    def __init__(self) -> None:
        self.threads = 0
        self.renew()

    def renew(self) -> None:
        """Start without helpers, as in a forked child."""
        self.owner: int | None = None
        self.helpers = 0
        self.inbox: SimpleQueue[_Job] = SimpleQueue()

    def call(self, job: _Job) -> None:
        """Send a job to helper threads: as many as are allowed, and at most one for each piece but the caller's."""
        wanted = min(len(job.pieces), get_num_threads()) - 1
        while self.helpers < wanted and self._start_one():
            self.helpers += 1
        for _ in range(min(wanted, self.helpers)):
            self.inbox.put(job)

    def _start_one(self) -> bool:
        name = f"vmflow-kernel-{self.helpers + 1}"
        try:
            threading.Thread(target=_serve, args=(self.inbox,), name=name, daemon=True).start()
        except RuntimeError:
            return False  # too many threads, or the interpreter is ending: the caller computes alone
        return True


def _serve(inbox: SimpleQueue[_Job]) -> None:
    # numpy warns of no nan or inf here, as everywhere that kernels run.
    np.seterr(all="ignore")
    while True:
        # The job is not kept in a variable, which would keep its arrays alive until the next job.
        inbox.get().help()


_POOL: Final = _Pool()

os.register_at_fork(after_in_child=_POOL.renew)


# The number of threads


def set_num_threads(threads: int) -> None:
    """Let kernels of large arrays use so many threads, in the whole process and from the next kernel on.

    Results do not depend on the number.  Matrix products by BLAS have their own (OPENBLAS_NUM_THREADS).

    Args:
        threads: with 1, no thread is started.

    Raises:
        TypeError: if `threads` is not an integer.
        ValueError: if `threads` is not positive.
    Example:
        >>> threads = flow.get_num_threads()
        >>> flow.set_num_threads(1)
        >>> flow.get_num_threads()
        1
        >>> flow.set_num_threads(threads)
    """
    if isinstance(threads, bool) or not isinstance(threads, (int, np.integer)):
        raise TypeError(f"set_num_threads: expected an integer, got {type(threads).__name__}")
    if threads < 1:
        raise ValueError(f"set_num_threads: there must be at least one thread, not {threads}")
    if threads != get_num_threads():
        _POOL.threads = int(threads)
        GENERATION.advance()


def get_num_threads() -> int:
    """The number of threads for kernels of large arrays: OMP_NUM_THREADS, or else the cores that this process may use.

    Example:
        >>> flow.get_num_threads() >= 1
        True
    """
    if not _POOL.threads:
        setting = os.environ.get("OMP_NUM_THREADS", "")
        _POOL.threads = int(setting) if setting.isdecimal() and int(setting) else usable_cpus() or 1
    return _POOL.threads


def usable_cpus() -> int | None:
    """The number of cores that this process may run on; None if it is not known."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


# Cutting


def pieces(work: float) -> int:
    """The number of pieces that so much work is worth cutting into; see `LEAST`."""
    return 1 if work < 2 * LEAST else min(get_num_threads(), int(work) // LEAST)


def run(function: Callable[..., object], pieces: Sequence[tuple[Any, ...]]) -> None:
    """Call a function once for each piece, on several threads if they are free.

    Args:
        function: may be called by other threads, with numpy's errors silent.
        pieces: the arguments of each call.

    Raises:
        Exception: that of the first piece that fails, once all have ended.
    """
    me = _get_ident()
    if len(pieces) > 1 and _POOL.owner is None:
        _POOL.owner = _POOL.owner or me
        if _POOL.owner == me:
            # No call before this: Ctrl-C could be raised from it.
            try:
                job = _Job(function, pieces)
                try:
                    _POOL.call(job)
                    job.work()
                finally:
                    job.settle()
            finally:
                _POOL.owner = None
            job.check()
            return
    for piece in pieces:
        function(*piece)


def parts(count: int, work: float, multiple: int = 1) -> list[tuple[int, int]]:
    """The (start, stop) of the parts of ``range(count)`` that are worth a piece each.

    Args:
        count: the number of items: elements or rows.
        work: that of all items together, see `LEAST`.
        multiple: the sizes of all parts but the last are multiples of this.
    """
    step = -(-count // pieces(work))
    step += -step % multiple
    return [(start, min(start + step, count)) for start in range(0, count, step)] if step < count else [(0, count)]


def over(count: int, work: float, function: Callable[[int, int], object], multiple: int = 1) -> None:
    """Call ``function(start, stop)`` for each of the `parts`."""
    run(function, parts(count, work, multiple))


def over_elements(kernel: Callable[..., Array], operands: Sequence[Any], out: Array, work: float) -> bool:
    """Compute an op that treats each element alone, if it can be cut into pieces; returns whether it was.

    Args:
        kernel: takes operands and the memory for the result, and returns the result.
        operands: arrays that broadcast to the result, and numbers.
        out: an array for the result; it may be one of the operands.
        work: see `LEAST`.
    """
    if pieces(work) == 1 or not out.flags.c_contiguous:
        return False
    arrays = [array for array in operands if isinstance(array, np.ndarray)]
    if not all([_clear_of(out, array) for array in arrays]):
        return False
    if all([array.size == 1 or (array.shape == out.shape and array.flags.c_contiguous) for array in arrays]):
        given = [
            array.reshape(-1 if array.size > 1 else ()) if isinstance(array, np.ndarray) else array
            for array in operands
        ]
        whole: Array = out.reshape(-1)
        multiple = _WHOLE
    else:
        given, whole, multiple = list(operands), out, 1
    # The first dimension that can be cut, counted from the last one, as arrays broadcast.
    behind = whole.ndim - 1 - next((axis for axis, size in enumerate(whole.shape) if size > 1), 0)
    count = whole.shape[-1 - behind]
    cut = [
        isinstance(array, np.ndarray) and array.ndim > behind and array.shape[-1 - behind] == count for array in given
    ]

    def part(start: int, stop: int) -> None:
        where: Any = (..., slice(start, stop), *[slice(None)] * behind)
        target = whole[where]
        result = kernel(*[value[where] if has else value for value, has in zip(given, cut, strict=True)], target)
        if result is not target:
            np.copyto(target, result, casting="unsafe")

    over(count, work, part, multiple)
    return True


def _clear_of(out: Array, array: Array) -> bool:
    """Whether two arrays have no memory in common, or have the same address and layout."""
    if not np.may_share_memory(out, array):
        return True
    same = out.__array_interface__["data"] == array.__array_interface__["data"]
    return bool(same and out.shape == array.shape and out.strides == array.strides)
