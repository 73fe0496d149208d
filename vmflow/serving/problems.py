"""`Problem`: the answer to an HTTP request that failed, in the form of RFC 9457."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from traceback import extract_tb
from typing import Any, Final

import attrs

from vmflow.errors import BlockingCallWarning, DeadlineExceeded, OutOfMemory

from .errors import ServingError

# Beginnings of the names of vmflow's files; compiled code has the names from when it was compiled.
_OURS: Final = (os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep, os.path.join("vmflow", ""))

MEDIA_TYPE: Final = "application/problem+json"


@attrs.frozen
class Problem:
    """An error as an answer.

    Attributes:
        status: the HTTP status.
        title: the kind of error.
        detail: the cause in this case.
        retry_after: seconds after which another try may succeed; None for no advice.
    """

    status: int
    title: str
    detail: str
    retry_after: float | None = None

    def body(self) -> bytes:
        """The body of the answer, JSON."""
        fields: dict[str, Any] = {"title": self.title, "status": self.status, "detail": self.detail}
        if self.retry_after is not None:
            fields["retry_after"] = self.retry_after
        return json.dumps(fields).encode()

    def headers(self) -> dict[str, str]:
        """The headers of the answer, except for the length."""
        headers = {"content-type": MEDIA_TYPE, "cache-control": "no-store"}
        if self.retry_after is not None:
            headers["retry-after"] = str(math.ceil(self.retry_after))
        return headers

    def messages(self) -> Iterator[dict[str, Any]]:
        """The messages that an ASGI application sends."""
        body = self.body()
        headers = {**self.headers(), "content-length": str(len(body))}
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        yield {"type": "http.response.start", "status": self.status, "headers": raw}
        yield {"type": "http.response.body", "body": body, "more_body": False}


# The answer for errors of the program, whose details are not for clients.
FAILED: Final = Problem(500, "InternalServerError", "the server has made a mistake")


def problem_of(error: BaseException) -> Problem | None:
    """The answer for an error that clients may know, also alone in an exception group; None for other errors."""
    error = _single(error)
    title = type(error).__name__
    if isinstance(error, ServingError):
        return Problem(error.status, title, str(error), error.retry_after)
    if isinstance(error, DeadlineExceeded):
        return Problem(504, title, str(error))
    if isinstance(error, OutOfMemory):
        # The error's own message is not for clients: it shows sizes of other requests' memory.
        return Problem(503, title, "the device has too little memory for this request at the moment", 1.0)
    if isinstance(error, BlockingCallWarning):
        return Problem(500, title, f"{error} ({_line(error)})")
    return None


def _single(error: BaseException) -> BaseException:
    """Return the only error in an exception group, also of nested groups; any other error as it is."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _line(error: BaseException) -> str:
    """The innermost line of the error's traceback that is outside of vmflow, as text."""
    for frame in reversed(extract_tb(error.__traceback__)):
        if not frame.filename.startswith(_OURS):
            return f"{frame.filename}:{frame.lineno}, in {frame.name}"
    return "an unknown line"
