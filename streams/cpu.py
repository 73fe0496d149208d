"""The CPU's compute stream: tiny work inline, heavy work on a worker thread."""

from __future__ import annotations

from typing import Final

from .stream import StreamPolicy

# An awaited op that is handed to the worker keeps a loop's thread busy for about 100 microseconds, whatever its kernel;
# one that runs inline, little longer than its kernel takes.  Below this cost, inline is better for the loop as well.
INLINE_BELOW_NANOSECONDS: Final = 100_000

# Work that was handed to the worker cannot be overtaken any more; work that is held back costs a hand-over's time in
# which the worker is idle.  With this depth the worker is seldom idle.
DEPTH_NANOSECONDS: Final = 500_000


class CpuStreamPolicy(StreamPolicy):
    """The compute stream of the CPU, whose kernels call numpy and compiled C.

    Large kernels release the GIL, so that a worker thread keeps an event loop responsive; for small work the hand-over
    costs more than the work.  Without an event loop everything runs inline.

    Args:
        inline_below: the estimated cost in nanoseconds below which work runs inline under a loop.
        worker: "auto" as above; "always" or "never" runs all work on the worker or none.
        kind: see `StreamPolicy`.

    Raises:
        ValueError: for another `worker`.
    """

    depth = DEPTH_NANOSECONDS

    def __init__(
        self, inline_below: int = INLINE_BELOW_NANOSECONDS, worker: str = "auto", kind: str = "compute"
    ) -> None:
        if worker not in ("auto", "always", "never"):
            raise ValueError(f"cpu_worker must be 'auto', 'always' or 'never', not {worker!r}")
        self.inline_below = inline_below
        self.worker = worker
        self.kind = kind

    def on_scheduler_thread(self, cost: int, loop_attached: bool) -> bool:
        if self.worker == "auto":
            return not loop_attached or cost < self.inline_below
        return self.worker == "never"
