"""What a session raises in place of a result.  Each says what to do, and which HTTP status it comes to."""

from __future__ import annotations

from typing import ClassVar

from vmflow.errors import DeadlineExceeded


class ServingError(RuntimeError):
    """A request was not served.

    Attributes:
        status: the HTTP status that says so.
        reason: under which `Statistics.rejected` counts a request that was turned away by it.
        retry_after: seconds after which it is worth trying again; None if it is not.
    """

    status: ClassVar[int] = 500
    reason: ClassVar[str] = "failed"
    retry_after: float | None = None


class InvalidInput(ServingError, ValueError):
    """The inputs are not what the session was declared to take; nothing was done with them."""

    status = 422
    reason = "invalid"


class Overloaded(ServingError):
    """As much is waiting as may wait."""

    status = 503
    reason = "overloaded"

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Draining(ServingError):
    """The session finishes what it has and takes nothing new; another process may."""

    status = 503
    reason = "draining"
    retry_after = 1.0


class NotReady(ServingError):
    """The session has not been started, is warming up, or has been closed."""

    status = 503
    reason = "not_ready"
    retry_after = 1.0


class Expired(ServingError, DeadlineExceeded):
    """The deadline of a request has passed before it had its result."""

    status = 504
    reason = "expired"
