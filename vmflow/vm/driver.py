"""`Driver`: the turns of one machine, run by one thread at a time under the turn lock.

There is no scheduling thread.  Three kinds of callers drive:

- a running event loop, by one `call_soon` callback per loop turn, under a time budget;
- a thread without a loop that waits for a result, or that has issued enough to be worth a turn;
- a worker that has finished an instruction.

An instruction that such a thread issues while nothing is outstanding needs no turn: it runs as it is issued.

Three rules keep every waiter from sleeping for ever.  A driver that finds the lock taken, or nothing to do, adds its
waker before it looks once more.  A thread that releases the lock, or stops waiting, wakes the wakers if there is
anything to do.  It wakes all of them, since any one may be unable to drive: a loop may be stopped, or its thread may be
blocked in a wait.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from vmflow.context import MODE, Mode
from vmflow.errors import OutOfMemory
from vmflow.instructions.instruction import ERASED, LAUNCHED, Instruction
from vmflow.instructions.policy import InstructionPolicy
from vmflow.streams.stream import Stream

from . import running
from .completion import on_a_device
from .failing import poison
from .interrupts import Shield
from .outcome import Outcome
from .settings import GRACE_SECONDS
from .turn_lock import TurnLock
from .wakers import LoopWaker, ThreadWaker, running_loop

if TYPE_CHECKING:
    from vmflow.instructions.chain import Links

    from .machine_fields import MachineFields
    from .virtual_machine import VirtualMachine

_get_ident: Final = threading.get_ident

# An instruction that has ended on another thread, its outcome, and whether that thread is a worker.
Report: TypeAlias = tuple[Instruction, Outcome, bool]


@final
class Driver:
    """Runs the turns of one machine.

    Args:
        machine: the machine.

    Attributes:
        turn_lock: the right to drive.
        shield: holds back Ctrl-C during turns.
        call_in_context: calls a function in the context of kernels.
        at_hand: the instruction that runs inline now and must not be left half done; None if there is none.
        refusing: whether new work is refused.
        chain: in a script, the chain that waits for further members.
    """

    def __init__(self, machine: VirtualMachine) -> None:
        self._machine = machine
        # The machine again: compiled code reads the fields of this type without a check of its class.
        self._fields: MachineFields = machine
        self.turn_lock = TurnLock()
        self.shield = Shield()
        self.at_hand: Instruction | None = None
        self.refusing = False
        self.forget()

    def forget(self) -> None:
        """Set up the state that belongs to threads; a forked child does so again, since it has none of them."""
        # The context of turns and kernels.  A forked child needs a new one, since it can never enter a context that
        # another thread has entered.  Instructions issued in it, by a signal handler say, go to this machine.
        context = running.quiet_context()
        context.run(MODE.set, Mode(machine=self._machine))
        self.call_in_context: Callable[..., Any] = context.run
        self.chain: Links | None = None
        # Launched and not yet run, because the time budget ran out in between.
        self._launched: deque[Instruction] = deque()
        self._reports: deque[Report] = deque()
        # Whether the wakers have been woken for a report.
        self._woken = False
        # Wakers of the threads and loops that would drive if there were something to do.
        self._wakers: deque[ThreadWaker | LoopWaker] = deque()
        # The driver raises this once its turn has ended.
        self._escaping: BaseException | None = None

    def refuse(self) -> None:
        """Refuse new work from now on."""
        self.refusing = True

    def forget_others(self) -> None:
        """Drop the wakers and workers of other threads, in a forked child whose only thread drives."""
        self._wakers.clear()
        self._reports = deque([(instruction, outcome, False) for instruction, outcome, _ in self._reports])

    def forget_at_hand(self) -> None:
        """Forget the inline call `at_hand` in a forked child: it belonged to a thread that does not exist there."""
        self.at_hand = None

    # Turns

    def drive(self, until: Instruction | None = None, deadline: float = 0.0) -> bool:
        """Run turns until there is nothing to do, `until` is erased or the deadline has passed.

        Returns False if another thread drives.
        """
        if on_a_device():
            return False
        chain = self.chain
        if chain is not None:
            self.chain = None
            chain.end()
        if not deadline:
            self._fields.loops.forget_closed()
        # The shield comes first: an interrupt after the lock was taken would leave it taken for ever.
        shielded = self.shield.raise_it()
        escaping: BaseException | None = None
        try:
            if not self.turn_lock.acquire(blocking=False):
                return False
            try:
                self.call_in_context(self._turns, until, deadline)
            finally:
                escaping = self.take_escaping()
                self.turn_lock.release()
                if self._wakers:
                    if not deadline and self._machine.completion.busy() is not None:
                        # Other threads may have to wait for work that this thread has given to a device.
                        self.wake()
                    else:
                        self.pass_on()
        finally:
            if shielded:
                self.shield.lower()
        if escaping is not None:
            raise escaping
        return True

    def drive_from_worker(self) -> bool:
        """Drive on the thread of a worker that has finished an instruction; False if another thread drives.

        Otherwise the worker would idle between two heavy instructions until a loop gives it the second one.  It stops
        after the time budget of a loop's turn, since it shares the interpreter with the loop.
        """
        # An exception that ends the program is raised by the thread that waits.
        if self._escaping is not None or not self.turn_lock.acquire(blocking=False):
            return False
        machine = self._machine
        try:
            self.call_in_context(self._turns, None, time.perf_counter() + machine.turn_budget)
        finally:
            self.turn_lock.release()
        if self.can_go_on() or self._escaping is not None or machine.completion.busy() is not None:
            self.wake()
        return True

    def go_on(self) -> None:
        """Drive, or let the running loop drive, for instructions that were issued during an inline call."""
        loop = running_loop()
        if loop is None:
            self.drive()
        else:
            self._fields.loops.arm(loop)

    def begin_chain(self, instruction: Instruction) -> None:
        """Drive for a heavy instruction that a script has issued; if it may begin a chain, wait for the next."""
        policy = instruction.policy
        self.chain = policy.chain(instruction) if policy is not None and self._fields.engine.fuse_below else None
        if self.chain is None:
            self.drive()

    def _turns(self, until: Instruction | None, deadline: float) -> None:
        machine = self._machine
        engine = self._fields.engine
        launched = self._launched
        shield = self.shield
        completion = machine.completion
        lock = self.turn_lock
        spent = 0
        while True:
            if self._reports or self._woken:
                self.collect_reports()
            if self._fields.releases.noted:
                self._fields.releases.issue()
            if not launched:
                spent += 3000 * min(len(engine.pending), engine.window)
                self.turn()
                if until is not None and until.state == ERASED:
                    if engine.pending or any([instruction.cost for instruction in launched]):
                        return
                    # Instructions without cost, which give memory back or the like, are run so that the next op can
                    # run inline.
                    until = None
            while launched:
                instruction = launched.popleft()
                spent += instruction.cost + 1000
                running.launch(machine, instruction)
                if lock.wanted():
                    return  # another thread sleeps on the lock, and has its turn first
                # Reading the clock for each instruction would take a tenth of its time.
                if deadline and spent > 100_000:
                    spent = 0
                    if time.perf_counter() > deadline:
                        return
            if shield.interrupted or self._escaping is not None:
                return
            # Also if the streams are full and turns only absorb pending instructions.
            if deadline and spent > 100_000:
                spent = 0
                if time.perf_counter() > deadline:
                    return
            if not (engine.has_work() or self._reports or (completion.in_use and self.collect_finished())):
                return

    def turn(self) -> None:
        """One turn of the engine; its launches are queued after the earlier ones."""
        machine = self._machine
        engine = self._fields.engine
        if machine.completion.in_use:
            self.collect_finished()
        self._launched.extend(engine.schedule())
        if engine.erased:
            machine.waiters.settle(engine.erased)
            machine.back_pressure.wake_if_low()
            if self._fields.races is not None and engine.idle():
                self._fields.races.quiet()

    def launched(self) -> list[Instruction]:
        """The instructions that were launched and have not been run yet, in order."""
        return list(self._launched)

    def take_launched(self) -> list[Instruction]:
        """Remove and return the instructions that were launched and not run; they will not be run."""
        taken = list(self._launched)
        self._launched.clear()
        return taken

    # Reports

    def report(self, instruction: Instruction, outcome: Outcome, from_worker: bool) -> None:
        """Report to the driving thread that an instruction has ended on another one; from any thread."""
        self._reports.append((instruction, outcome, from_worker))
        if from_worker and self.drive_from_worker():
            return
        if not self._woken:
            self._woken = True
            self.wake()

    def collect_reports(self) -> None:
        """Pass the reports on to the engine; only with the lock."""
        # Cleared first: a later report wakes again, an earlier one is seen below.
        self._woken = False
        reports = self._reports
        while reports:
            instruction, outcome, from_worker = reports.popleft()
            if from_worker:
                self._machine.devices.ran(instruction.stream)
            if instruction.state == LAUNCHED:  # else it was reported in another way already, or abandoned
                running.conclude(self._machine, instruction, outcome)

    def reported(self) -> list[Instruction]:
        """The instructions whose reports have not been collected."""
        return [instruction for instruction, _, _ in self._reports]

    def add_reports(self, ended: Iterable[tuple[Instruction, Outcome]]) -> None:
        """Report instructions whose threads do not exist, in a forked child whose only thread drives."""
        self._reports.extend([(instruction, outcome, False) for instruction, outcome in ended])

    def collect_finished(self) -> bool:
        """Pass the work that devices have finished on to the engine; returns whether there was any."""
        finished = self._machine.completion.take_finished()
        for work in finished:
            running.finished_on_device(self._machine, work)
        return bool(finished)

    def finish_running(self) -> None:
        """Block until everything that workers and devices have been given has ended, and collect their reports."""
        machine = self._machine
        for stream in machine.streams():
            if stream.worker is not None and stream.posted:
                stream.worker.wait_until_idle(GRACE_SECONDS)
        machine.completion.synchronize()
        self.collect_reports()
        self.collect_finished()

    # Exceptions that end the program

    def let_escape(self, error: BaseException | None) -> None:
        """Let the driver raise `error` when its turn has ended: SystemExit or the like from a callback."""
        self._escaping = error

    def take_escaping(self) -> BaseException | None:
        """Remove and return the exception to be raised, for the caller to raise; None without one."""
        escaping, self._escaping = self._escaping, None
        return escaping

    # Waking

    def inside(self) -> bool:
        """Whether this thread is running an instruction of this machine, or work of a device."""
        me = _get_ident()
        return self.turn_lock.owner == me or self._machine.devices.is_worker(me) or on_a_device()

    def can_go_on(self) -> bool:
        """Return whether a turn would have something to do: instructions to schedule, to run, or reports to collect."""
        return bool(self._launched or self._reports) or self._fields.engine.has_work()

    def add_waker(self, waker: ThreadWaker | LoopWaker) -> None:
        """Wake `waker`, a thread's or loop's, when there is something to drive."""
        if waker not in self._wakers:
            self._wakers.append(waker)

    def waker_count(self) -> int:
        """The number of threads and loops that would drive if there were something to do."""
        return len(self._wakers)

    def wake(self) -> None:
        """Wake and forget all wakers."""
        while self._wakers:
            try:
                waker = self._wakers.popleft()
            except IndexError:  # another thread was faster
                return
            waker.wake()

    def pass_on(self) -> None:
        """Wake the wakers if there is something to do."""
        if self._wakers and self.can_go_on():
            self.wake()

    # Inline calls

    def run(
        self, policy: InstructionPolicy, stream: Stream, cost: int, mode: Mode | None, whole: Instruction | None = None
    ) -> bool:
        """Run a policy in this call if nothing is before it; returns whether it ran.

        If it raises, its outputs hold the failure, as those of an instruction would.

        Args:
            policy: the policy.
            stream: where it runs.
            cost: nanoseconds that it is expected to take.
            mode: the mode in which it was issued.
            whole: its instruction, if it must not be left half done, or needs more than `compute`; then Ctrl-C waits
                for its end.
        """
        lock = self.turn_lock
        # Any, since mypyc would box an int again for each place that keeps it.
        me: Any = _get_ident()
        # This is `TurnLock.take`, written out: a call could raise KeyboardInterrupt as it returns.
        if lock.owner is not None:
            return False
        lock.owner = lock.owner or me
        if lock.owner is not me:
            return False
        try:
            if not self._is_next(stream, cost):
                return False
            if whole is not None:
                self._run_whole(whole, policy)
                return True
            if policy.prepares:
                try:
                    policy.prepare_on(stream)
                except OutOfMemory:
                    return False  # an instruction may wait for memory that others release
            try:
                self.call_in_context(_COMPUTE, policy)
            except Exception as error:
                poison(self._machine, Instruction(stream, policy, (), (), 0, None, 0, mode), error)
            return True
        finally:
            # No call before this one, for the same reason.
            lock.owner = None
            if lock.wanted() or self._wakers:
                self._let_others()

    def _is_next(self, stream: Stream, cost: int) -> bool:
        """Return whether nothing is before a new call, and a turn would run it on this thread; only with the lock."""
        engine = self._fields.engine
        if (
            not self._fields.observers.inline
            or engine.pending
            or engine.lively.count
            or self.refusing
            or stream.posted
            or self._fields.releases.noted
            or stream.policy.asynchronous
        ):
            return False
        loop = running_loop()
        loops = self._fields.loops
        if loops.home is not None and loops.home is not loop:
            return False  # only its own loop drives this machine
        attached = loop is not None or loops.any()
        if not self._fields.devices.on_scheduler_thread(stream, cost, attached):
            return False
        return loop is None or loops.in_time(loop)

    def _run_whole(self, instruction: Instruction, policy: InstructionPolicy) -> None:
        shielded = self.shield.raise_it()
        self.at_hand = instruction
        try:
            self.call_in_context(_run_whole, self._machine, instruction, policy)
        finally:
            self.at_hand = None
            if shielded:
                self.shield.lower()

    def _let_others(self) -> None:
        """Wake the threads that sleep on the turn lock."""
        if self.turn_lock.wanted():
            self.turn_lock.wake()
        self.pass_on()


def _compute(policy: InstructionPolicy) -> None:
    policy.compute()


# Compiled code would look up a global function at each use.
_COMPUTE: Final = _compute


def _run_whole(machine: VirtualMachine, instruction: Instruction, policy: InstructionPolicy) -> None:
    failure = running.prepare(machine, instruction, policy) if policy.prepares else None
    running.run(machine, instruction, failure)
