"""`VirtualMachine`: an engine, and all that drives it, waits for it and ends it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Generator, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from vmflow.context import MODE
from vmflow.devices import device as Device
from vmflow.errors import VirtualMachineClosed
from vmflow.forking import lock_held_while_forking
from vmflow.instructions.barrier import GlobalSync
from vmflow.instructions.blob import Storage
from vmflow.instructions.failure import Failure
from vmflow.instructions.instruction import Dependence, Instruction
from vmflow.streams import Stream

from . import (
    failing,
    inline,
    memory,
    nested,
    running,
    settings,
)
from .back_pressure import BackPressure
from .completion import CompletionTracker
from .devices import Devices
from .driver import Driver
from .engine import WINDOW, VirtualMachineEngine
from .handover import HANDOVER_LOCK, Handover
from .lifecycle import Lifecycle
from .loops import Loops
from .machine_fields import DEFAULT, MachineFields
from .observers import Observers
from .releases import Releases
from .settings import GRACE_SECONDS
from .tracing import Tracer
from .waiting import Checkpoint, Synchronization, Waiters
from .wakers import running_loop

if TYPE_CHECKING:
    from types import TracebackType

    from .race_watch import RaceWatch
    from .snapshot import Snapshot

# A script that only issues also gets a turn for an instruction this heavy, in nanoseconds.
_HEAVY: Final = 20_000


# By id; a dictionary, since threads may make machines while others look at all of them.
_machines: dict[int, weakref.ref[VirtualMachine]] = {}


class VirtualMachine(MachineFields):
    """Orders and runs instructions.

    A script needs none: `default_machine` serves it.  A loop may have its own, with its own streams and workers:

        async with vmflow.VirtualMachine() as vm:
            ...   # ops of this task and its children go to vm

    Leaving the block finishes all work, or drops work that has not started if the block is left by an exception.

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
        drain_timeout: seconds that leaving the `async with` block may take before the remaining work is dropped;
            None for as long as it takes.
        stall_after: seconds without any progress after which a waiting thread or coroutine logs what everything is
            waiting for.

    Attributes:
        state: "running"; "draining" while it finishes and takes nothing new; "closed"; or "aborted", if something was
            still running when the time to close was up.
    """

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
        self.high_water = high_water
        self.high_water_bytes = high_water_bytes
        self.drain_timeout = drain_timeout
        self.stall_after = settings.stall_seconds() if stall_after is None else stall_after
        self.lifecycle = Lifecycle(self)
        self.back_pressure = BackPressure(self)
        self.releases = Releases(self)
        self.devices = Devices(self, cpu_worker, partial(running.run_on_worker, self), running.quiet_context)
        # Every instruction of a transport, and every launch of a graph, writes it: so they keep one order.
        self.transport = Dependence(self)
        self.races: RaceWatch | None = None
        if settings.race_check(race_check):
            from .race_watch import RaceWatch  # which most programs do without

            self.races = RaceWatch()
        self.memory = memory.MachineMemory(*(self.races.callbacks() if self.races is not None else ()))
        self.observers = Observers(gather is not None, self.races)
        # By graph, its runtime on this machine.
        self.graphs: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self.driver = Driver(self)
        self.forget_threads()
        self._mode_before: Any = None
        number = id(self)
        _machines[number] = weakref.ref(self, lambda _: _machines.pop(number, None))

    def forget_threads(self) -> None:
        """Set up the parts of threads and loops; a forked child does so again, having none of its parent's."""
        self.driver.forget()
        self.devices.forget_workers()
        self.handover = Handover(self)
        self.completion = CompletionTracker(
            partial(running.run, self),
            partial(failing.poison_by_device, self),
            running.quiet_context,
            self.observers,
        )
        self.loops = Loops(self)
        self.back_pressure.forget()
        self.waiters = Waiters(self)

    def forget_others(self) -> None:
        """In a forked child, if this thread drives it: drop the parts of other threads and of loops."""
        self.devices.forget_workers()
        self.driver.forget_others()
        self.back_pressure.forget()
        self.waiters.forget()
        self.loops.forget()

    @property
    def tracer(self) -> Tracer | None:
        """The tracer that is told of every step of every instruction; None while nobody listens."""
        return self.observers.tracer

    @tracer.setter
    def tracer(self, tracer: Tracer | None) -> None:
        self.observers.listen(tracer)

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        return self.lifecycle.closed

    @property
    def state(self) -> str:
        """See the class."""
        return self.lifecycle.state

    # Streams

    def stream(self, device: Device, kind: str = "compute") -> Stream:
        """The stream of this kind on `device`."""
        return self.devices.stream(device, kind)

    def control_stream(self) -> Stream:
        """The stream of barriers, which belongs to no device."""
        return self.host_stream("control")

    def host_stream(self, kind: str) -> Stream:
        """A stream that belongs to no device: "control" for barriers, "handover" for storages that change machines."""
        return self.devices.stream(None, kind)

    def streams(self) -> Iterable[Stream]:
        """All streams opened so far."""
        return self.devices.streams()

    def home_of(self, stream: Stream) -> Stream:
        """This machine's compute stream on the device of `stream`, which may be another machine's."""
        return self.stream(cast(Device, stream.device))

    def keep_program_order(self, stream: Stream) -> tuple[Dependence, ...]:
        """Let the stream keep program order from now on, though no data may ask for it; see `StreamPolicy.sequential`.

        Returns:
            The dependences that an instruction reads to be behind those that the stream has already.
        """
        if stream.policy.sequential:
            return ()
        lock = self.driver.turn_lock
        # Code that the driving thread runs has the lock already.
        mine = lock.owner == threading.get_ident()
        if not mine:
            lock.acquire()
        try:
            stream.policy.keep_order()
            lively = [each for each in self.engine.lively if each.stream is stream]
        finally:
            if not mine:
                lock.release()
                self.driver.pass_on()
        return tuple(dict.fromkeys([dependence for each in lively for dependence in each.writes]))

    # Issuing

    def issue(self, instruction: Instruction, written: Storage | None = None) -> None:
        """Accept an instruction.  Returns at once, except for back-pressure and the turns a script drives itself.

        Args:
            instruction: to run.
            written: a storage that it writes, which is told of its new writer.
        """
        if self.driver.refusing:
            self.require_open(instruction.name)
        me = threading.get_ident()
        if self.driver.turn_lock.owner == me and nested.run(self, instruction):
            return
        chain = self.driver.chain
        if chain is not None and not (self.engine.pending and chain.take(instruction)):
            self.driver.drive()
        if inline.run(self, instruction, written):
            return
        instruction.issued_by(me)
        pending = self.engine.pending
        tracer = self.observers.tracer
        if tracer is not None:
            # Before anybody else can see it, and perhaps run it at once.
            tracer.issued(instruction)
        if written is not None:
            written.expect(instruction, pending)
        else:
            pending.append(instruction)
        self.accepted(instruction)

    def issue_from_within(self, instruction: Instruction) -> None:
        """Accept an instruction that a running one has caused; the driving thread goes on with it.

        Also while the machine finishes and takes nothing else.  If it has ended, the instruction is dropped.
        """
        tracer = self.observers.tracer
        if tracer is not None:
            tracer.issued(instruction)
        self.engine.pending.append(instruction)
        # Looked at after appending: the thread that closes the machine looks for late instructions after saying so.
        if self.closed:
            self.lifecycle.drop_late()

    def would_run_here(self, stream: Stream, cost: int) -> bool:
        """Whether a caller may do work of so many nanoseconds by itself, as an instruction on `stream` would.

        Only code that the driving thread runs may, and no code where instructions are watched.
        """
        return (
            stream.posted == 0
            and not stream.policy.asynchronous
            and self.driver.turn_lock.owner == threading.get_ident()
            and self.observers.tracer is None
            and self.races is None
            and self.devices.on_scheduler_thread(stream, cost, self.loops.any())
        )

    def remember(self, failure: Failure) -> None:
        """A failure that somebody may never ask for, and is to be told of then."""
        self.lifecycle.remember(failure)

    def require_open(self, name: str) -> None:
        """Raise `VirtualMachineClosed` if nothing new is taken, before `name` has changed anything."""
        self.lifecycle.require_open(name)

    def bring(self, storage: Storage, stream: Stream) -> Dependence:
        """Make `storage` safe to use on `stream` by the next instruction issued; returns what orders its accesses.

        On another stream of the same asynchronous device, that stream is made to wait for the one that used the storage
        last.  Otherwise the engine waits until that one has finished.
        """
        return self.handover.bring(storage, stream)

    def accepted(self, instruction: Instruction) -> None:
        """See to it that somebody drives, now that `instruction` is pending."""
        engine = self.engine
        pending = engine.pending
        nbytes = instruction.nbytes
        if nbytes:
            self.back_pressure.count(nbytes)
        # Looked at after appending: the thread that closes the machine drops the instructions it finds after saying so.
        if self.driver.refusing:
            self.lifecycle.refuse(instruction)
        self.driver.pass_on()
        loop = running_loop()
        if loop is not None:
            self.loops.arm(loop)
        elif self.loops.home is not None:
            self.loops.arm_home()
        elif len(pending) >= self.gather:
            self.driver.drive()
        elif instruction.cost >= _HEAVY and self.driver.chain is None:
            self.driver.begin_chain(instruction)
        if engine.total_inserted - engine.total_erased + len(pending) > self.high_water or (
            nbytes and self.back_pressure.outstanding_bytes() > self.high_water_bytes
        ):
            self.back_pressure.relieve(loop)

    def flush(self) -> None:
        """Begin the op that a script has issued last, if it waits for ops that may go on with it; see `Chain`."""
        if self.driver.chain is not None:
            self.driver.drive()

    def shrink(self, device: Device) -> bool:
        """Give the memory that is kept for reuse back to the device; not if something is still going on."""
        allocators = self.memory.of_device(device)
        if not allocators or not self.driver.turn_lock.acquire(blocking=False):
            return False
        try:
            if not self.engine.idle():
                return False
            for allocator in allocators:
                allocator.shrink()
        finally:
            self.driver.turn_lock.release()
            self.driver.pass_on()
        return True

    def release(self, storage: Storage) -> None:
        """Give the memory of `storage` back behind everything issued so far.

        Called by destructors, hence from anywhere, also in the middle of a turn: this only leaves a note.  With nothing
        issued there is nothing to be behind, and the memory goes with the object.
        """
        if not self.engine.idle():
            self.releases.note(storage)

    def has_waiters(self) -> int:
        """How many instructions somebody waits for, and how many wait for room."""
        return self.waiters.count() + self.back_pressure.waiting()

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

        Cancelling the coroutine stops the waiting, not the instruction; a scope stops instructions.  If more is
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
        return self.handover.take_over(storage)

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
            if self.handover.last_arrival is not None and not self.closed:
                await Synchronization(self, self.handover.last_arrival)
        finally:
            self.close()

    async def shutdown(self, grace: float | None = None) -> None:
        """Take nothing new, finish all work, then close.

        Args:
            grace: seconds to finish in; work that has not started by then is dropped.  None for as long as it takes.

        Cancelling the coroutine drops work that has not started, too.
        """
        await self.lifecycle.shutdown(grace)

    def abort(self) -> None:
        """Drop work that has not started and wait for nothing: running instructions end unnoticed."""
        self.close(0.0)

    def close(self, timeout: float = GRACE_SECONDS) -> None:
        """Drop work that has not started, wait up to `timeout` seconds for running instructions, and stop the workers.

        The results of dropped work raise `VirtualMachineClosed`.  Use `synchronize` or `shutdown` to finish instead.
        The state is "aborted" afterwards if something was still running, else "closed".
        """
        if not self.closed:
            self.lifecycle.close(timeout)

    def drain(self) -> None:
        """Block until everything issued so far has finished."""
        if not self.engine.idle() and not self.closed:
            self.wait(self.lifecycle.issue_sync())

    # Looking inside

    def story(self, about: Instruction | int | str | None = None) -> list[tuple[str, int, str]]:
        """The events of the last turns, as ``(event, serial, detail)``; see `Story.events`."""
        return self.engine.story.events(about)

    def snapshot(self) -> Snapshot:
        """The instructions, streams and memory at this moment; its repr is for people."""
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
    with HANDOVER_LOCK:
        writer = storage.writer
        if writer is None or storage.settled():
            return None
        return cast(VirtualMachine, storage.machine), writer


def default_machine() -> VirtualMachine:
    """The machine of code that has not entered one: scripts, threads, loops without their own."""
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
    return [machine for machine in [reference() for reference in list(_machines.values())] if machine is not None]
