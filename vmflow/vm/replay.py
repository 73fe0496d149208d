"""`replay`: repeats recorded turns of an engine on a new engine, to debug its decisions."""

from __future__ import annotations

from collections.abc import Iterable

from vmflow.context import Mode
from vmflow.errors import InternalError
from vmflow.instructions.chain import Links
from vmflow.instructions.fuse import FuseInstructionPolicy
from vmflow.instructions.instruction import LAUNCHED, Dependence, Instruction
from vmflow.instructions.policy import InstructionPolicy
from vmflow.instructions.scope import Scope
from vmflow.streams import Stream, StreamPolicy

from .engine import VirtualMachineEngine
from .story import Script


class Replayed(InstructionPolicy):
    """The policy of a replayed instruction: orders the instruction as the original policy did, and runs nothing.

    Instructions are fused as the script says, since the script lacks the operands on which chains depend.  The engine
    takes each fused instruction for a chain, so that `fuse_below` does not limit its cost.

    Attributes:
        fused_into: the serial of the fused instruction that stood for this one; None if it was not fused.
    """

    __slots__ = ("barrier", "follows", "fusable", "fused_into", "name", "prepares", "preschedulable")

    def __init__(
        self, name: str, fused_into: int | None, barrier: bool, preschedulable: bool, follows: Stream | None
    ) -> None:
        self.name = name
        self.fused_into = fused_into
        self.fusable = self.prepares = fused_into is not None
        self.barrier = barrier
        self.preschedulable = preschedulable
        self.follows = follows

    def fused(self, members: tuple[Instruction, ...], behind: Iterable[Instruction]) -> FuseInstructionPolicy:
        return FuseInstructionPolicy(members)

    def chain(self, instruction: Instruction) -> Links:
        return ReplayedLinks(self.fused_into)


class ReplayedLinks(Links):
    """Accepts the instructions that were fused into one."""

    def __init__(self, fused_into: int | None) -> None:
        self._fused_into = fused_into

    def take(self, instruction: Instruction) -> bool:
        policy = instruction.policy
        return isinstance(policy, Replayed) and policy.fused_into == self._fused_into

    def end(self) -> None:
        pass


class ReplayedStream(StreamPolicy):
    """The policy of a replayed stream.  It is not `sequential`: the script has program order among the writes."""

    def __init__(self, depth: int) -> None:
        self.depth = depth


def replay(script: Script) -> VirtualMachineEngine:
    """Pass the recorded events of a `Story.script` to a new engine, compare its decisions, and return the engine.

    Raises:
        ValueError: if the script does not begin with an engine's first turn.
        InternalError: if the new engine launches other instructions than the recorded one, or in another order.
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
            # Launched members of a fused instruction are not lively: their whole is abandoned.
            launched_now = {instruction for instruction in engine.lively if instruction.state == LAUNCHED}
            unrun = [instruction for instruction in map(known, entry["abandoned"]) if instruction in launched_now]
            engine.abandon(unrun, lambda instruction: None)
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
            # If the followed stream has no earlier instructions in the script, following it has no effect.
            follows = streams.get(absorbed["follows"])
            played[absorbed["serial"]] = Instruction(
                streams.setdefault(
                    absorbed["stream"], Stream(absorbed["stream"], None, ReplayedStream(absorbed["depth"]))
                ),
                Replayed(
                    absorbed["name"], absorbed["fused_into"], absorbed["barrier"], absorbed["preschedulable"], follows
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
