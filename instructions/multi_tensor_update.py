"""`MultiTensorUpdate`: change many arrays in place by one instruction, mostly an optimizer's step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from .blob import Array, Blob, fault_of
from .failure import Failure
from .policy import InstructionPolicy

if TYPE_CHECKING:
    from .instruction import Instruction

# kernel(arrays of the inputs, arrays of the outputs), in the order of the blobs.  It reads both and writes into the
# outputs' arrays; its result is ignored.
UpdateKernel: TypeAlias = Callable[[list[Array], list[Array]], object]

# The most metas that `describe` shows: a model may have thousands of parameters.
_SHOWN = 4


class MultiTensorUpdate(InstructionPolicy):
    """Call `kernel` once, for all arrays together.

    As one instruction it runs as a whole or not at all, and many small arrays are scheduled only once.  If it, or one
    of its inputs, was dropped by a scope, the outputs keep their values: a training step that is cancelled leaves the
    parameters as they were before it.

    Outputs are read as well as written: their old values are operands.  Hence any other failure held by any input *or
    output* poisons every output, and the kernel is not called; the same if the kernel raises, since its progress is
    unknown.  An output that was never written holds no failure and no memory: it gets memory, uninitialised.

    Args:
        name: of the update.
        kernel: see `UpdateKernel`.
        inputs: read only.
        outputs: read and written.
        overwrites: whether the old values of the outputs, including failures, are no operands.
    """

    __slots__ = ("inputs", "kernel", "name", "outputs", "overwrites")

    prepares = True

    def __init__(
        self,
        name: str,
        kernel: UpdateKernel,
        inputs: tuple[Blob, ...],
        outputs: tuple[Blob, ...],
        overwrites: bool = False,
    ) -> None:
        self.name = name
        self.kernel = kernel
        self.inputs = inputs
        self.outputs = outputs
        self.overwrites = overwrites

    def prepare(self, instruction: Instruction) -> None:
        for blob in self.outputs:
            if blob.strides is None:
                blob.storage.allocate(blob.meta, instruction)

    def compute(self) -> None:
        operands = self.inputs if self.overwrites else (*self.inputs, *self.outputs)
        failures = [blob.storage.failure for blob in operands if blob.storage.failure is not None]
        for failure in failures:
            if not failure.dropped:
                self.fail(failure)
                return
        if failures:
            return  # as if it had been dropped
        if self.overwrites:
            for blob in self.outputs:
                if blob.strides is None:
                    blob.storage.mend()
        self.kernel([blob.array() for blob in self.inputs], [blob.destination() for blob in self.outputs])

    def settle(self, failure: Failure | None) -> Failure | None:
        fault = fault_of(self.inputs if self.overwrites else (*self.inputs, *self.outputs), failure)
        for blob in self.outputs:
            blob.storage.settle(fault, self.overwrites and blob.strides is None)
        return fault

    def fail(self, failure: Failure) -> None:
        for blob in self.outputs:
            blob.storage.poison(failure)

    def drop(self, failure: Failure) -> None:
        """Do nothing: the outputs of a dropped update keep their values."""

    def describe(self) -> str:
        metas = [repr(blob.meta) for blob in self.outputs[:_SHOWN]]
        if len(self.outputs) > _SHOWN:
            metas.append(f"and {len(self.outputs) - _SHOWN} more")
        return f"{self.name}({', '.join(metas)})"
