"""Where work runs: streams, the policies that say how they execute, and the worker threads behind them.

Nothing here knows what a tensor, an op or a graph is.
"""

from .allocator import Allocation as Allocation
from .allocator import BinAllocator as BinAllocator
from .control import ControlStreamPolicy as ControlStreamPolicy
from .cpu import CpuStreamPolicy as CpuStreamPolicy
from .device_memory import DeviceMemory as DeviceMemory
from .independent import IndependentStreamPolicy as IndependentStreamPolicy
from .races import RaceDetector as RaceDetector
from .simulated import SimulatedDevice as SimulatedDevice
from .simulated import SimulatedStreamPolicy as SimulatedStreamPolicy
from .stream import Stream as Stream
from .stream import StreamPolicy as StreamPolicy
from .worker import Worker as Worker
