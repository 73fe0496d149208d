"""Memory whose last tensor is gone goes back behind what still uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmflow.instructions.instruction import Instruction
from vmflow.instructions.release_tensor import ReleaseTensor
from vmflow.instructions.stream_events import StreamWait

if TYPE_CHECKING:
    from .virtual_machine import VirtualMachine


def issue(machine: VirtualMachine) -> None:
    """Give back what `VirtualMachine.release` has noted; called by whoever drives."""
    released = machine._released
    while released:
        storage = released.popleft()
        if storage.array is None and storage.settled():
            continue
        dependence = storage.dependence
        if dependence.machine is not machine:
            dependence.machine.release(storage)
            continue
        # An untouched storage belongs to no stream: nothing has to be waited for, and the memory goes with it.
        last = storage.stream
        if last is not None:
            home = machine._home_of(last)
            if last is not home and home.policy.asynchronous:
                machine.engine.receive(Instruction(home, StreamWait(last), (), (dependence,)))
            machine.engine.receive(Instruction(home, ReleaseTensor(storage), (), (dependence,)))
