"""Move a storage from one virtual machine to another.

A storage is ordered by one machine at a time.  When another wants it, the old machine is given a `Departure`, behind
every access issued so far, and the new machine an `Arrival`, before every access to come, which ends when the departure
has run.  Both are issued in the same moment: so whatever waits for an arrival waits for things issued earlier, on
whichever machine, and machines that exchange storages cannot come to wait for each other.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from vmflow.errors import VirtualMachineClosed
from vmflow.forking import lock_held_while_forking
from vmflow.instructions import origin
from vmflow.instructions.blob import Storage
from vmflow.instructions.deferred import Deferred
from vmflow.instructions.failure import Failure
from vmflow.instructions.instruction import ERASED, Dependence, Instruction
from vmflow.instructions.policy import InstructionPolicy
from vmflow.instructions.stream_events import StreamWait
from vmflow.streams import Stream

from . import nested

if TYPE_CHECKING:
    from .virtual_machine import VirtualMachine

# Held while a storage's machine and stream are read or changed together.
HANDOVER_LOCK: Final = lock_held_while_forking()


class Arrival(Deferred):
    """On the new machine: begins when launched, ends when the departure has run."""

    __slots__ = ()

    name = "arrival"


class Departure(InstructionPolicy):
    """On the old machine: everything issued there has finished with the storage."""

    __slots__ = ("arrival",)

    name = "departure"
    preschedulable = False

    def __init__(self, arrival: Arrival) -> None:
        self.arrival = arrival

    def compute(self) -> None:
        self.arrival.end()

    def fail(self, failure: Failure) -> None:
        # The old machine was closed: everything issued before this has ended too, and the new machine must hear of it.
        self.arrival.end()


class Handover:
    """The storages that one machine takes over from others.

    Args:
        machine: which.

    Attributes:
        last_arrival: the last `Arrival` that was issued here; None if nothing has come.
    """

    def __init__(self, machine: VirtualMachine) -> None:
        self._machine = machine
        self.last_arrival: Instruction | None = None
        # By machine, the departures that may not have run.
        self._departures: deque[tuple[VirtualMachine, Instruction]] = deque()

    def sources(self) -> list[VirtualMachine]:
        """The machines that must finish with storages before this machine may use them."""
        departures = self._departures
        while departures:
            try:
                if departures[0][1].state != ERASED:
                    break
                departures.popleft()
            except IndexError:  # another thread was faster
                break
        return [previous for previous, _ in list(departures)]

    def bring(self, storage: Storage, stream: Stream) -> Dependence:
        """See `VirtualMachine.bring`."""
        machine = self._machine
        while True:
            if storage.machine is not machine:
                machine.take_over(storage)
            with HANDOVER_LOCK:
                dependence = storage.dependence
                if dependence.machine is not machine:
                    continue  # another machine was quick
                last = storage.stream
                if last is None:
                    storage.use_on(stream)
                elif last is not stream and last.device is stream.device:
                    # A closed machine will turn away the instruction for which this is done.
                    if last.policy.asynchronous and stream.policy.asynchronous and not machine.driver.refusing:
                        code, offset = origin.capture()
                        # That somebody drives is seen to with the instruction for which this is done.
                        machine.engine.pending.append(
                            Instruction(stream, StreamWait(last), (), (dependence,), 0, code, offset)
                        )
                    storage.use_on(stream)
                return dependence

    def take_over(self, storage: Storage) -> Dependence:
        """See `VirtualMachine.take_over`."""
        machine = self._machine
        with HANDOVER_LOCK:
            dependence = storage.dependence
            previous: VirtualMachine | None = dependence.machine
            if previous is machine:
                return dependence
            home = machine.home_of(storage.stream) if storage.stream is not None else None
            if previous is None or previous.engine.idle() or _is_unused(previous, dependence):
                # A new one, for a thread may be about to issue something there that has looked up the old.
                arrived = Dependence(machine)
                storage.take_over(home, arrived, None, machine.engine.pending)
                return arrived
            stream = machine.host_stream("handover")
            arrives = Arrival()
            arrived = Dependence(machine)
            arrival = Instruction(stream, arrives, (), (arrived,))
            departure = Instruction(previous.control_stream(), Departure(arrives), (), (dependence,))
            for each, half in ((previous, departure), (machine, arrival)):
                tracer = each.tracer
                if tracer is not None:
                    tracer.issued(half)
            previous.engine.pending.append(departure)
            # A reader must wait for the value on this machine from now on.  The arrival stands for all that was done on
            # the streams there.
            storage.take_over(home, arrived, arrival, machine.engine.pending)
            self.last_arrival = arrival
            self._departures.append((previous, departure))
        # If it is closed, everything there has ended, and the departure, dropped, has said so.
        with suppress(VirtualMachineClosed):
            previous.accepted(departure)
        # That somebody drives this machine is seen to with the instruction for which all this is done.
        return arrived


def _is_unused(previous: VirtualMachine, dependence: Dependence) -> bool:
    """Whether a machine that nobody drives, or this thread, has nothing to do with the storage any more.

    Nobody might run a departure soon: not before this thread goes on that drives the machine, nor before the machine's
    own thread goes on where it waits for something else.
    """
    lock, me = previous.driver.turn_lock, threading.get_ident()
    if lock.owner == me:
        return nested.is_free(previous, (), (dependence,))
    if not lock.take(me):
        return False
    try:
        return nested.is_free(previous, (), (dependence,))
    finally:
        lock.release()
        previous.driver.pass_on()
