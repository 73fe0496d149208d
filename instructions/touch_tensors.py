"""`TouchTensors`: an instruction that waits for the earlier uses of some tensors, and does nothing itself."""

from __future__ import annotations

from .blob import Blob
from .policy import InstructionPolicy


class TouchTensors(InstructionPolicy):
    """An instruction without work, which ends after all earlier instructions that use one of `blobs`."""

    __slots__ = ("blobs",)

    name = "touch_tensors"
    touches_memory = False
    droppable = False

    def __init__(self, blobs: tuple[Blob, ...]) -> None:
        self.blobs = blobs

    def compute(self) -> None:
        """Do nothing: the instruction only serves to be ordered after others."""
