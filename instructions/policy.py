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

    A machine calls `prepare` on the thread that schedules, then `compute` where the stream's policy says.  If either
    raises, it calls `fail` with the failure, and the instruction ends like any other: it unlocks its successors, which
    find the outputs poisoned.

    Attributes:
        name: for people.
        barrier: whether it waits for everything issued earlier (and holds back nothing issued later).
        prepares: whether `prepare` does anything; most kinds need nothing, and a call costs as much as a small add.
        preschedulable: whether it may be launched behind predecessors on its own stream that are merely launched.
        follows: a second stream behind whose merely launched instructions it may be launched, since it makes its own
            stream wait for that one.
        deferred: whether it may end later than `compute` returns; see `Deferred`.
        fusable: whether it may be scheduled together with those next to it, as one; see `fused`.
        droppable: whether a scope that ends may keep it from running; not if others rely on it.
        touches_memory: whether it reads or writes the memory that its dependences stand for, or merely takes its place
            in the order.
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
        """Get the resources that the instruction needs before it can run, memory above all."""

    def prepare_on(self, stream: Stream) -> None:
        """The same for a policy that runs on a stream without an instruction."""
        raise NotImplementedError

    def preparing_failed(self, failure: Failure) -> None:
        """Preparing has failed, and its turn is yet to come: say so where that cannot disturb running instructions."""

    def compute(self) -> None:
        """Run."""
        raise NotImplementedError

    def fail(self, failure: Failure) -> None:
        """Poison the outputs."""

    def settle(self, failure: Failure | None) -> Failure | None:
        """A device has ended what `compute` has launched there: let the outputs hold what went wrong, if anything.

        Args:
            failure: that the device has found in it.

        Returns:
            That, or the one of an input whose value the device could not compute.
        """
        return failure

    def drop(self, failure: Failure) -> None:
        """It will not run, because it was cancelled before it began; say so in the outputs."""
        self.fail(failure)

    def chain(self, instruction: Instruction) -> Links | None:
        """A chain that begins with the instruction, and takes those behind it that may be computed with it, if any."""
        return None

    def waits_for_others(self) -> bool:
        """Whether an instruction that could run now is rather to wait for others to make a chain with."""
        return False

    def fused(self, members: tuple[Instruction, ...], behind: Iterable[Instruction]) -> FuseInstructionPolicy:
        """The policy of an instruction that stands for several; only of fusable ones.

        Args:
            members: those, of which this is the first one's policy.
            behind: those issued behind them, as far as they are known.
        """
        raise NotImplementedError

    def give_back_early(self, instruction: Instruction) -> None:
        """Give back the memory that the instruction, which has not run, is there to give back; nothing uses it."""

    def describe(self) -> str:
        """Its name, shapes and dtypes, for the note on an exception."""
        return self.name
