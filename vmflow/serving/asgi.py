"""Middleware for ASGI applications that use vmflow: cancelling, errors, deadlines and traces of requests.

This module relies on ASGI alone, so that it works above and below other middleware, with or without a framework:

    app = FastAPI()
    app.add_middleware(ErrorResponses)  # the innermost
    app.add_middleware(RequestScope)
    app.add_middleware(DisconnectScope, paths={"/billing": "finish"})  # the outermost

Any other scope than HTTP, such as web sockets, passes through untouched.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache
from typing import Any, Final, Literal, TypeAlias

import attrs

import vmflow as flow

from .bodies import Message, Receive
from .problems import FAILED, Problem, problem_of

Policy: TypeAlias = Literal["cancel", "finish"]
ASGIScope: TypeAlias = Any
Send: TypeAlias = Callable[[Any], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]

_log: Final = logging.getLogger(__name__)

# The answer that surrounding middleware sees if the client has gone before the handler's answer began.
CLIENT_GONE: Final = Problem(499, "ClientGone", "the client has left before it was answered")

_GONE: Final[Message] = {"type": "http.disconnect"}


# Clients that leave


class DisconnectScope:
    """Cancels the handler of a request whose client has gone, if the request's policy is "cancel".

    A server reports a disconnect only to a handler that calls ``receive``, which handlers rarely do.  So one task for
    each request reads the messages first and passes them on; it reads on when the handler has taken a part of the body,
    or immediately after the last part.  If the task reads ``http.disconnect`` before the answer is complete, it cancels
    the handler; if the cancellation leaves the handler, vmflow drops its instructions that have not begun.  Background
    tasks after a complete answer are left alone.

    A request that waits for permission to send its body (``Expect: 100-continue``) is watched from when its handler
    begins to read.

    Args:
        app: the ASGI application.
        on_disconnect: the policy: "cancel", or "finish" to leave the handler alone.
        paths: the policy for some paths, relative to ``root_path``; a path that ends with "/" holds for all below it,
            too, and the longest one that matches counts.

    Raises:
        ValueError: for another policy.

    Example:
        >>> async def app(scope, receive, send):
        ...     await send({"type": "http.response.start", "status": 200, "headers": []})
        >>> flow.serving.DisconnectScope(app, paths={"/pay": "never"})
        Traceback (most recent call last):
        ValueError: on_disconnect must be "cancel" or "finish", not 'never'
    """

    def __init__(
        self, app: ASGIApp, *, on_disconnect: Policy = "cancel", paths: Mapping[str, Policy] | None = None
    ) -> None:
        paths = dict(paths or {})
        for policy in (on_disconnect, *paths.values()):
            if policy not in ("cancel", "finish"):
                raise ValueError(f'on_disconnect must be "cancel" or "finish", not {policy!r}')
        self.app = app
        self._policy = on_disconnect
        self._paths = dict(sorted(paths.items(), key=lambda path: -len(path[0])))

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._policy_of(scope) == "finish":
            await self.app(scope, receive, send)
            return
        handler = asyncio.current_task()
        assert handler is not None
        cancelled_before = handler.cancelling()
        watch = _Watch(handler, receive, send)
        if not any([name == b"expect" and value.lower() == b"100-continue" for name, value in scope["headers"]]):
            watch.begin()
        try:
            # A cancellation that leaves this block drops the instructions issued within, unless they have begun.
            async with flow.scope(name=f"{scope['method']} {scope['path']}"):
                await self.app(scope, watch.receive, watch.send)
        except asyncio.CancelledError:
            if not watch.cancelled or handler.cancelling() > cancelled_before + 1:
                raise
            if not watch.begun:
                # Surrounding middleware might take a missing answer for an error.
                for message in CLIENT_GONE.messages():
                    await send(message)
        finally:
            await watch.end()
            if watch.cancelled:
                handler.uncancel()

    def _policy_of(self, scope: ASGIScope) -> Policy:
        path = scope["path"].removeprefix(scope.get("root_path", ""))  # where it is mounted
        for prefix, policy in self._paths.items():
            if path == prefix or (prefix.endswith("/") and path.startswith(prefix)):
                return policy
        return self._policy


@attrs.define(eq=False)
class _Watch:
    """Reads the messages of one request ahead of its handler.

    Args:
        handler: the task to cancel.
        receive, send: of the server.

    Attributes:
        cancelled: whether the handler was cancelled because its client has gone.
        begun: whether the answer has begun.
    """

    _handler: asyncio.Task[Any]
    _receive: Receive
    _send: Send
    cancelled: bool = False
    begun: bool = False
    _answered: bool = False
    _gone: bool = False
    _error: BaseException | None = None
    _messages: deque[Message] = attrs.field(factory=deque)
    _changed: asyncio.Event = attrs.field(factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start to read ahead."""
        self._task = asyncio.create_task(self._run())

    async def end(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._error is not None:
            _log.error("a message that the handler did not ask for could not be read", exc_info=self._error)

    async def receive(self) -> Message:
        """The handler's next message."""
        if self._task is None:
            self.begin()
        while not self._messages:
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            if self._gone:
                return dict(_GONE)
            self._changed.clear()
            await self._changed.wait()
        message = self._messages.popleft()
        self._changed.set()
        return message

    async def send(self, message: Message) -> None:
        """Send a message of the handler; note whether the answer has begun, and whether it is complete."""
        kind = message["type"]
        if kind == "http.response.start":
            self.begun = True
        elif kind == "http.response.pathsend" or (kind == "http.response.body" and not message.get("more_body", False)):
            # `_answered` is set before the last message is sent: servers report a disconnect after a complete answer.
            self._answered = True
        await self._send(message)

    async def _run(self) -> None:
        try:
            while await self._read():
                pass
        except Exception as error:
            self._error = error
        self._changed.set()

    async def _read(self) -> bool:
        """Read one message, and wait until the handler has it, unless it is a disconnect or the last part of the body.

        Returns whether to read on.
        """
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._gone = True
            if not self._answered:
                self.cancelled = True
                self._handler.cancel("the client has gone")
            return False
        self._messages.append(message)
        self._changed.set()
        if message["type"] == "http.request" and not message.get("more_body", False):
            return True
        while self._messages:  # at most one message waits here, so that the server can slow the client down
            self._changed.clear()
            await self._changed.wait()
        return True


# Errors


@attrs.define(eq=False)
class ErrorResponses:
    """Turns vmflow's exceptions into JSON answers of the form of RFC 9457.

    A `ServingError` has a status of its own, and some have ``Retry-After``; `flow.DeadlineExceeded` becomes 504,
    `flow.OutOfMemory` 503, and a `flow.BlockingCallWarning`, if the program's filters make it an error, 500, with the
    line that blocked.  A group of one such exception is answered as that exception.  Other exceptions are
    raised further, and so is any after the beginning of an answer.

    Args:
        app: the ASGI application.
        others: whether other exceptions are answered with 500 before they are raised further, so that surrounding
            middleware, such as `RequestScope`, sees the answer.

    Raises no error when it is made.

    Example:
        >>> import asyncio
        >>> async def app(scope, receive, send):
        ...     raise flow.serving.InvalidInput("no image")
        >>> async def send(message):
        ...     print(message.get("status"), message.get("body"))
        >>> asyncio.run(flow.serving.ErrorResponses(app)({"type": "http"}, None, send))
        422 None
        None b'{"title": "InvalidInput", "status": 422, "detail": "no image"}'
    """

    app: ASGIApp
    _others: bool = attrs.field(default=False, kw_only=True)

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun = False

        async def noting(message: Message) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self.app(scope, receive, noting)
        except Exception as error:
            problem = problem_of(error)
            if begun or (problem is None and not self._others):
                raise
            if problem is not None and problem.status == 500:
                _log.error("a request has failed", exc_info=error)
            try:
                for message in (problem or FAILED).messages():
                    await send(message)
            finally:
                if problem is None:
                    raise error  # raised further so that the server logs it


# Deadlines and traces

_trace: ContextVar[str | None] = ContextVar("vmflow.serving.trace", default=None)

_TRACEPARENT: Final = re.compile(r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._~:+/=@-]{1,128}")
_SECONDS: Final = re.compile(r"[0-9]{1,9}(?:\.[0-9]{0,9})?")


def trace_id() -> str | None:
    """The name, given by `RequestScope`, of the request that this task works for; None without one.  For logs.

    Example:
        >>> flow.serving.trace_id() is None
        True
    """
    return _trace.get()


class RequestScope:
    """Gives each HTTP request a name, a trace, and a `flow.scope` with the deadline that the client asks for.

    The client may give in ``X-Request-Timeout`` the seconds in which it wants the answer, as in ``2.5``; after
    that time vmflow drops the instructions that have not begun, and sessions raise `Expired`, whose status is 504.

    The name of the request is a valid ``X-Request-ID``, else the trace id of ``traceparent``, else random; see
    `trace_id`.  The answer has that name in ``X-Request-ID``.  If opentelemetry is installed and the program has set up
    an SDK, there is a span for each request, a child of the span in ``traceparent``, if given.

    Args:
        app: the ASGI application.
        header: the header in which clients give a timeout; None to ignore their timeouts.
        longest: the most seconds for a request: longer timeouts are cut to it, and requests without one get it.

    Raises no error of its own when it is made; a timeout of 0, of another form or given twice is answered with 400.

    Example:
        >>> import asyncio
        >>> async def app(scope, receive, send):
        ...     print(flow.serving.trace_id())
        >>> request = {"type": "http", "method": "GET", "path": "/", "headers": [(b"x-request-id", b"first")]}
        >>> asyncio.run(flow.serving.RequestScope(app)(request, None, None))
        first
    """

    def __init__(self, app: ASGIApp, *, header: str | None = "x-request-timeout", longest: float = math.inf) -> None:
        self.app = app
        self._header = None if header is None else header.lower().encode("latin-1")
        self._longest = longest

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        name = _name_of(scope["headers"])
        raw = (b"x-request-id", name.encode("latin-1"))

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                span.answered(message["status"])
                others = [header for header in message.get("headers", ()) if header[0].lower() != b"x-request-id"]
                message = {**message, "headers": [*others, raw]}
            await send(message)

        with _named(name), _Span(scope, name) as span:
            try:
                timeout = self._timeout(scope["headers"])
            except ValueError as error:
                for message in Problem(400, "BadTimeout", str(error)).messages():
                    await named(message)
                return
            async with flow.scope(name=f"{scope['method']} {scope['path']} {name}", timeout=timeout):
                await self.app(scope, receive, named)

    def _timeout(self, headers: Any) -> float | None:
        timeouts = [value.decode("latin-1").strip() for name, value in headers if name == self._header]
        if not timeouts:
            return None if self._longest == math.inf else self._longest
        seconds = float(timeouts[0]) if len(timeouts) == 1 and _SECONDS.fullmatch(timeouts[0]) else 0.0
        if not seconds > 0:
            assert self._header is not None
            raise ValueError(f"{self._header.decode('latin-1')} must be a positive number of seconds, such as 0.25")
        return min(seconds, self._longest)


@contextmanager
def _named(name: str) -> Iterator[None]:
    before = _trace.get()
    _trace.set(name)
    try:
        yield
    finally:
        _trace.set(before)


def _name_of(headers: Any) -> str:
    by_name: dict[bytes, str] = {name: value.decode("latin-1").strip() for name, value in headers}
    own = by_name.get(b"x-request-id", "")
    if _REQUEST_ID.fullmatch(own):
        return own
    parent = _TRACEPARENT.match(by_name.get(b"traceparent", ""))
    return str(parent[2]) if parent is not None else secrets.token_hex(16)


@cache
def _opentelemetry() -> tuple[Any, Any] | None:
    """The modules `propagate` and `trace` of opentelemetry; None if it is not installed."""
    try:
        from opentelemetry import propagate, trace
    except ImportError:
        return None
    return propagate, trace


class _Span:
    """The span of a request, if opentelemetry is installed and set up; else nothing.

    Args:
        scope: of ASGI.
        name: of the request.
    """

    def __init__(self, scope: ASGIScope, name: str) -> None:
        self._scope = scope
        self._manager: Any = nullcontext()
        self._span: Any = None
        modules = _opentelemetry()
        # A `ProxyTracerProvider` exports nothing; it means that the program has set up no SDK so far.
        if modules is None or isinstance(modules[1].get_tracer_provider(), modules[1].ProxyTracerProvider):
            return
        propagate, trace = modules
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        self._manager = trace.get_tracer("vmflow.serving").start_as_current_span(
            scope["method"],
            context=propagate.extract(headers),
            kind=trace.SpanKind.SERVER,
            attributes={
                "http.request.method": scope["method"],
                "url.path": scope["path"],
                "url.scheme": scope.get("scheme", "http"),
                "vmflow.request": name,
            },
        )

    def __enter__(self) -> _Span:
        self._span = self._manager.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._span is not None:
            route = getattr(self._scope.get("route"), "path", None)
            if route is not None:
                self._span.update_name(f"{self._scope['method']} {route}")
                self._span.set_attribute("http.route", route)
            if error[0] is asyncio.CancelledError:
                self._span.set_attribute("vmflow.cancelled", True)
        self._manager.__exit__(*error)

    def answered(self, status: int) -> None:
        """Set the answer's status as an attribute of the span, and from 500 on mark the span as failed."""
        if self._span is None:
            return
        self._span.set_attribute("http.response.status_code", status)
        if status >= 500:
            modules = _opentelemetry()
            assert modules is not None
            self._span.set_status(modules[1].Status(modules[1].StatusCode.ERROR))
