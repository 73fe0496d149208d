"""A graph whose `build` calls `backward` fills `grad` as eager code does, if no optimizer uses the gradients up."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import nn


class Backward(nn.Graph):
    def __init__(self, model: nn.Module, free: flow.Tensor, batches: int = 1) -> None:
        super().__init__()
        self.model = model
        self.free = {"scale": free}
        self.config.set_gradient_accumulation_steps(batches)

    def build(self, x: flow.Tensor) -> Any:
        loss = loss_of(self.model, self.free["scale"], x)
        loss.backward()
        return loss


def loss_of(model: Any, scale: flow.Tensor, x: flow.Tensor) -> flow.Tensor:
    return (model(x) * scale).square().mean()  # type: ignore[no-any-return]


def made() -> tuple[nn.Sequential, flow.Tensor]:
    flow.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    model[2].bias.requires_grad_(False)
    return model, flow.tensor([2.0, 3.0], requires_grad=True)


def gradients(model: nn.Module, free: flow.Tensor) -> list[Any]:
    return [None if one.grad is None else one.grad.numpy() for one in (*model.parameters(), free)]


def assert_same_gradients(model: nn.Module, free: flow.Tensor, other_model: nn.Module, other_free: flow.Tensor) -> None:
    for found, expected in zip(gradients(model, free), gradients(other_model, other_free), strict=True):
        assert (found is None) == (expected is None)
        if found is not None:
            np.testing.assert_array_equal(found, expected)


class Running(nn.Graph):
    """Runs a program that computes gradients of a model and of a tensor."""

    def __init__(self, program: Callable[..., None], model: nn.Module, free: flow.Tensor) -> None:
        super().__init__()
        self.program = program
        self.model = model
        self.free = {"scale": free}
        self.config.allow_fusion(False)

    def build(self, x: flow.Tensor) -> flow.Tensor:
        self.program(self.model, self.free["scale"], x)
        return x + 1


@pytest.mark.parametrize("by_vm", [False, True])
def test_they_add_up_as_in_eager_code(by_vm: bool) -> None:
    (model, free), (twin, other) = made(), made()
    graph = Backward(model, free)
    graph.config.allow_fusion(False)
    call = graph.run_by_vm if by_vm else graph
    for step in range(3):
        x = flow.randn(5, 3)
        loss = call(x)
        eager = loss_of(twin, other, x)
        eager.backward()
        assert loss.item() == eager.item()
        assert_same_gradients(model, free, twin, other)
        if step == 1:
            for one in (model, twin):
                one.zero_grad()
            free.grad = other.grad = None
    assert model[2].bias.grad is None


def _first(model: Any, free: flow.Tensor, x: flow.Tensor) -> None:
    model.zero_grad()
    free.grad = None
    loss_of(model, free, x).backward()


def _between(model: Any, free: flow.Tensor, x: flow.Tensor) -> None:
    loss_of(model, free, x).backward()
    model.zero_grad()
    free.grad = None
    loss_of(model, free, x * 2).backward()


def _last(model: Any, free: flow.Tensor, x: flow.Tensor) -> None:
    loss_of(model, free, x).backward()
    model[0].zero_grad()


def _alone(model: Any, free: flow.Tensor, x: flow.Tensor) -> None:
    flow.optim.SGD([*model.parameters(), free], lr=0.1).zero_grad()


def _to_zero(model: Any, free: flow.Tensor, x: flow.Tensor) -> None:
    flow.optim.SGD([free], lr=0.1).zero_grad(set_to_none=False)
    loss_of(model, free, x).backward()
    model[0].zero_grad(set_to_none=False)


def _assigned(model: Any, free: flow.Tensor, x: flow.Tensor) -> None:
    found: Any = flow.autograd.grad(loss_of(model, free, x), [model[0].bias, free])
    model[0].bias.grad, free.grad = found[0] * 2, found[1]
    model[2].bias.grad = flow.ones(2)


def _asked(model: Any, free: flow.Tensor, x: flow.Tensor) -> None:
    for leaf in (*model.parameters(), free):
        if leaf.grad is not None:
            leaf.grad.zero_()
    loss_of(model, free, x).backward()


def _asked_to_none(model: Any, free: flow.Tensor, x: flow.Tensor) -> None:
    for leaf in (*model.parameters(), free):
        if leaf.grad is not None:
            leaf.grad = None
    loss_of(model, free, x).backward()


def _halved(model: Any, free: flow.Tensor, x: flow.Tensor) -> None:
    for leaf in (*model.parameters(), free):
        if leaf.grad is not None:
            leaf.grad.mul_(0.5)
    loss_of(model, free, x).backward()


@pytest.mark.parametrize("by_vm", [False, True])
@pytest.mark.parametrize("program", [_asked, _asked_to_none, _halved])
def test_gradients_of_earlier_calls_that_build_asks_for_are_as_in_eager_code(program: Any, by_vm: bool) -> None:
    (model, free), (twin, other) = made(), made()

    graph = Running(program, model, free)
    for step in range(6):
        x = flow.randn(5, 3)
        if step == 3:
            for leaf in (*model.parameters(), free, *twin.parameters(), other):
                leaf.grad = None
        (graph.run_by_vm if by_vm else graph)(x)
        program(twin, other, x)
        assert_same_gradients(model, free, twin, other)
    # One form for no gradients, one for gradients, and if ops of the graph use them, one for the tensors after step 3.
    assert len(graph._forms) == (2 if program is _asked_to_none else 3)


def test_a_graph_with_an_optimizer_begins_without_gradients() -> None:
    model, seen = nn.Linear(2, 1), []

    class Train(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.model = model
            self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.1))

        def build(self, x: flow.Tensor) -> flow.Tensor:
            seen.append(model.weight.grad)
            loss: flow.Tensor = self.model(x).sum()
            loss.backward()
            return loss

    graph, x = Train(), flow.ones(1, 2)
    graph(x)
    model.weight.grad = flow.ones(1, 2)
    graph(x)
    assert seen == [None]
    assert model.weight.grad.tolist() == [[1, 1]]


@pytest.mark.parametrize("by_vm", [False, True])
@pytest.mark.parametrize("program", [_first, _between, _last, _alone, _to_zero, _assigned])
def test_gradients_are_cleared_in_build_as_in_eager_code(program: Any, by_vm: bool) -> None:
    (model, free), (twin, other) = made(), made()

    graph = Running(program, model, free)
    for step in range(4):
        x = flow.randn(5, 3)
        if step == 2:
            for one, scale in ((model, free), (twin, other)):
                loss_of(one, scale, x).backward()
        (graph.run_by_vm if by_vm else graph)(x)
        program(twin, other, x)
        assert_same_gradients(model, free, twin, other)
    assert len(graph._forms) == 1


def test_an_optimizer_outside_of_the_graph_trains() -> None:
    (model, free), (twin, other) = made(), made()
    graph = Backward(model, free)
    graph.config.allow_fusion(False)
    optimizer, eager_optimizer = [flow.optim.SGD([*one.parameters()], lr=0.1) for one in (model, twin)]
    for _ in range(3):
        x = flow.randn(5, 3)
        optimizer.zero_grad()
        graph(x)
        optimizer.step()
        eager_optimizer.zero_grad()
        loss_of(twin, other, x).backward()
        eager_optimizer.step()
    for found, expected in zip(model.parameters(), twin.parameters(), strict=True):
        np.testing.assert_array_equal(found.detach().numpy(), expected.detach().numpy())


def test_of_micro_batches_the_mean() -> None:
    (model, free), (twin, other) = made(), made()
    graph, x = Backward(model, free, batches=4), flow.randn(8, 3)
    losses = graph(x)
    eager = loss_of(twin, other, x)
    eager.backward()
    assert losses.shape == (4,)
    for found, expected in zip(gradients(model, free), gradients(twin, other), strict=True):
        if expected is not None:
            np.testing.assert_allclose(found, expected, rtol=1e-5)


async def test_in_a_coroutine() -> None:
    model, free = made()
    graph = Backward(model, free)
    await graph(flow.ones(2, 3))
    assert model[0].weight.grad is not None
    first = await model[0].weight.grad.clone()
    await graph(flow.ones(2, 3))
    np.testing.assert_allclose((await model[0].weight.grad).numpy(), 2 * first.numpy(), rtol=1e-6)


def test_gradients_that_build_has_used_are_not_returned() -> None:
    model, free = made()

    class ByHand(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def build(self, x: flow.Tensor) -> Any:
            loss = loss_of(self.model, free, x)
            loss.backward()
            for parameter in self.model.parameters():
                parameter.grad = None
            return loss

    ByHand()(flow.ones(2, 3)).item()
    assert [one is None for one in gradients(model, free)] == [True] * 4 + [False]


def test_a_failed_call_and_a_failed_build_leave_the_gradients_there_were() -> None:
    model, free = made()

    class Broken(Backward):
        def build(self, x: flow.Tensor) -> Any:
            super().build(x)
            raise KeyError("after backward")

    free.grad = flow.ones(2)
    with pytest.raises(KeyError):
        Broken(model, free)(flow.ones(2, 3))
    assert gradients(model, free)[:4] == [None] * 4
    assert free.grad.tolist() == [1, 1]


def test_it_is_not_saved(tmp_path: pathlib.Path) -> None:
    model, free = made()
    graph = Backward(model, free)
    graph(flow.ones(2, 3)).item()
    with pytest.raises(RuntimeError, match="adds gradients to the parameters"):
        flow.save(graph, tmp_path / "graph")
