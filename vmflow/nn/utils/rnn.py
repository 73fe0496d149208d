"""Batches of sequences of different lengths: padded to the longest, or packed row by row.

In a packed batch the sequences are sorted by falling length, and the rows of each time step follow those of the step
before; a step has a row for each sequence that is longer than the number of steps before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from vmflow.arguments import flag, whole_number
from vmflow.instructions.blob import Array
from vmflow.operands import check_tensors as _check_tensors, described as _described
from vmflow.ops.creation.creation import tensor
from vmflow.ops.elementwise.selection import where
from vmflow.ops.indexing.indexing import index_select
from vmflow.ops.shape.joining import stack
from vmflow.ops.shape.padding import pad
from vmflow.tensors import Tensor
from vmflow.transfers import beside


class PackedSequence(NamedTuple):
    """A packed batch of sequences, as `pack_padded_sequence` makes it.  Raises no errors: the fields are not checked.

    Attributes:
        data: (rows, *), the elements of all sequences.
        batch_sizes: (steps,), int64 on the host: the number of rows of each step, never rising.
        sorted_indices: the indices of the sequences in the order from the longest to the shortest; None if packed with
            `enforce_sorted`.
        unsorted_indices: the position of each sequence in that order, the inverse permutation, or None.

    Example:
        >>> packed = flow.nn.utils.rnn.pack_sequence([flow.tensor([1, 2, 3]), flow.tensor([4, 5])])
        >>> packed.data, packed.batch_sizes
        (tensor([1, 4, 2, 5, 3]), tensor([2, 2, 1]))
    """

    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None = None
    unsorted_indices: Tensor | None = None

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """Return a packed batch with the data on another device or of another dtype; arguments as for `Tensor.to`."""
        data = self.data.to(*args, **kwargs)
        moved = [
            None if value is None else value.to(data.device) for value in (self.sorted_indices, self.unsorted_indices)
        ]
        return PackedSequence(data, self.batch_sizes, *moved)


def batch_sizes_of(packed: PackedSequence) -> tuple[int, ...]:
    """Return the number of rows of each step of a packed batch; waits for the values of `batch_sizes`.

    Raises:
        TypeError: for anything else than a packed batch.
        ValueError: for no steps, or unless the numbers are positive and never rise.

    Example:
        >>> rnn = flow.nn.utils.rnn
        >>> rnn.batch_sizes_of(rnn.pack_sequence([flow.tensor([1, 2, 3]), flow.tensor([4, 5])]))
        (2, 2, 1)
    """
    if not isinstance(packed, PackedSequence):
        raise TypeError(
            f"PackedSequence: expected a packed batch, got {_described(packed)}; make one with pack_padded_sequence() "
            "or pack_sequence()"
        )
    sizes = tuple([int(size) for size in packed.batch_sizes.tolist()])
    if not sizes or min(sizes) < 1 or any([after > before for before, after in pairwise(sizes)]):
        raise ValueError(f"PackedSequence: batch_sizes must be positive and never rise, got {list(sizes)}")
    return sizes


def _host(values: Array) -> Tensor:
    return tensor(np.ascontiguousarray(values, np.int64), device="cpu")


def _as_indices(values: Array, data: Tensor) -> Tensor:
    """The integers `values` as a tensor on the device and the ranks of `data`."""
    return beside(_host(values).to(data.device), data)


def _read_lengths(name: str, lengths: Tensor | Sequence[int], batch: int, longest: int) -> Array:
    values = lengths.tolist() if isinstance(lengths, Tensor) else list(lengths)
    if values and np.array(values).dtype.kind in "fc":
        raise TypeError(f"{name}: lengths must be integers, got {values}")
    array = np.array(values, np.int64)
    if array.shape != (batch,) or batch == 0 or array.min() < 1 or array.max() > longest:
        raise ValueError(f"{name}: expected one length from 1 to {longest} for each of {batch} sequences, got {values}")
    return array


def _sizes(lengths: Array) -> Array:
    """Return the number of rows of each time step: the number of `lengths` above the step's number, from 0."""
    return np.array([np.count_nonzero(lengths > step) for step in range(int(lengths.max()))], np.int64)


