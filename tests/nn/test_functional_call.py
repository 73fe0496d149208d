"""`func.functional_call` and `func.stack_module_state`: modules with other tensors than their own."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import nn
from vmflow.func import functional_call, stack_module_state


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 2, bias=False)
        self.second = nn.Linear(2, 2, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        result: flow.Tensor = self.second(self.first(x))
        return result


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))


def test_the_result_is_that_of_a_module_with_these_tensors() -> None:
    mine, other = model(), model()
    x = flow.randn(5, 3)
    before = {name: value.clone() for name, value in mine.state_dict().items()}
    state = {**dict(other.named_parameters()), **dict(other.named_buffers())}
    result = functional_call(mine, {name: value.clone() for name, value in state.items()}, (x,))
    np.testing.assert_array_equal(result.numpy(), other(x).numpy())
    for name, tensor in mine.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), before[name].numpy())


def test_gradients_go_to_the_tensors_passed_and_buffers_change_in_place() -> None:
    mine = model()
    weights = {name: tensor.detach().clone().requires_grad_() for name, tensor in mine.named_parameters()}
    buffers = {name: tensor.clone() for name, tensor in mine.named_buffers()}
    functional_call(mine, [weights, buffers], flow.randn(5, 3)).sum().backward()
    assert all(weight.grad is not None for weight in weights.values())
    assert all(parameter.grad is None for parameter in mine.parameters())
    assert buffers["1.num_batches_tracked"].item() == 1
    assert dict(mine.named_buffers())["1.num_batches_tracked"].item() == 0


def test_second_derivatives_by_the_weights() -> None:
    layer = nn.Linear(3, 1, bias=False)
    x = flow.randn(4, 3)

    def loss(weight: flow.Tensor) -> flow.Tensor:
        result: flow.Tensor = (functional_call(layer, {"weight": weight}, x) ** 2).sum()
        return result

    found = flow.func.hessian(loss)(flow.ones(1, 3))
    expected = 2 * x.numpy().T @ x.numpy()
    np.testing.assert_allclose(found.numpy()[0, :, 0, :], expected, 1e-5)


def test_some_of_the_tensors_and_keyword_arguments() -> None:
    layer = nn.Bilinear(2, 2, 1)
    x = flow.ones(1, 2)
    bias = flow.tensor([7.0])
    expected = layer(x, x) - layer.bias + bias
    found = functional_call(layer, {"bias": bias, "no name of it": bias}, x, {"input2": x})
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), 1e-5)


def test_tensors_of_several_names() -> None:
    tied = Tied()
    x = flow.ones(1, 2)
    assert functional_call(tied, {"second.weight": flow.ones(2, 2)}, x, strict=True).tolist() == [[4, 4]]
    found = functional_call(tied, {"first.weight": flow.ones(2, 2)}, x, tie_weights=False)
    np.testing.assert_allclose(found.detach().numpy(), tied.second(2 * x).detach().numpy(), 1e-6)
    assert tied.first.weight is tied.second.weight
    both = {"first.weight": flow.ones(2, 2), "second.weight": flow.zeros(2, 2)}
    with pytest.raises(ValueError, match="names of one tensor"):
        functional_call(tied, both, x)
    assert functional_call(tied, both, x, tie_weights=False).tolist() == [[0, 0]]


def test_the_module_has_its_own_tensors_again_after_an_error() -> None:
    layer = nn.Linear(3, 2)
    weight = layer.weight
    with pytest.raises(ValueError, match="linear"):
        functional_call(layer, {"weight": flow.ones(2, 3)}, flow.ones(1, 4))
    assert layer.weight is weight


def test_arguments_that_are_refused() -> None:
    layer = nn.Linear(2, 1)
    x = flow.ones(1, 2)
    weight = flow.ones(1, 2)
    with pytest.raises(TypeError, match="expected a module, got function"):
        functional_call(lambda value: value, {}, x)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected a dict of tensors, or several, got list"):
        functional_call(layer, [weight], x)  # type: ignore[list-item]
    with pytest.raises(TypeError, match="'weight' must be a tensor, not int"):
        functional_call(layer, {"weight": 3}, x)  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="'weight' is in several"):
        functional_call(layer, ({"weight": weight}, {"weight": weight}), x)
    with pytest.raises(RuntimeError, match=r"lacks bias and has other"):
        functional_call(layer, {"weight": weight, "other": weight}, x, strict=True)

    class Waiting(nn.Module):
        async def forward(self) -> None:
            pass

    with pytest.raises(TypeError, match="coroutine function"):
        functional_call(Waiting(), {})


@pytest.mark.host  # new threads have the CPU as their default device
def test_calls_within_each_other_and_in_threads() -> None:
    layer = nn.Linear(2, 1, bias=False)

    class Outer(nn.Module):
        def forward(self, x: flow.Tensor) -> Any:
            inner = functional_call(layer, {"weight": flow.full((1, 2), 2.0)}, x)
            return inner + layer(x)

    outer = Outer()
    outer.layer = layer
    x = flow.ones(1, 2)
    assert functional_call(outer, {"layer.weight": flow.full((1, 2), 10.0)}, x).tolist() == [[24]]
    found: dict[int, list[float]] = {}

    def work(number: int) -> None:
        weight = flow.full((1, 2), float(number))
        found[number] = [functional_call(layer, {"weight": weight}, x).item() for _ in range(50)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [2.0 * number] * 50 for number in range(4)}


def test_in_a_graph() -> None:
    layer = nn.Linear(2, 1, bias=False)

    class Called(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def build(self, weight: flow.Tensor, x: flow.Tensor) -> Any:
            return functional_call(layer, {"weight": weight}, x)

    graph = Called()
    for number in (2.0, 3.0):
        assert graph(flow.full((1, 2), number), flow.ones(1, 2)).tolist() == [[2 * number]]
    assert isinstance(layer.weight, nn.Parameter)


def test_the_state_of_several_models() -> None:
    models = [nn.Linear(2, 3) for _ in range(4)]
    parameters, buffers = stack_module_state(models)
    assert buffers == {}
    assert {name: tuple(parameter.shape) for name, parameter in parameters.items()} == {
        "weight": (4, 3, 2),
        "bias": (4, 3),
    }
    assert all(parameter.requires_grad and parameter.is_leaf for parameter in parameters.values())
    np.testing.assert_array_equal(parameters["weight"][2].detach().numpy(), models[2].weight.detach().numpy())
    stacked, tracked = stack_module_state([nn.BatchNorm1d(2).requires_grad_(False)] * 2)
    assert not stacked["weight"].requires_grad
    assert tracked["running_mean"].shape == (2, 2)


def test_models_that_do_not_fit_together() -> None:
    with pytest.raises(ValueError, match="at least one"):
        stack_module_state([])
    with pytest.raises(ValueError, match=r"model 1 is ReLU \(training\)"):
        stack_module_state([nn.Linear(1, 1), nn.ReLU()])
    with pytest.raises(ValueError, match=r"model 1 is Linear \(eval\)"):
        stack_module_state([nn.Linear(1, 1), nn.Linear(1, 1).eval()])
    with pytest.raises(ValueError, match="'weight' requires a gradient in some"):
        stack_module_state([nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False).requires_grad_(False)])
    with pytest.raises(ValueError, match="other names"):
        stack_module_state([nn.Linear(1, 1, bias=False), nn.Linear(1, 1)])
