"""`Chain`: one instruction for consecutive elementwise ops; each but the first reads a result of an earlier one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final, TypeAlias

from vmflow.native import mypyc_attr

from .blob import Blob, Storage
from .fuse import FuseInstructionPolicy
from .instruction import Dependence, Instruction
from .policy import InstructionPolicy
from .release_tensor import ReleaseTensor
from .scope import scope_of

# ChainKernel(calls of a chain in order, positions of the calls whose results are wanted) -> a function that computes
# these results in one kernel; None if an operand has no value, or no such kernel can be made.
ChainKernel: TypeAlias = "Callable[[Sequence[Chainable], Sequence[int]], Callable[[], None] | None]"


# An elementwise call that waits for further calls to be fused with takes longer.  After `_PATIENCE` calls in a row that
# waited and found no successor, the next `_PAUSE` calls do not wait, and then one does; if that call finds no successor
# either, the next pause is twice as long, up to `_LONGEST_PAUSE`.
_PATIENCE: Final = 4
_PAUSE: Final = 16
_LONGEST_PAUSE: Final = 256


class Step:
    """A kind of elementwise call that a `Chain` may contain; shared by calls of an op with equal attributes and metas.

    Args:
        attributes: the attributes of the op.
        together: compiles a chain of calls to one kernel; see `ChainKernel`.

    Attributes:
        misses: how many calls in a row have waited without a successor; beyond `_PATIENCE`, also the calls that did
            not wait.
        pause: how many calls do not wait before a call waits again.
    """

    __slots__ = ("attributes", "misses", "pause", "together")

    def __init__(self, attributes: tuple[Hashable, ...], together: ChainKernel) -> None:
        self.attributes = attributes
        self.together = together
        self.misses = 0
        self.pause = _PAUSE

    def waits(self) -> bool:
        """Whether the next call of this kind should wait for later calls to be fused with; asked once per call."""
        if self.misses < _PATIENCE:
            return True
        self.misses += 1
        if self.misses <= _PATIENCE + self.pause:
            return False
        self.misses = _PATIENCE - 1
        self.pause = min(2 * self.pause, _LONGEST_PAUSE)
        return True

    def waited(self, missed: bool) -> None:
        """Note that a call has waited for later calls to be fused with; `missed` if none came."""
        if missed:
            self.misses += 1
        else:
            self.misses = 0
            self.pause = _PAUSE


# The limits of one chain: calls, and the sum of their estimated nanoseconds.  Before all calls of a chain have been
# computed, none is reported as done and nothing else runs on the stream.
LONGEST: Final = 16
MOST_WORK: Final = 50_000_000


@mypyc_attr(allow_interpreted_subclasses=True)
class Links:
    """Decides which instructions join a future `Chain`, while the engine or the driver looks for further ones.

    Args:
        first: the first instruction; its policy is a `Chainable` with a `Step`.
    """

    def __init__(self, first: Instruction) -> None:
        call = _call_of(first)
        output = call.output
        self._step = call.step
        self._stream = first.stream
        self._scope = scope_of(first)
        self._shape = output.meta.shape
        self._work = first.cost
        self._made: set[Storage] = {output.storage}

    def take(self, instruction: Instruction) -> bool:
        """Return whether `instruction` can be computed with the chain; if so, it counts as a member.

        Its call must have a `Step`; its stream, scope and result's shape must be those of the chain; it must read a
        result of the chain, and none as a view; and the chain must stay within `LONGEST` and `MOST_WORK`.
        """
        call = instruction.policy
        if not isinstance(call, Chainable) or call.step is None:
            return False
        output = call.output
        if (
            instruction.stream is not self._stream
            or scope_of(instruction) is not self._scope
            or output.meta.shape != self._shape
            or len(self._made) >= LONGEST
            or self._work + instruction.cost > MOST_WORK
        ):
            return False
        linked = False
        for blob in call.inputs:
            if blob.storage in self._made:
                if blob.strides is not None:
                    return False
                linked = True
        if not linked:
            return False
        self._work += instruction.cost
        self._made.add(output.storage)
        return True

    def end(self) -> None:
        """Tell the first call's `Step` whether any instruction has joined; no more will."""
        if self._step is not None:
            self._step.waited(len(self._made) == 1)


