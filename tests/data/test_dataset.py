"""Datasets, and batches made of their samples."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow.utils import data
from vmflow.utils.data import (
    ChainDataset,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    default_collate,
    default_convert,
    random_split,
)

from .support import Shares, Squares

wrong: Any = [1]
Point = namedtuple("Point", "x y")


def test_tensor_dataset() -> None:
    dataset = TensorDataset(flow.arange(6).reshape(3, 2), flow.tensor([5.0, 6.0, 7.0]))
    assert len(dataset) == 3
    assert [tensor.tolist() for tensor in dataset[1]] == [[2, 3], 6.0]
    assert [[tensor.tolist() for tensor in row] for row in dataset.__getitems__([2, -3])] == [
        [[4, 5], 7.0],
        [[0, 1], 5.0],
    ]
    assert [[tensor.tolist() for tensor in row] for row in DataLoader(dataset, 2)] == [
        [[[0, 1], [2, 3]], [5.0, 6.0]],
        [[[4, 5]], [7.0]],
    ]
    with pytest.raises(IndexError, match="index 3 is out of range"):
        dataset.__getitems__([3])
    assert dataset.__getitems__([]) == []


def test_concatenating_and_chaining() -> None:
    both: Any = ConcatDataset([[1, 2], [], [3]])
    assert [both[value] for value in (0, 1, 2, -1, -3)] == [1, 2, 3, 3, 1]
    assert len(both) == 3
    assert both.cumulative_sizes == [2, 2, 3]
    for index in (3, -4):
        with pytest.raises(IndexError, match="out of range"):
            both[index]
    assert len(Squares(2) + Squares(3)) == 5
    chain = Shares(2) + Shares(3)
    assert list(chain) == [0, 1, 0, 1, 2]
    assert len(chain) == 5
    with pytest.raises(TypeError, match="ChainDataset"):
        ConcatDataset([Shares(2)])
    with pytest.raises(TypeError, match="expected IterableDatasets"):
        list(ChainDataset([[1]]))


def test_stack_dataset_and_subset() -> None:
    pairs = StackDataset([1, 2, 3], "abc")
    assert pairs[1] == (2, "b")
    assert pairs.__getitems__([2, 0]) == [(3, "c"), (1, "a")]
    named = StackDataset(number=[1, 2, 3], letter="abc")
    assert named[0] == {"number": 1, "letter": "a"}
    assert named.__getitems__([1]) == [{"number": 2, "letter": "b"}]
    assert len(named) == 3
    subset: Any = Subset(pairs, [2, 1])
    assert [subset[0], subset[1], len(subset)] == [(3, "c"), (2, "b"), 2]
    assert subset.__getitems__([1, 0]) == [(2, "b"), (3, "c")]


@pytest.mark.parametrize(("lengths", "sizes"), [([7, 3], [7, 3]), ([0.5, 0.25, 0.25], [6, 2, 2]), ([10], [10])])
def test_random_split(lengths: list[float], sizes: list[int]) -> None:
    parts = random_split(range(10), lengths, flow.Generator().manual_seed(1))
    assert [len(value) for value in parts] == sizes
    found = [sample for part in parts for sample in part.indices]
    assert sorted(found) == list(range(10))
    again = random_split(range(10), lengths, flow.Generator().manual_seed(1))
    assert found == [sample for part in again for sample in part.indices]


def test_random_split_of_one_sample() -> None:
    for lengths in ([0.5, 0.5], [1, 0], [1.0]):
        assert [len(part) for part in random_split(["a"], lengths)] == [1, 0][: len(lengths)]


def test_default_collate() -> None:
    batch = default_collate(
        [
            {"a": np.ones((2,), np.float32) * n, "b": (n, float(n), "x"), "c": Point(n, True), "d": flow.tensor([n])}
            for n in range(3)
        ]
    )
    assert batch["a"].shape == (3, 2)
    assert batch["a"].dtype is flow.float32
    numbers, floats, strings = batch["b"]
    assert (numbers.tolist(), numbers.dtype) == ([0, 1, 2], flow.int64)
    assert (floats.tolist(), floats.dtype) == ([0.0, 1.0, 2.0], flow.float64)
    assert strings == ["x"] * 3
    assert batch["c"].x.tolist() == [0, 1, 2]
    assert batch["c"].y.dtype is flow.bool
    assert batch["d"].tolist() == [[0], [1], [2]]
    assert type(default_collate([OrderedDict(a=1)])) is OrderedDict
    assert default_collate([np.float16(1.5)]).dtype is flow.float16
    assert default_collate([np.array([1, 2], ">i4")]).tolist() == [[1, 2]]


def test_default_collate_as_pytorch() -> None:
    torch_data = pytest.importorskip("torch.utils.data")
    for samples in ([1, 2], [1.5, 2.5], [True, False], ["a", "b"], [(1, 2.5), (3, 4.5)], [{"a": [1]}, {"a": [2]}]):
        ours, theirs = default_collate(samples), torch_data.default_collate(samples)
        assert _plain(ours) == _plain(theirs)


def _plain(batch: Any) -> Any:
    if hasattr(batch, "tolist"):
        return str(batch.dtype).split(".")[1], batch.tolist()
    if isinstance(batch, dict):
        return {key: _plain(value) for key, value in batch.items()}
    return [_plain(entry) for entry in batch] if isinstance(batch, (list, tuple)) else batch


def test_default_convert() -> None:
    found = default_convert({"a": [np.ones(2), "x"], "b": Point(np.float32(2), None), "c": np.array("text")})
    assert found["a"][0].tolist() == [1.0, 1.0]
    assert found["a"][1] == "x"
    assert found["b"].x.dtype is flow.float32
    assert found["b"].y is None
    assert isinstance(found["c"], np.ndarray)
    assert isinstance(default_convert((1, np.ones(1))), tuple)


class _Short(Dataset[int]):
    def __getitems__(self, indices: list[int]) -> list[int]:
        return [1]


class _Nothing(IterableDataset[int]):
    pass


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: TensorDataset(), ValueError, "at least one tensor"),
        (lambda: TensorDataset(flow.ones(2), flow.ones(3)), ValueError, "first dimension"),
        (lambda: TensorDataset(wrong), TypeError, "expected tensors, got list"),
        (lambda: StackDataset(), ValueError, "at least one"),
        (lambda: StackDataset([1], a=[1]), ValueError, "all by position or all by name"),
        (lambda: StackDataset([1], [1, 2]), ValueError, "one length"),
        (lambda: ConcatDataset([]), ValueError, "at least one"),
        (lambda: random_split([1, 2], [1, 2]), ValueError, "add up to 3"),
        (lambda: random_split(range(10), [2.5, 7.5]), ValueError, "must be whole numbers"),
        (lambda: random_split([1, 2], [3, -1]), ValueError, "negative"),
        (lambda: default_collate([np.ones(1), np.ones(2)]), ValueError, r"one shape, got \[1\], \[2\]"),
        (lambda: default_collate([[1], [1, 2]]), ValueError, "one length"),
        (lambda: default_collate([{"a": 1}, {"b": 1}]), KeyError, "a"),
        (lambda: default_collate([None]), TypeError, "not NoneType"),
        (lambda: default_collate([np.array("text")]), TypeError, "no vmflow dtype"),
        (lambda: list(DataLoader(_Short(), sampler=[1, 2], batch_size=2)), ValueError, "was asked for 2 samples"),
        (lambda: Dataset()[0], NotImplementedError, "must define __getitem__"),
        (lambda: iter(_Nothing()), NotImplementedError, "must define __iter__"),
    ],
)
def test_wrong_arguments_are_refused(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_a_generator_is_let_go_when_its_iteration_ends() -> None:
    ended: list[bool] = []

    class Numbers(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            try:
                yield from range(100)
            finally:
                ended.append(True)

    batches = iter(DataLoader(Numbers()))
    next(batches)
    batches.close()
    assert ended == [True]
    assert data is flow.utils.data
