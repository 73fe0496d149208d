"""`Driver`: runs the turns of one machine, in each of which its engine schedules and instructions are launched.

No thread exists for scheduling only.  One thread at a time drives the machine, under the turn lock:

- a running event loop, mostly by `call_soon` callbacks, each under a time budget;
- a thread that waits for a result, or one without a loop that has issued enough to be worth a turn;
- a worker that has finished an instruction.

An instruction issued while nothing is outstanding needs no turn if `Driver.run` can run it: it runs as it is issued.

Three rules keep every waiter from sleeping for ever.  A thread or loop that finds the lock taken, or nothing to do,
adds its waker before it looks once more.  A thread that releases the lock, or stops waiting, wakes the threads and
loops of the wakers if there is anything to do.  It wakes all of them, since any one may be unable to run turns: a loop
may be stopped, or its thread blocked.
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

# An instruction, its `Outcome`, and whether this is the report of its stream's worker, which has run an item.
Report: TypeAlias = tuple[Instruction, Outcome, bool]


@final
class Driver:
    """Runs the turns of one machine: the engine schedules, and the instructions it returns are launched.

    Attributes:
        turn_lock: held by the thread that runs turns, or that runs an instruction inline.
        shield: holds back Ctrl-C on the main thread during turns and during runs of `at_hand`.
        call_in_context: calls a function in the `contextvars.Context` of turns and inline kernels.
        at_hand: the instruction that runs inline and must not be left half done; None without one.
        refusing: whether new instructions are refused, because the machine ends.
        chain: in a script, the `Links` of elementwise ops that wait for further ops; None without any.
    """

    def __init__(self, machine: VirtualMachine) -> None:
        self._machine = machine
        # The machine again, with the type of its compiled base class, whose fields compiled code reads faster.
        self._fields: MachineFields = machine
        self.turn_lock = TurnLock()
        self.shield = Shield()
        self.at_hand: Instruction | None = None
        self.refusing = False
        self.forget()

    def forget(self) -> None:
        """Set up the driver's state that belongs to threads; a forked child may repeat this, to forget its parent's."""
        # The `contextvars.Context` of turns and inline kernels.  A forked child needs a new one, since it can never
        # enter a context that another thread had entered at the fork.  Instructions issued in it, for instance by a
        # signal handler, go to this machine.
        context = running.quiet_context()
        context.run(MODE.set, Mode(machine=self._machine))
        self.call_in_context: Callable[..., Any] = context.run
        self.chain: Links | None = None
        # The instructions that the engine has launched and that have not run yet: the driving thread stopped before
        # them, for instance when its time was up.
        self._launched: deque[Instruction] = deque()
        self._reports: deque[Report] = deque()
        # Whether the wakers have been woken for a report that is not collected yet.
        self._woken = False
        # The wakers of the threads and loops that will run turns as soon as there is something to do.
        self._wakers: deque[ThreadWaker | LoopWaker] = deque()
        # An exception such as SystemExit from a callback, which the driving thread raises when its turn has ended.
        self._escaping: BaseException | None = None

    def refuse(self) -> None:
        """Refuse new instructions from now on."""
        self.refusing = True

    def forget_others(self) -> None:
        """Forget all wakers, and that reports come from workers, in a child that the driving thread has forked."""
        self._wakers.clear()
        self._reports = deque([(instruction, outcome, False) for instruction, outcome, _ in self._reports])

    def forget_at_hand(self) -> None:
        """Forget the instruction that ran inline, in a forked child: a thread of the parent was running it."""
        self.at_hand = None

    # Turns

    def drive(self, until: Instruction | None = None, deadline: float = 0.0) -> bool:
        """Run turns until nothing can go on, `until` has ended, or `time.perf_counter` is at `deadline` (0: none).

        The turns also end for Ctrl-C, for an exception such as SystemExit, which is raised here, and if another thread
        wants the turn lock.  Returns whether turns were run: not if any thread has that lock, this one included, or if
        this thread runs a function for a device.
        """
        if on_a_device():
            return False
        chain = self.chain
        if chain is not None:
            self.chain = None
            chain.end()
        if not deadline:
            self._fields.loops.forget_closed()
        # The shield is raised first: a Ctrl-C right after the lock is taken would leave it taken for ever.
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
                        # Other threads may wait for instructions that this thread has passed to a device: they are
                        # woken to wait for the device.
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
        """Run turns on the thread of a worker that has finished an instruction; returns whether it ran any.

        Without these turns, the worker would idle between two heavy instructions until another thread gives it the
        second one.  The turns stop after `turn_budget`, since the worker shares the interpreter with event loops.
        """
        # If an exception is to end the program, the worker leaves the turns to the waiting thread, which raises it.
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
        """Run turns now, or, if a loop runs on this thread, have the loop run them soon."""
        loop = running_loop()
        if loop is None:
            self.drive()
        else:
            self._fields.loops.arm(loop)

    def begin_chain(self, instruction: Instruction) -> None:
        """Run turns for a heavy instruction that a script has issued, unless it may begin a chain of elementwise ops.

        An instruction that may begin one waits for the script's next instruction, which may join the chain.
        """
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
                    # Only instructions without cost can be left in `launched`, such as releases of memory.  They are
                    # run, too, so that the next op can run inline.
                    until = None
            while launched:
                instruction = launched.popleft()
                spent += instruction.cost + 1000
                running.launch(machine, instruction)
                if lock.wanted():
                    return  # another thread wants the turn lock, and gets it now

                # The clock is read only now and then, since reading it takes time, too.
                if deadline and spent > 100_000:
                    spent = 0
                    if time.perf_counter() > deadline:
                        return
            if shield.interrupted or self._escaping is not None:
                return
            # The deadline is checked here, too, for turns that launch nothing because the streams are full.
            if deadline and spent > 100_000:
                spent = 0
                if time.perf_counter() > deadline:
                    return
            if not (engine.has_work() or self._reports or (completion.in_use and self.collect_finished())):
                return

    def turn(self) -> None:
        """Let the engine schedule once, queue the instructions that it launches, and wake waiters of erased ones."""
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
        """Return the instructions that the engine has launched and that have not run yet, in order."""
        return list(self._launched)

    def take_launched(self) -> list[Instruction]:
        """Remove and return the launched instructions that have not run; they will not be run."""
        taken = list(self._launched)
        self._launched.clear()
        return taken

    # Reports

    def report(self, instruction: Instruction, outcome: Outcome, from_worker: bool) -> None:
        """Report an instruction that a worker has run, or a deferred one that has ended; any thread may call this."""
        self._reports.append((instruction, outcome, from_worker))
        if from_worker and self.drive_from_worker():
            return
        if self._machine.closed:
            self._collect_late()
        elif not self._woken:
            self._woken = True
            self.wake()

    def _collect_late(self) -> None:
        """Collect reports on a closed machine, whose turns nobody else runs, once no thread has the turn lock."""
        if not self.turn_lock.acquire(blocking=False):
            self.turn_lock.when_free(self._collect_late)
            return
        try:
            self.collect_reports()
        finally:
            self.turn_lock.release()

    def collect_reports(self) -> None:
        """Tell the engine about all reported instructions that have ended; the caller must have the turn lock."""
        # The flag is cleared before the reports are read, so that a report that comes later wakes somebody again.
        self._woken = False
        reports = self._reports
        while reports:
            instruction, outcome, from_worker = reports.popleft()
            if from_worker:
                self._machine.devices.ran(instruction.stream)
            if instruction.state == LAUNCHED:  # else the instruction was reported in another way, or abandoned
                running.conclude(self._machine, instruction, outcome)
        if self.refusing:
            self._machine.lifecycle.hand_over()

    def reported(self) -> list[Instruction]:
        """Return the instructions that have been reported to the driver and not yet to the engine."""
        return [instruction for instruction, _, _ in self._reports]

    def add_reports(self, ended: Iterable[tuple[Instruction, Outcome]]) -> None:
        """In a child that the driving thread has forked, report instructions that were left to the parent's threads."""
        self._reports.extend([(instruction, outcome, False) for instruction, outcome in ended])

    def collect_finished(self) -> bool:
        """Tell the engine about the instructions that devices have finished; returns whether there were any."""
        finished = self._machine.completion.take_finished()
        for work in finished:
            running.finished_on_device(self._machine, work)
        return bool(finished)

    def finish_running(self) -> None:
        """Wait for devices, and up to `GRACE_SECONDS` for each busy worker; report ended instructions to the engine."""
        machine = self._machine
        for stream in machine.streams():
            if stream.worker is not None and stream.posted:
                stream.worker.wait_until_idle(GRACE_SECONDS)
        machine.completion.synchronize()
        self.collect_reports()
        self.collect_finished()

    # Exceptions that end the program

    def let_escape(self, error: BaseException | None) -> None:
        """Have the driving thread raise `error`, such as SystemExit from a callback, after its turn; None: no error."""
        self._escaping = error

    def take_escaping(self) -> BaseException | None:
        """Remove and return the exception that the caller must raise when its turn has ended; None without one."""
        escaping, self._escaping = self._escaping, None
        return escaping

    # Waking

    def inside(self) -> bool:
        """Whether this thread is running turns or an instruction of this machine, or a function for a device."""
        me = _get_ident()
        return self.turn_lock.owner == me or self._machine.devices.is_worker(me) or on_a_device()

    def can_go_on(self) -> bool:
        """Whether another turn would launch, run or report instructions."""
        return bool(self._launched or self._reports) or self._fields.engine.has_work()

    def add_waker(self, waker: ThreadWaker | LoopWaker) -> None:
        """Have `waker` woken when there is something to do, for its thread or loop to run turns."""
        if waker not in self._wakers:
            self._wakers.append(waker)

    def waker_count(self) -> int:
        """Return the number of threads and loops that will run turns as soon as there is something to do."""
        return len(self._wakers)

    def wake(self) -> None:
        """Wake the threads and loops of all wakers, and forget the wakers."""
        while self._wakers:
            try:
                waker = self._wakers.popleft()
            except IndexError:  # another thread has taken the last waker
                return
            waker.wake()

    def pass_on(self) -> None:
        """Wake all threads and loops that wait to run turns, if a turn would do anything."""
        if self._wakers and self.can_go_on():
            self.wake()

    # Inline calls

    def run(
        self, policy: InstructionPolicy, stream: Stream, cost: int, mode: Mode | None, whole: Instruction | None = None
    ) -> bool:
        """Run a policy inline, in this call, if the turn lock is free and `_is_next` allows it; returns whether it ran.

        Without `whole`, it does not run either if memory is lacking.  If `compute` raises an `Exception`, the outputs
        hold the failure, as with an instruction.

        Args:
            policy, stream: the policy, and the stream that it belongs to.
            cost: the nanoseconds that it is expected to take.
            mode: the mode in which it was issued.
            whole: the policy's instruction if Ctrl-C must wait for its end, or if the policy needs more than `compute`
                (Ctrl-C waits then, too); else None.
        """
        lock = self.turn_lock
        # The type is Any, since mypyc would otherwise box the int again for each attribute that keeps it.
        me: Any = _get_ident()
        # These lines are `TurnLock.take` written out: a call could raise KeyboardInterrupt as it returns, with the lock
        # taken.
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
                    return False  # the policy is issued as an instruction, which can wait for others to release memory
            try:
                self.call_in_context(_COMPUTE, policy)
            except Exception as error:
                poison(self._machine, Instruction(stream, policy, (), (), 0, None, 0, mode), error)
            return True
        finally:
            # The lock is released by an assignment, before any call that could raise KeyboardInterrupt.
            lock.owner = None
            if lock.wanted() or self._wakers:
                self._let_others()

    def _is_next(self, stream: Stream, cost: int) -> bool:
        """Whether a new instruction may run now, inline on this thread; the caller must have the turn lock.

        False, for instance, if an instruction is outstanding, if the loop's time for inline calls is up, or if a turn
        would not run the new one on the scheduling thread.
        """
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
            return False  # a machine that was entered on a loop runs nothing inline on other loops and threads
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
        """Offer the free lock to a thread that sleeps for it; wake all waiting threads and loops if a turn is due."""
        if self.turn_lock.wanted():
            self.turn_lock.wake()
        self.pass_on()


def _compute(policy: InstructionPolicy) -> None:
    policy.compute()


# A Final variable: compiled code would look up the global function `_compute` at each use.
_COMPUTE: Final = _compute


def _run_whole(machine: VirtualMachine, instruction: Instruction, policy: InstructionPolicy) -> None:
    failure = running.prepare(machine, instruction, policy) if policy.prepares else None
    running.run(machine, instruction, failure)
