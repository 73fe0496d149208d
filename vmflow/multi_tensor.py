"""Changing many tensors by one instruction: issuing it, and walking through large arrays in small pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from .context import MODE
from .instructions.blob import Array
from .instructions.multi_tensor_update import MultiTensorUpdate, UpdateKernel
from .interpreter import issue_policy
from .kernels.intra_op import over

if TYPE_CHECKING:
    from .tensors import Tensor

# Elements per piece: what an optimizer touches of one piece should stay in the core's cache between its passes.
# Measured on Adam: fastest from 2**15 to 2**16, and about twice as slow over the whole array at once.
PIECE: Final = 1 << 15


@dataclass(frozen=True, slots=True)
class Update:
    """A change of many tensors in place; see `MultiTensorUpdate`.

    Attributes:
        name: shown in errors.
        kernel: called with the arrays of both.
        inputs: read only.
        outputs: read and written, at least one.
        cost: estimated nanoseconds.
        overwrites: whether the old values do not matter, not even that there are none.
    """

    name: str
    kernel: UpdateKernel
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    cost: int
    overwrites: bool = False


def issue_together(updates: Sequence[Update], skip: Tensor | None = None) -> None:
    """Make all of them by one instruction, in order, so that they happen together or not at all.

    Tensors on several devices take one for each device.

    Args:
        updates: what to do.
        skip: a tensor of one number; if it is not zero once the instruction runs, nothing is done.
    """
    devices = dict.fromkeys([update.outputs[0].device for update in updates])
    for device in devices:
        chosen = [update for update in updates if update.outputs[0].device is device]
        update = chosen[0] if len(chosen) == 1 else _joined(chosen)
        issue_update(update if skip is None else _unless(skip, update))


def _unless(skip: Tensor, update: Update) -> Update:
    def kernel(inputs: list[Array], outputs: list[Array]) -> None:
        if not inputs[0]:
            update.kernel(inputs[1:], outputs)

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
    """Issue it.  Autograd records nothing of it."""
    mode = MODE.get()
    if mode.interpreter is not None:
        mode.interpreter.update(update, mode)
        return
    read = tuple([tensor._blob for tensor in update.inputs])
    written = tuple([tensor._blob for tensor in update.outputs])
    policy = MultiTensorUpdate(update.name, update.kernel, read, written, update.overwrites)
    try:
        issue_policy(policy, read, written, update.cost, mode)
    finally:
        # What autograd has saved of them is gone now; also if Ctrl-C came out of a turn after the step was accepted.
        for blob in written:
            blob.storage.version += 1


def pieces(arrays: Sequence[Array], size: int = PIECE) -> Iterator[list[Array]]:
    """Arrays of one shape, cut alike into real floating-point pieces that share their memory.

    For elementwise work only: complex arrays come as their real and their imaginary parts.
    """
    if arrays[0].dtype.kind == "c":
        yield from pieces([array.real for array in arrays], size)
        yield from pieces([array.imag for array in arrays], size)
    elif arrays[0].size <= size or not all([array.flags.c_contiguous for array in arrays]):
        yield list(arrays)
    else:
        flat = [array.reshape(-1) for array in arrays]
        for start in range(0, flat[0].size, size):
            yield [array[start : start + size] for array in flat]


def widened(array: Array) -> Array:
    """float32 for the 16-bit dtypes, in which sums and squares lose too much; other arrays as they are."""
    return array.astype(np.float32) if array.dtype.itemsize == 2 else array


def updated(written: Sequence[Array], read: Sequence[Array], scratch: int) -> Iterator[list[Array]]:
    """For an elementwise update: piece by piece, what is written, what is read, and so many arrays to work in.

    Pieces of 16-bit dtypes come as float32 copies; once the consumer asks for the next piece, the written ones are
    rounded back, so that a long chain of operations is rounded once.
    """
    room: list[Array] = []
    for piece in pieces([*written, *read]):
        wide = [widened(array) for array in piece]
        if not room or room[0].shape != wide[0].shape:
            room = [np.empty_like(wide[0]) for _ in range(scratch)]
        yield wide + room
        for array, result in zip(piece[: len(written)], wide, strict=False):
            if result is not array:
                array[...] = result


def change_pieces(
    change: Callable[[list[Array]], object], written: Sequence[Array], read: Sequence[Array], scratch: int, cost: int
) -> None:
    """An elementwise update, piece by piece, by several threads where that is worth it.

    Args:
        change: called with what `updated` makes of each piece.
        written, read, scratch: see `updated`.
        cost: nanoseconds per element, estimated.
    """
    arrays = [*written, *read]

    def some(part: list[Array]) -> None:
        for piece in updated(part[: len(written)], part[len(written) :], scratch):
            change(piece)

    if not all([it.flags.c_contiguous for it in arrays]):
        some(arrays)
        return
    flat = [it.reshape(-1) for it in arrays]
    over(flat[0].size, flat[0].size * cost, lambda start, stop: some([it[start:stop] for it in flat]), PIECE)


def zero_gradients(tensors: Iterable[Tensor], set_to_none: bool) -> None:
    """Forget the gradients of these tensors, or set them to zero by one instruction."""
    gradients: list[Tensor] = []
    for tensor in tensors:
        if tensor.grad is None:
            continue
        if set_to_none:
            tensor.grad = None
        else:
            gradients.append(tensor.grad.detach_())
    if gradients:
        issue_update(Update("zero_grad", _zero, (), gradients, sum([it.numel() for it in gradients]) // 4, True))


def _zero(inputs: list[Array], outputs: list[Array]) -> None:
    for array in outputs:
        array[...] = 0
