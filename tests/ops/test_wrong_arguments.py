"""Arguments of a wrong type or size: errors name the function and the argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import vmflow as flow
from vmflow import array_api
from vmflow.nn import functional as F
from vmflow.utils.data import RandomSampler


def _ones(*shape: int) -> Any:
    return flow.ones(*shape)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: flow.einsum(3, _ones(2)), TypeError, "einsum: the equation must be a string, not int"),  # type: ignore[arg-type]
        (lambda: flow.einsum("ij->i", [1]), TypeError, "einsum: expected tensors, got int"),  # type: ignore[arg-type]
        (lambda: flow.chain_matmul(_ones(2, 2), 4), TypeError, "chain_matmul: expected tensors"),  # type: ignore[arg-type]
        (lambda: flow.block_diag(3, _ones(2)), TypeError, "block_diag: expected tensors"),  # type: ignore[arg-type]
        (lambda: _ones(2).record_stream(3), TypeError, "record_stream: expected a vmflow.cuda.Stream, not 3"),
        (lambda: flow.tensor(1.0).unflatten(0, (1, 1)), IndexError, "unflatten: a 0-d tensor has no dimension"),
        (lambda: flow.svd(_ones(3), compute_uv=False), ValueError, "svdvals: "),
        (lambda: array_api.linalg.vector_norm(_ones(2), ord=None), TypeError, "ord must be a real number, not None"),  # type: ignore[arg-type]
        (
            lambda: F.max_unpool2d(_ones(1, 1, 2, 2), flow.zeros(1, 1, 2, 2, dtype=flow.int64), 2, output_size=4),
            TypeError,
            "max_unpool2d: output_size must be a list of sizes, not 4",
        ),
        (lambda: list(RandomSampler([], num_samples=3)), ValueError, "an empty dataset has none of the 3 samples"),
    ],
)
def test_wrong_arguments(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
