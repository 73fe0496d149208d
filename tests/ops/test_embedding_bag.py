"""Bags of embeddings against loops and against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vmflow as flow
import vmflow.nn.functional as F

pytestmark = pytest.mark.usefixtures("contract")

INPUT = np.array([1, 2, 4, 5, 4, 3, 2, 9, 4])
OFFSETS = np.array([0, 3, 3, 7])
TABLE = np.random.default_rng(0).normal(size=(10, 3))


def compare(given: Any, offsets: Any, weights: Any = None, **options: Any) -> None:
    torch = pytest.importorskip("torch")
    found = []
    for lib in (flow, torch):
        table = lib.tensor(TABLE, requires_grad=True)
        extra = dict(options)
        if weights is not None:
            extra["per_sample_weights"] = lib.tensor(weights, requires_grad=True)
        starts = None if offsets is None else lib.tensor(offsets)
        result = lib.nn.functional.embedding_bag(lib.tensor(given), table, starts, **extra)
        values = np.array(result.detach().numpy())
        factor = np.random.default_rng(1).uniform(0.5, 1.5, tuple(result.shape))
        (result * lib.tensor(factor)).sum().backward()
        gradients = [table.grad.numpy()]
        if weights is not None:
            gradients.append(extra["per_sample_weights"].grad.numpy())
        found.append((values, gradients))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-12)
    for ours, theirs in zip(found[0][1], found[1][1], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding_idx", [None, 4, -1])
def test_bags_one_after_the_other(mode: str, padding_idx: int | None) -> None:
    compare(INPUT, OFFSETS, mode=mode, padding_idx=padding_idx)
    compare(INPUT, np.append(OFFSETS, len(INPUT)), mode=mode, padding_idx=padding_idx, include_last_offset=True)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding_idx", [None, 4])
def test_a_bag_in_each_row(mode: str, padding_idx: int | None) -> None:
    compare(np.array([[1, 2, 4], [4, 4, 4], [5, 5, 2]]), None, mode=mode, padding_idx=padding_idx)


def test_weights_of_samples() -> None:
    weights = np.random.default_rng(2).normal(size=9)
    compare(INPUT, OFFSETS, weights, mode="sum")
    compare(INPUT.reshape(3, 3), None, weights.reshape(3, 3), mode="sum")


def test_gradients_by_frequency() -> None:
    """Not against PyTorch, which divides by how often other rows are named."""
    gradients = []
    for scaled in (False, True):
        table = flow.tensor(TABLE, requires_grad=True)
        result = F.embedding_bag(flow.tensor(INPUT), table, flow.tensor(OFFSETS), scale_grad_by_freq=scaled, mode="sum")
        (result * flow.tensor([[1.0], [2.0], [3.0], [4.0]]).double()).sum().backward()
        assert table.grad is not None
        gradients.append(table.grad.numpy())
    counts = np.maximum(np.bincount(INPUT, minlength=10), 1)
    np.testing.assert_allclose(gradients[1], gradients[0] / counts[:, None], rtol=1e-12)


def test_norms_are_limited_in_place() -> None:
    table = flow.tensor(TABLE * 10)
    F.embedding_bag(flow.tensor([1, 2]), table, flow.tensor([0]), max_norm=1.0).numpy()
    norms = np.linalg.norm(table.numpy(), axis=1)
    np.testing.assert_allclose(norms[[1, 2]], 1.0, rtol=1e-6)
    assert norms[3] > 2


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_empty_bags_are_zero(mode: str) -> None:
    table = flow.tensor(TABLE)
    nothing = flow.zeros(0, dtype=flow.int64)
    assert F.embedding_bag(nothing, table, flow.tensor([0, 0]), mode=mode).tolist() == [[0.0] * 3] * 2
    assert tuple(F.embedding_bag(nothing.reshape(0, 2), table, mode=mode).shape) == (0, 3)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_indices_behind_the_last_offset_are_in_no_bag(mode: str) -> None:
    """Not against PyTorch, which takes them for the mean's divisor and the maximum."""
    results = []
    for given in (INPUT, INPUT[:7]):
        table = flow.tensor(TABLE, requires_grad=True)
        offsets = flow.tensor([0, 3, 3, 7])
        result = F.embedding_bag(flow.tensor(given), table, offsets, mode=mode, include_last_offset=True)
        result.square().sum().backward()
        assert table.grad is not None
        results.append((result.tolist(), table.grad.tolist()))
    assert results[0] == results[1]


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize(
    ("offsets", "complaint"),
    [
        ([1, 3], "the first bag must begin at index 0, not 1"),
        ([0, 3, 2], "offset 2 at 2 is less than the one before"),
        ([0, -1], "offset -1 at 1 is less than the one before"),
        ([0, 3, 5], "offset 5 at 2 .* more than the 4 indices"),
    ],
)
def test_wrong_offsets_raise_where_the_result_is_read(offsets: list[int], complaint: str, mode: str) -> None:
    result = F.embedding_bag(flow.tensor([0, 1, 2, 3]), flow.tensor(TABLE), flow.tensor(offsets), mode=mode)
    with pytest.raises(IndexError, match=complaint):
        result.numpy()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_other_dtypes(dtype: str) -> None:
    table = flow.tensor(TABLE, dtype=getattr(flow, dtype))
    for mode in ("sum", "mean", "max"):
        result = F.embedding_bag(flow.tensor([[1, 2]], dtype=flow.int32), table, mode=mode)
        assert result.dtype is table.dtype
        wanted = {"sum": TABLE[1:3].sum(0), "mean": TABLE[1:3].mean(0), "max": TABLE[1:3].max(0)}[mode]
        np.testing.assert_allclose(result.double().numpy()[0], wanted, rtol=3e-2, atol=1e-2)


