"""`LaunchLazyJob`: start a compiled graph's run; ends when the whole run has."""

from __future__ import annotations

from typing import Protocol

from .blob import Blob
from .deferred import Deferred, Ended
from .failure import Failure


class LazyJob(Protocol):
    """A run of a graph that is to be launched."""

    @property
    def name(self) -> str:
        """The name of its launch: this instruction, and the graph."""
        ...

    def launch(self, ended: Ended) -> None:
        """Start a run and return; `ended` is to be called once, from any thread, when it is over."""
        ...

    def fail(self, failure: Failure) -> None:
        """There will be no run, or the machine was closed and nobody will hear how it ends."""
        ...


class LaunchLazyJob(Deferred):
    """Run `job` once.

    Args:
        job: see `LazyJob`.
        parameters: that the run may change.  A run that ends with an error says itself which of them it has torn.
        reads: that the run needs and does not change.
    """

    __slots__ = ("_running", "job", "name", "parameters", "reads")

    def __init__(self, job: LazyJob, parameters: tuple[Blob, ...] = (), reads: tuple[Blob, ...] = ()) -> None:
        super().__init__()
        self.name = job.name
        self.job = job
        self.parameters = parameters
        self.reads = reads
        self._running = False

    def begin(self) -> None:
        for blob in (*self.parameters, *self.reads):
            if blob.storage.failure is not None:
                self.job.fail(blob.storage.failure)
                self.end()  # the job's results tell of it
                return
        self._running = True
        self.job.launch(self._over)

    def _over(self, error: Exception | None) -> None:
        self._running = False
        self.end(error)

    def fail(self, failure: Failure) -> None:
        # Closed in the middle of a run, nobody can know what they hold.
        for blob in self.parameters if self._running else ():
            blob.storage.poison(failure)
        self.job.fail(failure)

    def drop(self, failure: Failure) -> None:
        # It has changed nothing.
        self.job.fail(failure)

    def describe(self) -> str:
        return self.name
