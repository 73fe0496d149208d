"""`VirtualMachine`: runs instructions; its parts order them, run turns, wait for results and close the machine."""

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
from .handover import HANDOVER_LOCK, TAKEN_OVER, Handover
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

# A pending instruction of a script with at least this many estimated nanoseconds, which has joined no chain, begins a
# chain if it can, else causes a turn.
_HEAVY: Final = 20_000


# All living machines, by id.  This is a dict and not a WeakSet, since threads may make machines while others iterate.
_machines: dict[int, weakref.ref[VirtualMachine]] = {}


class VirtualMachine(MachineFields):
    """Orders and runs the instructions that ops become.

    A script need not make a machine: it uses the default one.  An event loop may have a machine of its own, with its
    own streams and workers.  Ops in the machine's ``async with`` block, and in tasks that are created there, go to that
    machine.  Leaving the block finishes all work, or drops work that has not started if the block is left by an
    exception.

    Args:
        name: the machine's name, for reprs and thread names.
        window: the largest number of new instructions that one turn of the engine takes.
        turn_budget: the seconds for which the machine's callback on an event loop may start instructions before it
            returns; and for which ops may start inline in each turn of the loop.
        gather: a script that issues instructions without waiting runs a turn when this many are pending, or sooner.
            None for 32, and to run an instruction that nothing precedes as it is issued.
        high_water: the number of unfinished instructions above which a thread that issues more waits, or runs turns.
        high_water_bytes: the bytes of unfinished instructions' large results above which it does so, too.  A thread
            with a running loop gets a `BackPressureWarning` if its turns leave more than a mark unfinished; the result
            of the last instruction does not count among the bytes then.
        cpu_worker: "auto", "always" or "never": see `CpuStreamPolicy`.
        race_check: whether to watch for unordered accesses to the same memory, which raise `RaceDetected`.  Slow.  None
            for the environment variable `VMFLOW_RACE_CHECK`.
        drain_timeout: seconds that leaving the `async with` block may take before work that has not started is
            dropped; None for as long as it takes.
        stall_after: seconds without any progress after which a waiting thread or coroutine logs the machine's state;
            `math.inf` for never, None for the environment variable `VMFLOW_STALL_SECONDS`, or a minute.

    Attributes:
        state: "running"; "draining" while the machine finishes and refuses new work; "closed"; or "aborted", if an
            instruction was still running when the time to close was up.

    Raises:
        TypeError: if a count or mark is no `int`, or a time no `int` or `float`; a bool is neither.
        ValueError: for a number that is not positive (`drain_timeout`: a negative one), a time that is nan or more than
            a lock can wait for (except `stall_after=math.inf`), a bad `VMFLOW_STALL_SECONDS`, or another `cpu_worker`.

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
        settings.check(
            window, turn_budget, gather, high_water, high_water_bytes, drain_timeout, stall_after, cpu_worker
        )
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
        # The dependence that launches of graphs, and exchanges between ranks outside of communication scopes, write, so
        # that they keep one order.
        self.transport = Dependence(self)
        self.races: RaceWatch | None = None
        if settings.race_check(race_check):
            from .race_watch import RaceWatch  # imported here, because most programs do not need it

            self.races = RaceWatch()
        self.memory = memory.MachineMemory(*(self.races.callbacks() if self.races is not None else ()))
        self.observers = Observers(gather is not None, self.races)
        # The runtime of each compiled graph on this machine.
        self.graphs: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self.driver = Driver(self)
        self.forget_threads()
        self._mode_before: Any = None
        number = id(self)
        _machines[number] = weakref.ref(self, lambda _: _machines.pop(number, None))

    def forget_threads(self) -> None:
        """Set up the machine's state of threads and loops; a forked child may repeat this, to forget its parent's."""
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
        """Forget other threads and all loops, in a child that the machine's driving thread has forked."""
        self.devices.forget_workers()
        self.driver.forget_others()
        self.back_pressure.forget()
        self.waiters.forget()
        self.loops.forget()

    @property
    def tracer(self) -> Tracer | None:
        """The tracer that records instructions; None without a recording."""
        return self.observers.tracer

    @tracer.setter
    def tracer(self, tracer: Tracer | None) -> None:
        self.observers.listen(tracer)

    @property
    def closed(self) -> bool:
        """Whether the state is "closed" or "aborted"."""
        return self.lifecycle.closed

    @property
    def state(self) -> str:
        """See the class."""
        return self.lifecycle.state

    # Streams

    def stream(self, device: Device, kind: str = "compute") -> Stream:
        """Return the machine's stream of this kind on `device`, opened at the first use.

        Raises:
            DeviceUnavailable, ValueError: see `make_policy` and `device_memory` in `stream_table`.
        """
        return self.devices.stream(device, kind)

    def control_stream(self) -> Stream:
        """Return the stream on which barriers run, which belongs to no device."""
        return self.host_stream("control")

    def host_stream(self, kind: str) -> Stream:
        """Return a stream of no device: "control" for barriers, or "handover" for storages that arrive."""
        return self.devices.stream(None, kind)

    def streams(self) -> Iterable[Stream]:
        """The machine's open streams: all that were opened and that `Devices.drop_ended` has not forgotten."""
        return self.devices.streams()

    def home_of(self, stream: Stream) -> Stream:
        """Return this machine's compute stream on the device of `stream`, a stream of any machine."""
        return self.stream(cast(Device, stream.device))

    def keep_program_order(self, stream: Stream) -> tuple[Dependence, ...]:
        """Let a stream run its instructions in program order from now on, even without data dependences.

        Returns:
            The dependences that the stream's present instructions write: an instruction that reads them runs after
            these writes.  Empty if the stream keeps program order already.
        """
        if stream.policy.sequential:
            return ()
        stream.policy.keep_order()
        unfinished = self.unfinished(stream)
        return tuple(dict.fromkeys([dependence for instruction in unfinished for dependence in instruction.writes]))

    def unfinished(self, stream: Stream) -> list[Instruction]:
        """Return the instructions on a stream that were issued and that have not ended, in program order."""
        lock = self.driver.turn_lock
        # Code that an instruction calls on the driving thread has the turn lock already.
        mine = lock.owner == threading.get_ident()
        if not mine:
            lock.acquire()
        try:
            issued = (*self.engine.lively, *self.engine.pending)
        finally:
            if not mine:
                lock.release()
                self.driver.pass_on()
        return [instruction for instruction in issued if instruction.stream is stream]

    # Issuing

    def issue(self, instruction: Instruction, written: Storage | None = None) -> None:
        """Accept an instruction, to run it now or later.

        Returns immediately, except for an inline run, back-pressure and the turns that a script runs now and then.

        Args:
            instruction: the instruction.
            written: a storage that the instruction writes, whose `writer` becomes the instruction unless it runs now;
                or None.

        Raises:
            VirtualMachineClosed: if the machine refuses new instructions.
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
            # The tracer is called before another thread can see the instruction, and perhaps run it.
            tracer.issued(instruction)
        if written is not None:
            written.expect(instruction, pending)
        else:
            pending.append(instruction)
        if TAKEN_OVER[0]:
            self.handover.follow(instruction)
        self.accepted(instruction)

    def issue_from_within(self, instruction: Instruction) -> None:
        """Accept an instruction that a running instruction issues; the driving thread will launch it.

        A machine that drains accepts it, too; if the machine has ended, the instruction is dropped.
        """
        tracer = self.observers.tracer
        if tracer is not None:
            tracer.issued(instruction)
        self.engine.pending.append(instruction)
        # The state is checked after appending, since the closing thread sets it before it drops late instructions.
        if self.closed:
            self.lifecycle.drop_late()

    def would_run_here(self, stream: Stream, cost: int) -> bool:
        """Whether the caller itself may do `cost` nanoseconds of work, in place of an instruction on `stream`.

        Only code that an instruction runs on the driving thread may, and only without a tracer and a race check.
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
        """See `Lifecycle.remember`."""
        self.lifecycle.remember(failure)

    def require_open(self, name: str) -> None:
        """See `Lifecycle.require_open`."""
        self.lifecycle.require_open(name)

    def access(self, storage: Storage, stream: Stream) -> Dependence:
        """Prepare `storage` for this machine's next instruction on `stream`; returns the storage's dependence.

        If another stream used the storage last, and both are asynchronous streams of one device, `stream` is made to
        wait for the other one on the device.  Another machine's storage is taken over.
        """
        return self.handover.access(storage, stream)

    def accepted(self, instruction: Instruction) -> None:
        """Let waiting threads or a loop run turns for a pending instruction.

        Without a loop, this thread runs turns once enough work is pending.  Above a high-water mark it waits, or runs
        turns if it has a running loop.
        """
        engine = self.engine
        pending = engine.pending
        nbytes = instruction.nbytes
        if nbytes:
            self.back_pressure.count(nbytes)
        # `refusing` is checked after the instruction was appended, since the closing thread sets it before it drops the
        # pending instructions.
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
            self.back_pressure.throttle(loop, instruction)

    def accept_handover(self) -> None:
        """Let threads or a loop run turns for a pending `HandoverOut` or `HandoverIn`; an ended machine drops it.

        A machine that drains, and refuses other instructions, runs it behind the work that it finishes: dropping it
        would tell the storage's new machine that this work has ended.
        """
        # The state is checked after the instruction was appended, as in `issue_from_within`.
        if self.closed:
            self.lifecycle.drop_late()
            return
        self.driver.pass_on()
        loop = running_loop()
        if loop is not None:
            self.loops.arm(loop)
        elif self.loops.home is not None:
            self.loops.arm_home()

    def flush(self) -> None:
        """Run the ops that a script has issued last, if they wait for later ops to be fused with in a `Chain`."""
        if self.driver.chain is not None:
            self.driver.drive()

    def shrink(self, device: Device) -> bool:
        """Give the allocators' unused memory back to `device`; returns whether that was possible.

        It is not if there is no allocator, work is unfinished, or a thread has the turn lock.
        """
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
        """Have the memory of `storage` freed after the instructions that use it.

        Called by destructors, hence from anywhere, also in the middle of a turn: this only notes the storage.  If no
        instruction is unfinished, it does nothing, and the memory is freed with the Python object.
        """
        if not self.engine.idle():
            self.releases.note(storage)

    def has_waiters(self) -> int:
        """The number of instructions that are waited for, plus that of producers that wait because of back-pressure."""
        return self.waiters.count() + self.back_pressure.waiting()

    # Waiting

    def wait(self, instruction: Instruction) -> None:
        """Block until `instruction` has ended; meanwhile this thread may run instructions.

        Raises:
            RuntimeError: if it is unfinished, and the caller runs in an instruction or turn of this machine, or of a
                machine that hands storages over to it, or in a function of a device.
            Cancelled, DeadlineExceeded: if the scope of the instruction ends before the instruction does, unless
                the policy has `keeps_outputs`.  An error passed to `Scope.cancel` is raised instead.
            VirtualMachineClosed: if the machine is aborted before.
        """
        self.waiters.wait(instruction)

    def wait_async(self, instruction: Instruction) -> Generator[Any, None, None]:
        """Suspend the running coroutine until `instruction` has ended.

        Cancelling the coroutine ends the waiting, not the instruction.  Above a high-water mark, the coroutine stays
        suspended until at most half of each mark is unfinished.

        Raises:
            RuntimeError: without a running asyncio loop.
            Cancelled, DeadlineExceeded, VirtualMachineClosed: as in `wait`.
        """
        return self.waiters.wait_async(instruction)

    def checkpoint(self) -> Checkpoint:
        """Return a `Checkpoint`."""
        return Checkpoint(self)

    def synchronize(self) -> Synchronization:
        """Wait for all instructions issued so far: await the result; without a running event loop this call blocks."""
        instruction = Instruction(self.control_stream(), GlobalSync(self.streams))
        self.issue(instruction)
        if running_loop() is None:
            self.wait(instruction)
        return Synchronization(self, instruction)

    # Sharing storages with other machines

    def take_over(self, storage: Storage) -> Dependence:
        """Let this machine order the accesses to `storage` from now on; returns the storage's dependence."""
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
        """Refuse new instructions, finish all issued ones, then close the machine.

        Args:
            grace: seconds to finish in; instructions that have not started by then are dropped.  None for no limit.

        Cancelling the coroutine, or a second call, also drops instructions that have not started.

        Raises:
            TypeError, ValueError: for a `grace` that is no valid `drain_timeout`; the machine goes on then.
        """
        if grace is not None:
            settings.check_seconds("grace", grace)
        await self.lifecycle.shutdown(grace)

    def abort(self) -> None:
        """Drop instructions that have not started, and close the machine.

        Waits for work that a device has, and only a moment for other running instructions.
        """
        self.close(0.0)

    def close(self, timeout: float = GRACE_SECONDS) -> None:
        """Drop work that has not started, wait up to `timeout` seconds for running instructions, and stop the workers.

        Work that a device has is waited for without limit, and so are, unless `timeout` is 0, storages that other
        machines hand over.  The results of dropped work raise `VirtualMachineClosed`.  Use `synchronize` or `shutdown`
        to finish it instead.  The machine's state is "aborted" afterwards if an instruction was still running, else
        "closed".

        Raises:
            TypeError, ValueError: for None, or a `timeout` that is no valid `drain_timeout`; the machine goes on then.
            RuntimeError: as in `wait`, if a storage is still to be handed over; the machine goes on then, too.
        """
        settings.check_seconds("timeout", timeout)
        if not self.closed:
            self.lifecycle.close(timeout)

    def drain(self) -> None:
        """Block until all instructions issued so far have finished, also on a machine that is "draining"."""
        if not self.engine.idle() and not self.closed:
            self.wait(self.lifecycle.issue_sync())

    # Looking inside

    def story(self, about: Instruction | int | str | None = None) -> list[tuple[str, int, str]]:
        """See `Story.events`."""
        return self.engine.story.events(about)

    def snapshot(self) -> Snapshot:
        """Return the machine's instructions, streams and memory at this moment; the result's repr is for people."""
        from .snapshot import take_snapshot  # imported here, because importing attrs takes milliseconds

        return take_snapshot(self)

    def others(self) -> list[VirtualMachine]:
        """Return all living machines but this one."""
        return [machine for machine in live_machines() if machine is not self]

    def __repr__(self) -> str:
        if self.state != "running":
            return f"<VirtualMachine {self.name!r} {self.state}>"
        return f"<VirtualMachine {self.name!r} lively={len(self.engine.lively)} pending={len(self.engine.pending)}>"


