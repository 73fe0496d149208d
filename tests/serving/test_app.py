"""A session as an application: every answer, every error, and the pages for operators."""

from __future__ import annotations

import asyncio
import io
import json
import re
import sys
import threading
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import vmflow as flow
from tests.serving.asgi_support import Exchange, http_scope
from tests.serving.test_bodies import BODIES
from vmflow import nn, serving
from vmflow.serving import InferenceSession, TensorSpec, bodies
from vmflow.serving.openapi import description
from vmflow.serving.tensor_bytes import read_safetensors, write_safetensors

pytest.importorskip("starlette", reason="starlette comes with the serve extra")

pytestmark = pytest.mark.host


def doubled(x: Any) -> Any:
    return x * 2


async def counted(model: Any, x: Any) -> AsyncIterator[Any]:
    for place in range(3):
        yield {"place": place, "sum": float(x.sum())}


def session_of(function: Any = doubled, **options: Any) -> InferenceSession:
    options = {"inputs": TensorSpec((2, 2)), "graph": False, "max_batch": 4, **options}
    return InferenceSession(function, **options)


@asynccontextmanager
async def living(session: InferenceSession, **options: Any) -> AsyncIterator[Any]:
    """The application, its session being ready."""
    application = serving.app(session, **options)
    async with application.router.lifespan_context(application):
        await until(lambda: session.state not in ("new", "warming"))
        yield application


async def called(application: Any, exchange: Exchange, scope: Any) -> Exchange:
    async with asyncio.timeout(10):
        await application(scope, exchange.receive, exchange.send)
    return exchange


async def post(application: Any, body: bytes, path: str = "/predict", **headers: str) -> Exchange:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await called(application, Exchange(body), http_scope("POST", path, named))


async def get(application: Any, path: str) -> Exchange:
    return await called(application, Exchange(), http_scope("GET", path))


GOOD = b'{"inputs": [[1, 2], [3, 4]]}'


def events_of(body: bytes) -> list[tuple[str, Any]]:
    """The events of a stream: names and data."""
    found = []
    for event in body.decode().strip().split("\n\n"):
        lines = dict([line.split(": ", 1) for line in event.split("\n")])
        found.append((lines.get("event", "message"), json.loads(lines["data"])))
    return found


@asynccontextmanager
async def busy(session: InferenceSession) -> AsyncIterator[Any]:
    """A block in which every batch of the session waits."""
    batcher = session._batches
    assert batcher is not None
    batcher.hold()
    try:
        yield batcher
    finally:
        batcher.go_on()


async def until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 (the condition changes on this loop)
            await asyncio.sleep(0)


# Predictions


async def test_predictions_in_every_kind() -> None:
    wanted = [[2, 4], [6, 8]]
    given = np.array([[1, 2], [3, 4]], np.float32)
    file = io.BytesIO()
    np.save(file, given)
    async with living(session_of()) as application:
        answer = await post(application, GOOD)
        assert (answer.status, json.loads(answer.body)) == (200, {"outputs": wanted})
        assert answer.headers["content-type"] == "application/json"
        answer = await post(application, file.getvalue(), content_type=bodies.NPY, accept=bodies.NPY)
        assert np.load(io.BytesIO(answer.body)).tolist() == wanted
        answer = await post(
            application, write_safetensors({"x": given}), content_type=bodies.SAFETENSORS, accept=bodies.SAFETENSORS
        )
        assert read_safetensors(answer.body, 1)["outputs"].tolist() == wanted


async def test_nan_in_a_result_is_null() -> None:
    async with living(session_of(lambda x: x.log())) as application:
        answer = await post(application, b'{"inputs": [[-1, 0], [1, 1]]}')
    assert json.loads(answer.body) == {"outputs": [[None, None], [0, 0]]}


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b'{"inputs": [1]}', {}, 422),
        (GOOD + b" " * 100_000, {}, 413),
        (GOOD, {"content_type": "text/plain"}, 415),
        (GOOD, {"accept": "text/html"}, 406),
        (GOOD, {"x_request_timeout": "soon"}, 400),
        (GOOD, {"content_encoding": "gzip"}, 415),
    ],
)
async def test_refused_requests(body: bytes, headers: dict[str, str], status: int) -> None:
    session = session_of()
    async with living(session) as application:
        answer = await post(application, body, **headers)
        document = json.loads((await get(application, "/openapi.json")).body)
    assert answer.status == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert json.loads(answer.body)["status"] == status
    assert str(status) in document["paths"]["/predict"]["post"]["responses"]
    assert session.statistics.accepted == 0


