"""`LaunchLazyJob`: start a compiled graph's run; ends when the whole run has."""

from __future__ import annotations

from typing import Protocol

from .blob import Blob
from .deferred import Deferred, Ended
from .failure import Failure


class LazyJob(Protocol):
    """What is launched."""

    @property
    def name(self) -> str:
        """Of the graph."""
        ...

    def launch(self, ended: Ended) -> None:
        """Start a run and return; `ended` is to be called once, from any thread, when it is over."""
        ...


class LaunchLazyJob(Deferred):
    """Run `job` once.

    Args:
        job: see `LazyJob`.
        parameters: what the run may change.  If it ends with an error, nobody can know what they hold.
    """

    __slots__ = ("job", "parameters")

    name = "launch_lazy_job"

    def __init__(self, job: LazyJob, parameters: tuple[Blob, ...] = ()) -> None:
        super().__init__()
        self.job = job
        self.parameters = parameters

    def begin(self) -> None:
        for blob in self.parameters:
            if blob.storage.failure is not None:
                raise blob.storage.failure.error
        self.job.launch(self.end)

    def fail(self, failure: Failure) -> None:
        for blob in self.parameters:
            blob.storage.failure = failure

    def drop(self, failure: Failure) -> None:
        """Dropped before it began, the run has changed nothing."""

    def describe(self) -> str:
        return f"{self.name}({self.job.name})"
