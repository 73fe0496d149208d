"""Fences: `Barrier` waits for all earlier instructions, `GlobalSync` also for the devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from .policy import InstructionPolicy

if TYPE_CHECKING:
    from vmflow.streams import Stream


class Barrier(InstructionPolicy):
    """Call `callback` when everything issued earlier is erased.

    It is a fence for its own callback only: later instructions do not wait for it.
    """

    __slots__ = ("callback",)

    name = "barrier"
    barrier = True
    droppable = False
    preschedulable = False

    def __init__(self, callback: Callable[[], None] | None = None) -> None:
        self.callback = callback

    def compute(self) -> None:
        if self.callback is not None:
            self.callback()


class GlobalSync(Barrier):
    """A barrier behind which every stream is drained, on the device too.

    On a stream that reports work as finished when it has merely been launched, erased instructions may still be
    running; this fence waits for them.
    """

    __slots__ = ("streams",)

    name = "global_sync"

    def __init__(self, streams: Callable[[], Iterable[Stream]], callback: Callable[[], None] | None = None) -> None:
        super().__init__(callback)
        self.streams = streams

    def compute(self) -> None:
        for stream in self.streams():
            stream.policy.synchronize()
        super().compute()