async def test_invalid_requests_are_counted() -> None:
    session = session_of()
    async with living(session) as application:
        await post(application, b"{")
        await post(application, b'{"inputs": [1]}')
    assert session.statistics.rejected["invalid"] == 2


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/predict", 405), ("GET", "/nothing", 404)])
async def test_all_errors_are_json(method: str, path: str, status: int) -> None:
    async with living(session_of()) as application:
        answer = await called(application, Exchange(), http_scope(method, path))
    assert (answer.status, json.loads(answer.body)["status"]) == (status, status)


async def test_an_error_of_the_model_is_500_without_details() -> None:
    def fails(x: Any) -> Any:
        if x.numpy().max() > 3:
            raise ZeroDivisionError("secret")
        return x

    async with living(session_of(fails)) as application:
        exchange = Exchange(GOOD)
        with pytest.raises(ZeroDivisionError):  # for the server to log
            await called(application, exchange, http_scope("POST", "/predict"))
        assert (exchange.status, b"secret" in exchange.body) == (500, False)
        assert len(exchange.headers["x-request-id"]) == 32  # by which the client can ask about it
        assert json.loads(exchange.body)["status"] == 500
        assert (await post(application, b'{"inputs": [[1, 2], [3, 3]]}')).status == 200


async def test_no_hostile_body_is_a_mistake_of_the_server() -> None:
    session = session_of()
    async with living(session) as application:
        seen = []

        @given(body=BODIES)
        @settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
        def search(body: bytes) -> None:
            seen.append(body)

        search()
        for body in seen:
            for kind in bodies.KINDS:
                answer = await post(application, body, content_type=kind)
                assert answer.status in (200, 400, 422)
        found = session.stats()
    refused = sum(found["rejected"].values())
    assert found["accepted"] + refused == 3 * len(seen)
    assert found["accepted"] == found["done"]


async def test_a_deadline_holds_while_others_are_computed() -> None:
    session = session_of()
    async with living(session) as application, busy(session):
        answer = await post(application, GOOD, x_request_timeout="0.02")
    assert answer.status == 504
    assert session.statistics.ends["expired"] == 1


async def test_overload_is_refused_and_says_when_to_come_again() -> None:
    session = session_of(max_queue=4)
    async with living(session, identify=lambda request: (None, 0)) as application:
        async with busy(session) as batcher:
            tasks = [asyncio.create_task(post(application, GOOD)) for _ in range(4)]
            await until(lambda: batcher.queued() == 4)
            answer = await post(application, GOOD)
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert {(await task).status for task in tasks} == {200}


async def test_one_client_gets_half_of_the_queue_and_others_the_rest() -> None:
    session = session_of(max_queue=4)
    async with living(session) as application:
        async with busy(session) as batcher:
            tasks = [asyncio.create_task(post(application, GOOD)) for _ in range(2)]
            await until(lambda: batcher.queued() == 2)
            assert (await post(application, GOOD)).status == 503
            scope = {**http_scope("POST", "/predict"), "client": ("192.0.2.2", 1)}
            tasks.append(asyncio.create_task(called(application, Exchange(GOOD), scope)))
            await until(lambda: batcher.queued() == 3)
        assert {(await task).status for task in tasks} == {200}


async def test_the_program_identifies_clients() -> None:
    order: list[str] = []
    session = session_of(max_batch=1)

    def identify(request: Any) -> tuple[str, int]:
        return request.headers["key"], int(request.headers["priority"])

    async def asks(application: Any, key: str, priority: int) -> None:
        await post(application, GOOD, key=key, priority=str(priority))
        order.append(key)

    async with living(session, identify=identify) as application:
        async with busy(session) as batcher:
            tasks = []
            for key, priority in (("low", 0), ("high", 5)):
                tasks.append(asyncio.create_task(asks(application, key, priority)))
                await until(lambda: batcher.queued() == len(tasks))
        await asyncio.gather(*tasks)
    assert order == ["high", "low"]


