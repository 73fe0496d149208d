"""Updates that change many arrays by one launch, against those of the CPU: steps of optimizers, gradients, averages."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import nn, optim
from vmflow.dtypes import by_name
from vmflow.kernels.problems.updates import Along, Averages, Clip, RunningStatistics, ScaleToNorm, TotalNorm
from vmflow.kernels.updates import choose_update
from vmflow.multi_tensor import Update, issue_together, issue_update

from .comparing import some_of
from .compiling import ARCHITECTURES, check_usage, loaded_kernels
from .emulated import emulated

pytestmark = [pytest.mark.emulated, pytest.mark.host]

Make = Callable[[list[flow.Tensor]], optim.Optimizer]

# Without powers, whose last places differ, all of the arithmetic is that of the CPU.
EXACT: dict[str, Make] = {
    "SGD": lambda p: optim.SGD(p, 0.1, weight_decay=0.1),
    "SGD upwards": lambda p: optim.SGD(p, 0.1, weight_decay=0.1, maximize=True),
    "momentum": lambda p: optim.SGD(p, 0.1, momentum=0.9),
    "dampening": lambda p: optim.SGD(p, 0.1, momentum=0.9, dampening=0.3, weight_decay=0.2),
    "Nesterov": lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True, maximize=True),
    "Adagrad": lambda p: optim.Adagrad(p, 0.1, lr_decay=0.1, weight_decay=0.1),
    "Adadelta": lambda p: optim.Adadelta(p, 1.0, weight_decay=0.1, maximize=True),
    "RMSprop": lambda p: optim.RMSprop(p, 0.1, weight_decay=0.1),
    "centered RMSprop": lambda p: optim.RMSprop(p, 0.1, momentum=0.5, centered=True, maximize=True),
    "Rprop": lambda p: optim.Rprop(p, 0.1),
}
WITH_POWERS: dict[str, Make] = {
    "Adam": lambda p: optim.Adam(p, 0.1, weight_decay=0.1),
    "amsgrad": lambda p: optim.Adam(p, 0.1, amsgrad=True, maximize=True),
    "AdamW": lambda p: optim.AdamW(p, 0.1, weight_decay=0.1, maximize=True),
    "uncorrected Adam": lambda p: optim.Adam(p, 0.1, weight_decay=0.1, do_bias_correction=False),
    "ASGD": lambda p: optim.ASGD(p, 0.1, lambd=0.1, t0=1, weight_decay=0.1),
    "NAdam": lambda p: optim.NAdam(p, 0.1, weight_decay=0.1),
    "decoupled NAdam": lambda p: optim.NAdam(p, 0.1, weight_decay=0.1, decoupled_weight_decay=True),
    "RAdam": lambda p: optim.RAdam(p, 0.1, weight_decay=0.1),
    "Adamax": lambda p: optim.Adamax(p, 0.1, weight_decay=0.1),
    "LAMB": lambda p: optim.LAMB(p, 0.1, weight_decay=0.1),
    "decoupled LAMB": lambda p: optim.LAMB(p, 0.1, weight_decay=0.1, adam_w_mode=True, maximize=True),
}

SHAPES: Sequence[tuple[int, ...]] = [(3, 5), (), (0, 2), (1030,), (2, 3, 4)]


def _numbers(seed: int, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(seed)
    numbers: Any = random.standard_normal(shape)
    if dtype.startswith("complex"):
        numbers = numbers + 1j * random.standard_normal(shape)
    return np.asarray(numbers).astype(by_name(dtype).numpy)


def _ends(make: Make, device: str, dtypes: Sequence[str], steps: int = 3) -> list[np.ndarray[Any, Any]]:
    """The parameters and all that is kept for them after some steps, in arrays of the host."""
    pairs = [(shape, dtype) for dtype in dtypes for shape in SHAPES]
    parameters = [flow.tensor(_numbers(seed, *pair), device=device).requires_grad_() for seed, pair in enumerate(pairs)]
    optimizer = make(parameters)
    for step in range(steps):
        for seed, (parameter, pair) in enumerate(zip(parameters, pairs, strict=True)):
            parameter.grad = flow.tensor(_numbers(100 * (step + 1) + seed, *pair), device=device)
        optimizer.step()
    kept = [each for parameter in parameters for each in optimizer.state[parameter].values()]
    return [tensor.detach().cpu().numpy() for tensor in (*parameters, *kept)]


def _close(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], units: float) -> None:
    """Compare arrays up to so many units of the last place of the largest number."""
    assert found.dtype == expected.dtype
    dtype = by_name(found.dtype.name)
    wide = "complex128" if dtype.is_complex else "float64"
    largest = float(np.abs(expected.astype(wide)).max(initial=1.0))
    limit = units * flow.finfo(dtype).eps * largest
    np.testing.assert_allclose(found.astype(wide), expected.astype(wide), rtol=0, atol=limit)


def _equal(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> None:
    assert found.dtype == expected.dtype
    # numpy does not recognise nan in bfloat16.
    wide = np.float32 if found.dtype.itemsize == 2 else found.dtype
    np.testing.assert_array_equal(found.astype(wide), expected.astype(wide))


@pytest.mark.parametrize("dtypes", [("float32", "float64"), ("float16", "bfloat16"), ("complex64",)])
@pytest.mark.parametrize("name", EXACT)
def test_steps_have_the_bits_of_the_cpu(name: str, dtypes: Sequence[str]) -> None:
    expected = _ends(EXACT[name], "cpu", dtypes)
    with emulated("random", 3):
        found = _ends(EXACT[name], "cuda", dtypes)
    for have, want in zip(found, expected, strict=True):
        _equal(have, want)


@pytest.mark.parametrize("dtypes", [("float32", "float64"), ("float16", "bfloat16"), ("complex64",)])
@pytest.mark.parametrize("name", WITH_POWERS)
def test_steps_with_powers_are_close_to_those_of_the_cpu(name: str, dtypes: Sequence[str]) -> None:
    expected = _ends(WITH_POWERS[name], "cpu", dtypes)
    with emulated("random", 4):
        found = _ends(WITH_POWERS[name], "cuda", dtypes)
    for have, want in zip(found, expected, strict=True):
        _close(have, want, 64 if "LAMB" in name else 8)


@pytest.mark.parametrize("rate", [0.25, "float32", "float64", "float16"])
@pytest.mark.parametrize("skips", [None, (0.0, 1.0, 0.0, math.nan)])
def test_rates_on_the_device_and_steps_that_are_skipped(rate: float | str, skips: Sequence[float] | None) -> None:
    def end(device: str, make: Any) -> list[Any]:
        lr = rate if isinstance(rate, float) else flow.tensor(0.25, dtype=by_name(rate), device=device)
        parameter = flow.tensor(_numbers(0, (40,), "float32"), device=device).requires_grad_()
        optimizer = make([parameter], lr)
        for step, skip in enumerate(skips or (None,) * 4):
            parameter.grad = flow.tensor(_numbers(step, (40,), "float32"), device=device)
            if skip is None:
                optimizer.step()
            else:
                optimizer.step_unless(flow.tensor(skip, device=device))
        return [parameter.tolist(), *[each.tolist() for each in optimizer.state[parameter].values()]]

    makes = (
        lambda p, lr: optim.SGD(p, lr, momentum=0.5, dampening=0.5),
        lambda p, lr: optim.Adagrad(p, lr),
        lambda p, lr: optim.RMSprop(p, lr, momentum=0.5),
    )
    expected = [end("cpu", make) for make in makes]
    with emulated("lazy"):
        assert [end("cuda", make) for make in makes] == expected


def _launches(make: Make, count: int, skip: bool = False) -> int:
    """How many launches a step of so many parameters is, once there is state for them."""
    with emulated("lazy") as devices:
        parameters = [flow.full((2,), float(number), device="cuda", requires_grad=True) for number in range(count)]
        for parameter in parameters:
            parameter.grad = flow.ones(2, device="cuda")
        optimizer = make(parameters)
        never = flow.zeros((), device="cuda")
        found = 0
        for _ in range(2):
            flow.synchronize()
            found = devices.driver.launches
            if skip:
                optimizer.step_unless(never)
            else:
                optimizer.step()
            flow.synchronize()
        return devices.driver.launches - found


@pytest.mark.parametrize("skip", [False, True])
def test_a_few_launches_change_many_parameters(skip: bool) -> None:
    assert _launches(EXACT["momentum"], 1, skip) == 1
    assert _launches(EXACT["momentum"], 40, skip) == 2
    assert _launches(WITH_POWERS["Adam"], 9, skip) == 2
    assert _launches(WITH_POWERS["Adam"], 40, skip) == 4
    assert _launches(WITH_POWERS["LAMB"], 32, skip) == 4


def test_parameters_of_any_layout() -> None:
    def ends(device: str) -> list[Any]:
        found: list[Any] = []
        memory = flow.tensor(_numbers(0, (6, 8), "float32"), device=device)
        for view, slope in (
            (memory.t(), memory.cos().t()),  # in one order of memory
            (memory[1:5, 2:7], memory.sin()[1:5, 2:7]),
            (memory[::2], memory[:3].cos()),
        ):
            parameter = view.detach().requires_grad_()
            parameter.grad = slope
            optim.Adam([parameter], 0.1).step()
            found.append(parameter.detach().cpu().numpy())
        return [*found, memory.cpu().numpy()]

    expected = ends("cpu")
    with emulated("lazy"):
        for have, want in zip(ends("cuda"), expected, strict=True):
            _close(have, want, 4)


def test_parameters_that_lie_transposed_are_not_copied() -> None:
    with emulated("lazy") as devices:
        parameter = flow.ones(4, 6, device="cuda").t().requires_grad_()
        parameter.grad = flow.ones(4, 6, device="cuda").t()
        optimizer = optim.SGD([parameter], 0.5)
        flow.synchronize()
        before = devices.driver.launches
        optimizer.step()
        flow.synchronize()
        assert devices.driver.launches == before + 1
        assert parameter.tolist() == [[0.5] * 4] * 6


def test_gradients_that_lie_where_parameters_do() -> None:
    def ends(device: str) -> Any:
        memory = flow.tensor(_numbers(1, (3000,), "float32"), device=device)
        first, second, third = [memory[start : start + 900].detach().requires_grad_() for start in (0, 900, 2000)]
        first.grad = first.detach()  # itself
        second.grad = first.detach()  # another, which has changed by then
        third.grad = memory[1990:2890]  # some of its own elements
        optim.SGD([first, second, third], 0.5, momentum=0.5).step()
        return memory.cpu().tolist()

    expected = ends("cpu")
    with emulated("random", 5):
        assert ends("cuda") == expected


# Other updates


def _update(
    device: str,
    rule: str,
    settings: Sequence[Any],
    read: Sequence[np.ndarray[Any, Any]],
    written: Sequence[np.ndarray[Any, Any]],
    skip: float | None = None,
) -> list[np.ndarray[Any, Any]]:
    """The arrays that an update writes; those of two dimensions lie transposed."""
    inputs, outputs = [
        [
            flow.tensor(array.T, device=device).t() if array.ndim == 2 else flow.tensor(array, device=device)
            for array in arrays
        ]
        for arrays in (read, written)
    ]
    update = Update(rule, choose_update(rule, outputs[0].device).kernel(*settings), inputs, outputs, 1)
    if skip is None:
        issue_update(update)
    else:
        issue_together([update], flow.tensor(skip, device=device))
    return [tensor.cpu().numpy() for tensor in outputs]


def _agree(
    rule: str,
    settings: Sequence[Any],
    read: Sequence[np.ndarray[Any, Any]],
    written: Sequence[np.ndarray[Any, Any]],
    units: float | None = None,
) -> None:
    """Compare an update with the CPU's, also one that is skipped: exactly, or up to units of the last place."""
    with np.errstate(all="ignore"):
        expected = _update("cpu", rule, settings, read, written)
    with emulated("random", 7):
        found = _update("cuda", rule, settings, read, written)
        kept = _update("cuda", rule, settings, read, written, 1.0)
        again = _update("cuda", rule, settings, read, written, 0.0)
    for place, want in enumerate(expected):
        _equal(again[place], found[place])
        _equal(kept[place], written[place])
        if units is None:
            _equal(found[place], want)
        else:
            _close(found[place], want, units)


