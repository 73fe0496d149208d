"""Arriving requests: the memory that they hold, for how long, and that each is counted, with any outcome."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import wraps
from typing import Any

import numpy as np
import pytest

from tests.serving.asgi_support import Exchange, http_scope
from tests.serving.test_app import GOOD, Endless, SlowExchange, busy, called, living, post, session_of, until
from tests.serving.virtual_time import run
from vmflow import serving
from vmflow.serving import InferenceSession, Overloaded, TensorSpec, bodies
from vmflow.serving.intake import ByteBudget, Share
from vmflow.serving.tensor_bytes import write_npy

pytest.importorskip("starlette", reason="starlette comes with the serve extra")

pytestmark = pytest.mark.host


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Time passes immediately, and exactly."""

    @wraps(test)
    def called_so(*args: Any, **named: Any) -> None:
        run(test(*args, **named))

    return called_so


class Slow(Exchange):
    """A client whose body does not come, or comes when the test says so."""

    def __init__(self, *parts: bytes) -> None:
        super().__init__(*parts, b"")
        # Without the last part, so that there is more to come.
        last = self._messages.get_nowait()
        for _ in parts:
            self._messages.put_nowait(last)
            last = self._messages.get_nowait()

    def more(self, body: bytes, *, end: bool = True) -> None:
        """Another part, by default the last one."""
        self._messages.put_nowait({"type": "http.request", "body": body, "more_body": not end})


def posting(application: Any, exchange: Exchange, path: str = "/predict", client: str = "192.0.2.1") -> Any:
    """A request that is under way."""
    scope = {**http_scope("POST", path, {"content-type": "application/json"}), "client": (client, 1)}
    return asyncio.create_task(application(scope, exchange.receive, exchange.send))


def adds_up(session: InferenceSession) -> bool:
    found = session.stats()
    ended = sum([found[end] for end in ("done", "failed", "cancelled", "expired")])
    accepted = ended + found["queued"] + found["running"]
    arrived = found["accepted"] + sum(found["rejected"].values()) + found["arriving"]
    return bool(found["accepted"] == accepted and found["arrived"] == arrived)


# Deadlines and times


@in_virtual_time
async def test_the_deadline_counts_from_when_the_request_begins() -> None:
    async with session_of(timeout=2.0) as session:
        application = serving.app(session)
        loop = asyncio.get_running_loop()
        async with busy(session) as batcher:
            begin = loop.time()
            never, late = Slow(), Slow(b'{"inputs": ')
            tasks = [posting(application, value) for value in (never, late)]
            await asyncio.sleep(1.5)
            late.more(b"[[1, 2], [3, 4]]}")
            await until(lambda: batcher.queued() == 1)
            assert session.stats()["arriving"] == 1
            await asyncio.gather(*tasks)
            assert loop.time() - begin == pytest.approx(2.0)
        assert [never.status, late.status] == [504, 504]
        assert session.statistics.rejected["expired"] == 1
        assert session.statistics.ends["expired"] == 1
        assert adds_up(session)


async def test_the_timeout_of_a_client_counts_from_the_beginning_too() -> None:
    session = session_of()
    async with living(session) as application:
        scope = http_scope("POST", "/predict", {"X-Request-Timeout": "0.02"})
        assert (await called(application, Slow(b"{"), scope)).status == 504
        assert session.statistics.rejected["expired"] == 1


@in_virtual_time
async def test_a_body_has_a_time_to_come_in() -> None:
    async with session_of() as session:
        application = serving.app(session, body_timeout=5.0)
        exchange = Slow(b"{")
        task = posting(application, exchange)
        begin = asyncio.get_running_loop().time()
        for _ in range(4):  # however busy it is
            await asyncio.sleep(1)
            exchange.more(b" ", end=False)
        await task
        assert asyncio.get_running_loop().time() - begin == pytest.approx(5.0)
        assert exchange.status == 408
        assert exchange.headers["connection"] == "close"  # else the server would wait for the rest
        assert session.statistics.rejected["slow"] == 1
        assert adds_up(session)


# Places


