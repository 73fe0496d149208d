"""Numpy's scalars are taken where functions take Python's integers and numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import array_api
from vmflow.nn import functional as F

X = flow.arange(12).float().reshape(3, 4)
SQUARE = X[:, :3]
IMAGES = flow.arange(64).float().reshape(1, 4, 4, 4)
ONES = flow.ones(4, 1, 1, 1)

REDUCTIONS = (
    *("sum", "mean", "prod", "amax", "amin", "any", "all", "var", "std", "logsumexp", "nansum", "nanmean"),
    *("max", "min", "var_mean", "std_mean", "count_nonzero", "aminmax", "median", "argmax", "gradient"),
)


def _flat(result: Any) -> list[flow.Tensor]:
    return [result] if isinstance(result, flow.Tensor) else list(result)


@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_dimension_to_reduce(name: str, dim: int) -> None:
    function: Any = getattr(flow, name)
    for found, expected in zip(_flat(function(X, dim=np.int64(dim))), _flat(function(X, dim=dim)), strict=True):
        assert flow.equal(found, expected)


@pytest.mark.parametrize(
    "function",
    [
        lambda n: X.norm(dim=n),
        lambda n: flow.linalg.norm(X, 1, n),
        lambda n: flow.linalg.vector_norm(X, dim=n),
        lambda n: F.normalize(X, dim=n),
        lambda n: X.roll(n, n),
        lambda n: X.movedim(n, -n),
        lambda n: X.tensor_split(n),
        lambda n: flow.hsplit(X, n),
        lambda n: flow.tensordot(X, X.t(), n),
        lambda n: flow.matrix_power(SQUARE, n),
        lambda n: flow.polygamma(n, X),
        lambda n: flow.Tensor(n).shape,
        lambda n: X.new(n, n).shape,
        lambda n: flow.LongTensor(n).shape,
        lambda n: F.pixel_shuffle(IMAGES, n),
        lambda n: F.channel_shuffle(IMAGES, n),
        lambda n: F.conv2d(IMAGES[:, :1], ONES, groups=n),
        lambda n: F.max_pool2d(IMAGES, 2, n),
        lambda n: F.avg_pool2d(IMAGES, 2, n, divisor_override=n),
        lambda n: F.group_norm(IMAGES, n),
        lambda n: F.interpolate(IMAGES, n),
        lambda n: F.layer_norm(X[:, :1], n),
        lambda n: flow.nn.LayerNorm(n)(X[:, :1]),
        lambda n: flow.nn.ZeroPad2d(n)(IMAGES),
        lambda n: F.pairwise_distance(X, X + 1, n),
        lambda n: flow.rand(2, generator=flow.Generator().manual_seed(n)),
        lambda n: array_api.sum(X, axis=n),
        lambda n: array_api.roll(X, n, axis=n),
        lambda n: array_api.tensordot(X, X.t(), axes=n),
        lambda n: array_api.ones(n),
    ],
)
def test_an_integer(function: Callable[[Any], Any]) -> None:
    for found, expected in zip(_flat(function(np.int64(1))), _flat(function(1)), strict=True):
        assert found == expected if isinstance(found, int) else flow.equal(found, expected)


@pytest.mark.parametrize(
    "function",
    [
        lambda n: F.interpolate(IMAGES, scale_factor=n),
        lambda n: F.gaussian_nll_loss(X, X + 1, n),
        lambda n: F.batch_norm(X, flow.zeros(4), flow.ones(4), training=True, momentum=n),
        lambda n: flow.linalg.pinv(SQUARE, rtol=n),
        lambda n: flow.normal(X, n, generator=flow.Generator().manual_seed(0)),
        lambda n: flow.zeros(2).normal_(n, n, generator=flow.Generator().manual_seed(0)),
        lambda n: flow.nn.utils.rnn.pad_sequence([X, X[:1]], padding_value=n),
        lambda n: flow.tensor(flow.nn.init.calculate_gain("leaky_relu", n)),
    ],
)
def test_a_number(function: Callable[[Any], flow.Tensor]) -> None:
    assert flow.equal(function(np.float32(0.5)), function(0.5))


def test_a_limit_of_gradients() -> None:
    weight = flow.nn.Parameter(flow.ones(2))
    weight.grad = flow.tensor([3.0, -0.5])
    limit: Any = np.float32(1.0)
    flow.nn.utils.clip_grad_value_([weight], limit)
    assert weight.grad.tolist() == [1.0, -0.5]