FLOATS = ("float16", "bfloat16", "float32", "float64")
ANY_SHAPES: Sequence[tuple[int, ...]] = [(3, 5), (), (0,), (1100,)]


def _arrays(dtype: str, seed: int = 0) -> list[np.ndarray[Any, Any]]:
    return [_numbers(seed + place, shape, dtype) for place, shape in enumerate(ANY_SHAPES)]


@pytest.mark.parametrize("dtype", [*FLOATS, "complex64", "int64", "bool", "uint8"])
def test_setting_to_zero(dtype: str) -> None:
    numbers = "float64" if dtype in ("int64", "bool", "uint8") else dtype
    _agree("zero", [], [], [np.abs(array).astype(by_name(dtype).numpy) for array in _arrays(numbers)])


def test_gradients_on_two_devices_are_set_to_zero() -> None:
    parameters = [nn.Parameter(flow.ones(2, device=device)) for device in ("cpu", "cuda")]
    optimizer = optim.SGD(parameters, lr=0.1)
    for parameter in parameters:
        parameter.sum().backward()
    optimizer.zero_grad(set_to_none=False)
    for parameter in parameters:
        assert parameter.grad is not None
        assert parameter.grad.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("dtype", FLOATS)
def test_clipping(dtype: str) -> None:
    arrays = _arrays(dtype)
    arrays[3][:4] = [math.nan, math.inf, -math.inf, -0.0]
    _agree("clip", [Clip(0.3)], [], arrays)


