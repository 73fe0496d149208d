"""Sessions in traces: every request, its outcome, and the instructions computed for it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import vmflow as flow
from tests.serving.asgi_support import Exchange, http_scope
from tests.serving.batchers import batcher_of
from tests.serving.traces import Chrome, Drawing, check_requests, drawn
from tests.serving.virtual_time import run
from tests.vm.gates import HEAVY, PATIENCE, call
from vmflow import profiler
from vmflow.serving import Expired, InferenceSession, RequestScope, TensorSpec
from vmflow.serving.batcher import Batch
from vmflow.serving.requests import Request
from vmflow.vm.virtual_machine import VirtualMachine, current_machine

ONE = TensorSpec((1,))


def tenfold(x: flow.Tensor) -> flow.Tensor:
    return x * 10


class Held:
    """Returns its input, at a gate that may be closed; cannot compute negative numbers."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.begun = threading.Event()

    def __call__(self, x: flow.Tensor) -> flow.Tensor:
        return call(self._compute, x, shape=tuple(x.shape), cost=HEAVY, device=x.device.type)

    def _compute(self, array: Any) -> Any:
        self.begun.set()
        if not self.open.wait(PATIENCE):
            raise TimeoutError("nobody opened the gate")
        if (array < 0).any():
            raise ValueError("negative")
        return array

    def close(self) -> None:
        self.open.clear()
        self.begun.clear()

    async def reached(self) -> None:
        """Return when an op stands at the gate."""
        assert await asyncio.to_thread(self.begun.wait, PATIENCE)

    async def chunks(self, model: Any, x: Any) -> AsyncIterator[float]:
        """The same number three times."""
        for _ in range(3):
            y = (flow.tensor(x) * 1).cpu()
            await y
            yield y.item()


@contextlib.contextmanager
def closed(gate: Held) -> Any:
    gate.close()
    try:
        yield
    finally:
        gate.open.set()


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not true():  # noqa: ASYNC110 (it takes a few turns of the loop)
            await asyncio.sleep(0)


def session_of(model: Any = tenfold, **about: Any) -> InferenceSession:
    options = {"inputs": ONE, "graph": False, "max_batch": 8, "max_queue": 512, "max_queue_per_client": 512}
    return InferenceSession(model, **{**options, **about})


def states(drawing: Drawing) -> Counter[str]:
    return Counter([value.args["state"] for value in drawing.of("request")])


# The reader

TRACK = {"pid": 1, "tid": 1}
SLICE = {"ph": "X", "name": "a", "cat": "run", "ts": 10.0, "dur": 5.0, "args": {}, **TRACK}
ARROW = {"name": "request", "cat": "flow", "id": 1, **TRACK}
NAMES = [
    {"ph": "M", "name": "process_name", "args": {"name": "host"}, **TRACK},
    {"ph": "M", "name": "thread_name", "args": {"name": "a"}, **TRACK},
]


@pytest.mark.parametrize(
    "wrong",
    [
        [{**SLICE, "ts": 14.0}],
        [{**SLICE, "ts": 11.0, "dur": 4.001}],
        [{**SLICE, "tid": 2}],
        [{**ARROW, "ph": "s", "ts": 12.0}],
        [{**ARROW, "ph": "s", "ts": 12.0}, {**ARROW, "ph": "f", "ts": 11.0}],
        [{**ARROW, "ph": "s", "ts": 12.0}, {**ARROW, "ph": "f", "ts": 15.0}],
        [{**ARROW, "ph": "s", "ts": 12.0}, {**ARROW, "ph": "f", "ts": 13.0}, {**ARROW, "ph": "t", "ts": 13.0}],
        [*NAMES],
    ],
)
def test_the_reader_notices_errors(wrong: list[Chrome]) -> None:
    right = [{**SLICE, "ts": 11.0, "dur": 4.0}, {**ARROW, "ph": "s", "ts": 12.0}, {**ARROW, "ph": "f", "ts": 14.999}]
    drawing = Drawing({"otherData": {}, "traceEvents": [*NAMES, SLICE, *right]})
    assert [slice_.inside for slice_ in drawing.slices] == [None, drawing.slices[0]]
    assert drawing.arrows == [[drawing.slices[1]] * 2]
    with pytest.raises((AssertionError, KeyError)):
        Drawing({"otherData": {}, "traceEvents": [*NAMES, SLICE, *wrong]})


# Contents


