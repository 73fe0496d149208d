"""All optimizers against PyTorch's: trajectories, groups, state dicts; and by small numpy oracles without it."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.optim.test_optimizers import SHAPES, check_complex_parameters
from tests.support import instructions_issued
from vmflow import optim

SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("Adam", {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("Adam", {"maximize": True, "weight_decay": 0.2, "amsgrad": True}),
    ("AdamW", {"lr": 0.1, "weight_decay": 0.3, "betas": (0.5, 0.6)}),
    ("Adagrad", {}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5}),
    ("Adagrad", {"maximize": True, "weight_decay": 0.1, "eps": 1e-3}),
    ("Adadelta", {}),
    ("Adadelta", {"lr": 0.5, "rho": 0.8, "weight_decay": 0.1, "maximize": True}),
    ("RMSprop", {}),
    ("RMSprop", {"momentum": 0.9, "weight_decay": 0.1}),
    ("RMSprop", {"centered": True, "alpha": 0.9, "eps": 1e-4}),
    ("RMSprop", {"centered": True, "momentum": 0.5, "maximize": True, "lr": 1e-3, "eps": 1e-4}),
    ("Adamax", {}),
    ("Adamax", {"lr": 0.1, "weight_decay": 0.1, "betas": (0.8, 0.9), "maximize": True}),
    ("NAdam", {}),
    ("NAdam", {"lr": 0.1, "weight_decay": 0.1, "momentum_decay": 0.01, "maximize": True}),
    ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {}),
    ("RAdam", {"lr": 0.1, "weight_decay": 0.1, "betas": (0.8, 0.9)}),
    ("RAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    ("ASGD", {}),
    ("ASGD", {"lr": 0.3, "lambd": 0.1, "alpha": 0.5, "t0": 3, "weight_decay": 0.1}),
    ("ASGD", {"lr": 0.1, "t0": 0, "maximize": True}),
    ("Rprop", {}),
    ("Rprop", {"lr": 0.1, "etas": (0.3, 1.5), "step_sizes": (1e-3, 0.2), "maximize": True}),
]
NAMES = sorted({name for name, _ in SETTINGS} | {"LAMB"})
SMALL: list[tuple[str, dict[str, Any]]] = [
    ("Adagrad", {"lr_decay": 0.1}),
    ("Adadelta", {}),
    ("RMSprop", {"momentum": 0.9, "centered": True, "eps": 1e-4}),
    ("Adamax", {}),
    ("NAdam", {}),
    ("RAdam", {"betas": (0.8, 0.9)}),
    ("Rprop", {}),
    ("ASGD", {"t0": 2}),
    ("LAMB", {"weight_decay": 0.1}),
]


def slopes_of(step: int, dtype: Any) -> list[Any]:
    """Gradients that differ from step to step; the first parameter has none in every third one, the last never."""
    generator = np.random.default_rng(100 + step)
    found: list[Any] = [np.asarray(generator.normal(size=shape), dtype) for shape in SHAPES]
    found[-2] = None
    if step % 3 == 0:
        found[0] = None
    return found


def trajectory(lib: Any, name: str, arguments: dict[str, Any], dtype: Any, steps: int = 20) -> tuple[list[Any], Any]:
    """The parameters after so many steps in two groups, and the optimizer."""
    generator = np.random.default_rng(0)
    parameters = [lib.tensor(np.asarray(generator.normal(size=shape), dtype), requires_grad=True) for shape in SHAPES]
    groups = [{"params": parameters[:2]}, {"params": parameters[2:], "lr": 0.03}]
    optimizer = getattr(lib.optim, name)(groups, **arguments)
    for step in range(steps):
        for parameter, slope in zip(parameters, slopes_of(step, dtype), strict=True):
            parameter.grad = None if slope is None else lib.tensor(slope)
        optimizer.step()
    return parameters, optimizer


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("name", "arguments"), SETTINGS)
def test_trajectories_and_states_are_those_of_pytorch(name: str, arguments: dict[str, Any], dtype: Any) -> None:
    torch = pytest.importorskip("torch")
    tolerance = {np.float32: 1e-5, np.float64: 1e-12}[dtype]
    found, mine = trajectory(flow, name, arguments, dtype)
    expected, other = trajectory(torch, name, arguments, dtype)
    for have, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(have.detach().numpy(), want.detach().numpy(), rtol=tolerance, atol=tolerance)
    for have, want in zip(found, expected, strict=True):
        kept, remembered = mine.state.get(have, {}), other.state.get(want, {})
        assert list(kept) == [key for key, value in remembered.items() if value is not None]
        for key, value in kept.items():
            scale = tolerance * max(1.0, float(np.max(np.abs(value.numpy()), initial=0.0)))
            np.testing.assert_allclose(value.numpy(), remembered[key].numpy(), rtol=tolerance, atol=scale)
    for group, theirs in zip(mine.state_dict()["param_groups"], other.state_dict()["param_groups"], strict=True):
        for key in group.keys() - {"params", "initial_accumulator_value"}:
            assert group[key] == theirs[key], key


@pytest.mark.parametrize(("name", "arguments"), SMALL)
def test_complex_parameters_are_two_real_ones(name: str, arguments: dict[str, Any]) -> None:
    check_complex_parameters(name, arguments)


@pytest.mark.parametrize(("name", "arguments"), SMALL)
@pytest.mark.parametrize("dtype", [flow.float16, flow.bfloat16])
def test_smaller_dtypes_follow_the_large_one(name: str, arguments: dict[str, Any], dtype: Any) -> None:
    found = []
    for kind in (dtype, flow.float64):
        parameter = flow.tensor([1.0, -2.0, 0.5], dtype=kind, requires_grad=True)
        optimizer = getattr(optim, name)([parameter], **{**arguments, "lr": 0.1})
        for step in range(5):
            parameter.grad = flow.tensor([0.25, -0.5, 1.0 - step / 8], dtype=kind)
            optimizer.step()
        assert parameter.dtype is kind
        found.append(parameter.detach().double().numpy())
    np.testing.assert_allclose(found[0], found[1], atol={"float16": 1e-2, "bfloat16": 6e-2}[dtype.name])


@pytest.mark.parametrize(("name", "arguments"), SMALL)
def test_a_step_is_one_instruction_and_a_rate_may_be_a_tensor(name: str, arguments: dict[str, Any]) -> None:
    def make(rate: Any) -> tuple[list[flow.Tensor], optim.Optimizer]:
        parameters = [flow.ones(2, requires_grad=True) for _ in range(4)]
        for number, parameter in enumerate(parameters):
            parameter.grad = flow.full((2,), number + 1.0)
        groups = [{"params": parameters[:2]}, {"params": parameters[2:]}]
        return parameters, getattr(optim, name)(groups, **{**arguments, "lr": rate})

    plain, optimizer = make(0.5)
    by_tensor, other = make(flow.tensor(0.5))
    optimizer.step()
    other.step()
    with instructions_issued() as issued:
        optimizer.step()
    assert len(issued) == 1
    other.step()
    for have, want in zip(by_tensor, plain, strict=True):
        np.testing.assert_array_equal(have.detach().numpy(), want.detach().numpy())


@pytest.mark.parametrize(("name", "arguments"), SMALL)
@pytest.mark.parametrize("again", ["state dict", "deepcopy", "pickle"])
def test_going_on_elsewhere(name: str, arguments: dict[str, Any], again: str) -> None:
    parameters, optimizer = trajectory(flow, name, arguments, np.float32, 4)
    if again == "state dict":
        others, other = trajectory(flow, name, {}, np.float32, 0)
        other.load_state_dict(optimizer.state_dict())
        with flow.no_grad():
            for target, source in zip(others, parameters, strict=True):
                target.copy_(source)
    elif again == "deepcopy":
        others, other = copy.deepcopy((parameters, optimizer))
    else:
        others, other = pickle.loads(pickle.dumps((parameters, optimizer)))
    for both, one in ((parameters, optimizer), (others, other)):
        for step in range(4, 7):
            for parameter, slope in zip(both, slopes_of(step, np.float32), strict=True):
                parameter.grad = None if slope is None else flow.tensor(slope)
            one.step()
    for have, want in zip(others, parameters, strict=True):
        np.testing.assert_array_equal(have.detach().numpy(), want.detach().numpy())


# Small oracles, one formula each


def _adagrad(p: Any, g: Any, s: dict[str, Any], t: int) -> Any:
    s["sum"] = s.get("sum", 0) + g * g
    return p - 0.01 / (1 + (t - 1) * 0.1) * g / (np.sqrt(s["sum"]) + 1e-10)


def _adadelta(p: Any, g: Any, s: dict[str, Any], t: int) -> Any:
    s["v"] = 0.9 * s.get("v", 0) + 0.1 * g * g
    change = np.sqrt(s.get("u", 0) + 1e-6) / np.sqrt(s["v"] + 1e-6) * g
    s["u"] = 0.9 * s.get("u", 0) + 0.1 * change * change
    return p - change


def _rmsprop(p: Any, g: Any, s: dict[str, Any], t: int) -> Any:
    s["v"] = 0.99 * s.get("v", 0) + 0.01 * g * g
    s["m"] = 0.99 * s.get("m", 0) + 0.01 * g
    s["b"] = 0.9 * s.get("b", 0) + g / (np.sqrt(s["v"] - s["m"] ** 2) + 1e-4)
    return p - 0.01 * s["b"]


def _adamax(p: Any, g: Any, s: dict[str, Any], t: int) -> Any:
    s["m"] = 0.9 * s.get("m", 0) + 0.1 * g
    s["u"] = np.maximum(0.999 * s.get("u", 0), np.abs(g) + 1e-8)
    return p - 2e-3 / (1 - 0.9**t) * s["m"] / s["u"]


def _nadam(p: Any, g: Any, s: dict[str, Any], t: int) -> Any:
    now, ahead = (0.9 * (1 - 0.5 * 0.96 ** (value * 4e-3)) for value in (t, t + 1))
    s["k"] = np.float32(s.get("k", np.float32(1)) * np.float32(now))
    product = float(s["k"])
    s["m"] = 0.9 * s.get("m", 0) + 0.1 * g
    s["v"] = 0.999 * s.get("v", 0) + 0.001 * g * g
    below = np.sqrt(s["v"] / (1 - 0.999**t)) + 1e-8
    return p - 2e-3 * ((1 - now) / (1 - product) * g + ahead / (1 - product * ahead) * s["m"]) / below


def _radam(p: Any, g: Any, s: dict[str, Any], t: int) -> Any:
    s["m"] = 0.8 * s.get("m", 0) + 0.2 * g
    s["v"] = 0.9 * s.get("v", 0) + 0.1 * g * g
    mean, most = s["m"] / (1 - 0.8**t), 2 / 0.1 - 1
    length = most - 2 * t * 0.9**t / (1 - 0.9**t)
    if length <= 5:
        return p - 1e-3 * mean
    trust = np.sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length))
    return p - 1e-3 * mean * trust * np.sqrt(1 - 0.9**t) / (np.sqrt(s["v"]) + 1e-8)


def _rprop(p: Any, g: Any, s: dict[str, Any], t: int) -> Any:
    turned = np.sign(g * s.get("g", 0))
    s["e"] = np.clip(s.get("e", 0.01) * np.where(turned > 0, 1.2, np.where(turned < 0, 0.5, 1)), 1e-6, 50)
    s["g"] = np.where(turned < 0, 0, g)
    return p - np.sign(s["g"]) * s["e"]


def _asgd(p: Any, g: Any, s: dict[str, Any], t: int) -> Any:
    eta = float(np.float32(0.01 / (1 + 1e-4 * 0.01 * (t - 1)) ** 0.75))
    p = p * (1 - 1e-4 * eta) - eta * g
    s["ax"] = s.get("ax", 0) + (p - s.get("ax", 0)) / max(1, t - 1 - 2)
    return p


def _lamb(p: Any, g: Any, s: dict[str, Any], t: int) -> Any:
    s["m"] = 0.9 * s.get("m", 0) + 0.1 * g
    s["v"] = 0.999 * s.get("v", 0) + 0.001 * g * g
    way = s["m"] / (1 - 0.9**t) / (np.sqrt(s["v"]) / np.sqrt(1 - 0.999**t) + 1e-8)
    ratio = np.linalg.norm(p) / np.linalg.norm(way) if np.linalg.norm(p) and np.linalg.norm(way) else 1.0
    return p - 1e-3 * ratio * (way + 0.1 * p)


ORACLES = {
    "Adagrad": _adagrad,
    "Adadelta": _adadelta,
    "RMSprop": _rmsprop,
    "Adamax": _adamax,
    "NAdam": _nadam,
    "RAdam": _radam,
    "Rprop": _rprop,
    "ASGD": _asgd,
    "LAMB": _lamb,
}


@pytest.mark.parametrize("start", [0.0, 2.0])
@pytest.mark.parametrize(("name", "arguments"), SMALL)
def test_formulas(name: str, arguments: dict[str, Any], start: float) -> None:
    generator = np.random.default_rng(3)
    value = np.full((40000,), start)
    parameter = flow.tensor(value, requires_grad=True)
    optimizer = getattr(optim, name)([parameter], **arguments)
    state: dict[str, Any] = {}
    for step in range(1, 13):
        slope = generator.normal(size=value.shape)
        value = ORACLES[name](value, slope, state, step)
        parameter.grad = flow.tensor(slope)
        optimizer.step()
    np.testing.assert_allclose(parameter.detach().numpy(), value, rtol=1e-10, atol=1e-12)


def test_lamb_without_corrections_and_with_coupled_decay() -> None:
    parameter = flow.tensor([3.0, 4.0], dtype=flow.float64, requires_grad=True)
    optimizer = optim.LAMB([parameter], 0.1, (0.5, 0.5), 0.0, 0.5, adam_w_mode=False, do_bias_correction=False)
    parameter.grad = flow.tensor([0.5, -1.0], dtype=flow.float64)
    optimizer.step()
    slope = np.array([0.5, -1.0]) + 0.5 * np.array([3.0, 4.0])
    way = 0.5 * slope / np.sqrt(0.5 * slope**2)
    expected = np.array([3.0, 4.0]) - 0.1 * 5 / np.linalg.norm(way) * way
    np.testing.assert_allclose(parameter.detach().numpy(), expected, rtol=1e-12)
    with pytest.raises(ValueError, match="amsgrad"):
        optim.LAMB([parameter], amsgrad=True)


@pytest.mark.parametrize("name", ["Adam", "AdamW"])
@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_adam_without_corrections(name: str, amsgrad: bool, dtype: Any) -> None:
    parameter = flow.tensor(np.array([3.0, 4.0], dtype), requires_grad=True)
    optimizer = getattr(optim, name)([parameter], 0.1, (0.5, 0.75), 1e-3, 0.2, amsgrad, False)
    value, mean, square, largest = np.array([3.0, 4.0]), np.zeros(2), np.zeros(2), np.zeros(2)
    for step in range(4):
        slope = np.array([0.5, -1.0]) / (step + 1)
        parameter.grad = flow.tensor(slope.astype(dtype))
        optimizer.step()
        if name == "AdamW":
            value = value * (1 - 0.1 * 0.2)
        else:
            slope = slope + 0.2 * value
        mean = 0.5 * mean + 0.5 * slope
        square = 0.75 * square + 0.25 * slope**2
        largest = np.maximum(largest, square) if amsgrad else square
        value = value - 0.1 * mean / (np.sqrt(largest) + 1e-3)
    np.testing.assert_allclose(parameter.detach().numpy(), value, rtol=1e-12 if dtype is np.float64 else 1e-6)
    assert optimizer.param_groups[0]["do_bias_correction"] is False


@pytest.mark.parametrize(
    ("name", "arguments", "match"),
    [
        ("ASGD", {"lr": -1}, "lr"),
        ("ASGD", {"t0": "late"}, "t0"),
        ("SGD", {"nesterov": True}, "momentum and no dampening"),
        ("SGD", {"nesterov": True, "momentum": 0.9, "dampening": 0.1}, "momentum and no dampening"),
        ("Adagrad", {"lr_decay": -1}, "lr_decay"),
        ("Adagrad", {"initial_accumulator_value": -1}, "initial_accumulator_value"),
        ("Adadelta", {"rho": 1.5}, "rho"),
        ("RMSprop", {"alpha": -0.1}, "alpha"),
        ("Adamax", {"betas": (0.9, 1.0)}, "Adamax: betas"),
        ("NAdam", {"momentum_decay": -1}, "momentum_decay"),
        ("RAdam", {"eps": -1}, "eps"),
        ("Rprop", {"etas": (1.1, 1.2)}, "etas"),
        ("Rprop", {"etas": 0.5}, r"etas must be a factor within \(0, 1\) and one above 1, got 0\.5"),
        ("Rprop", {"etas": ("a", "b")}, "etas must be a factor"),
        ("Rprop", {"step_sizes": (-1, -2)}, r"step_sizes must be a smallest size .* got \(-1, -2\)"),
        ("Rprop", {"step_sizes": (2, 1)}, "step_sizes"),
        ("Rprop", {"step_sizes": 1.0}, "step_sizes"),
        ("LAMB", {"betas": (0.9,)}, "betas"),
        ("LBFGS", {"line_search_fn": "armijo"}, "strong_wolfe"),
        ("LBFGS", {"tolerance_grad": -1}, "tolerance_grad"),
        ("LBFGS", {"max_iter": -1}, "max_iter must be a number that is not negative, got -1"),
        ("LBFGS", {"max_eval": -1}, "max_eval must be a number that is not negative, got -1"),
        ("LBFGS", {"history_size": 0}, "history_size must be at least 1, got 0"),
    ],
)
def test_settings_that_make_no_sense(name: str, arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        getattr(optim, name)([flow.zeros(1)], **arguments)


@pytest.mark.parametrize("name", NAMES)
def test_how_a_step_is_carried_out(name: str) -> None:
    make = getattr(optim, name)
    make([flow.zeros(1)], foreach=True, fused=None, capturable=False, contiguous_params=True)
    with pytest.raises(ValueError, match="differentiable=True is not possible"):
        make([flow.zeros(1)], differentiable=True)
    with pytest.raises(TypeError, match="unexpected keyword argument 'learning_rate'"):
        make([flow.zeros(1)], learning_rate=1)


# Hooks and clipping


def test_step_hooks() -> None:
    parameter = flow.ones(1, requires_grad=True)
    optimizer = optim.SGD([parameter], lr=1.0)
    seen: list[Any] = []
    before = optimizer.register_step_pre_hook(lambda *it: seen.append(("before", *it)))
    optimizer.register_step_post_hook(lambda *it: seen.append(("after", *it)))
    parameter.grad = flow.ones(1)
    optimizer.step()
    assert seen == [("before", optimizer, (), {}), ("after", optimizer, (), {})]
    assert not copy.deepcopy(optimizer)._pre_hooks
    before.remove()
    optimizer.register_step_pre_hook(lambda *it: ((lambda: 7,), {}))
    assert optimizer.step() == 7
    optimizer.register_step_pre_hook(lambda *it: 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must return None or the new"):
        optimizer.step()


def test_clip_grad() -> None:
    parameters = [flow.zeros(2, requires_grad=True) for _ in range(3)]
    for parameter in parameters:
        parameter.grad = flow.tensor([3.0, 4.0])
    groups: list[dict[str, Any]] = [
        {"params": parameters[0], "clip_grad_max_norm": 1.0, "clip_grad_norm_type": 2.0},
        {"params": parameters[1], "clip_grad_max_norm": 2.0, "clip_grad_norm_type": float("inf")},
        {"params": parameters[2]},
    ]
    optimizer = optim.SGD(groups)
    optimizer.clip_grad()
    expected = [[0.6, 0.8], [1.5, 2.0], [3.0, 4.0]]
    for parameter, want in zip(parameters, expected, strict=True):
        assert parameter.grad is not None
        np.testing.assert_allclose(parameter.grad.numpy(), want, rtol=1e-5)
    parameters[0].grad = flow.tensor([float("inf"), 1.0])
    with pytest.raises(RuntimeError, match="none was scaled"):
        optimizer.clip_grad(error_if_nonfinite=True)
    with pytest.raises(ValueError, match="clip_grad_max_norm"):
        optim.SGD(parameters).clip_grad()


@pytest.mark.parametrize(("name", "arguments"), [("SGD", {"momentum": 0.9}), ("Adam", {}), *SMALL])
def test_a_step_may_find_out_late_that_it_is_not_wanted(name: str, arguments: dict[str, Any]) -> None:
    parameter = flow.ones(3, requires_grad=True)
    optimizer = getattr(optim, name)([parameter], **arguments)
    parameter.grad = flow.full((3,), 2.0)
    optimizer.step_unless(flow.tensor(1.0))
    assert parameter.tolist() == [1, 1, 1]
    optimizer.step_unless(flow.tensor(0.0))
    other = flow.ones(3, requires_grad=True)
    other.grad = flow.full((3,), 2.0)
    getattr(optim, name)([other], **arguments).step()
    assert parameter.tolist() == other.tolist() != [1, 1, 1]


@pytest.mark.parametrize("shape", [(2,), (0,)])
def test_a_step_is_skipped_by_one_number_only(shape: tuple[int, ...]) -> None:
    parameter = flow.ones(3, requires_grad=True)
    parameter.grad = flow.full((3,), 2.0)
    with pytest.raises(ValueError, match=r"skip must be a tensor of one element, not \["):
        optim.SGD([parameter]).step_unless(flow.zeros(shape))
    assert parameter.tolist() == [1, 1, 1]