@pytest.mark.parametrize(
    ("keywords", "error", "complaint"),
    [
        ({"mode": "median"}, ValueError, "mode must be one of sum, mean, max"),
        ({"offsets": None}, ValueError, "needs a vector of offsets, got none"),
        ({"offsets": np.zeros(0, np.int64)}, ValueError, "2 indices need at least one offset, got none"),
        ({"offsets": np.zeros(2, np.float32)}, TypeError, "offsets must be integers"),
        ({"input": np.zeros((2, 2), np.int64)}, ValueError, "takes no offsets"),
        ({"input": np.zeros((2, 2, 2), np.int64)}, ValueError, "one or two dimensions"),
        ({"input": np.zeros(2, np.float32)}, TypeError, "indices must be integers"),
        ({"sparse": True}, ValueError, "sparse gradients are not supported"),
        ({"per_sample_weights": np.ones(2, np.float32)}, ValueError, "for mode 'sum' only"),
        ({"per_sample_weights": np.ones(3, np.float32), "mode": "sum"}, ValueError, "must have the input's"),
        ({"per_sample_weights": np.ones((2), np.float64), "mode": "sum"}, TypeError, "must have the table's dtype"),
        ({"scale_grad_by_freq": True, "mode": "max"}, ValueError, "not for mode 'max'"),
        ({"padding_idx": 4}, ValueError, "names no row"),
        ({"weight": np.zeros((3, 2), np.int64)}, TypeError, "must be floating-point"),
    ],
)
def test_operands_that_do_not_fit_raise(keywords: dict[str, Any], error: type[Exception], complaint: str) -> None:
    usual = {"input": np.array([1, 2]), "weight": np.ones((3, 2), np.float32), "offsets": np.array([0])}
    given: dict[str, Any] = {}
    for key, value in {**usual, **keywords}.items():
        given[key] = flow.tensor(value) if isinstance(value, np.ndarray) else value
    with pytest.raises(error, match=complaint):
        F.embedding_bag(**given)
