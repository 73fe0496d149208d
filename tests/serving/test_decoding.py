"""Bodies that take a while to read: on a thread, one at a time, and given up when nobody waits for them."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from tests.serving.asgi_support import Exchange, http_scope
from tests.serving.test_app import called, get, living, post, until
from vmflow.serving import InferenceSession, TensorSpec, bodies, decoding
from vmflow.serving.specs import Signature

pytest.importorskip("starlette", reason="starlette comes with the serve extra")

pytestmark = pytest.mark.host

COUNT = 20_000
LARGE = b'{"inputs": [' + b"0.25," * (COUNT - 1) + b"0.5]}"


class Gate:
    """Holds up the reading of large bodies.

    Attributes:
        open: lets all of them go on.
        out: lets cancelled readers end.
        inside: how many read at this moment; `most` at any.
        threads: on which they did.
    """

    def __init__(self) -> None:
        self.open = threading.Event()
        self.out = threading.Event()
        self.inside = self.most = 0
        self.threads: list[threading.Thread] = []

    def read(self, body: bytes, kind: str, signature: Any, pause: Any) -> Any:
        """In place of `bodies.inputs_of`."""
        if pause is None:
            return bodies.inputs_of(body, kind, signature)
        self.threads.append(threading.current_thread())
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            while not self.open.is_set():
                pause()
            return bodies.inputs_of(body, kind, signature, pause)
        except Exception:
            self.out.wait()
            raise
        finally:
            self.inside -= 1


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate()
    monkeypatch.setattr(decoding, "inputs_of", made.read)
    yield made
    made.open.set()
    made.out.set()


def session_of() -> InferenceSession:
    return InferenceSession(lambda x: x * 2, inputs=TensorSpec((COUNT,)), graph=False, max_batch=4, name="large")


def posting(application: Any, exchange: Exchange, **headers: str) -> asyncio.Task[Exchange]:
    """A request that is under way."""
    return asyncio.create_task(called(application, exchange, http_scope("POST", "/predict", headers)))


async def test_others_are_answered_meanwhile(gate: Gate) -> None:
    async with living(session_of()) as application:
        task = posting(application, Exchange(LARGE))
        await until(lambda: gate.inside)
        assert (await get(application, "/live")).status == 200
        assert (await post(application, b'{"inputs": [1, 2]}')).status == 422
        assert gate.inside == 1
        gate.open.set()
        answer = await task
    assert answer.status == 200
    assert json.loads(answer.body)["outputs"] == [0.5] * (COUNT - 1) + [1]
    assert [thread.name for thread in gate.threads] == ["large: body"]


async def test_many_are_read_one_at_a_time(gate: Gate) -> None:
    async with living(session_of()) as application:
        before = threading.active_count()
        tasks = [posting(application, Exchange(LARGE)) for _ in range(20)]
        await until(lambda: gate.inside)
        assert threading.active_count() == before + 1
        gate.open.set()
        assert {(await task).status for task in tasks} == {200}
    assert (gate.most, len(gate.threads)) == (1, 20)


async def test_an_error_in_a_large_body_is_answered_and_counted() -> None:
    session = session_of()
    async with living(session) as application:
        for end, status in ((b"0.5]", 400), (b"null]}", 422), (b"1, 2]}", 422), (b"9e999]}", 422)):
            answer = await post(application, LARGE[:-5] + end)
            assert (answer.status, json.loads(answer.body)["status"]) == (status, status)
    assert session.statistics.rejected["invalid"] == 4
    assert session.statistics.accepted == 0


async def test_a_refused_body_is_not_kept_until_garbage_is_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[weakref.ref[BaseException]] = []

    def refuse(*args: Any) -> None:
        error = bodies.BadBody("any error")
        errors.append(weakref.ref(error))
        try:
            raise error
        finally:
            del error

    async with living(session_of()) as application:
        monkeypatch.setattr(decoding, "inputs_of", refuse)
        gc.disable()
        try:
            assert (await post(application, LARGE)).status == 400
            await until(lambda: errors[0]() is None)
        finally:
            gc.enable()


@pytest.mark.parametrize("first", [True, False])
async def test_a_client_that_leaves_stops_the_reading_or_frees_the_place_in_the_queue(first: bool, gate: Gate) -> None:
    session = session_of()
    async with living(session) as application:
        exchanges = [Exchange(LARGE), Exchange(LARGE)]
        tasks = [posting(application, exchange) for exchange in exchanges]
        await until(lambda: gate.inside)
        exchanges[not first].leave()
        await tasks[not first]
        if first:
            for _ in range(100):
                await asyncio.sleep(0)
            assert len(gate.threads) == 1  # as long as the thread has not noticed
            gate.out.set()
            await until(lambda: len(gate.threads) == 2)  # though nobody has opened
        gate.open.set()
        assert (await tasks[first]).status == 200
        assert (await post(application, LARGE)).status == 200
    assert len(gate.threads) == 2 + first
    assert session.statistics.accepted == session.statistics.ends["done"] == 2


async def test_a_deadline_holds_while_a_body_is_read(gate: Gate) -> None:
    gate.out.set()
    session = session_of()
    async with living(session) as application:
        answer = await posting(application, Exchange(LARGE), **{"x-request-timeout": "0.02"})
        assert (answer.status, json.loads(answer.body)["title"]) == (504, "Expired")
        assert session.stats()["rejected"]["expired"] == 1
        gate.open.set()
        assert (await post(application, LARGE)).status == 200


async def test_a_drain_waits_until_bodies_that_are_read_are_answered(gate: Gate) -> None:
    session = session_of()
    async with living(session) as application:
        task = posting(application, Exchange(LARGE))
        await until(lambda: gate.inside)
        drain = asyncio.create_task(session.drain())
        await until(lambda: session.state == "draining")
        gate.open.set()
        assert await drain
        assert (await task).status == 200
        assert (await post(application, LARGE)).status == 503
    assert session.statistics.rejected["draining"] == 1


async def test_a_drain_waits_no_longer_than_it_may(gate: Gate) -> None:
    session = session_of()
    async with living(session) as application:
        task = posting(application, Exchange(LARGE))
        await until(lambda: gate.inside)
        assert not await session.drain(timeout=0.02)
        gate.open.set()
        assert (await task).status == 503


@pytest.mark.parametrize("number", ["0.5", "7", "NaN", "-Infinity"])
def test_others_may_go_on_at_every_kind_of_number(number: str) -> None:
    pauses: list[None] = []
    signature = Signature(TensorSpec((COUNT,), finite=False))
    body = f'{{"inputs": [{", ".join([number] * COUNT)}]}}'.encode()
    bodies.inputs_of(body, bodies.JSON, signature, lambda: pauses.append(None))
    assert len(pauses) == COUNT // 1024
