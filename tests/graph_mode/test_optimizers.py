"""Optimizers and schedules in graphs: the same bits as eager steps, with the same state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import nn, optim
from vmflow.optim import lr_scheduler as schedules

functional = nn.functional
STEPS = 5


def model() -> nn.Module:
    """With a parameter that gets no gradient."""
    flow.manual_seed(1)
    made = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
    made.register_parameter("unused", nn.Parameter(flow.ones(3)))
    return made


def batch() -> tuple[flow.Tensor, flow.Tensor]:
    generator = np.random.default_rng(4)
    return flow.tensor(generator.normal(size=(10, 6)).astype(np.float32)), flow.tensor(generator.integers(0, 4, 10))


class Train(nn.Graph):
    """A step of training."""

    def __init__(self, module: nn.Module, optimizer: optim.Optimizer, schedule: Any = None) -> None:
        super().__init__()
        self.model = module
        self.add_optimizer(optimizer, lr_sch=schedule)

    def build(self, x: flow.Tensor, y: flow.Tensor) -> flow.Tensor:
        """The loss."""
        loss = functional.cross_entropy(self.model(x), y)
        loss.backward()
        return loss


def eager_step(module: nn.Module, optimizer: optim.Optimizer, clip: bool = False) -> Any:
    x, y = batch()
    optimizer.zero_grad()
    loss = functional.cross_entropy(module(x), y)
    loss.backward()
    if clip:
        optimizer.clip_grad()
    optimizer.step()
    return loss.detach().numpy()


def same(one: Any, other: Any) -> None:
    """Compare two state dicts, or parts of them."""
    if isinstance(one, flow.Tensor):
        np.testing.assert_array_equal(one.detach().numpy(), other.detach().numpy(), strict=True)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key, value in one.items():
            same(value, other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for mine, theirs in zip(one, other, strict=True):
            same(mine, theirs)
    else:
        assert one == other


MADE: dict[str, Callable[[Any], optim.Optimizer]] = {
    "SGD": lambda x: optim.SGD(x, lr=0.1),
    "SGD with momentum": lambda x: optim.SGD(x, lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.01),
    "SGD with Nesterov's": lambda x: optim.SGD(x, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": lambda x: optim.Adam(x, lr=0.01, weight_decay=0.1),
    "Adam with amsgrad": lambda x: optim.Adam(x, lr=0.01, amsgrad=True),
    "AdamW": lambda x: optim.AdamW(x, lr=0.01),
    "AdamW with a rate in a tensor": lambda x: optim.AdamW(x, lr=flow.tensor(0.01)),
    "NAdam": lambda x: optim.NAdam(x, lr=0.01),
    "RAdam": lambda x: optim.RAdam(x, lr=0.01),
    "ASGD": lambda x: optim.ASGD(x, lr=0.1, lambd=0.1, t0=2),
    "Adamax": lambda x: optim.Adamax(x, lr=0.01),
    "Adadelta": lambda x: optim.Adadelta(x, lr=1.0),
    "Adagrad": lambda x: optim.Adagrad(x, lr=0.01, lr_decay=0.1),
    "RMSprop": lambda x: optim.RMSprop(x, lr=0.01, momentum=0.5, centered=True),
    "Rprop": lambda x: optim.Rprop(x, lr=0.01),
    "LAMB": lambda x: optim.LAMB(x, lr=0.01, weight_decay=0.01),
    "Adafactor": lambda x: optim.Adafactor(x, lr=0.01),
}


def test_all_optimizers_are_here() -> None:
    public = {name for name, var in vars(optim).items() if isinstance(var, type) and issubclass(var, optim.Optimizer)}
    # Muon is for matrices alone; see the tests of optimizers.
    assert public - {"Optimizer", "LBFGS", "Muon"} == {name.split()[0] for name in MADE}


@pytest.mark.parametrize("name", MADE)
def test_steps_of_a_graph_are_those_of_eager_code(name: str) -> None:
    pairs = [(module, MADE[name](module.parameters())) for module in (model(), model(), model(), model())]
    eager, by_actors, by_vm, mixed = pairs
    graphs = [Train(*pair) for pair in pairs[1:]]
    for step in range(STEPS):
        wanted = eager_step(*eager)
        np.testing.assert_array_equal(graphs[0](*batch()).numpy(), wanted)
        np.testing.assert_array_equal(graphs[1].run_by_vm(*batch()).numpy(), wanted)
        found = eager_step(*mixed) if step % 2 else graphs[2](*batch()).numpy()
        np.testing.assert_array_equal(found, wanted)
    for module, optimizer in (by_actors, by_vm, mixed):
        same(eager[0].state_dict(), module.state_dict())
        same(eager[1].state_dict(), optimizer.state_dict())


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("through", ["optimizer", "graph"])
def test_a_state_dict_goes_round(name: str, through: str) -> None:
    eager, first, second = [(module, MADE[name](module.parameters())) for module in (model(), model(), model())]
    graph = Train(*first)
    for _ in range(2):
        eager_step(*eager)
        graph(*batch())
    other = Train(*second)
    # Building has begun to remember things already, and they are replaced now.
    other(*batch()).numpy()
    if through == "graph":
        other.load_state_dict(graph.state_dict())
    else:
        second[0].load_state_dict(first[0].state_dict())
        second[1].load_state_dict(first[1].state_dict())
    for _ in range(2):
        wanted = eager_step(*eager)
        np.testing.assert_array_equal(other(*batch()).numpy(), wanted)
    same(eager[0].state_dict(), second[0].state_dict())
    same(eager[1].state_dict()["state"], second[1].state_dict()["state"])


def test_loading_modules_alone_builds_nothing_again() -> None:
    module = model()
    graph = Train(module, MADE["Adam"](module.parameters()))
    graph(*batch()).numpy()
    job, before = graph.job, {name: value.clone() for name, value in module.state_dict().items()}
    first = graph(*batch()).numpy()
    graph.load_state_dict({"model": before}, strict=False)
    np.testing.assert_array_equal(graph(*batch()).numpy(), first)
    assert graph.job is job


def test_an_optimizer_of_the_graph_is_not_stepped_in_build() -> None:
    module = model()
    optimizer = optim.SGD(module.parameters(), lr=0.1)

    class Twice(Train):
        def build(self, x: flow.Tensor, y: flow.Tensor) -> flow.Tensor:
            loss = super().build(x, y)
            optimizer.step()
            return loss

    before = [parameter.tolist() for parameter in module.parameters()]
    with pytest.raises(RuntimeError, match=r"this SGD, which the graph steps after `build`; call no step\(\)"):
        Twice(module, optimizer)(*batch())
    assert [parameter.tolist() for parameter in module.parameters()] == before
    Train(module, optimizer)(*batch()).item()
    assert [parameter.tolist() for parameter in module.parameters()] != before


def test_loading_an_optimizers_state_before_the_first_step() -> None:
    """The graph has been built, so that there is a running sum, but no step has been added to it."""
    eager, shared = [(value, MADE["SGD with momentum"](value.parameters())) for value in (model(), model())]
    eager_step(*eager)
    graph = Train(*shared)
    graph._compile(*batch())
    shared[0].load_state_dict(eager[0].state_dict())
    shared[1].load_state_dict(eager[1].state_dict())
    for _ in range(2):
        np.testing.assert_array_equal(graph(*batch()).numpy(), eager_step(*eager))
    same(eager[0].state_dict(), shared[0].state_dict())


def test_groups_are_clipped_each_for_itself() -> None:
    def groups(module: Any) -> Any:
        return [
            {"params": list(module[0].parameters()), "clip_grad_max_norm": 0.01},
            {"params": list(module[2].parameters()), "lr": 0.5},
            {"params": [module.unused], "clip_grad_max_norm": 1.0, "clip_grad_norm_type": 1.0},
        ]

    eager, shared = model(), model()
    optimizers = [optim.SGD(groups(value), lr=0.1, momentum=0.9) for value in (eager, shared)]
    graph = Train(shared, optimizers[1])
    for _ in range(STEPS):
        np.testing.assert_array_equal(graph(*batch()).numpy(), eager_step(eager, optimizers[0], clip=True))
    same(eager.state_dict(), shared.state_dict())


SCHEDULES: dict[str, Callable[[optim.Optimizer], Any]] = {
    "StepLR": lambda x: schedules.StepLR(x, 2, 0.5),
    "CosineAnnealingLR": lambda x: schedules.CosineAnnealingLR(x, 4),
    "LinearLR": lambda x: schedules.LinearLR(x, 0.3, total_iters=3),
    "ExponentialLR": lambda x: schedules.ExponentialLR(x, 0.8),
    "LambdaLR": lambda x: schedules.LambdaLR(x, lambda epoch: 1 / (epoch + 1)),
    "SequentialLR": lambda x: schedules.SequentialLR(
        x, [schedules.ConstantLR(x, 0.1, 2), schedules.ExponentialLR(x, 0.9)], [2]
    ),
    "WarmUpLR": lambda x: schedules.WarmUpLR(schedules.CosineAnnealingLR(x, 5), 0.1, 3),
    "ChainedScheduler": lambda x: schedules.ChainedScheduler(
        [schedules.ConstantLR(x, 0.5, 2), schedules.ExponentialLR(x, 0.9)]
    ),
    # These change the momentum as well, so that the graph is built anew.
    "OneCycleLR": lambda x: schedules.OneCycleLR(x, 0.2, total_steps=10),
    "CyclicLR": lambda x: schedules.CyclicLR(x, 0.01, 0.1, 3, cycle_momentum=True),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name: str) -> None:
    eager, shared = model(), model()
    optimizers = [optim.SGD(value.parameters(), lr=0.1, momentum=0.9) for value in (eager, shared)]
    by_hand, given = [SCHEDULES[name](optimizer) for optimizer in optimizers]
    graph = Train(shared, optimizers[1], given)
    for _ in range(7):
        assert graph.learning_rates() == [group["lr"] for group in optimizers[0].param_groups]
        found = graph(*batch())
        wanted = eager_step(eager, optimizers[0])
        by_hand.step()
        np.testing.assert_array_equal(found.numpy(), wanted)
        assert given.get_last_lr() == by_hand.get_last_lr()
    same(eager.state_dict(), shared.state_dict())


def test_rates_and_settings_that_are_changed_by_hand() -> None:
    eager, shared = model(), model()
    optimizers = [optim.SGD(entry.parameters(), lr=0.1, momentum=0.9) for entry in (eager, shared)]
    graph = Train(shared, optimizers[1])
    graph(*batch()).numpy()
    eager_step(eager, optimizers[0])
    plan = graph.plan
    for key, value, again in (("lr", 0.5, False), ("weight_decay", 0.1, True), ("momentum", 0.5, True)):
        for optimizer in optimizers:
            optimizer.param_groups[0][key] = value
        graph(*batch()).numpy()
        eager_step(eager, optimizers[0])
        assert (graph.plan is not plan) is again
        plan = graph.plan
        same(eager.state_dict(), shared.state_dict())


def test_a_schedule_that_needs_a_metric_is_refused() -> None:
    module = model()
    optimizer = optim.SGD(module.parameters(), lr=0.1)
    with pytest.raises(TypeError, match="needs a metric"):
        Train(module, optimizer, schedules.ReduceLROnPlateau(optimizer))
    with pytest.raises(TypeError, match="evaluates the model several times"):
        Train(module, optim.LBFGS(module.parameters()))


def test_two_optimizers() -> None:
    modules: list[Any] = [model(), model()]
    pairs = [
        (optim.SGD(module[0].parameters(), lr=0.1, momentum=0.9), optim.Adam(module[2].parameters(), lr=0.01))
        for module in modules
    ]
    graph = Train(modules[1], pairs[1][0])
    graph.add_optimizer(pairs[1][1])
    x, y = batch()
    for _ in range(STEPS):
        for optimizer in pairs[0]:
            optimizer.zero_grad()
        functional.cross_entropy(modules[0](x), y).backward()
        for optimizer in pairs[0]:
            optimizer.step()
        graph(x, y)
    same(modules[0].state_dict(), modules[1].state_dict())


def test_optimizers_and_groups_of_no_parameters() -> None:
    """They take no step, and do not move the learning rates of those that do."""
    modules: list[Any] = [model(), model()]
    optimizers = [
        [
            optim.Adam([], lr=7.0),
            optim.SGD([{"params": [], "lr": 5.0}, {"params": module.parameters(), "lr": 0.1}], lr=3.0),
        ]
        for module in modules
    ]
    graph = Train(modules[1], optimizers[1][0], schedules.StepLR(optimizers[1][0], 1))
    graph.add_optimizer(optimizers[1][1])
    x, y = batch()
    for step in range(STEPS):
        for _, second in optimizers:
            second.param_groups[1]["lr"] = 0.1 / (step + 1)
        eager_step(modules[0], optimizers[0][1])
        graph(x, y)
    same(modules[0].state_dict(), modules[1].state_dict())
    assert graph.state_dict()["optimizer0"]["state"] == {}
    assert optimizers[1][0].param_groups[0]["lr"] < 1e-3


class Scores(nn.Module):
    """Attention of its input, scaled by a parameter, to the input itself."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(flow.ones(6))

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        return functional.scaled_dot_product_attention(x * self.weight, x, x)


ONE_GRADIENT: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(6, 4, bias=False),
    "attention": lambda: nn.Sequential(Scores(), nn.Linear(6, 4)),
}


@pytest.mark.parametrize("name", ONE_GRADIENT)
def test_gradients_that_are_one_of_several_results(name: str) -> None:
    """Their ops return a tuple of one result where the gradients of other operands are not wanted."""
    pairs = []
    for _ in range(3):
        flow.manual_seed(1)
        module = ONE_GRADIENT[name]()
        pairs.append((module, optim.SGD(module.parameters(), lr=0.1)))
    graphs = [Train(*pair) for pair in pairs[1:]]
    for _ in range(2):
        wanted = eager_step(*pairs[0])
        np.testing.assert_array_equal(graphs[0](*batch()).numpy(), wanted)
        np.testing.assert_array_equal(graphs[1].run_by_vm(*batch()).numpy(), wanted)
