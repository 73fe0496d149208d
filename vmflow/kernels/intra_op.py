"""Threads within an op: kernels of large arrays are cut into pieces, which several cores compute in parallel.

numpy's loops release the interpreter's lock while they compute, so Python's threads suffice.  The thread that
calls a kernel computes from the first piece on, and helper threads from the last.  The caller waits only for pieces
that a helper has begun: next to other threads, an idle helper may have to wait for that lock for milliseconds.

The result is the same to the bit for any number of pieces.

There is one pool of these helpers for the process.  While it works for one kernel, all other kernels, also those called
within a piece, compute on the thread that calls them: no caller waits for another, and so nothing can deadlock.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Final, TypeAlias

import numpy as np

from vmflow.arguments import whole_number

from .generation import GENERATION

Array: TypeAlias = Any

# About the least work in a piece of a kernel that threads share.  Work is counted in additions of two floats from
# arrays; this many take 100 microseconds.  On two cores, handing a piece to a helper took 13 to 25
# microseconds, and hearing that it was done 13.
LEAST: Final = 1 << 19

# Pieces of flat arrays begin at multiples of this many elements, so that numpy computes each element in a vector, or in
# the rest of its loop, as it would in one piece: the sign of the larger of two zeros depends on that.
_WHOLE: Final = 64

_get_ident: Final = threading.get_ident

# Stands in `_Job.owners` for the thread that called the kernel.
_CALLER: Final = object()


class _Job:
    """A call of a kernel whose pieces the calling thread and helper threads compute.

    A thread claims a piece in one atomic step.  So, wherever Ctrl-C interrupts the calling thread, that thread waits
    only for pieces that a helper has claimed.

    Attributes:
        function: called with the arguments of each piece.
        pieces: the arguments of each piece; see `run`.
        owners: by the number of a piece, the thread that has claimed it: `_CALLER`, or an object made by a helper.
        ended: the numbers of the pieces that helpers have ended, whether or not they failed.
        errors: by the number of a piece, the exception that its computation has raised.
        bell: receives an item whenever a helper has ended a piece.
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
        """Compute all pieces that no helper has claimed, from the first on; the calling thread runs this."""
        for number, piece in enumerate(self.pieces):
            if self.owners.setdefault(number, _CALLER) is _CALLER:
                try:
                    self.function(*piece)
                except Exception as error:
                    self.errors[number] = error

    def help(self) -> None:
        """Compute all pieces that no other thread has claimed, from the last on; a helper thread runs this."""
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
        """Let no helper claim another piece, and wait for the pieces that helpers have claimed.

        Ctrl-C during the wait is raised afterwards.
        """
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
        """Raise the exception of the failed piece with the lowest number, if any has failed."""
        if self.errors:
            raise self.errors.pop(min(self.errors))


class _Pool:
    """The helper threads that compute pieces of kernels.

    Attributes:
        threads: the most threads of a kernel, including the calling one; 0 until the number is first needed.
        owner: the ident of the thread whose kernel the helpers may work for; None if there is none.
        helpers: the number of helper threads that have been started.
        inbox: the queue of jobs from which all helpers take.
    """

    def __init__(self) -> None:
        self.threads = 0
        self.renew()

    def renew(self) -> None:
        """Forget the owner and the helper threads; also called in a forked child, where no helpers exist."""
        self.owner: int | None = None
        self.helpers = 0
        self.inbox: SimpleQueue[_Job] = SimpleQueue()

    def call(self, job: _Job) -> None:
        """Send a job to as many helpers as are useful, and start missing ones.

        With the calling thread, at most `get_num_threads()` threads compute the job, and at most one for each piece.
        """
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
            return False  # too many threads, or the interpreter is ending: the kernel runs on fewer threads
        return True


def _serve(inbox: SimpleQueue[_Job]) -> None:
    # In a helper thread, kernels compute nan and infinity without numpy's warnings.
    np.seterr(all="ignore")
    while True:
        # No variable holds the job: it would keep the job's arrays alive until the next job comes.
        inbox.get().help()


_POOL: Final = _Pool()

os.register_at_fork(after_in_child=_POOL.renew)


# The number of threads