def test_times_are_not_those_of_the_loop(tmp_path: Path) -> None:
    """A batch takes a second of virtual time; a request cancelled before its batch is computed has no arrow."""
    prof = profiler.profile()

    async def compute(requests: Sequence[Request], batch: Batch) -> list[int]:
        await asyncio.sleep(1.0)
        return [0] * len(requests)

    async def main() -> None:
        batcher = batcher_of(compute)
        requests = [Request(None) for _ in range(3)]
        prof.start()
        batcher.submit(requests[0])
        batcher.cancel(requests[0])
        for request in requests[1:]:
            batcher.submit(request)
        await requests[1].future
        assert asyncio.get_running_loop().time() == 1.0
        prof.stop()
        await batcher.close()

    run(main())
    drawing = drawn(prof, tmp_path)
    cancelled, *others = [drawing.request(number, "session batcher") for number in (1, 2, 3)]
    assert cancelled.args == {"state": "cancelled", "priority": 0}
    assert drawing.parts(cancelled) == ["waiting", "computing"]
    assert cancelled.end < others[0].begin
    assert [[value.kind for value in drawing.way(other)] for other in (cancelled, *others)] == [
        [],
        *[["waiting", "batch", "computing"]] * 2,
    ]
    assert [(value.name, value.args) for value in drawing.of("batch")] == [
        ("batch 1", {"state": "done", "requests": 2})
    ]
    assert max([slice_.end for slice_ in drawing.slices]) < 1e9


@pytest.mark.parametrize("recorded", [1, 2])
def test_requests_that_join_a_batch_do_not_change_when_its_first_began(recorded: int, tmp_path: Path) -> None:
    """All requests are recorded, or those that join."""
    prof = profiler.profile()

    async def compute(requests: Sequence[Request], batch: Batch) -> list[int]:
        return [0] * len(requests)

    async def main() -> None:
        batcher = batcher_of(compute)
        requests = [Request(None) for _ in range(3)]
        for number, request in enumerate(requests, 1):
            if number == recorded:
                prof.start()
            batcher.submit(request)
        await requests[-1].future
        prof.stop()
        await batcher.close()

    run(main())
    drawing = drawn(prof, tmp_path)
    assert [value.args["requests"] for value in drawing.of("batch")] == [3]
    process = "session batcher"
    assert drawing.request(1, process).begin <= drawing.of("computing")[0].begin < drawing.request(2, process).begin
    values = {name: [value for _, value in drawing.counters[process, name]] for name in NAMED}
    waiting = [1, 2, 0] if recorded == 2 else [1, 0, 1, 2, 0]
    computed = [1, 3, 2, 1, 0] if recorded == 2 else [0, 1, 3, 2, 1, 0]
    assert values == {"waiting requests": waiting, "computed requests": computed}


async def test_one_request(tmp_path: Path) -> None:
    async with session_of(name="digits") as session, profiler.profile() as prof:
        with flow.scope(name="outer"), flow.scope(), flow.scope(name="inner"):
            assert (await session.run([4], client="somebody", priority=2)).tolist() == [40]
    drawing = drawn(prof, tmp_path)
    check_requests(drawing)
    request = drawing.request(1, "session digits")
    assert request.args == {
        "state": "done",
        "priority": 2,
        "client": "somebody",
        "scope": "outer / inner",
        "batch": 1,
    }
    assert request.track == "requests"
    assert [entry.name.split()[0] for entry in drawing.way(request)][:2] == ["waiting", "batch"]
    (batch,) = drawing.of("batch")
    assert (batch.name, batch.track) == ("batch 1", "batches")
    assert batch.args == {"state": "done", "requests": 1, "size": 1}
    values = {name: [value for _, value in series] for (process, name), series in drawing.counters.items()}
    assert values["waiting requests"] == [1, 0]
    assert values["computed requests"] == [0, 1, 0]
    assert {average.name for average in prof.key_averages()} == {entry.name for entry in drawing.of("run")}


async def test_a_stream(tmp_path: Path) -> None:
    gate = Held()
    async with session_of(gate, stream=gate.chunks) as session, profiler.profile() as prof:
        assert [value async for value in session.stream([3])] == [3, 3, 3]
        assert (await session.run([4])).tolist() == [4]
    drawing = drawn(prof, tmp_path)
    check_requests(drawing)
    assert [(value.name, value.track) for value in drawing.of("batch")] == [
        ("stream 1", "streams"),
        ("batch 2", "batches"),
    ]
    assert drawing.of("batch")[0].args == {"state": "done", "requests": 1}
    assert [value.kind for value in drawing.way(drawing.request(1))] == ["waiting", "batch", "run", "computing"]


async def ask(session: InferenceSession, number: int, **about: Any) -> str:
    try:
        result = await session.run([-number if number % 10 == 7 else number], **about)
    except (ValueError, Expired) as error:
        return type(error).__name__
    assert result.tolist() == [number]
    return "done"


