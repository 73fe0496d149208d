"""The errors that a session raises in place of a result, each with its HTTP status."""

from __future__ import annotations

from typing import ClassVar

from vmflow.errors import DeadlineExceeded


class ServingError(RuntimeError):
    """A request was not served.

    Subclasses may give the attributes as keyword arguments of the class statement.

    Attributes:
        status: the HTTP status of the answer.
        reason: the key of `Statistics.rejected` that counts requests rejected with this error.
        retry_after: seconds after which another try may succeed; None for no advice.

    Example:
        >>> class TooLarge(flow.serving.ServingError, status=413): ...
        >>> TooLarge.status, TooLarge.reason
        (413, 'failed')
    """

    status: ClassVar[int] = 500
    reason: ClassVar[str] = "failed"
    retry_after: float | None = None

    def __init_subclass__(cls, **attributes: int | str | float) -> None:
        super().__init_subclass__()
        for name, value in attributes.items():
            setattr(cls, name, value)


class InvalidInput(ServingError, ValueError, status=422, reason="invalid"):
    """The request does not fit the session, such as inputs of another shape.

    Example:
        >>> session = flow.serving.InferenceSession(abs, inputs=flow.serving.TensorSpec((2,)))
        >>> session.signature.arrays([1.0, 2.0, 3.0])
        Traceback (most recent call last):
        vmflow.serving.errors.InvalidInput: expected shape [2], got [3]
    """


class Overloaded(ServingError, status=503, reason="overloaded"):
    """The request would exceed a limit, in all or for its client: of waiting requests, or of the bytes of bodies.

    Example:
        >>> flow.serving.Overloaded("256 requests are waiting", retry_after=2.0).retry_after
        2.0
    """

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Draining(ServingError, status=503, reason="draining", retry_after=1.0):
    """The session finishes its requests and takes no new ones; another process may.

    Example:
        >>> flow.serving.Draining.status, flow.serving.Draining.retry_after
        (503, 1.0)
    """


class NotReady(ServingError, status=503, reason="not_ready", retry_after=1.0):
    """The session has not been started, is warming up, or has been closed.

    Example:
        >>> session = flow.serving.InferenceSession(abs, inputs=flow.serving.TensorSpec((2,)))
        >>> session.run_sync([1.0, 2.0])
        Traceback (most recent call last):
        vmflow.serving.errors.NotReady: session 'session' has not been started; use it in a `with` block
    """


class Expired(ServingError, DeadlineExceeded, status=504, reason="expired"):
    """The deadline of a request has passed before it had its result.

    Example:
        >>> issubclass(flow.serving.Expired, flow.DeadlineExceeded)
        True
    """
