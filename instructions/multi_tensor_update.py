"""`MultiTensorUpdate`: one instruction that changes many arrays in place, mostly an optimizer's step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from .blob import Array, Blob, fault_of
from .failure import Failure
from .policy import InstructionPolicy

if TYPE_CHECKING:
    from .instruction import Instruction

# kernel(arrays of the inputs, arrays of the outputs), both in the order of the blobs: writes into the outputs' arrays;
# the value that it returns is ignored.
UpdateKernel: TypeAlias = Callable[[list[Array], list[Array]], object]

# The number of outputs whose dtype and shape `describe` shows: a model may have thousands of parameters.
_SHOWN = 4


class MultiTensorUpdate(InstructionPolicy):
    """Change many arrays in place by one call of `kernel`, such as an optimizer's step on all parameters.

    As one instruction it is dropped as a whole or not at all, and many small arrays are scheduled only once.  If a
    scope has dropped it or the instruction that computes one of its operands, the outputs stay as they are: a training
    step that is cancelled before its update begins leaves the parameters as they were.

    Unless `overwrites`, the outputs' old values are operands, too.  Any other failure held by an operand poisons every
    output, and the kernel is not called.  If the kernel raises, every output is poisoned, too, since the kernel's
    progress is unknown.  An output without memory gets some, uninitialised.

    Args:
        name: the update's name.
        kernel: the function that changes the outputs; see `UpdateKernel`.
        inputs: blobs that are only read.
        outputs: blobs that are changed.
        overwrites: whether the kernel ignores the outputs' old values; if so, failures in outputs do not stop it.
    """

    __slots__ = ("inputs", "kernel", "name", "outputs", "overwrites")

    prepares = True
    keeps_outputs = True

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
            return  # the writer of an operand was dropped: the outputs stay as they are, as if this update was dropped
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
        """Do nothing: a dropped update leaves its outputs' values as they were."""

    def describe(self) -> str:
        metas = [repr(blob.meta) for blob in self.outputs[:_SHOWN]]
        if len(self.outputs) > _SHOWN:
            metas.append(f"and {len(self.outputs) - _SHOWN} more")
        return f"{self.name}({', '.join(metas)})"
