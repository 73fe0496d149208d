"""Exchanges of local tensors between ranks, under the names of PyTorch and OneFlow.

Each exchange is issued like an op, and starts behind the earlier exchanges of its communication scope.  All ranks of a
group must issue the same exchanges in the same order.  No exchange is differentiable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from vmflow import dtypes
from vmflow.arguments import is_integer
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
    """Issue this rank's part in an operation; return the tensor that this rank receives.

    Args:
        operation: the operation.
        given: the tensor that this rank sends, in the order of its elements; None for none.
        gotten: the meta of the result.

    Raises:
        ValueError: if this rank is not in the group.
        DeviceUnavailable: outside of simulations, where nothing connects ranks.
        RuntimeError: if another task or thread exchanges in the same communication scope, see `comm_scope`.
    """
    if get_rank() not in operation.ranks:
        raise ValueError(f"rank {get_rank()} takes no part in {operation}")
    order = current_order()
    order.claim()
    # Exchanges go from host memory to host memory.
    result = _issued(operation, None if given is None else given.to(_HOST), _on_host(gotten), order.stream)
    return result.to(gotten.device)


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
    """Issue the notice that this rank leaves a communication scope; `reason` describes the exception, or is empty."""
    current_machine().devices.drop_ended()
    _issued(Operation("leave", (get_rank(),), note=reason), None, _NOTHING, order.stream)


def world() -> tuple[int, ...]:
    """The group of all ranks."""
    return tuple(range(get_world_size()))


# Exchanges within a group of ranks that this rank belongs to; their results are new tensors


def reduced(tensor: Tensor, group: tuple[int, ...], reduction: Reduction = "sum") -> Tensor:
    """The reduction of the tensors of all ranks of the group."""
    check_reduction(reduction)
    if len(group) == 1:
        return tensor.clone()
    operation = Operation("all_reduce", group, tensor.dtype.name, (tensor.numel(),), reduction)
    return exchange(operation, tensor, _of(tensor, tuple(tensor.shape)))


def gathered(tensor: Tensor, group: tuple[int, ...], counts: tuple[int, ...]) -> Tensor:
    """A flat tensor of the elements of all ranks' tensors; `counts` has their number for each rank."""
    if len(group) == 1:
        return tensor.reshape((-1,)).clone()
    operation = Operation("all_gather", group, tensor.dtype.name, counts)
    return exchange(operation, tensor, _of(tensor, (sum(counts),)))


def scattered_sum(tensor: Tensor, group: tuple[int, ...], counts: tuple[int, ...], reduction: Reduction) -> Tensor:
    """This rank's share of the elements of the reduction of all ranks' tensors; `counts` has the size of each share."""
    check_reduction(reduction)
    operation = Operation("reduce_scatter", group, tensor.dtype.name, counts, reduction)
    return exchange(operation, tensor, _of(tensor, (counts[group.index(get_rank())],)))


def exchanged(tensor: Tensor, group: tuple[int, ...], counts: tuple[int, ...]) -> Tensor:
    """The elements that the ranks send to this one; `counts`, row by row: how many each rank sends to each."""
    operation = Operation("all_to_all", group, tensor.dtype.name, counts)
    return exchange(operation, tensor, _of(tensor, (operation.gotten(group.index(get_rank())),)))


def sent_by_root(tensor: Tensor, group: tuple[int, ...], root: int) -> Tensor:
    """The tensor of rank `root`; the other ranks pass a tensor of the same shape and dtype."""
    operation = Operation("broadcast", group, tensor.dtype.name, (tensor.numel(),), root=group.index(root))
    given = tensor if get_rank() == root else None
    return exchange(operation, given, _of(tensor, tuple(tensor.shape)))