@pytest.mark.host
@pytest.mark.worker
async def test_under_load(tmp_path: Path) -> None:
    gate = Held()
    async with session_of(gate, concurrency=2, stream=gate.chunks) as session:
        with closed(gate):
            async with profiler.profile() as prof:
                # Two batches of one stand at the gate: nobody waits for either when it opens.
                given_up = asyncio.create_task(ask(session, 1))
                late = asyncio.create_task(ask(session, 2, timeout=0.2))
                await gate.reached()
                tasks = {}
                for number in range(200):
                    seconds = 0.001 if number % 10 == 5 else None
                    asked = ask(session, number, timeout=seconds, client=number % 3, priority=number % 2)
                    tasks[number] = asyncio.create_task(asked)
                stream = asyncio.create_task(_all(session.stream([3])))
                await until(lambda: session.statistics.accepted == 203)
                for number in range(3, 200, 10):
                    tasks[number].cancel()
                assert {await tasks[number] for number in range(5, 200, 10)} == {"Expired"}
                given_up.cancel()
                assert await late == "Expired"
                gate.open.set()
                found = await asyncio.gather(*tasks.values(), return_exceptions=True)
                assert await stream == [3, 3, 3]
    assert found.count("done") == 140
    drawing = drawn(prof, tmp_path)
    check_requests(drawing)
    assert states(drawing) == {"done": 141, "cancelled": 21, "expired": 21, "failed": 20}
    assert drawing.about["dropped events"] == prof.dropped_events == 0
    for request in drawing.of("request"):
        assert (request.args["state"] in ("failed", "expired")) == ("error" in request.args)
        if request.args["state"] in ("cancelled", "expired") and request.name not in ("request 1", "request 2"):
            assert drawing.parts(request) == ["waiting"]
            assert not request.arrows
    check_batches(drawing)
    # A request cancelled in the middle.
    for number, state in ((1, "cancelled"), (2, "expired")):
        assert drawing.request(number).args["state"] == state
        assert drawing.parts(drawing.request(number)) == ["waiting", "computing"]
        assert drawing.way(drawing.request(number))[1].args["state"] == "cancelled"
    # As many lanes as there were requests at a time.
    assert len({entry.track for entry in drawing.of("request")}) == 203
    assert drawing.counters["session session", "waiting requests"][-1][1] == 0
    assert drawing.counters["session session", "computed requests"][-1][1] == 0
    # With the stream, which waits for its turn only as long as it takes to begin it.
    assert max([value for _, value in drawing.counters["session session", "waiting requests"]]) == 201


def check_batches(drawing: Drawing) -> None:
    """One that failed was tried in halves, down to the request that cannot be computed."""
    batches = {value.name: value for value in drawing.of("batch") if value.track != "streams"}
    assert {value.track for value in batches.values()} == {"batches", "batches, 2"}
    failed = [value for value in batches.values() if value.args["state"] == "failed"]
    assert len(failed) > 20
    assert all([value.args["error"] == "ValueError: negative" for value in failed])
    assert len([value for value in failed if value.args["requests"] == 1]) == 20
    computed = sum([value.args["requests"] for value in batches.values() if value.args["state"] == "done"])
    assert computed == 140
    for request in drawing.of("request"):
        if request.args["state"] == "failed":
            batch = batches[f"batch {request.args['batch']}"]
            assert (batch.args["requests"], batch.args["state"]) == (1, "failed")


async def _all(chunks: AsyncIterator[Any]) -> list[Any]:
    return [chunk async for chunk in chunks]


@pytest.mark.host
@pytest.mark.worker
async def test_from_the_middle_to_the_middle(tmp_path: Path) -> None:
    gate = Held()
    prof = profiler.profile()
    async with session_of(gate, max_batch=1) as session:
        with closed(gate):
            early = [asyncio.create_task(ask(session, number)) for number in (1, 2)]
            await gate.reached()
            prof.start()
            early.append(asyncio.create_task(ask(session, 3)))
            await until(lambda: session.statistics.accepted == 3)
        assert await asyncio.gather(*early) == ["done"] * 3
        with closed(gate):
            late = [asyncio.create_task(ask(session, number)) for number in (4, 5)]
            await gate.reached()
            prof.stop()
        assert await asyncio.gather(*late) == ["done"] * 2
        assert session.statistics.ends["done"] == 5
    drawing = drawn(prof, tmp_path)
    check_requests(drawing)
    before = "before the recording"
    about = [
        (entry.args["state"], entry.args.get("arrived"), drawing.parts(entry))
        for entry in map(drawing.request, range(1, 6))
    ]
    assert about == [
        ("done", before, ["computing"]),
        ("done", before, ["waiting", "computing"]),
        ("done", None, ["waiting", "computing"]),
        ("unfinished", None, ["waiting", "computing"]),
        ("unfinished", None, ["waiting"]),
    ]
    ways = [[entry.kind for entry in drawing.way(drawing.request(number))] for number in range(1, 6)]
    assert ways == [["batch", "computing"], *[["waiting", "batch", "run", "computing"]] * 3, []]
    assert [(entry.args["state"], entry.args.get("begun")) for entry in drawing.of("batch")] == [
        ("done", before),
        ("done", None),
        ("done", None),
        ("unfinished", None),
    ]
    values = {name: [value for _, value in drawing.counters["session session", name]] for name in NAMED}
    assert values == {"waiting requests": [2, 1, 0, 1, 0, 1], "computed requests": [1, 0, 1, 0, 1, 0, 1]}


