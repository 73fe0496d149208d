"""`MultiTensorUpdate`: change many arrays in place by one instruction, an optimizer's step above all."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from .blob import Array, Blob
from .failure import Failure
from .policy import InstructionPolicy

# kernel(arrays of the inputs, arrays of the outputs), in the order of the blobs.  It reads both and writes into the
# outputs' arrays; what it returns is not looked at.
UpdateKernel: TypeAlias = Callable[[list[Array], list[Array]], object]

# How many metas `describe` shows: a model may have thousands of parameters.
_SHOWN = 4


class MultiTensorUpdate(InstructionPolicy):
    """Call `kernel` once, for all arrays together.

    Being one instruction it happens as a whole or not at all, whatever is dropped or cancelled before it starts, and
    many small arrays cost one scheduling.

    Outputs are read as well as written: their old values are operands.  Hence a failure held by any input *or output*
    is handed to every output, and the kernel is not called; the same if the kernel raises, since nobody can know how
    far it came.  An output that was never written holds no failure and no memory: it gets memory, uninitialised.

    Args:
        name: of the update.
        kernel: see `UpdateKernel`.
        inputs: read only.
        outputs: read and written.
    """

    __slots__ = ("inputs", "kernel", "name", "outputs")

    def __init__(self, name: str, kernel: UpdateKernel, inputs: tuple[Blob, ...], outputs: tuple[Blob, ...]) -> None:
        self.name = name
        self.kernel = kernel
        self.inputs = inputs
        self.outputs = outputs

    def compute(self) -> None:
        for blobs in (self.inputs, self.outputs):
            for blob in blobs:
                if blob.storage.failure is not None:
                    self.fail(blob.storage.failure)
                    return
        self.kernel([blob.array() for blob in self.inputs], [blob.destination() for blob in self.outputs])

    def fail(self, failure: Failure) -> None:
        for blob in self.outputs:
            blob.storage.failure = failure

    def describe(self) -> str:
        metas = [repr(blob.meta) for blob in self.outputs[:_SHOWN]]
        if len(self.outputs) > _SHOWN:
            metas.append(f"and {len(self.outputs) - _SHOWN} more")
        return f"{self.name}({', '.join(metas)})"
