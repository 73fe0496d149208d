"""`Chain`: consecutive elementwise ops on large arrays, each reading an earlier result, as one instruction."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final, TypeAlias

from .blob import Blob, Storage
from .fuse import FuseInstructionPolicy
from .instruction import Dependence, Instruction
from .policy import InstructionPolicy
from .release_tensor import ReleaseTensor
from .scope import scope_of

# together(calls of a chain in order, positions of the calls whose results are wanted) -> a function that computes those
# results; None if an operand has no value, or the calls cannot be computed together for another reason.
ChainKernel: TypeAlias = "Callable[[Sequence[Chainable], Sequence[int]], Callable[[], None] | None]"


# A call that waits for others takes some tens of microseconds longer.  After `_PATIENCE` calls of an op without a
# successor, the next `_PAUSE` calls do not wait, and then one does; if that has no successor, the next pause is twice
# as long, and so on.
_PATIENCE: Final = 4
_PAUSE: Final = 16
_LONGEST_PAUSE: Final = 256


class Step:
    """A kind of call as a member of a chain; shared by all calls of an op with such operands.

    Args:
        attributes: of the op.
        together: see `ChainKernel`.

    Attributes:
        misses: how many calls in a row have waited without a successor; beyond `_PATIENCE`, also the calls that did
            not wait.
        pause: the number of calls that are not delayed before one call waits for a successor again.
    """

    __slots__ = ("attributes", "misses", "pause", "together")

    def __init__(self, attributes: tuple[Hashable, ...], together: ChainKernel) -> None:
        self.attributes = attributes
        self.together = together
        self.misses = 0
        self.pause = _PAUSE

    def waits(self) -> bool:
        """Return whether the next call of this kind should wait for a successor; asked once for each call."""
        if self.misses < _PATIENCE:
            return True
        self.misses += 1
        if self.misses <= _PATIENCE + self.pause:
            return False
        self.misses = _PATIENCE - 1
        self.pause = min(2 * self.pause, _LONGEST_PAUSE)
        return True

    def waited(self, missed: bool) -> None:
        """Note that a call has waited for a successor; `missed` tells that none came."""
        if missed:
            self.misses += 1
        else:
            self.misses = 0
            self.pause = _PAUSE


# The most members, and nanoseconds of their summed times, of a chain.  No member is reported, and nothing else runs,
# before all have been computed, which takes a fraction of that sum.
LONGEST: Final = 16
MOST_WORK: Final = 50_000_000


class Links:
    """A chain that may get further members.

    Args:
        first: an instruction whose call has a step.
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
        """Add an instruction to the chain if it fits; returns whether it does.

        It must be of the same stream, scope and shape, and read a result of the chain, not a view of a result.
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
        """Note that the chain gets no further members."""
        if self._step is not None:
            self._step.waited(len(self._made) == 1)


class Chainable(InstructionPolicy):
    """The call of an op that may be computed together with calls of others.

    Attributes:
        inputs: read.
        output: written.
        scalars: Python numbers passed to the kernel after the arrays.
        step: the `Step` of a call that may be a member of a `Chain`, because it is elementwise, cannot fail, is large
            and makes one new array.  None otherwise.
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
        # The allocator gives and takes memory between launches, which a `Chain` does together for all members.
        return Chain(members, behind) if self.prepares else FuseInstructionPolicy(members)


def _call_of(instruction: Instruction) -> Chainable:
    policy = instruction.policy
    assert isinstance(policy, Chainable)
    return policy


class Chain(FuseInstructionPolicy):
    """Compute consecutive elementwise ops in one pass over the memory.

    Made by the engine.  The members run one by one if they cannot be computed together, which may become known as late
    as in their turn.

    Args:
        members: see `Links.take`.
        behind: the known instructions issued after them.

    Attributes:
        passed_on: the members whose results only later members read.  These results need no memory unless the members
            run one by one.
    """

    __slots__ = ("passed_on",)

    name = "chain"
    prepares = True

    def __init__(self, members: tuple[Instruction, ...], behind: Iterable[Instruction]) -> None:
        super().__init__(members)
        self.passed_on = frozenset(_passed_on(members, behind))

    def give_back(self) -> None:
        """Give the memory of all results back; called before any member has run."""
        for member in self.members:
            storage = _made_by(member)
            if storage.allocation is not None:
                storage.allocation.free()
            storage.let_go()

    def kernel(self) -> Callable[[], None] | None:
        """The kernel of the members together; None if they must run one by one, each with its own error."""
        wanted = [at for at, member in enumerate(self.members) if member not in self.passed_on]
        calls = [_call_of(member) for member in self.members]
        step = calls[0].step
        if step is None or any([calls[position].output.storage.array is None for position in wanted]):
            return None
        return step.together(calls, wanted)

    def computed(self) -> None:
        """Note that the kernel has written the results of all members."""
        for member in self.members:
            _made_by(member).mend()


def _passed_on(members: Sequence[Instruction], behind: Iterable[Instruction]) -> list[Instruction]:
    makers: dict[Dependence, Instruction] = {_made_by(member).dependence: member for member in members}
    # Results that nothing reads are computed, too, since a program may be timing the op.
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
