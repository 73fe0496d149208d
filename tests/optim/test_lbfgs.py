"""LBFGS: against PyTorch's, on a problem with a known end, and the parameters after a closure that raises."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import optim
from vmflow.optim.line_search import Point, strong_wolfe

SEARCHES = [
    {"lr": 0.1, "max_iter": 4},
    {"lr": 0.5, "max_iter": 3, "history_size": 2},
    {"line_search_fn": "strong_wolfe", "max_iter": 5},
    {"line_search_fn": "strong_wolfe", "max_iter": 3, "history_size": 3, "max_eval": 4, "lr": 3.0},
]


def closure_of(lib: Any, parameters: list[Any], optimizer: Any) -> Any:
    """Rosenbrock's valley, and a bowl that the second parameter is in."""

    def closure() -> Any:
        optimizer.zero_grad()
        x, y = parameters
        loss = (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum() + ((y - 3) ** 2).sum()
        loss.backward()
        return loss

    return closure


def minimized(lib: Any, arguments: dict[str, Any], steps: int) -> tuple[list[Any], list[float], Any]:
    parameters = [
        lib.tensor(np.array([-1.2, 1.0, 0.3]), requires_grad=True),
        lib.tensor(np.zeros((2, 2)), requires_grad=True),
    ]
    optimizer = lib.optim.LBFGS(parameters, **arguments)
    closure = closure_of(lib, parameters, optimizer)
    losses = [float(optimizer.step(closure).detach()) for _ in range(steps)]
    return [parameter.detach().numpy() for parameter in parameters], losses, optimizer


@pytest.mark.parametrize("arguments", SEARCHES)
def test_trajectories_are_those_of_pytorch(arguments: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    found, losses, mine = minimized(flow, arguments, 4)
    expected, wanted, other = minimized(torch, arguments, 4)
    np.testing.assert_allclose(losses, wanted, rtol=1e-7)
    for have, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-7, atol=1e-9)
    kept, remembered = (next(iter(value.state.values())) for value in (mine, other))
    assert kept.keys() == remembered.keys() - {"al"}
    for key in ("func_evals", "n_iter"):
        assert kept[key] == remembered[key]


def test_the_bottom_of_the_valley_is_found() -> None:
    found, losses, _ = minimized(flow, {"line_search_fn": "strong_wolfe", "max_iter": 100}, 1)
    np.testing.assert_allclose(found[0], 1, rtol=1e-4)
    np.testing.assert_allclose(found[1], 3, rtol=1e-5)
    assert losses[0] > 100


@pytest.mark.parametrize("start", [100.0, -3.5, 8.0])
def test_a_loss_that_is_a_line_far_from_its_minimum(start: float) -> None:
    torch = pytest.importorskip("torch")
    found = []
    for lib in (flow, torch):
        parameter = lib.tensor([start, 2 * start], dtype=lib.float64, requires_grad=True)
        optimizer = lib.optim.LBFGS([parameter], line_search_fn="strong_wolfe")

        def closure(parameter: Any = parameter, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = (parameter - 7).abs().sum()
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure)
        found.append(parameter.tolist())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)


def test_a_line_search_with_a_rate_of_0_stays_where_it_is() -> None:
    parameter = flow.tensor([1.0], requires_grad=True)
    optimizer = optim.LBFGS([parameter], lr=0, line_search_fn="strong_wolfe")

    def closure() -> flow.Tensor:
        optimizer.zero_grad()
        loss = (parameter**2).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 1
    assert parameter.tolist() == [1]


def test_going_on_from_a_state_dict() -> None:
    arguments = {"line_search_fn": "strong_wolfe", "max_iter": 3}
    expected, _, _ = minimized(flow, arguments, 4)
    half, _, optimizer = minimized(flow, arguments, 2)
    parameters = [flow.tensor(value, requires_grad=True) for value in half]
    other = optim.LBFGS(parameters)
    other.load_state_dict(optimizer.state_dict())
    for _ in range(2):
        other.step(closure_of(flow, parameters, other))
    for have, want in zip(parameters, expected, strict=True):
        np.testing.assert_allclose(have.detach().numpy(), want, rtol=1e-12)
    assert optimizer.state_dict()["state"][0]["old_dirs"] is not other.state_dict()["state"][0]["old_dirs"]


