"""`Program` runs a chain of ops as one prepared list of kernel calls, without decisions in between.

The arrays of all operands are known beforehand, except for variables, whose tensors may get other memory between two
runs, and for each launch's arguments and results.

Large arguments may be read, and large results computed, in the caller's memory: then the calls of the ops that use them
are prepared for each launch.
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

# A kernel, its arguments, and the array that gets the returned result: None if the kernel returns no result to store.
Step: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...], Array]


class ProgramError(Exception):
    """An op of a chain has failed.

    Attributes:
        op: the op that has failed.
        error: the exception of the op's kernel.
    """

    def __init__(self, op: JobOp, error: Exception) -> None:
        super().__init__(f"{op.name}: {error}")
        self.op = op
        self.error = error


class ReplayFailed(Exception):
    """A replay of a chain has failed, and no single op is known to have; some ops may have run.

    Attributes:
        error: the replay's exception.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Torn(Exception):
    """A variable of the chain holds no value, since an earlier writer has failed.

    Attributes:
        failure: the writer's failure.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__("a variable holds no value")
        self.failure = failure


class Environment:
    """The memory of a chain's buffers.

    Args:
        job: the job of the buffers.
        constants: by buffer, the arrays of the job's constants.

    Attributes:
        arena: the memory of the chain's own buffers, as an array of bytes.
        variables: by buffer, the memory of the job's variables, which may differ between launches.
    """

    def __init__(self, job: Job, constants: Mapping[int, Array]) -> None:
        self.job = job
        self.arena: Array = None
        self.variables: Mapping[int, Storage] = {}
        self._storages = {number: Storage(None, array) for number, array in constants.items()}
        self._workspaces: dict[int, Array] = {}

    def place(self, memory: Array, offsets: Mapping[int, int]) -> None:
        """Make `memory` the arena, with buffers and ops' scratch memory at `offsets` in it; see `Arena`."""
        self.arena = memory
        made: dict[tuple[int, TensorMeta], Array] = {}
        for number, offset in offsets.items():
            if number < 0:
                self._workspaces[-1 - number] = memory[offset:]
                continue
            # Buffers of one meta at one place share an array object: numpy takes long to see that two objects overlap.
            key = (offset, self.job.buffers[number].meta)
            if key not in made:
                made[key] = view_at(memory, *key)
            self.put(number, made[key])

    def workspace(self, op: int, nbytes: int) -> Array:
        """Scratch memory for the op at this position of the job; new memory if the arena has none."""
        memory = self._workspaces.get(op)
        return np.empty(nbytes, np.uint8) if memory is None else memory

    def put(self, number: int, array: Array) -> None:
        """Set the array of a buffer."""
        self._storages[number] = Storage(None, array)

    def take_out(self, numbers: Iterable[int]) -> None:
        """Remove the arrays of buffers."""
        for number in numbers:
            self._storages.pop(number, None)

    def array(self, operand: Operand) -> Array:
        """The array of an operand."""
        storage = self._storages.get(operand.buffer)
        if storage is None:
            storage = self.variables[operand.buffer]
        return Blob(storage, operand.meta, operand.strides, operand.offset).destination()

    def whole(self, number: int) -> Array:
        """The array of a whole buffer."""
        return self.array(Operand(number, self.job.buffers[number].meta))


def place_one_after_other(metas: list[TensorMeta]) -> list[int]:
    """The first byte of each array, with the arrays next to each other, but aligned."""
    offsets, end = [], 0
    for meta in metas:
        offsets.append(end)
        end += aligned(meta.nbytes, ALIGNMENT)
    return offsets