_default_lock = lock_held_while_forking()


def writer_of(storage: Storage) -> tuple[VirtualMachine, Instruction] | None:
    """Return the machine and instruction that a reader of `storage` must wait for; None if all writes have ended."""
    with HANDOVER_LOCK:
        writer = storage.writer
        if writer is None or storage.settled():
            return None
        return cast(VirtualMachine, storage.machine), writer


def default_machine() -> VirtualMachine:
    """Return the machine that is current where no other machine was entered, made at the first use."""
    if not DEFAULT:
        with _default_lock:
            if not DEFAULT:
                DEFAULT.append(VirtualMachine("default"))
    return DEFAULT[0]


def current_machine() -> VirtualMachine:
    """Return the machine to which ops are issued here: the innermost entered, a simulated rank's, or the default.

    Example:
        >>> flow.vm.current_machine() is flow.vm.default_machine()
        True
    """
    machine: VirtualMachine | None = MODE.get().machine
    return machine if machine is not None else default_machine()


def synchronize() -> Synchronization:
    """Wait for the ops of the current machine: ``await vmflow.synchronize()``; without a running event loop it blocks.

    Example:
        >>> x = flow.ones(3)
        >>> _ = flow.synchronize()
        >>> x.numpy()  # need not wait any more
        array([1., 1., 1.], dtype=float32)
    """
    return current_machine().synchronize()


def checkpoint() -> Checkpoint:
    """Let the event loop run, in a coroutine that issues many ops without awaiting them: ``await vmflow.checkpoint()``.

    The coroutine continues in the next turn of the loop; if the machine is at a high-water mark, when at most half of
    each mark is unfinished.

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
    """Return all virtual machines that have not been garbage-collected."""
    return [machine for machine in [reference() for reference in list(_machines.values())] if machine is not None]