@pytest.mark.parametrize("policy", ["cancel", "finish"])
async def test_a_client_that_leaves_frees_its_place(policy: Any) -> None:
    session = session_of()
    async with living(session, on_disconnect=policy) as application:
        async with busy(session) as batcher:
            exchange = Exchange(GOOD)
            task = asyncio.create_task(called(application, exchange, http_scope("POST", "/predict")))
            await until(lambda: batcher.queued() == 1)
            exchange.leave()
            if policy == "cancel":
                await task
                assert batcher.queued() == 0
        await task
    ends = session.statistics.ends
    assert (ends["cancelled"], ends["done"]) == ((1, 0) if policy == "cancel" else (0, 1))


# Streams


async def test_a_stream_is_events() -> None:
    async with living(session_of(stream=counted)) as application:
        answer = await post(application, GOOD, "/stream")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert events_of(answer.body) == [*[("message", {"place": index, "sum": 10}) for index in range(3)], ("end", {})]


async def test_a_stream_of_nothing_ends() -> None:
    async def nothing(model: Any, x: Any) -> AsyncIterator[Any]:
        for _ in range(0):
            yield 1

    async with living(session_of(stream=nothing)) as application:
        answer = await post(application, GOOD, "/stream")
    assert events_of(answer.body) == [("end", {})]


async def test_chunks_may_be_tensors() -> None:
    async def tensors(model: Any, x: Any) -> AsyncIterator[Any]:
        yield {"y": model(flow.from_numpy(x))}

    async with living(session_of(stream=tensors)) as application:
        answer = await post(application, GOOD, "/stream")
    assert events_of(answer.body)[0] == ("message", {"y": [[2, 4], [6, 8]]})


async def test_an_error_before_the_first_chunk_is_an_answer_and_one_behind_it_an_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fails(model: Any, x: Any) -> AsyncIterator[Any]:
        if x[0, 0] > 0:
            yield 1
        if x[0, 1] > 0:
            raise serving.Draining("no more")
        raise ZeroDivisionError("secret")

    async with living(session_of(stream=fails)) as application:
        answer = await post(application, b'{"inputs": [[0, 1], [0, 0]]}', "/stream")
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        answer = await post(application, b'{"inputs": [[1, 1], [0, 0]]}', "/stream")
        assert [name for name, _ in events_of(answer.body)] == ["message", "error"]
        assert events_of(answer.body)[1][1]["detail"] == "no more"
        answer = await post(application, b'{"inputs": [[1, 0], [0, 0]]}', "/stream")
        assert events_of(answer.body)[1][1]["status"] == 500
        assert b"secret" not in answer.body
        assert "secret" in caplog.text
        assert (await post(application, b"{}", "/stream")).status == 422


async def test_a_session_without_streams_says_so() -> None:
    async with living(session_of()) as application:
        answer = await post(application, GOOD, "/stream")
    assert answer.status == 422
    assert "no stream" in json.loads(answer.body)["detail"]


class Endless:
    """A stream that counts, and whether it was closed."""

    def __init__(self) -> None:
        self.made = 0
        self.closed = asyncio.Event()

    async def __call__(self, model: Any, x: Any) -> AsyncIterator[int]:
        try:
            while True:
                self.made += 1
                yield self.made
        finally:
            self.closed.set()


class SlowExchange(Exchange):
    """A client that reads no more than `reads` messages."""

    def __init__(self, body: bytes, reads: int) -> None:
        super().__init__(body)
        self._reads = reads
        self.full = asyncio.Event()

    async def send(self, message: Any) -> None:
        if len(self.sent) == self._reads:
            self.full.set()
            await asyncio.Event().wait()
        await super().send(message)


@pytest.mark.parametrize("look_ahead", [1, 3])
async def test_a_stream_stops_when_its_client_reads_no_more(look_ahead: int) -> None:
    endless = Endless()
    session = session_of(stream=endless, look_ahead=look_ahead)
    async with living(session) as application:
        exchange = SlowExchange(GOOD, 5)
        task = asyncio.create_task(called(application, exchange, http_scope("POST", "/stream")))
        await exchange.full.wait()
        for _ in range(100):
            await asyncio.sleep(0)
        # Four were read; one is being sent, `look_ahead` wait, and one was computed before the channel had a place.
        assert endless.made <= 4 + 1 + look_ahead + 1
        exchange.leave()
        await task
        await endless.closed.wait()
        assert session.stats()["running"] == 0
        assert session.statistics.ends["cancelled"] == 1