def test_a_closure_that_raises_within_a_line_search_leaves_the_parameters_where_the_line_began() -> None:
    parameter = flow.tensor([1.0, 2.0], dtype=flow.float64, requires_grad=True)
    optimizer = optim.LBFGS([parameter], line_search_fn="strong_wolfe")
    calls = []

    def closure() -> flow.Tensor:
        calls.append(parameter.tolist())
        if len(calls) == 2:
            raise ArithmeticError("half way")
        optimizer.zero_grad()
        loss = (parameter**2).sum()
        loss.backward()
        return loss

    with pytest.raises(ArithmeticError, match="half way"):
        optimizer.step(closure)
    assert calls[1] != [1, 2]
    assert parameter.tolist() == [1, 2]


def test_parameters_without_gradients_and_small_dtypes() -> None:
    used = flow.tensor([1.0, 2.0], requires_grad=True)
    unused = flow.ones(3, requires_grad=True)
    optimizer = optim.LBFGS([unused, used], lr=1, tolerance_grad=1e-3)

    def closure() -> flow.Tensor:
        optimizer.zero_grad()
        loss = ((used - 5) ** 2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert unused.tolist() == [1, 1, 1]
    np.testing.assert_allclose(used.detach().numpy(), 5, rtol=1e-5)
    before = optimizer.state[unused]["n_iter"]
    optimizer.step(closure)  # there already
    assert optimizer.state[unused]["n_iter"] == before


def test_wrong_arguments_are_refused() -> None:
    parameter = flow.zeros(1, requires_grad=True)
    with pytest.raises(ValueError, match="one group"):
        optim.LBFGS([{"params": [parameter]}, {"params": [flow.zeros(1)]}])
    with pytest.raises(TypeError, match="complex"):
        optim.LBFGS([flow.zeros(1, dtype=flow.complex64)])
    for given in ({"max_iter": 2.5}, {"max_iter": None}, {"history_size": 2.5}):
        settings: dict[str, Any] = given
        with pytest.raises(TypeError, match=f"LBFGS: {next(iter(settings))} must be an integer, not"):
            optim.LBFGS([parameter], **settings)
        with pytest.raises(TypeError, match="must be an integer, not"):
            optim.LBFGS([{"params": [parameter], **settings}])
    with pytest.raises(TypeError, match="needs a closure"):
        optim.LBFGS([parameter]).step()
    with pytest.raises(TypeError, match="cannot be skipped"):
        optim.LBFGS([parameter]).step_unless(flow.zeros(()))


@pytest.mark.parametrize("place", [1e-3, 0.1, 1.0, 50.0])
@pytest.mark.parametrize(
    ("loss", "slope"),
    [
        (lambda t: (t - 2) ** 2, lambda t: 2 * (t - 2)),
        (lambda t: -t / (t * t + 2), lambda t: (t * t - 2) / (t * t + 2) ** 2),
        (lambda t: np.cos(3 * t) - t / 10 + t * t / 50, lambda t: -3 * np.sin(3 * t) - 0.1 + t / 25),
    ],
)
def test_the_place_found_satisfies_the_strong_wolfe_conditions(loss: Any, slope: Any, place: float) -> None:
    def look(t: float) -> Point:
        return Point(t, float(loss(t)), None, float(slope(t)))

    start = look(0.0)
    found, looked = strong_wolfe(look, start, place, 1.0, 1e-12, 50)
    assert looked <= 51
    assert found.loss <= start.loss + 1e-4 * found.place * start.slope
    assert abs(found.slope) <= 0.9 * abs(start.slope)


@pytest.mark.parametrize("beyond", [math.inf, math.nan])
def test_a_line_search_returns_from_points_whose_loss_is_infinite_or_nan(beyond: float) -> None:
    def look(t: float) -> Point:
        return Point(t, t - 2 * math.log(1 + t) if t < 2 else beyond, None, 1 - 2 / (1 + t) if t < 2 else beyond)

    found, _ = strong_wolfe(look, look(0.0), 50.0, 1.0, 1e-12, 50)
    assert 0 < found.place < 2
    nowhere, _ = strong_wolfe(lambda t: Point(t, beyond, None, beyond), look(0.0), 1.0, 1.0, 1e-12, 3)
    assert nowhere.place == 0