def pack_padded_sequence(
    input: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack a padded batch of sequences into a `PackedSequence`.

    Args:
        input: (steps, batch, *), or (batch, steps, *).
        lengths: (batch,), the length of each sequence; a tensor of lengths is waited for.
        batch_first: whether `input` is (batch, steps, *).
        enforce_sorted: whether sequences not sorted by falling length are an error; else this function sorts them.

    Raises:
        TypeError: if `input` is no tensor, or for lengths that are no integers.
        ValueError: for fewer than two dimensions, or lengths that do not fit the input, or with `enforce_sorted` are
            not sorted.

    Example:
        >>> padded = flow.tensor([[1, 2, 3], [4, 5, 0]])
        >>> flow.nn.utils.rnn.pack_padded_sequence(padded, [3, 2], batch_first=True).data
        tensor([1, 4, 2, 5, 3])
    """
    name = "pack_padded_sequence"
    _check_tensors(name, input)
    if input.ndim < 2:
        raise ValueError(f"{name}: expected an input of at least 2 dimensions, got shape {list(input.shape)}")
    batch, steps = (input.shape[0], input.shape[1]) if batch_first else (input.shape[1], input.shape[0])
    host_lengths = _read_lengths(name, lengths, batch, steps)
    order = np.argsort(-host_lengths, kind="stable")
    if enforce_sorted and (np.diff(host_lengths) > 0).any():
        raise ValueError(
            f"{name}: the lengths {host_lengths.tolist()} are not sorted from longest to shortest; pass "
            "enforce_sorted=False"
        )
    sizes = _sizes(host_lengths)
    places = [
        order[:size] * steps + step if batch_first else order[:size] + step * batch for step, size in enumerate(sizes)
    ]
    rows = input.reshape(batch * steps, *input.shape[2:])
    data = index_select(rows, 0, _as_indices(np.concatenate(places), input))
    if enforce_sorted:
        return PackedSequence(data, _host(sizes))
    return PackedSequence(data, _host(sizes), _as_indices(order, input), _as_indices(np.argsort(order), input))


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """Pad a packed batch: the inverse of `pack_padded_sequence`.

    Args:
        sequence: a packed batch; the call waits for its `batch_sizes` and `unsorted_indices`.
        batch_first: whether the result is (batch, steps, *) and not (steps, batch, *).
        padding_value: the value behind the end of each sequence.
        total_length: the number of steps of the result; by default the longest sequence's length.

    Returns:
        The padded batch, and the lengths, (batch,), int64 on the host.

    Raises:
        TypeError: for anything else than a packed batch, or a `total_length` that is no integer.
        ValueError: if a sequence is longer than `total_length`, or the batch sizes are not positive, or rise.

    Example:
        >>> packed = flow.nn.utils.rnn.pack_sequence([flow.tensor([1, 2, 3]), flow.tensor([4, 5])])
        >>> flow.nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
        (tensor([[1, 2, 3],
                [4, 5, 0]]), tensor([3, 2]))
    """
    sizes = batch_sizes_of(sequence)
    steps = len(sizes) if total_length is None else whole_number("pad_packed_sequence", "total_length", total_length)
    if steps < len(sizes):
        raise ValueError(f"pad_packed_sequence: total_length {total_length} is below the longest length {len(sizes)}")
    order = None if sequence.unsorted_indices is None else np.array(sequence.unsorted_indices.tolist(), np.int64)
    position = np.arange(sizes[0]) if order is None else order
    starts = np.concatenate([[0], np.cumsum(sizes)])[:-1]
    lengths = np.array([sum([size > value for size in sizes]) for value in position.tolist()], np.int64)
    is_element = np.arange(steps)[:, None] < lengths
    places = np.where(is_element, np.pad(starts, (0, steps - len(sizes)))[:, None] + position, 0)
    if batch_first:
        is_element, places = is_element.T, places.T
    data = sequence.data
    rows = index_select(data, 0, _as_indices(places.reshape(-1), data))
    padded = rows.reshape(*places.shape, *data.shape[1:])
    if not is_element.all():
        mask = beside(tensor(np.ascontiguousarray(is_element), device="cpu").to(data.device), data)
        # For integers a scalar of the data's dtype, because the float 0.0 would make `where` return floats.
        number = padding_value if data.is_floating_point() else data.new_full((), padding_value)
        padded = where(mask.reshape(*is_element.shape, *[1] * (data.ndim - 1)), padded, number)
    return padded, _host(lengths)


def pad_sequence(
    sequences: Tensor | Sequence[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Stack sequences of different lengths into one batch, padded to the longest.

    Args:
        sequences: tensors (steps, *), whose shapes differ in the number of steps only.
        batch_first: whether the result is (batch, steps, *) and not (steps, batch, *).
        padding_value: the value with which shorter sequences are padded.
        padding_side: "right" to pad behind the sequences, "left" to pad before them.

    Raises:
        ValueError: for no sequences, shapes that differ in other dimensions, or another side.
        TypeError: for sequences that are no tensors or 0-d, a padding value that is no real number, or a `batch_first`
            that is no bool.

    Example:
        >>> flow.nn.utils.rnn.pad_sequence([flow.tensor([1, 2, 3]), flow.tensor([4, 5])], batch_first=True)
        tensor([[1, 2, 3],
                [4, 5, 0]])
    """
    tensors = list(sequences)
    if not tensors:
        raise ValueError("pad_sequence: expected at least one sequence")
    _check_tensors("pad_sequence", *tensors)
    batch_first = flag("pad_sequence", "batch_first", batch_first)
    if not isinstance(padding_value, (int, float, np.number)):
        raise TypeError(f"pad_sequence: padding_value must be a number, not {padding_value!r}")
    if padding_side not in ("left", "right"):
        raise ValueError(f"pad_sequence: padding_side must be 'left' or 'right', not {padding_side!r}")
    longest = max([len(value) for value in tensors])
    padded: list[Tensor] = []
    for value in tensors:
        missing = longest - len(value)
        amount = (missing, 0) if padding_side == "left" else (0, missing)
        padded.append(pad(value, [0, 0] * (value.ndim - 1) + list(amount), value=padding_value) if missing else value)
    return stack(padded, 0 if batch_first else 1)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False
) -> list[Tensor]:
    """Return the sequences of a batch padded on the right, as by `pad_sequence`: views without the padding.

    Args:
        padded_sequences: (steps, batch, *), or (batch, steps, *).
        lengths: (batch,), the length of each sequence, at least 1; a tensor of lengths is waited for.
        batch_first: whether `padded_sequences` is (batch, steps, *).

    Raises:
        TypeError: if `padded_sequences` is no tensor, or for lengths that are no integers.
        ValueError: for lengths that do not fit.
        IndexError: for fewer than two dimensions.

    Example:
        >>> flow.nn.utils.rnn.unpad_sequence(flow.tensor([[1, 2, 3], [4, 5, 0]]), flow.tensor([3, 2]), True)
        [tensor([1, 2, 3]), tensor([4, 5])]
    """
    _check_tensors("unpad_sequence", padded_sequences)
    batch = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    host_lengths = _read_lengths("unpad_sequence", lengths, batch.shape[0], batch.shape[1])
    return [batch[place, :length] for place, length in enumerate(host_lengths.tolist())]


def pack_sequence(sequences: Iterable[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack sequences of different lengths, each of shape (steps, *); see `pack_padded_sequence`.

    Raises:
        TypeError: for sequences that are no tensors.
        ValueError: for no sequences, empty ones or unequal shapes (*); with `enforce_sorted`, unless they are sorted
            by falling length.

    Example:
        >>> flow.nn.utils.rnn.pack_sequence([flow.tensor([1, 2, 3]), flow.tensor([4, 5])]).data
        tensor([1, 4, 2, 5, 3])
    """
    tensors = list(sequences)
    return pack_padded_sequence(pad_sequence(tensors), [len(value) for value in tensors], enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """Return the sequences of a packed batch, each of shape (steps, *): the inverse of `pack_sequence`.

    Raises:
        TypeError: for anything else than a packed batch.
        ValueError: if the batch sizes are not positive, or rise.

    Example:
        >>> rnn = flow.nn.utils.rnn
        >>> rnn.unpack_sequence(rnn.pack_sequence([flow.tensor([1, 2, 3]), flow.tensor([4, 5])]))
        [tensor([1, 2, 3]), tensor([4, 5])]
    """
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