async def test_a_client_that_leaves_before_the_first_chunk_closes_the_stream() -> None:
    begun, closed = asyncio.Event(), asyncio.Event()

    async def slow(model: Any, x: Any) -> AsyncIterator[int]:
        begun.set()
        try:
            await asyncio.Event().wait()
            yield 1
        finally:
            closed.set()

    async with living(session_of(stream=slow), on_disconnect="finish") as application:
        exchange = Exchange(GOOD)
        task = asyncio.create_task(called(application, exchange, http_scope("POST", "/stream")))
        await begun.wait()
        exchange.leave()
        await task
        await closed.wait()


# Looking at it


async def test_live_immediately_and_ready_when_warm() -> None:
    warm = threading.Event()

    def slow(x: Any) -> Any:
        warm.wait(10)
        return x

    session = session_of(slow)
    application = serving.app(session)
    async with application.router.lifespan_context(application):
        await until(lambda: session.state == "warming")
        assert (await get(application, "/live")).status == 200
        ready = await get(application, "/ready")
        assert (ready.status, json.loads(ready.body)) == (503, {"status": "warming"})
        assert (await post(application, GOOD)).headers["retry-after"] == "1"
        warm.set()
        await until(lambda: session.state == "ready")
        assert (await get(application, "/ready")).status == 200
    assert session.state == "closed"
    assert session.stats()["rejected"]["not_ready"] == 1


async def test_a_session_of_somebody_else_is_left_to_them() -> None:
    session = session_of()
    async with session:
        async with living(session) as application:
            assert (await post(application, GOOD)).status == 200
        assert session.state == "ready"


async def test_it_can_be_a_part_of_another_application() -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    session = session_of(stream=(endless := Endless()))
    inner = serving.app(session, on_disconnect="finish")
    outer = Starlette(routes=[Mount("/model", inner)], lifespan=serving.lifespan(session))
    async with outer.router.lifespan_context(outer):
        await until(lambda: session.state == "ready")
        assert (await post(outer, GOOD, "/model/predict")).status == 200
        exchange = SlowExchange(GOOD, 2)
        task = asyncio.create_task(called(outer, exchange, http_scope("POST", "/model/stream")))
        await exchange.full.wait()
        exchange.leave()
        await task
        await endless.closed.wait()
    assert session.state == "closed"


async def test_a_session_that_cannot_be_started_is_reported() -> None:
    def broken(x: Any) -> Any:
        raise ZeroDivisionError("broken")

    failed = asyncio.Event()
    errors: list[BaseException] = []

    def on_failure(error: BaseException) -> None:
        errors.append(error)
        failed.set()

    async with living(session_of(broken), on_failure=on_failure) as application:
        await failed.wait()
        assert (await get(application, "/live")).status == 200
        assert (await get(application, "/ready")).status == 503
    assert isinstance(errors[0], ZeroDivisionError)


def metrics_of(text: str) -> dict[str, float]:
    parser = pytest.importorskip("prometheus_client.parser", reason="prometheus-client comes with the metrics extra")
    found = {}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            labels = [value for name, value in sorted(sample.labels.items()) if name != "session"]
            assert sample.labels["session"] == "digits"
            found[" ".join([sample.name.removeprefix("vmflow_"), *labels])] = sample.value
    return found


