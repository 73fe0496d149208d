"""Activations of several ops against numpy, over dtypes, shapes and layouts; their gradients, twice where smooth."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import vmflow as flow
import vmflow.nn.functional as F

from .oracle import REAL, Array, KernelContract, Row, gradient_test


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _selu(x: Array) -> Array:
    alpha, scale = 1.6732632423543772, 1.0507009873554805
    return np.asarray(scale * np.where(x > 0, x, alpha * np.expm1(x)))


def _halves(x: Array) -> Array:
    first, second = np.split(x, 2, 0)
    return np.asarray(first * _sigmoid(second))


EVEN = (((4, 3),), ((2,),), ((2, 3, 4),))
ROWS: list[Row] = [
    Row("relu6", F.relu6, lambda x: np.clip(x, 0, 6), REAL, domain=((-3, 9),), order=2),
    Row("hardsigmoid", F.hardsigmoid, lambda x: np.clip(x / 6 + 0.5, 0, 1), REAL, domain=((-5, 5),), order=2),
    Row("hardswish", F.hardswish, lambda x: x * np.clip(x / 6 + 0.5, 0, 1), REAL, domain=((-5, 5),), order=2),
    Row("mish", F.mish, lambda x: x * np.tanh(np.log1p(np.exp(x))), REAL, order=2),
    Row("selu", F.selu, _selu, REAL, order=2),
    Row("celu", lambda x: F.celu(x, 0.5), lambda x: np.where(x > 0, x, 0.5 * np.expm1(x / 0.5)), REAL, order=2),
    Row("threshold", lambda x: F.threshold(x, 1.0, -2.0), lambda x: np.where(x > 1, x, -2.0), REAL, order=2),
    Row("hardshrink", F.hardshrink, lambda x: np.where(np.abs(x) > 0.5, x, 0), REAL, order=2),
    Row("softshrink", F.softshrink, lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.5, 0), REAL, order=2),
    Row("square_relu", F.square_relu, lambda x: np.maximum(x, 0) ** 2, REAL, order=2),
    Row("rrelu", F.rrelu, lambda x: np.where(x > 0, x, x * (11 / 48)), REAL, order=2),
    Row("logsigmoid", F.logsigmoid, lambda x: np.log(_sigmoid(x)), REAL, order=2),
    Row("quick_gelu", F.quick_gelu, lambda x: x * _sigmoid(1.702 * x), REAL, order=2),
    Row("softsign", F.softsign, lambda x: x / (1 + np.abs(x)), REAL, order=2),
    Row("tanhshrink", F.tanhshrink, lambda x: x - np.tanh(x), REAL, order=2),
    Row("glu", lambda x: F.glu(x, 0), _halves, REAL, shapes=EVEN, order=2),
]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_forward(row: Row, contract: KernelContract) -> None:
    row.check_forward()
    assert contract.seen


test_gradient = gradient_test(ROWS)


@pytest.mark.parametrize("function", [F.selu, F.celu, F.mish, F.logsigmoid, F.hardswish, F.softsign])
def test_large_inputs_do_not_overflow(function: Callable[..., flow.Tensor]) -> None:
    x = flow.tensor([-1e4, -200.0, 200.0, 1e4], requires_grad=True)
    result = function(x)
    result.sum().backward()
    assert x.grad is not None
    assert np.isfinite(result.detach().numpy()).all()
    assert all(math.isfinite(value) for value in x.grad.tolist())
