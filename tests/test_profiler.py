"""The profiler: the contents of a trace, its format, and the recorded steps."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import importlib.util
import inspect
import json
import re
import shutil
import sys
import threading
import weakref
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import vmflow as flow
from tests.support import weak_storage
from vmflow import nn, profiler
from vmflow.errors import Cancelled, VirtualMachineClosed
from vmflow.instructions.barrier import Barrier
from vmflow.instructions.blob import Array
from vmflow.instructions.builder import physical_run
from vmflow.instructions.deferred import Deferred
from vmflow.instructions.instruction import Instruction
from vmflow.profiler import ProfilerAction
from vmflow.profiler.averages import host_times
from vmflow.profiler.records import Issue, Run, Trace, Wait
from vmflow.vm.virtual_machine import VirtualMachine, current_machine

NONE, WARMUP = ProfilerAction.NONE, ProfilerAction.WARMUP
RECORD, SAVE = ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE

Chrome = dict[str, Any]


# Reading a trace back


def exported(prof: profiler.profile, folder: Path) -> Chrome:
    """The file as JSON, checked."""
    path = folder / "trace.json"
    prof.export_chrome_trace(path)
    trace: Chrome = json.loads(path.read_text())
    check(trace)
    return trace


def check(trace: Chrome) -> None:
    """Every rule of the format and of its viewers."""
    events = trace["traceEvents"]
    for event in events:
        assert event["ph"] in "XbesftCMi"
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] != "M":
            assert event["ts"] >= 0
    named = {(value["pid"], value["tid"]) for value in events if value["ph"] == "M" and value["name"] == "thread_name"}
    assert {(value["pid"], value["tid"]) for value in events if value["ph"] not in "MCi"} <= named
    assert {value["pid"] for value in events} == {value["pid"] for value in events if value["name"] == "process_name"}
    check_slices(trace)
    check_spans(events)
    check_arrows(trace)


def check_slices(trace: Chrome) -> None:
    """None overlaps another on its track."""
    for track in slices_by_track(trace).values():
        for one, other in pairwise(track):
            assert one["ts"] + one["dur"] <= other["ts"] + 1e-6, (one, other)


def check_spans(events: list[Chrome]) -> None:
    """Every begin has one end, not before it."""
    open_spans: dict[tuple[str, str], Chrome] = {}
    for event in events:
        if event["ph"] == "b":
            assert open_spans.setdefault((event["cat"], event["id"]), event) is event
    for event in events:
        if event["ph"] == "e":
            assert open_spans.pop((event["cat"], event["id"]))["ts"] <= event["ts"]
    assert not open_spans


def check_arrows(trace: Chrome) -> None:
    """Each leads forward in time, from inside a slice to inside a slice."""
    for chain in arrows(trace):
        assert [value["ph"] for value in chain] in (["s", "f"], ["s", "t", "f"])
        assert [value["ts"] for value in chain] == sorted(value["ts"] for value in chain)
        assert {value["name"] for value in chain} == {"flow"}
        for end in chain:
            slice_at(trace, end)


def arrows(trace: Chrome) -> list[list[Chrome]]:
    found: dict[int, list[Chrome]] = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] in "stf":
            found[event["id"]].append(event)
    return list(found.values())


def slices_by_track(trace: Chrome) -> dict[tuple[int, int], list[Chrome]]:
    found: dict[tuple[int, int], list[Chrome]] = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            assert event["dur"] >= 0
            found[event["pid"], event["tid"]].append(event)
    return {key: sorted(track, key=lambda x: x["ts"]) for key, track in found.items()}


def slice_at(trace: Chrome, event: Chrome) -> Chrome:
    """The slice of its track that an end of an arrow lies in."""
    for found in slices_by_track(trace)[event["pid"], event["tid"]]:
        if found["ts"] <= event["ts"] <= found["ts"] + found["dur"]:
            return found
    raise AssertionError(f"{event} is in no slice")


def chains(trace: Chrome) -> list[list[str]]:
    """The kinds of the slices that each arrow connects."""
    return [[slice_at(trace, end)["cat"] for end in chain] for chain in arrows(trace)]


def of(trace: Chrome, kind: str, name: str | None = None) -> list[Chrome]:
    """The slices and spans of a kind."""
    events = [value for value in trace["traceEvents"] if value["ph"] in "Xbi" and value.get("cat") == kind]
    return [event for event in events if name is None or event["name"] == name]


def track_names(trace: Chrome) -> dict[tuple[int, int], str]:
    events = trace["traceEvents"]
    return {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}


def failing() -> flow.Tensor:
    """A tensor whose kernel fails: the index is looked at only when the op runs."""
    return flow.gather(flow.ones(3), 0, flow.tensor([7]))


TRACK = {"pid": 1, "tid": 1}
SLICE = {"ph": "X", "name": "a", "cat": "run", "ts": 10.0, "dur": 5.0, **TRACK}
ARROW = {"name": "flow", "cat": "flow", "id": 1, **TRACK}


@pytest.mark.parametrize(
    "wrong",
    [
        [SLICE, {**SLICE, "ts": 14.0}],
        [SLICE, {**SLICE, "ts": 11.0, "dur": 1.0}],
        [SLICE, {**ARROW, "ph": "s", "ts": 12.0}],
        [SLICE, {**ARROW, "ph": "s", "ts": 12.0}, {**ARROW, "ph": "f", "ts": 11.0}],
        [SLICE, {**ARROW, "ph": "s", "ts": 12.0}, {**ARROW, "ph": "f", "ts": 16.0}],
        [{**TRACK, "ph": "b", "name": "a", "cat": "scope", "id": "0x1", "ts": 1.0}],
        [{**SLICE, "tid": 2}],
    ],
)
def test_the_check_notices_errors(wrong: list[Chrome]) -> None:
    names = [
        {"ph": "M", "name": "process_name", "args": {"name": "host"}, **TRACK},
        {"ph": "M", "name": "thread_name", "args": {"name": "a"}, **TRACK},
    ]
    check({"traceEvents": [*names, SLICE]})
    with pytest.raises(AssertionError):
        check({"traceEvents": [*names, *wrong]})


# Contents


def test_names_lines_and_bytes(tmp_path: Path) -> None:
    x = flow.ones(8)
    x.numpy()
    with profiler.profile() as prof:
        y = flow.exp(x)  # the line
        y.numpy()
    trace = exported(prof, tmp_path)
    line = 1 + next(i for i, text in enumerate(Path(__file__).read_text().splitlines()) if text.endswith("# the line"))
    (run,) = of(trace, "run", "exp")
    (issue,) = of(trace, "issue", "exp")
    expected = f"{__file__}:{line}, in test_names_lines_and_bytes"
    assert run["args"]["line"] == issue["args"]["line"] == expected
    assert run["args"]["bytes"] == 32
    assert run["args"]["state"] == "ran"
    assert track_names(trace)[run["pid"], run["tid"]] == f"{x.device}:compute"
    assert track_names(trace)[issue["pid"], issue["tid"]] == "thread MainThread"
    assert trace["otherData"]["dropped events"] == 0
    assert trace["otherData"]["vmflow"] == flow.__version__


def test_events_as_objects() -> None:
    with profiler.profile() as prof:
        flow.ones(8).exp().numpy()
    (run,) = [event for event in prof.events() if (event.kind, event.name) == ("run", "exp")]
    (issue,) = [event for event in prof.events() if (event.kind, event.name) == ("issue", "exp")]
    assert run.number == issue.number
    assert 0 <= issue.begin <= issue.end <= run.begin <= run.end
    assert run.duration == run.end - run.begin
    assert run.track.endswith(":compute")


def test_reading_in_plain_code_has_its_chain(tmp_path: Path) -> None:
    with profiler.profile() as prof:
        for _ in range(3):
            assert (flow.ones(2) + 1).sum().item() == 4.0
    trace = exported(prof, tmp_path)
    waits = of(trace, "await")
    assert len(waits) >= 3
    assert chains(trace).count(["issue", "run", "await"]) == len(waits)


async def test_every_awaited_tensor_has_its_chain(tmp_path: Path) -> None:
    async def work(number: int) -> None:
        for _ in range(4):
            x = flow.ones(4) * number
            await (x + 1).sum()

    async with VirtualMachine("tasks"), profiler.profile() as prof:
        await asyncio.gather(*[asyncio.create_task(work(number), name=f"worker {number}") for number in range(3)])
    trace = exported(prof, tmp_path)
    waits = of(trace, "await", "sum")
    assert len(waits) == 12
    awaited = [chain for chain in arrows(trace) if slice_at(trace, chain[-1])["cat"] == "await"]
    assert [len(chain) for chain in awaited].count(3) == len(of(trace, "await"))
    names = track_names(trace)
    ours = Counter(names[wait["pid"], wait["tid"]] for wait in waits)
    assert ours == {"task worker 0": 4, "task worker 1": 4, "task worker 2": 4}
    for chain in awaited:
        # The issuing thread awaits, and the thread in between is the stream's.
        assert chain[0]["tid"] == chain[2]["tid"] != chain[1]["tid"]


async def test_several_tasks_await_one_tensor(tmp_path: Path) -> None:
    looking = 0
    all_look = threading.Event()

    async def look(tensor: flow.Tensor) -> None:
        nonlocal looking
        looking += 1
        if looking == 3:
            asyncio.get_running_loop().call_soon(all_look.set)
        await tensor

    async with VirtualMachine(cpu_worker="always") as machine, profiler.profile() as prof:
        x = flow.ones(4, device="cpu")
        physical_run(
            machine, lambda builder: builder.access_blob_by_callback(x._blob, lambda array: _wait_for(all_look), "mut")
        )
        x = x.exp()
        await asyncio.gather(look(x), look(x), look(x))
    trace = exported(prof, tmp_path)
    assert len(of(trace, "await", "exp")) == 3
    assert chains(trace).count(["issue", "run", "await"]) == len(of(trace, "await"))


async def test_awaits_inside_one_another_get_tracks_of_their_own(tmp_path: Path) -> None:
    """A coroutine driven by hand may be inside two awaits together, begun in one order and ended in the same."""
    async with VirtualMachine(cpu_worker="always"), profiler.profile() as prof:
        first, second = flow.ones(4).exp(), flow.ones(4).log()
        waits = [first.__await__(), second.__await__()]
        for wait in waits:
            next(wait)
        await current_machine().synchronize()
        for wait in waits:
            with pytest.raises(StopIteration):
                next(wait)
    trace = exported(prof, tmp_path)
    names = track_names(trace)
    tracks = [names[value["pid"], value["tid"]] for name in ("exp", "log") for value in of(trace, "await", name)]
    assert len(tracks) == 2
    assert tracks[1] == f"{tracks[0]}, 2"


async def test_on_the_worker(tmp_path: Path) -> None:
    async with VirtualMachine(cpu_worker="always"), profiler.profile() as prof:
        x = flow.ones(4, device="cpu")
        for _ in range(20):
            x = x + 1
        await x
    trace = exported(prof, tmp_path)
    assert len(of(trace, "run", "add_scalar")) == 20
    assert ["issue", "run", "await"] in chains(trace)


async def test_on_the_simulated_device(tmp_path: Path) -> None:
    async with VirtualMachine(), profiler.profile() as prof:
        x = flow.ones(4, device="sim") + 1
        x = await x.to("cpu")
        assert x.tolist() == [2.0] * 4
    trace = exported(prof, tmp_path)
    names = track_names(trace)
    assert {names[value["pid"], value["tid"]] for value in of(trace, "run")} >= {
        "sim:0:compute",
        "sim:0:device_to_host",
    }
    assert chains(trace).count(["issue", "run", "await"]) == len(of(trace, "await"))
    assert any(value["ph"] == "C" and value["name"] == "bytes on sim:0" for value in trace["traceEvents"])


def test_threads_have_tracks_of_their_own(tmp_path: Path) -> None:
    def work() -> None:
        for _ in range(5):
            (flow.ones(3) + 1).numpy()

    with profiler.profile() as prof:
        threads = [threading.Thread(target=work, name="twin") for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    trace = exported(prof, tmp_path)
    names = track_names(trace)
    tracks = Counter(names[value["pid"], value["tid"]] for value in of(trace, "issue", "add_scalar"))
    assert tracks == {"thread twin": 5, "thread twin (2)": 5}


def test_names_of_tracks_and_machines_are_distinct() -> None:
    names = ["a", "a", "a (2)", "b", "a", "b (2)", "b"]
    distinct = ["a", "a (3)", "a (2)", "b", "a (4)", "b (2)", "b (3)"]
    trace = Trace(0, 1, 0, 0.0, names, names, names, [], 0)
    assert trace.tracks == distinct
    assert trace.machines == [f"machine {name}" for name in distinct]
    assert trace.sessions == [f"session {name}" for name in distinct]


def test_failures_and_inherited_failures(tmp_path: Path) -> None:
    with profiler.profile() as prof:
        bad = failing()
        worse = bad + 1
        with pytest.raises(IndexError):
            worse.numpy()
    trace = exported(prof, tmp_path)
    (first,) = of(trace, "run", "gather")
    (second,) = of(trace, "run", "add_scalar")
    assert first["args"]["state"] == second["args"]["state"] == "failed"
    assert first["args"]["error"].startswith("IndexError: ")
    assert second["args"]["error"] == f"inherited: {first['args']['error']}"
    assert "gather (1 failed)" in prof.key_averages().table()


async def test_instructions_dropped_by_a_scope(tmp_path: Path) -> None:
    async with VirtualMachine(), profiler.profile() as prof, flow.scope(name="unwanted", priority=2) as unwanted:
        x = flow.ones(4).exp()
        unwanted.cancel()
        with pytest.raises(Cancelled):
            await x
    trace = exported(prof, tmp_path)
    (run,) = of(trace, "run", "exp")
    assert run["args"]["state"] == "dropped"
    assert run["args"]["scope"] == "unwanted"
    (scope,) = of(trace, "scope", "unwanted")
    assert scope["args"]["priority"] == 2
    # The await was given up before the run began, and the arrow to it does not pass the run.
    (wait,) = of(trace, "await", "exp")
    (chain,) = [chain for chain in arrows(trace) if slice_at(trace, chain[-1]) == wait]
    assert [slice_at(trace, end)["cat"] for end in chain] == ["issue", "await"]


async def test_instructions_dropped_by_closing(tmp_path: Path) -> None:
    machine = VirtualMachine("short-lived")
    async with machine:
        with profiler.profile() as prof:
            x = flow.ones(4).exp()
            machine.close()
            with pytest.raises(VirtualMachineClosed):
                await x
    trace = exported(prof, tmp_path)
    assert of(trace, "run") == []
    (dropped,) = of(trace, "dropped", "exp")
    assert dropped["args"]["state"] == "dropped"
    assert dropped["ph"] == "i"


class Late(Deferred):
    """Ends when the test says so."""

    __slots__ = ()

    name = "late"


async def test_a_deferred_instruction_is_a_span(tmp_path: Path) -> None:
    machine = VirtualMachine()
    async with machine, profiler.profile() as prof:
        late, failed = Late(), Late()
        for policy in (late, failed):
            machine.issue(Instruction(machine.control_stream(), policy))
        x = flow.ones(4).exp()
        await x
        late.end()
        failed.end(ValueError("too late"))
    trace = exported(prof, tmp_path)
    good, bad = of(trace, "deferred", "late")
    assert (good["args"]["state"], bad["args"]["state"]) == ("ran", "failed")
    assert bad["args"]["error"] == "ValueError: too late"
    ends = {value["id"]: value["ts"] for value in trace["traceEvents"] if value["ph"] == "e"}
    (run,) = of(trace, "run", "exp")
    assert good["ts"] < run["ts"] < ends[good["id"]]
    assert [value["args"]["state"] for value in of(trace, "run", "late")] == ["deferred", "deferred"]


async def test_a_handover_to_another_machine_has_its_arrows(tmp_path: Path) -> None:
    first, second = VirtualMachine("first", gather=1), VirtualMachine("second")
    async with first:
        x = flow.ones(4).exp()  # still to come
        async with second, profiler.profile(machines=[first, second]) as prof:
            await (x + 1)
    trace = exported(prof, tmp_path)
    names = {value["args"]["name"] for value in trace["traceEvents"] if value["name"] == "process_name"}
    assert names == {"host", "machine first", "machine second"}
    assert len(of(trace, "run", "handover_out")) == len(of(trace, "run", "handover_in")) == 1
    assert chains(trace).count(["issue", "run", "await"]) == len(of(trace, "await"))


async def test_instructions_unfinished_when_the_recording_ends(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def block(array: Array) -> None:
        begun.set()
        _wait_for(go_on)

    async with VirtualMachine(cpu_worker="always") as machine:
        x = flow.ones(4, device="cpu")
        with profiler.profile() as prof:
            physical_run(machine, lambda builder: builder.access_blob_by_callback(x._blob, block, "mut"))
            reading = asyncio.create_task(_read(x))
            await asyncio.to_thread(begun.wait)
        go_on.set()
        await reading
    trace = exported(prof, tmp_path)
    (run,) = of(trace, "run", "access_blob_by_callback")
    (wait,) = of(trace, "await", "access_blob_by_callback")
    assert run["args"]["state"] == wait["args"]["state"] == "unfinished"
    assert run["ts"] + run["dur"] == pytest.approx(wait["ts"] + wait["dur"], abs=1e-3)


def _wait_for(event: threading.Event) -> None:
    assert event.wait(60)


async def _read(tensor: flow.Tensor) -> None:
    await tensor


def test_instructions_issued_before_the_recording_have_no_arrow(tmp_path: Path) -> None:
    machine = VirtualMachine(gather=1000)
    barrier = Instruction(machine.control_stream(), Barrier())
    machine.issue(barrier)
    with profiler.profile(machines=[machine]) as prof:
        machine.wait(barrier)
    trace = exported(prof, tmp_path)
    assert len(of(trace, "run", "barrier")) == 1
    assert of(trace, "issue") == []
    assert chains(trace) == [["run", "await"]]
    machine.close()


@pytest.mark.host
def test_memory_and_lively_instructions_are_counted(tmp_path: Path) -> None:
    machine = current_machine()
    with profiler.profile() as prof:
        large = flow.ones(1 << 16) * 2
        large.numpy()
        held = machine.memory.allocator(large.device).statistics()["allocated_bytes.all.current"]
    trace = exported(prof, tmp_path)
    counters = [value for value in trace["traceEvents"] if value["ph"] == "C"]
    values = [counter["args"]["value"] for counter in counters if counter["name"] == "bytes on cpu"]
    assert held in values
    assert max(values) >= 1 << 18
    lively = [counter["args"]["value"] for counter in counters if counter["name"] == "lively instructions"]
    assert lively
    assert min(lively) >= 1


def test_modules_and_scopes_nest(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    with profiler.profile() as prof, flow.scope(name="outer", timeout=60), flow.scope(name="inner"):
        model(flow.ones(2, 4)).detach().numpy()
    trace = exported(prof, tmp_path)
    (linear,) = of(trace, "run", "linear")
    assert linear["args"]["module"] == "0 (Linear) of Sequential"
    assert linear["args"]["scope"] == "inner"
    (outer,), (inner,) = of(trace, "scope", "outer"), of(trace, "scope", "inner")
    ends = {value["id"]: value["ts"] for value in trace["traceEvents"] if value["ph"] == "e"}
    assert outer["ts"] <= inner["ts"] <= linear["ts"]
    assert linear["ts"] + linear["dur"] <= ends[inner["id"]] <= ends[outer["id"]]
    assert outer["args"]["seconds to the deadline"] == pytest.approx(60, abs=1)


def test_compressed(tmp_path: Path) -> None:
    with profiler.profile() as prof:
        flow.ones(2).exp().numpy()
    prof.export_chrome_trace(tmp_path / "trace.json.gz")
    with gzip.open(tmp_path / "trace.json.gz", "rt") as file:
        check(json.load(file))


# record_function


async def test_record_function_in_all_its_forms(tmp_path: Path) -> None:
    @profiler.record_function("plain")
    def plain() -> int:
        return 1

    @profiler.record_function("coroutine")
    async def coroutine() -> int:
        await flow.ones(2).exp()
        return 2

    @profiler.record_function("generator")
    def generator() -> Iterator[int]:
        yield 3

    assert inspect.iscoroutinefunction(coroutine)
    async with profiler.profile() as prof:
        with profiler.record_function("block"):
            assert plain() == 1
        async with profiler.record_function("async block"):
            results = await asyncio.gather(coroutine(), coroutine())
        assert list(results) == [2, 2]
        assert list(generator()) == [3]
    assert plain() == 1
    trace = exported(prof, tmp_path)
    counted = Counter(value["name"] for value in of(trace, "record_function"))
    assert counted == {"block": 1, "plain": 1, "async block": 1, "coroutine": 2, "generator": 1}
    ends = {value["id"]: value["ts"] for value in trace["traceEvents"] if value["ph"] == "e"}
    run = of(trace, "run", "exp")[0]
    (outer,) = of(trace, "record_function", "async block")
    assert outer["ts"] <= run["ts"] <= ends[outer["id"]]


async def test_one_record_function_in_several_tasks() -> None:
    """Entered by both tasks, left by the first that entered, entered again by the other, and left twice by that."""
    record, first_left = profiler.record_function("shared"), asyncio.Event()

    async def first(entered: asyncio.Event) -> None:
        async with record:
            await entered.wait()
        first_left.set()

    async def second(entered: asyncio.Event) -> None:
        async with record:
            entered.set()
            await first_left.wait()
            with record:
                flow.ones(2).exp()

    async with profiler.profile() as prof:
        entered = asyncio.Event()
        await asyncio.gather(
            asyncio.create_task(first(entered), name="first"), asyncio.create_task(second(entered), name="second")
        )
    events = [event for event in prof.events() if event.kind == "record_function"]
    assert [event.args["by"] for event in events] == ["task first", "task second", "task second"]
    one, other, inner = events
    assert one.end < inner.begin <= inner.end <= other.end


def test_one_record_function_in_several_threads() -> None:
    record, entered, left = profiler.record_function("shared"), threading.Event(), threading.Event()

    def second() -> None:
        with record:
            entered.set()
            left.wait(60)

    with profiler.profile() as prof:
        thread = threading.Thread(target=second, name="second")
        with record:
            thread.start()
            entered.wait(60)
        left.set()
        thread.join()
    one, other = [event for event in prof.events() if event.kind == "record_function"]
    assert (one.args["by"], other.args["by"]) == ("thread MainThread", "thread second")
    assert one.end <= other.end


def test_leaving_a_record_function_that_was_not_entered_is_an_error() -> None:
    record = profiler.record_function("shut")
    with pytest.raises(RuntimeError, match="had not been entered"):
        record.__exit__(None, None, None)


def test_one_record_function_left_by_another_task_than_the_one_that_entered() -> None:
    async def enter(record: profiler.record_function) -> None:
        await record.__aenter__()

    async def leave(record: profiler.record_function) -> None:
        await record.__aexit__(None, None, None)

    record = profiler.record_function("handed on")
    with profiler.profile() as prof:
        asyncio.run(enter(record))
        asyncio.run(leave(record))
    assert [event.name for event in prof.events() if event.kind == "record_function"] == ["handed on"]


def test_record_function_open_at_both_ends(tmp_path: Path) -> None:
    before, within = profiler.record_function("before"), profiler.record_function("within")
    before.__enter__()
    with profiler.profile() as prof:
        before.__exit__(None, None, None)
        within.__enter__()
    within.__exit__(None, None, None)
    trace = exported(prof, tmp_path)
    assert [value["name"] for value in of(trace, "record_function")] == ["within"]


def test_record_function_refuses() -> None:
    with pytest.raises(TypeError, match="the name must be a string, not 3"):
        profiler.record_function(3)  # type: ignore[arg-type]

    async def generate() -> Any:
        yield 1

    with pytest.raises(TypeError, match="async generator cannot be decorated"):
        profiler.record_function("x")(generate)


# Which steps


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"wait": 1, "warmup": 1, "active": 3, "repeat": 2}, [NONE, WARMUP, RECORD, RECORD, SAVE] * 2 + [NONE] * 4),
        ({"wait": 0, "warmup": 0, "active": 1}, [SAVE] * 6),
        ({"wait": 1, "warmup": 0, "active": 2, "skip_first": 2}, [NONE, NONE] + [NONE, RECORD, SAVE] * 3),
        ({"wait": 0, "warmup": 2, "active": 1, "repeat": 1, "skip_first": 1}, [NONE, WARMUP, WARMUP, SAVE, NONE, NONE]),
    ],
)
def test_schedule(arguments: dict[str, int], expected: list[ProfilerAction]) -> None:
    action_of = profiler.schedule(**arguments)
    assert [action_of(step) for step in range(len(expected))] == expected


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"active": 0}, ValueError, "active must be at least 1"),
        ({"wait": -1}, ValueError, "wait must be at least 0, not -1"),
        ({"repeat": 1.5}, TypeError, "repeat must be an integer, not 1.5"),
        ({"warmup": True}, TypeError, "warmup must be an integer, not True"),
    ],
)
def test_schedule_refuses(changed: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        profiler.schedule(**{"wait": 0, "warmup": 0, "active": 1, **changed})


def test_a_scheduled_loop_is_recorded_cycle_by_cycle(tmp_path: Path) -> None:
    seen: list[list[str]] = []
    machine = current_machine()

    def ready(prof: profiler.profile) -> None:
        assert machine.tracer is None
        trace = exported(prof, tmp_path)
        steps = [value["name"] for value in of(trace, "step")]
        assert len(of(trace, "run", "exp")) == len(steps)
        seen.append(steps)

    plan = profiler.schedule(wait=1, warmup=1, active=2, repeat=2, skip_first=1)
    recorded: list[bool] = []
    with profiler.profile(schedule=plan, on_trace_ready=ready) as prof:
        for _ in range(12):
            recorded.append(machine.tracer is not None)
            flow.ones(2).exp().numpy()
            prof.step()
    assert seen == [["step 3", "step 4"], ["step 7", "step 8"]]
    assert recorded == [False] + [False, True, True, True] * 2 + [False] * 3
    assert prof.step_num == 12
    assert machine.tracer is None


def test_a_cycle_cut_short_is_saved_too() -> None:
    seen: list[int] = []
    plan = profiler.schedule(wait=0, warmup=1, active=5)
    with profiler.profile(schedule=plan, on_trace_ready=lambda prof: seen.append(len(prof.events()))) as prof:
        prof.step()
        flow.ones(2).exp().numpy()
    assert len(seen) == 1
    assert seen[0] > 0


def test_leaving_in_the_warmup_saves_nothing() -> None:
    plan = profiler.schedule(wait=0, warmup=2, active=1)
    with profiler.profile(schedule=plan, on_trace_ready=lambda prof: pytest.fail("nothing was recorded")) as prof:
        flow.ones(2).exp().numpy()
    assert current_machine().tracer is None
    with pytest.raises(RuntimeError, match="nothing was recorded yet"):
        prof.events()


async def test_two_epochs_of_a_training_loop(tmp_path: Path) -> None:
    flow.manual_seed(1)
    async with VirtualMachine("training"):
        model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
        optimizer = flow.optim.SGD(model.parameters(), lr=0.05)
        images, targets = flow.randn(40, 6), flow.randn(40, 1)
        loss_of = nn.MSELoss()
        async with profiler.profile() as prof:
            for _ in range(2):
                for chosen in flow.randperm(40).split(10):
                    with profiler.record_function("forward"):
                        loss = loss_of(model(images[chosen]), targets[chosen])
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    await loss
                    prof.step()
    trace = exported(prof, tmp_path)
    assert len(of(trace, "run", "SGD.step")) == len(of(trace, "record_function", "forward")) == 8
    assert len(of(trace, "run", "linear")) == 16
    modules = {value["args"].get("module") for value in of(trace, "run", "linear")}
    assert modules == {"0 (Linear) of Sequential", "2 (Linear) of Sequential"}
    assert chains(trace).count(["issue", "run", "await"]) == len(of(trace, "await"))
    assert len(of(trace, "issue")) <= len(of(trace, "run"))
    averages = {(average.name, average.stream): average for average in prof.key_averages()}
    device = images.device
    linear = averages["linear", f"{device}:compute"]
    assert linear.calls == 16
    assert linear.total == pytest.approx(sum(value["dur"] for value in of(trace, "run", "linear")), rel=1e-3)
    assert linear.mean == pytest.approx(linear.total / 16)
    assert linear.longest <= linear.total
    assert linear.host > 0


# The table


def test_the_table_is_sorted_and_cut() -> None:
    with profiler.profile() as prof:
        x = flow.ones(4)
        for _ in range(3):
            x = x.exp().log()
        x.numpy()
    averages = prof.key_averages()
    table = averages.table(sort_by="calls", row_limit=2)
    lines = table.splitlines()
    assert re.split(r"  +", lines[0]) == ["name", "stream", "calls", "total", "mean", "longest", "host", "share"]
    assert {line.split()[0] for line in lines[2:4]} == {"exp", "log"}
    assert f"and {len(averages) - 2} more" in lines
    assert averages.table(sort_by="count", row_limit=2) == table
    assert "more" not in averages.table(row_limit=-1)
    assert averages[0].total == max(average.total for average in averages)
    names = [line.split()[0] for line in averages.table(sort_by="name").splitlines()[2:-2]]
    assert names == sorted(names)
    with pytest.raises(ValueError, match="cannot sort by 'color'; known are name, stream"):
        averages.table(sort_by="color")
    with pytest.raises(ValueError, match="row_limit must be"):
        averages.table(row_limit=-2)


def test_host_time_is_the_time_between_activities() -> None:
    """On thread 7, in nanoseconds: issue, 2000 of Python, issue; a run inside a wait; 500 of Python, issue."""
    events = [
        (Issue, 0, 1, 1000, 1100, 0, 7, "a", None, 0),
        (Issue, 0, 2, 3100, 3200, 0, 7, "b", None, 0),
        (Wait, 0, 2, 1, 0, 7, "b", None, 4000, 9000, True),
        (Run, 0, 1, 0, 5000, 8000, 7, "s", None, "a", None, 0, None, None, 0, "ran", None, -1, 1),
        (Run, 0, 2, 1, 8000, 9999, 8, "s", None, "b", None, 0, None, None, 0, "ran", None, -1, 1),
        (Issue, 0, 3, 9500, 9600, 0, 7, "a", None, 0),
    ]
    trace = Trace(0, 10_000, 0, 0.0, ["m"], ["thread"], [], events, 0)
    assert host_times(trace) == {1: 0.1, 2: 2.1, 3: 0.6}


def test_an_empty_recording(tmp_path: Path) -> None:
    with profiler.profile() as prof:
        pass
    assert prof.events() == []
    assert len(prof.key_averages()) == 0
    assert "streams 0.0 us" in prof.key_averages().table()
    exported(prof, tmp_path)


# Beginning and ending


def test_one_profiler_may_record_twice(tmp_path: Path) -> None:
    prof = profiler.profile()
    with prof:
        flow.ones(2).exp().numpy()
    first = exported(prof, tmp_path)
    with prof:
        flow.ones(2).log().numpy()
    second = exported(prof, tmp_path)
    assert (len(of(first, "run", "exp")), len(of(first, "run", "log"))) == (1, 0)
    assert (len(of(second, "run", "exp")), len(of(second, "run", "log"))) == (0, 1)


def test_nested_profilers_are_refused(tmp_path: Path) -> None:
    waiting = profiler.profile(schedule=profiler.schedule(wait=5, warmup=0, active=1))
    with profiler.profile() as prof:
        for inner in (profiler.profile(), waiting):
            with pytest.raises(RuntimeError, match="is being recorded already"):
                inner.start()
        other = VirtualMachine("other")
        with pytest.raises(RuntimeError, match="'default' is being recorded already"):
            profiler.profile(machines=[other, current_machine()]).start()
        assert other.tracer is None
        flow.ones(2).exp().numpy()
    assert len(of(exported(prof, tmp_path), "run", "exp")) == 1
    # One whose schedule waits keeps its machine as well.
    with waiting, pytest.raises(RuntimeError, match="is being recorded already"):
        profiler.profile().start()
    with profiler.profile():
        pass


def test_leaving_by_an_exception_stops_and_keeps_the_trace(tmp_path: Path) -> None:
    prof = profiler.profile()

    def leave() -> None:
        with prof:
            flow.ones(2).exp().numpy()
            raise KeyError("left")

    with pytest.raises(KeyError, match="left"):
        leave()
    assert current_machine().tracer is None
    assert len(of(exported(prof, tmp_path), "run", "exp")) == 1


def test_an_exception_in_the_callback_leaves_the_machine_free() -> None:
    def refuse(prof: profiler.profile) -> None:
        raise KeyError("full disk")

    with pytest.raises(KeyError), profiler.profile(on_trace_ready=refuse):
        flow.ones(2).exp().numpy()
    assert current_machine().tracer is None
    with profiler.profile():
        pass


def test_an_exception_in_the_callback_at_a_step_is_the_one_that_the_program_sees() -> None:
    def refuse(prof: profiler.profile) -> None:
        raise KeyError("full disk")

    def loop() -> None:
        plan = profiler.schedule(wait=0, warmup=0, active=1)
        with profiler.profile(schedule=plan, on_trace_ready=refuse) as prof:
            flow.ones(2).exp().numpy()
            prof.step()

    with pytest.raises(KeyError, match="full disk"):
        loop()
    assert current_machine().tracer is None
    with profiler.profile():
        pass


def test_an_exception_in_the_callback_at_a_step_ends_no_later_step() -> None:
    seen: list[list[str]] = []

    def save(prof: profiler.profile) -> None:
        seen.append([event.name for event in prof.events() if event.kind == "step"])
        if len(seen) == 2:
            raise KeyError("full disk")

    with profiler.profile(schedule=profiler.schedule(wait=0, warmup=0, active=1), on_trace_ready=save) as prof:
        for number in range(3):
            with pytest.raises(KeyError) if number == 1 else contextlib.nullcontext():
                prof.step()
    assert seen == [[f"step {number}"] for number in range(4)]


def test_a_schedule_that_returns_something_else_leaves_the_machine_free() -> None:
    with pytest.raises(TypeError, match=r"schedule\(0\) must return a ProfilerAction, not 'record'"):
        profiler.profile(schedule=lambda step: "record").start()  # type: ignore[arg-type,return-value]
    with profiler.profile():
        pass


def test_leaving_waits_in_plain_code(tmp_path: Path) -> None:
    with profiler.profile() as prof:
        flow.ones(2).exp()
    assert len(of(exported(prof, tmp_path), "run", "exp")) == 1


async def test_leaving_waits_on_a_loop(tmp_path: Path) -> None:
    async with profiler.profile() as prof:
        flow.ones(2).exp()
    assert len(of(exported(prof, tmp_path), "run", "exp")) == 1


def test_out_of_turn() -> None:
    prof = profiler.profile()
    with pytest.raises(RuntimeError, match="step: the profiler has not been started"):
        prof.step()
    with pytest.raises(RuntimeError, match="has not been started"):
        prof.stop()
    with pytest.raises(RuntimeError, match="nothing was recorded yet"):
        prof.export_chrome_trace("nowhere.json")
    prof.start()
    with pytest.raises(RuntimeError, match="has already been started"):
        prof.start()
    prof.stop()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"machines": "default"}, TypeError, "machines must be a list of virtual machines, not 'default'"),
        ({"machines": []}, ValueError, "machines must have at least one element"),
        ({"max_events": 0}, ValueError, "max_events must be at least 1, not 0"),
        ({"max_events": 2.5}, TypeError, "max_events must be an integer, not 2.5"),
        ({"schedule": 3}, TypeError, "schedule must be callable, not 3"),
        ({"on_trace_ready": "path"}, TypeError, "on_trace_ready must be callable, not 'path'"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        profiler.profile(**arguments)


# Costs


def test_no_more_than_max_events_are_kept(tmp_path: Path) -> None:
    with profiler.profile(max_events=10) as prof:
        x = flow.ones(2)
        for _ in range(20):
            x = x.exp()
        x.numpy()
    trace = exported(prof, tmp_path)
    assert trace["otherData"]["recorded events"] == 10
    assert trace["otherData"]["dropped events"] == prof.dropped_events >= 30
    (mark,) = [value for value in trace["traceEvents"] if value["ph"] == "i"]
    assert mark["name"] == f"{prof.dropped_events} events were dropped: raise max_events"


@pytest.mark.usefixtures("collected")
def test_a_recording_keeps_nothing_alive() -> None:
    with profiler.profile() as prof:
        x = flow.ones(4)
        storages = [weak_storage(x)]
        for _ in range(5):
            x = x.exp()
            storages.append(weak_storage(x))
        x.numpy()
        del x
        current_machine().drain()
        # Operands hang on an instruction until it has run, and in no cycle.
        assert [storage() for storage in storages] == [None] * len(storages)
    assert len([event for event in prof.events() if event.name == "exp"]) >= 10


async def test_a_recording_keeps_no_task_alive() -> None:
    async def work() -> flow.Tensor:
        return await flow.ones(4).exp()

    async with VirtualMachine(), profiler.profile():
        task = asyncio.create_task(work())
        await task
        gone = weakref.ref(task)
        del task
        # The loop itself holds it until the callback that woke this task has returned.
        await asyncio.sleep(0)
        gc.collect()
        assert gone() is None


@pytest.mark.slow
def test_a_trace_processor_reads_it_without_complaint(tmp_path: Path) -> None:
    processor = pytest.importorskip("perfetto.trace_processor", reason="the package perfetto is not installed")
    program = shutil.which("trace_processor_shell") or shutil.which("trace_processor")
    if program is None:
        pytest.skip("perfetto's trace_processor_shell is not on the PATH")
    with profiler.profile() as prof:
        for _ in range(10):
            with flow.scope(name="request"):
                (flow.ones(4) + 1).sum().item()
    trace = exported(prof, tmp_path)
    config = processor.TraceProcessorConfig(bin_path=program)
    with processor.TraceProcessor(trace=str(tmp_path / "trace.json"), config=config) as reader:
        slices = [value for value in trace["traceEvents"] if value["ph"] in "Xb"]
        assert next(iter(reader.query("select count(*) as n from slice"))).n == len(slices)
        steps = sum(len(chain) - 1 for chain in arrows(trace))
        assert next(iter(reader.query("select count(*) as n from flow"))).n == steps
        bad = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
        assert [(value.name, value.value) for value in reader.query(bad)] == []


DIGITS = Path(__file__).resolve().parents[1] / "examples" / "digits.py"


@pytest.mark.slow
@pytest.mark.host
async def test_the_training_of_the_digits(tmp_path: Path) -> None:
    """The trace of a real program is as it should be, and every step's loss can be followed to its await."""
    for needed in ("sklearn", "matplotlib", "tqdm", "safetensors"):
        pytest.importorskip(needed, reason=f"{needed} comes with the examples extra")
    spec = importlib.util.spec_from_file_location("digits_example", DIGITS)
    assert spec is not None
    assert spec.loader is not None
    example: Any = importlib.util.module_from_spec(spec)
    sys.modules["digits_example"] = example  # its dataclasses look themselves up there
    try:
        spec.loader.exec_module(example)
        training, _ = example.load(0)
        model = example.build()
        step = partial(example.train_step, model, example.optimizer_of(model))
        async with profiler.profile() as prof:
            losses = await example.train(step, training, 23, "training")
    finally:
        del sys.modules["digits_example"]
    trace = exported(prof, tmp_path)
    check(trace)
    assert len(of(trace, "run", "Adam.step")) == len(losses)
    assert len([chain for chain in chains(trace) if chain == ["issue", "run", "await"]]) >= len(losses)
