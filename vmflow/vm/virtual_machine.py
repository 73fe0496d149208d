"""`VirtualMachine`: an engine, with the objects that drive it, wait for it and end it."""

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

# A script that only issues also gets a turn for an instruction of this many nanoseconds.
_HEAVY: Final = 20_000


# All machines by their id; a dictionary, since threads may make machines while others iterate over them.
_machines: dict[int, weakref.ref[VirtualMachine]] = {}


class VirtualMachine(MachineFields):
    """Orders and runs instructions.

    A script needs none: it uses the default machine.  A loop may have its own, with its own streams and workers.  Ops
    of the task that enters the ``async with`` block, and of its children, go to that machine.  Leaving the block
    finishes all work, or drops work that has not started if the block is left by an exception.

    Args:
        name: for reprs and thread names.
        window: the most instructions one turn absorbs.
        turn_budget: seconds that a loop callback may drive before it lets the loop run.
        gather: a script that only issues gets a turn each time this many instructions are pending.  By default, an
            instruction with nothing before it runs as it is issued, which takes less time than a turn, and the rest
            gathers.
        high_water: outstanding instructions above which the issuer drives or waits.
        high_water_bytes: the same for the bytes of their large results.
        cpu_worker: "auto", "always" or "never": see `CpuStreamPolicy`.
        race_check: watch for unordered accesses to the same memory; raises `RaceDetected`.  Slow.
        drain_timeout: seconds that leaving the `async with` block may take before the remaining work is dropped;
            None for as long as it takes.
        stall_after: seconds without any progress after which a waiting thread or coroutine logs the state of the
            machine.

    Attributes:
        state: "running"; "draining" while it finishes and refuses new work; "closed"; or "aborted", if an instruction
            was still running when the time to close was up.

    Raises:
        ValueError: for a number that is not positive, or another `cpu_worker`.

    Example:
        >>> import asyncio
        >>> async def main():
        ...     async with flow.VirtualMachine("mine") as machine:
        ...         print(await (flow.ones(2) + 1))
        ...     print(machine)
        >>> asyncio.run(main())
        tensor([2., 2.])
        <VirtualMachine 'mine' closed>
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
        # All exchanges between ranks and launches of graphs write this, so that they keep one order.
        self.transport = Dependence(self)
        self.races: RaceWatch | None = None
        if settings.race_check(race_check):
            from .race_watch import RaceWatch  # here, because most programs do not need it

            self.races = RaceWatch()
        self.memory = memory.MachineMemory(*(self.races.callbacks() if self.races is not None else ()))
        self.observers = Observers(gather is not None, self.races)
        # For each graph its runtime on this machine.
        self.graphs: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self.driver = Driver(self)
        self.forget_threads()
        self._mode_before: Any = None
        number = id(self)
        _machines[number] = weakref.ref(self, lambda _: _machines.pop(number, None))

    def forget_threads(self) -> None:
        """Set up the state of threads and loops; a forked child does so again, since it has none of them."""
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
        """Drop the state of other threads and of loops, in a forked child whose only thread drives the machine."""
        self.devices.forget_workers()
        self.driver.forget_others()
        self.back_pressure.forget()
        self.waiters.forget()
        self.loops.forget()

    @property
    def tracer(self) -> Tracer | None:
        """The tracer that is called at every step of every instruction; None without a recording."""
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
        """See the attributes of the class."""
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
        """Let the stream keep program order from now on, even without data dependences; see `StreamPolicy.sequential`.

        Returns:
            The dependences that an instruction must read to run after the stream's present instructions.
        """
        if stream.policy.sequential:
            return ()
        lock = self.driver.turn_lock
        # Code that runs on the driving thread has the lock already.
        mine = lock.owner == threading.get_ident()
        if not mine:
            lock.acquire()
        try:
            stream.policy.keep_order()
            lively = [instruction for instruction in self.engine.lively if instruction.stream is stream]
        finally:
            if not mine:
                lock.release()
                self.driver.pass_on()
        return tuple(dict.fromkeys([dependence for instruction in lively for dependence in instruction.writes]))

    # Issuing

    def issue(self, instruction: Instruction, written: Storage | None = None) -> None:
        """Accept an instruction.  Returns immediately, except for back-pressure and the turns that a script drives.

        Args:
            instruction: the instruction.
            written: a storage that it writes, whose `writer` becomes this instruction.
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
            # The line is noted before another thread can see the instruction, and perhaps run it.
            tracer.issued(instruction)
        if written is not None:
            written.expect(instruction, pending)
        else:
            pending.append(instruction)
        self.accepted(instruction)

    def issue_from_within(self, instruction: Instruction) -> None:
        """Accept an instruction that a running one issues; the driving thread goes on with it.

        Also while the machine drains and refuses other work.  If it has ended, the instruction is dropped.
        """
        tracer = self.observers.tracer
        if tracer is not None:
            tracer.issued(instruction)
        self.engine.pending.append(instruction)
        # Checked after appending: the closing thread sets the state before it drops late instructions.
        if self.closed:
            self.lifecycle.drop_late()

    def would_run_here(self, stream: Stream, cost: int) -> bool:
        """Whether a caller may do work of so many nanoseconds itself, as an instruction on `stream` would.

        Only code on the driving thread may, and only without a tracer and a race check.
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
        """Remember a failure, to report it at the end if nobody has looked at it."""
        self.lifecycle.remember(failure)

    def require_open(self, name: str) -> None:
        """Raise `VirtualMachineClosed` if new work is refused, before `name` has changed anything."""
        self.lifecycle.require_open(name)

    def access(self, storage: Storage, stream: Stream) -> Dependence:
        """Make `storage` safe to use on `stream` by the next instruction issued; returns its dependence.

        If another stream of the same asynchronous device used the storage last, `stream` is made to wait for that one
        on the device.  Otherwise the engine waits until that use has finished.
        """
        return self.handover.access(storage, stream)

    def accepted(self, instruction: Instruction) -> None:
        """Make sure that a thread or loop drives, now that `instruction` is pending."""
        engine = self.engine
        pending = engine.pending
        nbytes = instruction.nbytes
        if nbytes:
            self.back_pressure.count(nbytes)
        # Checked after appending: the closing thread sets this before it drops the pending instructions.
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
            self.back_pressure.throttle(loop)

    def flush(self) -> None:
        """Run the op that a script has issued last, if it waits for ops to make a chain with; see `Chain`."""
        if self.driver.chain is not None:
            self.driver.drive()

    def shrink(self, device: Device) -> bool:
        """Give the memory that is kept for reuse back to the device; returns False if the machine is busy."""
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

        Called by destructors, hence from anywhere, also in the middle of a turn: this only leaves a note.  If nothing
        is outstanding, the memory goes with the object.
        """
        if not self.engine.idle():
            self.releases.note(storage)

    def has_waiters(self) -> int:
        """The number of instructions that somebody waits for, and of producers that wait because of back-pressure."""
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

        Cancelling the coroutine stops the waiting, not the instruction; a scope stops instructions.  Above the
        high-water marks, the coroutine stays suspended until half as much is outstanding.

        Raises:
            RuntimeError: without a running asyncio loop.
            Cancelled, DeadlineExceeded: as soon as the scope of the instruction ends, if the instruction has not run.
            VirtualMachineClosed: if the machine is aborted before.
        """
        return self.waiters.wait_async(instruction)

    def checkpoint(self) -> Checkpoint:
        """Let the event loop run; above the high-water marks, until half as much is outstanding; to be awaited."""
        return Checkpoint(self)

    def synchronize(self) -> Synchronization:
        """Wait for everything issued so far: await the result; in plain code this call blocks."""
        instruction = Instruction(self.control_stream(), GlobalSync(self.streams))
        self.issue(instruction)
        if running_loop() is None:
            self.wait(instruction)
        return Synchronization(self, instruction)

    # Sharing storages with other machines

    def take_over(self, storage: Storage) -> Dependence:
        """Let this machine order the accesses to `storage` from now on, after all accesses issued on other machines."""
        storage.admit()
        return self.handover.take_over(storage)

    # Entering and ending

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
            if self.handover.last_incoming is not None and not self.closed:
                await Synchronization(self, self.handover.last_incoming)
        finally:
            self.close()

    async def shutdown(self, grace: float | None = None) -> None:
        """Refuse new work, finish all work, then close.

        Args:
            grace: seconds to finish in; work that has not started by then is dropped.  None for as long as it takes.

        Cancelling the coroutine also drops work that has not started.
        """
        await self.lifecycle.shutdown(grace)

    def abort(self) -> None:
        """Drop work that has not started, and do not wait for running instructions."""
        self.close(0.0)

    def close(self, timeout: float = GRACE_SECONDS) -> None:
        """Drop work that has not started, wait up to `timeout` seconds for running instructions, and stop the workers.

        The results of dropped work raise `VirtualMachineClosed`.  Use `synchronize` or `shutdown` to finish instead.
        The state is "aborted" afterwards if an instruction was still running, else "closed".
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
    """The instruction that a reader of `storage` must wait for, and its machine; None if the storage has its value."""
    with HANDOVER_LOCK:
        writer = storage.writer
        if writer is None or storage.settled():
            return None
        return cast(VirtualMachine, storage.machine), writer


