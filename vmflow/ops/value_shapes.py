"""Results whose shapes are known only from values, such as those of `nonzero`: counted first, and made afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from vmflow import interpreter as _interpreter
from vmflow.context import MODE
from vmflow.vm.virtual_machine import writer_of

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


def from_values(compute: Callable[..., tuple[Tensor, ...]], *inputs: Tensor) -> tuple[Tensor, ...]:
    """Compute results at once, also while a graph is built, for which they are data then.

    Args:
        compute: from the inputs, without history, to new tensors; it may read values.
        inputs: tensors.

    Raises:
        RuntimeError: if a graph is being built, before whose runs an input has no value.
    """
    recorder = MODE.get().interpreter
    if recorder is not None:
        for given in inputs:
            given._blob.storage.settled()
    with _interpreter.eagerly():
        found = compute(*[given.detach() for given in inputs])
    if recorder is not None:
        for made in found:
            storage = made._blob.storage
            writing = writer_of(storage)
            if writing is not None:
                machine, instruction = writing
                machine.wait(instruction)
            recorder.made(storage)
    return found
