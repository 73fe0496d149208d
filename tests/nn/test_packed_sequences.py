"""`nn.utils.rnn`: padding, packing, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow.nn.utils import rnn

LENGTHS = [2, 4, 1]


def _sequences() -> list[Any]:
    return [
        np.arange(length * 2, dtype=np.float32).reshape(length, 2) + 100 * place for place, length in enumerate(LENGTHS)
    ]


def test_padding_and_back() -> None:
    arrays = _sequences()
    for batch_first in (True, False):
        padded = rnn.pad_sequence([flow.tensor(value) for value in arrays], batch_first, -1.0)
        assert padded.shape == ((3, 4, 2) if batch_first else (4, 3, 2))
        for found, array in zip(rnn.unpad_sequence(padded, LENGTHS, batch_first), arrays, strict=True):
            np.testing.assert_array_equal(found.numpy(), array)
        ends = (padded if batch_first else padded.transpose(0, 1)).numpy()
        assert all((ends[place, length:] == -1).all() for place, length in enumerate(LENGTHS))
    left = rnn.pad_sequence([flow.tensor(value) for value in arrays], True, padding_side="left").numpy()
    assert all(
        (left[place, 4 - length :] == array).all()
        for place, (length, array) in enumerate(zip(LENGTHS, arrays, strict=True))
    )
    assert (left[2, :3] == 0).all()


@pytest.mark.parametrize("dtype", [flow.int64, flow.bool, flow.complex64])
def test_padding_a_packed_batch_keeps_its_dtype(dtype: flow.dtype) -> None:
    packed = rnn.pack_sequence([flow.tensor([1, 1, 1], dtype=dtype), flow.tensor([1], dtype=dtype)])
    padded, lengths = rnn.pad_packed_sequence(packed, batch_first=True)
    assert padded.dtype is dtype
    np.testing.assert_array_equal(padded.numpy(), [[1, 1, 1], [1, 0, 0]])
    assert lengths.tolist() == [3, 1]


@pytest.mark.parametrize("batch_first", [True, False])
def test_packing_and_back(batch_first: bool) -> None:
    tensors = [flow.tensor(sequence) for sequence in _sequences()]
    padded = rnn.pad_sequence(tensors, batch_first).requires_grad_()
    packed = rnn.pack_padded_sequence(padded, flow.tensor(LENGTHS), batch_first, enforce_sorted=False)
    assert packed.batch_sizes.tolist() == [3, 2, 1, 1]
    assert packed.sorted_indices is not None
    assert packed.unsorted_indices is not None
    assert packed.sorted_indices.tolist() == [1, 0, 2]
    assert packed.unsorted_indices.tolist() == [1, 0, 2]
    # Step by step, the longest sequence first.
    assert packed.data[:, 0].tolist() == [100.0, 0.0, 200.0, 102.0, 2.0, 104.0, 106.0]
    back, lengths = rnn.pad_packed_sequence(packed, batch_first, padding_value=7.0, total_length=5)
    assert lengths.tolist() == LENGTHS
    assert back.shape == ((3, 5, 2) if batch_first else (5, 3, 2))
    rows = (back if batch_first else back.transpose(0, 1)).detach().numpy()
    for place, array in enumerate(_sequences()):
        np.testing.assert_array_equal(rows[place, : len(array)], array)
        assert (rows[place, len(array) :] == 7).all()
    back.sum().backward()
    assert padded.grad is not None
    reached = (padded.grad if batch_first else padded.grad.transpose(0, 1)).numpy()
    assert all((reached[place] == (np.arange(4) < length)[:, None]).all() for place, length in enumerate(LENGTHS))


def test_sequences_at_once() -> None:
    arrays = _sequences()
    packed = rnn.pack_sequence([flow.tensor(value) for value in arrays], enforce_sorted=False)
    for found, array in zip(rnn.unpack_sequence(packed), arrays, strict=True):
        np.testing.assert_array_equal(found.numpy(), array)
    moved = packed.to(flow.float64)
    assert moved.data.dtype is flow.float64
    assert moved.batch_sizes is packed.batch_sizes
    ordered = rnn.pack_sequence([flow.tensor(arrays[place]) for place in (1, 0, 2)])
    assert ordered.sorted_indices is None
    np.testing.assert_array_equal(ordered.data.numpy(), packed.data.numpy())


def test_against_pytorch() -> None:
    torch = pytest.importorskip("torch")
    array = np.random.default_rng(0).standard_normal((5, 4, 3)).astype(np.float32)
    lengths = [3, 5, 1, 5]
    mine = rnn.pack_padded_sequence(flow.tensor(array), lengths, enforce_sorted=False)
    theirs = torch.nn.utils.rnn.pack_padded_sequence(torch.tensor(array), lengths, enforce_sorted=False)
    np.testing.assert_array_equal(mine.data.numpy(), theirs.data.numpy())
    assert mine.batch_sizes.tolist() == theirs.batch_sizes.tolist()
    for one, other in zip(rnn.pad_packed_sequence(mine), torch.nn.utils.rnn.pad_packed_sequence(theirs), strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


@pytest.mark.parametrize(
    ("message", "call"),
    [
        (r"lengths \[1, 2\] are not sorted", lambda x: rnn.pack_padded_sequence(x, [1, 2])),
        (
            r"one length from 1 to 3 for each of 2 sequences, got \[4, 1\]",
            lambda x: rnn.pack_padded_sequence(x, [4, 1]),
        ),
        (r"got \[2, 0\]", lambda x: rnn.pack_padded_sequence(x, [2, 0])),
        (r"got \[2\]", lambda x: rnn.pack_padded_sequence(x, [2])),
        (r"at least 2 dimensions, got shape \[3\]", lambda x: rnn.pack_padded_sequence(x[:, 0], [3])),
        (
            "total_length 2 is below the longest length 3",
            lambda x: rnn.pad_packed_sequence(rnn.pack_padded_sequence(x, [3, 1]), total_length=2),
        ),
        (
            r"never rise, got \[1, 2\]",
            lambda x: rnn.pad_packed_sequence(rnn.PackedSequence(x.reshape(-1), flow.tensor([1, 2]))),
        ),
        ("at least one sequence", lambda x: rnn.pad_sequence([])),
        ("padding_side must be 'left' or 'right', not 'top'", lambda x: rnn.pad_sequence([x], padding_side="top")),
    ],
)
def test_bad_arguments(message: str, call: Any) -> None:
    with pytest.raises(ValueError, match=message):
        call(flow.ones(3, 2))


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("pack_padded_sequence: expected tensors, got list", lambda x: rnn.pack_padded_sequence(x, [1])),
        ("pad_sequence: expected tensors, got Tensor, list", lambda x: rnn.pad_sequence([flow.ones(2), x])),
        ("pad_sequence: expected tensors, got list", lambda x: rnn.pack_sequence([x])),
        ("unpad_sequence: expected tensors, got list", lambda x: rnn.unpad_sequence(x, [1])),
        (r"lengths must be integers, got \[1\.5\]", lambda x: rnn.unpad_sequence(flow.tensor(x), flow.tensor([1.5]))),
        (r"lengths must be integers, got \[1\.0\]", lambda x: rnn.pack_padded_sequence(flow.tensor(x), flow.ones(1))),
        ("expected a packed batch, got list", lambda x: rnn.pad_packed_sequence(x)),
        ("expected a packed batch, got list", lambda x: rnn.unpack_sequence(x)),
    ],
)
def test_anything_but_tensors_is_refused(message: str, call: Any) -> None:
    with pytest.raises(TypeError, match=message):
        call([[1.0]])