@in_virtual_time
async def test_a_full_queue_refuses_requests_before_their_bodies_have_come() -> None:
    async with session_of(max_queue=4, max_queue_per_client=4) as session:
        application = serving.app(session)
        there = [Slow(b"{") for _ in range(5)]  # one of them would not wait
        tasks = [posting(application, value) for value in there]
        await until(lambda: session.stats()["arriving"] == 5)
        refused = Slow(b"{")
        await posting(application, refused)
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        there[0].leave()
        await tasks[0]
        posting(application, Slow(b"{"))
        await until(lambda: session.stats()["arriving"] == 5)
        assert adds_up(session)
        assert session.statistics.rejected["overloaded"] == session.statistics.rejected["gone"] == 1


@in_virtual_time
async def test_one_client_gets_half_of_the_places_for_bodies() -> None:
    async with session_of(max_queue=4) as session:
        application = serving.app(session)
        for _ in range(3):
            posting(application, Slow(b"{"))
        await until(lambda: session.stats()["arriving"] == 3)
        refused = Slow(b"{")
        await posting(application, refused)
        assert "this client" in json.loads(refused.body)["detail"]
        posting(application, Slow(b"{"), client="192.0.2.2")
        await until(lambda: session.stats()["arriving"] == 4)


async def test_a_request_with_a_place_is_accepted_when_its_body_has_arrived() -> None:
    session = session_of(max_queue=2, max_queue_per_client=2)
    async with living(session) as application:
        async with busy(session) as batcher:
            slow = [Slow(b"{"), Slow(b"{")]
            tasks = [posting(application, value) for value in slow]
            await until(lambda: session.stats()["arriving"] == 2)
            with pytest.raises(Overloaded):
                await session.run([[1, 2], [3, 4]])
            for exchange in slow:
                exchange.more(GOOD[1:])
            await until(lambda: batcher.queued() == 2)
        await asyncio.gather(*tasks)
        assert [answer.status for answer in slow] == [200, 200]


async def test_two_concurrent_requests_are_served_though_one_may_wait() -> None:
    async with living(session_of(max_queue=1)) as application:
        answers = await asyncio.gather(post(application, GOOD), post(application, GOOD))
        assert [answer.status for answer in answers] == [200, 200]


async def test_a_drain_waits_for_bodies_that_are_on_their_way() -> None:
    session = session_of()
    async with living(session) as application:
        exchange = Slow(b"{")
        task = posting(application, exchange)
        await until(lambda: session.stats()["arriving"] == 1)
        draining = asyncio.create_task(session.drain())
        await until(lambda: session.state == "draining")
        exchange.more(GOOD[1:])
        await task
        assert exchange.status == 200
        assert await draining
        refused = Slow(b"{")
        await posting(application, refused)
        assert refused.status == 503
        assert session.statistics.rejected["draining"] == 1


@pytest.mark.parametrize("policy", ["cancel", "finish"])
async def test_a_client_that_leaves_before_the_end_of_a_body_is_counted(policy: Any) -> None:
    session = session_of()
    async with living(session, on_disconnect=policy) as application:
        exchange = Slow(b"{")
        task = posting(application, exchange)
        await until(lambda: session.stats()["arriving"] == 1)
        exchange.leave()
        await task
        assert session.statistics.rejected["gone"] == 1
        assert adds_up(session)


async def test_every_refusal_is_counted_once() -> None:
    session = session_of()
    async with living(session) as application:
        for path, headers, status in (
            ("/predict", {"accept": "text/html"}, 406),
            ("/predict", {"content_type": "text/plain"}, 415),
            ("/stream", {}, 422),
        ):
            assert (await post(application, GOOD, path, **headers)).status == status
        assert (await post(application, b'{"inputs": [1]}')).status == 422
        assert session.statistics.rejected["invalid"] == session.statistics.arrived == 4


async def test_a_mistake_of_the_program_is_counted() -> None:
    def identify(request: Any) -> Any:
        raise ZeroDivisionError

    session = session_of()
    async with living(session, identify=identify) as application:
        with pytest.raises(ZeroDivisionError):
            await post(application, GOOD)
    assert session.statistics.rejected["failed"] == 1
    assert adds_up(session)


# Bytes


def test_bytes_are_given_back() -> None:
    budget = ByteBudget(100)
    with Share(budget, "a") as one:
        one.take(50)
        with pytest.raises(Overloaded, match="this client"):
            one.take(1)
        with Share(budget, None) as other:
            other.take(50)
            with pytest.raises(Overloaded, match="all bodies"):
                other.take(1)
            assert budget.held == 100
        assert budget.held == 50
    with Share(budget, "a") as one, Share(budget, "b") as other:
        one.take(50)
        other.take(50)
    assert budget.held == 0


