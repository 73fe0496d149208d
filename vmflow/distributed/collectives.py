"""Exchanges of local tensors between ranks, under the names of PyTorch and OneFlow.

Each is issued like an op, and awaits its turn on the one lane of exchanges that a rank has.  All ranks of a group must
issue the same ones in the same order.  None is differentiable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from vmflow import dtypes
from vmflow.context import MODE
from vmflow.devices import device as Device
from vmflow.instructions.blob import Blob, Storage, TensorMeta, meta
from vmflow.instructions.builder import physical_run
from vmflow.instructions.collective import Collective
from vmflow.ops.creation.creation import empty
from vmflow.ops.shape.joining import cat
from vmflow.streams.channel import REDUCTIONS, Operation, Reduction
from vmflow.streams.communication import CommunicationStreamPolicy
from vmflow.tensor_fields import blob_of, new_tensor
from vmflow.tensors import Tensor
from vmflow.vm.race_watch import unwatched
from vmflow.vm.virtual_machine import current_machine

from .order import Order, current_order
from .process import get_rank, get_world_size

_HOST = Device("cpu")
_NOTHING = meta((0,), dtypes.float32, _HOST)


def exchange(operation: Operation, given: Tensor | None, gotten: TensorMeta = _NOTHING) -> Tensor:
    """Issue this rank's part in an operation; a tensor for what it gets, flat or of that many elements.

    Args:
        operation: which.
        given: what this rank gives, in the order of its elements.
        gotten: of the result.

    Raises:
        ValueError: if this rank is not in the group.
        RuntimeError: in a task that may not exchange here, see `comm_scope`.
    """
    if get_rank() not in operation.ranks:
        raise ValueError(f"rank {get_rank()} takes no part in {operation}")
    order = current_order()
    order.claim()
    # Exchanges are between the memories of hosts.
    found = _issued(operation, None if given is None else given.to(_HOST), _on_host(gotten), order.stream)
    return found.to(gotten.device)


def _issued(operation: Operation, given: Tensor | None, gotten: TensorMeta, kind: str) -> Tensor:
    machine = current_machine()
    stream = machine.stream(_HOST, kind)
    lane = cast(CommunicationStreamPolicy, unwatched(stream.policy))
    blob = Blob(Storage(machine, None, stream), gotten)
    source = None if given is None else blob_of(given)
    collective = Collective(operation, source, blob, lane)
    physical_run(machine, lambda builder: builder.collective(stream, collective))
    return new_tensor(blob, None)


def leave(order: Order, reason: str) -> None:
    """Issue that this rank starts nothing more in a communication scope, by an exception if there is a reason."""
    current_machine().devices.drop_ended()
    _issued(Operation("leave", (get_rank(),), note=reason), None, _NOTHING, order.stream)


def world() -> tuple[int, ...]:
    """The group of all ranks."""
    return tuple(range(get_world_size()))


# What is issued for a group that this rank belongs to; results are new tensors


def reduced(tensor: Tensor, group: tuple[int, ...], reduction: Reduction = "sum") -> Tensor:
    """The sum, or the like, of the tensors of all ranks of the group."""
    check_reduction(reduction)
    operation = Operation("all_reduce", group, tensor.dtype.name, (tensor.numel(),), reduction)
    return exchange(operation, tensor, _of(tensor, tuple(tensor.shape)))


def gathered(tensor: Tensor, group: tuple[int, ...], counts: tuple[int, ...]) -> Tensor:
    """The elements of all ranks' tensors, one behind the other."""
    operation = Operation("all_gather", group, tensor.dtype.name, counts)
    return exchange(operation, tensor, _of(tensor, (sum(counts),)))


def scattered_sum(tensor: Tensor, group: tuple[int, ...], counts: tuple[int, ...], reduction: Reduction) -> Tensor:
    """This rank's share of the elements of the sum, or the like, of all ranks' tensors."""
    check_reduction(reduction)
    operation = Operation("reduce_scatter", group, tensor.dtype.name, counts, reduction)
    return exchange(operation, tensor, _of(tensor, (counts[group.index(get_rank())],)))


def exchanged(tensor: Tensor, group: tuple[int, ...], counts: tuple[int, ...]) -> Tensor:
    """The elements that each rank has for this one; `counts` says, row by row, how many each has for each."""
    operation = Operation("all_to_all", group, tensor.dtype.name, counts)
    return exchange(operation, tensor, _of(tensor, (operation.gotten(group.index(get_rank())),)))


def sent_by_root(tensor: Tensor, group: tuple[int, ...], root: int) -> Tensor:
    """The tensor of rank `root`, which the others have one of the same shape for."""
    operation = Operation("broadcast", group, tensor.dtype.name, (tensor.numel(),), root=group.index(root))
    given = tensor if get_rank() == root else None
    return exchange(operation, given, _of(tensor, tuple(tensor.shape)))


