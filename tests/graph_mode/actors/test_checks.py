"""Plans are refused with messages that name the tasks at fault."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from vmflow.graph_mode.actors import RegisterDescriptor, TaskDescriptor, TaskId, ThreadId, check

from .bench import Sketch

SOURCE, READER = [TaskId(ThreadId(), number).encode() for number in (0, 1)]


def _plan() -> tuple[list[TaskDescriptor], list[RegisterDescriptor]]:
    return Sketch().source(writes="x").task("reader", reads="x").plan()


def _with_task(number: int, **changes: Any) -> tuple[list[TaskDescriptor], list[RegisterDescriptor]]:
    tasks, registers = _plan()
    tasks[number] = attrs.evolve(tasks[number], **changes)
    return tasks, registers


def _with_register(**changes: Any) -> tuple[list[TaskDescriptor], list[RegisterDescriptor]]:
    tasks, registers = _plan()
    return tasks, [attrs.evolve(registers[0], **changes)]


def _doubled(tasks: bool) -> tuple[list[TaskDescriptor], list[RegisterDescriptor]]:
    plan = _plan()
    return (plan[0] * 2, plan[1]) if tasks else (plan[0], plan[1] * 2)


def test_a_plan_that_can_run_passes() -> None:
    check(*_plan())
    check([], [])


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (_with_register(count=0), "register 0 has 0 slots; it must have at least 1"),
        (_with_register(id=-1), "a register has the id -1"),
        (_with_task(1, kind="acc", count=0), r"reader \(.*\) has the count 0; it must be at least 1"),
        (_with_task(1, kind="sort"), "of the kind 'sort', but there are only"),
        (_with_task(1, id=1 << 64), "the task id must be"),
        (_doubled(tasks=True), f"tasks share the id {SOURCE}"),
        (_doubled(tasks=False), "registers share the id 0"),
        (_with_register(producer=7), "register 0 names task 7, which does not exist"),
        (_with_register(producer=READER), "register 0 is to be produced by reader .* which does not list it"),
        (_with_register(consumers=()), "reader .* consumes register 0, which does not list it"),
        (_with_register(consumers=(READER, READER)), "register 0 names the consumer reader .* twice"),
        (_with_register(consumers=(SOURCE, READER)), "to be consumed by source .* which does not list it"),
        (_with_register(control=True), "register 0, which is control, under 'x'"),
        (_with_task(1, consumed={"in_control": (0,)}), "register 0, which is data, under 'in_control'"),
        (_with_task(1, consumed={"x": (0,), "y": (5,)}), "reader .* names register 5, which does not exist"),
        (_with_task(1, consumed={"x": (0,), "y": (0,)}), "reader .* names register 0 twice"),
        (_with_task(0, consumed={"x": (0,)}), "source .* names register 0 twice"),
        (_with_task(0, buffer=""), "source .* needs the name of a buffer"),
        (_with_task(1, buffer="b"), "reader .* cannot use the buffer 'b'"),
        (_with_task(1, kind="callback_notify", buffer="source"), "take from the same buffer 'source'"),
        (_with_task(1, count=2), "reader .* has the count 2, but its kind takes none"),
        (_with_task(1, kind="repeat", count=2), "reader .* one data input and one data output, but has 1 and 0"),
        (Sketch().task("free", writes="x").plan(), "free .* consumes nothing, so that it would never stop"),
        (
            Sketch().source(writes="x").task("keep", "identity", reads="x", writes="y*2", count=3).plan(),
            "keep .* is to hold 3, but its register 1 has 2 slots",
        ),
        (
            Sketch().source(writes="x").task("s", "wait_and_send_ids", reads="x").plan(),
            "s .* is a source and cannot consume",
        ),
        (
            Sketch().source(writes="x").task("s", "callback_notify", reads="x", writes="y").plan(),
            "s .* is a sink and cannot produce",
        ),
    ],
)
def test_contradictory_plans_are_refused(plan: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(*plan)


@pytest.mark.parametrize(
    ("sketch", "message"),
    [
        (
            Sketch().source(writes="x").task("over", reads="x", writes="y@x").task("other", reads="x"),
            "register 1 of over .* cannot lie in register 0, which has other readers: other",
        ),
        (
            Sketch().source(writes="x").task("over", reads="x", writes="y@x z@x"),
            "another output of the task lies there",
        ),
        (
            Sketch().source(writes="x").task("sum", "acc", reads="x", writes="y@x", count=2),
            "tasks of this kind need memory of their own",
        ),
        (
            Sketch().source(writes="!x").task("over", reads="!x", writes="y@!x"),
            "control registers have no memory",
        ),
        (
            Sketch()
            .source(writes="x")
            .task("again", "repeat", reads="x", writes="y", count=2)
            .task("over", reads="y", writes="z@y"),
            "handed out several times over",
        ),
        (
            Sketch().source(writes="x").task("one", reads="x", writes="y").task("two", reads="y", writes="z@x"),
            "cannot lie in register 0, which the task does not consume",
        ),
    ],
)
def test_memory_that_is_not_the_tasks_alone_is_refused(sketch: Sketch, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(*sketch.plan())


def test_in_place_registers_have_equally_many_slots() -> None:
    sketch = Sketch().source(writes="x*2").task("over", reads="x", writes="y@x")
    check(*sketch.plan())
    sketch.counts["y"] = 1
    with pytest.raises(ValueError, match="they have 1 and 2 slots"):
        check(*sketch.plan())


def test_a_repeat_may_lie_where_others_read() -> None:
    sketch = Sketch().source(writes="x").task("again", "repeat", reads="x", writes="y@x", count=2)
    check(*sketch.task("other", reads="x").plan())


def test_rates_must_match() -> None:
    sketch = Sketch().source(writes="x").task("sum", "acc", reads="x", writes="y", count=2)
    with pytest.raises(ValueError, match=r"(?s)sum .* and join .* rates that do not match|join .* do not match"):
        check(*sketch.task("join", reads="x y").plan())


def test_sinks_act_once_for_each_launch() -> None:
    sketch = Sketch().source(writes="x").task("sum", "acc", reads="x", writes="y", count=2)
    with pytest.raises(ValueError, match=r"sink .*do not match|sink .* acts 1/2 times"):
        check(*sketch.sink(reads="y").plan())


def _accumulating(kept: int) -> Sketch:
    """Micro-batches are summed, and each is then joined with the sum: so many of them must be kept."""
    sketch = Sketch().source(writes="x").task("slice", "unpack", reads="x", writes="part", count=4)
    sketch.task("keep", "identity", reads="part", writes=f"kept*{kept}", count=kept, on=1)
    sketch.task("sum", "acc", reads="part", writes="total", count=4, on=2)
    sketch.task("again", "repeat", reads="total", writes="totals@total", count=4, on=2)
    return sketch.task("join", reads="kept totals", on=3)


def test_a_cycle_needs_enough_slots() -> None:
    # One more waits in the slot of `part` itself, and the sum may read that while it waits.
    check(*_accumulating(4).plan())
    check(*_accumulating(3).plan())
    with pytest.raises(ValueError, match="wait for each other in a circle") as caught:
        check(*_accumulating(2).plan())
    circle = str(caught.value).splitlines()[0]
    for name in ("slice", "keep", "join", "again", "sum"):
        assert f"{name} (rank 0" in circle
    assert "source" not in circle
    assert "keep (rank 0 cpu:0 stream 1 task 2) has acted 2 times" in str(caught.value)


def test_a_circle_of_data_has_no_beginning() -> None:
    sketch = Sketch().source(writes="x").task("one", reads="x back", writes="there*5").task("two", reads="there")
    sketch.tasks[-1]["writes"].append(sketch._write("two", "back*5"))
    with pytest.raises(ValueError, match=r"a beginning: (one .* -> two .* -> one|two .* -> one .* -> two)"):
        check(*sketch.plan())


def test_a_circle_without_a_source_is_refused() -> None:
    sketch = Sketch().task("one", reads="b", writes="a").task("two", reads="a", writes="b")
    with pytest.raises(ValueError, match="in a circle"):
        check(*sketch.plan())
