"""`Launch`: one run of a graph, from the call to its end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import final

import numpy as np

from vmflow.instructions.blob import Array, Blob
from vmflow.instructions.critical_section import CriticalSectionEnd
from vmflow.instructions.failure import Failure

from .job import Drawn


@final
class Launch:
    """What a run of a graph works on, and who is told how it went.

    Args:
        sources: the arguments.
        results: what the caller has been given, to be filled.
        numbers: what the job's numbers are this time.
        draws: for each micro-batch, what was taken of generators: (seed, position) by draw.
        uses: how many copies of the arguments are made, in all.

    Attributes:
        inputs: the arguments' arrays, once they are there.
        opened: whether they are.
        failure: what went wrong first.
        over: whether it has ended.
    """

    __slots__ = (
        "_copies_left",
        "_ended",
        "_ends",
        "_lock",
        "draws",
        "failure",
        "inputs",
        "micro",
        "numbers",
        "opened",
        "over",
        "results",
        "sources",
    )

    def __init__(
        self,
        sources: tuple[Blob, ...],
        results: tuple[Blob, ...],
        numbers: Sequence[float],
        draws: Sequence[Sequence[tuple[int, int]]],
        uses: int,
    ) -> None:
        self.sources = sources
        self.results = results
        self.numbers = numbers
        self.draws = draws
        self.inputs: list[Array] = []
        self.opened = False
        self.failure: Failure | None = None
        self.over = False
        self._lock = threading.Lock()
        self._copies_left = uses
        self._ends: tuple[CriticalSectionEnd | None, CriticalSectionEnd | None] = (None, None)
        self._ended: Callable[[Exception | None], None] | None = None

    def sections(self, inputs: CriticalSectionEnd | None, outputs: CriticalSectionEnd | None) -> None:
        """What is to end when the arguments are free, and when the results are there."""
        self._ends = (inputs, outputs)

    def open(self, failure: Failure | None) -> None:
        """The arguments are there, or will never be."""
        if failure is not None:
            self.fail(failure)
        else:
            self.inputs = [blob.array() for blob in self.sources]
        self.opened = True

    def drawn(self, scalar: Drawn, micro: int) -> int:
        """What takes the scalar's place in this run."""
        return self.draws[micro][scalar.draw][scalar.part]

    def copied(self, count: int) -> None:
        """So many of the copies of arguments have been made; after the last, the caller may write them again."""
        with self._lock:
            self._copies_left -= count
            free = self._copies_left == 0
        if free and self._ends[0] is not None:
            self.inputs = []
            self._ends[0].end()

    def put_output(self, number: int, array: Array) -> None:
        """A result."""
        blob = self.results[number]
        if blob.storage.failure is None:  # for want of memory, for instance
            np.copyto(blob.destination(), array)

    def fail(self, failure: Failure) -> None:
        """Something went wrong; the first that did is what the caller hears of."""
        with self._lock:
            if self.failure is None:
                self.failure = failure

    def begin(self, ended: Callable[[Exception | None], None]) -> None:
        """It is under way; `ended` is called when it is over."""
        self._ended = ended

    def finish(self) -> None:
        """It is over.  Later calls change nothing."""
        with self._lock:
            if self.over:
                return
            self.over = True
        self.inputs = []
        failure = self.failure
        error = failure.error if failure is not None and isinstance(failure.error, Exception) else None
        inputs, outputs = self._ends
        if inputs is not None:
            inputs.end()
        if outputs is not None:
            if failure is not None:
                outputs.fail(failure)
            outputs.end()
        if self._ended is not None:
            # Who has results hears of it by them.
            self._ended(error if outputs is None else None)
