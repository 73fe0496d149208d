"""Jobs and plans as JSON, and back.

Reading checks the text: operands lie within their buffers, and ops, except updates, are known and take such operands.
Writing leaves out the values of constants, which belong in a file for arrays, and the kernels of updates: a job with
updates can then be inspected but not run.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs

from vmflow import ops
from vmflow.errors import DeviceUnavailable
from vmflow.instructions.blob import Array, TensorMeta
from vmflow.ops.table import OPS, OpPlan

from .actors import check
from .job_parts import BOUNDARY, GATHERING, Buffer, Draw, Drawn, JobOp, Operand, between_feeds_and_fetches
from .op_forms import misfit
from .structured_json import from_json, read, refused, shown, to_json, written

if TYPE_CHECKING:
    from .job import Job
    from .plan import Plan

# A version is increased when older versions of vmflow would misread the new text.  A plan names ops by their positions
# in its job: if the positions change, the version of plans changes, too.
JOB_VERSION: Final = 2
PLAN_VERSION: Final = 2

# The most slots of a register, and the most micro-batches, of a plan that is read.
_MOST_SLOTS: Final = 1 << 16

_JOB: Final = "vmflow.job"
_PLAN: Final = "vmflow.plan"
_JOB_SKIPS: Final = ("constants", "update")


def job_to_json(job: Job, indent: int | None = None) -> str:
    """The JSON text of a job, without the values of its constants and the kernels of its updates.

    Args:
        job: the job.
        indent: spaces by which to indent; None for one line.

    Raises:
        TypeError: if an attribute of an op cannot be written as data; names the op.
    """
    return written(_JOB, JOB_VERSION, _job_to_json(job), indent)


def _job_to_json(job: Job) -> dict[str, Any]:
    try:
        content: dict[str, Any] = to_json(job, type(job), _JOB_SKIPS)
    except TypeError:
        for op in job.ops:
            try:
                to_json(op, JobOp, _JOB_SKIPS)
            except TypeError as error:
                raise TypeError(f"the op {op.name} cannot be written as JSON: {error}") from error
        raise
    return content


def job_from_json(
    kind: type[Job],
    text: str,
    constants: Mapping[int, Array] | None = None,
    change: Callable[[Job], Job] | None = None,
) -> Job:
    """The job from a text of `job_to_json`.

    Args:
        kind: the class `Job`.
        text: the JSON.
        constants: by buffer, the values of all constants; None leaves them out, for a job that is not to run.
        change: called with the job before its ops are checked, to move it to another device; None changes nothing.

    Raises:
        ValueError: if the text is damaged, of a newer version of the format, or uses unknown ops, or the constants do
            not fit; names the place.
        DeviceUnavailable: if an op runs on a device that cannot be used here.
    """
    declare_all_ops()  # attributes may be of classes in the modules of ops
    builders = {1: _first_job, JOB_VERSION: _job}

    def checked(build: Callable[[type[Job], dict[str, Any]], Job], content: dict[str, Any]) -> Job:
        job = build(kind, content)
        return _checked(job if change is None else change(job))

    job: Job = read(text, _JOB, {version: partial(checked, build) for version, build in builders.items()})
    return job if constants is None else attrs.evolve(job, constants=_checked_constants(job, constants))


def plan_to_json(plan: Plan, indent: int | None = None) -> str:
    """The JSON text of a plan, indented by `indent` spaces; None for one line."""
    return written(_PLAN, PLAN_VERSION, to_json(plan, type(plan)), indent)


def plan_from_json(kind: type[Plan], text: str) -> Plan:
    """The plan from a text of `plan_to_json`; `kind` is the class `Plan`.

    Raises:
        ValueError: if the text is no plan in this version of the format, or has actors that could not run; names the
            place.  Whether the plan fits a job or a machine is not checked.
    """
    plan: Plan = read(text, _PLAN, {PLAN_VERSION: partial(_plan, kind)})
    return plan


@attrs.frozen
class _FirstJob:
    """A job of the format's first version, with arguments and results in lists beside the ops; see `Job`."""

    name: str
    buffers: dict[int, Buffer]
    ops: tuple[JobOp, ...]
    inputs: tuple[int, ...] = ()
    outputs: tuple[Operand, ...] = ()
    numbers: tuple[int, ...] = ()
    draws: tuple[Draw, ...] = ()
    micro_batches: int = 1


def _first_job(kind: type[Job], content: dict[str, Any]) -> Job:
    first: _FirstJob = from_json(content, _FirstJob, "job", _JOB_SKIPS)
    for number in first.inputs:
        if number not in first.buffers:
            raise refused("job.inputs", f"the job has no buffer {number}")
    all_ops = between_feeds_and_fetches(first.ops, first.buffers, first.inputs, first.outputs)
    return kind(first.name, first.buffers, all_ops, first.numbers, first.draws, micro_batches=first.micro_batches)


# Checks of jobs


def _job(kind: type[Job], content: dict[str, Any]) -> Job:
    job: Job = from_json(content, kind, "job", _JOB_SKIPS)
    return job