WIDE = TensorSpec((100_000,))
WIDE_BODY = write_npy(np.zeros(100_000, np.float32))


@in_virtual_time
async def test_bodies_hold_no_more_than_their_budget() -> None:
    async with session_of(inputs=WIDE) as session:
        most = bodies.body_limit(session.signature)
        application = serving.app(session, body_budget=2 * most, body_timeout=5.0)
        part = b" " * 500_000
        exchanges = [Slow(part) for _ in range(40)]
        tasks = [
            posting(application, exchange, client=f"192.0.2.{place // 10}") for place, exchange in enumerate(exchanges)
        ]
        await asyncio.sleep(1)
        found = json.loads((await called(application, Exchange(), http_scope("GET", "/stats"))).body)
        assert 2 * most - len(part) < found["arriving_bytes"] <= 2 * most
        assert found["arriving"] == found["arriving_bytes"] // len(part)
        await asyncio.gather(*tasks)
        assert {exchange.status for exchange in exchanges} == {408, 503}
        found = json.loads((await called(application, Exchange(), http_scope("GET", "/stats"))).body)
        assert found["arriving_bytes"] == found["arriving"] == 0
        assert adds_up(session)


async def test_one_client_gets_half_of_the_bytes() -> None:
    session = session_of(inputs=WIDE)
    most = bodies.body_limit(session.signature)
    async with living(session, body_budget=2 * most) as application:
        slow = [Slow(b" " * 500_000) for _ in range(20)]
        tasks = [posting(application, value) for value in slow]
        await until(lambda: session.statistics.rejected["overloaded"])
        scope = {**http_scope("POST", "/predict", {"content-type": bodies.NPY}), "client": ("192.0.2.9", 1)}
        assert (await called(application, Exchange(WIDE_BODY), scope)).status == 200
        for exchange in slow:
            exchange.leave()
        await asyncio.gather(*tasks)
        assert adds_up(session)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"body_budget": 10_000}, "give .* or more"),
        ({"body_timeout": 0.0}, "body_timeout must be a positive number of seconds"),
        ({"write_timeout": -1.0}, "write_timeout must be a positive number of seconds"),
    ],
)
def test_limits_that_do_not_fit_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        serving.app(session_of(), **options)


# Answers that nobody reads


@in_virtual_time
async def test_a_stream_that_nobody_reads_gives_its_place_back() -> None:
    endless = Endless()
    async with session_of(stream=endless, max_streams=1) as session:
        application = serving.app(session, write_timeout=4.0)
        exchange = SlowExchange(GOOD, 3)
        task = posting(application, exchange, "/stream")
        await exchange.full.wait()
        begin = asyncio.get_running_loop().time()
        assert session.stats()["running"] == 1
        await task
        assert asyncio.get_running_loop().time() - begin == pytest.approx(4.0)
        assert endless.closed.is_set()
        await until(lambda: session.stats()["running"] == 0)
        assert session.statistics.ends["cancelled"] == 1
        assert exchange.sent[-1].get("more_body")  # it was not said that this is the end
        assert adds_up(session)


@in_virtual_time
async def test_one_client_cannot_have_all_places_for_streams() -> None:
    running: list[int] = []

    async def endless(model: Any, x: Any) -> AsyncIterator[int]:
        running.append(int(x[0, 0]))
        await asyncio.Event().wait()
        yield 0

    async with session_of(stream=endless, max_streams=4) as session:
        application = serving.app(session)

        def asks(number: int, client: str) -> tuple[Exchange, Any]:
            exchange = Exchange(b'{"inputs": [[%d, 0], [0, 0]]}' % number)
            return exchange, posting(application, exchange, "/stream", client)

        first = [asks(number, "192.0.2.1") for number in range(6)]
        await until(lambda: running == [0, 1])
        assert session.stats()["queued"] == 4
        asks(10, "192.0.2.2")
        await until(lambda: running == [0, 1, 10])
        first[0][0].leave()
        await first[0][1]
        await until(lambda: running == [0, 1, 10, 2])
        assert session.stats()["queued"] == 3
        await session.close()  # which does not wait for them