@pytest.mark.parametrize(
    ("order", "dtype"),
    [*some_of((1.0, 2.0, math.inf), (*FLOATS, "complex64", "complex128")), *some_of([2.5], ["float32", "complex128"])],
)
def test_norms_of_all(order: float, dtype: str) -> None:
    out = np.zeros((), np.float64)
    arrays = _arrays(dtype)
    if order == 2:
        arrays.append(_numbers(9, (4100,), dtype))  # by several blocks
    # The CPU adds up in the dtype, or in float32.
    units = 1e5 if dtype in ("float64", "complex128") else 1e10
    _agree("total_norm", [TotalNorm(order)], arrays, [out], units)
    for special in (math.nan, math.inf):
        arrays[3][7] = special
        _agree("total_norm", [TotalNorm(order)], arrays, [out], units)
    _agree("total_norm", [TotalNorm(order)], [arrays[2]], [np.ones((), np.float32)])


@pytest.mark.parametrize(("norm", "dtype"), some_of((3.0, 0.5, math.nan, math.inf), [*FLOATS, "complex64"]))
def test_scaling_to_a_norm(norm: float, dtype: str) -> None:
    _agree("scale_to_norm", [ScaleToNorm(1.0)], [np.asarray(norm, np.float32)], _arrays(dtype))


