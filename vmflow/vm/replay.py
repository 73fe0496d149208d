"""`replay`: repeats recorded turns of an engine on a new engine, to debug its decisions."""

from __future__ import annotations

from collections.abc import Iterable

from vmflow.context import Mode
from vmflow.errors import InternalError
from vmflow.instructions.fuse import FuseInstructionPolicy
from vmflow.instructions.instruction import LAUNCHED, Dependence, Instruction
from vmflow.instructions.policy import InstructionPolicy
from vmflow.instructions.scope import Scope
from vmflow.streams import Stream, StreamPolicy

from .engine import VirtualMachineEngine
from .story import Script


class Replayed(InstructionPolicy):
    """The policy of a replayed instruction: orders it as the original policy did, and runs nothing."""

    __slots__ = ("barrier", "follows", "fusable", "name", "preschedulable")

    def __init__(self, name: str, fusable: bool, barrier: bool, preschedulable: bool, follows: Stream | None) -> None:
        self.name = name
        self.fusable = fusable
        self.barrier = barrier
        self.preschedulable = preschedulable
        self.follows = follows

    def fused(self, members: tuple[Instruction, ...], behind: Iterable[Instruction]) -> FuseInstructionPolicy:
        return FuseInstructionPolicy(members)


class ReplayedStream(StreamPolicy):
    """The policy of a replayed stream.  It is not `sequential`: the script has program order among the writes."""

    def __init__(self, depth: int) -> None:
        self.depth = depth


def replay(script: Script) -> VirtualMachineEngine:
    """Pass the recorded events of a `Story.script` to a new engine, compare its decisions, and return the engine.

    Raises:
        ValueError: if the script does not begin with an engine's first turn.
        InternalError: if the new engine launches other instructions than the recorded one.
    """
    engine = VirtualMachineEngine(
        window=max([len(turn["absorbed"]) for turn in script], default=0) or 1, story=len(script)
    )
    streams: dict[str, Stream] = {}
    dependences: dict[int, Dependence] = {}
    played: dict[int, Instruction] = {}

    def known(serial: int) -> Instruction:
        if serial not in played:
            raise ValueError(
                f"the script mentions #{serial}, which it has not introduced: its first turns were forgotten; "
                "record it with a longer story"
            )
        return played[serial]

    def accessed(numbers: list[int]) -> tuple[Dependence, ...]:
        return tuple([dependences.setdefault(number, Dependence()) for number in numbers])

    for turn, entry in enumerate(script):
        if entry["abandoned"]:
            unrun = [instruction for instruction in map(known, entry["abandoned"]) if instruction.state == LAUNCHED]
            engine.abandon(unrun, lambda policy: None)
            continue
        for serial in entry["finished"]:
            if serial in entry["failed"]:
                engine.failed(known(serial), RuntimeError("as in the script"))
            else:
                engine.completed(known(serial))
        for absorbed in entry["absorbed"]:
            if absorbed["serial"] != len(played):
                raise ValueError(
                    f"the script introduces #{absorbed['serial']} where #{len(played)} is due: its first turns were "
                    "forgotten; record it with a longer story"
                )
            # If the followed stream has no instructions in the script, following it has no effect.
            follows = streams.get(absorbed["follows"])
            played[absorbed["serial"]] = Instruction(
                streams.setdefault(
                    absorbed["stream"], Stream(absorbed["stream"], None, ReplayedStream(absorbed["depth"]))
                ),
                Replayed(
                    absorbed["name"], absorbed["fusable"], absorbed["barrier"], absorbed["preschedulable"], follows
                ),
                accessed(absorbed["reads"]),
                accessed(absorbed["writes"]),
                absorbed["cost"],
                mode=Mode(scope=Scope(priority=absorbed["priority"])) if absorbed["priority"] else None,
            )
            engine.receive(played[absorbed["serial"]])
        launches = engine.schedule()
        # A fused instruction has the serial of its first member, which it replaces here.
        played.update({instruction.serial: instruction for instruction in launches})
        launched = [instruction.serial for instruction in launches]
        if launched != entry["launched"]:
            raise InternalError(
                f"turn {turn} of the replay launched {launched}, the script {entry['launched']}\n{engine.story}"
            )
    return engine
