"""Automatic mixed precision and loss scaling in graphs: the same bits as in the eager loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import nn, optim

functional = nn.functional
LOW = [flow.bfloat16, flow.float16]


def model() -> nn.Module:
    """Ops that compute in a lower precision, in float32, and in the dtype of their operands."""
    flow.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(64, 8),
        nn.Linear(8, 4),
    )


def batch(seed: int = 0) -> tuple[flow.Tensor, flow.Tensor]:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(6, 1, 6, 6)).astype(np.float32)
    return flow.tensor(x), flow.tensor(generator.integers(0, 4, 6))


class Train(nn.Graph):
    """A step of training."""

    def __init__(self, module: nn.Module, optimizer: optim.Optimizer, dtype: Any = None, scaler: Any = None) -> None:
        super().__init__()
        self.model = module
        self.add_optimizer(optimizer)
        if dtype is not None:
            self.config.enable_amp(dtype=dtype)
        if scaler is not None:
            self.set_grad_scaler(scaler)

    def build(self, x: flow.Tensor, y: flow.Tensor) -> Any:
        """The loss, and the dtype in which the model has answered."""
        out = self.model(x)
        loss = functional.cross_entropy(out, y)
        loss.backward()
        return loss, out


def eager_step(
    module: nn.Module, optimizer: Any, given: Any, dtype: Any = None, scaler: Any = None, clip: bool = False
) -> Any:
    x, y = given
    optimizer.zero_grad()
    with flow.autocast(x.device.type, dtype or flow.bfloat16, enabled=dtype is not None):
        out = module(x)
        loss = functional.cross_entropy(out, y)
    (loss if scaler is None else scaler.scale(loss)).backward()
    if clip:
        if scaler is not None:
            scaler.unscale_(optimizer)
        optimizer.clip_grad()
    if scaler is None:
        optimizer.step()
    else:
        scaler.step(optimizer)
        scaler.update()
    return loss.detach(), out.detach()


def same_state(one: nn.Module, other: nn.Module) -> None:
    there = other.state_dict()
    for name, tensor in one.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), there[name].numpy(), err_msg=name)


def pair(clip: bool = False) -> list[tuple[nn.Module, optim.Optimizer]]:
    made: list[tuple[nn.Module, optim.Optimizer]] = []
    for module in (model(), model()):
        group = {"params": list(module.parameters()), **({"clip_grad_max_norm": 0.5} if clip else {})}
        made.append((module, optim.SGD([group], lr=0.05, momentum=0.9)))
    return made


@pytest.mark.parametrize("by_vm", [False, True], ids=["actors", "vm"])
@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_mixed_precision_is_that_of_autocast(dtype: Any, by_vm: bool) -> None:
    eager, shared = pair()
    flow.manual_seed(3)
    wanted = [eager_step(*eager, batch(step), dtype) for step in range(4)]
    graph = Train(*shared, dtype)
    flow.manual_seed(3)
    for step, (loss, out) in enumerate(wanted):
        found = (graph.run_by_vm if by_vm else graph)(*batch(step))
        assert found[1].dtype is out.dtype is dtype
        np.testing.assert_array_equal(found[0].numpy(), loss.numpy())
        np.testing.assert_array_equal(found[1].float().numpy(), out.float().numpy())
    same_state(eager[0], shared[0])
    assert any([op.op == "cast" for op in graph.job.ops])


def test_a_parameter_is_cast_once() -> None:
    linear = nn.Linear(4, 4)

    class Twice(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.linear = linear
            self.config.enable_amp(dtype=flow.bfloat16)

        def build(self, x: flow.Tensor) -> Any:
            return self.linear(self.linear(x))

    graph = Twice()
    x = flow.randn(2, 4)
    with flow.autocast(x.device.type, flow.bfloat16):
        wanted = linear(linear(x))
    np.testing.assert_array_equal(graph(x).float().numpy(), wanted.float().detach().numpy())
    assert [op.op for op in graph.job.ops].count("cast") == 3  # the argument, the weight and the bias


def test_mixed_precision_ends_with_building() -> None:
    eager, shared = pair()
    graph = Train(*shared, flow.bfloat16)
    graph(*batch())
    assert not flow.is_autocast_enabled()
    assert shared[0](batch()[0]).dtype is flow.float32
    del eager
    with pytest.raises(ValueError, match="float16 or bfloat16"):
        graph.config.enable_amp(dtype=flow.float32)


@pytest.mark.parametrize("clip", [False, True], ids=["plain", "clipped"])
@pytest.mark.parametrize("dtype", [None, *LOW], ids=str)
def test_scaled_losses(dtype: Any, clip: bool) -> None:
    eager, shared = pair(clip)
    scalers = [flow.amp.GradScaler(init_scale=2.0**8, growth_interval=2) for _ in range(2)]
    graph = Train(*shared, dtype, scalers[1])
    flow.manual_seed(3)
    wanted = [eager_step(*eager, batch(step), dtype, scalers[0], clip)[0].numpy() for step in range(5)]
    flow.manual_seed(3)
    found = [graph(*batch(step))[0].numpy() for step in range(5)]
    np.testing.assert_array_equal(found, wanted)
    same_state(eager[0], shared[0])
    assert scalers[0].state_dict() == scalers[1].state_dict()
    assert scalers[1].get_scale() == 2.0**10


@pytest.mark.parametrize("by_vm", [False, True], ids=["actors", "vm"])
def test_gradients_that_are_not_finite_skip_the_step(by_vm: bool) -> None:
    eager, shared = pair()
    scalers = [flow.amp.GradScaler(init_scale=2.0**10, growth_interval=3) for _ in range(2)]
    graph = Train(*shared, None, scalers[1])
    story: list[float] = []
    for step in range(6):
        x, y = batch(step)
        if step == 2:
            x[0, 0, 0, 0] = float("inf")
        # The statistics would be no numbers ever after.
        for module in (eager[0], shared[0]):
            list(module.children())[1].eval()
        before = [parameter.detach().numpy() for parameter in shared[0].parameters()]
        flow.manual_seed(step)
        eager_step(*eager, (x, y), None, scalers[0])
        flow.manual_seed(step)
        (graph.run_by_vm if by_vm else graph)(x, y)[0].numpy()
        changed = any(
            [not np.array_equal(a, b.detach().numpy()) for a, b in zip(before, shared[0].parameters(), strict=True)]
        )
        assert changed is (step != 2)
        same_state(eager[0], shared[0])
        story.append(scalers[1].get_scale())
        assert story[-1] == scalers[0].get_scale()
    assert story == [1024, 1024, 512, 512, 512, 1024]


def test_a_scaler_is_shared_with_eager_steps() -> None:
    eager, shared = pair()
    scalers = [flow.amp.GradScaler(init_scale=4.0, growth_interval=2) for _ in range(2)]
    graph = Train(*shared, None, scalers[1])
    for step in range(6):
        flow.manual_seed(step)
        wanted = eager_step(*eager, batch(step), None, scalers[0])[0]
        flow.manual_seed(step)
        if step % 3 == 1:
            found = eager_step(*shared, batch(step), None, scalers[1])[0]
        else:
            found = graph(*batch(step))[0]
        np.testing.assert_array_equal(found.numpy(), wanted.numpy())
    same_state(eager[0], shared[0])
    assert scalers[0].get_scale() == scalers[1].get_scale() == 32.0


def test_a_scaler_that_is_loaded_goes_on_from_there() -> None:
    _, shared = pair()
    scaler = flow.amp.GradScaler(init_scale=4.0)
    graph = Train(*shared, None, scaler)
    graph(*batch())[0].numpy()
    state = scaler.state_dict()
    scaler.load_state_dict({**state, "scale": 64.0, "growth_interval": 1})
    graph(*batch())[0].numpy()
    assert scaler.get_scale() == 128.0


def test_a_scaler_that_is_not_enabled() -> None:
    eager, shared = pair()
    graph = Train(*shared, None, flow.amp.GradScaler(enabled=False))
    flow.manual_seed(3)
    wanted = eager_step(*eager, batch())[0]
    flow.manual_seed(3)
    np.testing.assert_array_equal(graph(*batch())[0].numpy(), wanted.numpy())
    same_state(eager[0], shared[0])


def test_a_build_that_fails_leaves_the_scaler_as_it_was() -> None:
    _, shared = pair()
    scaler = flow.amp.GradScaler(init_scale=4.0)
    graph = Train(*shared, None, scaler)
    real = shared[1].step_unless

    def failing(skip: flow.Tensor) -> None:
        raise RuntimeError("no step today")

    shared[1].step_unless = failing  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="no step today"):
        graph(*batch())
    shared[1].step_unless = real  # type: ignore[method-assign]
    graph(*batch())[0].numpy()
    eager_step(*shared, batch(), None, scaler)
    assert scaler.get_scale() == 4.0


def test_a_graph_that_takes_no_step_scales_nothing() -> None:
    linear = nn.Linear(2, 1)

    class Gradient(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.linear = linear
            self.set_grad_scaler(flow.amp.GradScaler(init_scale=4.0))

        def build(self, x: flow.Tensor) -> Any:
            self.linear(x).sum().backward()
            return linear.weight.grad

    assert Gradient()(flow.tensor([[1.0, 2.0]])).tolist() == [[1.0, 2.0]]
    assert linear.weight.grad is not None
    assert linear.weight.grad.tolist() == [[1.0, 2.0]]
