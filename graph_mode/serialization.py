"""Jobs and plans as JSON, and back.

What is read has been checked: its operands lie within their buffers, its ops are known and take such operands, so that
what a file says can make a job wrong but not dangerous.  Two things are no data and stay out: the constants' values,
which belong into a file for arrays, and the kernels of updates, without which a job can be looked at and not run.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs

from vmflow import ops
from vmflow.instructions.blob import Array, TensorMeta
from vmflow.ops.table import OPS, OpPlan

from .actors import check
from .job_parts import BOUNDARY, GATHERING, Buffer, Draw, Drawn, JobOp, Operand, between_feeds_and_fetches
from .op_forms import misfit
from .structured_json import from_json, read, refused, shown, to_json, written

if TYPE_CHECKING:
    from .job import Job
    from .plan import Plan

# To be raised when what is written now would be misunderstood by the program as it was.  A plan names ops by their
# positions in its job: where these change, so does the version of plans.
JOB_VERSION: Final = 2
PLAN_VERSION: Final = 2

# Of a register; and the most micro-batches.
_MOST_SLOTS: Final = 1 << 16

_JOB: Final = "vmflow.job"
_PLAN: Final = "vmflow.plan"
_JOB_SKIPS: Final = ("constants", "update")


def job_to_json(job: Job, indent: int | None = None) -> str:
    """The text of a job, without the values of its constants and the kernels of its updates.

    Args:
        job: what to write.
        indent: spaces by which to indent; None for one line.

    Raises:
        TypeError: if an attribute of an op is no data; says which.
    """
    return written(_JOB, JOB_VERSION, _job_to_json(job), indent)


def _job_to_json(job: Job) -> dict[str, Any]:
    try:
        found: dict[str, Any] = to_json(job, type(job), _JOB_SKIPS)
    except TypeError:
        for op in job.ops:
            try:
                to_json(op, JobOp, _JOB_SKIPS)
            except TypeError as error:
                raise TypeError(f"the op {op.name} cannot be written as JSON: {error}") from error
        raise
    return found


def job_from_json(kind: type[Job], text: str, constants: Mapping[int, Array] | None = None) -> Job:
    """The job of a text that `job_to_json` has made.

    Args:
        kind: the class of jobs.
        text: the JSON.
        constants: by buffer, the values of all constants; None leaves them out, for a job that is not to run.

    Raises:
        ValueError: if the text is damaged, was made by a newer version, or uses unknown ops; names the place.
    """
    declare_all_ops()  # whose attributes may be of classes of their modules
    builders = {1: _first_job, JOB_VERSION: _job}
    job: Job = read(text, _JOB, {version: partial(build, kind) for version, build in builders.items()})
    return job if constants is None else attrs.evolve(job, constants=_checked_constants(job, constants))


def plan_to_json(plan: Plan, indent: int | None = None) -> str:
    """The text of a plan.

    Args:
        plan: what to write.
        indent: spaces by which to indent; None for one line.
    """
    return written(_PLAN, PLAN_VERSION, to_json(plan, type(plan)), indent)


def plan_from_json(kind: type[Plan], text: str) -> Plan:
    """The plan of a text that `plan_to_json` has made.

    Args:
        kind: the class of plans.
        text: the JSON.

    Raises:
        ValueError: if the text is damaged, was made by another version, or the plan could not run; names the place.
    """
    plan: Plan = read(text, _PLAN, {PLAN_VERSION: partial(_plan, kind)})
    return plan


@attrs.frozen
class _FirstJob:
    """A job as the first version wrote it, with arguments and results in lists beside the ops; see `Job`."""

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
    return _checked(
        kind(first.name, first.buffers, all_ops, first.numbers, first.draws, micro_batches=first.micro_batches)
    )


# Checks of jobs


def _job(kind: type[Job], content: dict[str, Any]) -> Job:
    return _checked(from_json(content, kind, "job", _JOB_SKIPS))


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
    if sorted(job.numbers) != sorted([it.id for it in job.buffers.values() if it.role == "number"]):
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
    """That it lies in its buffer."""
    buffer = job.buffers.get(operand.buffer)
    if buffer is None:
        raise refused(f"{place}.buffer", f"the job has no buffer {operand.buffer}")
    seen, whole = operand.meta, buffer.meta
    # A view may see another dtype: the parts of complex numbers, for instance.
    alike = seen.dtype is whole.dtype or operand.strides is not None
    if not alike or seen.device is not whole.device:
        raise refused(f"{place}.meta", f"buffer {buffer.id} is {whole!r} on {whole.device}, not {seen!r}")
    if operand.strides is None:
        if operand.offset or seen.numel != whole.numel:
            raise refused(place, f"this is not the whole of buffer {buffer.id}, which is {whole!r}, and has no strides")
        return
    if len(operand.strides) != len(seen.shape):
        raise refused(f"{place}.strides", f"expected one for each of {len(seen.shape)} dimensions")
    room = whole.nbytes // seen.dtype.itemsize
    if seen.numel:
        steps = [(size - 1) * stride for size, stride in zip(seen.shape, operand.strides, strict=True)]
        lowest = operand.offset + sum([step for step in steps if step < 0])
        highest = operand.offset + sum([step for step in steps if step > 0])
        if lowest < 0 or highest >= room:
            raise refused(place, f"it reaches beyond buffer {buffer.id}, which is {whole!r}")
    elif operand.offset < 0:  # that of a view without elements may be anything else, and nothing is read there
        raise refused(f"{place}.offset", "expected a number from 0 on")


def _check_op(job: Job, op: JobOp, place: str) -> None:
    for what in ("inputs", "outputs"):
        operands: Sequence[Operand] = getattr(op, what)
        for position, operand in enumerate(operands):
            _check_operand(job, operand, f"{place}.{what}[{position}]")
    if op.kind in BOUNDARY:
        if op != JobOp(BOUNDARY[op.kind], op.inputs, op.outputs, kind=op.kind):
            raise refused(place, f"expected a {BOUNDARY[op.kind]} of operands and nothing else")
        return
    if not op.outputs:
        raise refused(f"{place}.outputs", "an op writes something")
    for name in ("stage", "cost"):
        if getattr(op, name) < 0:
            raise refused(f"{place}.{name}", "expected 0 or more")
    for position, scalar in enumerate(op.scalars):
        if isinstance(scalar, Drawn):
            if not 0 <= scalar.draw < len(job.draws) or scalar.part not in (0, 1):
                raise refused(f"{place}.scalars[{position}]", f"the job does not draw {scalar}")
        elif type(scalar) not in (bool, int, float, complex):
            raise refused(f"{place}.scalars[{position}]", f"{shown(scalar)} is no number")
    given = tuple([it.meta for it in op.inputs])
    made = tuple([output.meta for output in op.outputs])
    if op.kind in ("call", "into"):
        _check_inferred(op, made, place)
    elif op.kind in GATHERING and job.micro_batches == 1:
        raise refused(f"{place}.kind", f"{op.kind!r} is of micro-batches, and the job has none")
    elif op.kind != "update" and not _fits(op.kind, given, made, job.micro_batches):
        raise refused(place, f"{op.kind!r} does not make {list(made)} of {list(given)}")
    if (op.op == "to_device") != (op.kind == "transfer"):
        raise refused(f"{place}.kind", f"{op.op} cannot be of the kind {op.kind!r}")
    if op.kind == "transfer" and op.attributes != (made[0].dtype,):
        raise refused(f"{place}.attributes", f"a copy to a device is of {made[0].dtype}, not of {op.attributes!r}")


def _check_inferred(op: JobOp, made: tuple[TensorMeta, ...], place: str) -> None:
    found = OPS.get(op.op)
    if found is None or found.form is None:
        raise refused(f"{place}.op", f"this vmflow has no op {shown(op.op)}")
    problem = misfit(found.form, [operand.meta for operand in op.inputs], op.attributes, op.scalars)
    if problem is not None:
        raise refused(place, f"{op.op} cannot be called so: {problem}")
    try:
        inferred: OpPlan = op.infer()
    except Exception as error:
        # An op's rule may stumble over attributes that no call would give it, in ways of its own.
        raise refused(place, f"{op.op} cannot be called so: {type(error).__name__}: {error}") from error
    if [output.shape for output in inferred.outputs] != [it.shape for it in made]:
        raise refused(f"{place}.outputs", f"{op.op} makes {list(inferred.outputs)} of such inputs, not {list(made)}")
    # What is written into memory that exists is cast to its dtype.
    if op.kind == "call" and [output.dtype for output in inferred.outputs] != [it.dtype for it in made]:
        raise refused(f"{place}.outputs", f"{op.op} makes {list(inferred.outputs)} of such inputs, not {list(made)}")


def _fits(kind: str, given: tuple[TensorMeta, ...], made: tuple[TensorMeta, ...], count: int) -> bool:
    """Whether an op that moves data makes this of that."""
    if len(given) != len(made) or (kind == "transfer" and len(made) != 1):
        return False
    for one, other in zip(given, made, strict=True):
        if one.dtype is not other.dtype:
            return False
        if kind in ("transfer", "accumulate"):
            fits = one.shape == other.shape
        elif kind == "unpack":
            fits = bool(other.shape) and tuple(one.shape) == (other.shape[0] * count, *other.shape[1:])
        else:
            fits = tuple(other.shape) == ((one.shape[0] * count, *one.shape[1:]) if one.shape else (count,))
        if not fits:
            return False
    return True


def _checked_constants(job: Job, constants: Mapping[int, Array]) -> dict[int, Array]:
    wanted = {it.id: it for it in job.buffers.values() if it.role == "constant"}
    for number in sorted(constants.keys() ^ wanted.keys()):
        problem = "it is missing" if number in wanted else "the job has no such constant"
        raise refused(f"constant {number}", problem)
    for number, buffer in wanted.items():
        _check_array(buffer, constants[number])
    return {number: constants[number] for number in wanted}


def _check_array(buffer: Buffer, array: Array) -> None:
    expected = buffer.meta
    if tuple(array.shape) != tuple(expected.shape) or array.dtype != expected.dtype.numpy:
        raise refused(f"constant {buffer.id}", f"expected {expected!r}, found {array.dtype}{list(array.shape)}")


_declared: list[bool] = []


def declare_all_ops() -> None:
    """Load every module that declares ops; usually they are loaded by the layers that need them."""
    if _declared:
        return
    for found in pkgutil.walk_packages(ops.__path__, "vmflow.ops."):
        importlib.import_module(found.name)
    importlib.import_module("vmflow.nn.functional")
    importlib.import_module("vmflow.nn.init")
    _declared.append(True)


# Checks of plans


def _plan(kind: type[Plan], content: dict[str, Any]) -> Plan:
    plan: Plan = from_json(content, kind, "plan")
    tasks = {task.id for task in plan.tasks}
    registers = {register.id for register in plan.registers}
    for what, owners, known in (
        ("chains", plan.chains, tasks),
        ("gathers", plan.gathers, tasks),
        ("contents", plan.contents, registers),
    ):
        for number in owners:
            if number not in known:
                raise refused(f"plan.{what}[{number}]", "the plan has no such task or register")
    for number, chain in plan.chains.items():
        place = f"plan.chains[{number}]"
        for name in ("ops", "inputs", "numbers", "outputs", "kept", "straight"):
            if any([it < 0 for it in getattr(chain, name)]):
                raise refused(f"{place}.{name}", "expected numbers from 0 on")
        outside = [it for it, offset in chain.arena.offsets.items() if not 0 <= offset <= chain.arena.nbytes]
        if outside:
            raise refused(f"{place}.arena.offsets[{outside[0]}]", f"it lies beyond {chain.arena.nbytes} bytes")
    if plan.launches_at_once < 1:
        raise refused("plan.launches_at_once", f"expected 1 or more, found {plan.launches_at_once}")
    # Plans are tried out by running them, which must come to an end.
    counts = [(f"tasks[{at}]", task.count) for at, task in enumerate(plan.tasks)]
    counts += [(f"registers[{at}]", register.count) for at, register in enumerate(plan.registers)]
    for place, count in counts:
        if count > _MOST_SLOTS:
            raise refused(f"plan.{place}.count", f"there are more than {_MOST_SLOTS}")
    if len({task.count for task in plan.tasks} - {1}) > 1:
        raise refused("plan.tasks", "all that count have the same count, of a launch's micro-batches")
    try:
        check(plan.tasks, plan.registers)
    except ValueError as error:
        raise refused("plan", str(error)) from error
    return plan
