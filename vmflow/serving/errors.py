"""The errors that a session raises in place of a result, each with its HTTP status."""

from __future__ import annotations

from typing import ClassVar

from vmflow.errors import DeadlineExceeded


class ServingError(RuntimeError):
    """A request was not served.

    Subclasses may give the attributes in the class line: ``class TooLarge(ServingError, status=413)``.

    Attributes:
        status: the HTTP status of the answer.
        reason: the key of `Statistics.rejected` that counts requests rejected by it.
        retry_after: seconds after which another try may succeed; None if none will.
    """

    status: ClassVar[int] = 500
    reason: ClassVar[str] = "failed"
    retry_after: float | None = None

    def __init_subclass__(cls, **attributes: int | str | float) -> None:
        super().__init_subclass__()
        for name, value in attributes.items():
            setattr(cls, name, value)


class InvalidInput(ServingError, ValueError, status=422, reason="invalid"):
    """The inputs do not fit the declaration of the session; nothing was computed."""


class Overloaded(ServingError, status=503, reason="overloaded"):
    """As many requests are waiting as may wait."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Draining(ServingError, status=503, reason="draining", retry_after=1.0):
    """The session finishes what it has and takes nothing new; another process may."""


class NotReady(ServingError, status=503, reason="not_ready", retry_after=1.0):
    """The session has not been started, is warming up, or has been closed."""


class Expired(ServingError, DeadlineExceeded, status=504, reason="expired"):
    """The deadline of a request has passed before it had its result."""
