"""The 64 bits of a task's id say where the task runs: rank, device, stream, and index among the stream's tasks.

    rank 16 | device type 5 | device index 7 | stream index 15 | task index 21

The upper 43 bits are the id of the thread that serves the stream, so that one shift of the receiver's id gives the
thread that a message goes to.
"""

from __future__ import annotations

from typing import Final

import attrs

RANK_BITS: Final = 16
DEVICE_TYPE_BITS: Final = 5
DEVICE_INDEX_BITS: Final = 7
STREAM_INDEX_BITS: Final = 15
TASK_INDEX_BITS: Final = 21
THREAD_BITS: Final = RANK_BITS + DEVICE_TYPE_BITS + DEVICE_INDEX_BITS + STREAM_INDEX_BITS

# A device type's number in ids is its index in this tuple.  Saved plans contain the numbers: append new types only.
DEVICE_TYPES: Final = ("cpu", "cuda", "sim", "meta")


@attrs.frozen
class ThreadId:
    """The parts of an actor thread's 43-bit id; a thread serves one stream of a device of a rank.

    Attributes:
        rank: the number of the rank.
        device_type: the type's index in `DEVICE_TYPES`.
        device_index: the device's number among the devices of its type.
        stream_index: the stream's number, which differs from those of the device's other streams.
    """

    rank: int = 0
    device_type: int = 0
    device_index: int = 0
    stream_index: int = 0

    def encode(self) -> int:
        """Return the parts packed into the thread's id, a number of 43 bits.

        Raises:
            ValueError: if a part does not fit into its bits.
        """
        _check("rank", self.rank, RANK_BITS)
        _check("device type", self.device_type, DEVICE_TYPE_BITS)
        _check("device index", self.device_index, DEVICE_INDEX_BITS)
        _check("stream index", self.stream_index, STREAM_INDEX_BITS)
        number = (self.rank << DEVICE_TYPE_BITS) | self.device_type
        number = (number << DEVICE_INDEX_BITS) | self.device_index
        return (number << STREAM_INDEX_BITS) | self.stream_index

    def __str__(self) -> str:
        known = self.device_type < len(DEVICE_TYPES)
        device = DEVICE_TYPES[self.device_type] if known else f"device type {self.device_type}"
        return f"rank {self.rank} {device}:{self.device_index} stream {self.stream_index}"


@attrs.frozen
class TaskId:
    """The parts of a task's 64-bit id: the task's thread, and the task's index among the thread's tasks."""

    thread: ThreadId
    index: int = 0

    def encode(self) -> int:
        """Return the parts packed into the task's id, a number of 64 bits.

        Raises:
            ValueError: if a part does not fit into its bits.
        """
        return encode_task(self.thread.encode(), self.index)

    def __str__(self) -> str:
        return f"{self.thread} task {self.index}"


def encode_task(thread: int, index: int) -> int:
    """Return the 64-bit id of task number `index` of the thread with the id `thread`.

    Raises:
        ValueError: if a number does not fit into its bits.
    """
    _check("thread id", thread, THREAD_BITS)
    _check("task index", index, TASK_INDEX_BITS)
    return (thread << TASK_INDEX_BITS) | index


def decode_thread(thread: int) -> ThreadId:
    """Split a thread's id into rank, device type, device index and stream index.

    Raises:
        ValueError: if the id does not fit into 43 bits.
    """
    _check("thread id", thread, THREAD_BITS)
    device_index = thread >> STREAM_INDEX_BITS
    device_type = device_index >> DEVICE_INDEX_BITS
    return ThreadId(
        device_type >> DEVICE_TYPE_BITS,
        _low(device_type, DEVICE_TYPE_BITS),
        _low(device_index, DEVICE_INDEX_BITS),
        _low(thread, STREAM_INDEX_BITS),
    )


def decode_task(task: int) -> TaskId:
    """Split a task's id into its thread and its index among the thread's tasks.

    Raises:
        ValueError: if the id does not fit into 64 bits.
    """
    _check("task id", task, THREAD_BITS + TASK_INDEX_BITS)
    return TaskId(decode_thread(thread_of(task)), _low(task, TASK_INDEX_BITS))


def thread_of(task: int) -> int:
    """Return the id of the thread that serves the task with the id `task`: its upper 43 bits."""
    return task >> TASK_INDEX_BITS


def rank_of(task: int) -> int:
    """Return the rank that runs the task with the id `task`."""
    return task >> (THREAD_BITS + TASK_INDEX_BITS - RANK_BITS)


def _low(number: int, bits: int) -> int:
    return number & ((1 << bits) - 1)


def _check(part: str, number: int, bits: int) -> None:
    if not 0 <= number < 1 << bits:
        raise ValueError(f"the {part} must be from 0 to {(1 << bits) - 1} ({bits} bits), not {number}")
