"""Where work runs: streams, the policies that say how they execute, and the worker threads behind them.

Nothing here knows what a tensor, an op or a graph is.
"""

from .control import ControlStreamPolicy as ControlStreamPolicy
from .cpu import CpuStreamPolicy as CpuStreamPolicy
from .stream import Stream as Stream
from .stream import StreamPolicy as StreamPolicy
from .worker import Worker as Worker