def _checked(job: Job) -> Job:
    _check_buffers(job)
    for position, op in enumerate(job.ops):
        _check_op(job, op, f"job.ops[{position}]")
    job.check()
    return job


def _check_buffers(job: Job) -> None:
    for number, buffer in job.buffers.items():
        if buffer.id != number:
            raise refused(f"job.buffers[{number}]", f"its id is {buffer.id}")
    if sorted(job.numbers) != sorted([buffer.id for buffer in job.buffers.values() if buffer.role == "number"]):
        raise refused("job.numbers", "all buffers of the role 'number' belong here, each once, and no others")
    for number in job.numbers:
        if job.buffers[number].meta.shape:
            raise refused(f"job.buffers[{number}]", "a number has no dimensions")
    for position, draw in enumerate(job.draws):
        if draw.elements < 0 or draw.generator < 0:
            raise refused(f"job.draws[{position}]", "elements and generators are counted from 0 on")
    if job.micro_batches < 1:
        raise refused("job.micro_batches", f"expected 1 or more, found {job.micro_batches}")


def _check_operand(job: Job, operand: Operand, place: str) -> None:
    """Raise ValueError unless an operand lies in its buffer, on its device and, without strides, of its dtype."""
    buffer = job.buffers.get(operand.buffer)
    if buffer is None:
        raise refused(f"{place}.buffer", f"the job has no buffer {operand.buffer}")
    view, whole = operand.meta, buffer.meta
    # A view may have another dtype than its buffer: the parts of complex numbers, for instance.
    fits = view.dtype is whole.dtype or operand.strides is not None
    if not fits or view.device is not whole.device:
        raise refused(f"{place}.meta", f"buffer {buffer.id} is {whole!r} on {whole.device}, not {view!r}")
    if operand.strides is None:
        if operand.offset or view.numel != whole.numel:
            raise refused(place, f"this is not the whole of buffer {buffer.id}, which is {whole!r}, and has no strides")
        return
    if len(operand.strides) != len(view.shape):
        raise refused(f"{place}.strides", f"expected one for each of {len(view.shape)} dimensions")
    elements = whole.nbytes // view.dtype.itemsize
    if view.numel:
        steps = [(size - 1) * stride for size, stride in zip(view.shape, operand.strides, strict=True)]
        lowest = operand.offset + sum([step for step in steps if step < 0])
        highest = operand.offset + sum([step for step in steps if step > 0])
        if lowest < 0 or highest >= elements:
            raise refused(place, f"it reaches beyond buffer {buffer.id}, which is {whole!r}")
    elif operand.offset < 0:  # a view without elements may lie beyond the buffer
        raise refused(f"{place}.offset", "expected a number from 0 on")


def _check_op(job: Job, op: JobOp, place: str) -> None:
    for side in ("inputs", "outputs"):
        operands: Sequence[Operand] = getattr(op, side)
        for position, operand in enumerate(operands):
            _check_operand(job, operand, f"{place}.{side}[{position}]")
    if op.kind in BOUNDARY:
        if op != JobOp(BOUNDARY[op.kind], op.inputs, op.outputs, kind=op.kind):
            raise refused(place, f"expected a {BOUNDARY[op.kind]} of operands and nothing else")
        return
    if not op.outputs:
        raise refused(f"{place}.outputs", "an op has at least one output")
    for name in ("stage", "cost"):
        if getattr(op, name) < 0:
            raise refused(f"{place}.{name}", "expected 0 or more")
    for position, scalar in enumerate(op.scalars):
        if isinstance(scalar, Drawn):
            if not 0 <= scalar.draw < len(job.draws) or scalar.part not in (0, 1):
                raise refused(f"{place}.scalars[{position}]", f"the job does not draw {scalar}")
        elif type(scalar) not in (bool, int, float, complex):
            raise refused(f"{place}.scalars[{position}]", f"{shown(scalar)} is no number")
    read = tuple([operand.meta for operand in op.inputs])
    made = tuple([operand.meta for operand in op.outputs])
    if op.kind in ("call", "into"):
        _check_inferred(op, made, place)
    elif op.kind in GATHERING and job.micro_batches == 1:
        raise refused(f"{place}.kind", f"{op.kind!r} needs micro-batches, and the job has none")
    elif op.kind != "update" and not _fits(op.kind, read, made, job.micro_batches):
        raise refused(place, f"{op.kind!r} does not turn {list(read)} into {list(made)}")
    if (op.op == "to_device") != (op.kind == "transfer"):
        raise refused(f"{place}.kind", f"{op.op} cannot be of the kind {op.kind!r}")
    if op.kind == "transfer" and op.attributes != (made[0].dtype,):
        raise refused(
            f"{place}.attributes", f"a copy to a device has the attribute {made[0].dtype}, not {op.attributes!r}"
        )