async def test_metrics_add_up_at_every_moment() -> None:
    session = session_of(stream=counted, name="digits", max_queue=16)
    async with living(session, identify=lambda request: (None, 0)) as application:
        answers: list[Any] = [post(application, GOOD) for _ in range(5)]
        answers += [post(application, GOOD, x_request_timeout="0.000001") for _ in range(2)]
        answers += [post(application, b"[]"), post(application, GOOD, "/stream")]
        async with busy(session):
            tasks = [asyncio.create_task(answer) for answer in answers]
            for task in tasks:
                task.add_done_callback(lambda _: None)
            leaving = Exchange(GOOD)
            tasks.append(asyncio.create_task(called(application, leaving, http_scope("POST", "/predict"))))
            for turn in range(40):
                if turn == 20:
                    leaving.leave()
                found = metrics_of((await get(application, "/metrics")).body.decode())
                ended = sum([value for name, value in found.items() if name.startswith("requests_ended_total ")])
                assert found["requests_accepted_total"] == ended + found["requests_queued"] + found["requests_running"]
                rejected = sum([value for name, value in found.items() if name.startswith("requests_rejected_total ")])
                let_in = found["requests_accepted_total"] + rejected
                assert found["requests_arrived_total"] == let_in + found["requests_arriving"]
        await asyncio.gather(*tasks)
        found = metrics_of((await get(application, "/metrics")).body.decode())
    assert found["requests_arrived_total"] == 10
    assert found["requests_accepted_total"] == 7
    ends = {end: found[f"requests_ended_total {end}"] for end in ("done", "failed", "cancelled", "expired")}
    assert ends == {"done": 6, "failed": 0, "cancelled": 1, "expired": 0}
    assert found["requests_rejected_total invalid"] == 1
    assert found["requests_rejected_total expired"] == 2  # before their bodies had come
    assert found["requests_arriving"] == found["arriving_bytes"] == 0
    assert found["serving_seconds_count"] == 7
    assert found["serving_seconds_bucket +Inf"] == 7
    assert found["computing_seconds_count batch"] == found["computed_total batch"] >= 1
    assert found["computed_total stream"] == 1
    assert found["samples_total"] == 5
    assert found["ready"] == 1
    assert found["version"] == 0
    assert found["compiled_total ready"] == 0


async def test_without_prometheus_client_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("prometheus_client", "prometheus_client.core", "prometheus_client.exposition"):
        monkeypatch.setitem(sys.modules, name, None)
    async with living(session_of()) as application:
        answer = await get(application, "/metrics")
        assert answer.status == 501
        assert "pip install '.[metrics]'" in json.loads(answer.body)["detail"]
        assert (await post(application, GOOD)).status == 200


def test_without_starlette_the_error_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [module for module in sys.modules if module.partition(".")[0] == "starlette"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "starlette", None)
    with pytest.raises(ImportError, match=r"pip install '\.\[serve\]'"):
        serving.app(session_of())


async def test_the_loop_is_watched() -> None:
    session = session_of(name="digits")
    async with living(session) as application:
        async with asyncio.timeout(10):
            while not metrics_of((await get(application, "/metrics")).body.decode())["loop_lag_seconds_count"]:
                pass
        stats = json.loads((await get(application, "/stats")).body)
    assert stats["loop_lag"]["last"] >= 0
    assert stats["memory"]["allocated"] >= 0
    assert stats["uptime"] > 0


def test_the_description_follows_the_signature() -> None:
    length = serving.Dim("length", (4, 8))
    session = session_of(inputs={"text": TensorSpec((length,), flow.int64), "flag": TensorSpec((), flow.bool)})
    document = description(session, 1000, ["/predict"])
    body = document["paths"]["/predict"]["post"]["requestBody"]["content"]
    inputs = body[bodies.JSON]["schema"]["properties"]["inputs"]
    assert inputs["required"] == ["text", "flag"]
    text = inputs["properties"]["text"]
    assert (text["type"], text["minItems"], text["maxItems"]) == ("array", 1, 8)
    assert inputs["properties"]["flag"]["type"] == "boolean"
    assert bodies.NPY not in body
    json.dumps(document)
    references = set(re.findall(r'"#/([a-zA-Z/]+)"', json.dumps(document)))
    for reference in references:
        part: Any = document
        for key in reference.split("/"):
            part = part[key]
    assert references


@pytest.mark.parametrize(
    ("spec", "limits"),
    [
        (TensorSpec((), flow.int8), (-128, 127)),
        (TensorSpec((), flow.float16), (-65504, 65504)),
        (TensorSpec((), flow.bfloat16), (-3.3895313892515355e38, 3.3895313892515355e38)),
        (TensorSpec((), flow.float16, finite=False), (None, None)),
    ],
)
def test_the_description_says_which_numbers_fit(spec: TensorSpec, limits: tuple[float | None, float | None]) -> None:
    document = description(session_of(inputs=spec), 1000, ["/predict"])
    body = document["paths"]["/predict"]["post"]["requestBody"]["content"][bodies.JSON]
    inputs = body["schema"]["properties"]["inputs"]
    assert (inputs.get("minimum"), inputs.get("maximum")) == limits