def check_reduction(reduction: str) -> None:
    """Raise ValueError if `reduction` is none of "sum", "max" and "min"."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"a reduction is one of {sorted(REDUCTIONS)}, not {reduction!r}")


def _of(tensor: Tensor, shape: tuple[int, ...]) -> TensorMeta:
    return meta(shape, tensor.dtype, tensor.device)


def _on_host(of: TensorMeta) -> TensorMeta:
    return of if of.device is _HOST else meta(of.shape, of.dtype, _HOST)


# The public functions


def all_reduce(tensor: Tensor, op: Reduction = "sum") -> Tensor:
    """Write into `tensor` the sum, "max" or "min" of the ranks' tensors, of one shape and dtype; return `tensor`.

    Raises:
        ValueError: for another `op`, or a global tensor.
    Example:
        >>> def program():
        ...     return flow.distributed.all_reduce(flow.ones(2) * flow.distributed.get_rank()).tolist()
        >>> flow.distributed.simulate(program, ranks=3)
        [[3.0, 3.0], [3.0, 3.0], [3.0, 3.0]]
    """
    check_reduction(op)
    _check_local("all_reduce", tensor)
    return _into(tensor, reduced(tensor.detach(), world(), op) if get_world_size() > 1 else tensor)


def all_gather(tensor_list: Sequence[Tensor], tensor: Tensor) -> None:
    """Copy the `tensor` of rank i into ``tensor_list[i]``; all have the same shape and dtype.

    Raises:
        ValueError: if the list has not one tensor of this shape and dtype for each rank; for global tensors.
    Example:
        >>> def program():
        ...     gathered = [flow.zeros(1), flow.zeros(1)]
        ...     flow.distributed.all_gather(gathered, flow.tensor([10.0 + flow.distributed.get_rank()]))
        ...     return [tensor.item() for tensor in gathered]
        >>> flow.distributed.simulate(program, ranks=2)
        [[10.0, 11.0], [10.0, 11.0]]
    """
    _check_list("all_gather", tensor_list, tensor)
    if get_world_size() == 1:
        _into(tensor_list[0], tensor)
        return
    whole = gathered(tensor.detach(), world(), (tensor.numel(),) * get_world_size())
    for rank, target in enumerate(tensor_list):
        _into(target, whole[rank * tensor.numel() : (rank + 1) * tensor.numel()].reshape(tuple(tensor.shape)))


def reduce_scatter(output: Tensor, input_list: Sequence[Tensor], op: Reduction = "sum") -> Tensor:
    """Write into `output` the reduction over the ranks of ``input_list[i]``, where i is this rank; return `output`.

    Raises:
        ValueError: for another `op` than "sum", "max" and "min", or if the list has not one tensor of the shape and
            dtype of `output` for each rank; for global tensors.
    Example:
        >>> def program():
        ...     inputs = [flow.tensor([1.0]), flow.tensor([2.0])]
        ...     return flow.distributed.reduce_scatter(flow.zeros(1), inputs).item()
        >>> flow.distributed.simulate(program, ranks=2)
        [2.0, 4.0]
    """
    check_reduction(op)
    _check_list("reduce_scatter", input_list, output)
    if get_world_size() == 1:
        return _into(output, input_list[0])
    flat = cat([tensor.detach().reshape((-1,)) for tensor in input_list])
    share = scattered_sum(flat, world(), (output.numel(),) * get_world_size(), op)
    return _into(output, share.reshape(tuple(output.shape)))


def all_to_all(output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor]) -> None:
    """Send ``input_tensor_list[i]`` to rank i, and receive rank i's into ``output_tensor_list[i]``.

    Raises:
        ValueError: if a list has not one tensor for each rank, all of the same shape and dtype; for global tensors.
    Example:
        >>> def program():
        ...     rank, received = flow.distributed.get_rank(), [flow.zeros(1), flow.zeros(1)]
        ...     flow.distributed.all_to_all(received, [flow.tensor([10.0 * rank]), flow.tensor([10.0 * rank + 1])])
        ...     return [tensor.item() for tensor in received]
        >>> flow.distributed.simulate(program, ranks=2)
        [[0.0, 10.0], [1.0, 11.0]]
    """
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
    """Write the tensor of rank `src` into `tensor` on all ranks, of one shape and dtype; return `tensor`.

    Raises:
        ValueError: if there is no rank `src`; for a global tensor.
    Example:
        >>> def program():
        ...     return flow.distributed.broadcast(flow.tensor([flow.distributed.get_rank()]), src=1).item()
        >>> flow.distributed.simulate(program, ranks=2)
        [1, 1]
    """
    src = check_rank(src)
    _check_local("broadcast", tensor)
    return _into(tensor, sent_by_root(tensor.detach(), world(), src) if get_world_size() > 1 else tensor)


def reduce(tensor: Tensor, dst: int, op: Reduction = "sum") -> Tensor:
    """Write into the tensor of rank `dst` the sum, "max" or "min" of the ranks' tensors, of one shape and dtype.

    Returns: `tensor`, unchanged on the other ranks.

    Raises:
        ValueError: if there is no rank `dst`; for another `op`, or a global tensor.
    Example:
        >>> def program():
        ...     return flow.distributed.reduce(flow.ones(1), dst=0).item()
        >>> flow.distributed.simulate(program, ranks=2)
        [2.0, 1.0]
    """
    dst = check_rank(dst)
    check_reduction(op)
    _check_local("reduce", tensor)
    if get_world_size() == 1:
        return tensor
    total = reduced(tensor.detach(), world(), op)
    return _into(tensor, total) if get_rank() == dst else tensor


def send(tensor: Tensor, dst: int) -> Tensor:
    """Send the tensor, of any shape, to rank `dst`, which calls `recv`.

    Returns: a tensor without elements; awaiting it waits until the tensor has been sent.

    Raises:
        ValueError: if there is no rank `dst`, or it is this one; for a global tensor.
    Example:
        >>> def program():
        ...     if flow.distributed.get_rank() == 0:
        ...         flow.distributed.send(flow.tensor([1.0, 2.0]), dst=1)
        ...     else:
        ...         return flow.distributed.recv(flow.zeros(2), src=0).tolist()
        >>> flow.distributed.simulate(program, ranks=2)
        [None, [1.0, 2.0]]
    """
    dst = _check_peer(dst)
    _check_local("send", tensor)
    operation = Operation("send", (get_rank(), dst), tensor.dtype.name, (tensor.numel(),))
    return exchange(operation, tensor.detach())


def recv(tensor: Tensor, src: int) -> Tensor:
    """Write into `tensor` the tensor that rank `src` sends, of the same dtype and number of elements; return `tensor`.

    Raises:
        ValueError: if there is no rank `src`, or it is this one; for a global tensor.
        CollectiveMismatch: where the result is read, if the sent tensor has another dtype or number of elements.
    Example: see `send`.
        >>> flow.distributed.recv(flow.zeros(2), src=1)
        Traceback (most recent call last):
        ValueError: there is no rank 1; ranks go from 0 to 0
    """
    src = _check_peer(src)
    _check_local("recv", tensor)
    operation = Operation("receive", (src, get_rank()), tensor.dtype.name, (tensor.numel(),))
    return _into(tensor, exchange(operation, None, _of(tensor, tuple(tensor.shape))))


def barrier() -> Tensor:
    """Start a barrier; awaiting or reading the result, a tensor of shape (0,), waits until all ranks have called this.

    Example:
        >>> def program():
        ...     return flow.distributed.barrier().numpy().shape
        >>> flow.distributed.simulate(program, ranks=2)
        [(0,), (0,)]
    """
    if get_world_size() == 1:
        return empty(0)
    return exchange(Operation("barrier", world()), None)


def check_rank(rank: int) -> int:
    """Return `rank` as an int; raise ValueError if it is no rank of the program."""
    if not (is_integer(rank) and 0 <= rank < get_world_size()):
        raise ValueError(f"there is no rank {rank!r}; ranks go from 0 to {get_world_size() - 1}")
    return int(rank)


def _check_peer(rank: int) -> int:
    rank = check_rank(rank)
    if rank == get_rank():
        raise ValueError(f"rank {rank} cannot send to itself, nor receive from itself")
    return rank


def _check_local(name: str, *tensors: Tensor) -> None:
    if any([tensor.is_global for tensor in tensors]):
        raise ValueError(f"{name}: expected a local tensor, got a global one; pass its part, by .to_local()")


def _check_list(name: str, tensors: Sequence[Tensor], example: Tensor | None) -> None:
    if example is None or len(tensors) != get_world_size():
        raise ValueError(f"{name}: expected a tensor for each of {get_world_size()} ranks, got {len(tensors)}")
    _check_local(name, example, *tensors)
    for tensor in tensors:
        if tensor.shape != example.shape or tensor.dtype is not example.dtype:
            raise ValueError(
                f"{name}: expected tensors of one shape and dtype, got {list(tensor.shape)} of {tensor.dtype.name} and "
                f"{list(example.shape)} of {example.dtype.name}"
            )


def _into(target: Tensor, values: Tensor) -> Tensor:
    """Copy `values` into `target` in place, without a record for autograd; return `target`."""
    if values is not target:
        mode = MODE.get()
        MODE.set(mode.replace(grad=False))
        try:
            target.copy_(values)
        finally:
            MODE.set(mode)
    return target