class Program:
    """A chain, ready to run.

    Args:
        chain: the chain to run.
        environment: the memory of its buffers.
        tell: called with a sentence that says how a device runs the ops; None to call nothing.

    Attributes:
        variables: the buffers of variables that the chain uses.
        launch: the running launch, for the steps that need it; None between runs.
        micro: the number of the running micro-batch.
        replay: runs the steps on a CUDA device, together if it can; None on other devices, and before the first run.
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
        self.variables = sorted([buffer for buffer in used if job.buffers[buffer].role == "variable"])
        self._micro_batches = job.micro_batches if chain.micro else 1
        self._made = False
        # The generation of the kernels in the steps: newer kernels may allow faster steps.
        self._generation = 0
        self._bound: list[tuple[int, Storage, Array]] = []
        # The steps by index of the op; None for ops whose steps are made for each launch.
        self._parts: list[list[Step] | None] = []
        # The steps of `_parts` in one list; used if no op's steps are made for each launch.
        self._steps: list[Step] = []
        # Kernels by the index of their op in the chain, for steps that are made for each launch.
        self._kernels: dict[int, Kernel] = {}
        self._kept = [(job.inputs.index(number), number) for number in chain.kept]
        self._direct = [(output, job.outputs[output].buffer) for output in chain.straight]
        self._callers = frozenset([number for _, number in (*self._kept, *self._direct)])
        self._last_use = self._last_use_of(frozenset(chain.kept))
        self._inputs: list[tuple[int, Array]] = []
        self._numbers: list[tuple[int, Array]] = []
        # The outputs to copy to the launch, each with its array: None if the output lies in the caller's memory.
        self._outputs: list[tuple[int, Operand, Array]] = []
        # The placeholders among the ops' scalars; and their values in a replay, None if `launch` gives them.
        self._drawn = list(
            dict.fromkeys([scalar for op in self._ops for scalar in op.scalars if isinstance(scalar, Drawn)])
        )
        self._places: dict[Drawn, Any] | None = None
        self.replay: Replay | None = None

    def run(self, launch: Launch, micro: int = 0) -> None:
        """Run the ops of the chain once; on the meta device, run nothing.

        Args:
            launch: the launch that holds the arguments and gets the results.
            micro: the number of the micro-batch.

        Raises:
            ProgramError: for the first op that fails; later ops do not run.
            ReplayFailed: if a replay fails, and no single op is known to have failed.
            Torn: if a variable holds no value, since an earlier writer has failed.
            Exception: any other error, for example if the launch's arguments do not fit.
        """
        if self.chain.device.type == "meta":
            return  # arrays of the meta device have no memory; the launch's end gives its arguments back
        self._bind(launch)
        self.launch, self.micro = launch, micro
        for number, array in self._inputs:
            assign(array, launch.inputs[number])
        for number, array in self._numbers:
            assign_number(array, launch.numbers[number])
        if self._inputs and micro == self._micro_batches - 1:
            launch.copied(len(self._inputs))
        steps = self._steps_with(launch) if self._callers else self._steps
        try:
            if self.replay is None:
                self._call(steps, self._owner)
            else:
                self._run_replay(self.replay, [launch.drawn(scalar, micro) for scalar in self._drawn])
            for number, operand, array in self._outputs:
                launch.put_output(number, self.environment.array(operand) if array is None else array)
            if self._last_use < 0 and self._kept:
                launch.copied(len(self._kept))
        finally:
            self.launch = None
            self.environment.take_out(self._callers)

    def _call(self, prepared: list[Step], owner: Callable[[int], JobOp]) -> None:
        """Call the kernels of the prepared steps; `owner` gives the op of a failed step."""
        steps = iter(prepared)
        try:
            for kernel, arguments, out in steps:
                store(kernel(*arguments), out)
        except Exception as error:
            # The iterator's rest tells which step has failed, so that the loop need not count.
            failed = len(prepared) - length_hint(steps) - 1
            raise caused_by(ProgramError(owner(failed), error), error)  # noqa: B904

    def _run_replay(self, replay: Replay, places: Sequence[int]) -> None:
        try:
            replay.run(self._call_noted, places)
        except ProgramError:
            raise
        except Exception as error:
            raise caused_by(ReplayFailed(error), error)  # noqa: B904

    def _call_noted(self, places: Sequence[Any], noted: Callable[[Callable[[Exception], None]], None]) -> None:
        """Call all kernels for a replay, with `places` for the placeholders; see `vmflow.kernels.replaying.Calls`."""
        self._places = dict(zip(self._drawn, places, strict=True))
        try:
            for place, op in enumerate(self._ops):
                self._call(self._parts[place] or [], lambda step, op=op: op)  # type: ignore[misc]
                noted(partial(note_op, op, self.environment.job.name))
        finally:
            self._places = None

    def _steps_with(self, launch: Launch) -> list[Step]:
        """Return the steps of a launch that uses the caller's memory.

        A step behind the last op that reads kept arguments gives them back, unless an output is one of them.
        """
        job = self.environment.job
        for index, number in self._kept:
            argument = launch.inputs[index]
            as_copied = argument.flags.c_contiguous and argument.flags.aligned
            self.environment.put(number, argument if as_copied else argument.copy())
        for output, number in self._direct:
            self.environment.put(number, launch.destination(output).reshape(job.buffers[number].meta.shape))
        steps: list[Step] = []
        for place, part in enumerate(self._parts):
            steps += self._steps_of(place) if part is None else part
            if place == self._last_use:
                steps.append((launch.copied, (len(self._kept),), None))
        return steps

    def _bind(self, launch: Launch) -> None:
        """Prepare the steps, unless they are prepared for the present kernels and memory of variables."""
        variables = launch.variables
        generation = GENERATION.number
        if self._made and generation == self._generation and self._holds(variables):
            return
        environment = self.environment
        environment.variables = variables
        job = environment.job
        # An error below must not leave a half-prepared program.
        self._made = False
        self._kernels = {}
        self._bound = []
        for number in self.variables:
            storage = variables[number]
            if storage.failure is not None:
                raise Torn(storage.failure)
            environment.whole(number)  # this allocates the variable's memory if there is none
            self._bound.append((number, storage, storage.array))
        self._parts = [
            self._steps_of(place) if self._callers.isdisjoint((*op.reads(), *op.writes())) else None
            for place, op in enumerate(self._ops)
        ]
        self._steps = [step for part in self._parts if part is not None for step in part]
        copied = [number for number in self.chain.inputs if number not in self._callers]
        self._inputs = [(job.inputs.index(number), environment.whole(number)) for number in copied]
        self._numbers = [(job.numbers.index(number), environment.whole(number)) for number in self.chain.numbers]
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
        """The index of the last op that reads any of `buffers`; -1 if no op does, or one of them is an output."""
        job = self.environment.job
        if not buffers.isdisjoint([job.outputs[output].buffer for output in self.chain.outputs]):
            return -1
        return max([place for place, op in enumerate(self._ops) if not buffers.isdisjoint(op.reads())], default=-1)

    def _owner(self, step: int) -> JobOp:
        """The op of the step that has failed; `step` is the index among the run's steps."""
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
        """The steps that an op's kernel prepares for arrays at fixed addresses; None if `_step` makes the op's step."""
        if op.kind not in ("call", "into") or op.scalars:
            return None
        if place not in self._kernels:
            self._kernels[place] = op.infer().kernel
        kernel = self._kernels[place]
        if kernel.placed is None:
            return None
        inputs, outputs = [
            [self.environment.array(operand) for operand in operands] for operands in (op.inputs, op.outputs)
        ]
        scratch = self.environment.workspace(self.chain.ops[place], kernel.scratch) if kernel.scratch else None
        return kernel.placed(inputs, outputs, scratch)

    def _step(self, op: JobOp) -> Step:
        inputs = [self.environment.array(operand) for operand in op.inputs]
        outputs = [self.environment.array(operand) for operand in op.outputs]
        if op.kind == "update":
            if op.update is None:
                raise ValueError(f"the update {op.name} cannot run: its kernel is unknown")
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
        """A function that calls the op's kernel with seeds and positions of the present run for the placeholders."""
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
        """Make the replay of all steps; None if the chain's device cannot replay."""
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
        return make(changed, results, len(self._drawn), partial(_report, self._tell, ops))


def _report(tell: Callable[[str], None] | None, ops: str, refusal: str | None) -> None:
    if tell is not None:
        tell(f"{ops} run as one launch from now on" if refusal is None else f"{ops} run one by one: {refusal}")


def note_op(op: JobOp, graph: str, error: Exception) -> None:
    """Add notes to an error: the op of a graph, where it was recorded, and its module, if any."""
    inputs = ", ".join([repr(operand.meta) for operand in op.inputs])
    error.add_note(f"while running {op.op}({inputs}) of graph {graph!r}")
    error.add_note(f"which was built at {op.line}")
    if op.module:
        error.add_note(f"in module {op.module}")


def _updating(update: Callable[..., Any], inputs: list[Array], outputs: list[Array]) -> Callable[[], None]:
    def kernel() -> None:
        # Kernels may change the lists.
        update(list(inputs), list(outputs))

    return kernel


def _storing(kernel: Callable[..., Any], outputs: list[Array]) -> Callable[..., None]:
    def storing(*arguments: Any) -> None:
        for out, result in zip(outputs, kernel(*arguments), strict=True):
            store(result, out)

    return storing
