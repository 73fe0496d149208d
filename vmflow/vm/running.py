"""Functions that run an instruction on this thread, a worker or a device, and report its end to the engine."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np

from vmflow.errors import OutOfMemory, RaceDetected
from vmflow.instructions.chain import Chain
from vmflow.instructions.deferred import Deferred
from vmflow.instructions.failure import Failure
from vmflow.instructions.fuse import FuseInstructionPolicy
from vmflow.instructions.instruction import Instruction
from vmflow.instructions.policy import InstructionPolicy
from vmflow.instructions.scope import scope_of

from . import memory
from .failing import dropped_failure_of, failure_of, poison
from .outcome import LATER, Later, Outcome

if TYPE_CHECKING:
    from .completion import DeviceWork
    from .virtual_machine import VirtualMachine


def launch(machine: VirtualMachine, instruction: Instruction) -> None:
    """Prepare an instruction, and run it on this thread or pass it to its stream's worker or device."""
    stream = instruction.stream
    policy = instruction.policy
    assert policy is not None
    failure: Failure | None = None
    if policy.prepares:
        if instruction.members is None:
            failure = prepare(machine, instruction, policy)
        elif not _prepare_chain(machine, instruction, cast(Chain, policy)):
            _run_in_turn(machine, instruction, cast(Chain, policy))
            return
    failure = _checked(machine, instruction, failure)
    if stream.policy.asynchronous:
        machine.completion.submit(instruction, failure)
    elif stream.posted == 0 and (machine.devices.on_scheduler_thread(stream, instruction.cost, machine.loops.any())):
        outcome = run(machine, instruction, failure)
        if outcome is None and machine.races is None:
            machine.engine.completed(instruction)
        else:
            conclude(machine, instruction, outcome)
    else:
        machine.devices.post(stream, (instruction, failure))


def _checked(machine: VirtualMachine, instruction: Instruction, failure: Failure | None) -> Failure | None:
    """Tell the race check, if any, of a launch; returns the failure of a race found, else `failure`."""
    if machine.races is not None:
        try:
            machine.races.launched(instruction)
        except RaceDetected as race:
            return failure_of(machine, instruction, race)
    return failure


def _prepare_chain(machine: VirtualMachine, instruction: Instruction, chain: Chain) -> bool:
    """Prepare the members of a chain whose results need memory, unless a scope has dropped them.

    Returns False if the device has too little memory for all; then none is prepared.
    """
    if not _wanted(machine, instruction):
        return True
    try:
        for member in chain.members:
            if member not in chain.passed_on:
                cast(InstructionPolicy, member.policy).prepare(member)
    except OutOfMemory:
        chain.give_back()
        return False
    return True


def _run_in_turn(machine: VirtualMachine, instruction: Instruction, chain: Chain) -> None:
    """Run the members of a chain one by one, or pass them to their device, each before the next is prepared.

    So they need no more memory than if they had not been fused: memory that earlier members are the last to read can be
    released for the next member.
    """
    stream = instruction.stream
    if stream.policy.asynchronous:
        for at, member in enumerate(chain.members):
            failure = prepare(machine, member, cast(InstructionPolicy, member.policy), chain.members[at:])
            failure = _checked(machine, member, failure)
            machine.completion.submit(member, failure, instruction)
        return
    while stream.worker is not None and stream.posted:  # earlier instructions of the stream come first
        stream.worker.wait_until_idle()
        machine.driver.collect_reports()
    for at, member in enumerate(chain.members):
        failure = prepare(machine, member, cast(InstructionPolicy, member.policy), chain.members[at:])
        outcome = run(machine, member, _checked(machine, member, failure))
        if isinstance(outcome, Failure):
            chain.failed.append((member, outcome))
    conclude(machine, instruction, chain.failed[0][1] if chain.failed else None)


