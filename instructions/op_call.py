"""`OpCall`: an instruction that runs the kernel of one op on blobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from vmflow.native import mypyc_attr

from .blob import LET_KERNEL_ALLOCATE, Array, Blob, fault_of, places_memory
from .chain import Chainable, Step
from .failure import Failure

if TYPE_CHECKING:
    from vmflow.streams.stream import Stream

    from .instruction import Instruction

# kernel(*input arrays, *scalars, out) -> result: `out` is the array to write into (a tuple of arrays for an op of
# several results), or None to let the kernel make a new array that shares memory with no other, and is C-contiguous if
# the inputs are.  A kernel that cannot write into `out` may return another array, which the caller copies into `out`.
Kernel = Callable[..., Any]


class CallPlan:
    """The kernel of an op and facts about it, shared by calls of the op with equal attributes and metas.

    Args:
        name: the op's name.
        function: the kernel; see `Kernel`.
        cost: estimated nanoseconds of a call, for scheduling; 0 if unknown.
        several: whether the function returns a tuple of results.
        allocates: whether the device's allocator provides the memory of any result that has none.

    Attributes:
        name, function, cost, several, allocates: as given.
        atomic: whether the function is a ufunc of numpy, which KeyboardInterrupt cannot end half-way.
        casts: whether the function casts its result to the dtype of `out`.
    """

    __slots__ = ("_apart", "allocates", "atomic", "casts", "cost", "function", "name", "several")

    def __init__(self, name: str, function: Kernel, cost: int, several: bool, allocates: bool) -> None:
        self.name = name
        self.function = function
        self.cost = cost
        self.several = several
        self.allocates = allocates
        self.atomic: bool = isinstance(function, np.ufunc)
        self.casts = False
        self._apart: CallPlan | None = None

    def replaced(self, function: Kernel) -> CallPlan:
        """Return a new plan with another function and the other arguments of this one."""
        return CallPlan(self.name, function, self.cost, self.several, self.allocates)

    def apart(self) -> CallPlan:
        """Return the plan for an `out` of another dtype than the result's.

        If the kernel does not cast, the new plan passes it ``out=None``, and `OpCall` casts and copies the result.
        """
        if self.casts:
            return self
        if self._apart is None:
            function = self.function
            self._apart = self.replaced(lambda *arguments: function(*arguments[:-1], None))
        return self._apart


def store(result: Any, out: Array) -> None:
    """Copy the result of a kernel into `out`, cast to the dtype of `out`, unless the kernel has returned `out`.

    The cast is unsafe in numpy's sense: shape inference has accepted the dtypes, also int64 into uint8, for instance.
    """
    if result is not out:
        np.copyto(out, result, casting="unsafe")


def op_call(
    name: str,
    function: Kernel,
    inputs: tuple[Blob, ...],
    outputs: tuple[Blob, ...],
    scalars: tuple[Any, ...] = (),
    several: bool = False,
    allocates: bool | None = None,
) -> OpCall:
    """Make an `OpCall` of a kernel for which there is no `CallPlan` yet."""
    if allocates is None:
        allocates = any([places_memory(blob.meta) for blob in outputs])
    plan = CallPlan(name, function, 0, several, allocates)
    return OpCall(plan, inputs, outputs[0], scalars, outputs=outputs if several else None)


@mypyc_attr(free_list_len=1)
class OpCall(Chainable):
    """One call of an op: its plan, its operands and the blobs of its results.

    A failure held by an input poisons every output, and the kernel is not called.

    Memory for large results, and for those on other devices than the CPU, is allocated when the call is launched, so
    that memory released before on the same stream can be used again immediately.  Other results get theirs when the
    call runs.

    Args:
        plan: the kernel and the facts that all such calls of the op share.
        inputs: the blobs that are read.
        output: the blob that is written, the first of `outputs` if there are several; also an input if the op reads it.
        scalars: Python numbers passed to the kernel after the arrays.
        outputs: all written blobs, if the kernel returns a tuple of results; else None.
        step: see `Chainable`.
    """

    __slots__ = ("_outputs", "name", "plan", "prepares")

    def __init__(
        self,
        plan: CallPlan,
        inputs: tuple[Blob, ...],
        output: Blob,
        scalars: tuple[Any, ...] = (),
        step: Step | None = None,
        outputs: tuple[Blob, ...] | None = None,
    ) -> None:
        self.plan = plan
        self.name = plan.name
        self.prepares = plan.allocates
        self.inputs = inputs
        self.output = output
        self._outputs = outputs
        self.scalars = scalars
        self.step = step

    @property
    def outputs(self) -> tuple[Blob, ...]:
        """All written blobs."""
        return (self.output,) if self._outputs is None else self._outputs

    def prepare(self, instruction: Instruction) -> None:
        for source in self.inputs:
            if source.storage.failure is not None and source.storage.array is None:
                return  # an input has failed, so that nothing will be computed and no memory is needed
        for output in self.outputs:
            if output.strides is None:
                output.storage.allocate(output.meta, instruction)

    def prepare_on(self, stream: Stream) -> None:
        for output in self.outputs:
            if output.strides is None:
                output.storage.allocate_on(stream, output.meta, (self.name, None, 0, None))

    def preparing_failed(self, failure: Failure) -> None:
        for output in self.outputs:
            if output.storage.array is None:
                output.storage.poison(failure)

    def compute(self) -> None:
        strided = False
        for blob in self.inputs:
            failure = blob.storage.failure
            if failure is not None:
                self.fail(failure)
                return
            if blob.strides is not None:
                strided = True
        if self.plan.several:
            destinations = self._destinations(strided)
            self._store_all(self._called(destinations), destinations)
            return
        output = self.output
        storage = output.storage
        if output.strides is None:
            # For a storage without memory, a kernel makes the array of a small result itself (`out` is None), unless an
            # input is strided: then the kernel might return a strided array.
            if (
                storage.array is None
                and not strided
                and (not self.plan.allocates or output.meta.nbytes <= LET_KERNEL_ALLOCATE)
            ):
                result = self._called(None)
                # A numpy ufunc returns a scalar where other kernels return an array without dimensions.
                storage.array = result if output.meta.shape else np.asarray(result)
                storage.failure = None
                return
        elif storage.failure is not None:
            return  # the storage holds a failure, and writing a view would leave the rest of it without values
        out = output.destination()
        store(self._called(out), out)
        storage.failure = None

    def _called(self, out: Any) -> Any:
        """Call the kernel with the inputs' arrays, the scalars and `out`; common calls build no argument list."""
        function, inputs, scalars = self.plan.function, self.inputs, self.scalars
        if len(inputs) == 1:
            if not scalars:
                return function(inputs[0].array(), out)
            if len(scalars) == 1:
                return function(inputs[0].array(), scalars[0], out)
        elif len(inputs) == 2 and not scalars:
            return function(inputs[0].array(), inputs[1].array(), out)
        return function(*[blob.array() for blob in inputs], *scalars, out)

    def _destinations(self, strided: bool) -> tuple[Array, ...] | None:
        if not strided and all(output.storage.array is None for output in self.outputs):
            return None
        return tuple([output.destination() for output in self.outputs])

    def _store_all(self, results: tuple[Array, ...], destinations: tuple[Array, ...] | None) -> None:
        for position, (output, result) in enumerate(zip(self.outputs, results, strict=True)):
            storage = output.storage
            if output.strides is not None and storage.failure is not None:
                continue  # the storage holds a failure, and writing a view would leave the rest of it without values
            if storage.array is None:
                storage.array = np.ascontiguousarray(result).reshape(output.meta.shape)
            else:
                # If there are no destinations, an earlier result of this call has just given the storage its array.
                store(result, output.array() if destinations is None else destinations[position])
            storage.failure = None

    def fail(self, failure: Failure) -> None:
        for output in self.outputs:
            output.storage.poison(failure)

    def settle(self, failure: Failure | None) -> Failure | None:
        fault = fault_of(self.inputs, failure)
        for output in self.outputs:
            output.storage.settle(fault, output.strides is None)
        return fault

    def describe(self) -> str:
        inputs = ", ".join([repr(blob.meta) for blob in self.inputs] + [repr(scalar) for scalar in self.scalars])
        outputs = ", ".join([repr(blob.meta) for blob in self.outputs])
        device = self.output.meta.device
        return f"{self.name}({inputs}) -> {outputs} on {device}"
