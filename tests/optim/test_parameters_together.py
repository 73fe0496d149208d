"""`nn.utils`: clipping gradients, and parameters as one vector."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.support import instructions_issued
from vmflow import nn
from vmflow.nn import utils


def with_gradients(*arrays: Any) -> list[flow.Tensor]:
    parameters = []
    for array in arrays:
        gradient = flow.tensor(array)
        parameters.append(flow.zeros_like(gradient, requires_grad=True))
        parameters[-1].grad = gradient
    return [*parameters, flow.zeros(1, requires_grad=True)]


def gradients(parameters: list[flow.Tensor]) -> list[np.ndarray]:
    return [parameter.grad.numpy() for parameter in parameters if parameter.grad is not None]


@pytest.mark.parametrize("order", [1.0, 2.0, 2.5, math.inf])
@pytest.mark.parametrize("limit", [0.5, 100.0])
def test_clip_grad_norm(order: float, limit: float) -> None:
    arrays = [np.array([[3.0, -4.0], [0.5, 1.0]]), np.array(2.0), np.zeros((0, 2))]
    norm = float(np.linalg.norm(np.concatenate([value.ravel() for value in arrays]), order))
    parameters = with_gradients(*arrays)
    found = utils.clip_grad_norm_(parameters, limit, order)
    assert found.dtype is flow.float64
    np.testing.assert_allclose(found.item(), norm, rtol=1e-12)
    factor = min(1.0, limit / (norm + 1e-6))
    for have, array in zip(gradients(parameters), arrays, strict=True):
        np.testing.assert_allclose(have, array * factor, rtol=1e-12)


@pytest.mark.parametrize("order", [1.0, 2.0, math.inf])
def test_clip_grad_norm_is_that_of_pytorch(order: float) -> None:
    torch = pytest.importorskip("torch")
    arrays = np.random.default_rng(0).normal(size=(3, 50, 4)).astype(np.float32)
    parameters = with_gradients(*arrays)
    others = []
    for array in arrays:
        others.append(torch.zeros(50, 4, requires_grad=True))
        others[-1].grad = torch.tensor(array)
    norm = utils.clip_grad_norm_(parameters, 3.0, order)
    assert norm.dtype is flow.float32
    np.testing.assert_allclose(norm.item(), torch.nn.utils.clip_grad_norm_(others, 3.0, order).item(), rtol=1e-5)
    for have, other in zip(gradients(parameters), others, strict=True):
        np.testing.assert_allclose(have, other.grad.numpy(), rtol=1e-5)


def test_clip_grad_norm_of_small_and_complex_dtypes() -> None:
    parameters = with_gradients(np.full(1000, 100.0, np.float16))
    # The squares alone would not fit into float16.
    assert utils.clip_grad_norm_(parameters, 1.0).item() == pytest.approx(3162, abs=2)
    assert np.linalg.norm(gradients(parameters)[0].astype(float)) == pytest.approx(1.0, rel=1e-2)
    parameters = with_gradients(np.array([3 + 4j]))
    assert utils.clip_grad_norm_(parameters, 1.0).item() == 5
    np.testing.assert_allclose(gradients(parameters)[0], [0.6 + 0.8j], rtol=1e-6)
    mixed = [*with_gradients(np.ones(2, np.float32)), *with_gradients(np.ones(2))]
    assert utils.clip_grad_norm_(mixed, 1.0).dtype is flow.float64


def test_clip_grad_norm_that_is_not_finite() -> None:
    parameters = with_gradients(np.array([1.0, math.inf]))
    with pytest.raises(RuntimeError, match="none was scaled"):
        utils.clip_grad_norm_(parameters, 1.0, error_if_nonfinite=True)
    np.testing.assert_array_equal(gradients(parameters)[0], [1, math.inf])
    assert math.isinf(utils.clip_grad_norm_(parameters, 1.0).item())
    np.testing.assert_array_equal(gradients(parameters)[0], [0, math.nan])
    parameters = with_gradients(np.array([1.0, math.nan]))
    utils.clip_grad_norm_(parameters, 1.0)
    np.testing.assert_array_equal(gradients(parameters)[0], [math.nan, math.nan])


def test_clip_grad_norm_of_one_and_of_none() -> None:
    (parameter, _) = with_gradients(np.array([3.0, 4.0]))
    assert utils.clip_grad_norm_(parameter, 1.0).item() == 5
    assert utils.clip_grad_norm_([], 1.0).item() == 0
    assert utils.clip_grad_norm_([flow.zeros(1, requires_grad=True)], 1.0).item() == 0
    with pytest.raises(ValueError, match="norm_type"):
        utils.clip_grad_norm_([], 1.0, 0.0)


def test_norms_apart_from_clipping() -> None:
    parameters = with_gradients(np.array([3.0, 4.0]), np.array([12.0]))
    norm = utils.get_total_norm(gradient for parameter in parameters if (gradient := parameter.grad) is not None)
    assert norm.item() == 13
    assert utils.get_total_norm(flow.tensor([-3.0, 2.0]), math.inf).item() == 3
    utils.clip_grads_with_norm_(parameters, 6.5, norm)
    np.testing.assert_allclose(np.concatenate(gradients(parameters)), [1.5, 2, 6], rtol=1e-6)
    utils.clip_grads_with_norm_(parameters, 3.25, flow.tensor([6.5]))
    np.testing.assert_allclose(np.concatenate(gradients(parameters)), [0.75, 1, 3], rtol=1e-6)
    with pytest.raises(ValueError, match=r"total_norm must be a scalar, got shape \[2\]"):
        utils.clip_grads_with_norm_(parameters, 1.0, flow.ones(2))
    with pytest.raises(RuntimeError, match="is inf"):
        utils.get_total_norm([flow.tensor([math.inf])], error_if_nonfinite=True)
    with pytest.raises(ValueError, match="norm_type"):
        utils.get_total_norm([], 0.0)
    with pytest.raises(TypeError, match=r"int64 cannot hold a norm; convert the tensors with \.float\(\)"):
        utils.get_total_norm([flow.tensor([1, 1])])
    assert utils.get_total_norm([flow.tensor([3]), flow.tensor([4.0])]).item() == 5


async def test_clipping_does_not_wait() -> None:
    parameters = with_gradients(np.array([3.0, 4.0]))
    with instructions_issued():
        norm = utils.clip_grad_norm_(parameters, 1.0)
        assert not norm.is_ready()
    assert (await norm).item() == 5


def test_clip_grad_value() -> None:
    parameters = with_gradients(np.array([-3.0, 0.5, 2.0]), np.array([9.0], np.float32))
    utils.clip_grad_value_(parameters, 1)
    assert [gradient.tolist() for gradient in gradients(parameters)] == [[-1, 0.5, 1], [1]]
    utils.clip_grad_value_([], 1)
    with pytest.raises(TypeError, match="complex"):
        utils.clip_grad_value_(with_gradients(np.array([1j])), 1)


def test_parameters_to_vector_and_back() -> None:
    net = nn.Linear(3, 2)
    vector = utils.parameters_to_vector(net.parameters())
    assert vector.requires_grad
    np.testing.assert_array_equal(
        vector.detach().numpy(),
        np.concatenate([net.weight.detach().numpy().ravel(), net.bias.detach().numpy()]),
    )
    weight = net.weight
    fresh = flow.arange(8, dtype=flow.float32)
    utils.vector_to_parameters(fresh, net.parameters())
    assert net.weight is weight
    assert weight.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert net.bias.tolist() == [6, 7]
    fresh.add_(1)
    assert net.bias.tolist() == [7, 8]
    with pytest.raises(ValueError, match="8 elements together"):
        utils.vector_to_parameters(flow.zeros(9), net.parameters())
    with pytest.raises(ValueError, match="shape"):
        utils.vector_to_parameters(flow.zeros(2, 4), net.parameters())
    with pytest.raises(TypeError, match="expected a tensor"):
        utils.vector_to_parameters([1.0], net.parameters())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="vector_to_parameters: expected tensors, got int"):
        utils.vector_to_parameters(fresh, [8])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="parameters_to_vector: expected tensors, got Parameter, int"):
        utils.parameters_to_vector([net.bias, 8])  # type: ignore[list-item]
    assert net.bias.tolist() == [7, 8]
