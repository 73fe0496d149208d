"""`Snapshot`: a machine's lists, streams and memory at one moment, as plain data with a repr for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from vmflow.instructions import origin
from vmflow.instructions.instruction import STATE_NAMES, Instruction, members_of
from vmflow.instructions.scope import scope_of
from vmflow.markup import line, stacked, table

from .memory import format_bytes

if TYPE_CHECKING:
    from vmflow.devices import device as Device
    from vmflow.streams import BinAllocator

    from .virtual_machine import VirtualMachine


@attrs.frozen
class InstructionInfo:
    """One instruction.

    Attributes:
        waits: the number of its unsatisfied edges.
        line: the user's line that issued it.
    """

    serial: int
    name: str
    state: str
    stream: str
    waits: int
    scope: str | None
    line: str

    def __str__(self) -> str:
        scope = f" in {self.scope}" if self.scope is not None else ""
        waits = f" waits={self.waits}" if self.waits else ""
        return f"#{self.serial} {self.name} {self.state}{waits} on {self.stream}{scope}, issued at {self.line}"


@attrs.frozen
class StreamInfo:
    """One stream: the number of its instructions in each place, and the state of its worker, if it has one."""

    name: str
    policy: str
    ready: int
    running: int
    posted: int
    on_device: int
    full: bool
    worker: str | None

    def __str__(self) -> str:
        parts = [self.name, self.policy, f"ready={self.ready}", f"running={self.running}", f"posted={self.posted}"]
        parts += [f"on_device={self.on_device}"]
        parts += ["full"] if self.full else []
        parts += [self.worker] if self.worker is not None else []
        return " ".join(parts)


@attrs.frozen
class MemoryInfo:
    """One device's memory as this machine uses it, in bytes; `limit` and `used` are the whole process's."""

    device: str
    allocated: int
    reserved: int
    peak: int
    used: int
    limit: int | None

    def __str__(self) -> str:
        limit = "no limit" if self.limit is None else f"limit {format_bytes(self.limit)}"
        return (
            f"{self.device}: {format_bytes(self.allocated)} in tensors, {format_bytes(self.reserved)} reserved, "
            f"peak {format_bytes(self.peak)}; {limit}"
        )


@attrs.frozen(repr=False)
class Snapshot:
    """A machine at one moment.

    Attributes:
        lively: instructions seen by the engine and not erased, oldest first.
        pending: the number of instructions not yet seen.
        waiters: the number of instructions that somebody waits for, and of producers that wait.
    """

    machine: str
    state: str
    inserted: int
    erased: int
    pending: int
    waiters: int
    lively: tuple[InstructionInfo, ...]
    streams: tuple[StreamInfo, ...]
    memory: tuple[MemoryInfo, ...]

    def __repr__(self) -> str:
        lines = [
            f"<Snapshot of {self.machine!r}, {self.state}: {len(self.lively)} lively, {self.pending} pending, "
            f"{self.inserted} inserted, {self.erased} erased, {self.waiters} waiting"
        ]
        lines += ["  streams:"] + [f"    {stream}" for stream in self.streams]
        if self.memory:
            lines += ["  memory:"] + [f"    {memory}" for memory in self.memory]
        if self.lively:
            lines += ["  lively:"] + [f"    {instruction}" for instruction in self.lively[:_SHOWN]]
        if len(self.lively) > _SHOWN:
            lines.append(f"    and {len(self.lively) - _SHOWN} more")
        return "\n".join(lines) + ">"

    def _repr_html_(self) -> str:
        counts = {
            "pending": self.pending,
            "inserted": self.inserted,
            "erased": self.erased,
            "waiting": self.waiters,
        }
        parts = [
            line(
                f"Snapshot of {self.machine}",
                self.state,
                f"{len(self.lively)} lively",
                *[f"{count} {name}" for name, count in counts.items()],
            )
        ]
        for caption, infos in (
            ("Streams", self.streams),
            ("Memory, in bytes", self.memory),
            ("Lively instructions, oldest first", self.lively[:_SHOWN]),
        ):
            if infos:
                rows = [["" if value is None else value for value in attrs.astuple(info)] for info in infos]
                parts.append(table(rows, [field.name for field in attrs.fields(type(infos[0]))], caption))
        if len(self.lively) > _SHOWN:
            parts.append(line("", f"and {len(self.lively) - _SHOWN} more instructions"))
        return stacked(*parts)


_SHOWN = 20


def take_snapshot(machine: VirtualMachine) -> Snapshot:
    """A snapshot; from another thread than the driving one it may catch the machine between two steps."""
    engine = machine.engine
    return Snapshot(
        machine.name,
        machine.state,
        engine.total_inserted,
        engine.total_erased,
        len(engine.pending),
        machine.has_waiters(),
        tuple([_instruction(instruction) for instruction in members_of(list(engine.lively))]),
        tuple(
            [
                StreamInfo(
                    stream.name,
                    repr(stream.policy),
                    len(stream.ready),
                    len(stream.running),
                    stream.posted,
                    len(stream.in_flight),
                    stream.full,
                    None if stream.worker is None else repr(stream.worker),
                )
                for stream in machine.streams()
            ]
        ),
        tuple([_memory(_name(*key), allocator) for key, allocator in list(machine.memory.allocators.items())]),
    )


def _instruction(instruction: Instruction) -> InstructionInfo:
    scope = scope_of(instruction)
    return InstructionInfo(
        instruction.serial,
        instruction.name,
        STATE_NAMES[instruction.state],
        instruction.stream.name,
        instruction.waits,
        None if scope is None else str(scope),
        origin.describe(instruction.code, instruction.last),
    )


def _name(device: Device, kind: str) -> str:
    return str(device) if kind == "compute" else f"{device} {kind}"


def _memory(device: str, allocator: BinAllocator) -> MemoryInfo:
    statistics = allocator.statistics()
    return MemoryInfo(
        device,
        statistics["allocated_bytes.all.current"],
        statistics["reserved_bytes.all.current"],
        statistics["allocated_bytes.all.peak"],
        allocator.memory.used,
        allocator.memory.limit,
    )