@pytest.mark.parametrize(("special", "dtype"), some_of((None, math.nan, -math.inf), [*FLOATS, "complex64"]))
def test_dividing_by_a_scale(special: float | None, dtype: str) -> None:
    arrays = _arrays(dtype)
    if special is not None:
        arrays[3].real[1021] = special
    if dtype == "complex64" and special is not None:
        arrays[3].imag[1021] = special  # by parts, one that is infinite makes the other no number on the host alone
        with np.errstate(all="ignore"), emulated("lazy"):
            found, *_ = _update("cuda", "unscale", [], [np.asarray(3.0, np.float32)], [np.zeros(()), *arrays])
        assert found == 1
        return
    _agree("unscale", [], [np.asarray(3.0, np.float32)], [np.asarray(0.5, np.float32), *arrays])


def test_sixteen_bits_that_become_too_large_by_a_small_scale() -> None:
    arrays = [np.full(3, 6e4, np.float16)]
    _agree("unscale", [], [np.asarray(0.5, np.float32)], [np.zeros((), np.float32), *arrays])


@pytest.mark.parametrize("momentum", [None, 0.3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_running_statistics(momentum: float | None, dtype: str) -> None:
    batch, running = [_arrays(dtype, seed)[:2] for seed in (0, 9)]
    settings = RunningStatistics((1.0, 1.25), True, momentum)
    _agree("running_statistics", [settings], batch, [*running, np.asarray(4)])
    if momentum is not None:
        _agree("running_statistics", [settings._replace(counts=False)], batch, running)


@pytest.mark.parametrize("weight", [None, 0.25, 1.0])
@pytest.mark.parametrize("taken", [0, 1, 6])
def test_averages(weight: float | None, taken: int) -> None:
    dtypes = ("float32", "float64", "bfloat16", "float16", "complex64")
    new, old = [[array for dtype in dtypes for array in _arrays(dtype, seed)] for seed in (0, 50)]
    given: list[np.ndarray[Any, Any]] = [np.arange(3), np.array([True, False]), np.full(1, 0.5)]
    copies: list[np.ndarray[Any, Any]] = [np.ones(3, np.int64), np.zeros(2, bool), np.full(1, 2.0)]
    settings = Averages(len(new), weight)
    _agree("average", [settings], [*new, *given], [*old, *copies, np.asarray(taken)])


@pytest.mark.parametrize("from_origin", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
def test_straight_moves(dtype: str, from_origin: bool) -> None:
    arrays = _arrays(dtype)
    length = sum([array.size for array in arrays])
    vectors = [_numbers(seed, (length,), dtype) for seed in range(1 + from_origin)]
    _agree("move_along", [Along(0.3, from_origin)], vectors, arrays)


def test_scales() -> None:
    _agree("assign", [], [np.asarray(3.5, np.float64)], [np.asarray(1.0, np.float32)])
    numbers = np.arange(6.0).reshape(2, 3)
    _agree("assign", [], [numbers, numbers[:0] + 1j], [numbers * 0, numbers[:0] * 1j])


# Within graphs of the device


class _Training(nn.Graph):
    """A step with limited gradients."""

    def __init__(self, model: nn.Module, optimizer: optim.Optimizer) -> None:
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer)

    def build(self, x: flow.Tensor) -> Any:
        loss = self.model(x).square().mean()
        loss.backward()
        return loss


def _losses(make: Make, as_graph: bool) -> list[float]:
    flow.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Dropout(0.3), nn.Linear(4, 3)).to("cuda")
    parameters = list(model.parameters())
    optimizer = make([{"params": parameters, "clip_grad_max_norm": 0.5}])  # type: ignore[list-item]
    graph = _Training(model, optimizer)
    found = []
    for step in range(5):
        x = flow.tensor(_numbers(step, (6, 5), "float32"), device="cuda")
        if as_graph:
            loss = graph(x)
        else:
            optimizer.zero_grad(set_to_none=False)
            loss = model(x).square().mean()
            loss.backward()
            optimizer.clip_grad()
            optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("name", [*EXACT, *WITH_POWERS])
def test_steps_within_graphs_are_replayed(name: str) -> None:
    make = {**EXACT, **WITH_POWERS}[name]
    with emulated("random", 8) as devices:
        eagerly = _losses(make, False)
        assert _losses(make, True) == eagerly
        assert devices.driver.graphs == 4


# Parameters on several devices


@pytest.mark.parametrize("devices", [("cpu", "cuda:0"), ("cuda:1", "cuda:0")])
@pytest.mark.parametrize("name", [*EXACT, *WITH_POWERS, "Adafactor"])
def test_a_step_of_one_group_on_several_devices(name: str, devices: Sequence[str]) -> None:
    makes: dict[str, Make] = {**EXACT, **WITH_POWERS, "Adafactor": lambda p: optim.Adafactor(p, 0.1)}

    def ends(*places: str) -> list[np.ndarray[Any, Any]]:
        parameters = [flow.tensor(_numbers(0, (7,), "float64"), device=place).requires_grad_() for place in places]
        optimizer = makes[name](parameters)
        for step in range(3):
            for seed, parameter in enumerate(parameters):
                parameter.grad = flow.tensor(_numbers(2 * step + seed, (7,), "float64"), device=parameter.device)
            optimizer.step()
        return [parameter.detach().cpu().numpy() for parameter in parameters]

    expected = ends("cpu", "cpu")
    with emulated("random", 9):
        found = ends(*devices)
    for have, want in zip(found, expected, strict=True):
        _close(have, want, 64)


@pytest.mark.parametrize("devices", [("cpu", "cuda:0"), ("cuda:0", "cpu"), ("cuda:0", "cuda:1")])
@pytest.mark.parametrize("order", [1.0, 2.0, math.inf])
def test_gradients_on_several_devices_are_clipped_together(order: float, devices: Sequence[str]) -> None:
    with emulated("random", 10):
        parameters = [flow.zeros(2, device=device, requires_grad=True) for device in devices]
        for parameter, value in zip(parameters, (3.0, 4.0), strict=True):
            parameter.grad = flow.tensor([value, 0.0], device=parameter.device)
        norm = nn.utils.clip_grad_norm_(parameters, 0.5, order)
        assert norm.device is parameters[0].device
        assert norm.item() == {1.0: 7, 2.0: 5, math.inf: 4}[order]
        kept = [parameter.grad.tolist()[0] for parameter in parameters if parameter.grad is not None]
        assert kept == pytest.approx([1.5 / norm.item(), 2 / norm.item()], rel=1e-5)
        nn.utils.clip_grad_value_(parameters, 0.125)
        assert [parameter.grad.tolist() for parameter in parameters if parameter.grad is not None] == [[0.125, 0]] * 2


@pytest.mark.parametrize("devices", [("cpu", "cuda:0"), ("cuda:0", "cpu"), ("cuda:0", "cuda:1")])
def test_averages_on_several_devices(devices: Sequence[str]) -> None:
    with emulated("random", 11):
        parameters = [flow.ones(2, device=device, requires_grad=True) for device in devices]
        model = nn.ParameterList([nn.Parameter(parameter.detach()) for parameter in parameters])
        averaged = optim.swa_utils.AveragedModel(model)
        for _ in range(3):
            averaged.update_parameters(model)
            with flow.no_grad():
                for parameter in model:
                    parameter.add_(3)
        assert [average.tolist() for average in averaged.module.parameters()] == [[4, 4]] * 2
        assert averaged.n_averaged.item() == 3


@pytest.mark.parametrize("place", ["cpu", "cuda:0", "cuda:1"])
@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize("name", ["SGD", "Adam", "Adafactor", "Muon"])
def test_a_learning_rate_on_another_device(name: str, device: str, place: str) -> None:
    with emulated("random", 12):
        ends = []
        for lr in (0.25, flow.tensor(0.25, device=place)):
            parameter = flow.ones(2, 2, device=device, requires_grad=True)
            parameter.grad = flow.ones(2, 2, device=device)
            getattr(optim, name)([parameter], lr=lr, weight_decay=0.1).step()
            ends.append(parameter.detach().cpu().numpy())
        np.testing.assert_allclose(ends[1], ends[0], rtol=1e-6)
        assert (ends[0] < 1).all()


# Compiling for GPUs that are not here


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_compile_for_gpus_without_spills(architecture: int) -> None:
    with emulated("lazy"):
        for make in (*EXACT.values(), *WITH_POWERS.values()):
            _ends(make, "cuda", ["float32", "float64", "bfloat16"], 1)
        for rule, settings, read, written in (
            ("clip", [Clip(1.0)], [], _arrays("float64")),
            ("total_norm", [TotalNorm(2.5)], _arrays("float64"), [np.zeros(())]),
            ("scale_to_norm", [ScaleToNorm(1.0)], [np.zeros(())], _arrays("float64")),
            ("unscale", [], [np.ones(())], [np.zeros(()), *_arrays("float64")]),
            ("average", [Averages(4, None)], _arrays("float64"), [*_arrays("float64"), np.asarray(1)]),
        ):
            _update("cuda", rule, settings, read, written)
        many = [flow.ones(2, device="cuda", requires_grad=True) for _ in range(32)]
        for parameter in many:
            parameter.grad = parameter.detach()
        WITH_POWERS["amsgrad"](many).step()
        kernels = loaded_kernels()
    assert len(kernels) > 60
    # Powers of float64, as Adam and its kin take them, are long.
    wide = [kernel for kernel in kernels if "float64" in kernel.name]
    check_usage(wide, architecture, 80)
    check_usage([kernel for kernel in kernels if kernel not in wide], architecture)
