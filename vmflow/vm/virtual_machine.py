"""`VirtualMachine` drives an engine: it alone knows event loops, threads and clocks.

There is no scheduling thread.  Whoever has a reason to drive does it, one at a time, under the turn lock:

- a running event loop, by one `call_soon` callback per loop turn, under a time budget;
- a thread without a loop that waits for a result, or that has issued enough to be worth a turn.

A worker that finishes an instruction reports it and wakes those who wait.  Three rules keep anybody from being left
asleep: who finds the lock taken, or nothing to do, enlists before looking once more; who lets go of the lock, or stops
waiting, wakes the enlisted if anything is left to do; and all of them are woken, since any one may be unable to drive:
a loop may be stopped, or its thread may itself be blocked in a wait.
"""

from __future__ import annotations

import atexit
import contextvars
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from vmflow.context import MODE
from vmflow.devices import device as Device
from vmflow.errors import VirtualMachineClosed
from vmflow.instructions import origin
from vmflow.instructions.barrier import GlobalSync
from vmflow.instructions.blob import Storage
from vmflow.instructions.failure import Failure
from vmflow.instructions.instruction import ERASED, LAUNCHED, Dependence, Instruction
from vmflow.instructions.policy import InstructionPolicy
from vmflow.instructions.release_tensor import ReleaseTensor
from vmflow.streams import ControlStreamPolicy, CpuStreamPolicy, Stream, Worker

from . import interrupts
from .engine import WINDOW, VirtualMachineEngine
from .handover import Arrival, Departure
from .interrupts import Shield
from .wakers import FutureWaker, LoopWaker, ThreadWaker, call_soon, running_loop

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from types import TracebackType

# A script that only issues gets a turn each time this many instructions have gathered, or one this heavy (nanoseconds)
# comes: often enough to keep memory low, rarely enough to spread the cost of a turn.
_GATHER: Final = 32
_HEAVY: Final = 20_000

# Above this many lively instructions the issuer waits.  One costs about a kilobyte with its operands.
_HIGH_WATER: Final = 40_000

# How long exit and close wait for a kernel that is running; numpy cannot be interrupted.
_GRACE_SECONDS: Final = 2.0

_handover_lock = threading.Lock()
_machines: weakref.WeakSet[VirtualMachine] = weakref.WeakSet()


