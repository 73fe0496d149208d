"""`from_values` computes results whose shapes depend on values: `nonzero`, for example, counts before it allocates."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from vmflow import interpreter as _interpreter
from vmflow.context import MODE
from vmflow.vm.virtual_machine import writer_of

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


def from_values(compute: Callable[..., tuple[Tensor, ...]], *inputs: Tensor) -> tuple[Tensor, ...]:
    """Call `compute` eagerly, even while a graph is being built; its results become constants of that graph.

    Args:
        compute: takes the inputs, detached, and returns new tensors; it may read their values.
        inputs: the tensors to pass to `compute`.

    Raises:
        RuntimeError: if a graph is being built and an input will have a value only when the graph runs.
        TypeError: if a function is being recorded as a fused op.
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
