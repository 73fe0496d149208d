"""`app`: a session as a whole HTTP application, with what those who run it look at."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final, TypeAlias

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

# Who asks, and how urgently.
Identify: TypeAlias = Callable[[Any], tuple[Hashable, int]]
# What is done if the session cannot be started.
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
    """An application that serves a session.

        application = serving.app(serving.InferenceSession("saved_graph"))  # uvicorn module:application

    - ``POST /predict``: a sample as JSON ``{"inputs": ...}``, npy or safetensors; the result as the client accepts it.
      In JSON, what is nan or infinite in a result is null.
    - ``POST /stream``: the same, answered by server-sent events, each as soon as the client has read those before; then
      one named "end" or "error".
    - ``GET /live`` answers at once, ``GET /ready`` with 503 unless the session is ready; ``GET /metrics`` is for
      Prometheus, ``GET /stats`` the same as JSON, ``GET /openapi.json`` describes all this, ``GET /`` is for people.

    Errors are JSON, see `ErrorResponses`.  A client may give a deadline and a name, see `RequestScope`.

    A request has its place in the session's queue from when it begins: its deadline counts from then, a full queue
    refuses it before its body is read, and what its body has brought counts against a budget.  How many connections
    there are, and how long one may be silent, only the server can limit: `python -m vmflow serve` does.

    The session is started with the application, and closed with it; the application answers meanwhile.  On SIGTERM and
    SIGINT it is drained before the server ends, where the server lets that be done: see `drain_on_signal`.  Where it is
    mounted in another application, that needs the `lifespan`.

    Large arrays as JSON are read on a thread, one after the other; 150,000 numbers take a tenth of a second or two, in
    which the event loop is late by some milliseconds; so it is while as many are written.  npy and safetensors take no
    time, either way.

    Args:
        session: one that has not been started; or one that somebody else starts and closes, on the same loop.
        on_disconnect: whether to "cancel" or to "finish" what a client has asked for that leaves.  A stream is
            cancelled.
        identify: from a `starlette.requests.Request`, the client and the priority of its requests.  By default the
            address of the peer, which behind a proxy is the proxy's unless the server is told to look further, and 0.
        max_body: bytes; by default what the largest inputs may need.
        body_budget: bytes that all bodies may hold together until their inputs are read, half of them one client's;
            what goes beyond is refused with 503.  By default 256 MiB, or those of four bodies if these are more.
        body_timeout: seconds in which a body must have come; one that has not is refused with 408.
        write_timeout: seconds in which a client must take each part of its answer; from one that does not, what it
            has asked for is taken, and its connection is ended.
        page: whether there is one.
        drain_route: whether ``POST /drain`` drains, and answers when that has been done: for servers that keep their
            signals.  Whoever can reach it can end the service, but for pages in browsers, see `check_origin`.
        hosts: names by which clients may call the server to drain it, beside its addresses and localhost.
        drain_delay, drain_timeout: see `InferenceSession.drain`.
        on_failure: called with what the session could not be started for; by default that is logged, and the process
            gets SIGTERM.

    Raises:
        ImportError: if starlette is not installed.
        ValueError: for limits that do not fit.
    """
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
    made: Starlette = applications.Starlette(
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
    # A redirect from /stats/ to /stats would lead to whatever host the request names.
    made.router.redirect_slashes = False
    return made


# Life


def lifespan(
    session: InferenceSession,
    *,
    drain_delay: float = 0.0,
    drain_timeout: float | None = None,
    on_failure: OnFailure | None = None,
    lag: LoopLag | None = None,
) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """The life of a session inside that of an application: ``FastAPI(lifespan=serving.lifespan(session))``.

    It is started without holding the application up, and drained and closed at the end; signals are taken where that
    can be done, see `drain_on_signal`.  A session that somebody else has started is neither started nor closed.

    Args:
        session: whose.
        drain_delay, drain_timeout, on_failure: see `app`.
        lag: runs meanwhile.
    """

    @asynccontextmanager
    async def living(application: Any) -> AsyncIterator[None]:
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

    return living


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
    """A coroutine function of ASGI in a form that starlette does not take for one of requests."""

    function: ASGIApp

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        try:
            await self.function(scope, receive, send)
        except _Unread:
            _log.info("an answer was broken off that its client did not read")


@attrs.frozen(eq=False)
class _Goodbye:
    """Ends connections behind an answer: while the session ends, for clients to open new ones elsewhere; and where the
    client has not sent all of its request in time.

    Args:
        app: the application.
        session: its.
    """

    app: ASGIApp
    session: InferenceSession

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        async def parting(message: Message) -> None:
            if message["type"] == "http.response.start" and (
                message["status"] == SlowBody.status or self.session.state in ("draining", "closed")
            ):
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            await send(message)

        plain = scope["type"] == "http" and scope.get("http_version", "1.1").startswith("1")
        await self.app(scope, receive, parting if plain else send)


@attrs.define(eq=False)
class _Endpoints:
    """The answers.

    Args:
        session, identify, write_timeout, hosts: see `app`.
        most: bytes of a body.
        intake: takes requests in.
        ending: the delay and the timeout of a drain.

    Attributes:
        lag: of the loop.
        paths: that exist.
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
        """A block in which a request arrives: it is counted, and so is why it is turned away."""
        statistics = self._session.statistics
        statistics.arrived += 1
        try:
            yield
        except BaseException as error:
            statistics.reject(error)
            raise

    async def _asked(self, scope: ASGIScope, receive: Receive, *, stream: bool) -> tuple[Any, dict[str, Any]]:
        """The inputs of a request, and its other arguments for the session."""
        from starlette.requests import Request

        client, priority = scope["client"][0] if scope.get("client") else None, 0
        if self._identify is not None:
            client, priority = self._identify(Request(scope))
        inputs, timeout = await self._intake.inputs(scope["headers"], receive, client, stream=stream)
        return inputs, {"timeout": timeout, "client": client, "priority": priority}

    async def predict(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """One result."""
        with self._arriving():
            kind = bodies.accepted(scope["headers"])
            inputs, told = await self._asked(scope, receive, stream=False)
        result = await self._session.run(inputs, **told)
        body = await bodies.encoded(result, kind)
        headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
        start = {"type": "http.response.start", "status": 200, "headers": headers}
        await self._write(send, start, {"type": "http.response.body", "body": body})

    async def _write(self, send: Send, *messages: Message) -> None:
        """Send parts of an answer, which returns when the client has taken enough of those before.

        Raises:
            _Unread: if it does not in time.
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
        """One event for each chunk.

        The answer begins with the first of them, so that until then an error is an answer with its status.
        """
        with self._arriving():
            inputs, told = await self._asked(scope, receive, stream=True)
        begun = False
        async with aclosing(self._session.stream(inputs, **told)) as chunks:
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
        """That it is."""
        return _json({"status": "live"})

    async def ready(self, request: Request) -> Response:
        """Whether the session is ready."""
        state = self._session.state
        return _json({"status": state}, 200 if state == "ready" else 503)

    async def stats(self, request: Request) -> Response:
        """Counts, and how large things are."""
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
        """For Prometheus."""
        from starlette.responses import Response

        if self._metrics is None:
            try:
                self._metrics = Metrics(self._session, self.lag, self._intake.budget)
            except ImportError as error:
                return _told(Problem(501, "NotInstalled", str(error)))
        return Response(self._metrics.text(), media_type=self._metrics.media_type)

    async def openapi(self, request: Request) -> Response:
        """The description."""
        return _json(description(self._session, self._most, self.paths))

    async def page(self, request: Request) -> Response:
        """The page."""
        from starlette.responses import HTMLResponse

        return HTMLResponse(page_of(self._session), headers={"content-security-policy": POLICY})

    async def drain(self, request: Request) -> Response:
        """End what there is."""
        check_origin(request.scope["headers"], self._hosts)
        delay, timeout = self._ending
        drained = await self._session.drain(delay, timeout)
        return _json({"status": self._session.state, "drained": drained})


class _Unread(Exception):
    """The client has not taken its answer in time.  It is broken off, at which servers end the connection."""


_EVENTS: Final[Message] = {
    "type": "http.response.start",
    "status": 200,
    # The last one keeps proxies from gathering events.
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


def _told(problem: Problem, headers: Any = None) -> Response:
    from starlette.responses import Response

    return Response(problem.body(), problem.status, {**(headers or {}), **problem.headers()})


def _handlers() -> dict[Any, Any]:
    """What starlette itself answers, as JSON."""
    from starlette.exceptions import HTTPException

    async def told(request: Any, error: Any) -> Response:
        return _told(Problem(error.status_code, "HTTPException", str(error.detail)), error.headers)

    async def failed(request: Any, error: Any) -> Response:
        return _told(FAILED)

    return {HTTPException: told, Exception: failed}
