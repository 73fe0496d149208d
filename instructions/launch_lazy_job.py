"""`LaunchLazyJob`: an instruction that starts a run of a compiled graph, and ends when the run ends."""

from __future__ import annotations

from typing import Protocol

from .blob import Blob
from .deferred import Deferred, Ended
from .failure import Failure


class LazyJob(Protocol):
    """A run of a compiled graph, which an instruction `LaunchLazyJob` launches."""

    @property
    def name(self) -> str:
        """The name of the instruction that launches the run; it contains the graph's name."""
        ...

    def launch(self, ended: Ended) -> None:
        """Start the run and return; the run calls `ended` once, from any thread, when it is over."""
        ...

    def fail(self, failure: Failure) -> None:
        """End the run, whose results hold `failure` or the run's earlier failure; does nothing if the run has ended."""
        ...


class LaunchLazyJob(Deferred):
    """Run a compiled graph once; the instruction ends when the run ends.

    If a blob of `parameters` or `reads` holds a failure, the run does not start, and its results hold a failure, too.

    Args:
        job: the run.
        parameters: the blobs that the run may change.  A run that fails poisons those whose values it leaves unknown.
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
                self.end()  # ends without an error, since the failure is not its own
                return
        self._running = True
        self.job.launch(self._over)

    def _over(self, error: Exception | None) -> None:
        self._running = False
        self.end(error)

    def fail(self, failure: Failure) -> None:
        # In the middle of the run, the parameters' values are unknown: poison them.
        for blob in self.parameters if self._running else ():
            blob.storage.poison(failure)
        self.job.fail(failure)

    def drop(self, failure: Failure) -> None:
        # The parameters are unchanged.
        self.job.fail(failure)

    def describe(self) -> str:
        return self.name
