"""`InstructionPolicy`: the base class of the kinds of instructions, with the methods that a virtual machine calls."""

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
    """The work of an instruction, with its operands; the base class of all kinds of instructions.

    A virtual machine usually calls `prepare` on the thread that schedules, then `compute` on the thread that the
    stream's policy chooses.  If either fails, the machine calls `fail` with the failure, and the instruction ends like
    any other: its successors run and find the outputs poisoned.

    Attributes:
        name: the kind's name, for error messages and traces.
        barrier: whether the instruction waits for everything issued earlier (later instructions do not wait for it).
        prepares: whether `prepare` does anything; otherwise `prepare` need not be called.
        preschedulable: whether it may be launched when its predecessors on its own stream are merely launched.
        follows: another stream; predecessors on it need only be launched, too, since the instruction makes its own
            stream wait for that stream on the device.  Or None.
        deferred: whether it may end later than `compute` returns; see `Deferred`.
        fusable: whether it may be fused with its neighbours into one instruction; see `fused`.
        droppable: whether a cancelled or expired scope drops it; False for instance if other ranks rely on it.
        keeps_outputs: whether all its outputs keep their values if it is dropped.
        touches_memory: whether it reads or writes the memory of its dependences; else they merely order it.
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
    keeps_outputs: bool = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        keep_fields(cls)

    def prepare(self, instruction: Instruction) -> None:
        """Prepare `instruction` when it is launched, mostly by allocating its outputs' memory."""

    def prepare_on(self, stream: Stream) -> None:
        """Allocate the resources for running this policy on `stream` inline, without an instruction."""
        raise NotImplementedError

    def preparing_failed(self, failure: Failure) -> None:
        """Poison the outputs that have no memory after a failed `prepare`, since no running instruction uses them.

        The other outputs are poisoned later, by `fail`.
        """

    def compute(self) -> None:
        """Run."""
        raise NotImplementedError

    def fail(self, failure: Failure) -> None:
        """Poison the outputs."""

    def settle(self, failure: Failure | None) -> Failure | None:
        """Let the outputs hold the error that a device has found, if any; called when the device has ended the work.

        Args:
            failure: the error that the device has found in this instruction, or None.

        Returns:
            `failure`, or else the error of an input that the device could not compute, or None.
        """
        return failure

    def drop(self, failure: Failure) -> None:
        """Let the outputs hold `failure`, as the instruction is dropped; kinds with `keeps_outputs` override this."""
        self.fail(failure)

    def chain(self, instruction: Instruction) -> Links | None:
        """Begin a chain of elementwise ops with `instruction`, for later ones to join; None if it cannot begin one."""
        return None

    def waits_for_others(self) -> bool:
        """Whether this work should wait for later instructions to be fused with in a `Chain`."""
        return False

    def fused(self, members: tuple[Instruction, ...], behind: Iterable[Instruction]) -> FuseInstructionPolicy:
        """Make the policy of an instruction that stands for several fusable instructions.

        Args:
            members: the fusable instructions; this policy is that of the first.
            behind: the instructions that the same turn has taken, and that were issued after the members.
        """
        raise NotImplementedError

    def give_back_early(self, instruction: Instruction) -> None:
        """If `instruction` is a `ReleaseTensor`, free the memory as early as its device allows.

        The caller knows that nothing will use the memory.
        """

    def describe(self) -> str:
        """Return the name, mostly with the operands' shapes and dtypes, for a note added to an exception."""
        return self.name
