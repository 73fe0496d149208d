"""The CUDA devices of this process: their drivers, and the events that are used again.

They are opened when a stream of a device is first asked for.  ``VMFLOW_CUDA=emulated`` emulates them on the CPU.
"""

from __future__ import annotations

import os
from typing import Final

from vmflow.forking import lock_held_while_forking

from .driver import Driver
from .pinned import PinnedMemory
from .policy import EventPool
from .setting import emulated_devices_of, setting_of

_lock: Final = lock_held_while_forking()
_pools: Final[list[EventPool]] = []
_pinned: Final[dict[int, PinnedMemory]] = {}


def events_of(index: int) -> EventPool:
    """The events of a device, which know its driver."""
    with _lock:
        if not _pools:
            _pools.extend([EventPool(driver) for driver in _open()])
    return _pools[index]


def driver_of(index: int) -> Driver:
    """The driver of a device."""
    return events_of(index).driver


def pinned_of(index: int) -> PinnedMemory:
    """The page-locked memory for copies from and to a device."""
    found = _pinned.get(index)
    return _pinned.setdefault(index, PinnedMemory(driver_of(index))) if found is None else found


def is_open() -> bool:
    """Whether the devices are in use in this process."""
    return bool(_pools)


def _open() -> list[Driver]:
    setting = setting_of(os.environ)
    if setting.kind != "emulated":
        from .cupy_driver import open_devices

        return open_devices()
    from .emulation.driver import EmulatedMachine

    count = emulated_devices_of(os.environ)
    return list(EmulatedMachine(count, setting.mode, seed=setting.seed).drivers)
