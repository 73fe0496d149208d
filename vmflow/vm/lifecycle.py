"""`Lifecycle`: ends a virtual machine: finishes or drops all instructions, and wakes all waiters."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Final, cast

from vmflow.errors import VirtualMachineClosed
from vmflow.instructions.barrier import GlobalSync
from vmflow.instructions.failure import Failure
from vmflow.instructions.instruction import LAUNCHED, Instruction
from vmflow.instructions.policy import InstructionPolicy

from .failing import dropped_failure_of
from .waiting import Synchronization
from .wakers import running_loop

if TYPE_CHECKING:
    from .handover import HandoverOut
    from .virtual_machine import VirtualMachine

# The most seconds that an abort waits for the thread that is running turns; a worker's turns are usually shorter.
_A_TURN: Final = 0.02


class Lifecycle:
    """The state of one virtual machine, from running to closed, and the methods that end it.

    Attributes:
        state: "running", "draining", "closed" or "aborted"; see `VirtualMachine`.
        exiting: whether the interpreter exits, so that nobody will look at results any more.
    """

    exiting: ClassVar[bool] = False

    def __init__(self, machine: VirtualMachine) -> None:
        self._machine = machine
        self.state = "running"
        # The failures of instructions that perhaps nobody has seen yet; the unseen are logged when the machine closes.
        self._unseen: weakref.WeakSet[Failure] = weakref.WeakSet()
        # The handovers dropped by the closed machine that have not been ended: a running kernel may use their storages.
        self._handovers: list[HandoverOut] = []

    @classmethod
    def exit(cls) -> None:
        """Note that the interpreter exits."""
        cls.exiting = True

    @property
    def closed(self) -> bool:
        """Whether the state is "closed" or "aborted"."""
        return self.state in ("closed", "aborted")

    def remember(self, failure: Failure) -> None:
        """Remember a failure, to log it when the machine closes if nobody has seen it."""
        self._unseen.add(failure)

    def require_open(self, name: str) -> None:
        """Raise `VirtualMachineClosed` if the machine refuses new instructions; `name` is the instruction's name.

        As the interpreter exits, a daemon thread is blocked for ever instead.
        """
        machine = self._machine
        if machine.driver.refusing:
            if self.exiting and threading.current_thread().daemon:
                # The interpreter is about to stop this daemon thread anyway; an exception would only be noise.
                threading.Event().wait()
            raise VirtualMachineClosed(
                f"{name} was issued to the virtual machine {machine.name!r}, which is {self.state}; "
                "issue work inside its `async with` block"
            )

    def closed_failure(self) -> Failure:
        """Make the failure of instructions that are dropped because the machine was closed."""
        error = VirtualMachineClosed(f"dropped, because the virtual machine {self._machine.name!r} was closed")
        return Failure(error, dropped=True)

    def issue_sync(self) -> Instruction:
        """Issue and return a `GlobalSync` behind all issued instructions, even on a machine that refuses new ones."""
        machine = self._machine
        barrier = Instruction(machine.control_stream(), GlobalSync(machine.streams))
        tracer = machine.tracer
        if tracer is not None:
            tracer.issued(barrier)
        machine.engine.receive(barrier)
        return barrier

    async def shutdown(self, grace: float | None) -> None:
        """See `VirtualMachine.shutdown`."""
        machine = self._machine
        if self.state != "running":
            machine.close()
            return
        finished = self.issue_sync()
        self.state = "draining"
        machine.driver.refuse()
        loop = running_loop()
        assert loop is not None
        # At the deadline the machine is aborted and not closed, since waiting for a running instruction would block the
        # loop.
        deadline = None if grace is None else loop.call_later(grace, machine.abort)
        try:
            await Synchronization(machine, finished)
        finally:
            if deadline is not None:
                deadline.cancel()
            machine.close()

    def close(self, timeout: float) -> None:
        """Close a machine that is not closed; see `VirtualMachine.close`."""
        machine = self._machine
        if machine.handover.last_incoming is not None and not Lifecycle.exiting and timeout > 0:
            # A pending `HandoverIn` is waited for: if it were dropped, a storage that another machine may still be
            # writing would be free for its next user.
            machine.wait(machine.handover.last_incoming)
        machine.driver.refuse()
        deadline = time.monotonic() + timeout
        lock = machine.driver.turn_lock
        # The turn lock may be this thread's own, as when a signal handler that interrupts a turn closes the machine.
        if lock.owner == threading.get_ident() or not lock.acquire(timeout=max(timeout, _A_TURN)):
            self.state = "aborted"  # a turn or an inline kernel takes longer than the timeout, or calls this itself
            lock.when_free(self._end_later)
            return
        try:
            if machine.closed:
                return
            self.state = "closed"
            self._end(deadline)
        finally:
            lock.release()
        self._clean_up()

    def _end_later(self) -> None:
        """End a machine that was closed while a thread had the turn lock; called when that thread has released it."""
        lock = self._machine.driver.turn_lock
        if not lock.acquire(blocking=False):
            lock.when_free(self._end_later)
            return
        try:
            self._end(time.monotonic())
        finally:
            lock.release()
        self._clean_up()

    def _end(self, deadline: float) -> None:
        """Stop the workers, wait for the devices, drop work that has not begun, and fail what still runs.

        The caller must have the turn lock.
        """
        machine = self._machine
        unrun = machine.driver.take_launched()
        unrun += [instruction for instruction, _ in machine.devices.stop_workers(deadline)]
        # Devices cannot drop work that was passed to them.  It must end before any instruction is dropped: a dropped
        # `HandoverOut` tells another machine that all accesses to the storage on this one have ended.
        machine.completion.synchronize()
        self.drop(unrun)
        machine.driver.collect_reports()
        machine.driver.collect_finished()
        # Other threads may have issued more instructions meanwhile; those that this turn launches are dropped, too.
        late = machine.engine.schedule()
        machine.waiters.settle(machine.engine.erased)
        self.drop(late)
        for instruction in machine.engine.lively:
            # An instruction has run for longer than the timeout: its outputs fail now.
            self.state = "aborted"
            if instruction.policy is not None:
                instruction.policy.fail(self.closed_failure())
            machine.waiters.settle(instruction.members or (instruction,))
        machine.back_pressure.wake()
        if not machine.engine.lively:
            # No instruction is left that uses the noted storages.
            machine.releases.forget()

    def _clean_up(self) -> None:
        self.drop_late()
        for unseen in list(self._unseen):
            unseen.report()

    def drop(self, unrun: list[Instruction]) -> None:
        """Erase all instructions not launched, and the launched ones in `unrun`, as dropped by the machine's end."""
        failure = self.closed_failure()

        def fail(instruction: Instruction) -> None:
            for member in instruction.members or (instruction,):
                cast(InstructionPolicy, member.policy).drop(dropped_failure_of(member, failure))

        self.abandon(unrun, fail)

    def abandon(self, unrun: list[Instruction], fail: Callable[[Instruction], None]) -> None:
        """Erase all instructions not launched, and the launched ones in `unrun`; see `VirtualMachineEngine.abandon`."""
        machine = self._machine
        for instruction in machine.engine.abandon(unrun, fail):
            tracer = machine.tracer
            if tracer is not None:
                tracer.abandoned(instruction)
            machine.waiters.settle((instruction,))
        self.hand_over()

    def hand_over_later(self, handover: HandoverOut) -> None:
        """Have `hand_over` end a handover that this machine drops."""
        self._handovers.append(handover)

    def hand_over(self) -> None:
        """Let other machines use the storages of dropped handovers that no running instruction of this one uses.

        The caller must have the turn lock.
        """
        if not self._handovers:
            return
        running = [instruction for instruction in self._machine.engine.lively if instruction.state == LAUNCHED]
        used = {dependence for instruction in running for dependence in (*instruction.reads, *instruction.writes)}
        for handover in list(self._handovers):
            if handover.dependence not in used:
                self._handovers.remove(handover)
                handover.incoming.end()

    def drop_late(self) -> None:
        """Drop instructions that a still running instruction has issued after the machine was closed.

        If a thread, even this one, has the turn lock, it drops them as it releases the lock.
        """
        machine = self._machine
        lock = machine.driver.turn_lock
        while machine.engine.pending:
            if not lock.acquire(blocking=False):
                lock.when_free(self.drop_late)
                return
            try:
                self.drop([])
            finally:
                lock.release()

    def refuse(self, instruction: Instruction) -> None:
        """Raise `VirtualMachineClosed` for an instruction that was issued while the machine closed.

        If no turn has seen the instruction, drop it.
        """
        machine = self._machine
        if machine.driver.turn_lock.owner == threading.get_ident():
            # The turn lock is held by this thread, which runs the instruction that has issued this one.
            self._withdraw(instruction)
        else:
            with machine.driver.turn_lock:
                if machine.closed:
                    self.drop([])
                else:
                    self._withdraw(instruction)
            # A loop that found the turn lock taken meanwhile sleeps, and must be woken.
            machine.driver.pass_on()
        machine.require_open(instruction.name)

    def _withdraw(self, instruction: Instruction) -> None:
        failure = self.closed_failure()

        def fail(withdrawn: Instruction) -> None:
            cast(InstructionPolicy, withdrawn.policy).fail(failure)

        # If the engine refuses to withdraw it, a turn has seen the instruction in between, and it will run or be
        # dropped as usual.
        if self._machine.engine.withdraw(instruction, fail):
            tracer = self._machine.tracer
            if tracer is not None:
                tracer.abandoned(instruction)
            self.hand_over()
