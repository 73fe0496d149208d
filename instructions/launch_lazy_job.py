"""`LaunchLazyJob`: start a compiled graph's run; ends when the whole run has."""

from __future__ import annotations

from typing import Protocol

from .blob import Blob
from .deferred import Deferred, Ended
from .failure import Failure


class LazyJob(Protocol):
    """A graph's run that can be launched."""

    @property
    def name(self) -> str:
        """The name of an instruction that launches this job, with the graph's name in it."""
        ...

    def launch(self, ended: Ended) -> None:
        """Start a run and return; it calls `ended` once, from any thread, when it is over."""
        ...

    def fail(self, failure: Failure) -> None:
        """Let the run's results hold `failure`: it will not begin, or its machine was closed in the middle of it."""
        ...


class LaunchLazyJob(Deferred):
    """Run `job` once.

    Args:
        job: see `LazyJob`.
        parameters: the blobs that the run may change.  If it ends with an error, it poisons the damaged ones itself.
        reads: the blobs that the run only reads.
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
                self.end()  # the job's results hold the failure
                return
        self._running = True
        self.job.launch(self._over)

    def _over(self, error: Exception | None) -> None:
        self._running = False
        self.end(error)

    def fail(self, failure: Failure) -> None:
        # If the machine was closed in the middle of a run, the values of the parameters are unknown.
        for blob in self.parameters if self._running else ():
            blob.storage.poison(failure)
        self.job.fail(failure)

    def drop(self, failure: Failure) -> None:
        # The parameters are unchanged.
        self.job.fail(failure)

    def describe(self) -> str:
        return self.name
