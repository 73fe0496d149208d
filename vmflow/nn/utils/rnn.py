"""Sequences of different lengths in one batch: padded to the longest, or packed row by row.

In a packed batch the sequences are sorted by falling length, and the rows of each step lie behind those of the step
before; the rows of a step are as many as there are sequences that are so long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.ops.creation.creation import tensor
from vmflow.ops.elementwise.selection import where
from vmflow.ops.indexing.indexing import index_select
from vmflow.ops.shape.joining import stack
from vmflow.ops.shape.padding import pad
from vmflow.ops.table import flag
from vmflow.tensors import Tensor


class PackedSequence(NamedTuple):
    """A packed batch, as `pack_padded_sequence` makes it.

    Attributes:
        data: (rows, ...), the elements of all sequences.
        batch_sizes: (steps,), int64 on the host: the number of rows of each step, never rising.
        sorted_indices: which sequence of the batch is the longest, second longest and so on; None if they were sorted.
        unsorted_indices: where each sequence of the batch is among the sorted ones.
    """

    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None = None
    unsorted_indices: Tensor | None = None

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """With the data on another device or of another dtype; arguments as for `Tensor.to`."""
        data = self.data.to(*args, **kwargs)
        moved = [
            None if value is None else value.to(data.device) for value in (self.sorted_indices, self.unsorted_indices)
        ]
        return PackedSequence(data, self.batch_sizes, *moved)


def batch_sizes_of(packed: PackedSequence) -> tuple[int, ...]:
    """The numbers of rows, read from `batch_sizes`, which is waited for.

    Raises:
        ValueError: unless they are positive and never rise.
    """
    sizes = tuple([int(size) for size in packed.batch_sizes.tolist()])
    if not sizes or min(sizes) < 1 or any([after > before for before, after in pairwise(sizes)]):
        raise ValueError(f"PackedSequence: batch_sizes must be positive and never rise, got {list(sizes)}")
    return sizes


def _host(values: Array) -> Tensor:
    return tensor(np.ascontiguousarray(values, np.int64), device="cpu")


def _read_lengths(name: str, lengths: Tensor | Sequence[int], batch: int, longest: int) -> Array:
    given = lengths.tolist() if isinstance(lengths, Tensor) else list(lengths)
    found = np.array(given, np.int64)
    if found.shape != (batch,) or batch == 0 or found.min() < 1 or found.max() > longest:
        raise ValueError(f"{name}: expected one length from 1 to {longest} for each of {batch} sequences, got {given}")
    return found


def _sizes(lengths: Array) -> Array:
    """The number of rows of each step."""
    return np.array([np.count_nonzero(lengths > step) for step in range(int(lengths.max()))], np.int64)


def pack_padded_sequence(
    input: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack a padded batch.

    Args:
        input: (steps, batch, ...), or (batch, steps, ...).
        lengths: of each sequence.  What is packed depends on them, so a tensor of lengths is waited for.
        batch_first: which of the two `input` is.
        enforce_sorted: whether to insist that the sequences are sorted by falling length; otherwise they are sorted.

    Raises:
        ValueError: for lengths that do not fit, or are not sorted although they must be.
    """
    name = "pack_padded_sequence"
    if input.ndim < 2:
        raise ValueError(f"{name}: expected an input of at least 2 dimensions, got shape {list(input.shape)}")
    batch, steps = (input.shape[0], input.shape[1]) if batch_first else (input.shape[1], input.shape[0])
    found = _read_lengths(name, lengths, batch, steps)
    order = np.argsort(-found, kind="stable")
    if enforce_sorted and (np.diff(found) > 0).any():
        raise ValueError(
            f"{name}: the lengths {found.tolist()} are not sorted from longest to shortest; pass enforce_sorted=False"
        )
    sizes = _sizes(found)
    places = [
        order[:size] * steps + step if batch_first else order[:size] + step * batch for step, size in enumerate(sizes)
    ]
    rows = input.reshape(batch * steps, *input.shape[2:])
    data = index_select(rows, 0, _host(np.concatenate(places)).to(input.device))
    if enforce_sorted:
        return PackedSequence(data, _host(sizes))
    return PackedSequence(data, _host(sizes), _host(order).to(input.device), _host(np.argsort(order)).to(input.device))


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """Undo `pack_padded_sequence`.

    Args:
        sequence: a packed batch; its batch sizes, and the order of its sequences, are waited for.
        batch_first: whether the result is (batch, steps, ...) and not (steps, batch, ...).
        padding_value: what follows the end of a sequence.
        total_length: how many steps the result has at least; by default as many as the longest sequence.

    Returns:
        The padded batch, and the lengths, int64 on the host.

    Raises:
        ValueError: if a sequence is longer than `total_length`.
    """
    sizes = batch_sizes_of(sequence)
    steps = len(sizes) if total_length is None else total_length
    if steps < len(sizes):
        raise ValueError(f"pad_packed_sequence: total_length {total_length} is below the longest length {len(sizes)}")
    order = None if sequence.unsorted_indices is None else np.array(sequence.unsorted_indices.tolist(), np.int64)
    position = np.arange(sizes[0]) if order is None else order
    starts = np.concatenate([[0], np.cumsum(sizes)])[:-1]
    lengths = np.array([sum([size > value for size in sizes]) for value in position.tolist()], np.int64)
    there = np.arange(steps)[:, None] < lengths
    places = np.where(there, np.pad(starts, (0, steps - len(sizes)))[:, None] + position, 0)
    if batch_first:
        there, places = there.T, places.T
    data = sequence.data
    rows = index_select(data, 0, _host(places.reshape(-1)).to(data.device))
    padded = rows.reshape(*places.shape, *data.shape[1:])
    if not there.all():
        mask = tensor(np.ascontiguousarray(there), device="cpu").to(data.device)
        padded = where(mask.reshape(*there.shape, *[1] * (data.ndim - 1)), padded, padding_value)
    return padded, _host(lengths)


