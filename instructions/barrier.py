"""`Barrier` waits for all instructions issued before it, `GlobalSync` also for other work on the devices' streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from .policy import InstructionPolicy

if TYPE_CHECKING:
    from vmflow.streams import Stream


class Barrier(InstructionPolicy):
    """Call `callback`, unless it is None, when all instructions issued before the barrier have ended.

    Only the callback waits: instructions issued after the barrier do not wait for it.
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
    """A `Barrier` that also synchronizes every stream with its device before it calls `callback`.

    A device's stream may have work that belongs to no earlier instruction of the machine, such as another library's.
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