def prepare(
    machine: VirtualMachine,
    instruction: Instruction,
    policy: InstructionPolicy,
    unrun: tuple[Instruction, ...] = (),
) -> Failure | None:
    """Prepare an instruction, unless its scope has dropped it; returns the failure, which `run` is to get, or None.

    Args:
        unrun: for a member of a chain that runs one by one, this member and the members after it.
    """
    if not _wanted(machine, instruction):
        return None
    failure: Failure | None
    try:
        try:
            policy.prepare(instruction)
        except OutOfMemory:
            failure = memory.rescue(machine, instruction, policy, unrun or (instruction,))
        else:
            return None
    except Exception as error:
        failure = failure_of(machine, instruction, error)
    if failure is not None:
        policy.preparing_failed(failure)
    return failure


def _wanted(machine: VirtualMachine, instruction: Instruction) -> bool:
    """Whether an instruction needs resources: not if its scope drops it."""
    scope, policy = scope_of(instruction), instruction.policy
    return scope is None or (policy is not None and not policy.droppable) or scope.dropped() is None


def run_on_worker(machine: VirtualMachine, item: tuple[Instruction, Failure | None]) -> None:
    """Run `item`, an instruction with its failure of preparation or None, on a worker's thread, and report it."""
    instruction, failure = item
    machine.driver.report(instruction, run(machine, instruction, failure), True)


def run(machine: VirtualMachine, instruction: Instruction, failure: Failure | None = None) -> Outcome:
    """Run an instruction; returns its own failure, `LATER`, or None (also if it was dropped or an operand has failed).

    With an earlier `failure`, such as one of `prepare`, only the outputs are poisoned.
    """
    if instruction.members is not None:
        return _run_members(machine, instruction, instruction.members, failure)
    policy = instruction.policy
    assert policy is not None
    tracer = machine.observers.tracer
    if tracer is not None:
        tracer.began(instruction)
    mode = instruction.mode
    if mode is not None and mode.scope is not None and policy.droppable:
        dropped = mode.scope.dropped()
        if dropped is not None:
            dropped = dropped_failure_of(instruction, dropped)
            policy.drop(dropped)
            if failure is not None:
                failure.observe()  # a dropped instruction's failure is not logged: it would not have run anyway
            if tracer is not None:
                tracer.ended(instruction, dropped)
            return None
    if failure is not None:
        policy.fail(failure)
        if tracer is not None:
            tracer.ended(instruction, failure)
        return failure
    outcome: Outcome = None
    try:
        policy.compute()
        if policy.deferred and cast(Deferred, policy).ends_later(partial(_ended, machine, instruction)):
            outcome = LATER
    except Exception as error:
        outcome = poison(machine, instruction, error)
    except BaseException as error:
        # A callback has raised SystemExit or the like: the instruction ends, and the driving thread raises the error.
        machine.driver.let_escape(error)
        outcome = poison(machine, instruction, error)
    if tracer is not None:
        tracer.ended(instruction, outcome)
    return outcome


def _run_members(
    machine: VirtualMachine, instruction: Instruction, members: tuple[Instruction, ...], failure: Failure | None
) -> Outcome:
    """Run the members of a fused instruction one by one, or those of a chain in one kernel if there is one.

    Returns the first failure, or None; the fused policy notes all failures.
    """
    fused = cast(FuseInstructionPolicy, instruction.policy)
    if isinstance(fused, Chain) and failure is None:
        kernel = _kernel_of_chain(machine, instruction)
        if kernel is not None:
            return _run_chain(machine, instruction, kernel)
    lacking = fused.passed_on if isinstance(fused, Chain) and instruction.stream.policy.asynchronous else ()
    for member in members:
        earlier = failure
        if earlier is None and member in lacking:
            # Results that only later members read (`passed_on`) get memory here, since on a device a kernel cannot
            # allocate any.
            earlier = prepare(machine, member, cast(InstructionPolicy, member.policy))
        outcome = run(machine, member, earlier)
        if isinstance(outcome, Failure):
            fused.failed.append((member, outcome))
    return fused.failed[0][1] if fused.failed else None