def check_reduction(reduction: str) -> None:
    """Raise ValueError if there is no such reduction."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"a reduction is one of {sorted(REDUCTIONS)}, not {reduction!r}")


def _of(tensor: Tensor, shape: tuple[int, ...]) -> TensorMeta:
    return meta(shape, tensor.dtype, tensor.device)


def _on_host(of: TensorMeta) -> TensorMeta:
    return of if of.device is _HOST else meta(of.shape, of.dtype, _HOST)


# The public functions, which change tensors in place


def all_reduce(tensor: Tensor, op: Reduction = "sum") -> Tensor:
    """Replace the tensor by the sum, or the "max" or "min", over all ranks."""
    check_reduction(op)
    return _into(tensor, reduced(tensor.detach(), world(), op) if get_world_size() > 1 else tensor)


def all_gather(tensor_list: Sequence[Tensor], tensor: Tensor) -> None:
    """Put the tensor of each rank into the tensor of the list at its place; all have one shape."""
    _check_list("all_gather", tensor_list, tensor)
    if get_world_size() == 1:
        _into(tensor_list[0], tensor)
        return
    whole = gathered(tensor.detach(), world(), (tensor.numel(),) * get_world_size())
    for rank, target in enumerate(tensor_list):
        _into(target, whole[rank * tensor.numel() : (rank + 1) * tensor.numel()].reshape(tuple(tensor.shape)))


def reduce_scatter(output: Tensor, input_list: Sequence[Tensor], op: Reduction = "sum") -> Tensor:
    """Put the sum, or the like, of the tensors at this rank's place of all ranks' lists into `output`."""
    _check_list("reduce_scatter", input_list, output)
    if get_world_size() == 1:
        return _into(output, input_list[0])
    flat = cat([tensor.detach().reshape((-1,)) for tensor in input_list])
    share = scattered_sum(flat, world(), (output.numel(),) * get_world_size(), op)
    return _into(output, share.reshape(tuple(output.shape)))


def all_to_all(output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor]) -> None:
    """Give each rank the tensor at its place of the input list, and get one from each; all have one shape."""
    _check_list("all_to_all", input_tensor_list, input_tensor_list[0] if input_tensor_list else None)
    _check_list("all_to_all", output_tensor_list, input_tensor_list[0])
    size, count = get_world_size(), input_tensor_list[0].numel()
    if size == 1:
        _into(output_tensor_list[0], input_tensor_list[0])
        return
    flat = cat([tensor.detach().reshape((-1,)) for tensor in input_tensor_list])
    whole = exchanged(flat, world(), (count,) * (size * size))
    for rank, target in enumerate(output_tensor_list):
        _into(target, whole[rank * count : (rank + 1) * count].reshape(tuple(target.shape)))


def broadcast(tensor: Tensor, src: int) -> Tensor:
    """Replace the tensor by that of rank `src`."""
    check_rank(src)
    return _into(tensor, sent_by_root(tensor.detach(), world(), src) if get_world_size() > 1 else tensor)


def reduce(tensor: Tensor, dst: int, op: Reduction = "sum") -> Tensor:
    """Replace the tensor of rank `dst` by the sum, or the like, over all ranks."""
    check_rank(dst)
    check_reduction(op)
    if get_world_size() == 1:
        return tensor
    total = reduced(tensor.detach(), world(), op)
    return _into(tensor, total) if get_rank() == dst else tensor


def send(tensor: Tensor, dst: int) -> Tensor:
    """Send the tensor to rank `dst`, which calls `recv`; awaiting the result waits until it has been received."""
    _check_peer(dst)
    operation = Operation("send", (get_rank(), dst), tensor.dtype.name, (tensor.numel(),))
    return exchange(operation, tensor.detach())


def recv(tensor: Tensor, src: int) -> Tensor:
    """Replace the tensor by the one that rank `src` sends, which has its dtype and number of elements."""
    _check_peer(src)
    operation = Operation("receive", (src, get_rank()), tensor.dtype.name, (tensor.numel(),))
    return _into(tensor, exchange(operation, None, _of(tensor, tuple(tensor.shape))))


def barrier() -> Tensor:
    """Wait until all ranks have come here: await the result, or in plain code read it."""
    if get_world_size() == 1:
        return empty(0)
    return exchange(Operation("barrier", world()), None)


def check_rank(rank: int) -> None:
    """Raise ValueError if there is no such rank."""
    if not (isinstance(rank, int) and 0 <= rank < get_world_size()):
        raise ValueError(f"there is no rank {rank!r}; ranks go from 0 to {get_world_size() - 1}")


def _check_peer(rank: int) -> None:
    check_rank(rank)
    if rank == get_rank():
        raise ValueError(f"rank {rank} cannot send to itself, nor receive from itself")


def _check_list(name: str, tensors: Sequence[Tensor], example: Tensor | None) -> None:
    if example is None or len(tensors) != get_world_size():
        raise ValueError(f"{name}: expected a tensor for each of {get_world_size()} ranks, got {len(tensors)}")
    for tensor in tensors:
        if tensor.shape != example.shape or tensor.dtype is not example.dtype:
            raise ValueError(
                f"{name}: expected tensors of one shape and dtype, got {list(tensor.shape)} of {tensor.dtype.name} and "
                f"{list(example.shape)} of {example.dtype.name}"
            )


def _into(target: Tensor, values: Tensor) -> Tensor:
    """Change `target` in place, of which autograd is not told."""
    if values is not target:
        mode = MODE.get()
        MODE.set(mode.replace(grad=False))
        try:
            target.copy_(values)
        finally:
            MODE.set(mode)
    return target
