"""`GradScaler`: it scales losses, skips steps, adapts the scale and refuses wrong calls, and never waits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.support import instructions_issued
from vmflow import amp, nn, optim


def prepared(gradient: float, **arguments: Any) -> tuple[flow.Tensor, optim.Optimizer, amp.GradScaler]:
    parameter = flow.ones(2, requires_grad=True)
    scaler = amp.GradScaler(str(parameter.device), init_scale=8.0, **arguments)
    parameter.grad = flow.tensor([8.0 * gradient, 8.0])
    return parameter, optim.SGD([parameter], lr=1.0, momentum=0.5), scaler


def test_a_step_is_that_of_the_gradients_before_scaling() -> None:
    plain = flow.tensor([1.0, 2.0], requires_grad=True)
    scaled = flow.tensor([1.0, 2.0], requires_grad=True)
    scaler = amp.GradScaler(init_scale=1024.0)
    optimizers = [optim.Adam([value], lr=0.1) for value in (plain, scaled)]
    for _ in range(5):
        for parameter, optimizer in zip((plain, scaled), optimizers, strict=True):
            optimizer.zero_grad()
            loss = (parameter**3).sum()
            (scaler.scale(loss) if parameter is scaled else loss).backward()
        optimizers[0].step()
        scaler.step(optimizers[1])
        scaler.update()
    np.testing.assert_array_equal(scaled.detach().numpy(), plain.detach().numpy())


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_a_step_of_gradients_that_are_not_finite_is_skipped(bad: float) -> None:
    parameter, optimizer, scaler = prepared(bad)
    scaler.step(optimizer)
    scaler.update()
    assert parameter.tolist() == [1, 1]
    assert scaler.get_scale() == 4
    parameter.grad = flow.tensor([4.0, 8.0])
    scaler.step(optimizer)
    scaler.update()
    assert parameter.tolist() == [0, -1], "the first step with momentum is this one"
    assert scaler.get_scale() == 4


def test_the_scale_grows_after_good_steps() -> None:
    parameter, optimizer, scaler = prepared(1.0, growth_interval=2, growth_factor=4.0)
    found = []
    for step in range(6):
        parameter.grad = flow.tensor([math.inf if step == 2 else 1.0, 0.0])
        scaler.step(optimizer)
        scaler.update()
        found.append(scaler.get_scale())
    assert found == [8, 32, 16, 16, 64, 64]
    scaler.update(new_scale=3.0)
    assert scaler.get_scale() == 3
    scaler.update(flow.tensor(5.0))
    assert scaler.get_scale() == 5


def test_the_scales_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    generator = np.random.default_rng(0)
    bad = generator.random(60) < 0.2
    found: list[list[float]] = []
    for lib in (flow, torch):
        scaler = lib.amp.GradScaler("cpu", init_scale=4.0, growth_interval=3)
        parameter = lib.ones(1, requires_grad=True)
        optimizer = lib.optim.SGD([parameter], lr=0.01)
        found.append([])
        for value in bad:
            parameter.grad = None
            scaler.scale((parameter * (math.inf if value else 1.0)).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            found[-1] += [scaler.get_scale(), parameter.detach().item()]
        found[-1].append(scaler.state_dict()["_growth_tracker"])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)


def test_unscaling_by_hand_for_clipping() -> None:
    parameter, optimizer, scaler = prepared(1.0)
    scaler.unscale_(optimizer)
    assert parameter.grad is not None
    assert parameter.grad.tolist() == [1, 1]
    nn.utils.clip_grad_norm_([parameter], 0.5)
    scaler.step(optimizer)
    np.testing.assert_allclose(parameter.detach().numpy(), 1 - 0.5 / math.sqrt(2), rtol=1e-5)


async def test_nothing_waits() -> None:
    parameter, optimizer, scaler = prepared(1.0)
    optimizer.step_unless(flow.ones(()))  # makes the state
    scaler.scale(flow.ones(()))
    await flow.synchronize()
    with instructions_issued() as issued:
        scaler.step(optimizer)
        scaler.update()
    assert len(issued) == 4, "the check, the unscaling, the step and the update"
    assert not parameter.is_ready()
    await parameter
    assert parameter.tolist() == [0, 0]


async def test_when_unscaling_is_dropped_the_step_is_skipped() -> None:
    parameter, optimizer, scaler = prepared(1.0)
    scaler.scale(flow.ones(()))
    await flow.synchronize()
    with instructions_issued(), flow.scope() as scope:
        scaler.unscale_(optimizer)
        scope.cancel()
    scaler.step(optimizer)
    await flow.synchronize()
    assert parameter.tolist() == [1, 1]


def test_gradients_may_be_summed_before_the_step() -> None:
    layer = nn.Linear(3, 1, bias=False)
    scaler = amp.GradScaler(init_scale=2.0**10)
    optimizer = optim.SGD(layer.parameters(), lr=0.0)
    for size in (1.0, 2.0, 4.0):
        with flow.autocast(str(layer.weight.device.type), flow.bfloat16):
            loss = layer(flow.full((1, 3), size)).sum()
        scaler.scale(loss).backward()
    scaler.step(optimizer)
    assert layer.weight.grad is not None
    assert layer.weight.grad.tolist() == [[7, 7, 7]]


def test_an_optimizer_with_a_step_of_its_own() -> None:
    class Own(optim.Optimizer):
        def step(self, closure: Any = None) -> str:
            return "stepped"

    parameter, _, scaler = prepared(math.inf)
    own = Own([parameter], {})
    assert scaler.step(own) is None
    scaler.update()
    parameter.grad = flow.ones(2)
    assert scaler.step(own) == "stepped"


def test_several_losses_and_several_optimizers() -> None:
    parameter, optimizer, scaler = prepared(1.0)
    other, second, _ = prepared(math.inf)
    assert [tensor.item() for tensor in scaler.scale([flow.ones(()), flow.zeros(())])] == [8, 0]
    assert isinstance(scaler.scale((flow.ones(()),)), tuple)
    scaler.step(optimizer)
    scaler.step(second)
    scaler.update()
    assert parameter.tolist() == [0, 0]
    assert other.tolist() == [1, 1]
    assert scaler.get_scale() == 4


def test_state() -> None:
    _, optimizer, scaler = prepared(1.0, growth_interval=3)
    scaler.step(optimizer)
    scaler.update()
    state = scaler.state_dict()
    assert state == {
        "scale": 8.0,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 3,
        "_growth_tracker": 1,
    }
    other = amp.GradScaler()
    other.load_state_dict(state)
    assert other.state_dict() == state
    with pytest.raises(RuntimeError, match="empty"):
        other.load_state_dict({})
    other.set_growth_factor(3.0)
    other.set_backoff_factor(0.25)
    other.set_growth_interval(7)
    assert (other.get_growth_factor(), other.get_backoff_factor(), other.get_growth_interval()) == (3.0, 0.25, 7)


def test_one_that_is_not_enabled() -> None:
    parameter, optimizer, _ = prepared(1.0)
    scaler = amp.GradScaler(enabled=False)
    loss = flow.ones(())
    assert scaler.scale(loss) is loss
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    scaler.load_state_dict({})
    assert parameter.tolist() == [-7, -7]
    assert scaler.get_scale() == 1
    assert scaler.state_dict() == {}
    assert not scaler.is_enabled()


def test_wrong_calls_are_refused() -> None:
    parameter, optimizer, scaler = prepared(1.0)
    with pytest.raises(RuntimeError, match="no gradients were unscaled"):
        scaler.update()
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match=r"unscale_\(\) was called"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="since the last update"):
        scaler.step(optimizer)
    with pytest.raises(RuntimeError, match=r"step\(\) was called"):
        scaler.unscale_(optimizer)
    scaler.update()
    with pytest.raises(ValueError, match="closure"):
        scaler.step(optimizer, lambda: None)
    half = flow.ones(1, dtype=flow.float16, requires_grad=True)
    half.grad = flow.ones(1, dtype=flow.float16)
    with pytest.raises(ValueError, match="float16"):
        scaler.unscale_(optim.SGD([half]))
    with pytest.raises(TypeError, match="expected a tensor"):
        scaler.scale(3)
    with pytest.raises(ValueError, match="growth_factor"):
        amp.GradScaler(growth_factor=1.0)
    with pytest.raises(ValueError, match="backoff_factor"):
        amp.GradScaler(backoff_factor=1.0)
    assert parameter.tolist() == [0, 0]