@pytest.mark.parametrize(
    ("given", "fits"), [("0", False), ("0.00", False), ("0.5", True), ("10", True), ("1e3", False)]
)
async def test_the_description_says_which_timeouts_are_taken(given: str, fits: bool) -> None:
    async with living(session_of()) as application:
        document = json.loads((await get(application, "/openapi.json")).body)
        answer = await post(application, GOOD, x_request_timeout=given)
    timeout = document["paths"]["/predict"]["post"]["parameters"][0]
    assert timeout["name"] == "X-Request-Timeout"
    assert bool(re.search(timeout["schema"]["pattern"], given)) == fits == (answer.status == 200)


async def test_every_path_is_described() -> None:
    async with living(session_of(), drain_route=True) as application:
        document = json.loads((await get(application, "/openapi.json")).body)
        paths = [route.path for route in application.routes]
    assert sorted(document["paths"]) == sorted(paths)
    async with living(session_of(), page=False) as application:
        assert (await get(application, "/")).status == 404
        document = json.loads((await get(application, "/openapi.json")).body)
    assert not {"/", "/drain"} & set(document["paths"])


@pytest.mark.parametrize(
    ("shape", "draws"),
    [
        ((1, 8, 8), True),
        ((8, 8), True),
        ((64,), True),
        ((28, 28), True),
        ((2, 2), False),
        ((serving.Dim("n", (8,)),), False),
    ],
)
async def test_the_page_stands_alone(shape: Any, draws: bool) -> None:
    async with living(session_of(inputs=TensorSpec(shape), name="<b>")) as application:
        answer = await get(application, "/")
    text = answer.body.decode()
    assert ("<canvas" in text) == draws
    assert "<b>" not in text.partition("</h1>")[0]
    assert not re.search(r"(src|href)=\"?(https?:|//)", text)
    policy = answer.headers["content-security-policy"]
    for tag in ("style", "script"):
        (inside,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert f"'sha256-{b64encode(sha256(inside.encode()).digest()).decode()}'" in policy


# The end


async def test_a_drain_is_seen_before_it_is_felt() -> None:
    session = session_of(stream=counted)
    async with living(session, drain_route=True, drain_delay=0.05) as application:
        assert "connection" not in (await get(application, "/ready")).headers
        async with busy(session) as batcher:
            waiting = asyncio.create_task(post(application, GOOD))
            await until(lambda: batcher.queued() == 1)
            draining = asyncio.create_task(called(application, Exchange(), http_scope("POST", "/drain")))
            await until(lambda: session.state == "draining")
            ready = await get(application, "/ready")
            assert (ready.status, ready.headers["connection"]) == (503, "close")
            late = asyncio.create_task(post(application, GOOD))
            await until(lambda: batcher.queued() == 2)
            async with asyncio.timeout(10):
                while (await post(application, GOOD, x_request_timeout="0.01")).status != 503:
                    pass
            assert not draining.done()
        answer = await draining
        assert json.loads(answer.body) == {"status": "draining", "drained": True}
        assert [(await value).status for value in (waiting, late)] == [200, 200]
        assert (await get(application, "/live")).status == 200


def test_another_policy_is_refused_before_the_application_starts() -> None:
    wrong: Any = "stop"
    with pytest.raises(ValueError, match="on_disconnect must be"):
        serving.app(session_of(), on_disconnect=wrong)


async def test_draining_needs_to_be_asked_for() -> None:
    async with living(session_of()) as application:
        assert (await called(application, Exchange(), http_scope("POST", "/drain"))).status == 404


async def test_a_graph_compiles_nothing_when_it_is_ready() -> None:
    flow.manual_seed(0)
    session = InferenceSession(nn.Linear(3, 2).eval(), inputs=TensorSpec((3,)), max_batch=4, name="digits")
    async with living(session) as application:
        await asyncio.gather(*[post(application, b'{"inputs": [1, 2, 3]}') for _ in range(7)])
        found = metrics_of((await get(application, "/metrics")).body.decode())
    assert (found["compiled_total warming"], found["compiled_total ready"]) == (3, 0)
