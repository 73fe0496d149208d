"""`TouchTensors`: wait until some tensors exist, and do nothing with them."""

from __future__ import annotations

from .blob import Blob
from .policy import InstructionPolicy


class TouchTensors(InstructionPolicy):
    """Ends when everything issued before that writes one of `blobs` has ended.

    On a stream of its own it is not launched before that; so it can be waited for in place of many.
    """

    __slots__ = ("blobs",)

    name = "touch_tensors"
    touches_memory = False
    droppable = False

    def __init__(self, blobs: tuple[Blob, ...]) -> None:
        self.blobs = blobs

    def compute(self) -> None:
        """Being in turn is all."""