def _kernel_of_chain(machine: VirtualMachine, instruction: Instruction) -> Callable[[], None] | None:
    """Return a function that computes all members of a chain in one kernel; None if they have to run one by one."""
    scope = scope_of(instruction)
    if machine.races is not None or (scope is not None and scope.dropped() is not None):
        return None
    try:
        return cast(Chain, instruction.policy).kernel()
    except Exception:
        return None  # run one by one, the member that causes the error, such as OutOfMemory, will report it


def _run_chain(machine: VirtualMachine, instruction: Instruction, kernel: Callable[[], None]) -> Outcome:
    chain = cast(Chain, instruction.policy)
    tracer = machine.observers.tracer
    last = chain.members[-1]
    if tracer is not None:
        # The time of each member is unknown: the tracer is told that the last member takes all of it.
        for member in chain.members:
            tracer.began(member)
            if member is not last:
                tracer.ended(member, None)
    outcome: Outcome = None
    try:
        kernel()
        chain.computed()
    except BaseException as error:
        if not isinstance(error, Exception):
            machine.driver.let_escape(error)
        outcome = failure = poison(machine, instruction, error)
        chain.failed_together(failure)
    if tracer is not None:
        tracer.ended(last, outcome)
    return outcome


def _ended(machine: VirtualMachine, instruction: Instruction, error: Exception | None) -> None:
    """Report a deferred instruction that has ended later than its `compute` returned; any thread may call this."""
    policy = instruction.policy
    failure = None if error is None or policy is None else poison(machine, instruction, error)
    tracer = machine.observers.tracer
    if tracer is not None:
        tracer.finished(instruction, failure)
    machine.driver.report(instruction, failure, False)


def settle(machine: VirtualMachine, work: DeviceWork) -> Outcome:
    """Return the failure of launching an instruction, else one that a device has found in it or its inputs, else None.

    The outputs are made to hold a failure that the device has found.
    """
    instruction = work.instruction
    policy = instruction.policy
    assert policy is not None
    assert work.verdict is not None
    if work.outcome is not None and not (isinstance(policy, FuseInstructionPolicy) and policy.failed):
        return work.outcome  # the instruction failed before its kernel was launched
    error = work.verdict()
    return policy.settle(None if error is None else failure_of(machine, instruction, error))


def finished_on_device(machine: VirtualMachine, work: DeviceWork) -> None:
    """Tell the engine of an instruction that a device has finished; of a chain's members, at the last one's end."""
    _trace_times(machine, work)
    outcome = work.outcome if work.verdict is None else settle(machine, work)
    member, whole = work.instruction, work.chain
    if whole is None:
        conclude(machine, member, outcome)
        return
    chain = cast(Chain, whole.policy)
    if isinstance(outcome, Failure):
        chain.failed.append((member, outcome))
    if member is chain.members[-1]:
        conclude(machine, whole, chain.failed[0][1] if chain.failed else None)


def _trace_times(machine: VirtualMachine, work: DeviceWork) -> None:
    tracer, policy = machine.observers.tracer, work.instruction.stream.policy
    if tracer is not None and work.marks is not None and None not in work.marks:
        begin, end = [policy.nanoseconds(mark) for mark in work.marks]
        tracer.computed(work.instruction, begin, end)


def conclude(machine: VirtualMachine, instruction: Instruction, outcome: Outcome) -> None:
    """Tell the engine that an instruction has ended, with its outcome, unless the outcome is `LATER`."""
    if isinstance(outcome, Later):
        return
    if machine.races is not None:
        for launched in (instruction, *(instruction.members or ())):
            machine.races.finished(launched)
    if instruction.members is not None:
        for member, failure in cast(FuseInstructionPolicy, instruction.policy).failed:
            machine.engine.remember_failure(member, failure.error)
        machine.engine.completed(instruction)
    elif outcome is None:
        machine.engine.completed(instruction)
    else:
        machine.engine.failed(instruction, outcome.error)


def quiet_context() -> contextvars.Context:
    """Make a `contextvars.Context` where numpy, whose error state is a context variable, warns of no float errors."""
    context = contextvars.Context()
    context.run(np.seterr, all="ignore")
    return context