def _check_inferred(op: JobOp, made: tuple[TensorMeta, ...], place: str) -> None:
    op_expr = OPS.get(op.op)
    if op_expr is None or op_expr.form is None:
        raise refused(f"{place}.op", f"this vmflow has no op {shown(op.op)}")
    problem = misfit(op_expr.form, [operand.meta for operand in op.inputs], op.attributes, op.scalars)
    if problem is not None:
        raise refused(place, f"{op.op} cannot be called like this: {problem}")
    try:
        inferred: OpPlan = op.infer()
    except DeviceUnavailable:
        raise
    except Exception as error:
        # An op's inference may raise any error for attributes that no call would pass.
        raise refused(place, f"{op.op} cannot be called like this: {type(error).__name__}: {error}") from error
    if [output.shape for output in inferred.outputs] != [output.shape for output in made]:
        raise refused(f"{place}.outputs", f"{op.op} makes {list(inferred.outputs)} from these inputs, not {list(made)}")
    # An in-place op ("into") casts its result to the dtype of the memory, so that only the shapes have to be equal.
    if op.kind == "call" and [output.dtype for output in inferred.outputs] != [output.dtype for output in made]:
        raise refused(f"{place}.outputs", f"{op.op} makes {list(inferred.outputs)} from these inputs, not {list(made)}")


def _fits(kind: str, read: tuple[TensorMeta, ...], made: tuple[TensorMeta, ...], count: int) -> bool:
    """Whether a transfer or an op of `GATHERING` turns these operands into these results."""
    if len(read) != len(made) or (kind == "transfer" and len(made) != 1):
        return False
    for source, target in zip(read, made, strict=True):
        if source.dtype is not target.dtype:
            return False
        if kind in ("transfer", "accumulate"):
            fits = source.shape == target.shape
        elif kind == "unpack":
            fits = bool(target.shape) and tuple(source.shape) == (target.shape[0] * count, *target.shape[1:])
        else:
            packed = (source.shape[0] * count, *source.shape[1:]) if source.shape else (count,)
            fits = tuple(target.shape) == packed
        if not fits:
            return False
    return True


def _checked_constants(job: Job, constants: Mapping[int, Array]) -> dict[int, Array]:
    declared = {buffer.id: buffer for buffer in job.buffers.values() if buffer.role == "constant"}
    for number in sorted(constants.keys() ^ declared.keys()):
        problem = "it is missing" if number in declared else "the job has no such constant"
        raise refused(f"constant {number}", problem)
    for number, buffer in declared.items():
        _check_array(buffer, constants[number])
    return {number: constants[number] for number in declared}


def _check_array(buffer: Buffer, array: Array) -> None:
    expected = buffer.meta
    if tuple(array.shape) != tuple(expected.shape) or array.dtype != expected.dtype.numpy:
        raise refused(f"constant {buffer.id}", f"expected {expected!r}, found {array.dtype}{list(array.shape)}")


_declared: list[bool] = []


def declare_all_ops() -> None:
    """Import every module that declares ops; otherwise, the first use of an op imports its module."""
    if _declared:
        return
    for module in pkgutil.walk_packages(ops.__path__, "vmflow.ops."):
        importlib.import_module(module.name)
    importlib.import_module("vmflow.nn.functional")
    importlib.import_module("vmflow.nn.init")
    _declared.append(True)


# Checks of plans


def _plan(kind: type[Plan], content: dict[str, Any]) -> Plan:
    plan: Plan = from_json(content, kind, "plan")
    tasks = {task.id for task in plan.tasks}
    registers = {register.id for register in plan.registers}
    for field, owners, known in (
        ("chains", plan.chains, tasks),
        ("gathers", plan.gathers, tasks),
        ("contents", plan.contents, registers),
    ):
        for number in owners:
            if number not in known:
                raise refused(f"plan.{field}[{number}]", "the plan has no such task or register")
    for number, chain in plan.chains.items():
        place = f"plan.chains[{number}]"
        for name in ("ops", "inputs", "numbers", "outputs", "kept", "straight"):
            if any([number < 0 for number in getattr(chain, name)]):
                raise refused(f"{place}.{name}", "expected numbers from 0 on")
        outside = [buffer for buffer, offset in chain.arena.offsets.items() if not 0 <= offset <= chain.arena.nbytes]
        if outside:
            raise refused(f"{place}.arena.offsets[{outside[0]}]", f"it lies beyond {chain.arena.nbytes} bytes")
    if plan.launches_at_once < 1:
        raise refused("plan.launches_at_once", f"expected 1 or more, found {plan.launches_at_once}")
    # The check of a plan runs its actors, so that the number of acts must be limited.
    counts = [(f"tasks[{at}]", task.count) for at, task in enumerate(plan.tasks)]
    counts += [(f"registers[{at}]", register.count) for at, register in enumerate(plan.registers)]
    for place, count in counts:
        if count > _MOST_SLOTS:
            raise refused(f"plan.{place}.count", f"there are more than {_MOST_SLOTS}")
    if len({task.count for task in plan.tasks} - {1}) > 1:
        raise refused("plan.tasks", "all tasks that count have the same count, the number of micro-batches")
    try:
        check(plan.tasks, plan.registers)
    except ValueError as error:
        raise refused("plan", str(error)) from error
    return plan
