"""`Instruction`: the unit of work; `Dependence`: orders instructions that access the same storage.

An instruction goes through these states, of which it may skip some:

    NEW -> WAITING -> READY -> LAUNCHED -> DONE -> ERASED

No turn of the engine has seen a NEW instruction.  A WAITING one has edges that are not satisfied, is a barrier that
waits, or is a member of a fused instruction that waits or is ready.  A READY one may be launched.  A LAUNCHED one is to
run on its stream, runs or has run there.  A DONE one has been reported as finished, perhaps out of order.  An ERASED
one has ended, and no edge from it is unsatisfied; finished instructions of a stream are erased in order.  An edge
makes an instruction wait until its predecessor is erased.  The predecessor's launch is enough if the instruction is
preschedulable and the predecessor is on the instruction's stream, or on the stream in `InstructionPolicy.follows`.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import CodeType
from typing import TYPE_CHECKING, Any, Final

from vmflow.native import mypyc_attr

from . import origin

if TYPE_CHECKING:
    from vmflow.context import Mode
    from vmflow.streams.stream import Stream

    from .policy import InstructionPolicy

NEW: Final = 0
WAITING: Final = 1
READY: Final = 2
LAUNCHED: Final = 3
DONE: Final = 4
ERASED: Final = 5

STATE_NAMES: Final = ("NEW", "WAITING", "READY", "LAUNCHED", "DONE", "ERASED")


@mypyc_attr(free_list_len=1)
class Dependence:
    """Orders instructions that access the same storage (or generator, event, ...): holds the last ones that turns saw.

    Attributes:
        writer: the last instruction that writes; None if there is none, or it is erased.
        readers: the instructions that read after `writer` and are not erased; None if there is none.
        machine: the virtual machine that orders these instructions; None if no machine has taken the storage over yet,
            and for a stream's own order.
        successor: the dependence that orders later accesses, since a machine has taken the storage over; or None.
    """

    __slots__ = ("machine", "readers", "successor", "writer")

    def __init__(self, machine: Any = None) -> None:
        self.writer: Instruction | None = None
        self.readers: dict[Instruction, None] | None = None
        self.machine = machine
        self.successor: Dependence | None = None

    def replace(self, successor: Dependence) -> None:
        """Note the dependence that orders later accesses in place of this one."""
        self.successor = successor


class Instruction:
    """The unit of work of a virtual machine: a policy to run on a stream, and the accesses that order it.

    Attributes:
        stream: the stream that runs the instruction.
        policy: the work; set to None at the instruction's end, so that the operands can be freed.
        name: the policy's name, for reprs and reports.
        reads, writes: the dependences of the data that the policy reads and writes; one may be in both.
        cost: the estimated nanoseconds that it takes.
        state: NEW, WAITING, READY, LAUNCHED, DONE or ERASED.
        serial: the instruction's number in the order in which turns of the engine have seen them; -1 before.
        before, after: the neighbours in that order among the instructions that are not erased; or None.
        behind: the next instruction in the `Fifo` of the stream that holds this one; None if there is none.
        waits: the number of unsatisfied edges to the instruction.
        on_launch, on_finish: the successors that wait for its launch, or for its erasure; None if none does.
        nbytes: the bytes of the results, if they are large; for back-pressure.
        members: the instructions that this one stands for.  The engine does not schedule them: they wait until this
            instruction is launched, and are done and erased with it.  None for an ordinary instruction.
        thread: the id of the thread that issued the instruction; 0 if it was not noted.
        code, last: the user's line that issued it, as code object and bytecode offset, or (None, 0); see
            `origin.capture`.
        mode: the mode in which it was issued (scope, module, ...); or None, as for the machine's own instructions.
    """

    __slots__ = (
        "after",
        "before",
        "behind",
        "code",
        "cost",
        "last",
        "members",
        "mode",
        "name",
        "nbytes",
        "on_finish",
        "on_launch",
        "policy",
        "reads",
        "serial",
        "state",
        "stream",
        "thread",
        "waits",
        "writes",
    )

    def __init__(
        self,
        stream: Stream,
        policy: InstructionPolicy,
        reads: tuple[Dependence, ...] = (),
        writes: tuple[Dependence, ...] = (),
        cost: int = 0,
        code: CodeType | None = None,
        last: int = 0,
        mode: Mode | None = None,
        nbytes: int = 0,
    ) -> None:
        self.stream = stream
        self.policy: InstructionPolicy | None = policy
        self.name = policy.name
        self.reads = reads
        self.writes = writes
        self.cost = cost
        self.state = NEW
        self.serial = -1
        self.behind: Instruction | None = None
        self.before: Instruction | None = None
        self.after: Instruction | None = None
        self.waits = 0
        self.on_launch: list[Instruction] | None = None
        self.on_finish: list[Instruction] | None = None
        self.code = code
        self.last = last
        self.mode = mode
        self.nbytes = nbytes
        self.thread = 0
        self.members: tuple[Instruction, ...] | None = None

    def note_line(self) -> None:
        """Note the user's line that is running now as the issuer of this instruction, unless a line is known."""
        if self.code is None:
            self.code, self.last = origin.capture()

    def issued_by(self, thread: int) -> None:
        """Note the thread that issues this instruction, and the user's line unless a line is known."""
        self.thread = thread
        self.note_line()

    def erase(self) -> None:
        """Mark this instruction as ended though no turn has seen it: it has run inline, or was withdrawn."""
        self.state = ERASED
        self.policy = None

    def begin_again(self, policy: InstructionPolicy | None) -> None:
        """Reset this instruction to NEW with `policy`, to issue it again.

        Only for an instruction that had not begun to run, after its engine has abandoned it.
        """
        self.policy = policy
        self.state = NEW
        self.serial = -1
        self.behind = self.before = self.after = None
        self.waits = 0
        self.on_launch = self.on_finish = None

    def successors(self) -> list[Instruction]:
        """The instructions that wait for this one to be launched or to be erased."""
        return (self.on_launch or []) + (self.on_finish or [])

    def __repr__(self) -> str:
        name = self.name
        if self.members is not None:
            name += f"({', '.join([member.name for member in self.members])})"
        return f"<{name} #{self.serial} {STATE_NAMES[self.state]} on {self.stream.name}>"


def members_of(instructions: Iterable[Instruction]) -> list[Instruction]:
    """Return the instructions, with each fused instruction replaced by its members."""
    return [member for instruction in instructions for member in (instruction.members or (instruction,))]