class VirtualMachine:
    """Orders and runs instructions.

    A script needs none: `default_machine` serves it.  A loop may have its own, with its own streams and workers:

        async with vmflow.VirtualMachine() as vm:
            ...   # what this task and its children issue goes to vm

    Leaving the block finishes what was issued, or drops what has not started if the block is left by an exception.

    Args:
        name: for reprs and thread names.
        window: the most instructions one turn absorbs.
        turn_budget: seconds a loop callback may drive before it lets the loop go on.
        gather: a script that only issues gets a turn each time this many instructions are pending.
        high_water: lively instructions above which the issuer drives or waits.
        cpu_worker: "auto", "always" or "never": see `CpuStreamPolicy`.
    """

    # Set as the interpreter exits, when nobody will look at anything any more.
    _exiting = False

    def __init__(
        self,
        name: str = "vm",
        *,
        window: int = WINDOW,
        turn_budget: float = 1e-3,
        gather: int = _GATHER,
        high_water: int = _HIGH_WATER,
        cpu_worker: str = "auto",
    ) -> None:
        if turn_budget <= 0:
            raise ValueError(f"turn_budget must be positive, not {turn_budget}")
        self.name = name
        self.engine = VirtualMachineEngine(window)
        self.turn_budget = turn_budget
        self.gather = gather
        self.high_water = high_water
        self.closed = False
        # Storages whose last tensor is gone, to be released behind what still uses them.
        self._released: deque[Storage] = deque()
        self._cpu_worker = cpu_worker
        self._streams: dict[tuple[Device | None, str], Stream] = {}
        self._streams_lock = threading.Lock()
        self._forget_threads()
        # numpy keeps its error state in a context variable: kernels run in a context in which inf and nan are silent.
        self._context = _quiet_context()
        self._shield = Shield()
        # Alive and perhaps never looked at; reported when the machine closes, at the latest.
        self._failures: weakref.WeakSet[Failure] = weakref.WeakSet()
        self._home: AbstractEventLoop | None = None
        self._mode_before: Any = None
        _machines.add(self)

    def _forget_threads(self) -> None:
        """Set up what belongs to threads and loops; a forked child does so again, having none of its parent's."""
        self._turn_lock = threading.Lock()
        self._driver: int | None = None
        # Launched and not yet run, because the time budget ran out in between.
        self._launched: deque[Instruction] = deque()
        self._reports: deque[tuple[Instruction, Failure | None]] = deque()
        self._woken = False
        # Those who would drive if there were something to do.
        self._enlisted: deque[ThreadWaker | LoopWaker] = deque()
        self._waiters: dict[Instruction, list[ThreadWaker | FutureWaker]] = {}
        self._armed: AbstractEventLoop | None = None
        self._loops: dict[AbstractEventLoop, LoopWaker] = {}
        self._departures: deque[tuple[VirtualMachine, Instruction]] = deque()
        self._last_arrival: Instruction | None = None
        self._escaping: BaseException | None = None

    # Streams

    def stream(self, device: Device, kind: str = "compute") -> Stream:
        """The stream of this kind on `device`."""
        stream = self._streams.get((device, kind))
        return stream if stream is not None else self._open_stream(device, kind)

    def control_stream(self) -> Stream:
        """The stream of barriers, which belongs to no device."""
        stream = self._streams.get((None, "control"))
        return stream if stream is not None else self._open_stream(None, "control")

    def streams(self) -> Iterable[Stream]:
        """All streams opened so far."""
        return list(self._streams.values())

    def _open_stream(self, device: Device | None, kind: str) -> Stream:
        policy: Any
        if device is None:
            policy = ControlStreamPolicy()
        else:
            device.require()
            if kind != "compute":
                raise ValueError(f"{device} has no stream of kind {kind!r}")
            policy = CpuStreamPolicy(worker=self._cpu_worker)
        with self._streams_lock:
            return self._streams.setdefault((device, kind), Stream(f"{device or 'host'}:{kind}", device, policy))

    # Issuing

    def issue(self, instruction: Instruction, written: Storage | None = None) -> None:
        """Accept an instruction.  Returns at once, except for back-pressure and the turns a script drives itself.

        Args:
            instruction: to run.
            written: a storage that it writes, which is told of its new writer.
        """
        pending = self.engine.pending
        # These two belong together: Python looks for signals after calls and jumps, hence not in between.  Otherwise
        # Ctrl-C could leave a storage waiting for an instruction that nobody was ever given.
        if written is not None:
            written.writer = instruction
        pending.append(instruction)
        self._accepted(instruction)

    def _accepted(self, instruction: Instruction) -> None:
        """See to it that somebody drives, now that `instruction` is pending."""
        engine = self.engine
        pending = engine.pending
        # Looked at after appending: whoever closes the machine drops what he finds after saying so.
        if self.closed:
            self._refuse(instruction)
        if self._enlisted:
            self._pass_on()
        loop = running_loop()
        if loop is not None:
            if self._armed is not loop:
                self._arm(loop)
        elif self._home is not None:
            if self._armed is None:
                self._arm_from_elsewhere(self._home)
        elif len(pending) >= self.gather or instruction.cost >= _HEAVY:
            self._drive()
        if len(engine.lively) + len(pending) > self.high_water:
            self._relieve(instruction, loop)

    def _refuse(self, instruction: Instruction) -> None:
        """Raise, having dropped what came after the end."""
        if self._driver == threading.get_ident():
            # The last instruction of a machine that could not wait for it issues another; its thread holds the lock.
            self.engine.pending.remove(instruction)
            if instruction.policy is not None:
                instruction.policy.fail(self._closed_failure())
            instruction.state = ERASED
        else:
            with self._turn_lock:
                self._drop([])
        raise VirtualMachineClosed(
            f"{instruction.name} was issued to the virtual machine {self.name!r}, which is closed; "
            "issue work inside its `async with` block"
        )

    def _relieve(self, instruction: Instruction, loop: AbstractEventLoop | None) -> None:
        """Bring the number of lively instructions down.

        On a loop's thread nothing may block; but a coroutine that issues so much without awaiting keeps the loop from
        running anyway, so that driving right here costs the loop nothing.
        """
        if loop is not None:
            self._drive()
        elif self._driver != threading.get_ident():
            self.wait(instruction)

    # Driving

    def _arm(self, loop: AbstractEventLoop) -> None:
        self._armed = loop
        loop.call_soon(self._loop_turn, loop)

    def _arm_from_elsewhere(self, loop: AbstractEventLoop) -> None:
        self._armed = loop
        if not call_soon(loop, self._loop_turn, loop):
            self._armed = self._home = None
            self._drive()

    def _loop_turn(self, loop: AbstractEventLoop) -> None:
        """The callback that drives from an event loop."""
        self._armed = None
        waker = self._loops.get(loop)
        if waker is None:
            self._forget_closed_loops()
            waker = self._loops[loop] = LoopWaker(loop, self._loop_turn)
        deadline = time.perf_counter() + self.turn_budget
        if not self._drive(None, deadline):
            self._enlist(waker)
            if not self._drive(None, deadline):
                return
        while self._departures and self._departures[0][1].state == ERASED:
            self._departures.popleft()
        if self._can_go_on():
            if self._armed is None:
                self._arm(loop)
        elif not self.engine.idle():
            self._enlist(waker)
            self._pass_on()

    def _forget_closed_loops(self) -> None:
        for loop in [loop for loop in list(self._loops) if loop.is_closed()]:
            self._loops.pop(loop, None)
            if self._armed is loop:
                self._armed = None

    def _drive(self, until: Instruction | None = None, deadline: float = 0.0) -> bool:
        """Run turns until nothing can go on, `until` is erased or the deadline has passed.

        Returns whether it did: not if somebody else is at it.
        """
        if self._loops and not deadline:
            self._forget_closed_loops()
        # The shield comes first: an interrupt after the lock was taken would leave it taken for ever.
        shielded = self._shield.raise_it()
        escaping: BaseException | None = None
        try:
            if not self._turn_lock.acquire(blocking=False):
                return False
            self._driver = threading.get_ident()
            try:
                self._context.run(self._turns, until, deadline)
            finally:
                self._driver = None
                escaping, self._escaping = self._escaping, None
                self._turn_lock.release()
                if self._enlisted:
                    self._pass_on()
        finally:
            if shielded:
                self._shield.lower()
        if escaping is not None:
            raise escaping
        return True

    def _turns(self, until: Instruction | None, deadline: float) -> None:
        engine = self.engine
        launched = self._launched
        shield = self._shield
        spent = 0
        while True:
            if self._reports or self._woken:
                self._collect_reports()
            if self._released:
                self._issue_releases()
            if not launched:
                launched.extend(engine.schedule())
                if engine.erased and self._waiters:
                    self._settle(engine.erased)
                if until is not None and until.state == ERASED:
                    return
            while launched:
                instruction = launched.popleft()
                spent += instruction.cost + 1000
                self._launch(instruction)
                # Looking at the clock at each instruction would cost a tenth of it.
                if deadline and spent > 100_000:
                    spent = 0
                    if time.perf_counter() > deadline:
                        return
            if not (engine.has_work() or self._reports) or shield.interrupted or self._escaping is not None:
                return

    def _launch(self, instruction: Instruction) -> None:
        """Run the instruction here, or hand it to the stream's worker."""
        stream = instruction.stream
        if stream.posted == 0 and stream.policy.on_scheduler_thread(instruction.cost, bool(self._loops)):
            failure = self._run(instruction)
            if failure is None:
                policy = instruction.policy
                if not (isinstance(policy, Arrival) and policy.ends_later):
                    self.engine.completed(instruction)
            else:
                self.engine.failed(instruction, failure.error)
            return
        worker = stream.worker
        if worker is None:
            context = _quiet_context()
            run: Callable[[Instruction], None] = partial(context.run, cast(Any, self._run_on_worker))
            worker = stream.worker = Worker(f"{self.name}:{stream.name}", run)
        stream.posted += 1
        worker.post(instruction)

    def _run(self, instruction: Instruction) -> Failure | None:
        """Prepare and compute; a failure poisons the outputs and is returned."""
        policy = instruction.policy
        assert policy is not None
        try:
            if policy.prepares:
                policy.prepare()
            policy.compute()
        except Exception as error:
            return self._poison(instruction, policy, error)
        except BaseException as error:
            # SystemExit or the like from a callback: the instruction ends, and so does whoever drives.
            self._escaping = error
            return self._poison(instruction, policy, error)
        return None

    def _poison(self, instruction: Instruction, policy: InstructionPolicy, error: BaseException) -> Failure:
        error.add_note(f"while running {policy.describe()}")
        error.add_note(f"issued at {origin.describe(instruction.code, instruction.last)}")
        failure = Failure(error)
        self._failures.add(failure)
        policy.fail(failure)
        return failure

    def _run_on_worker(self, instruction: Instruction) -> None:
        self._report(instruction, self._run(instruction))

    def _report(self, instruction: Instruction, failure: Failure | None) -> None:
        """An instruction has finished elsewhere than on the driving thread."""
        self._reports.append((instruction, failure))
        if not self._woken:
            self._woken = True
            self._wake()

    def _collect_reports(self) -> None:
        # Cleared before looking: whoever reports after this wakes anew, whoever reported before is seen below.
        self._woken = False
        reports = self._reports
        while reports:
            instruction, failure = reports.popleft()
            if instruction.policy.__class__ is not Arrival:
                instruction.stream.posted -= 1
            if failure is None:
                self.engine.completed(instruction)
            else:
                self.engine.failed(instruction, failure.error)

    def release(self, storage: Storage) -> None:
        """Give the memory of `storage` back behind everything issued so far.

        Called by destructors, hence from anywhere, also in the middle of a turn: this only leaves a note.  With nothing
        issued there is nothing to be behind, and the memory goes with the object.
        """
        if not self.engine.idle():
            self._released.append(storage)

    def _issue_releases(self) -> None:
        released = self._released
        while released:
            storage = released.popleft()
            if storage.array is None and storage.settled():
                continue
            dependence = storage.dependence
            if dependence.machine is not self:
                dependence.machine.release(storage)
                continue
            stream = self.stream(Device("cpu"))
            self.engine.receive(Instruction(stream, ReleaseTensor(storage), (), (dependence,)))

    def _settle(self, erased: list[Instruction]) -> None:
        waiters = self._waiters
        for instruction in erased:
            for waiter in waiters.pop(instruction, ()):
                waiter.wake()

    def _can_go_on(self) -> bool:
        return bool(self._launched or self._reports) or self.engine.has_work()

    def _enlist(self, waker: ThreadWaker | LoopWaker) -> None:
        if not waker.enlisted:
            waker.enlisted = True
            self._enlisted.append(waker)

    def _wake(self) -> None:
        while self._enlisted:
            try:
                waker = self._enlisted.popleft()
            except IndexError:  # another thread was faster
                return
            waker.enlisted = False
            waker.wake()

    def _pass_on(self) -> None:
        """Wake the enlisted if there is something to do."""
        if self._can_go_on():
            self._wake()

    # Waiting

    def wait(self, instruction: Instruction) -> None:
        """Block until `instruction` is erased, driving meanwhile.

        Raises:
            RuntimeError: if called by an instruction that this machine is running on the same thread.
        """
        if instruction.state == ERASED or (self._drive(instruction) and instruction.state == ERASED):
            return
        if self._driver == threading.get_ident():
            raise RuntimeError(
                f"{instruction!r} cannot be waited for by an instruction of the machine that runs it; "
                "return from the callback first"
            )
        waker = ThreadWaker()
        self._waiters.setdefault(instruction, []).append(waker)
        try:
            while instruction.state != ERASED:
                if not self._drive(instruction):
                    self._enlist(waker)
                    # Unless whoever drove has just stopped, he or a successor will wake this thread.
                    if self._turn_lock.locked() and instruction.state != ERASED:
                        waker.sleep()
                elif instruction.state != ERASED and self._departures:
                    # Nobody else may be driving the machine that this one waits for.
                    self._await_departure()
                elif instruction.state != ERASED:
                    self._enlist(waker)
                    if not self._can_go_on() and instruction.state != ERASED:
                        waker.sleep()
        finally:
            self._pass_on()

    def _await_departure(self) -> None:
        try:
            machine, departure = self._departures[0]
            if departure.state != ERASED:
                machine.wait(departure)
            self._departures.remove((machine, departure))
        except (IndexError, ValueError):
            return  # another thread has done so

    def wait_async(self, instruction: Instruction) -> Generator[Any, None, None]:
        """Suspend the running coroutine until `instruction` is erased.

        Cancelling the coroutine stops the waiting, not the instruction.

        Raises:
            RuntimeError: without a running asyncio loop.
        """
        loop = running_loop()
        if loop is None:
            raise RuntimeError("awaiting needs a running asyncio event loop; in plain code use .numpy() or .item()")
        if instruction.state == ERASED:
            return
        future = loop.create_future()
        self._waiters.setdefault(instruction, []).append(FutureWaker(loop, future))
        if instruction.state == ERASED:
            # It ended while the waiter was being entered; nobody will look at this list again.
            self._waiters.pop(instruction, None)
            return
        if self._armed is not loop:
            self._arm(loop)
        yield from future

    def synchronize(self) -> Synchronization:
        """A global sync behind everything issued so far: await it, or in plain code let it block right here."""
        instruction = Instruction(self.control_stream(), GlobalSync(self.streams))
        self.issue(instruction)
        if running_loop() is None:
            self.wait(instruction)
        return Synchronization(self, instruction)

    # Sharing storages with other machines

    def take_over(self, storage: Storage) -> Dependence:
        """Make this the machine that orders the accesses to `storage`, behind all issued elsewhere so far."""
        with _handover_lock:
            dependence = storage.dependence
            previous: VirtualMachine | None = dependence.machine
            if previous is self:
                return dependence
            if previous is None or previous.engine.idle():
                dependence.machine = self
                return dependence
            stream = self._streams.get((None, "handover"))
            if stream is None:
                stream = Stream("host:handover", None, ControlStreamPolicy())
                stream = self._streams.setdefault((None, "handover"), stream)
            arrives = Arrival()
            arrived = Dependence(self)
            arrival = Instruction(stream, arrives, (), (arrived,))
            arrives.reported_by(partial(self._report, arrival, None))
            departure = Instruction(previous.control_stream(), Departure(arrives), (), (dependence,))
            pending = self.engine.pending
            previous.engine.pending.append(departure)
            # No call in between, as in `issue`.  Whoever waits for the value must wait on this machine from now on.
            storage.dependence = arrived
            storage.writer = arrival
            pending.append(arrival)
            self._last_arrival = arrival
            self._departures.append((previous, departure))
        # If it is closed, everything there has ended, and the departure, dropped, has said so.
        with suppress(VirtualMachineClosed):
            previous._accepted(departure)
        # That somebody drives this machine is seen to with the instruction for which all this is done.
        return arrived

    # Life and end

    async def __aenter__(self) -> VirtualMachine:
        if self.closed:
            raise VirtualMachineClosed(f"the virtual machine {self.name!r} is closed; make a new one")
        if self._home is not None:
            raise RuntimeError(f"the virtual machine {self.name!r} is already entered")
        self._home = running_loop()
        mode = MODE.get()
        self._mode_before = mode.machine
        MODE.set(mode.replace(machine=self))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        mode = MODE.get()
        if mode.machine is self:
            MODE.set(mode.replace(machine=self._mode_before))
        try:
            if self.closed:
                return
            if kind is None:
                await self.synchronize()
            elif self._last_arrival is not None:
                await Synchronization(self, self._last_arrival)
        finally:
            self.close()

    def close(self, timeout: float = _GRACE_SECONDS) -> None:
        """Drop what has not started, wait up to `timeout` seconds for what is running, and stop the workers.

        What is dropped is poisoned with `VirtualMachineClosed`.  Use `synchronize` first to finish instead.
        """
        if self.closed:
            return
        if self._last_arrival is not None and not self._exiting:
            # Dropping an arrival would lose the order between another machine, which may still be writing the
            # storage, and whoever uses it next.
            self.wait(self._last_arrival)
        deadline = time.monotonic() + timeout
        if not self._turn_lock.acquire(timeout=timeout):
            self.closed = True  # a kernel runs inline on another thread, and longer than we are ready to wait
            return
        try:
            self.closed = True
            unrun = list(self._launched)
            self._launched.clear()
            for stream in self.streams():
                if stream.worker is not None:
                    left = stream.worker.stop(max(0.0, deadline - time.monotonic()))
                    stream.posted -= len(left)
                    unrun += left
                    stream.worker = None
            self._drop(unrun)
            self._collect_reports()
            # Others may have appended in the meantime; what this turn would launch is dropped too.
            late = self.engine.schedule()
            self._settle(self.engine.erased)
            self._drop(late)
            for instruction in self.engine.lively:
                # A kernel that outlasts the grace.  Nobody will hear of its end, so its readers are told now.
                if instruction.policy is not None:
                    instruction.policy.fail(self._closed_failure())
        finally:
            self._turn_lock.release()
        for unseen in list(self._failures):
            unseen.report()

    def _drop(self, unrun: list[Instruction]) -> None:
        """Poison and erase everything that has not begun, `unrun` being what was launched of it."""
        failure = self._closed_failure()

        def fail(policy: InstructionPolicy) -> None:
            policy.fail(failure)

        for instruction in self.engine.abandon(unrun, fail):
            for waiter in self._waiters.pop(instruction, ()):
                waiter.wake()

    def _closed_failure(self) -> Failure:
        failure = Failure(VirtualMachineClosed(f"dropped, because the virtual machine {self.name!r} was closed"))
        failure.observed = True  # closing is the owner's decision, not an error to report
        return failure

    def drain(self) -> None:
        """Block until everything issued so far has finished."""
        if not self.engine.idle() and not self.closed:
            barrier = Instruction(self.control_stream(), GlobalSync(self.streams))
            self.engine.receive(barrier)
            self.wait(barrier)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"lively={len(self.engine.lively)} pending={len(self.engine.pending)}"
        return f"<VirtualMachine {self.name!r} {state}>"


