"""Running a chain of ops without asking anybody in between: one list of calls, made once.

Every array is known beforehand, but for variables, whose tensors may be given other memory between two runs, and what
each launch brings along.  So a run is a loop over ``kernel(*arrays, out)``.

Large arguments may be read, and large results made, where the caller has them: then the calls of the ops that use them
are made anew for each launch, which takes far less than copying.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import length_hint
from typing import Any, TypeAlias

import numpy as np

from vmflow.errors import InternalError
from vmflow.instructions.blob import Array, Blob, Storage, TensorMeta
from vmflow.instructions.failure import Failure
from vmflow.instructions.op_call import store
from vmflow.kernels.choosing import Kernel
from vmflow.kernels.copies import assign, assign_number, view_at
from vmflow.kernels.generation import GENERATION
from vmflow.kernels.replaying import Replay, replays_of
from vmflow.native import caused_by
from vmflow.ops.table import OpPlan

from .job import Drawn, Job, JobOp, Operand
from .launch import Launch
from .lifetimes import ALIGNMENT, aligned
from .plan import ChainDescriptor

# kernel, its arguments, and the array in which the result is wanted; None if the kernel sees to that itself.
Step: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...], Array]


class ProgramError(Exception):
    """An op has failed; its exception is the cause.

    Attributes:
        op: the op.
    """

    def __init__(self, op: JobOp, error: Exception) -> None:
        super().__init__(f"{op.name}: {error}")
        self.op = op
        self.error = error


class ReplayFailed(Exception):
    """Ops could not be run as one; the exception is the cause, and nobody knows how far they have come.

    Attributes:
        error: the cause.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Torn(Exception):
    """A launch before this one has left a variable without a value.

    Attributes:
        failure: why.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__("a variable holds no value")
        self.failure = failure


class Environment:
    """Where the buffers of a chain are.

    Args:
        job: whose buffers they are.
        constants: by buffer, where the job's constants are.

    Attributes:
        arena: the memory in which buffers of the chain alone lie, as an array of bytes.
        variables: by buffer, the memory of the job's variables; it may be another for each launch.
    """

    def __init__(self, job: Job, constants: Mapping[int, Array]) -> None:
        self.job = job
        self.arena: Array = None
        self.variables: Mapping[int, Storage] = {}
        self._storages = {number: Storage(None, array) for number, array in constants.items()}
        self._workspaces: dict[int, Array] = {}

    def place(self, memory: Array, offsets: Mapping[int, int]) -> None:
        """Put buffers, and workspaces, into the arena, which is one array of bytes; see `Arena`."""
        self.arena = memory
        made: dict[tuple[int, TensorMeta], Array] = {}
        for number, offset in offsets.items():
            if number < 0:
                self._workspaces[-1 - number] = memory[offset:]
                continue
            # numpy looks long at arrays that have their memory in common, but not at one that is given twice.
            key = (offset, self.job.buffers[number].meta)
            if key not in made:
                made[key] = view_at(memory, *key)
            self.put(number, made[key])

    def workspace(self, op: int, nbytes: int) -> Array:
        """Memory in which an op, by its position, may work."""
        found = self._workspaces.get(op)
        return np.empty(nbytes, np.uint8) if found is None else found

    def put(self, number: int, array: Array) -> None:
        """Say where a buffer is."""
        self._storages[number] = Storage(None, array)

    def take_out(self, numbers: Iterable[int]) -> None:
        """Forget where buffers were."""
        for number in numbers:
            self._storages.pop(number, None)

    def array(self, operand: Operand) -> Array:
        """What an operand sees."""
        storage = self._storages.get(operand.buffer)
        if storage is None:
            storage = self.variables[operand.buffer]
        return Blob(storage, operand.meta, operand.strides, operand.offset).destination()

    def whole(self, number: int) -> Array:
        """A whole buffer."""
        return self.array(Operand(number, self.job.buffers[number].meta))


def place_one_after_other(metas: list[TensorMeta]) -> list[int]:
    """The byte at which each begins."""
    offsets, end = [], 0
    for each in metas:
        offsets.append(end)
        end += aligned(each.nbytes, ALIGNMENT)
    return offsets


class Program:
    """A chain, ready to run.

    Args:
        chain: what to run.
        environment: where everything is.
        tell: told, in a sentence, how a device runs the ops; None for nobody.

    Attributes:
        variables: the buffers of variables that it uses.
        launch: the one that is being run, for the steps that need it.
        micro: which of its micro-batches.
        replay: runs the steps on devices that can run them as one; None on others.
    """

    def __init__(
        self, chain: ChainDescriptor, environment: Environment, tell: Callable[[str], None] | None = None
    ) -> None:
        self._tell = tell
        self.chain = chain
        self.environment = environment
        self.launch: Launch | None = None
        self.micro = 0
        job = environment.job
        self._ops = [job.ops[position] for position in chain.ops]
        used = {operand.buffer for op in self._ops for operand in (*op.inputs, *op.outputs)}
        used.update([job.outputs[output].buffer for output in chain.outputs])
        self.variables = sorted([it for it in used if job.buffers[it].role == "variable"])
        self._micro_batches = job.micro_batches if chain.micro else 1
        self._made = False
        # Of the kernels of which they are made: with others there may be faster steps.
        self._generation = 0
        self._bound: list[tuple[int, Storage, Array]] = []
        # By op; None for what is made for each launch.
        self._parts: list[list[Step] | None] = []
        # All of them, if none is made for each launch.
        self._steps: list[Step] = []
        # By place in the chain: to look kernels up takes longer than to make their steps.
        self._kernels: dict[int, Kernel] = {}
        self._kept = [(job.inputs.index(it), it) for it in chain.kept]
        self._straight = [(it, job.outputs[it].buffer) for it in chain.straight]
        self._callers = frozenset([number for _, number in (*self._kept, *self._straight)])
        self._last_use = self._last_use_of(frozenset(chain.kept))
        self._inputs: list[tuple[int, Array]] = []
        self._numbers: list[tuple[int, Array]] = []
        # With the array, if that is not the caller's.
        self._outputs: list[tuple[int, Operand, Array]] = []
        # Places of random numbers that kernels are given, and where those of this run are: by `launch`, if not here.
        self._drawn = list(
            dict.fromkeys([scalar for op in self._ops for scalar in op.scalars if isinstance(scalar, Drawn)])
        )
        self._places: dict[Drawn, Any] | None = None
        self.replay: Replay | None = None

    def run(self, launch: Launch, micro: int = 0) -> None:
        """Run it once.

        Args:
            launch: what to take inputs from, and to put outputs into.
            micro: which micro-batch.

        Raises:
            ProgramError: for the first op that fails; those behind it are not run.
            ReplayFailed: if ops that are run as one cannot be.
            Torn: if a launch before has left a variable without a value.
            Exception: if what the launch brings does not fit; nothing is run.
        """
        self._bind(launch)
        self.launch, self.micro = launch, micro
        for number, array in self._inputs:
            assign(array, launch.inputs[number])
        for number, array in self._numbers:
            assign_number(array, launch.numbers[number])
        if self._inputs and micro == self._micro_batches - 1:
            launch.copied(len(self._inputs))
        made = self._steps_with(launch) if self._callers else self._steps
        try:
            if self.replay is None:
                self._call(made, self._owner)
            else:
                self._run_replay(self.replay, [launch.drawn(scalar, micro) for scalar in self._drawn])
            for number, operand, array in self._outputs:
                launch.put_output(number, self.environment.array(operand) if array is None else array)
            if self._last_use < 0 and self._kept:
                launch.copied(len(self._kept))
        finally:
            self.launch = None
            self.environment.take_out(self._callers)

    def _call(self, made: list[Step], owner: Callable[[int], JobOp]) -> None:
        """Call the kernels of steps; `owner` tells the op that a step is of."""
        steps = iter(made)
        try:
            for kernel, arguments, out in steps:
                store(kernel(*arguments), out)
        except Exception as error:
            # Counting would cost as much as a tiny op's bookkeeping.
            failed = len(made) - length_hint(steps) - 1
            raise caused_by(ProgramError(owner(failed), error), error)  # noqa: B904

    def _run_replay(self, replay: Replay, places: Sequence[int]) -> None:
        try:
            replay.run(self._call_noted, places)
        except ProgramError:
            raise
        except Exception as error:
            raise caused_by(ReplayFailed(error), error)  # noqa: B904

    def _call_noted(self, places: Sequence[Any], noted: Callable[[Callable[[Exception], None]], None]) -> None:
        """The same for a device that finds errors later; see `Replay.run`."""
        self._places = dict(zip(self._drawn, places, strict=True))
        try:
            for place, op in enumerate(self._ops):
                self._call(self._parts[place] or [], lambda step, op=op: op)  # type: ignore[misc]
                noted(partial(note_op, op, self.environment.job.name))
        finally:
            self._places = None

    def _steps_with(self, launch: Launch) -> list[Step]:
        """The steps over the memory of this launch's caller, who has arguments back when they were used last."""
        job = self.environment.job
        for index, number in self._kept:
            given = launch.inputs[index]
            as_copied = given.flags.c_contiguous and given.flags.aligned
            self.environment.put(number, given if as_copied else given.copy())
        for output, number in self._straight:
            self.environment.put(number, launch.destination(output).reshape(job.buffers[number].meta.shape))
        steps: list[Step] = []
        for place, part in enumerate(self._parts):
            steps += self._steps_of(place) if part is None else part
            if place == self._last_use:
                steps.append((launch.copied, (len(self._kept),), None))
        return steps

    def _bind(self, launch: Launch) -> None:
        """Make the steps, unless they are made and all variables are where they were."""
        variables = launch.variables
        generation = GENERATION.number
        if self._made and generation == self._generation and self._holds(variables):
            return
        environment = self.environment
        environment.variables = variables
        job = environment.job
        # What is raised below must not leave half of it.
        self._made = False
        self._kernels = {}
        self._bound = []
        for number in self.variables:
            storage = variables[number]
            if storage.failure is not None:
                raise Torn(storage.failure)
            environment.whole(number)  # which gets memory if it has none
            self._bound.append((number, storage, storage.array))
        self._parts = [
            self._steps_of(place) if self._callers.isdisjoint((*op.reads(), *op.writes())) else None
            for place, op in enumerate(self._ops)
        ]
        self._steps = [step for part in self._parts if part is not None for step in part]
        copied = [it for it in self.chain.inputs if it not in self._callers]
        self._inputs = [(job.inputs.index(it), environment.whole(it)) for it in copied]
        self._numbers = [(job.numbers.index(it), environment.whole(it)) for it in self.chain.numbers]
        fetched = [(output, job.outputs[output]) for output in self.chain.outputs if output not in self.chain.straight]
        self._outputs = [
            (number, operand, None if operand.buffer in self._callers else environment.array(operand))
            for number, operand in fetched
        ]
        self.replay = self._replay()
        self._made = True
        self._generation = generation

    def _holds(self, variables: Mapping[int, Storage]) -> bool:
        for number, storage, array in self._bound:
            if variables[number] is not storage or storage.array is not array or storage.failure is not None:
                return False
        return True

    def _last_use_of(self, buffers: frozenset[int]) -> int:
        """The place of the last op that reads one of them; -1 if that is no op, or a result is one of them."""
        job = self.environment.job
        if not buffers.isdisjoint([job.outputs[output].buffer for output in self.chain.outputs]):
            return -1
        return max([place for place, op in enumerate(self._ops) if not buffers.isdisjoint(op.reads())], default=-1)

    def _owner(self, step: int) -> JobOp:
        """The op that a step is of, which is asked only of one that has failed."""
        for place, part in enumerate(self._parts):
            step -= len(self._steps_of(place) if part is None else part)
            if step < 0:
                return self._ops[place]
            step -= place == self._last_use
        raise InternalError("a chain has failed at a step that it does not have")

    def _steps_of(self, place: int) -> list[Step]:
        op = self._ops[place]
        return self._placed(place, op) or [self._step(op)]

    def _placed(self, place: int, op: JobOp) -> list[Step] | None:
        """The steps of an op whose kernel is known to come to such over arrays that stay where they are."""
        if op.kind not in ("call", "into") or op.scalars:
            return None
        if place not in self._kernels:
            self._kernels[place] = op.infer().kernel
        kernel = self._kernels[place]
        if kernel.placed is None:
            return None
        inputs, outputs = [[self.environment.array(it) for it in those] for those in (op.inputs, op.outputs)]
        scratch = self.environment.workspace(self.chain.ops[place], kernel.scratch) if kernel.scratch else None
        return kernel.placed(inputs, outputs, scratch)

    def _step(self, op: JobOp) -> Step:
        inputs = [self.environment.array(operand) for operand in op.inputs]
        outputs = [self.environment.array(operand) for operand in op.outputs]
        if op.kind == "update":
            if op.update is None:
                raise ValueError(f"the update {op.name} cannot be run: its kernel is not known")
            return _updating(op.update, inputs, outputs), (), None
        if op.kind == "transfer":
            return assign, (outputs[0], inputs[0]), None
        inferred = op.infer()
        draws = any([isinstance(scalar, Drawn) for scalar in op.scalars])
        kernel = self._drawing(op, inferred) if draws else inferred.kernel.function
        if inferred.several:
            return _storing(kernel, outputs), (*inputs, *op.scalars, tuple(outputs)), None
        if inferred.outputs[0].dtype is not op.outputs[0].meta.dtype and not inferred.kernel.casts:
            return kernel, (*inputs, *op.scalars, None), outputs[0]
        function, before, after = (kernel, (), op.scalars) if draws else inferred.kernel.with_scalars(op.scalars)
        return function, (*before, *inputs, *after, outputs[0]), outputs[0]

    def _drawing(self, op: JobOp, inferred: OpPlan) -> Callable[..., Any]:
        """The kernel with what this launch has drawn in place of what stands for it."""
        kernel, before = inferred.kernel.function, len(op.inputs)

        def drawing(*arguments: Any) -> Any:
            launch = self.launch
            assert launch is not None
            scalars = [
                self._place_of(launch, argument) if isinstance(argument, Drawn) else argument
                for argument in arguments[before:-1]
            ]
            return kernel(*arguments[:before], *scalars, arguments[-1])

        return drawing

    def _place_of(self, launch: Launch, scalar: Drawn) -> Any:
        return launch.drawn(scalar, self.micro) if self._places is None else self._places[scalar]

    def _replay(self) -> Replay | None:
        """The replay of the steps; see `replay`."""
        make = replays_of(self.chain.device)
        if make is None:
            return None
        job, environment = self.environment.job, self.environment
        written = dict.fromkeys([buffer for op in self._ops for buffer in op.writes()])
        outside = [buffer for buffer in written if buffer not in self.chain.arena.offsets]
        handed_out = dict.fromkeys([job.outputs[number].buffer for number in self.chain.outputs])
        results = [environment.whole(buffer) for buffer in {**dict.fromkeys(outside), **handed_out}]
        ops = f"{len(self._ops)} ops on {self.chain.device}"
        changed = [environment.arena, *[environment.whole(buffer) for buffer in outside]]
        return make(changed, results, len(self._drawn), partial(_told, self._tell, ops))


def _told(tell: Callable[[str], None] | None, ops: str, refusal: str | None) -> None:
    if tell is not None:
        tell(f"{ops} run as one launch from now on" if refusal is None else f"{ops} run one by one: {refusal}")


def note_op(op: JobOp, graph: str, error: Exception) -> None:
    """Say on an error which op of a graph it is of, and where that was recorded."""
    inputs = ", ".join([repr(operand.meta) for operand in op.inputs])
    error.add_note(f"while running {op.op}({inputs}) of graph {graph!r}")
    error.add_note(f"which was built at {op.line}")
    if op.module:
        error.add_note(f"in module {op.module}")


def _updating(update: Callable[..., Any], inputs: list[Array], outputs: list[Array]) -> Callable[[], None]:
    def kernel() -> None:
        # Kernels may take the lists apart.
        update(list(inputs), list(outputs))

    return kernel


def _storing(kernel: Callable[..., Any], outputs: list[Array]) -> Callable[..., None]:
    def storing(*arguments: Any) -> None:
        for out, result in zip(outputs, kernel(*arguments), strict=True):
            store(result, out)

    return storing
