"""Emulated CUDA devices of a test, with a mode and a seed of its own."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import vmflow as flow
from vmflow.context import MODE
from vmflow.streams.cuda import registry
from vmflow.streams.cuda.device import CudaDevice
from vmflow.streams.cuda.driver import Driver
from vmflow.streams.cuda.emulation.driver import EmulatedDriver, EmulatedMachine
from vmflow.vm import stream_table
from vmflow.vm.virtual_machine import VirtualMachine


class Emulated(NamedTuple):
    """The devices, and the virtual machine that uses them."""

    cuda: EmulatedMachine
    machine: VirtualMachine

    @property
    def driver(self) -> EmulatedDriver:
        return self.cuda.drivers[0]


@contextmanager
def emulated(
    mode: str = "lazy", seed: int = 0, *, count: int = 2, nbytes: int | None = None, race_check: bool | None = None
) -> Iterator[Emulated]:
    """A block in which "cuda" devices are these, used by a virtual machine of their own."""
    cuda = EmulatedMachine(count, mode, seed=seed, nbytes=nbytes)
    with driven(cuda.drivers, f"emulated {mode}:{seed}", race_check) as machine:
        yield Emulated(cuda, machine)


@contextmanager
def driven(drivers: Sequence[Driver], name: str, race_check: bool | None = None) -> Iterator[VirtualMachine]:
    """A block in which "cuda" devices are those of these drivers, used by a virtual machine of this name."""
    before = registry.replace_devices([CudaDevice(driver) for driver in drivers])
    memories = stream_table.replace_memories({})
    surroundings = MODE.get()
    machine = VirtualMachine(name, race_check=race_check)
    MODE.set(surroundings.replace(machine=machine, device=None, streams=None))
    try:
        yield machine
        machine.drain()
    finally:
        machine.close()
        MODE.set(surroundings)
        gc.collect()
        registry.replace_devices(before)
        stream_table.replace_memories(memories)


def sum_of(tensor: flow.Tensor) -> float:
    """A value that needs the whole tensor."""
    return float(tensor.double().sum().item())
