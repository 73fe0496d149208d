"""Streams, the policies by which they execute work, their worker threads, and the memory of devices.

This package knows no tensors, ops or graphs.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

from .allocator import Allocation as Allocation, BinAllocator as BinAllocator
from .control import ControlStreamPolicy as ControlStreamPolicy
from .cpu import CpuStreamPolicy as CpuStreamPolicy
from .device_memory import DeviceMemory as DeviceMemory
from .independent import IndependentStreamPolicy as IndependentStreamPolicy
from .stream import Stream as Stream, StreamPolicy as StreamPolicy
from .worker import Worker as Worker

if _TYPE_CHECKING:
    from .races import RaceDetector as RaceDetector
    from .simulated import SimulatedDevice as SimulatedDevice, SimulatedStreamPolicy as SimulatedStreamPolicy


# Names that are loaded on first use: most programs neither simulate devices nor look for races.
_LAZY_NAMES = {
    "RaceDetector": ".races",
    "SimulatedDevice": ".simulated",
    "SimulatedStreamPolicy": ".simulated",
}


def __getattr__(name: str) -> object:
    if name in _LAZY_NAMES:
        return getattr(_import_module(_LAZY_NAMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY_NAMES])
