"""`Launch`: one run of a graph, from the call to its end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import final

import numpy as np

from vmflow.instructions.blob import Array, Blob, Storage
from vmflow.instructions.critical_section import CriticalSection
from vmflow.instructions.failure import Failure
from vmflow.kernels.copies import assign
from vmflow.streams.stream import Stream

from .job import Drawn

_NONE: Mapping[int, Storage] = {}


@final
class Launch:
    """One run of a graph: its arguments, its results, and its failure if there is one.

    Args:
        sources: the blobs of the tensor arguments, then of loaders' batches.
        results: the blobs of the results, which the run fills.
        numbers: the values of the job's numbers.
        draws: for each micro-batch, by draw, the (seed, position) taken from a generator.
        uses: how often the run copies an argument, or reads one in place.
        variables: by buffer, the memory that the job's variables had at the call.

    Attributes:
        inputs: the arguments' arrays; empty before `fetch`, and after their last use.
        over_to: called once, when the launch has ended; None to call nothing.
        own: the storages from which `fetch` copies arguments, since the run changes them.
        opened: whether `open` has been called.
        failure: the first failure, or None.
        over: whether the launch has ended.
        started: whether the launch has been started by the queue.
        section: keeps others from writing the arguments; None if not needed, or after the end.
        stream: the stream of the section, or None.
    """

    __slots__ = (
        "_copies_left",
        "_ended",
        "_lock",
        "draws",
        "failure",
        "inputs",
        "numbers",
        "opened",
        "over",
        "over_to",
        "own",
        "results",
        "section",
        "sources",
        "started",
        "stream",
        "variables",
    )

    def __init__(
        self,
        sources: tuple[Blob, ...],
        results: tuple[Blob, ...],
        numbers: Sequence[float],
        draws: Sequence[Sequence[tuple[int, int]]],
        uses: int,
        variables: Mapping[int, Storage] = _NONE,
    ) -> None:
        self.sources = sources
        self.results = results
        self.inputs: list[Array] = []
        self.numbers = numbers
        self.draws = draws
        self.variables = variables
        self.own: frozenset[Storage] = frozenset()
        self.opened = False
        self.failure: Failure | None = None
        self.over = False
        self.started = False
        self.section: CriticalSection | None = None
        self.stream: Stream | None = None
        self._lock = threading.Lock()
        self._copies_left = uses
        self.over_to: Callable[[Launch], None] | None = None
        self._ended: Callable[[Exception | None], None] | None = None

    def renew(self) -> None:
        """Replace the lock in a forked child, where a thread that held it does not exist."""
        self._lock = threading.Lock()

    def report_to(self, over_to: Callable[[Launch], None]) -> None:
        """Set the function to call once, when the launch has ended."""
        self.over_to = over_to

    def share(
        self, own: frozenset[Storage], section: CriticalSection | None = None, stream: Stream | None = None
    ) -> None:
        """Set the attributes by which the run's arguments are protected from writes."""
        self.own = own
        self.section = section
        self.stream = stream

    def open(self, failure: Failure | None) -> None:
        """Note that the arguments are available, or (with a failure) that the launch will not read them."""
        if failure is not None:
            self.fail(failure)
        self.opened = True

    def start(self) -> None:
        """Note that the queue starts the launch."""
        self.started = True

    def fetch(self) -> None:
        """Set `inputs`, or fail the launch if an argument has failed; called when the arguments are available."""
        for blob in self.sources:
            if blob.storage.failure is not None:
                self.fail(blob.storage.failure)
                return
        own = self.own
        self.inputs = [
            blob.array() if not own or blob.storage not in own else blob.array().copy() for blob in self.sources
        ]

    def drawn(self, scalar: Drawn, micro: int) -> int:
        """The seed or position that replaces a placeholder in this micro-batch."""
        return self.draws[micro][scalar.draw][scalar.part]

    def copied(self, count: int) -> None:
        """Count `count` uses of arguments as done; the last ends the section that keeps others from writing them."""
        # No call is in this line, so that Python switches to no other thread that changes the count meanwhile.
        left = self._copies_left = self._copies_left - count
        if left == 0:
            self.inputs = []
            section = self.section
            if section is not None:
                section.end()

    def destination(self, number: int) -> Array:
        """The memory for a result."""
        blob = self.results[number]
        if blob.storage.failure is not None:  # for example, there was no memory for the result; the run goes on
            return np.empty(blob.meta.shape, blob.meta.dtype.numpy)
        return blob.destination()

    def put_output(self, number: int, array: Array) -> None:
        """Copy a result to its memory, unless its storage holds a failure."""
        blob = self.results[number]
        if blob.storage.failure is None:  # for example, no memory
            assign(blob.destination(), array)

    def fail(self, failure: Failure) -> None:
        """Record a failure of the launch; the caller gets the first one."""
        with self._lock:
            if self.failure is None:
                self.failure = failure

    def begin(self, ended: Callable[[Exception | None], None]) -> None:
        """Call `ended` once the launch has ended, or now if it has: with the result of `_error`."""
        with self._lock:
            over = self.over
            if not over:
                self._ended = ended
        if over:
            ended(self._error())

    def finish(self) -> None:
        """End the launch, and let all waiters go on.  Later calls change nothing."""
        with self._lock:
            if self.over:
                return
            failure = self.failure
            if failure is not None:
                # Poison the results of the failed launch before any waiter learns of the end.
                for blob in self.results:
                    if blob.storage.failure is None:
                        blob.storage.poison(failure)
            self.over = True
            # `_ended` and `section` refer to this launch: without the cycle, it is freed without garbage collection.
            ended, self._ended = self._ended, None
            section, self.section = self.section, None
        self.inputs = []
        if section is not None:
            section.end()
        if ended is not None:
            ended(self._error())
        if self.over_to is not None:
            self.over_to(self)

    def _error(self) -> Exception | None:
        """The failure's error, if it is an `Exception` and there are no results to hold the failure; else None."""
        if self.results or self.failure is None:
            return None
        error = self.failure.error
        if not isinstance(error, Exception):
            return None
        self.failure.observe()  # the launch reports it
        return error