def pad_sequence(
    sequences: Tensor | Sequence[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Make one batch of sequences of different lengths.

    Args:
        sequences: each (steps, ...), alike but for the steps.
        batch_first: whether the result is (batch, steps, ...) and not (steps, batch, ...).
        padding_value: what is added to the shorter ones.
        padding_side: "right" for behind, "left" for before them.

    Raises:
        ValueError: for no sequences, or another side.
    """
    given = list(sequences)
    if not given:
        raise ValueError("pad_sequence: expected at least one sequence")
    batch_first = flag("pad_sequence", "batch_first", batch_first)
    if not isinstance(padding_value, (int, float)):
        raise TypeError(f"pad_sequence: padding_value must be a number, not {padding_value!r}")
    if padding_side not in ("left", "right"):
        raise ValueError(f"pad_sequence: padding_side must be 'left' or 'right', not {padding_side!r}")
    longest = max([len(value) for value in given])
    padded: list[Tensor] = []
    for value in given:
        missing = longest - len(value)
        amount = (missing, 0) if padding_side == "left" else (0, missing)
        padded.append(pad(value, [0, 0] * (value.ndim - 1) + list(amount), value=padding_value) if missing else value)
    return stack(padded, 0 if batch_first else 1)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False
) -> list[Tensor]:
    """Undo `pad_sequence`: the sequences, as views; a tensor of lengths is waited for."""
    batch = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    found = _read_lengths("unpad_sequence", lengths, batch.shape[0], batch.shape[1])
    return [batch[place, :length] for place, length in enumerate(found.tolist())]


def pack_sequence(sequences: Iterable[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack sequences of different lengths, each (steps, ...); see `pack_padded_sequence`."""
    given = list(sequences)
    return pack_padded_sequence(pad_sequence(given), [len(value) for value in given], enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """Undo `pack_sequence`."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
