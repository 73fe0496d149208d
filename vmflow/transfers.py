"""Copies of tensors between the host and another device, into page-locked memory, and to ranks of global tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .autograd.history import record
from .context import MODE
from .devices import device as Device
from .instructions.blob import Blob, Storage, meta
from .instructions.builder import physical_run
from .instructions.release_tensor import Lease
from .kernels.copies import copier, copy_into_pinned
from .ops.table import LEASED_FROM, OpExpr
from .tensor_fields import new_tensor
from .vm.virtual_machine import VirtualMachine, default_machine

if TYPE_CHECKING:
    from .tensors import Tensor


def dispatch_transfer(op: OpExpr, source: Tensor, device: Device) -> Tensor:
    """Copy `source` to `device`, on the accelerator's stream for copies in that direction; let autograd record `op`."""
    mode = MODE.get()
    if mode.interpreter is None:
        result = _transfer(op, source, device, mode.machine or default_machine())
    else:
        result = mode.interpreter.transfer(op, source, device, mode)
    if mode.grad and source.requires_grad:
        record(op, (source,), (), (), (result,))
    return result


def _transfer(op: OpExpr, source: Tensor, device: Device, machine: VirtualMachine) -> Tensor:
    blob = source._blob
    accelerator = device if device.type != "cpu" else blob.meta.device
    # A copy between two accelerators runs on a stream of the target.
    upwards = accelerator is device
    stream = machine.stream(accelerator, "host_to_device" if upwards else "device_to_host")
    home = machine.stream(device)
    copy = Blob(Storage(machine, None, home), meta(blob.meta.shape, blob.meta.dtype, device))
    if upwards:
        physical_run(machine, lambda builder: builder.allocate_tensor(copy))
    # A copy to an accelerator is an operand, too: if its allocation failed, its storage holds that failure, which the
    # op passes on.
    operands = (blob, copy) if upwards else (blob,)
    physical_run(
        machine,
        lambda builder: builder.op_call(
            op.name, copier(accelerator), operands, (copy,), cost=copy.meta.nbytes, stream=stream, allocates=False
        ),
    )
    return new_tensor(copy, Lease(copy.storage) if copy.meta.nbytes >= LEASED_FROM else None)


def pin(source: Tensor) -> Tensor:
    """Copy a tensor on the CPU that has no autograd history into page-locked memory."""
    machine: VirtualMachine = MODE.get().machine or default_machine()
    blob = source._blob
    copy = Blob(Storage(machine, None, machine.stream(blob.meta.device)), blob.meta)
    physical_run(
        machine,
        lambda builder: builder.op_call(
            "pin_memory", copy_into_pinned, (blob,), (copy,), cost=blob.meta.nbytes, allocates=False
        ),
    )
    return new_tensor(copy, None)


def beside(whole: Tensor, tensor: Tensor) -> Tensor:
    """Return `whole` as an operand beside `tensor`: broadcast over the ranks of a global `tensor`, if `whole` is local.

    `whole` has any shape, and the same values on all ranks.  Raises no errors.

    Example:
        >>> from vmflow.transfers import beside
        >>> beside(flow.ones(2), flow.zeros(3))
        tensor([1., 1.])
    """
    if not tensor.is_global or whole.is_global:
        return whole
    from .distributed.global_tensors import cut  # imported here, as few programs need it

    everywhere = tensor._blob.meta.spread.everywhere()
    return cut("an op", whole, None, everywhere.placement, everywhere.sbp)


def spread_like(whole: Tensor, tensor: Tensor) -> Tensor:
    """Spread a local `whole`, equal on all ranks, as a global `tensor` is spread; else return `whole` as it is."""
    if not tensor.is_global or whole.is_global:
        return whole
    from .distributed.global_tensors import cut  # imported here, as few programs need it

    return cut("load_state_dict", whole, None, tensor.placement, tensor.sbp)