def default_machine() -> VirtualMachine:
    """The machine of code that has not entered one: of scripts, threads, and loops without their own."""
    if not DEFAULT:
        with _default_lock:
            if not DEFAULT:
                DEFAULT.append(VirtualMachine("default"))
    return DEFAULT[0]


def current_machine() -> VirtualMachine:
    """The machine to which ops are issued here: that of the innermost ``async with machine``, else the default one.

    Example:
        >>> flow.vm.current_machine() is flow.vm.default_machine()
        True
    """
    machine: VirtualMachine | None = MODE.get().machine
    return machine if machine is not None else default_machine()


def synchronize() -> Synchronization:
    """Wait for everything issued so far: ``await vmflow.synchronize()``; in plain code the call itself blocks.

    Example:
        >>> x = flow.ones(3)
        >>> _ = flow.synchronize()
        >>> x.numpy()  # need not wait any more
        array([1., 1., 1.], dtype=float32)
    """
    return current_machine().synchronize()


def checkpoint() -> Checkpoint:
    """Lets the event loop run, in a coroutine that issues a lot without awaiting any of it.

    The result is to be awaited.  The coroutine goes on in the next turn of the loop; above the machine's high-water
    marks, when half as much is outstanding.

    Example:
        >>> import asyncio
        >>> async def main():
        ...     total = flow.zeros(1)
        ...     for step in range(4):
        ...         total += step
        ...         await flow.checkpoint()  # other tasks run here
        ...     return (await total).item()
        >>> asyncio.run(main())
        6.0
    """
    return current_machine().checkpoint()


def live_machines() -> list[VirtualMachine]:
    """All machines that are not garbage."""
    return [machine for machine in [reference() for reference in list(_machines.values())] if machine is not None]
