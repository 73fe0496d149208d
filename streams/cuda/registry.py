"""The CUDA devices of this process.

All are opened when one is first used.  ``VMFLOW_CUDA=emulated`` emulates them on the CPU.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from vmflow.errors import DeviceLost, DeviceUnavailable
from vmflow.forking import lock_held_while_forking
from vmflow.streams.device_memory import DeviceMemory

from .arrays import bytes_at
from .device import CudaDevice
from .driver import Driver
from .policy import CudaStreamPolicy
from .setting import emulated_devices_of, setting_of

_FORKED: Final = (
    "CUDA devices cannot be used in a process that was forked from one that used them; start the process by "
    "multiprocessing's 'spawn' or 'forkserver', or fork before the first CUDA tensor"
)

_lock: Final = lock_held_while_forking()
_devices: Final[list[CudaDevice]] = []


def device_of(index: int) -> CudaDevice:
    """The device of this index; the first call opens all devices.

    Raises:
        DeviceUnavailable: in a process that was forked from one that had opened the devices.
        IndexError: if there is no such device.
    """
    with _lock:
        if not _devices:
            _devices.extend([CudaDevice(driver) for driver in _open()])
    found = _devices[index]
    if found.forked:
        raise DeviceUnavailable(_FORKED)
    return found


def open_stream(index: int, kind: str, priority: int = 0, sequential: bool = False) -> CudaStreamPolicy:
    """A new stream of a device; see `CudaStreamPolicy`."""
    device = device_of(index)
    return CudaStreamPolicy(kind, device, device.driver.create_stream(priority), sequential)


def open_stream_at(index: int, kind: str, address: int) -> CudaStreamPolicy:
    """A stream of another library, see `Driver.stream_at`; its instructions keep program order."""
    device = device_of(index)
    return CudaStreamPolicy(kind, device, device.driver.stream_at(address), sequential=True)


def memory_of(index: int) -> DeviceMemory:
    """A new `DeviceMemory`, which takes its blocks from a device."""
    return DeviceMemory(f"cuda:{index}", device_of(index).driver.allocate, nothing=bytes_at(0, 0, None))


def replace_devices(devices: Sequence[CudaDevice]) -> list[CudaDevice]:
    """Replace the process's CUDA devices, for tests that emulate some; return the earlier ones."""
    with _lock:
        before = list(_devices)
        _devices[:] = devices
    return before


def opened() -> list[CudaDevice]:
    """All devices; none before they are opened."""
    return list(_devices)


def _open() -> list[Driver]:
    setting = setting_of(os.environ)
    if setting.kind != "emulated":
        from .cupy_driver import open_devices  # which imports cupy

        return open_devices()
    from .emulation.driver import EmulatedMachine  # imported here, since programs on a GPU do not need it

    count = emulated_devices_of(os.environ)
    return list(EmulatedMachine(count, setting.mode, seed=setting.seed).drivers)


def _after_fork_in_child() -> None:
    for device in _devices:
        device.leave_to_parent(DeviceLost(_FORKED))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
