"""Queues of a stream: each instruction comes out once, in order."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given, strategies as st

from tests.engine.bench import Bench
from vmflow.instructions import Instruction
from vmflow.streams.queues import BySerial, Fifo
from vmflow.vm.lively import Lively

# The actions: to put one in, or to take one out, the first or any other.
DOINGS = st.lists(st.sampled_from(["in", "out", "any"]), max_size=40)


def instructions(count: int) -> list[Instruction]:
    bench = Bench()
    found = [bench.issue(str(number)) for number in range(count)]
    for serial, instruction in enumerate(found):
        instruction.serial = serial
    return found


@given(DOINGS)
def test_first_in_first_out(doings: list[str]) -> None:
    queue, expected = Fifo(), deque[Instruction]()
    new = iter(instructions(len(doings)))
    for doing in doings:
        if doing == "in":
            expected.append(next(new))
            queue.append(expected[-1])
        elif not expected:
            with pytest.raises(IndexError):
                queue.popleft()
        elif doing == "out":
            assert queue.popleft() is expected.popleft()
        else:
            one = expected[len(expected) // 2]
            expected.remove(one)
            queue.remove(one)
            assert one.behind is None
        assert list(queue) == list(expected)
        assert len(queue) == len(expected)
        assert queue.first is (expected[0] if expected else None)
        assert queue.last is (expected[-1] if expected else None)
    queue.clear()
    assert not list(queue)


@given(st.permutations(range(12)), DOINGS)
def test_the_lowest_serial_comes_out_first(order: list[int], doings: list[str]) -> None:
    known, queue = instructions(len(order)), BySerial()
    waiting: list[int] = []
    new = iter(order)
    for doing in doings:
        if doing == "in":
            serial = next(new, None)
            if serial is not None:
                waiting.append(serial)
                queue.push(known[serial])
        elif waiting:
            waiting.remove(min(waiting))
            out = queue.pop()
            assert out.behind is None
            assert out.serial not in waiting
            assert all([out.serial < value for value in waiting])
        assert sorted([value.serial for value in queue]) == sorted(waiting)
        assert len(queue) == len(waiting)
        assert queue.is_empty() == (not waiting)
    queue.clear()
    assert queue.is_empty()
    with pytest.raises(IndexError):
        queue.pop()


@given(DOINGS)
def test_any_instruction_may_leave_a_queue_at_any_time(doings: list[str]) -> None:
    lively, expected = Lively(), []
    new = iter(instructions(len(doings)))
    for doing in doings:
        if doing == "in":
            expected.append(next(new))
            lively.add(expected[-1])
        elif expected:
            one = expected.pop(0 if doing == "out" else len(expected) // 2)
            lively.remove(one)
            assert one.before is one.after is None
        assert list(lively) == expected
        assert len(lively) == lively.count == len(expected)
        assert lively.first is (expected[0] if expected else None)
        assert lively.last is (expected[-1] if expected else None)