NAMED = ("waiting requests", "computed requests")


async def test_no_more_than_max_events_are_kept(tmp_path: Path) -> None:
    async with session_of(max_batch=1) as session, profiler.profile(max_events=40) as prof:
        await asyncio.gather(*[session.run([number]) for number in range(50)])
    drawing = drawn(prof, tmp_path)
    assert drawing.about["recorded events"] == 40
    assert drawing.about["dropped events"] == prof.dropped_events > 50
    requests = drawing.of("request")
    assert 1 <= len(requests) < 40
    assert all([drawing.way(request)[-1].inside is request for request in requests])


async def test_two_sessions_of_one_name(tmp_path: Path) -> None:
    async with session_of(name="twin") as one, session_of(name="twin") as other, profiler.profile() as prof:
        assert [tensor.tolist() for tensor in await asyncio.gather(one.run([1]), other.run([2]), other.run([3]))] == [
            [10],
            [20],
            [30],
        ]
    drawing = drawn(prof, tmp_path)
    check_requests(drawing)
    assert [len(drawing.of("request", name)) for name in ("session twin", "session twin (2)")] == [1, 2]
    assert {value.name for value in drawing.of("request")} == {"request 1", "request 2"}


async def test_two_concurrent_recordings(tmp_path: Path) -> None:
    """Both have the request; its instructions are in the trace of its machine."""
    idle = current_machine()
    async with VirtualMachine("other") as other, session_of() as session:
        one, two = profiler.profile(machines=[other]), profiler.profile(machines=[idle])
        async with one, two:
            await session.run([1])
    ways = [drawing.way(drawing.request(1)) for drawing in (drawn(one, tmp_path), drawn(two, tmp_path))]
    assert [[value.kind for value in way] for way in ways] == [
        ["waiting", "batch", "run", "computing"],
        ["waiting", "batch", "computing"],
    ]


async def test_names_of_requests_over_http(tmp_path: Path) -> None:
    async with session_of() as session, profiler.profile() as prof:

        async def answering(scope: Any, receive: Any, send: Any) -> None:
            result = await session.run([7])
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": str(result.tolist()).encode()})

        exchange = Exchange()
        scope = http_scope("POST", "/predict", {"X-Request-ID": "abc-1"})
        await RequestScope(answering)(scope, exchange.receive, exchange.send)
        assert exchange.body == b"[70.0]"
    drawing = drawn(prof, tmp_path)
    check_requests(drawing)
    args = drawing.request(1).args
    assert (args["trace id"], args["scope"]) == ("abc-1", "POST /predict abc-1")


def test_from_plain_code(tmp_path: Path) -> None:
    with session_of() as session, profiler.profile() as prof, flow.scope(name="mine"):
        assert session.run_sync([1], client=("a", 1)).tolist() == [10]
    drawing = drawn(prof, tmp_path)
    check_requests(drawing)
    assert drawing.request(1).args["scope"] == "mine"
    assert drawing.request(1).args["client"] == "('a', 1)"


def _requests_alive() -> int:
    gc.collect()
    return len([thing for thing in gc.get_objects() if type(thing) is Request])


@pytest.mark.parametrize("recorded", [True, False])
async def test_requests_are_let_go_of_when_they_end(recorded: bool) -> None:
    before = _requests_alive()
    async with session_of() as session, profiler.profile() if recorded else contextlib.nullcontext():
        await asyncio.gather(*[session.run([number]) for number in range(20)])
        task = asyncio.create_task(session.run([1]))
        await until(lambda: session.statistics.accepted == 21)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        del task
        await until(lambda: not asyncio.all_tasks() - {asyncio.current_task()})
        assert _requests_alive() == before


@pytest.mark.host
@pytest.mark.worker
async def test_a_recording_that_has_ended_drops_running_requests() -> None:
    before, gate = _requests_alive(), Held()
    async with session_of(gate) as session:
        prof = profiler.profile()
        with closed(gate):
            prof.start()
            task = asyncio.create_task(session.run([1]))
            await gate.reached()
            prof.stop()
        await task
        del task
        await asyncio.sleep(0)
        assert _requests_alive() == before
        assert [event.args["state"] for event in prof.events() if event.kind == "request"] == ["unfinished"]
