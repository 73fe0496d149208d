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
    """One run of a graph: its arguments and results, and how it went.

    Args:
        sources: the arguments.
        results: given to the caller already, to be filled.
        numbers: the values of the job's numbers.
        draws: for each micro-batch, the places that were taken of generators: (seed, position) by draw.
        uses: how often arguments are copied, or read where they are, in all.
        variables: by buffer, the memory that the job's variables had at the call.

    Attributes:
        inputs: the arguments' arrays; none before they have been fetched.
        over_to: called once, when it is over; None if nobody wants to know.
        own: memory that the run itself changes, so that arguments that lie there have to be copied first.
        opened: whether the arguments are there.
        failure: the first that went wrong.
        over: whether it has ended.
        started: whether it has been among those that run.
        section: keeps others from writing the arguments; None without arguments.
        stream: on which that is.
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
        """In a forked child: the lock may have been held by a thread that is not here."""
        self._lock = threading.Lock()

    def report_to(self, over_to: Callable[[Launch], None]) -> None:
        """Call this once, when it is over."""
        self.over_to = over_to

    def share(
        self, own: frozenset[Storage], section: CriticalSection | None = None, stream: Stream | None = None
    ) -> None:
        """Say what of the arguments is whose while it runs; see the attributes of these names."""
        self.own = own
        self.section = section
        self.stream = stream

    def open(self, failure: Failure | None) -> None:
        """The arguments are there, or will never be."""
        if failure is not None:
            self.fail(failure)
        self.opened = True

    def start(self) -> None:
        """Its turn has come."""
        self.started = True

    def fetch(self) -> None:
        """Find the arguments, behind all launches whose results they may be."""
        for blob in self.sources:
            if blob.storage.failure is not None:
                self.fail(blob.storage.failure)
                return
        own = self.own
        self.inputs = [
            blob.array() if not own or blob.storage not in own else blob.array().copy() for blob in self.sources
        ]

    def drawn(self, scalar: Drawn, micro: int) -> int:
        """The number that takes the scalar's place in this run."""
        return self.draws[micro][scalar.draw][scalar.part]

    def copied(self, count: int) -> None:
        """So many of the arguments' uses are over; after the last, the caller may write them again."""
        # One line, between whose bytecodes no other thread has its turn.
        left = self._copies_left = self._copies_left - count
        if left == 0:
            self.inputs = []
            section = self.section
            if section is not None:
                section.end()

    def destination(self, number: int) -> Array:
        """Where a result is wanted."""
        blob = self.results[number]
        if blob.storage.failure is not None:  # for want of memory, for instance; what else the run does is done
            return np.empty(blob.meta.shape, blob.meta.dtype.numpy)
        return blob.destination()

    def put_output(self, number: int, array: Array) -> None:
        """A result."""
        blob = self.results[number]
        if blob.storage.failure is None:  # for want of memory, for instance
            assign(blob.destination(), array)

    def fail(self, failure: Failure) -> None:
        """Something went wrong; the first that did is what the caller hears of."""
        with self._lock:
            if self.failure is None:
                self.failure = failure

    def begin(self, ended: Callable[[Exception | None], None]) -> None:
        """It is under way; `ended` is called when it is over, which it may already be."""
        with self._lock:
            over = self.over
            if not over:
                self._ended = ended
        if over:
            ended(self._error())

    def finish(self) -> None:
        """It is over.  Later calls change nothing."""
        with self._lock:
            if self.over:
                return
            failure = self.failure
            if failure is not None:
                # Before anybody can hear that it is over.
                for blob in self.results:
                    if blob.storage.failure is None:
                        blob.storage.poison(failure)
            self.over = True
            # Both hold this in turn, and the arguments' and results' memory must not wait for the collector.
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
        """For who has no results by which to hear of it."""
        if self.results or self.failure is None:
            return None
        error = self.failure.error
        if not isinstance(error, Exception):
            return None
        self.failure.observe()  # the launch itself tells of it
        return error
