"""What a plan says of its registers and tasks, and what the kinds of tasks are.

A *register* is what one task hands to others: `count` slots of memory, or of nothing for control.  A *task* is what
becomes one actor.  Both are plain data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from .identifiers import decode_task

COMPUTE: Final = "compute"
TICK: Final = "tick"
IDENTITY: Final = "identity"
WAIT_AND_SEND_IDS: Final = "wait_and_send_ids"
CRITICAL_SECTION_WAIT_TICK: Final = "critical_section_wait_tick"
CALLBACK_NOTIFY: Final = "callback_notify"
ACC: Final = "acc"
REPEAT: Final = "repeat"
PACK: Final = "pack"
UNPACK: Final = "unpack"

# The name under which a task consumes control registers.
IN_CONTROL: Final = "in_control"


@attrs.frozen
class Kind:
    """How a kind of task differs from a plain one, which turns one of each input into one of each output.

    Attributes:
        buffered: each act takes an item from the task's buffer, and the end of the buffer is the end of the task.
        source: consumes nothing.
        sink: produces nothing.
        gathers: `count` acts read one of each input each, and together write one of each output.
        spreads: `count` acts write one of each output each, and together read one of each input.
        repeats: each act hands out what it has written `count` times over, and keeps its input until all are back.
        in_place: an output may be in the memory of an input.
    """

    buffered: bool = False
    source: bool = False
    sink: bool = False
    gathers: bool = False
    spreads: bool = False
    repeats: bool = False
    in_place: bool = False

    @property
    def counts(self) -> bool:
        """Whether `count` is a number of acts or copies; what repeats has one data input and one data output."""
        return self.gathers or self.spreads or self.repeats


KINDS: Final[dict[str, Kind]] = {
    COMPUTE: Kind(in_place=True),
    TICK: Kind(),
    IDENTITY: Kind(in_place=True),
    WAIT_AND_SEND_IDS: Kind(buffered=True, source=True),
    CRITICAL_SECTION_WAIT_TICK: Kind(buffered=True),
    CALLBACK_NOTIFY: Kind(buffered=True, sink=True),
    ACC: Kind(gathers=True),
    PACK: Kind(gathers=True),
    UNPACK: Kind(spreads=True),
    REPEAT: Kind(repeats=True, in_place=True),
}


@attrs.frozen
class RegisterDescriptor:
    """What one task hands to others.

    Attributes:
        id: of the register; any number that no other has.
        producer: the id of the task that writes it.
        consumers: the ids of those that read it.
        count: how many slots it has: how far its producer may be ahead.
        in_place: the id of the register, read by the producer, whose memory this one is in; None for its own memory.
        control: whether it only orders, and holds no data.
    """

    id: int
    producer: int
    consumers: tuple[int, ...]
    count: int = 1
    in_place: int | None = None
    control: bool = False


@attrs.frozen
class TaskDescriptor:
    """What becomes one actor.

    Attributes:
        id: encoded, see `identifiers`.
        kind: one of `KINDS`.
        produced: ids of registers by the names of outputs, in the order in which an act gets their slots.
        consumed: ids of registers by the names of inputs, likewise; control registers are under "in_control".
        count: how many are accumulated, repeated, packed or unpacked; of an identity, the slots of its output.
        buffer: the name of the buffer that a source, a wait tick or a callback takes from.
        name: for people.
    """

    id: int
    kind: str
    produced: Mapping[str, tuple[int, ...]] = attrs.field(factory=dict)
    consumed: Mapping[str, tuple[int, ...]] = attrs.field(factory=dict)
    count: int = 1
    buffer: str = ""
    name: str = ""

    def __str__(self) -> str:
        return f"{self.name or self.kind} ({decode_task(self.id)})"

    def all_produced(self) -> list[int]:
        """The ids of everything produced, in order."""
        return [id_ for ids in self.produced.values() for id_ in ids]

    def all_consumed(self) -> list[int]:
        """The ids of everything consumed, control included, in order."""
        return [id_ for ids in self.consumed.values() for id_ in ids]