def set_num_threads(threads: int) -> None:
    """Set the number of threads that kernels of large arrays use, in the whole process and from the next kernel on.

    Results do not depend on the number.  Matrix products by BLAS have a number of their own (OPENBLAS_NUM_THREADS).

    Args:
        threads: the largest number of threads of a kernel; with 1, kernels use no helper threads.

    Raises:
        TypeError: if `threads` is not an integer, such as a bool or a float.
        ValueError: if `threads` is not positive.
    Example:
        >>> threads = flow.get_num_threads()
        >>> flow.set_num_threads(1)
        >>> flow.get_num_threads()
        1
        >>> flow.set_num_threads(threads)
    """
    threads = whole_number("set_num_threads", "the number of threads", threads, 1)
    if threads != get_num_threads():
        _POOL.threads = threads
        GENERATION.advance()


def get_num_threads() -> int:
    """Return the number of threads that kernels of large arrays use.

    Unless `set_num_threads` was called, this is OMP_NUM_THREADS, read when first needed, if that is a positive integer,
    or else the number of cores that this process may use, or 1 if that is unknown.

    Example:
        >>> flow.get_num_threads() >= 1
        True
    """
    if not _POOL.threads:
        setting = os.environ.get("OMP_NUM_THREADS", "")
        _POOL.threads = int(setting) if setting.isdecimal() and int(setting) else usable_cpus() or 1
    return _POOL.threads


def usable_cpus() -> int | None:
    """Return the number of cores that this process may run on, or of all cores if only that is known, or None."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


# Cutting


def pieces(work: float) -> int:
    """Return the number of pieces into which a kernel with this much work should be cut; see `LEAST`."""
    return 1 if work < 2 * LEAST else min(get_num_threads(), int(work) // LEAST)


def run(function: Callable[..., object], pieces: Sequence[tuple[Any, ...]]) -> None:
    """Call `function` with the arguments of each piece; helper threads may take some, unless another kernel has them.

    Args:
        function: computes one piece; helper threads call it with numpy's warnings off.
        pieces: the arguments of each call; the caller computes a single piece itself.

    Raises:
        Exception: the exception of the first piece, in order, that has failed; later pieces may be left uncomputed.
    """
    me = _get_ident()
    if len(pieces) > 1 and _POOL.owner is None:
        _POOL.owner = _POOL.owner or me
        if _POOL.owner == me:
            # No function is called between the assignment and this `try`: Ctrl-C could be raised in it, and the pool
            # would keep its owner.
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
    """Cut ``range(count)`` into ranges that threads may share; return the (start, stop) of each.

    Args:
        count: the number of items: elements or rows.
        work: the work of all items together; see `LEAST`.
        multiple: the sizes of all ranges but the last are multiples of this.
    """
    step = -(-count // pieces(work))
    step += -step % multiple
    return [(start, min(start + step, count)) for start in range(0, count, step)] if step < count else [(0, count)]


def over(count: int, work: float, function: Callable[[int, int], object], multiple: int = 1) -> None:
    """Cut ``range(count)`` by `parts`, and call ``function(start, stop)`` for each range by `run`."""
    run(function, parts(count, work, multiple))


def over_elements(kernel: Callable[..., Array], operands: Sequence[Any], out: Array, work: float) -> bool:
    """Compute an elementwise op in pieces, which threads may share; return whether it was computed.

    It is not computed if `work` is too small, or `out` is not contiguous or partly overlaps an operand.

    Args:
        kernel: ``kernel(*operands, out)`` computes the op for parts of the operands, and returns the result: `out`, or
            another array, which is then copied into `out`.
        operands: arrays that broadcast to the result, and numbers.
        out: an array for the result; it may be one of the operands.
        work: the op's work; see `LEAST`.
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
    # The op is cut along the result's first dimension of more than one element; `behind` is the number of dimensions
    # after it, since broadcasting aligns the operands' last dimensions.
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
    """Whether the address ranges of `out` and `array` are apart, or both have the same address, shape and strides.

    If so, writing an element of `out` does not change an element of `array` that is still to be read.
    """
    if not np.may_share_memory(out, array):
        return True
    same = out.__array_interface__["data"][0] == array.__array_interface__["data"][0]
    return bool(same and out.shape == array.shape and out.strides == array.strides)
