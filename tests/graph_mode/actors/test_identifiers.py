"""Ids of tasks and threads, and back."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from vmflow.graph_mode.actors.identifiers import (
    TaskId,
    ThreadId,
    decode_task,
    decode_thread,
    encode_task,
    rank_of,
    thread_of,
)

THREADS = st.builds(
    ThreadId,
    rank=st.integers(0, 2**16 - 1),
    device_type=st.integers(0, 2**5 - 1),
    device_index=st.integers(0, 2**7 - 1),
    stream_index=st.integers(0, 2**15 - 1),
)


@given(THREADS, st.integers(0, 2**21 - 1))
def test_encoded_ids_can_be_decoded(thread: ThreadId, index: int) -> None:
    task = TaskId(thread, index)
    number = task.encode()
    assert 0 <= number < 2**64
    assert decode_task(number) == task
    assert thread_of(number) == thread.encode() < 2**43
    assert rank_of(number) == thread.rank
    assert decode_thread(thread_of(number)) == thread
    assert encode_task(thread.encode(), index) == number


def test_each_part_has_its_place() -> None:
    assert TaskId(ThreadId(0, 0, 0, 0), 1).encode() == 1
    assert TaskId(ThreadId(0, 0, 0, 1), 0).encode() == 1 << 21
    assert TaskId(ThreadId(0, 0, 1, 0), 0).encode() == 1 << 36
    assert TaskId(ThreadId(0, 1, 0, 0), 0).encode() == 1 << 43
    assert TaskId(ThreadId(1, 0, 0, 0), 0).encode() == 1 << 48


def test_they_are_readable() -> None:
    assert str(TaskId(ThreadId(3, 1, 2, 4), 5)) == "rank 3 cuda:2 stream 4 task 5"
    assert str(ThreadId(0, 9)) == "rank 0 device type 9:0 stream 0"


@pytest.mark.parametrize(
    ("thread", "message"),
    [
        (ThreadId(rank=1 << 16), r"the rank must be from 0 to 65535 \(16 bits\), not 65536"),
        (ThreadId(device_type=32), "the device type must be from 0 to 31"),
        (ThreadId(device_index=-1), "the device index must be from 0 to 127"),
        (ThreadId(stream_index=1 << 15), "the stream index must be from 0 to 32767"),
    ],
)
def test_what_does_not_fit_is_refused(thread: ThreadId, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        thread.encode()


def test_numbers_that_are_no_ids_are_refused() -> None:
    with pytest.raises(ValueError, match="the task index must be"):
        TaskId(ThreadId(), 1 << 21).encode()
    with pytest.raises(ValueError, match="the task id must be"):
        decode_task(1 << 64)
    with pytest.raises(ValueError, match="the thread id must be"):
        decode_thread(-1)
    with pytest.raises(ValueError, match="the thread id must be"):
        encode_task(1 << 43, 0)
