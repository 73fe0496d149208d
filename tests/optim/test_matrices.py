"""`Adafactor` and `Muon`, whose steps are made of ops, against PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import nn, optim

SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("Adafactor", {}),
    ("Adafactor", {"lr": 0.3, "weight_decay": 0.1, "beta2_decay": -0.5, "eps": (1e-3, 1e-2), "d": 2.0}),
    ("Adafactor", {"maximize": True, "eps": (None, 1.0)}),
    ("Muon", {}),
    ("Muon", {"lr": 0.1, "momentum": 0.5, "nesterov": False, "adjust_lr_fn": "match_rms_adamw"}),
    ("Muon", {"lr": 0.1, "weight_decay": 0.0, "ns_steps": 3, "adjust_lr_fn": "original"}),
]
SHAPES: dict[str, list[tuple[int, ...]]] = {
    "Adafactor": [(3, 4), (5,), (), (2, 3, 4), (4, 1)],
    "Muon": [(3, 4), (6, 2), (4, 4), (1, 3)],
}


def trained(lib: Any, name: str, arguments: dict[str, Any], dtype: Any, steps: int = 6) -> tuple[list[Any], Any]:
    generator = np.random.default_rng(0)
    parameters = [lib.tensor(generator.normal(size=shape).astype(dtype), requires_grad=True) for shape in SHAPES[name]]
    optimizer = getattr(lib.optim, name)(
        [{"params": parameters[:2]}, {"params": parameters[2:], "lr": 0.03}], **arguments
    )
    for step in range(steps):
        for position, parameter in enumerate(parameters):
            slope = lib.tensor(generator.normal(size=tuple(parameter.shape)).astype(dtype))
            parameter.grad = None if position == 0 and step == 2 else slope
        optimizer.step()
    return parameters, optimizer


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("name", "arguments"), SETTINGS)
def test_trajectories_and_states_are_those_of_pytorch(name: str, arguments: dict[str, Any], dtype: Any) -> None:
    torch = pytest.importorskip("torch")
    found, mine = trained(flow, name, arguments, dtype)
    expected, other = trained(torch, name, arguments, dtype)
    exact = {np.float32: 2e-5, np.float64: 1e-12}[dtype]
    # The iteration of Muon is one of bfloat16, whose last place is a hundredth of each step.
    tolerance = 0.15 * arguments.get("lr", 0.03) if name == "Muon" else exact
    for have, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(have.detach().numpy(), want.detach().numpy(), tolerance, tolerance)
        assert list(mine.state[have]) == list(other.state[want])
        for key, value in mine.state[have].items():
            assert value.shape == tuple(other.state[want][key].shape)
            np.testing.assert_allclose(value.numpy(), other.state[want][key].numpy(), exact, exact)


@pytest.mark.parametrize(("name", "arguments"), SETTINGS)
def test_going_on_from_a_state_dict(name: str, arguments: dict[str, Any]) -> None:
    parameters, optimizer = trained(flow, name, arguments, np.float32, 3)
    others = [value.detach().clone().requires_grad_() for value in parameters]
    other = getattr(optim, name)([{"params": others[:2]}, {"params": others[2:]}])
    other.load_state_dict(optimizer.state_dict())
    for both, one in ((parameters, optimizer), (others, other)):
        generator = np.random.default_rng(3)
        for _ in range(2):
            for parameter in both:
                parameter.grad = flow.tensor(generator.normal(size=tuple(parameter.shape)).astype(np.float32))
            one.step()
    for have, want in zip(others, parameters, strict=True):
        np.testing.assert_array_equal(have.detach().numpy(), want.detach().numpy())


@pytest.mark.parametrize(("name", "arguments"), SETTINGS)
def test_a_step_may_find_out_late_that_it_is_not_wanted(name: str, arguments: dict[str, Any]) -> None:
    parameter = flow.ones(2, 3, requires_grad=True)
    optimizer = getattr(optim, name)([parameter], **arguments)
    parameter.grad = flow.ones(2, 3) * flow.arange(3)
    optimizer.step_unless(flow.tensor(1.0))
    assert parameter.tolist() == [[1, 1, 1]] * 2
    assert all(float(value.abs().max().item()) == 0 for value in optimizer.state[parameter].values())
    optimizer.step_unless(flow.tensor(0.0))
    assert parameter.tolist() != [[1, 1, 1]] * 2
    assert parameter.grad_fn is None


@pytest.mark.parametrize("name", ["Adafactor", "Muon"])
def test_rates_that_are_tensors_and_steps_under_autocast(name: str) -> None:
    def ends(rate: Any, autocast: bool) -> Any:
        parameter = flow.ones(2, 3, requires_grad=True)
        optimizer = getattr(optim, name)([parameter], lr=rate)
        parameter.grad = flow.arange(6.0).reshape(2, 3)
        with flow.autocast("cpu", enabled=autocast):
            optimizer.step()
        assert parameter.dtype is flow.float32
        return parameter.detach().numpy()

    np.testing.assert_allclose(ends(flow.tensor(0.25), False), ends(0.25, False), 1e-6)
    np.testing.assert_array_equal(ends(0.25, True), ends(0.25, False))


@pytest.mark.parametrize("name", ["Adafactor", "Muon"])
async def test_a_step_does_not_wait(name: str) -> None:
    parameter = flow.ones(2, 3, requires_grad=True)
    optimizer = getattr(optim, name)([parameter])
    parameter.grad = await flow.ones(2, 3)
    optimizer.step()  # a blocking read on the loop's thread would be an error here
    assert (await parameter.detach()).shape == (2, 3)


@pytest.mark.parametrize("name", ["Adafactor", "Muon"])
def test_in_a_graph_with_a_schedule(name: str) -> None:
    def made() -> Any:
        flow.manual_seed(0)
        layer = nn.Linear(3, 4, bias=name == "Adafactor")
        optimizer = getattr(optim, name)(layer.parameters(), lr=0.1)
        return layer, optimizer, optim.lr_scheduler.StepLR(optimizer, 2)

    layer, optimizer, schedule = made()

    class Train(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer
            self.add_optimizer(optimizer, lr_sch=schedule)

        def build(self, x: flow.Tensor) -> Any:
            loss = (layer(x) ** 2).sum()
            loss.backward()
            return loss

    other, own, its = made()
    graph = Train()
    for step in range(5):
        x = flow.tensor(np.random.default_rng(step).normal(size=(5, 3)).astype(np.float32))
        found = graph(x)
        own.zero_grad()
        loss = (other(x) ** 2).sum()
        loss.backward()
        own.step()
        its.step()
        np.testing.assert_allclose(found.detach().numpy(), loss.detach().numpy(), 1e-4)
    for have, want in zip(layer.parameters(), other.parameters(), strict=True):
        np.testing.assert_allclose(have.detach().numpy(), want.detach().numpy(), 1e-3, 1e-4)


@pytest.mark.parametrize(
    ("name", "arguments", "match"),
    [
        ("Adafactor", {"lr": -1}, "lr"),
        ("Adafactor", {"beta2_decay": 0.5}, "beta2_decay"),
        ("Adafactor", {"eps": 1e-3}, "eps"),
        ("Adafactor", {"eps": (-1, 1e-3)}, "eps"),
        ("Adafactor", {"d": 0.5}, "d must be"),
        ("Adafactor", {"differentiable": True}, "differentiable"),
        ("Muon", {"momentum": -1}, "momentum"),
        ("Muon", {"adjust_lr_fn": "other"}, "adjust_lr_fn"),
        ("Muon", {"ns_steps": 100}, "ns_steps"),
        ("Muon", {"ns_coefficients": (1, 2)}, "three numbers"),
        ("Muon", {"ns_coefficients": 3.0}, "ns_coefficients must be three numbers, got 3.0"),
    ],
)
def test_settings_that_make_no_sense(name: str, arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        getattr(optim, name)([flow.zeros(2, 2)], **arguments)


def test_parameters_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"parameter 1 has shape \[3\]"):
        optim.Muon([flow.zeros(2, 2), flow.zeros(3)])
    for name in ("Adafactor", "Muon"):
        with pytest.raises(TypeError, match="complex"):
            getattr(optim, name)([flow.zeros(2, 2, dtype=flow.complex64)])
        getattr(optim, name)([]).step()


def test_singular_values_move_near_one() -> None:
    parameter = flow.zeros(6, 4, requires_grad=True)
    optimizer = optim.Muon([parameter], lr=1.0, weight_decay=0.0, momentum=0.0, adjust_lr_fn="match_rms_adamw")
    parameter.grad = flow.tensor(np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32))
    optimizer.step()
    taken = -parameter.detach().numpy() / (0.2 * np.sqrt(6))
    values = np.linalg.svd(taken, compute_uv=False)
    assert values.min() > 0.6
    assert values.max() < 1.3
    left, _, right = np.linalg.svd(parameter.grad.numpy(), full_matrices=False)
    assert np.sum(taken * (left @ right)) > 0.9 * 4 * values.mean()
