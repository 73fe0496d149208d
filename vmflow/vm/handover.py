"""`Handover`: moves storages from one virtual machine to another.

One machine at a time orders the accesses to a storage.  When another machine needs the storage while the old one may
have unfinished accesses to it, the old one gets an instruction `HandoverOut`, behind every access issued so far, and
the new one a `HandoverIn`, before every later access.  The `HandoverIn` ends when the `HandoverOut` has run.  Both are
issued in the same moment: so a `HandoverIn` waits only for instructions issued earlier, on any machine, and machines
that exchange storages cannot deadlock.

If all writes of the storage have ended, the new machine's reads do not wait for the old one's, but its writes do.
If the reads waited, too, ranks of a simulation that share a tensor could wait for each other.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Final

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

# A list of one element: whether a machine has taken over a storage that had another machine, in this process.
TAKEN_OVER: Final = [False]


class HandoverIn(Deferred):
    """An instruction of a storage's new machine, which the old machine's `HandoverOut` ends."""

    __slots__ = ()

    name = "handover_in"


class HandoverOut(InstructionPolicy):
    """An instruction of a storage's old machine, which ends the `HandoverIn` after the storage's accesses there.

    Attributes:
        incoming: the `HandoverIn`.
        dependence: the storage's accesses on the old machine.
    """

    __slots__ = ("_previous", "dependence", "incoming")

    name = "handover_out"
    preschedulable = False

    def __init__(self, incoming: HandoverIn, previous: VirtualMachine, dependence: Dependence) -> None:
        self.incoming = incoming
        self._previous = previous
        self.dependence = dependence

    def compute(self) -> None:
        self.incoming.end()

    def fail(self, failure: Failure) -> None:
        # The old machine was closed, or its threads are gone in a forked child: only running accesses are waited for.
        self._previous.lifecycle.hand_over_later(self)


class Handover:
    """Takes storages over from other virtual machines, for one machine.

    Attributes:
        last_incoming: the last `HandoverIn` that was issued on this machine; None if there was none.
    """

    def __init__(self, machine: VirtualMachine) -> None:
        self._machine = machine
        self.last_incoming: Instruction | None = None
        # For each handover that is not known to have ended, the old machine and its `HandoverOut`.
        self._outgoing: deque[tuple[VirtualMachine, Instruction]] = deque()

    def sources(self) -> list[VirtualMachine]:
        """Return machines whose instructions may have to end before this machine uses storages taken over from them."""
        outgoing = self._outgoing
        while outgoing:
            try:
                first = outgoing[0]
                if first[1].state != ERASED:
                    break
                outgoing.remove(first)
            except (IndexError, ValueError):  # another thread has removed the entry
                continue
        return [previous for previous, _ in list(outgoing)]

    def access(self, storage: Storage, stream: Stream) -> Dependence:
        """See `VirtualMachine.access`."""
        machine = self._machine
        while True:
            if storage.machine is not machine:
                machine.take_over(storage)
            with HANDOVER_LOCK:
                dependence = storage.dependence
                if dependence.machine is not machine:
                    continue  # another machine has taken the storage over in between
                last = storage.stream
                if last is None:
                    storage.use_on(stream)
                elif last is not stream and last.device is stream.device:
                    # On a closing machine no wait is needed, since it will refuse the instruction that is to use the
                    # storage.
                    if last.policy.asynchronous and stream.policy.asynchronous and not machine.driver.refusing:
                        code, offset = origin.capture()
                        # Nobody is woken for the wait: issuing the instruction that is to use the storage will do that.
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
            if previous is not None:
                TAKEN_OVER[0] = True
            home = machine.home_of(storage.stream) if storage.stream is not None else None
            if previous is None or previous.engine.idle() or _is_unused(previous, dependence):
                # The storage gets a new dependence, since a thread that has looked up the old one may be about to issue
                # an instruction with it on the old machine.
                new = Dependence(machine)
                dependence.replace(new)
                storage.take_over(home, new, None, machine.engine.pending)
                return new
            new = Dependence(machine)
            holds_value = storage.settled()
            outgoing, incoming = self._halves(previous, dependence, new, holds_value)
            previous.engine.pending.append(outgoing)
            # From now on this machine orders the accesses; the `HandoverIn` stands for all accesses on the old machine.
            dependence.replace(new)
            storage.take_over(home, new, incoming, machine.engine.pending, holds_value)
            self.last_incoming = incoming
            self._outgoing.append((previous, outgoing))
        previous.accept_handover()
        # Nobody is woken to run the `HandoverIn`: issuing the instruction that is to use the storage will do that.
        return new

    def _halves(
        self, previous: VirtualMachine, old: Dependence, new: Dependence, holds_value: bool = False
    ) -> tuple[Instruction, Instruction]:
        """Make the `HandoverOut` behind the accesses of `old`, and the `HandoverIn` before the later ones of `new`.

        With `holds_value`, the `HandoverIn` counts as a read, so that only later writes wait for it.
        """
        policy = HandoverIn()
        reads, writes = ((new,), ()) if holds_value else ((), (new,))
        incoming = Instruction(self._machine.host_stream("handover"), policy, reads, writes)
        outgoing = Instruction(previous.control_stream(), HandoverOut(policy, previous, old), (), (old,))
        for owner, half in ((previous, outgoing), (self._machine, incoming)):
            tracer = owner.tracer
            if tracer is not None:
                tracer.issued(half)
        return outgoing, incoming

    def follow(self, issued: Instruction) -> None:
        """Order later accesses of other machines behind an issued instruction whose storages they have taken over.

        Another machine can take a storage over after a thread has looked up the dependence, and before the thread's
        instruction is issued: without this, the memory could be released before the instruction has read it.
        """
        for dependence in (*issued.reads, *issued.writes):
            if dependence.successor is None:
                continue
            with HANDOVER_LOCK:
                newest = dependence.successor
                while newest.successor is not None:
                    newest = newest.successor
                owner: VirtualMachine = newest.machine
                owner.handover.wait_for(self._machine, dependence, newest)
            self._machine.accept_handover()
            owner.accept_handover()

    def wait_for(self, previous: VirtualMachine, old: Dependence, new: Dependence) -> None:
        """Let this machine's later accesses of `new` wait for those of `old` on `previous`; under `HANDOVER_LOCK`."""
        outgoing, incoming = self._halves(previous, old, new)
        previous.engine.pending.append(outgoing)
        self._machine.engine.pending.append(incoming)
        self.last_incoming = incoming
        self._outgoing.append((previous, outgoing))


def _is_unused(previous: VirtualMachine, dependence: Dependence) -> bool:
    """Whether no access on a storage's old machine is unfinished; False if another thread has that machine's turn lock.

    If True, no `HandoverOut` is needed.  One might not run soon: this thread may be in the middle of the old machine's
    turn.
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