class Synchronization:
    """Awaitable end of a `synchronize`."""

    __slots__ = ("_instruction", "_machine")

    def __init__(self, machine: VirtualMachine, instruction: Instruction) -> None:
        self._machine = machine
        self._instruction = instruction

    def __await__(self) -> Generator[Any, None, None]:
        return self._machine.wait_async(self._instruction)


def _quiet_context() -> contextvars.Context:
    context = contextvars.Context()
    context.run(np.seterr, all="ignore")
    return context


_default: VirtualMachine | None = None
_default_lock = threading.Lock()


def writer_of(storage: Storage) -> tuple[VirtualMachine, Instruction] | None:
    """The instruction that a reader of `storage` must wait for, and its machine; None if the value is there."""
    with _handover_lock:
        writer = storage.writer
        if writer is None or storage.settled():
            return None
        return cast(VirtualMachine, storage.dependence.machine), writer


def default_machine() -> VirtualMachine:
    """The machine of everybody who has not entered one: scripts, threads, loops without their own."""
    global _default
    if _default is None:
        with _default_lock:
            if _default is None:
                _default = VirtualMachine("default")
    return _default


def current_machine() -> VirtualMachine:
    """The machine to which work issued here goes."""
    machine: VirtualMachine | None = MODE.get().machine
    return machine if machine is not None else default_machine()


