"""`VirtualMachine` drives an engine: it alone knows event loops, threads and clocks.

There is no scheduling thread.  Whoever has a reason to drive does it, one at a time, under the turn lock:

- a running event loop, by one `call_soon` callback per loop turn, under a time budget;
- a thread without a loop that waits for a result, or that has issued enough to be worth a turn;
- a worker that has finished an instruction.

An instruction that such a thread issues while nothing is outstanding needs no turn: it is run as it is issued.

A worker that finishes an instruction reports it, and drives if nobody else does.  Three rules keep anybody from being
left asleep: who finds the lock taken, or nothing to do, enlists before looking once more; who lets go of the lock, or
stops waiting, wakes the enlisted if anything is left to do; and all of them are woken, since any one may be unable to
drive: a loop may be stopped, or its thread may itself be blocked in a wait.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Generator, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from vmflow.context import MODE, Mode
from vmflow.devices import device as Device
from vmflow.errors import VirtualMachineClosed
from vmflow.forking import lock_held_while_forking
from vmflow.instructions import origin
from vmflow.instructions.barrier import GlobalSync
from vmflow.instructions.blob import Storage
from vmflow.instructions.failure import Failure
from vmflow.instructions.instruction import ERASED, LAUNCHED, Dependence, Instruction
from vmflow.streams import Stream

from . import (
    closing,
    failing,
    handover,
    inline,
    memory,
    nested,
    releases,
    running,
    settings,
    stream_table,
)
from .back_pressure import BackPressure
from .engine import WINDOW, VirtualMachineEngine
from .flights import Airport, on_a_device
from .interrupts import Shield
from .loops import Loops
from .machine_fields import DEFAULT, MachineFields
from .outcome import Outcome
from .settings import GRACE_SECONDS
from .tracing import Tracer
from .turn_lock import TurnLock
from .waiting import Checkpoint, Synchronization, Waiters
from .wakers import LoopWaker, ThreadWaker, running_loop

if TYPE_CHECKING:
    from types import TracebackType

    from vmflow.instructions.chain import Links

    from .race_watch import RaceWatch
    from .snapshot import Snapshot

# A script that only issues also gets a turn for an instruction this heavy, in nanoseconds.
_HEAVY: Final = 20_000


_handover_lock = lock_held_while_forking()
# By id; a dictionary, since threads may make machines while others look at all of them.
_machines: dict[int, weakref.ref[VirtualMachine]] = {}


class VirtualMachine(MachineFields):
    """Orders and runs instructions.

    A script needs none: `default_machine` serves it.  A loop may have its own, with its own streams and workers:

        async with vmflow.VirtualMachine() as vm:
            ...   # what this task and its children issue goes to vm

    Leaving the block finishes what was issued, or drops what has not started if the block is left by an exception.

    Args:
        name: for reprs and thread names.
        window: the most instructions one turn absorbs.
        turn_budget: seconds a loop callback may drive before it lets the loop go on.
        gather: a script that only issues gets a turn each time this many instructions are pending.  By default, what
            has nothing before it runs as it is issued, which takes less time than a turn, and the rest gathers.
        high_water: lively instructions above which the issuer drives or waits.
        high_water_bytes: the same for the bytes of their results, as far as they are large.
        cpu_worker: "auto", "always" or "never": see `CpuStreamPolicy`.
        race_check: watch for accesses to one memory that nothing orders; raises `RaceDetected`.  Slow.
        drain_timeout: seconds that leaving the `async with` block may take before what is left is dropped; None for
            as long as it takes.
        stall_after: seconds without any progress after which a waiting thread or coroutine logs what everything is
            waiting for.

    Attributes:
        state: "running"; "draining" while it finishes and takes nothing new; "closed"; or "aborted", if something was
            still running when the time to close was up.
    """

    # Set as the interpreter exits, when nobody will look at anything any more.
    _exiting = False

    def __init__(
        self,
        name: str = "vm",
        *,
        window: int = WINDOW,
        turn_budget: float = 1e-3,
        gather: int | None = None,
        high_water: int = settings.HIGH_WATER,
        high_water_bytes: int = settings.HIGH_WATER_BYTES,
        cpu_worker: str = "auto",
        race_check: bool | None = None,
        drain_timeout: float | None = None,
        stall_after: float | None = None,
    ) -> None:
        settings.check(turn_budget, gather, high_water, high_water_bytes, drain_timeout, stall_after, cpu_worker)
        self.name = name
        self.engine = VirtualMachineEngine(window)
        self.turn_budget = turn_budget
        self.gather = settings.GATHER if gather is None else gather
        # Whether what is issued gathers, and whether it may run at once otherwise; see `inline.reconsider`.
        self._gathers = gather is not None
        self._hurries = False
        self.high_water = high_water
        self.high_water_bytes = high_water_bytes
        self.drain_timeout = drain_timeout
        self.stall_after = settings.stall_seconds() if stall_after is None else stall_after
        self.state = "running"
        # Whether new work is turned away: in every state but the first.
        self._refusing = False
        self.back_pressure = BackPressure(self)
        # Storages whose last tensor is gone, to be released behind what still uses them.
        self._released: deque[Storage] = deque()
        self._cpu_worker = cpu_worker
        self._streams: dict[tuple[Device | None, str], Stream] = {}
        self._recent = None
        self._streams_lock = lock_held_while_forking()
        # In a forked child nothing may be left to threads.
        self._inline_only = False
        # What every instruction of a transport, and every launch of a graph, writes: they keep one order.
        self.transport = Dependence(self)
        self.races: RaceWatch | None = None
        if settings.race_check(race_check):
            from .race_watch import RaceWatch  # which most programs do without

            self.races = RaceWatch()
        self.memory = memory.MachineMemory(*(self.races.callbacks() if self.races is not None else ()))
        self._tracer: Tracer | None = None
        # By graph, what runs it here.
        self.graphs: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._turn_lock = TurnLock()
        self._at_hand: Any = None
        self._forget_threads()
        self._shield = Shield()
        # Alive and perhaps never looked at; reported when the machine closes, at the latest.
        self._failures: weakref.WeakSet[Failure] = weakref.WeakSet()
        self._mode_before: Any = None
        inline.reconsider(self)
        number = id(self)
        _machines[number] = weakref.ref(self, lambda _: _machines.pop(number, None))

    def _forget_threads(self) -> None:
        """Set up what belongs to threads and loops; a forked child does so again, having none of its parent's."""
        # Turns are driven and kernels run in here; a context that another thread has entered can never be entered again
        # in a child.  What is issued in there, by a signal handler say, goes to this machine.
        context = running.quiet_context()
        context.run(MODE.set, Mode(machine=self))
        self._in_context = context.run
        self._worker_threads: set[int] = set()
        # Of a script, the chain that waits for what may go on with it.
        self._links: Links | None = None
        # Launched and not yet run, because the time budget ran out in between.
        self._launched: deque[Instruction] = deque()
        self._reports: deque[tuple[Instruction, Outcome, bool]] = deque()
        self._woken = False
        # Those who would drive if there were something to do.
        self._enlisted: deque[ThreadWaker | LoopWaker] = deque()
        self._departures: deque[tuple[VirtualMachine, Instruction]] = deque()
        self._last_arrival: Instruction | None = None
        self._escaping: BaseException | None = None
        self._airport = Airport(
            partial(running.run, self), partial(failing.poison_by_device, self), running.quiet_context
        )
        self.loops = Loops(self)
        self.back_pressure.forget()
        self.waiters = Waiters(self)

    def _forget_others(self) -> None:
        """In a forked child, if this thread drives it: what belongs to other threads and to loops is not here."""
        self._worker_threads.clear()
        self._enlisted.clear()
        self.back_pressure.forget()
        self.waiters.forget()
        self.loops.forget()

    @property
    def tracer(self) -> Tracer | None:
        """What is told of every step of every instruction; None while nobody listens."""
        return self._tracer

    @tracer.setter
    def tracer(self, tracer: Tracer | None) -> None:
        self._tracer = tracer
        inline.reconsider(self)

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        return self.state in ("closed", "aborted")

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

    def _home_of(self, stream: Stream) -> Stream:
        """This machine's compute stream on the device of `stream`, which may be another machine's."""
        return self.stream(cast(Device, stream.device))

    def _open_stream(self, device: Device | None, kind: str) -> Stream:
        policy = stream_table.make_policy(self.name, device, kind, self._cpu_worker)
        if self.races is not None:
            policy = self.races.watched(policy)
        stream = Stream(f"{device or 'host'}:{kind}", device, policy)
        if device is not None and (policy.asynchronous or kind == "compute"):
            stream.allocator = self.memory.allocator(device)
        if kind in ("comm", "lazy_job"):
            stream.order = self.transport
        with self._streams_lock:
            return self._streams.setdefault((device, kind), stream)

    # Issuing

    def issue(self, instruction: Instruction, written: Storage | None = None) -> None:
        """Accept an instruction.  Returns at once, except for back-pressure and the turns a script drives itself.

        Args:
            instruction: to run.
            written: a storage that it writes, which is told of its new writer.
        """
        if self._refusing:
            self.require_open(instruction.name)
        me = threading.get_ident()
        if self._turn_lock.owner == me and nested.run(self, instruction):
            return
        links = self._links
        if links is not None and not (self.engine.pending and links.take(instruction)):
            self._drive()
        if (
            inline.possible(self, instruction.stream, instruction.cost)
            and not (instruction.policy is not None and instruction.policy.waits_for_others())
            and inline.run(self, instruction, written)
        ):
            return
        instruction.thread = me
        if instruction.code is None:
            instruction.code, instruction.last = origin.capture()
        pending = self.engine.pending
        tracer = self._tracer
        if tracer is not None:
            # Before anybody else can see it, and perhaps run it at once.
            tracer.issued(instruction)
        # These two belong together: Python looks for signals after calls and jumps, hence not in between.  Otherwise
        # Ctrl-C could leave a storage waiting for an instruction that nobody was ever given.
        if written is not None:
            written.writer = instruction
        pending.append(instruction)
        self._accepted(instruction)

    def issue_from_within(self, instruction: Instruction) -> None:
        """Accept what an instruction that is being run has brought about; whoever drives goes on with it.

        Also while the machine finishes and takes nothing else.  If it has ended, the instruction is dropped.
        """
        tracer = self._tracer
        if tracer is not None:
            tracer.issued(instruction)
        self.engine.pending.append(instruction)
        # Looked at after appending: whoever closes the machine looks for what has come after saying so.
        if self.closed:
            closing.drop_late(self)

    def would_run_here(self, stream: Stream, cost: int) -> bool:
        """Whether a caller may do what takes so many nanoseconds by itself, as an instruction on `stream` would.

        Only what is being run by the thread that drives may, and nothing where instructions are watched.
        """
        return (
            stream.posted == 0
            and not stream.policy.asynchronous
            and self._turn_lock.owner == threading.get_ident()
            and self._tracer is None
            and self.races is None
            and (self._inline_only or stream.policy.on_scheduler_thread(cost, self.loops.any()))
        )

    def remember(self, failure: Failure) -> None:
        """A failure that somebody may never ask for, and is to be told of then."""
        self._failures.add(failure)

    def require_open(self, name: str) -> None:
        """Raise `VirtualMachineClosed` if nothing new is taken, before `name` has changed anything."""
        if self._refusing:
            if self._exiting and threading.current_thread().daemon:
                # The interpreter is about to stop this thread wherever it is; an exception would only be noise.
                threading.Event().wait()
            raise VirtualMachineClosed(
                f"{name} was issued to the virtual machine {self.name!r}, which is {self.state}; "
                "issue work inside its `async with` block"
            )

    def bring(self, storage: Storage, stream: Stream) -> Dependence:
        """Make `storage` safe to use on `stream` by the next instruction issued; returns what orders its accesses.

        On another stream of the same asynchronous device, that stream is made to wait for the one that used the storage
        last.  Otherwise the engine waits until that one has finished.
        """
        return handover.bring(self, storage, stream, _handover_lock)

    def _accepted(self, instruction: Instruction) -> None:
        """See to it that somebody drives, now that `instruction` is pending."""
        engine = self.engine
        pending = engine.pending
        nbytes = instruction.nbytes
        if nbytes:
            self.back_pressure.count(nbytes)
        # Looked at after appending: whoever closes the machine drops what he finds after saying so.
        if self._refusing:
            closing.refuse(self, instruction)
        if self._enlisted:
            self._pass_on()
        loop = running_loop()
        if loop is not None:
            self.loops.arm(loop)
        elif self.loops.home is not None:
            self.loops.arm_home()
        elif len(pending) >= self.gather:
            self._drive()
        elif instruction.cost >= _HEAVY and self._links is None:
            policy = instruction.policy
            # If it may begin a chain, wait for the next.
            self._links = policy.chain(instruction) if policy is not None and self.engine.fuse_below else None
            if self._links is None:
                self._drive()
        if engine.total_inserted - engine.total_erased + len(pending) > self.high_water or (
            nbytes and self.back_pressure.outstanding_bytes() > self.high_water_bytes
        ):
            self.back_pressure.relieve(loop)

    # Driving

    def flush(self) -> None:
        """Begin what a script has issued last, if that waits for ops that may go on with it; see `Chain`."""
        if self._links is not None:
            self._drive()

    def _go_on(self) -> None:
        """See to what is pending, after something has run that was issued here."""
        loop = running_loop()
        if loop is None:
            self._drive()
        else:
            self.loops.arm(loop)

    def _drive(self, until: Instruction | None = None, deadline: float = 0.0) -> bool:
        """Run turns until nothing can go on, `until` is erased or the deadline has passed.

        Returns whether it did: not if somebody else is at it.
        """
        if on_a_device():
            return False
        links = self._links
        if links is not None:
            self._links = None
            links.end()
        if not deadline:
            self.loops.forget_closed()
        # The shield comes first: an interrupt after the lock was taken would leave it taken for ever.
        shielded = self._shield.raise_it()
        escaping: BaseException | None = None
        try:
            if not self._turn_lock.acquire(blocking=False):
                return False
            try:
                self._in_context(self._turns, until, deadline)
            finally:
                escaping, self._escaping = self._escaping, None
                self._turn_lock.release()
                if self._enlisted:
                    if self._airport.in_use and not deadline and self._airport.busy() is not None:
                        # What this thread has handed to a device, others may have to wait for: let them find it there.
                        self._wake()
                    else:
                        self._pass_on()
        finally:
            if shielded:
                self._shield.lower()
        if escaping is not None:
            raise escaping
        return True

    def _drive_from_worker(self) -> bool:
        """Go on with what a worker has made possible, on its thread; False if somebody else drives.

        Otherwise the worker would rest between two heavy instructions until a loop has come round to hand over the
        second.  It stops after the time that a loop gives to a turn: the interpreter belongs to the loop, too.
        """
        # An exception that ends the program is for whoever waits.
        if self._escaping is not None or not self._turn_lock.acquire(blocking=False):
            return False
        try:
            self._in_context(self._turns, None, time.perf_counter() + self.turn_budget)
        finally:
            self._turn_lock.release()
        if self._can_go_on() or self._escaping is not None or self._airport.busy() is not None:
            self._wake()
        return True

    def _turns(self, until: Instruction | None, deadline: float) -> None:
        engine = self.engine
        launched = self._launched
        shield = self._shield
        airport = self._airport
        turn_lock = self._turn_lock
        spent = 0
        while True:
            if self._reports or self._woken:
                self._collect_reports()
            if self._released:
                releases.issue(self)
            if not launched:
                spent += 3000 * min(len(engine.pending), engine.window)
                self._turn()
                if until is not None and until.state == ERASED:
                    if engine.pending or any([it.cost for it in launched]):
                        return
                    # What is left gives memory back, or the like: without it, what comes next can run at once.
                    until = None
            while launched:
                instruction = launched.popleft()
                spent += instruction.cost + 1000
                running.launch(self, instruction)
                if turn_lock._sleepers:
                    return  # this thread goes on when whoever wants the machine for a moment has had it
                # Looking at the clock at each instruction would cost a tenth of it.
                if deadline and spent > 100_000:
                    spent = 0
                    if time.perf_counter() > deadline:
                        return
            if shield.interrupted or self._escaping is not None:
                return
            # Also where streams are full and turns do nothing but take in what is pending.
            if deadline and spent > 100_000:
                spent = 0
                if time.perf_counter() > deadline:
                    return
            if not (engine.has_work() or self._reports or (airport.in_use and self._collect_flights())):
                return

    def _turn(self) -> None:
        """One turn of the engine; what it launches is put behind what was launched before."""
        engine = self.engine
        if self._airport.in_use:
            self._collect_flights()
        self._launched.extend(engine.schedule())
        if engine.erased:
            self.waiters.settle(engine.erased)
            self.back_pressure.wake_if_low()
            if self.races is not None and engine.idle():
                self.races.quiet()

    def _inside(self) -> bool:
        """Whether an instruction of this machine, or any for a device, is running on this very thread."""
        me = threading.get_ident()
        return self._turn_lock.owner == me or me in self._worker_threads or on_a_device()

    def shrink(self, device: Device) -> bool:
        """Give the memory that is kept for reuse back to the device; not if something is still going on."""
        allocator = self.memory.allocators.get(device)
        if allocator is None or not self._turn_lock.acquire(blocking=False):
            return False
        try:
            if not self.engine.idle():
                return False
            allocator.shrink()
        finally:
            self._turn_lock.release()
            self._pass_on()
        return True

    def _finish_what_runs(self) -> None:
        """Block until everything that was handed to workers and devices has ended, and hear of it."""
        for stream in self.streams():
            if stream.worker is not None and stream.posted:
                stream.worker.wait_until_idle(GRACE_SECONDS)
        self._airport.synchronize()
        self._collect_reports()
        self._collect_flights()

    def _collect_reports(self) -> None:
        # Cleared before looking: whoever reports after this wakes anew, whoever reported before is seen below.
        self._woken = False
        reports = self._reports
        while reports:
            instruction, outcome, from_worker = reports.popleft()
            if from_worker:
                instruction.stream.posted -= 1
            if instruction.state == LAUNCHED:  # else its end overtook the worker's report, or it was abandoned
                running.conclude(self, instruction, outcome)

    def _collect_flights(self) -> bool:
        """Hear of what devices have finished; whether there was anything."""
        flights = self._airport.arrived()
        for flight in flights:
            running.conclude(self, flight.instruction, flight.outcome)
        return bool(flights)

    def release(self, storage: Storage) -> None:
        """Give the memory of `storage` back behind everything issued so far.

        Called by destructors, hence from anywhere, also in the middle of a turn: this only leaves a note.  With nothing
        issued there is nothing to be behind, and the memory goes with the object.
        """
        if not self.engine.idle():
            self._released.append(storage)

    def has_waiters(self) -> int:
        """How many instructions somebody waits for, and how many wait for room."""
        return self.waiters.count() + self.back_pressure.waiting()

    def _can_go_on(self) -> bool:
        return bool(self._launched or self._reports) or self.engine.has_work()

    def _enlist(self, waker: ThreadWaker | LoopWaker) -> None:
        if waker not in self._enlisted:
            self._enlisted.append(waker)

    def _wake(self) -> None:
        while self._enlisted:
            try:
                waker = self._enlisted.popleft()
            except IndexError:  # another thread was faster
                return
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
            Cancelled, DeadlineExceeded: if the scope of the instruction ends before the instruction does.
            VirtualMachineClosed: if the machine is aborted before.
        """
        self.waiters.wait(instruction)

    def wait_async(self, instruction: Instruction) -> Generator[Any, None, None]:
        """Suspend the running coroutine until `instruction` is erased.

        Cancelling the coroutine stops the waiting, not the instruction; what stops instructions is a scope.  If more is
        lively than the high-water mark allows, the coroutine is suspended until there is room again.

        Raises:
            RuntimeError: without a running asyncio loop.
            Cancelled, DeadlineExceeded: if the scope of the instruction ends before the instruction does, at once.
            VirtualMachineClosed: if the machine is aborted before.
        """
        return self.waiters.wait_async(instruction)

    def checkpoint(self) -> Checkpoint:
        """Let the event loop go on; above the high-water mark, until half of it: ``await machine.checkpoint()``."""
        return Checkpoint(self)

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
        storage.admit()
        return handover.take_over(self, storage, _handover_lock)

    # Life and end

    async def __aenter__(self) -> VirtualMachine:
        if self.state != "running":
            raise VirtualMachineClosed(f"the virtual machine {self.name!r} is {self.state}; make a new one")
        self.loops.enter(running_loop())
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
        if kind is None:
            await self.shutdown(self.drain_timeout)
            return
        try:
            if self._last_arrival is not None and not self.closed:
                await Synchronization(self, self._last_arrival)
        finally:
            self.close()

    async def shutdown(self, grace: float | None = None) -> None:
        """Take nothing new, finish what was issued, then close.

        Args:
            grace: seconds to finish in; what has not started by then is dropped.  None for as long as it takes.

        Cancelling the coroutine drops what has not started, too.
        """
        await closing.shutdown(self, grace)

    def abort(self) -> None:
        """Drop what has not started and wait for nothing: what is running ends unheard of."""
        self.close(0.0)

    def close(self, timeout: float = GRACE_SECONDS) -> None:
        """Drop what has not started, wait up to `timeout` seconds for what is running, and stop the workers.

        What is dropped is poisoned with `VirtualMachineClosed`.  Use `synchronize` or `shutdown` to finish instead.
        The state is "aborted" afterwards if something was still running, else "closed".
        """
        if not self.closed:
            closing.close(self, timeout)

    def _closed_failure(self) -> Failure:
        error = VirtualMachineClosed(f"dropped, because the virtual machine {self.name!r} was closed")
        return Failure(error, dropped=True)

    def _issue_sync(self) -> Instruction:
        """A global sync behind everything issued so far, also on a machine that takes nothing else."""
        barrier = Instruction(self.control_stream(), GlobalSync(self.streams))
        tracer = self._tracer
        if tracer is not None:
            tracer.issued(barrier)
        self.engine.receive(barrier)
        return barrier

    def drain(self) -> None:
        """Block until everything issued so far has finished."""
        if not self.engine.idle() and not self.closed:
            self.wait(self._issue_sync())

    # Looking inside

    def story(self, about: Instruction | int | str | None = None) -> list[tuple[str, int, str]]:
        """What happened in the last turns, as ``(event, serial, detail)``; see `Story.events`."""
        return self.engine.story.events(about)

    def snapshot(self) -> Snapshot:
        """What is where at this moment; its repr is for people."""
        from .snapshot import take_snapshot  # here, because importing attrs takes milliseconds

        return take_snapshot(self)

    def others(self) -> list[VirtualMachine]:
        """All machines but this one."""
        return [machine for machine in live_machines() if machine is not self]

    def __repr__(self) -> str:
        if self.state != "running":
            return f"<VirtualMachine {self.name!r} {self.state}>"
        return f"<VirtualMachine {self.name!r} lively={len(self.engine.lively)} pending={len(self.engine.pending)}>"


_default_lock = lock_held_while_forking()


def writer_of(storage: Storage) -> tuple[VirtualMachine, Instruction] | None:
    """The instruction that a reader of `storage` must wait for, and its machine; None if the value is there."""
    with _handover_lock:
        writer = storage.writer
        if writer is None or storage.settled():
            return None
        return cast(VirtualMachine, storage.machine), writer


def default_machine() -> VirtualMachine:
    """The machine of everybody who has not entered one: scripts, threads, loops without their own."""
    if not DEFAULT:
        with _default_lock:
            if not DEFAULT:
                DEFAULT.append(VirtualMachine("default"))
    return DEFAULT[0]


def current_machine() -> VirtualMachine:
    """The machine to which work issued here goes."""
    machine: VirtualMachine | None = MODE.get().machine
    return machine if machine is not None else default_machine()


def synchronize() -> Synchronization:
    """Wait for everything issued so far: ``await vmflow.synchronize()``, or just call it in plain code."""
    return current_machine().synchronize()


def checkpoint() -> Checkpoint:
    """``await vmflow.checkpoint()`` in a coroutine that issues a lot without awaiting any of it.

    Lets the event loop go on, and returns at the next occasion; if more is outstanding than the machine's high-water
    marks allow, when there is half as much.
    """
    return current_machine().checkpoint()


def live_machines() -> list[VirtualMachine]:
    """All machines that are not garbage."""
    return [machine for machine in [it() for it in list(_machines.values())] if machine is not None]
