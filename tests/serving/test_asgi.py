"""The middleware: clients that leave are noticed, errors become answers, requests have deadlines and names."""

from __future__ import annotations

import asyncio
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import vmflow as flow
from tests.serving.asgi_support import Exchange, http_scope
from vmflow.serving import Draining, InvalidInput, Overloaded
from vmflow.serving.asgi import DisconnectScope, ErrorResponses, RequestScope, trace_id

pytestmark = pytest.mark.host


async def answer(send: Any, body: bytes = b"ok", *, more: bool = False) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body, "more_body": more})


class Handler:
    """Reads its request, says that it has begun, and waits until it may end."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.cancelled = False
        self.body = b""
        self.scope: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scope = flow.current_scope()
        more = scope["method"] == "POST"
        while more:
            message = await receive()
            self.body += message["body"]
            more = message["more_body"]
        self.begun.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        await answer(send)


async def called(app: Any, exchange: Exchange, scope: Any) -> None:
    async with asyncio.timeout(10):
        await app(scope, exchange.receive, exchange.send)


# Clients that leave


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_handler_whose_client_leaves_is_cancelled(method: str) -> None:
    handler, exchange = Handler(), Exchange(b"some", b" body") if method == "POST" else Exchange()
    task = asyncio.create_task(called(DisconnectScope(handler), exchange, http_scope(method)))
    await handler.begun.wait()
    assert handler.body == (b"some body" if method == "POST" else b"")
    exchange.leave()
    await task
    assert handler.cancelled
    assert handler.scope.cancelled()
    assert exchange.status == 499
    assert task.cancelling() == 0


async def test_it_takes_a_few_turns_of_the_loop() -> None:
    handler, exchange = Handler(), Exchange()
    task = asyncio.create_task(called(DisconnectScope(handler), exchange, http_scope()))
    await handler.begun.wait()
    exchange.leave()
    for _ in range(5):
        await asyncio.sleep(0)
    assert handler.cancelled
    await task


@pytest.mark.parametrize(
    ("path", "finishes"), [("/", False), ("/billing", True), ("/jobs/7", True), ("/jobs/now", False), ("/jobs", False)]
)
async def test_some_paths_are_finished(path: str, finishes: bool) -> None:
    handler, exchange = Handler(), Exchange()
    paths: Any = {"/billing": "finish", "/jobs/": "finish", "/jobs/now": "cancel"}
    task = asyncio.create_task(called(DisconnectScope(handler, paths=paths), exchange, http_scope(path=path)))
    await handler.begun.wait()
    exchange.leave()
    if finishes:
        handler.go_on.set()
    await task
    assert handler.cancelled != finishes
    assert exchange.status == (200 if finishes else 499)


def test_a_policy_is_one_of_two() -> None:
    wrong: Any = "stop"
    with pytest.raises(ValueError, match="must be"):
        DisconnectScope(Handler(), on_disconnect=wrong)
    with pytest.raises(ValueError, match="must be"):
        DisconnectScope(Handler(), paths={"/": wrong})


async def test_messages_are_handed_on_and_no_more_than_one_is_read_ahead() -> None:
    exchange = Exchange(b"a", b"b", b"c", b"d")
    asked = []

    async def reads(scope: Any, receive: Any, send: Any) -> None:
        found = []
        for _ in range(4):
            for _ in range(10):
                await asyncio.sleep(0)
            asked.append(exchange.asked)
            found.append(await receive())
        assert [(value["body"], value["more_body"]) for value in found] == [
            (b"a", True),
            (b"b", True),
            (b"c", True),
            (b"d", False),
        ]
        await answer(send)

    await called(DisconnectScope(reads), exchange, http_scope())
    assert asked == [1, 2, 3, 5]  # after the body, only a disconnect may come
    assert exchange.status == 200


@pytest.mark.parametrize("expect", ["100-continue", "100-Continue"])
async def test_a_request_that_waits_for_permission_to_send_is_not_read_ahead(expect: str) -> None:
    exchange = Exchange(b"large")

    async def refuses(scope: Any, receive: Any, send: Any) -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        assert exchange.asked == 0
        await answer(send)

    await called(DisconnectScope(refuses), exchange, http_scope(headers={"Expect": expect}))
    handler, exchange = Handler(), Exchange(b"large")
    task = asyncio.create_task(called(DisconnectScope(handler), exchange, http_scope(headers={"Expect": expect})))
    await handler.begun.wait()
    exchange.leave()
    await task
    assert handler.cancelled


async def test_a_handler_that_asks_is_told_again_and_again() -> None:
    exchange = Exchange(b"a")
    exchange.leave()
    told = []

    async def asks(scope: Any, receive: Any, send: Any) -> None:
        for _ in range(4):
            try:
                told.append((await receive())["type"])
            except asyncio.CancelledError:
                told.append("cancelled")

    await called(DisconnectScope(asks), exchange, http_scope())
    assert told.count("cancelled") == 1
    assert told[-1] == "http.disconnect"
    assert exchange.sent == []


async def test_tasks_after_a_complete_answer_are_left_alone() -> None:
    exchange = Exchange()
    done = False

    async def with_background(scope: Any, receive: Any, send: Any) -> None:
        nonlocal done
        await answer(send)
        exchange.leave()  # as servers say when they have sent everything
        for _ in range(10):
            await asyncio.sleep(0)
        done = True

    await called(DisconnectScope(with_background), exchange, http_scope())
    assert done


async def test_an_answer_that_has_begun_just_ends() -> None:
    exchange = Exchange()
    cancelled = asyncio.Event()

    async def streams(scope: Any, receive: Any, send: Any) -> None:
        await answer(send, b"first", more=True)
        exchange.leave()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    await called(DisconnectScope(streams), exchange, http_scope())
    assert cancelled.is_set()
    assert len(exchange.sent) == 2


async def test_a_cancellation_from_outside_goes_on() -> None:
    handler, exchange = Handler(), Exchange()
    task = asyncio.create_task(called(DisconnectScope(handler), exchange, http_scope()))
    await handler.begun.wait()
    exchange.leave()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert exchange.sent == []


async def test_a_mistake_of_the_handler_goes_on() -> None:
    exchange = Exchange()

    async def wrong(scope: Any, receive: Any, send: Any) -> None:
        exchange.leave()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ZeroDivisionError from None

    task = asyncio.create_task(called(DisconnectScope(wrong), exchange, http_scope()))
    with pytest.raises(ZeroDivisionError):
        await task
    assert task.cancelling() == 0


async def test_an_error_of_reading_is_raised_by_the_handlers_receive(caplog: pytest.LogCaptureFixture) -> None:
    async def broken() -> Any:
        raise OSError("broken")

    async def reads(scope: Any, receive: Any, send: Any) -> None:
        with pytest.raises(OSError, match="broken"):
            await receive()
        await answer(send)

    async def reads_not(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0)
        await answer(send)

    exchange = Exchange()
    await DisconnectScope(reads)(http_scope(), broken, exchange.send)
    assert exchange.status == 200
    assert not caplog.records
    await DisconnectScope(reads_not)(http_scope(), broken, exchange.send)
    assert "could not be read" in caplog.text


@pytest.mark.parametrize("kind", ["websocket", "lifespan"])
@pytest.mark.parametrize("middleware", [DisconnectScope, ErrorResponses, RequestScope])
async def test_other_kinds_pass_untouched(kind: str, middleware: Any) -> None:
    given = ({"type": kind}, object(), object())
    seen: list[Any] = []

    async def app(*arguments: Any) -> None:
        seen.extend(arguments)

    await middleware(app)(*given)
    assert all([one is other for one, other in zip(seen, given, strict=True)])


async def test_many_come_and_go_and_nothing_is_left() -> None:
    tasks = len(asyncio.all_tasks())
    for leaves in [True, False] * 50:
        handler, exchange = Handler(), Exchange()
        task = asyncio.create_task(called(DisconnectScope(handler), exchange, http_scope()))
        await handler.begun.wait()
        if leaves:
            exchange.leave()
        else:
            handler.go_on.set()
        await task
        assert handler.cancelled == leaves
    assert len(asyncio.all_tasks()) == tasks


# Errors


def raising(error: BaseException, begun: bool = False) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if begun:
            await answer(send, more=True)
        raise error

    return ErrorResponses(app)


@pytest.mark.parametrize(
    ("error", "status", "retry"),
    [
        (InvalidInput("three"), 422, None),
        (Overloaded("full", 2.3), 503, "3"),
        (Draining("ending"), 503, "1"),
        (flow.DeadlineExceeded("late"), 504, None),
        (flow.OutOfMemory("secret sizes", 1, 2, 3), 503, "1"),
        (ExceptionGroup("one", [InvalidInput("three")]), 422, None),
    ],
)
async def test_errors_become_answers(error: Exception, status: int, retry: str | None) -> None:
    exchange = Exchange()
    await called(raising(error), exchange, http_scope())
    assert (exchange.status, exchange.headers.get("retry-after")) == (status, retry)
    assert exchange.headers["content-type"] == "application/problem+json"
    told = json.loads(exchange.body)
    assert told["status"] == status
    assert told["title"] == type(error.exceptions[0] if isinstance(error, ExceptionGroup) else error).__name__
    assert "secret" not in told["detail"]


@pytest.mark.parametrize("begun", [True, False])
async def test_other_errors_and_late_ones_go_on(begun: bool) -> None:
    error = InvalidInput("three") if begun else ZeroDivisionError("mine")
    exchange = Exchange()
    with pytest.raises(type(error)):
        await called(raising(error, begun), exchange, http_scope())
    assert len(exchange.sent) == (2 if begun else 0)


@contextmanager
def blocking_is_an_error() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", flow.BlockingCallWarning)
        yield


async def test_a_blocking_read_is_named_by_its_line() -> None:
    async def blocks(scope: Any, receive: Any, send: Any) -> None:
        (flow.ones(600, 600) @ flow.ones(600, 600)).sum().item()  # the line
        await answer(send)

    exchange = Exchange()
    with blocking_is_an_error():
        await called(ErrorResponses(blocks), exchange, http_scope())
    assert exchange.status == 500
    line = blocks.__code__.co_firstlineno + 1
    assert f"{__file__}:{line}, in blocks" in json.loads(exchange.body)["detail"]
    await flow.synchronize()


# Deadlines and names


async def seen_by(headers: dict[str, str], **options: Any) -> tuple[Exchange, list[Any]]:
    seen: list[Any] = []

    async def looks(scope: Any, receive: Any, send: Any) -> None:
        seen.extend([flow.current_scope(), trace_id()])
        await answer(send)

    exchange = Exchange()
    await called(RequestScope(looks, **options), exchange, http_scope(headers=headers))
    assert trace_id() is None
    return exchange, seen


async def test_a_request_has_a_scope_and_a_name() -> None:
    exchange, (scope, name) = await seen_by({})
    assert scope.deadline is None
    assert scope.name == f"POST / {name}"
    assert exchange.headers["x-request-id"] == name
    assert len(name) == 32


@pytest.mark.parametrize("given", ["0.25", "1", "7.", "999999999"])
async def test_a_request_may_have_a_deadline(given: str) -> None:
    _, (scope, _) = await seen_by({"X-Request-Timeout": given}, longest=100.0)
    assert scope.deadline - scope.begun == pytest.approx(min(float(given), 100), abs=0.01)


@pytest.mark.parametrize("given", ["", "0", "0.0", "-1", "nan", "inf", "1e3", "1,5", "٣", "1 s", "9" * 10])
async def test_no_other_timeout_is_taken(given: str) -> None:
    raw = http_scope()
    raw["headers"] = [(b"x-request-timeout", given.encode())]
    exchange = Exchange()
    await called(RequestScope(raising(AssertionError())), exchange, raw)
    assert exchange.status == 400
    assert "x-request-timeout" in json.loads(exchange.body)["detail"]
    _, seen = await seen_by({"X-Request-Timeout": "rubbish"}, header=None)
    assert seen[0].deadline is None


async def test_the_deadline_holds() -> None:
    async def waits(scope: Any, receive: Any, send: Any) -> None:
        while True:
            await flow.ones(3)

    exchange = Exchange()
    app = ErrorResponses(RequestScope(waits))
    await called(app, exchange, http_scope(headers={"X-Request-Timeout": "0.01"}))
    assert exchange.status == 504


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        ({"X-Request-ID": "mine-7"}, "mine-7"),
        ({"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"}, "ab" * 16),
        ({"traceparent": f"01-{'ab' * 16}-{'cd' * 8}-01-more", "X-Request-ID": "bad\tid"}, "ab" * 16),
        ({"traceparent": f"00-{'0' * 32}-{'cd' * 8}-01"}, None),
        ({"traceparent": f"ff-{'ab' * 16}-{'cd' * 8}-01"}, None),
        ({"X-Request-ID": "x" * 129}, None),
        ({"X-Request-ID": "a\r\nb: c"}, None),
    ],
)
async def test_a_name_is_taken_over_if_it_is_one(headers: dict[str, str], name: str | None) -> None:
    exchange, seen = await seen_by(headers)
    assert exchange.headers["x-request-id"] == seen[1]
    if name is None:
        assert seen[1] not in str(headers)
        assert len(seen[1]) == 32
    else:
        assert seen[1] == name


async def test_a_request_is_a_span_of_opentelemetry() -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="opentelemetry-sdk comes with the test extra")
    from opentelemetry import trace
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    await seen_by({"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01", "X-Request-ID": "mine"})
    exchange = Exchange()
    await called(RequestScope(raising(Draining("ending"))), exchange, http_scope("GET"))
    ok, failed = exporter.get_finished_spans()
    assert ok.context.trace_id == int("ab" * 16, 16)
    assert ok.parent is not None
    assert ok.parent.span_id == int("cd" * 8, 16)
    assert ok.attributes is not None
    assert (ok.attributes["http.response.status_code"], ok.attributes["vmflow.request"]) == (200, "mine")
    assert failed.attributes is not None
    assert failed.attributes["http.response.status_code"] == 503
    assert not failed.status.is_ok


@pytest.mark.parametrize("others", [False, True])
async def test_a_mistake_is_told_though_the_answer_cannot_be_sent(
    others: bool, caplog: pytest.LogCaptureFixture
) -> None:
    class Unreachable(Exchange):
        async def send(self, message: Any) -> None:
            raise OSError("the connection is gone")

    error: Exception = ZeroDivisionError("mine") if others else flow.BlockingCallWarning("mine")

    async def fails(scope: Any, receive: Any, send: Any) -> None:
        raise error

    with pytest.raises(ZeroDivisionError if others else OSError):
        await called(ErrorResponses(fails, others=others), Unreachable(), http_scope())
    # The server logs exceptions that are raised further.
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == ([] if others else [error])