def synchronize() -> Synchronization:
    """Wait for everything issued so far: ``await vmflow.synchronize()``, or just call it in plain code."""
    return current_machine().synchronize()


def live_machines() -> list[VirtualMachine]:
    """All machines that are not garbage."""
    return list(_machines)


def _at_exit() -> None:
    VirtualMachine._exiting = True
    for machine in live_machines():
        machine.close()


# Forking copies the memory of one thread only.  Everything is finished before, so that the child finds every tensor
# readable; in the child there are no workers and no loops, and the machine begins anew without them.

_held_for_fork = threading.local()


def _before_fork() -> None:
    held: list[VirtualMachine] = []
    _held_for_fork.machines = held
    deadline = time.monotonic() + _GRACE_SECONDS
    for machine in live_machines():
        while machine._driver != threading.get_ident():
            machine.drain()
            if not machine._turn_lock.acquire(timeout=_GRACE_SECONDS):
                break
            # Other threads may have issued, and driven, between the two.
            if machine.engine.idle() or machine.closed or time.monotonic() > deadline:
                held.append(machine)
                break
            machine._turn_lock.release()


def _after_fork_in_parent() -> None:
    for machine in _held_for_fork.machines:
        machine._turn_lock.release()


def _after_fork_in_child() -> None:
    global _default_lock, _handover_lock
    _default_lock = threading.Lock()
    _handover_lock = threading.Lock()
    interrupts.after_fork_in_child()
    for machine in live_machines():
        driving = machine._driver == threading.get_ident()
        launched = [it for it in machine.engine.lively if it.state == LAUNCHED]
        machine._forget_threads()
        machine._streams_lock = threading.Lock()
        if driving:
            # One of its instructions forked, and goes on in here.
            machine._turn_lock.acquire()
            machine._driver = threading.get_ident()
        else:
            # There are any only if the grace was not enough.  Nobody here would ever finish them.
            machine._drop(launched)
        machine._cpu_worker = "never"
        for stream in machine.streams():
            stream.worker = None
            if isinstance(stream.policy, CpuStreamPolicy):
                stream.policy.worker = "never"


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
