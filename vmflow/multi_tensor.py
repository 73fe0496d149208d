"""In-place updates of many tensors by one instruction, for optimizers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .context import MODE
from .instructions.blob import Array, Blob
from .instructions.multi_tensor_update import MultiTensorUpdate, UpdateKernel
from .interpreter import issue_policy
from .kernels.problems.updates import Unless
from .kernels.updates import choose_update

if TYPE_CHECKING:
    from .devices import device as Device
    from .tensors import Tensor


@dataclass(frozen=True, slots=True)
class Update:
    """An in-place update of many tensors of any shapes; see `MultiTensorUpdate`.  Raises no errors.

    Attributes:
        name: shown in errors.
        kernel: called with the arrays of `inputs` and those of `outputs`.
        inputs: tensors that are only read.
        outputs: tensors that are read and written, at least one.
        cost: the estimated nanoseconds of the update.
        overwrites: whether the kernel ignores the old values of `outputs`, which then need not have been computed.

    Example:
        >>> from vmflow.multi_tensor import Update
        >>> Update("nothing", lambda inputs, outputs: None, (), [flow.ones(2)], cost=100).overwrites
        False
    """

    name: str
    kernel: UpdateKernel
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    cost: int
    overwrites: bool = False


def issue_together(updates: Sequence[Update], skip: Tensor | None = None) -> None:
    """Issue one instruction for the updates on each device, so that a cancelled scope drops all of these or none.

    Args:
        updates: the updates, in the order in which they run.
        skip: a tensor of one number, or None; if the number is not zero when an instruction runs, no update is done.
    """
    devices = dict.fromkeys([update.outputs[0].device for update in updates])
    for device in devices:
        chosen = [update for update in updates if update.outputs[0].device is device]
        if skip is not None:
            there = skip.to(device)
            chosen = [_unless(there, update) for update in chosen]
        issue_update(chosen[0] if len(chosen) == 1 else _joined(chosen))


def _unless(skip: Tensor, update: Update) -> Update:
    kernel = choose_update("unless", skip.device).kernel(Unless(update.kernel))
    return replace(update, kernel=kernel, inputs=[skip, *update.inputs])


def _joined(updates: list[Update]) -> Update:
    def kernel(inputs: list[Array], outputs: list[Array]) -> None:
        read, written = 0, 0
        for update in updates:
            update.kernel(inputs[read : read + len(update.inputs)], outputs[written : written + len(update.outputs)])
            read += len(update.inputs)
            written += len(update.outputs)

    inputs = [tensor for update in updates for tensor in update.inputs]
    outputs = [tensor for update in updates for tensor in update.outputs]
    return Update(updates[0].name, kernel, inputs, outputs, sum([update.cost for update in updates]))


def issue_update(update: Update) -> None:
    """Issue an update as one instruction, or add it to a graph that is being built; autograd does not record it.

    Raises:
        VirtualMachineClosed: if the machine is closed.

    Example:
        >>> from vmflow.multi_tensor import Update, issue_update
        >>> x = flow.ones(2)
        >>> def fill(inputs, outputs):
        ...     outputs[0][...] = 3
        >>> issue_update(Update("fill", fill, (), [x], cost=100))
        >>> x
        tensor([3., 3.])
    """
    mode = MODE.get()
    if mode.interpreter is not None:
        mode.interpreter.update(update, mode)
        return
    read = tuple([_blob_of(update, tensor) for tensor in update.inputs])
    written = tuple([_blob_of(update, tensor) for tensor in update.outputs])
    policy = MultiTensorUpdate(update.name, update.kernel, read, written, update.overwrites)
    try:
        issue_policy(policy, read, written, update.cost, mode)
    finally:
        # The new version tells the backward pass that saved values are overwritten; also if Ctrl-C was raised after
        # the instruction was accepted.
        for blob in written:
            blob.storage.version += 1
        for tensor in update.outputs:
            if tensor._blob.meta.spread is not None:
                tensor._blob.storage.version += 1


def _blob_of(update: Update, tensor: Tensor) -> Blob:
    """The blob of a tensor to read or update: for a global tensor, that of this rank's part."""
    blob = tensor._blob
    if blob.meta.spread is None:
        return blob
    from .distributed.global_tensors import updated_part  # imported here, as few programs need it

    return updated_part(update.name, tensor)._blob


def by_device(tensors: Iterable[Tensor]) -> dict[Device, list[Tensor]]:
    """Group tensors by device, in their order: an update can change tensors of one device only.

    Example:
        >>> from vmflow.multi_tensor import by_device
        >>> by_device([flow.ones(1), flow.zeros(1)])
        {device(type='cpu', index=0): [tensor([1.]), tensor([0.])]}
    """
    found: dict[Device, list[Tensor]] = {}
    for tensor in tensors:
        found.setdefault(tensor.device, []).append(tensor)
    return found


def zero_gradients(tensors: Iterable[Tensor], set_to_none: bool) -> None:
    """Set the `grad` of tensors to None, or all their gradients to zero by one instruction for each device."""
    zeroed: list[Tensor] = []
    recorder = MODE.get().interpreter
    for tensor in tensors:
        if recorder is not None:
            recorder.clears(tensor, set_to_none)
        gradient = tensor.grad
        if gradient is None:
            continue
        if set_to_none:
            tensor.grad = None
        else:
            zeroed.append(gradient.detach_())
    for device, gradients in by_device(zeroed).items():
        zero = choose_update("zero", device).kernel()
        issue_update(
            Update("zero_grad", zero, (), gradients, sum([gradient.numel() for gradient in gradients]) // 4, True)
        )
