"""`Chain`: elementwise ops on large arrays, each of which reads results of earlier ones, as one instruction."""

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


# A call that waits for others takes some tens of microseconds longer.  After `_PATIENCE` calls of an op that nothing
# followed, the next `_PAUSE` do not wait, and then one does; if nothing follows that one, the next pause is twice as
# long, and so on.
_PATIENCE: Final = 4
_PAUSE: Final = 16
_LONGEST_PAUSE: Final = 256


class Step:
    """A kind of call as a member of a chain; the same for all calls of an op with such operands.

    Args:
        attributes: of the op.
        together: see `ChainKernel`.

    Attributes:
        in_vain: how many calls in a row have waited and nothing followed; beyond `_PATIENCE`, also those that did not
            wait.
        pause: how many calls do not wait before one does again.
    """

    __slots__ = ("attributes", "in_vain", "pause", "together")

    def __init__(self, attributes: tuple[Hashable, ...], together: ChainKernel) -> None:
        self.attributes = attributes
        self.together = together
        self.in_vain = 0
        self.pause = _PAUSE

    def waits(self) -> bool:
        """Whether a call that is about to be made is to wait for calls that may go on with it."""
        if self.in_vain < _PATIENCE:
            return True
        self.in_vain += 1
        if self.in_vain <= _PATIENCE + self.pause:
            return False
        self.in_vain = _PATIENCE - 1
        self.pause = min(2 * self.pause, _LONGEST_PAUSE)
        return True

    def waited(self, in_vain: bool) -> None:
        """One has waited."""
        if in_vain:
            self.in_vain += 1
        else:
            self.in_vain = 0
            self.pause = _PAUSE


# Nothing is told of a chain's members, and nothing else has its turn, before all have been computed.  What is computed
# together takes a fraction of the sum of the members' times, of which this many nanoseconds are let in.
LONGEST: Final = 16
MOST_WORK: Final = 50_000_000


class Links:
    """A chain that may go on.

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
        """Whether an instruction goes on with the chain, to which it then belongs.

        It must be of the same stream, scope and shape, and read a result of the chain's, as it is and not a view of it.
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
        """Nothing more goes on with the chain."""
        if self._step is not None:
            self._step.waited(len(self._made) == 1)


class Chainable(InstructionPolicy):
    """The call of an op that may be computed together with calls of others.

    Attributes:
        inputs: read.
        output: written.
        scalars: Python numbers handed to the kernel after the arrays.
        step: what it is in a `Chain`, if it may be a member of one: if it treats each element alone, cannot fail, is
            large and makes one new array.  None otherwise.
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
        # Memory for results of the allocator's is found, and comes back, between launches.
        return Chain(members, behind) if self.prepares else FuseInstructionPolicy(members)


def _call_of(instruction: Instruction) -> Chainable:
    policy = instruction.policy
    assert isinstance(policy, Chainable)
    return policy


class Chain(FuseInstructionPolicy):
    """Compute consecutive elementwise ops in one go through the memory.

    Made by the engine.  They run one by one if there is a reason not to compute them together, which may be found out
    as late as at their turn.

    Args:
        members: see `Links.take`.
        behind: the instructions issued behind them, as far as they are known.

    Attributes:
        passed_on: the members whose results are read by later ones only.  These are gone when the chain has run, and
            need no memory unless the members run one by one.
    """

    __slots__ = ("passed_on",)

    name = "chain"
    prepares = True

    def __init__(self, members: tuple[Instruction, ...], behind: Iterable[Instruction]) -> None:
        super().__init__(members)
        self.passed_on = frozenset(_passed_on(members, behind))

    def give_back(self) -> None:
        """Nothing has run: all memory for results goes back."""
        for member in self.members:
            storage = _made_by(member)
            if storage.allocation is not None:
                storage.allocation.free()
            storage.let_go()

    def kernel(self) -> Callable[[], None] | None:
        """The kernel of the members together; None if they have to run one by one, to find out what is wrong."""
        wanted = [at for at, member in enumerate(self.members) if member not in self.passed_on]
        calls = [_call_of(member) for member in self.members]
        step = calls[0].step
        if step is None or any([calls[position].output.storage.array is None for position in wanted]):
            return None
        return step.together(calls, wanted)

    def computed(self) -> None:
        """The kernel has made the results."""
        for member in self.members:
            _made_by(member).mend()


def _passed_on(members: Sequence[Instruction], behind: Iterable[Instruction]) -> list[Instruction]:
    makers: dict[Dependence, Instruction] = {_made_by(member).dependence: member for member in members}
    # Results that nobody reads are made all the same: a program that times an op wants to see it computed.
    read = {dependence for member in members for dependence in member.reads}
    found: list[Instruction] = []
    for instruction in behind:
        if isinstance(instruction.policy, ReleaseTensor):
            maker = makers.pop(instruction.policy.storage.dependence, None)
            if maker is not None and _made_by(maker).dependence in read:
                found.append(maker)
        else:
            for dependence in (*instruction.reads, *instruction.writes):
                makers.pop(dependence, None)
    return found


def _made_by(member: Instruction) -> Storage:
    return _call_of(member).output.storage
