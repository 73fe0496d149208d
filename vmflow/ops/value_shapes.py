"""Results whose shapes depend on values, such as those of `nonzero`: elements are counted before the result is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from vmflow import interpreter as _interpreter
from vmflow.context import MODE
from vmflow.vm.virtual_machine import writer_of

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


def from_values(compute: Callable[..., tuple[Tensor, ...]], *inputs: Tensor) -> tuple[Tensor, ...]:
    """Compute results immediately, even while a graph is being built, in which they are constants then.

    Args:
        compute: takes the inputs, without history, and returns new tensors; it may read values.
        inputs: tensors.

    Raises:
        RuntimeError: if a graph is being built and an input has no value before it runs.
    """
    recorder = MODE.get().interpreter
    if recorder is not None:
        for tensor in inputs:
            tensor._blob.storage.settled()
    with _interpreter.eagerly():
        results = compute(*[tensor.detach() for tensor in inputs])
    if recorder is not None:
        for made in results:
            storage = made._blob.storage
            writing = writer_of(storage)
            if writing is not None:
                machine, instruction = writing
                machine.wait(instruction)
            recorder.made(storage)
    return results
