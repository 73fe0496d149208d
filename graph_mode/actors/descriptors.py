"""The registers and tasks of a plan as plain data, and the kinds of tasks.

A *register* carries data from one task to others: it has `count` slots of memory; slots of a control register are
empty.  A *task* becomes one actor.
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

# The input name under which `TaskDescriptor.consumed` lists a task's control registers.
IN_CONTROL: Final = "in_control"


@attrs.frozen
class Kind:
    """How a kind of task differs from a plain task, whose act reads a slot of each input and writes a slot of each
    output.

    Attributes:
        buffered: each act takes an item from the task's buffer; the task ends when the buffer ends.
        source: the task consumes no registers.
        sink: the task produces no registers.
        gathers: `count` acts each read one slot of each input, and together write one of each output.
        spreads: `count` acts each write one slot of each output, and together read one of each input.
        repeats: each act hands out its output slot `count` times to each consumer, and gives its data input's slot back
            after all returns.
        in_place: an output may share the memory of an input.
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
        """Whether `TaskDescriptor.count` is a number of acts, or of hand-outs of a slot, for this kind of task."""
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
    """A register: slots in which one task hands data to others.

    Attributes:
        id: a number that no other register of the plan has.
        producer: the id of the task that writes the register.
        consumers: the ids of the tasks that read the register.
        count: the number of slots, by which the producer may be ahead of the consumers.
        in_place: the id of the register, read by the producer, whose memory this register shares; None for memory of
            its own.
        control: whether the register holds no data, and only orders the tasks.
    """

    id: int
    producer: int
    consumers: tuple[int, ...]
    count: int = 1
    in_place: int | None = None
    control: bool = False


@attrs.frozen
class TaskDescriptor:
    """A task, which becomes one actor.

    Attributes:
        id: the task's thread and index in 64 bits; see `identifiers`.
        kind: one of `KINDS`.
        produced: ids of registers by the names of outputs, in the order in which an act gets their slots.
        consumed: ids of registers by the names of inputs, in the order in which an act gets their slots; control
            registers are under "in_control".
        count: the number of acts in a group (Acc, Pack, Unpack), of hand-outs of a slot (Repeat) or of output slots
            (identity); else 1.
        buffer: the name of the buffer from which a source, a wait tick or a callback takes items; else "".
        name: for error messages.
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
        """Return the ids of all registers that the task produces, in the order of its outputs."""
        return [id_ for ids in self.produced.values() for id_ in ids]

    def all_consumed(self) -> list[int]:
        """Return the ids of all registers that the task consumes, in the order of its inputs, control included."""
        return [id_ for ids in self.consumed.values() for id_ in ids]
