"""`InstructionPolicy`: the work of an instruction, as the machine sees it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from vmflow.native import keep_fields, mypyc_attr

from .failure import Failure

if TYPE_CHECKING:
    from vmflow.streams.stream import Stream

    from .chain import Links
    from .fuse import FuseInstructionPolicy
    from .instruction import Instruction


@mypyc_attr(allow_interpreted_subclasses=True)
class InstructionPolicy:
    """One kind of instruction.

    A machine calls `prepare` on the thread that schedules, then `compute` on the thread that the stream's policy
    chooses.  If either raises, it calls `fail` with the failure, and the instruction ends like any other: its
    successors run and find the outputs poisoned.

    Attributes:
        name: of the kind of instruction, for messages.
        barrier: whether it waits for everything issued earlier (and holds back nothing issued later).
        prepares: whether `prepare` does anything; most kinds need nothing, and a call costs as much as a small add.
        preschedulable: whether it may be launched when its predecessors on its own stream are merely launched.
        follows: another stream for which the same holds, since the instruction makes its own stream wait for that one.
        deferred: whether it may end later than `compute` returns; see `Deferred`.
        fusable: whether it may be scheduled together with its neighbours, as one; see `fused`.
        droppable: whether a scope that ends may drop it; not if other ranks or instructions rely on it.
        touches_memory: whether it reads or writes the memory of its dependences, or only has a place in their order.
    """

    __slots__ = ()

    name: str = "instruction"
    barrier: bool = False
    prepares: bool = False
    preschedulable: bool = True
    follows: Stream | None = None
    deferred: bool = False
    fusable: bool = False
    touches_memory: bool = True
    droppable: bool = True

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        keep_fields(cls)

    def prepare(self, instruction: Instruction) -> None:
        """Get the resources that the instruction needs before it can run, mostly memory."""

    def prepare_on(self, stream: Stream) -> None:
        """`prepare` for a policy that runs on `stream` without an instruction."""
        raise NotImplementedError

    def preparing_failed(self, failure: Failure) -> None:
        """Poison the outputs after a failed `prepare`, if no running instruction uses them; the others `fail` later."""

    def compute(self) -> None:
        """Run."""
        raise NotImplementedError

    def fail(self, failure: Failure) -> None:
        """Poison the outputs."""

    def settle(self, failure: Failure | None) -> Failure | None:
        """Let the outputs hold the error that a device has found, if any; called when the device has ended the work.

        Args:
            failure: the error of this instruction.

        Returns:
            That error, or the one of an input that the device could not compute.
        """
        return failure

    def drop(self, failure: Failure) -> None:
        """Let the outputs hold the failure of an instruction that was cancelled before it began."""
        self.fail(failure)

    def chain(self, instruction: Instruction) -> Links | None:
        """Return a chain that begins with the instruction and may get further members; None if it can begin none."""
        return None

    def waits_for_others(self) -> bool:
        """Return whether an instruction that could run now should wait for later ones to be chained with."""
        return False

    def fused(self, members: tuple[Instruction, ...], behind: Iterable[Instruction]) -> FuseInstructionPolicy:
        """The policy of an instruction that stands for several fusable ones.

        Args:
            members: these instructions; this is the policy of the first.
            behind: the known instructions issued after them.
        """
        raise NotImplementedError

    def give_back_early(self, instruction: Instruction) -> None:
        """Give back the memory that the instruction, which has not run, would release; nothing uses it."""

    def describe(self) -> str:
        """Return the instruction's name with the shapes and dtypes of its operands, for the note on an exception."""
        return self.name