class Chainable(InstructionPolicy):
    """The call of an op that may be fused with other calls, into a `Chain` or as `FuseInstructionPolicy` does.

    Attributes:
        inputs: the blobs that the op reads.
        output: the blob that the op writes; the first of several.
        scalars: Python numbers passed to the kernel after the arrays.
        step: the `Step` of a call that may be a member of a `Chain`, because it is elementwise, cannot fail, makes one
            new array and, on the CPU, is large.  None otherwise.
    """

    __slots__ = ("inputs", "output", "scalars", "step")

    fusable = True

    inputs: tuple[Blob, ...]
    output: Blob
    scalars: tuple[Any, ...]
    step: Step | None

    def chain(self, instruction: Instruction) -> Links | None:
        return None if self.step is None else Links(instruction)

    def waits_for_others(self) -> bool:
        return self.step is not None and self.step.waits()

    def fused(self, members: tuple[Instruction, ...], behind: Iterable[Instruction]) -> FuseInstructionPolicy:
        # Calls that allocate are fused as a `Chain`, which allocates for all of them: an allocator gives and takes
        # memory when instructions are launched, and the fused calls are launched as one.
        return Chain(members, behind) if self.prepares else FuseInstructionPolicy(members)


def _call_of(instruction: Instruction) -> Chainable:
    policy = instruction.policy
    assert isinstance(policy, Chainable)
    return policy


class Chain(FuseInstructionPolicy):
    """Compute consecutive elementwise ops in one pass over the memory, as one instruction.

    The ops run one by one if no kernel computes them together, which may become known only when the chain runs.

    Args:
        members: the instructions of the ops; `Links.take` has accepted all but the first.
        behind: the instructions that the same turn has taken, and that were issued after the members.

    Attributes:
        passed_on: the members whose results are read by later members only, and then released.  These results need no
            memory unless the members run one by one.
    """

    __slots__ = ("passed_on",)

    name = "chain"
    prepares = True

    def __init__(self, members: tuple[Instruction, ...], behind: Iterable[Instruction]) -> None:
        super().__init__(members)
        self.passed_on = frozenset(_passed_on(members, behind))

    def give_back(self) -> None:
        """Free the memory allocated for the results of all members; no member may have run."""
        for member in self.members:
            storage = _made_by(member)
            if storage.allocation is not None:
                storage.allocation.free()
            storage.let_go()

    def kernel(self) -> Callable[[], None] | None:
        """Return a function that computes all members in one kernel; None if they must run one by one."""
        wanted = [at for at, member in enumerate(self.members) if member not in self.passed_on]
        calls = [_call_of(member) for member in self.members]
        step = calls[0].step
        if step is None or any([calls[position].output.storage.array is None for position in wanted]):
            return None
        return step.together(calls, wanted)

    def computed(self) -> None:
        """Clear the failures of the results' storages, after the kernel has written them."""
        for member in self.members:
            _made_by(member).mend()


def _passed_on(members: Sequence[Instruction], behind: Iterable[Instruction]) -> list[Instruction]:
    makers: dict[Dependence, Instruction] = {_made_by(member).dependence: member for member in members}
    # A result that no instruction reads is computed and stored nevertheless, since a program may be timing the op.
    read = {dependence for member in members for dependence in member.reads}
    passed_on: list[Instruction] = []
    for instruction in behind:
        if isinstance(instruction.policy, ReleaseTensor):
            maker = makers.pop(instruction.policy.storage.dependence, None)
            if maker is not None and _made_by(maker).dependence in read:
                passed_on.append(maker)
        else:
            for dependence in (*instruction.reads, *instruction.writes):
                makers.pop(dependence, None)
    return passed_on


def _made_by(member: Instruction) -> Storage:
    return _call_of(member).output.storage
