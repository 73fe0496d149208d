"""`TouchTensors`: wait until some tensors have been computed, and do nothing with them."""

from __future__ import annotations

from .blob import Blob
from .policy import InstructionPolicy


class TouchTensors(InstructionPolicy):
    """Ends when all earlier instructions that write one of `blobs` have ended.

    On a stream of its own it is not launched before that; so a wait for this one instruction replaces waits for many.
    """

    __slots__ = ("blobs",)

    name = "touch_tensors"
    touches_memory = False
    droppable = False

    def __init__(self, blobs: tuple[Blob, ...]) -> None:
        self.blobs = blobs

    def compute(self) -> None:
        """Do nothing: only the instruction's position in the order of accesses matters."""
