"""`app`: a session as a whole HTTP application, with its health checks, metrics and a page for operators."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final, TypeAlias, get_args

import attrs

import vmflow as flow
from vmflow.graph_mode import args_tree

from . import bodies
from .asgi import ASGIApp, ASGIScope, DisconnectScope, ErrorResponses, Policy, RequestScope, Send
from .bodies import Message, Receive, SlowBody
from .draining import can_take_signals, drain_on_signal
from .intake import Intake
from .metrics import Metrics
from .openapi import description
from .optional import required
from .origin import check_origin
from .page import POLICY, page as page_of
from .problems import FAILED, Problem, problem_of
from .session import InferenceSession
from .statistics import LoopLag

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

# A function that returns the client and the priority of a `starlette.requests.Request`.
Identify: TypeAlias = Callable[[Any], tuple[Hashable, int]]
# A function that is called with the exception if the session cannot be started.
OnFailure: TypeAlias = Callable[[BaseException], None]

_log: Final = logging.getLogger(__name__)


def app(
    session: InferenceSession,
    *,
    on_disconnect: Policy = "cancel",
    identify: Identify | None = None,
    max_body: int | None = None,
    body_budget: int | None = None,
    body_timeout: float = 30.0,
    write_timeout: float = 30.0,
    page: bool = True,
    drain_route: bool = False,
    hosts: Sequence[str] = (),
    drain_delay: float = 0.0,
    drain_timeout: float | None = None,
    on_failure: OnFailure | None = None,
) -> Starlette:
    """An ASGI application that serves a session.

        application = serving.app(serving.InferenceSession("saved_graph"))  # uvicorn module:application

    - ``POST /predict``: takes a sample as JSON ``{"inputs": ...}``, npy or safetensors; answers in the format that the
      client accepts.  JSON answers have null in place of nan and infinities.
    - ``POST /stream``: takes the same, answers with server-sent events, each as soon as the client has read those
      before; the last event is named "end" or "error".  An error before the first chunk has its own status instead.
    - ``GET /live`` answers 200, ``GET /ready`` answers 503 unless the session is ready; ``GET /metrics`` has
      metrics for Prometheus, ``GET /stats`` counts as JSON, ``GET /openapi.json`` the API's description, ``GET /`` a
      page for people.

    Errors are JSON, see `ErrorResponses`.  A client may give a deadline and a name, see `RequestScope`.

    A request has its place in the session's queue from when it begins: its deadline counts from then, a full queue
    refuses it before its body is read, and the bytes of its body count against a budget as they arrive.  Only the
    server can limit the number of connections, and how long one may be silent: `python -m vmflow serve` does.

    The session is started and closed with the application, which answers while the session warms up.  On SIGTERM and
    SIGINT the session is drained before the server ends, if the server permits: see `drain_on_signal`.  An application
    that mounts this one has to run the `lifespan` itself.

    Large arrays as JSON are read on a thread, one after the other; npy and safetensors are much faster.

    Args:
        session: one that has not been started; or one that other code has started, on the same loop, and closes.
        on_disconnect: "cancel" or "finish" the requests of a client that leaves.  Streams are always cancelled.
        identify: a function that returns the client and priority of a `starlette.requests.Request`.  By default these
            are the peer's address (behind a proxy the proxy's, unless the server is told to look further) and 0.
        max_body: the most bytes of a body; by default enough for the largest inputs.
        body_budget: bytes that all bodies may hold together until their inputs are read; a known client may have half;
            further bodies are refused with 503.  By default 256 MiB, or those of four bodies if these are more.
        body_timeout: seconds in which a body must have arrived; else it is refused with 408.
        write_timeout: seconds in which a client must take each part of its answer; else the answer is broken off, a
            stream cancelled, and the connection closed.
        page: whether ``GET /`` exists.
        drain_route: whether ``POST /drain`` drains, and answers when that has been done: for servers that keep their
            signals.  Every program that can reach it can end the service; pages in browsers cannot, see `check_origin`.
        hosts: names by which clients may call the server to drain it, beside IP addresses and localhost.
        drain_delay, drain_timeout: see `InferenceSession.drain`.
        on_failure: called with the exception if the session cannot be started; by default it is logged, and the
            process gets SIGTERM.

    Raises:
        ImportError: if starlette is not installed.
        ValueError: if `write_timeout` or `body_timeout` is not positive, `body_budget` too small for two bodies, or
            `on_disconnect` another string.

    Example:
        >>> session = flow.serving.InferenceSession(abs, inputs=flow.serving.TensorSpec((2,)))
        >>> [route.path for route in flow.serving.app(session, page=False).routes]  # doctest: +SKIP
        ['/predict', '/stream', '/live', '/ready', '/stats', '/metrics', '/openapi.json']
    """
    if on_disconnect not in get_args(Policy):
        raise ValueError(f'on_disconnect must be "cancel" or "finish", not {on_disconnect!r}')
    if not write_timeout > 0:
        raise ValueError(f"write_timeout must be a positive number of seconds, not {write_timeout!r}")
    applications = required("starlette.applications", "serve", "serving.app")
    from starlette.middleware import Middleware
    from starlette.routing import Route

    most = bodies.body_limit(session.signature) if max_body is None else max_body
    intake = Intake(session, most, body_budget, body_timeout)
    endpoints = _Endpoints(session, identify, most, intake, write_timeout, (drain_delay, drain_timeout), hosts)
    routes = [
        Route("/predict", _Raw(endpoints.predict), methods=["POST"]),
        Route("/stream", _Raw(endpoints.stream), methods=["POST"]),
        Route("/live", endpoints.live),
        Route("/ready", endpoints.ready),
        Route("/stats", endpoints.stats),
        Route("/metrics", endpoints.metrics),
        Route("/openapi.json", endpoints.openapi),
    ]
    if page:
        routes.append(Route("/", endpoints.page))
    if drain_route:
        routes.append(Route("/drain", endpoints.drain, methods=["POST"]))
    endpoints.paths = [route.path for route in routes]
    application: Starlette = applications.Starlette(
        routes=routes,
        lifespan=lifespan(
            session, drain_delay=drain_delay, drain_timeout=drain_timeout, on_failure=on_failure, lag=endpoints.lag
        ),
        exception_handlers=_handlers(),
        middleware=[
            Middleware(DisconnectScope, on_disconnect=on_disconnect, paths={"/stream": "cancel", "/drain": "finish"}),
            Middleware(_Goodbye, session=session),
            Middleware(RequestScope),
            Middleware(ErrorResponses, others=True),
        ],
    )
    # No redirect from /stats/ to /stats: it would lead to the host that the request names, which may be any.
    application.router.redirect_slashes = False
    return application


# Starting and ending


def lifespan(
    session: InferenceSession,
    *,
    drain_delay: float = 0.0,
    drain_timeout: float | None = None,
    on_failure: OnFailure | None = None,
    lag: LoopLag | None = None,
) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """A function that starts and ends a session with an application: ``FastAPI(lifespan=serving.lifespan(session))``.

    The session starts in the background, so that the application answers meanwhile, and is drained, without the delay,
    and closed at the end; signals are taken where the server permits, see `drain_on_signal`.  A session that has been
    started before is neither started nor closed, and is drained only on a signal.

    Args:
        session: the session.
        drain_delay, drain_timeout, on_failure: see `app`.
        lag: a `LoopLag` that is started and stopped with the application; None for none.

    Raises no error itself; if the session cannot be started, the exception is passed to `on_failure`.

    Example:
        >>> import asyncio
        >>> session = flow.serving.InferenceSession(abs, inputs=flow.serving.TensorSpec((2,)), max_batch=1)
        >>> async def main():
        ...     async with flow.serving.lifespan(session)(None):  # None in place of the application
        ...         while session.state != "ready":
        ...             await asyncio.sleep(0.001)
        ...         print(await session.run([-1, 2]))
        >>> asyncio.run(main())
        [1. 2.]
        >>> session.state
        'closed'
    """

    @asynccontextmanager
    async def around(application: Any) -> AsyncIterator[None]:
        taken = (
            drain_on_signal(session, delay=drain_delay, timeout=drain_timeout) if can_take_signals() else nullcontext()
        )
        own = session.state == "new"
        starting = asyncio.create_task(_start(session, on_failure)) if own else None
        if lag is not None:
            lag.start()
        try:
            with taken:
                yield
        finally:
            if lag is not None:
                lag.stop()
            if starting is not None:
                starting.cancel()
                await asyncio.wait([starting])
                await session.drain(timeout=drain_timeout)
                await session.close()

    return around


async def _start(session: InferenceSession, on_failure: OnFailure | None) -> None:
    try:
        await session.start()
    except Exception as error:
        if on_failure is not None:
            on_failure(error)
            return
        _log.critical("session %r cannot be started; the process ends", session.name, exc_info=error)
        os.kill(os.getpid(), signal.SIGTERM)


# Answers


@attrs.frozen(eq=False)
class _Raw:
    """Makes a coroutine function an ASGI application: starlette would pass `Request` objects to a function."""

    function: ASGIApp

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        try:
            await self.function(scope, receive, send)
        except _Unread:
            _log.info("an answer was broken off because its client did not read it in time")


@attrs.frozen(eq=False)
class _Goodbye:
    """Has HTTP/1 connections closed after a 408, which refuses a late body, and after answers of an ending session.
    Args:
        app: the application.
        session: its session.
    """

    app: ASGIApp
    session: InferenceSession

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        async def send_closing(message: Message) -> None:
            if message["type"] == "http.response.start" and (
                message["status"] == SlowBody.status or self.session.state in ("draining", "closed")
            ):
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            await send(message)

        http_1 = scope["type"] == "http" and scope.get("http_version", "1.1").startswith("1")
        await self.app(scope, receive, send_closing if http_1 else send)


@attrs.define(eq=False)
class _Endpoints:
    """The functions that answer requests.

    Args:
        session, identify, write_timeout, hosts: see `app`.
        most: the most bytes of a body.
        intake: receives the bodies of requests.
        ending: the delay and the timeout of a drain.

    Attributes:
        lag: measures how late the loop is.
        paths: the paths that exist.
    """

    _session: InferenceSession
    _identify: Identify | None
    _most: int
    _intake: Intake
    _write_timeout: float
    _ending: tuple[float, float | None]
    _hosts: Sequence[str]
    lag: LoopLag = attrs.field(factory=LoopLag)
    paths: list[str] = attrs.field(factory=list)
    _begun: float = attrs.field(factory=time.monotonic)
    _metrics: Metrics | None = None

    @contextmanager
    def _arriving(self) -> Iterator[None]:
        """A block in which a request arrives: counts the request, and the reason if it is refused."""
        statistics = self._session.statistics
        statistics.arrived += 1
        try:
            yield
        except BaseException as error:
            statistics.reject(error)
            raise

    async def _arguments(self, scope: ASGIScope, receive: Receive, *, stream: bool) -> tuple[Any, dict[str, Any]]:
        """The inputs of a request, and the keyword arguments for `InferenceSession.run` or `stream`."""
        from starlette.requests import Request

        client, priority = scope["client"][0] if scope.get("client") else None, 0
        if self._identify is not None:
            client, priority = self._identify(Request(scope))
        inputs, timeout = await self._intake.inputs(scope["headers"], receive, client, stream=stream)
        return inputs, {"timeout": timeout, "client": client, "priority": priority}

    async def predict(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Answer with one result."""
        with self._arriving():
            kind = bodies.accepted(scope["headers"])
            inputs, options = await self._arguments(scope, receive, stream=False)
        result = await self._session.run(inputs, **options)
        body = await bodies.encoded(result, kind)
        headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
        start = {"type": "http.response.start", "status": 200, "headers": headers}
        await self._write(send, start, {"type": "http.response.body", "body": body})

    async def _write(self, send: Send, *messages: Message) -> None:
        """Send messages of an answer; a server's `send` waits until the client has read enough of the earlier ones.

        Raises:
            _Unread: if the client does not read in time.
        """
        limit = asyncio.timeout(self._write_timeout)
        try:
            async with limit:
                for message in messages:
                    await send(message)
        except TimeoutError:
            if not limit.expired():
                raise
            raise _Unread from None

    async def stream(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Answer with one event for each chunk, and a last one, "end" or "error".

        The answer begins with the first chunk: an error before that chunk gets an answer with its own status.
        """
        with self._arriving():
            inputs, options = await self._arguments(scope, receive, stream=True)
        begun = False
        async with aclosing(self._session.stream(inputs, **options)) as chunks:
            try:
                async for chunk in chunks:
                    for tensor in args_tree.flatten(chunk)[1]:
                        await tensor
                    data = await bodies.to_json(chunk)
                    if not begun:
                        begun = True
                        await self._write(send, _EVENTS)
                    await self._write(send, _event(b"data: " + data))
            except _Unread:
                raise
            except Exception as error:
                if not begun:
                    raise
                problem = problem_of(error)
                if problem is None:
                    _log.exception("a stream has failed")
                    problem = FAILED
                await self._write(send, _event(b"event: error\ndata: " + problem.body(), more=False))
                return
        if not begun:
            await self._write(send, _EVENTS)
        await self._write(send, _event(b"event: end\ndata: {}", more=False))

    async def live(self, request: Request) -> Response:
        """Answer that the process is alive."""
        return _json({"status": "live"})

    async def ready(self, request: Request) -> Response:
        """Answer with the session's state: 200 if it is ready, else 503."""
        state = self._session.state
        return _json({"status": state}, 200 if state == "ready" else 503)

    async def stats(self, request: Request) -> Response:
        """Answer with counts and sizes."""
        memory = flow.memory_stats()
        return _json(
            {
                **self._session.stats(),
                "arriving_bytes": self._intake.budget.held,
                "uptime": time.monotonic() - self._begun,
                "loop_lag": {"last": self.lag.last, "mean": self.lag.late.mean()},
                "memory": {
                    "allocated": memory["allocated_bytes.all.current"],
                    "most_allocated": memory["allocated_bytes.all.peak"],
                    "reserved": memory["reserved_bytes.all.current"],
                },
            }
        )

    async def metrics(self, request: Request) -> Response:
        """Answer in the format of Prometheus; with 501 if prometheus_client is not installed."""
        from starlette.responses import Response

        if self._metrics is None:
            try:
                self._metrics = Metrics(self._session, self.lag, self._intake.budget)
            except ImportError as error:
                return _problem_response(Problem(501, "NotInstalled", str(error)))
        return Response(self._metrics.text(), media_type=self._metrics.media_type)

    async def openapi(self, request: Request) -> Response:
        """Answer with the OpenAPI description."""
        return _json(description(self._session, self._most, self.paths))

    async def page(self, request: Request) -> Response:
        """Answer with the page for people."""
        from starlette.responses import HTMLResponse

        return HTMLResponse(page_of(self._session), headers={"content-security-policy": POLICY})

    async def drain(self, request: Request) -> Response:
        """Drain the session, and answer when that has been done."""
        check_origin(request.scope["headers"], self._hosts)
        delay, timeout = self._ending
        drained = await self._session.drain(delay, timeout)
        return _json({"status": self._session.state, "drained": drained})


class _Unread(Exception):
    """Raised when a client has not read its answer in time; servers close the connection of a broken answer."""


_EVENTS: Final[Message] = {
    "type": "http.response.start",
    "status": 200,
    # The last header keeps nginx, as a proxy, from buffering events.
    "headers": [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-store"),
        (b"x-accel-buffering", b"no"),
    ],
}


def _event(lines: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": lines + b"\n\n", "more_body": more}


def _json(value: Any, status: int = 200) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse(value, status, headers={"cache-control": "no-store"})


def _problem_response(problem: Problem, headers: Any = None) -> Response:
    from starlette.responses import Response

    return Response(problem.body(), problem.status, {**(headers or {}), **problem.headers()})


def _handlers() -> dict[Any, Any]:
    """Handlers that turn starlette's own errors, such as 404, and unexpected exceptions into JSON."""
    from starlette.exceptions import HTTPException

    async def of_starlette(request: Any, error: Any) -> Response:
        return _problem_response(Problem(error.status_code, "HTTPException", str(error.detail)), error.headers)

    async def failed(request: Any, error: Any) -> Response:
        return _problem_response(FAILED)

    return {HTTPException: of_starlette, Exception: failed}
