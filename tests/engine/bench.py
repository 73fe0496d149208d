"""An engine on a bench: events go in and decisions come out by the names of the instructions."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import vmflow.vm
from vmflow.context import Mode
from vmflow.instructions import Dependence, Instruction, InstructionPolicy
from vmflow.instructions.fuse import FuseInstructionPolicy
from vmflow.instructions.instruction import LAUNCHED, STATE_NAMES, members_of
from vmflow.instructions.scope import Scope
from vmflow.streams import Stream, StreamPolicy
from vmflow.vm import VirtualMachineEngine


class InOrder(StreamPolicy):
    """A stream that the test completes by hand."""

    kind = "bench"

    def __init__(self, sequential: bool = False, depth: int = 1 << 62) -> None:
        self.sequential = sequential
        self.depth = depth


class Step(InstructionPolicy):
    """Orders as told and runs nothing."""

    __slots__ = ("barrier", "follows", "fusable", "name", "prepares", "preschedulable")

    def __init__(
        self,
        name: str,
        barrier: bool = False,
        preschedulable: bool = True,
        follows: Stream | None = None,
        fusable: bool = False,
        prepares: bool = False,
    ) -> None:
        self.name = name
        self.prepares = prepares
        self.fusable = fusable
        self.barrier = barrier
        self.preschedulable = preschedulable
        self.follows = follows

    def fused(self, members: tuple[Instruction, ...], behind: Iterable[Instruction]) -> FuseInstructionPolicy:
        return FuseInstructionPolicy(members)


class Bench:
    """An engine whose instructions, streams and storages have names.

    Storages are single letters: ``reads="xy"`` reads two.  Each name of an instruction is used once.  Fused
    instructions are named after their members, as in ``"one+two"``.
    """

    def __init__(self, engine: Any = None) -> None:
        self.engine: Any = VirtualMachineEngine() if engine is None else engine
        self.instructions: dict[str, Instruction] = {}
        self.storages: dict[str, Dependence] = {}
        self.streams: dict[str, Stream] = {}

    def stream(self, name: str, sequential: bool = False, depth: int = 1 << 62) -> Stream:
        if name not in self.streams:
            self.streams[name] = Stream(name, None, InOrder(sequential, depth))
        return self.streams[name]

    def storage(self, name: str) -> Dependence:
        return self.storages.setdefault(name, Dependence())

    # Events

    def issue(
        self,
        name: str,
        on: str = "a",
        *,
        reads: str = "",
        writes: str = "",
        barrier: bool = False,
        preschedulable: bool = True,
        follows: str | None = None,
        priority: int = 0,
        cost: int = 0,
        fusable: bool = False,
        prepares: bool = False,
    ) -> Instruction:
        assert name not in self.instructions
        instruction = self.instructions[name] = Instruction(
            self.stream(on),
            Step(name, barrier, preschedulable, None if follows is None else self.stream(follows), fusable, prepares),
            tuple([self.storage(read) for read in reads]),
            tuple([self.storage(write) for write in writes]),
            cost,
            mode=Mode(scope=Scope(priority=priority)) if priority else None,
        )
        self.engine.receive(instruction)
        return instruction

    def barrier(self, name: str) -> Instruction:
        return self.issue(name, "control", barrier=True, preschedulable=False)

    def finish(self, *names: str) -> None:
        for name in names:
            self.engine.completed(self.instructions[name])

    def fail(self, name: str, error: BaseException) -> None:
        self.engine.failed(self.instructions[name], error)

    def abandon(self, *unrun: str) -> list[str]:
        """Abandon; the names of those that were told to fail, which are those that were forgotten."""
        failed: list[str] = []
        forgotten = self.engine.abandon(
            [self.instructions[name] for name in unrun], lambda instruction: failed.append(instruction.name)
        )
        self.engine.check_invariants()
        assert failed == [value.name for value in forgotten]
        return failed

    # Decisions

    def turn(self) -> list[str]:
        """The names of the instructions that one turn launches, in order."""
        launched: list[Instruction] = self.engine.schedule()
        self.engine.check_invariants()
        for instruction in launched:
            if instruction.members is not None:
                self.instructions[_name(instruction)] = instruction
        return [_name(value) for value in launched]

    def erased(self) -> list[str]:
        """The names of the instructions that the last turn erased."""
        return [value.name for value in self.engine.erased]

    def state(self, name: str) -> str:
        return STATE_NAMES[self.instructions[name].state]

    def lively(self) -> list[str]:
        return [_name(value) for value in self.engine.lively]

    def writer(self, storage: str) -> str | None:
        writer = self.storage(storage).writer
        return None if writer is None else _name(writer)

    def readers(self, storage: str) -> list[str]:
        return [_name(reader) for reader in self.storage(storage).readers or {}]

    def drain(self) -> None:
        """Finish everything, the youngest first, and see that nothing is left."""
        while True:
            running = [value for value in self.engine.lively if value.state == LAUNCHED]
            for instruction in reversed(running):
                self.engine.completed(instruction)
            if not (self.turn() or running or self.engine.has_work()):
                break
        assert self.lively() == []
        assert self.engine.idle()
        assert not self.engine.active_streams


def _name(instruction: Instruction) -> str:
    return "+".join(value.name for value in members_of([instruction]))


def engine_source() -> str:
    """The text of the engine's module."""
    return Path(vmflow.vm.__file__).with_name("engine.py").read_text()


def copied_engine(*, old: str = "", new: str = "", **arguments: Any) -> Any:
    """An engine made from a copy of the engine's source in which `old` reads `new`.

    A copy, because the rules are to be broken in one place without breaking them for anybody else, and because a
    compiled class cannot be changed.
    """
    source = engine_source()
    if old:
        assert source.count(old) == 1, f"the engine's source has {source.count(old)} times, not once:\n{old}"
        source = source.replace(old, new)
    module = ModuleType("vmflow.vm.copied_engine")
    module.__package__ = "vmflow.vm"
    exec(compile(source, "engine.py with one change", "exec"), module.__dict__)
    return module.__dict__["VirtualMachineEngine"](**arguments)
