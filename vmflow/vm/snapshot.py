"""`Snapshot`: a virtual machine's instructions, streams and memory at one moment, as data with a repr for people."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import TYPE_CHECKING

import attrs

from vmflow.instructions import origin
from vmflow.instructions.instruction import LAUNCHED, STATE_NAMES, Instruction, members_of
from vmflow.instructions.scope import scope_of
from vmflow.markup import Edge, Node, drawing, line, scrolling, stacked, table

from .engine import ready_on
from .memory import format_bytes

if TYPE_CHECKING:
    from vmflow.devices import device as Device
    from vmflow.streams import BinAllocator

    from .virtual_machine import VirtualMachine


@attrs.frozen
class InstructionInfo:
    """One instruction in a `Snapshot`.

    Attributes:
        waits_for: the serials of the unfinished instructions that this one waits for directly; none for a barrier,
            which waits for all before it.
        scope: the instruction's scope, as text; None without one.
        line: the user's line that issued the instruction; None if it was not noted.
    """

    serial: int
    name: str
    state: str
    stream: str
    waits_for: tuple[int, ...]
    scope: str | None
    line: str | None

    def __str__(self) -> str:
        line = f", issued at {self.line}" if self.line is not None else ""
        scope = f" in {self.scope}" if self.scope is not None else ""
        waits = f" waits for {_numbers(self.waits_for)}" if self.waits_for else ""
        return f"#{self.serial} {self.name} {self.state}{waits} on {self.stream}{scope}{line}"


@attrs.frozen
class StreamInfo:
    """One stream in a `Snapshot`: how many instructions are ready, launched, posted to its worker or on its device.

    Instructions count as `running` from their launch until they are erased, fused ones as one.  For `full` see
    `vmflow.streams.Stream`.
    """

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
    """The memory of one of a machine's allocators, in bytes; `limit` and `used` are the device's, for all machines."""

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
    """The state of a virtual machine at one moment.

    Attributes:
        lively: the instructions seen by the engine and not erased, oldest first.
        pending: the number of issued instructions that the engine has not seen yet.
        waiters: the number of instructions that a thread or coroutine waits for, plus that of producers that wait
            because of back-pressure.
        launched: for each stream, the serials of its instructions that are launched and not erased, in launch order.
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
    launched: tuple[tuple[int, ...], ...]

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

    def to_svg(self) -> str:
        """An SVG image of the lively instructions: an arrow leads from each to those that wait for it, except barriers.

        Dashed arrows connect the launched instructions of a stream, in launch order.

        Example:
            >>> flow.vm.current_machine().snapshot().to_svg().startswith("<svg")
            True
        """
        return self._drawing(self.lively)

    def _drawing(self, instructions: tuple[InstructionInfo, ...]) -> str:
        """An SVG image of some of the lively instructions, oldest first."""
        drawn = {info.serial for info in instructions}
        nodes = [
            Node(
                str(info.serial),
                f"#{info.serial} {info.name}\n{info.state} on {info.stream}"
                + (f"\n{os.path.basename(info.line)}" if info.line is not None else ""),
            )
            for info in instructions
        ]
        edges = [
            Edge(str(serial), str(info.serial)) for info in instructions for serial in info.waits_for if serial in drawn
        ]
        stream_of = {info.serial: info.stream for info in instructions}
        for launched in self.launched:
            for earlier, later in pairwise([serial for serial in launched if serial in drawn]):
                edges.append(Edge(str(earlier), str(later), stream_of[later], dashed=True))
        return drawing(f"Lively instructions of {self.machine}", nodes, edges)

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
        shown = self.lively[:_SHOWN]
        for caption, infos in (
            ("Streams", self.streams),
            ("Memory, in bytes", self.memory),
            ("Lively instructions, oldest first", shown),
        ):
            if infos:
                rows = [[_cell(value) for value in attrs.astuple(info, recurse=False)] for info in infos]
                parts.append(table(rows, [field.name for field in attrs.fields(type(infos[0]))], caption))
        if len(self.lively) > _SHOWN:
            parts.append(line("", f"and {len(self.lively) - _SHOWN} more instructions"))
        if shown:
            parts.append(scrolling(self._drawing(shown)))
        return stacked(*parts)


_SHOWN = 20


def _numbers(serials: tuple[int, ...]) -> str:
    return ", ".join([f"#{serial}" for serial in serials])


def _cell(value: object) -> object:
    """Return a table's cell for a field of a part of a `Snapshot`: serials become text, and None becomes ""."""
    if isinstance(value, tuple):
        return _numbers(value)
    return "" if value is None else value


def take_snapshot(machine: VirtualMachine) -> Snapshot:
    """Take a `Snapshot` of a machine; it may be inconsistent during a turn."""
    engine = machine.engine
    return Snapshot(
        machine.name,
        machine.state,
        engine.total_inserted,
        engine.total_erased,
        len(engine.pending),
        machine.has_waiters(),
        _instructions(list(engine.lively)),
        tuple(
            [
                StreamInfo(
                    stream.name,
                    repr(stream.policy),
                    len(ready_on(stream)),
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
        tuple([tuple([member.serial for member in members_of(stream.running)]) for stream in machine.streams()]),
    )


def _instructions(lively: list[Instruction]) -> tuple[InstructionInfo, ...]:
    waits_for: dict[Instruction, list[int]] = {}
    for instruction in lively:
        # An instruction that stands for several ends with its last member, and its members run in order.
        members = members_of([instruction])
        for successor in instruction.successors():
            waits_for.setdefault(members_of([successor])[0], []).append(members[-1].serial)
        if instruction.state < LAUNCHED:
            for member, after in pairwise(members):
                waits_for.setdefault(after, []).append(member.serial)
    return tuple([_instruction(member, tuple(waits_for.get(member, ()))) for member in members_of(lively)])


def _instruction(instruction: Instruction, waits_for: tuple[int, ...]) -> InstructionInfo:
    scope = scope_of(instruction)
    return InstructionInfo(
        instruction.serial,
        instruction.name,
        STATE_NAMES[instruction.state],
        instruction.stream.name,
        waits_for,
        None if scope is None else str(scope),
        None if instruction.code is None else origin.describe(instruction.code, instruction.last),
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
