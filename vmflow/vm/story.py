"""`Story`: a record of an engine's events and decisions, turn by turn, for people and for `replay`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from vmflow.instructions.instruction import Dependence, Instruction, members_of
from vmflow.instructions.scope import priority_of
from vmflow.streams import Stream

# A story as plain data that `json` can write and read back, one dict per `Turn`.
Script: TypeAlias = list[dict[str, Any]]

# An instruction with an unusual order: (serial, whether it is a barrier, the stream that it follows or None).  One that
# is no barrier and follows no stream is listed because it is not preschedulable.
Fence: TypeAlias = tuple[int, bool, Stream | None]


class Turn:
    """One turn of an engine: its reported, erased, absorbed (taken from pending) and launched instructions.

    Attributes:
        failures: (serial, message) of the finished instructions, and of members of fused ones, that have failed.
        fences: the absorbed instructions with an unusual order; see `Fence`.  They are noted here because an
            instruction drops its policy when it has run.
        fused: the fused instructions that stand for several absorbed ones, with the serial of the first.  Their members
            are listed one by one as absorbed, erased and abandoned.
        abandoned: the abandoned instructions, if this entry is not a turn but a call of `abandon`.
    """

    __slots__ = ("abandoned", "absorbed", "erased", "failures", "fences", "finished", "fused", "launched")

    def __init__(
        self,
        finished: list[Instruction],
        erased: list[Instruction],
        absorbed: list[Instruction],
        launched: list[Instruction],
        failures: list[tuple[int, str]],
        fences: list[Fence],
        fused: list[Instruction],
        abandoned: list[Instruction],
    ) -> None:
        self.finished = finished
        self.erased = erased
        self.absorbed = absorbed
        self.launched = launched
        self.failures = failures
        self.fences = fences
        self.fused = fused
        self.abandoned = abandoned


class Story:
    """The last turns of an engine.

    An instruction drops its policy when it has run, and then an entry keeps no array alive.
    """

    def __init__(self, length: int) -> None:
        self.turns: deque[Turn] = deque(maxlen=length)

    def remember(
        self,
        finished: list[Instruction],
        erased: list[Instruction],
        absorbed: list[Instruction],
        launched: list[Instruction],
        failures: list[tuple[int, str]],
        fences: list[Fence],
        fused: list[Instruction],
    ) -> None:
        """Add a turn with these lists of instructions, which are kept and not copied."""
        self.turns.append(Turn(finished, erased, absorbed, launched, failures, fences, fused, []))

    def remember_abandoned(self, abandoned: list[Instruction]) -> None:
        """Add an entry for instructions that were abandoned between two turns."""
        self.turns.append(Turn([], [], [], [], [], [], [], abandoned))

    def events(self, about: Instruction | int | str | None = None) -> list[tuple[str, int, str]]:
        """Return the events of the remembered turns as ``(event, serial, detail)``, the oldest turn first.

        An event is "failed", "erased", "absorbed", "launched" or "abandoned".

        Args:
            about: keep one instruction (itself or its serial), or the instructions of one name; None keeps all.
        """
        events = [event for turn in self.turns for event in _events(turn)]
        if about is None:
            return events
        if isinstance(about, Instruction):
            about = about.serial
        if isinstance(about, int):
            return [event for event in events if event[1] == about]
        named = {
            instruction.serial
            for turn in self.turns
            for instruction in _instructions(turn)
            if instruction.name == about
        }
        return [event for event in events if event[1] in named]

    def script(self) -> Script:
        """Return the remembered turns as plain data, from which `replay` repeats them on a new engine.

        `replay` needs all turns of the engine, so none may have been forgotten yet.
        """
        dependences: dict[Dependence, int] = {}
        streams: dict[Stream, str] = {}

        def numbers(accessed: tuple[Dependence, ...]) -> list[int]:
            return [dependences.setdefault(dependence, len(dependences)) for dependence in accessed]

        def name(stream: Stream) -> str:
            if stream not in streams:
                taken = stream.name in streams.values()
                streams[stream] = f"{stream.name}#{len(streams)}" if taken else stream.name
            return streams[stream]

        script: Script = []
        for turn in self.turns:
            fences = {serial: (barrier, follows) for serial, barrier, follows in turn.fences}
            fused = {member.serial: whole.serial for whole in turn.fused for member in whole.members or ()}
            # Here the first member, whose serial the whole has, also writes what the engine has added to the whole.
            added = {whole.serial: _added(whole) for whole in turn.fused}
            script.append(
                {
                    "failed": [serial for serial, _ in turn.failures],
                    "finished": [instruction.serial for instruction in turn.finished],
                    "erased": [instruction.serial for instruction in turn.erased],
                    "absorbed": [
                        {
                            "serial": instruction.serial,
                            "name": instruction.name,
                            "stream": name(instruction.stream),
                            "reads": numbers(instruction.reads),
                            "writes": numbers((*added.get(instruction.serial, ()), *instruction.writes)),
                            "cost": instruction.cost,
                            "depth": instruction.stream.policy.depth,
                            "priority": priority_of(instruction),
                            "fused_into": fused.get(instruction.serial),
                            **_order(fences.get(instruction.serial), name),
                        }
                        for instruction in turn.absorbed
                    ],
                    "launched": [instruction.serial for instruction in turn.launched],
                    "abandoned": [instruction.serial for instruction in turn.abandoned],
                }
            )
        return script

    def __str__(self) -> str:
        return "\n".join(f"{event:9} #{serial} {detail}".rstrip() for event, serial, detail in self.events())


def _added(whole: Instruction) -> list[Dependence]:
    """Return the dependences that a fused instruction writes and no member does: the order of its stream."""
    own = {dependence for member in whole.members or () for dependence in member.writes}
    return [dependence for dependence in whole.writes if dependence not in own]


def _order(fence: tuple[bool, Stream | None] | None, name: Callable[[Stream], str]) -> dict[str, Any]:
    barrier, follows = fence or (False, None)
    return {
        "barrier": barrier,
        "preschedulable": fence is None or follows is not None,
        "follows": None if follows is None else name(follows),
    }


def _instructions(turn: Turn) -> list[Instruction]:
    return turn.erased + turn.absorbed + members_of(turn.launched) + turn.abandoned


def _events(turn: Turn) -> Iterator[tuple[str, int, str]]:
    for serial, error in turn.failures:
        yield "failed", serial, error
    for event, instructions in (
        ("erased", turn.erased),
        ("absorbed", turn.absorbed),
        ("launched", members_of(turn.launched)),
        ("abandoned", turn.abandoned),
    ):
        for instruction in instructions:
            yield event, instruction.serial, f"{instruction.name} on {instruction.stream.name}"
