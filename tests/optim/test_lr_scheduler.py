"""Schedules of learning rates, against PyTorch's and by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import optim
from vmflow.optim import lr_scheduler

CASES: list[tuple[str, dict[str, Any]]] = [
    ("StepLR", {"step_size": 3, "gamma": 0.5}),
    ("MultiStepLR", {"milestones": [2, 7, 7, 12], "gamma": 0.5}),
    ("ConstantLR", {"factor": 0.25, "total_iters": 4}),
    ("ConstantLR", {}),
    ("LinearLR", {}),
    ("LinearLR", {"start_factor": 0.5, "end_factor": 0.1, "total_iters": 9}),
    ("ExponentialLR", {"gamma": 0.95}),
    ("PolynomialLR", {}),
    ("PolynomialLR", {"total_iters": 20, "power": 2.5}),
    ("CosineAnnealingLR", {"T_max": 5}),
    ("CosineAnnealingLR", {"T_max": 4, "eta_min": 0.01}),
    ("CosineAnnealingWarmRestarts", {"T_0": 4}),
    ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2, "eta_min": 0.01}),
    ("LambdaLR", {"lr_lambda": lambda epoch: 0.9**epoch}),
    ("LambdaLR", {"lr_lambda": [lambda epoch: epoch + 1, lambda epoch: 1 / (epoch + 1)]}),
    ("MultiplicativeLR", {"lr_lambda": lambda epoch: 1 - 1 / (epoch + 2)}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": [0.1, 0.2], "step_size_up": 4, "step_size_down": 7}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 5, "mode": "triangular2"}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 5, "mode": "exp_range", "gamma": 0.99}),
    (
        "CyclicLR",
        {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 5, "scale_fn": lambda x: 1 / x, "cycle_momentum": False},
    ),
    ("OneCycleLR", {"max_lr": 1.0, "total_steps": 400}),
    ("OneCycleLR", {"max_lr": [1.0, 2.0], "epochs": 4, "steps_per_epoch": 100, "anneal_strategy": "linear"}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 5, "step_size_down": 0}),
    ("OneCycleLR", {"max_lr": 1.0, "total_steps": 301, "three_phase": True, "pct_start": 0.25}),
]


def optimizer_of(lib: Any) -> Any:
    return lib.optim.SGD(
        [{"params": [lib.zeros(1, requires_grad=True)]}, {"params": [lib.zeros(1, requires_grad=True)], "lr": 0.2}],
        lr=0.1,
        momentum=0.5,
    )


def rates(optimizer: Any, scheduler: Any, epochs: int) -> list[list[float]]:
    found = []
    for _ in range(epochs):
        found.append([float(group["lr"]) for group in optimizer.param_groups])
        assert found[-1] == [float(value) for value in scheduler.get_last_lr()]
        found[-1] += [group["momentum"] for group in optimizer.param_groups]
        optimizer.step()
        scheduler.step()
    return found


@pytest.mark.parametrize(("name", "arguments"), CASES)
def test_rates_are_those_of_pytorch(name: str, arguments: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    found = []
    for lib in (flow, torch):
        optimizer = optimizer_of(lib)
        found.append(rates(optimizer, getattr(lib.optim.lr_scheduler, name)(optimizer, **arguments), 300))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(("name", "arguments"), CASES)
def test_a_rate_is_a_function_of_the_step(name: str, arguments: dict[str, Any]) -> None:
    optimizer = optimizer_of(flow)
    scheduler = getattr(lr_scheduler, name)(optimizer, **arguments)
    known = [scheduler.rates_at(epoch) for epoch in range(200)]
    np.testing.assert_allclose([rate[:2] for rate in rates(optimizer, scheduler, 200)], known, rtol=1e-9, atol=1e-14)
    scheduler.step(5)
    assert scheduler.get_last_lr() == known[5]
    assert scheduler.last_epoch == 5


def combined(lib: Any, optimizer: Any, which: str) -> Any:
    schedules = lib.optim.lr_scheduler
    warm = schedules.LinearLR(optimizer, 0.1, total_iters=7)
    cool = schedules.CosineAnnealingLR(optimizer, 20)
    if which == "chained":
        return schedules.ChainedScheduler([warm, cool, schedules.ExponentialLR(optimizer, 0.99)])
    last = schedules.StepLR(optimizer, 10)
    return schedules.SequentialLR(optimizer, [warm, cool, last], [7, 30])


@pytest.mark.parametrize("which", ["chained", "sequential"])
def test_combined_schedules_are_those_of_pytorch(which: str) -> None:
    torch = pytest.importorskip("torch")
    found = []
    for lib in (flow, torch):
        optimizer = optimizer_of(lib)
        found.append(rates(optimizer, combined(lib, optimizer, which), 100))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("which", ["chained", "sequential"])
def test_combined_schedules_go_on_from_a_state_dict(which: str) -> None:
    optimizer = optimizer_of(flow)
    expected = rates(optimizer, combined(flow, optimizer, which), 60)
    optimizer = optimizer_of(flow)
    scheduler = combined(flow, optimizer, which)
    rates(optimizer, scheduler, 25)
    other = optimizer_of(flow)
    resumed = combined(flow, other, which)
    other.load_state_dict(optimizer.state_dict())
    resumed.load_state_dict(scheduler.state_dict())
    np.testing.assert_allclose(rates(other, resumed, 35), expected[25:], rtol=1e-12)


@pytest.mark.parametrize(
    "arguments",
    [
        {"patience": 2, "cooldown": 3, "min_lr": [0.001, 0.02]},
        {"mode": "max", "patience": 1, "threshold_mode": "abs", "threshold": 0.1, "factor": 0.5},
        {"threshold_mode": "abs", "patience": 0, "factor": 0.9},
        {"mode": "max", "patience": 3, "threshold": 0.01},
    ],
)
def test_plateaus_are_those_of_pytorch(arguments: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    measures = np.random.default_rng(0).normal(size=300) / np.arange(1, 301)
    found: list[list[list[float]]] = []
    for lib in (flow, torch):
        optimizer = optimizer_of(lib)
        scheduler = lib.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **arguments)
        found.append([])
        for measure in measures:
            scheduler.step(lib.tensor(measure))
            found[-1].append([group["lr"] for group in optimizer.param_groups])
            assert found[-1][-1] == scheduler.get_last_lr()
    assert found[0] == found[1]
    assert found[0][0] != found[0][-1]
    again = lr_scheduler.ReduceLROnPlateau(optimizer_of(flow))
    again.load_state_dict(scheduler.state_dict())
    assert again.best == scheduler.best


def test_a_plateau_knows_no_rate_in_advance_and_can_begin_again() -> None:
    optimizer = optim.SGD([flow.zeros(1)], lr=1.0)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, cooldown=3)
    for call in (scheduler.get_lr, lambda: scheduler.rates_at(0), lambda: lr_scheduler.WarmUpLR(scheduler)):
        with pytest.raises(NotImplementedError, match="ReduceLROnPlateau: the rates depend on the metrics"):
            call()
    assert scheduler.base_lrs == [1.0]
    for _ in range(2):
        scheduler.step(1.0)
    assert scheduler.get_last_lr() == [0.5]
    scheduler.set_rates(scheduler.base_lrs)
    scheduler.restart()
    state = scheduler.best, scheduler.num_bad_epochs, scheduler.cooldown_counter, scheduler.last_epoch
    assert state == (math.inf, 0, 0, 0)
    assert scheduler.get_last_lr() == [1.0]
    for _ in range(2):
        scheduler.step(2.0)
    assert scheduler.get_last_lr() == [0.5]


def test_oneflows_schedules() -> None:
    def first(make: Any, epochs: int) -> list[float]:
        optimizer = optim.SGD([flow.zeros(1)], lr=0.001)
        return [rate[0] for rate in rates(optimizer, make(optimizer), epochs)]

    warm = first(lambda x: lr_scheduler.WarmUpLR(x, 0.5, 5, "constant"), 7)
    np.testing.assert_allclose(warm, [0.0005] * 5 + [0.001] * 2)
    warm = first(lambda x: lr_scheduler.WarmUpLR(x, warmup_factor=0.5, warmup_iters=5), 7)
    np.testing.assert_allclose(warm, [0.0005, 0.0006, 0.0007, 0.0008, 0.0009, 0.001, 0.001])

    def behind(prefix: bool) -> Any:
        return lambda x: lr_scheduler.WarmupLR(
            lr_scheduler.CosineDecayLR(x, decay_steps=5, alpha=0.1), 0.5, 2, warmup_prefix=prefix
        )

    decay = [0.001 * (0.45 * (1 + math.cos(math.pi * min(index, 5) / 5)) + 0.1) for index in range(9)]
    np.testing.assert_allclose(first(lambda x: lr_scheduler.CosineDecayLR(x, 5, 0.1), 9), decay)
    np.testing.assert_allclose(first(behind(False), 9), [0.0005, (0.0005 + decay[2]) / 2, *decay[2:]])
    np.testing.assert_allclose(first(behind(True), 9), [0.0005, 0.00075, *decay[:7]])
    down = first(lambda x: lr_scheduler.PolynomialLR(x, decay_batch=4, power=2), 7)
    np.testing.assert_allclose(down, [0.0009 * (1 - min(index, 4) / 4) ** 2 + 0.0001 for index in range(7)])
    cycle = first(lambda x: lr_scheduler.PolynomialLR(x, decay_batch=4, end_learning_rate=0.0, cycle=True), 9)
    lengths = [4, 4, 4, 4, 4, 8, 8, 8, 8]
    np.testing.assert_allclose(
        cycle, [0.001 * (1 - value / length) for value, length in enumerate(lengths)], atol=1e-15
    )


def test_the_first_beta_is_a_momentum_too() -> None:
    optimizer = optim.Adam([flow.zeros(1)])
    scheduler = lr_scheduler.OneCycleLR(optimizer, 1.0, 20, pct_start=0.5)
    assert optimizer.param_groups[0]["betas"] == (0.95, 0.999)
    for _ in range(9):
        scheduler.step()
    assert optimizer.param_groups[0]["betas"] == (0.85, 0.999)
    for _ in range(11):
        scheduler.step()
    with pytest.raises(ValueError, match="beyond the last"):
        scheduler.step()


def test_cycles_that_begin_at_the_top() -> None:
    cycle = first_rates(lambda x: lr_scheduler.OneCycleLR(x, 1.0, 10, pct_start=0.1, cycle_momentum=False), 10)
    assert cycle == pytest.approx([0.5 + 0.5 * math.cos(math.pi * step / 9) for step in range(10)], abs=1e-5)
    up = lr_scheduler.OneCycleLR(optimizer_of(flow), 1.0, 2, pct_start=1.0)
    assert [up.rate_at(step, 0.04) for step in range(3)] == pytest.approx([0.04, 1.0, 4e-6])
    sawtooth = first_rates(lambda x: lr_scheduler.CyclicLR(x, 0.1, 0.5, 0, 2, cycle_momentum=False), 4)
    assert sawtooth == pytest.approx([0.5, 0.3, 0.5, 0.3])


def test_rates_by_hand() -> None:
    optimizer = optimizer_of(flow)
    scheduler = lr_scheduler.StepLR(optimizer, 2)
    assert [rate[0] for rate in rates(optimizer, scheduler, 5)] == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001])
    optimizer = optimizer_of(flow)
    cosine = lr_scheduler.CosineAnnealingLR(optimizer, 4)
    expected = [0.1 * (1 + math.cos(math.pi * epoch / 4)) / 2 for epoch in range(10)]
    np.testing.assert_allclose([rate[0] for rate in rates(optimizer, cosine, 10)], expected, atol=1e-15)


def test_two_schedules_go_together() -> None:
    optimizer = optimizer_of(flow)
    first = lr_scheduler.StepLR(optimizer, 1, 0.5)
    second = lr_scheduler.StepLR(optimizer, 2, 0.1)
    for _ in range(2):
        first.step()
        second.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * 0.25 * 0.1)


@pytest.mark.parametrize(("name", "arguments"), CASES)
async def test_a_tensor_as_learning_rate_is_changed_in_place_without_waiting(
    name: str, arguments: dict[str, Any]
) -> None:
    optimizer = optimizer_of(flow)
    plain = optimizer_of(flow)
    tensors = []
    for group in optimizer.param_groups:
        group["lr"] = await flow.tensor(group["lr"], dtype=flow.float64)
        tensors.append(group["lr"])
    schedulers = [getattr(lr_scheduler, name)(value, **arguments) for value in (optimizer, plain)]
    for _ in range(6):
        for scheduler in schedulers:
            scheduler.step()
    for group, tensor, expected in zip(optimizer.param_groups, tensors, plain.param_groups, strict=True):
        assert group["lr"] is tensor
        assert (await tensor).item() == pytest.approx(expected["lr"], rel=1e-12)


def together(lib: Any, optimizer: Any, which: str) -> Any:
    schedules = lib.optim.lr_scheduler
    if which == "chained":
        return schedules.ChainedScheduler([schedules.ExponentialLR(optimizer, 0.5), schedules.StepLR(optimizer, 2)])
    low = schedules.ConstantLR(optimizer, 0.5, 100)
    return schedules.SequentialLR(optimizer, [low, schedules.ExponentialLR(optimizer, 0.5)], [1])


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("which", ["chained", "sequential"])
async def test_combined_schedules_of_a_tensor_do_not_wait(which: str, shared: bool) -> None:
    plain, other = optimizer_of(flow), optimizer_of(flow)
    one = await flow.tensor(0.1, dtype=flow.float64)
    for number, group in enumerate(other.param_groups):
        group["lr"] = one if shared else await flow.tensor(0.1 * (number + 1), dtype=flow.float64)
    expected, scheduler = together(flow, plain, which), together(flow, other, which)
    for _ in range(6):
        expected.step()
        scheduler.step()
        assert scheduler.get_last_lr()[0] == pytest.approx(expected.get_last_lr()[0])
    wanted = [group["lr"] for group in plain.param_groups]
    found = [(await group["lr"]).item() for group in other.param_groups]
    assert found == pytest.approx([wanted[0]] * 2 if shared else wanted)


async def test_a_second_schedule_does_not_wait_for_the_rate_in_a_tensor() -> None:
    lr = await flow.tensor(0.1, dtype=flow.float64)
    optimizer = optim.SGD([flow.zeros(1)], lr=lr)
    lr_scheduler.LambdaLR(optimizer, lambda epoch: 1.0)
    matrix = flow.ones(1500, 1500)
    lr.mul_((matrix @ matrix).sum())
    lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5)  # a wait would be a BlockingCallWarning, an error in tests
    assert (await lr).item() == pytest.approx(0.05)


def test_another_change_of_a_tensor_remains_in_effect() -> None:
    lr = flow.tensor(1.0)
    optimizer = optim.SGD([flow.zeros(1)], lr=lr)
    scheduler = lr_scheduler.ExponentialLR(optimizer, 0.5)
    scheduler.step()
    lr.mul_(8)
    scheduler.step()
    assert lr.item() == 2
    optimizer.param_groups[0]["lr"] = flow.tensor(16.0)
    scheduler.step()
    assert scheduler.get_last_lr() == [8]


def test_going_on_from_a_state_dict() -> None:
    optimizer = optimizer_of(flow)
    scheduler = lr_scheduler.CosineAnnealingLR(optimizer, 7)
    expected = rates(optimizer, scheduler, 9)
    optimizer = optimizer_of(flow)
    scheduler = lr_scheduler.CosineAnnealingLR(optimizer, 7)
    rates(optimizer, scheduler, 4)
    other = optimizer_of(flow)
    resumed = lr_scheduler.CosineAnnealingLR(other, 7)
    other.load_state_dict(optimizer.state_dict())
    resumed.load_state_dict(scheduler.state_dict())
    assert resumed.last_epoch == 4
    np.testing.assert_allclose(rates(other, resumed, 5), expected[4:], rtol=1e-12)


# PyTorch forgets how many restarts there were before.
RESUMED = [case for case in CASES if case != ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2, "eta_min": 0.01})]


@pytest.mark.parametrize(("name", "arguments"), RESUMED)
def test_resuming_by_number_as_in_pytorch(name: str, arguments: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    for epochs in range(1, 9):
        found = []
        for lib in (flow, torch):
            optimizer, other = optimizer_of(lib), optimizer_of(lib)
            rates(optimizer, getattr(lib.optim.lr_scheduler, name)(optimizer, **arguments), epochs)
            other.load_state_dict(optimizer.state_dict())
            resumed = getattr(lib.optim.lr_scheduler, name)(other, **arguments, last_epoch=epochs - 1)
            assert resumed.last_epoch == epochs
            found.append(rates(other, resumed, 12))
        np.testing.assert_allclose(found[0], found[1], rtol=1e-12, atol=1e-15)


def test_functions_are_not_part_of_the_state() -> None:
    scheduler = lr_scheduler.LambdaLR(optimizer_of(flow), lambda epoch: 1.0)
    assert set(scheduler.state_dict()) == {"base_lrs", "last_epoch", "_last_lr"}


def test_resuming_by_number_needs_initial_rates() -> None:
    optimizer = optimizer_of(flow)
    with pytest.raises(KeyError, match="initial_lr"):
        lr_scheduler.StepLR(optimizer, 2, last_epoch=3)
    for group in optimizer.param_groups:
        group["initial_lr"] = 0.1
    assert lr_scheduler.StepLR(optimizer, 2, last_epoch=3).last_epoch == 4


def named(schedule: Any, *args: Any, **kwargs: Any) -> Any:
    """Make a schedule, by names of arguments that type checkers do not know."""
    return schedule(*args, **kwargs)


def first_rates(make: Any, epochs: int) -> list[float]:
    optimizer = optim.SGD([flow.zeros(1)], lr=0.1)
    return [rate[0] for rate in rates(optimizer, make(optimizer), epochs)]


@pytest.mark.parametrize(
    "make",
    [
        lambda x: named(lr_scheduler.PolynomialLR, x, decay_batch=4, end_learning_rate=0.02, power=2.0),
        lambda x: named(lr_scheduler.PolynomialLR, x, 4, end_learning_rate=0.02, power=2.0),
        lambda x: named(lr_scheduler.PolynomialLR, x, 4, 0.02, power=2),
        lambda x: named(lr_scheduler.PolynomialLR, x, 4, 0.02, 2.0),
        lambda x: named(lr_scheduler.PolynomialLR, x, 4, 0.02, 2, False),
        lambda x: named(lr_scheduler.PolynomialLR, x, 4, 0.02, 2.0, False, -1),
        lambda x: named(lr_scheduler.PolynomialLR, x, 4, 0.02, 2.0, cycle=False, last_step=-1, verbose=False),
    ],
)
def test_the_form_of_oneflow_is_known_by_its_arguments(make: Any) -> None:
    np.testing.assert_allclose(first_rates(make, 6), [0.08 * (1 - min(index, 4) / 4) ** 2 + 0.02 for index in range(6)])


@pytest.mark.parametrize(
    "make",
    [
        lambda x: lr_scheduler.PolynomialLR(x, 4, 2.0),
        lambda x: lr_scheduler.PolynomialLR(x, 4, 2.0, -1),
        lambda x: lr_scheduler.PolynomialLR(x, total_iters=4, power=2.0, last_epoch=-1),
        lambda x: lr_scheduler.PolynomialLR(x, 4, power=2.0),
    ],
)
def test_otherwise_it_is_that_of_pytorch(make: Any) -> None:
    np.testing.assert_allclose(
        first_rates(make, 6), [0.1 * (1 - min(index, 4) / 4) ** 2 for index in range(6)], atol=1e-17
    )


def test_restarts_that_lose_height_and_come_to_an_end() -> None:
    def wanted(epoch: int) -> float:
        begin, length, restarts = [(0, 2, 0), (0, 2, 0), *[(2, 4, 1)] * 4, *[(6, 8, 2)] * 4][epoch]
        if restarts == 2:
            return 0.01
        top = 0.1 * 0.5**restarts
        return 0.01 + (top - 0.01) * (1 + math.cos(math.pi * (epoch - begin) / length)) / 2

    def make(it: Any) -> Any:
        return lr_scheduler.CosineAnnealingWarmRestarts(it, 2, 2, 0.01, decay_rate=0.5, restart_limit=2)

    np.testing.assert_allclose(first_rates(make, 10), [wanted(epoch) for epoch in range(10)])
    plain = first_rates(lambda x: lr_scheduler.CosineAnnealingWarmRestarts(x, 2, decay_rate=0.5), 6)
    np.testing.assert_allclose(plain, [0.1, 0.05, 0.05, 0.025, 0.025, 0.0125])


def test_a_line_that_begins_at_zero() -> None:
    found = first_rates(lambda x: lr_scheduler.LinearLR(x, 0.0, 1.0, 4), 7)
    np.testing.assert_allclose(found, [0.1 * min(index, 4) / 4 for index in range(7)])


def test_without_epochs_the_last_rate_holds_from_the_start() -> None:
    assert first_rates(lambda x: lr_scheduler.LinearLR(x, 0.5, 0.25, 0), 3) == [0.025] * 3
    assert first_rates(lambda x: lr_scheduler.ConstantLR(x, 0.5, 0), 3) == [0.1] * 3


def test_a_constant_rate_ends_between_epochs() -> None:
    assert first_rates(lambda x: lr_scheduler.ConstantLR(x, 0.5, 1.5), 4) == [0.05, 0.05, 0.1, 0.1]  # type: ignore[arg-type]


@pytest.mark.parametrize("by_position", [False, True])
def test_schedules_that_go_on_as_if_they_had_been_at_work_from_the_start(by_position: bool) -> None:
    def make(it: Any, rescaling: Any) -> Any:
        warm = lr_scheduler.LinearLR(it, 0.0, 1.0, 2)
        poly = lr_scheduler.PolynomialLR(it, decay_batch=8, end_learning_rate=0.0)
        if by_position:
            return lr_scheduler.SequentialLR(it, [warm, poly], [3], rescaling)
        return lr_scheduler.SequentialLR(it, [warm, poly], [3], interval_rescaling=rescaling)

    warm = [0.0, 0.05, 0.1]
    shared = first_rates(lambda x: make(x, False), 6)
    np.testing.assert_allclose(shared, [*warm, *[0.1 * (1 - epoch / 8) for epoch in (3, 4, 5)]])
    apart = first_rates(lambda x: make(x, [True]), 6)
    np.testing.assert_allclose(apart, [*warm, *[0.1 * (1 - epoch / 8) for epoch in (0, 1, 2)]])


@pytest.mark.parametrize(("name", "arguments"), CASES)
def test_both_names_of_the_number_of_the_last_step(name: str, arguments: dict[str, Any]) -> None:
    optimizer = optimizer_of(flow)
    for group in optimizer.param_groups:
        group["initial_lr"] = group["lr"]
    if name == "OneCycleLR":
        for group in optimizer.param_groups:
            group.update(initial_lr=0.01, max_lr=0.1, min_lr=0.001)
    made = [
        named(getattr(lr_scheduler, name), optimizer, **arguments, **{key: 3}) for key in ("last_step", "last_epoch")
    ]
    for schedule in made:
        assert (schedule.last_step, schedule.last_epoch) == (4, 4)
        schedule.last_step = 7
        assert schedule.last_epoch == 7
        assert "last_step" not in schedule.state_dict()


def test_schedules_of_both_kinds_of_names() -> None:
    optimizer = optimizer_of(flow)
    for schedule in (lr_scheduler.CosineDecayLR, lr_scheduler.WarmUpLR):
        arguments = {"decay_steps": 3} if schedule is lr_scheduler.CosineDecayLR else {}
        for key in ("last_step", "last_epoch"):
            assert named(schedule, optimizer, **arguments, **{key: -1}).last_step == 0

    class Own(lr_scheduler.LRScheduler):
        def __init__(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
            super().__init__(optimizer, *args, **kwargs)

        def rate_at(self, epoch: int, base: float, group: int = 0) -> float:
            return base / (epoch + 1)

    assert named(Own, optimizer, last_step=-1).last_epoch == 0


def test_rates_are_printed_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    schedule = named(lr_scheduler.StepLR, optim.SGD([flow.zeros(1)], lr=0.1), 1, verbose=True)
    schedule.step()
    assert capsys.readouterr().out.splitlines() == [
        "StepLR: epoch 0, learning rate of group 0: 1.0000e-01",
        "StepLR: epoch 1, learning rate of group 0: 1.0000e-02",
    ]
    assert "verbose" not in schedule.state_dict()
    named(lr_scheduler.StepLR, optim.SGD([flow.zeros(1)], lr=0.1), 1, verbose=False)
    assert capsys.readouterr().out == ""


def test_wrong_arguments_are_refused() -> None:
    optimizer = optimizer_of(flow)
    with pytest.raises(TypeError, match="expected an optimizer, got int"):
        lr_scheduler.StepLR(3, 2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="step_size"):
        lr_scheduler.StepLR(optimizer, 0)
    with pytest.raises(ValueError, match="T_max"):
        lr_scheduler.CosineAnnealingLR(optimizer, 0)
    with pytest.raises(ValueError, match="got 1 functions for 2 groups"):
        lr_scheduler.LambdaLR(optimizer, [lambda epoch: 1.0])
    chained = lr_scheduler.ChainedScheduler([lr_scheduler.StepLR(optimizer, 2)])
    for make, error, match in (
        (lambda: named(lr_scheduler.PolynomialLR, optimizer, 100, 1.0, -1, 1, 2, 3), TypeError, "got 6 arguments"),
        (lambda: named(lr_scheduler.PolynomialLR, optimizer, 100, steps=3), TypeError, "unexpected argument 'steps'"),
        (lambda: named(lr_scheduler.PolynomialLR, optimizer, 3, total_iters=3), TypeError, "by its position"),
        (lambda: named(lr_scheduler.StepLR, optimizer, 3, last_step=3, last_epoch=3), TypeError, "are one"),
        (lambda: named(lr_scheduler.StepLR, optimizer, 3, last_step=0.5), TypeError, "last_epoch must be an integer"),
        (
            lambda: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3, restart_limit=-1),
            ValueError,
            "restart_limit",
        ),
        (
            lambda: lr_scheduler.SequentialLR(optimizer, [chained] * 2, [3], interval_rescaling=[True, True]),
            ValueError,
            "one for each of 1 milestones",
        ),
        (
            lambda: lr_scheduler.SequentialLR(optimizer, [chained] * 2, [3], interval_rescaling=False),
            NotImplementedError,
            "no rate is known in advance",
        ),
        (lambda: named(lr_scheduler.PolynomialLR, optimizer, 100, decay_batch=3), TypeError, "by its position"),
        (lambda: named(lr_scheduler.PolynomialLR, optimizer, total_iters=9, cycle=True), ValueError, "not both"),
        (lambda: named(lr_scheduler.PolynomialLR, optimizer, cycle=True), ValueError, "give decay_batch"),
        (lambda: lr_scheduler.PolynomialLR(optimizer, 0), ValueError, "at least one epoch"),
        (lambda: lr_scheduler.ConstantLR(optimizer, 2.0), ValueError, "factor"),
        (lambda: lr_scheduler.LinearLR(optimizer, -0.1), ValueError, "start_factor"),
        (lambda: lr_scheduler.LinearLR(optimizer, end_factor=2.0), ValueError, "end_factor"),
        (lambda: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 0), ValueError, "T_0"),
        (lambda: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 2).step(-1), ValueError, "before 0"),
        (lambda: lr_scheduler.CosineDecayLR(optimizer, 0), ValueError, "decay_steps"),
        (lambda: lr_scheduler.CyclicLR(optimizer, 0.1, 1.0, mode="square"), ValueError, "mode"),
        (lambda: lr_scheduler.CyclicLR(optimizer, 0.1, [1.0]), ValueError, "got 1 rates for 2 groups"),
        (lambda: lr_scheduler.OneCycleLR(optimizer, 0.1), ValueError, "total_steps"),
        (lambda: lr_scheduler.OneCycleLR(optimizer, 0.1, 0), ValueError, "positive integer"),
        (lambda: lr_scheduler.OneCycleLR(optimizer, 0.1, 9, pct_start=2.0), ValueError, "pct_start"),
        (lambda: lr_scheduler.OneCycleLR(optimizer, 0.1, 9, anneal_strategy="log"), ValueError, "anneal_strategy"),
        (lambda: lr_scheduler.CyclicLR(optim.Adagrad([flow.zeros(1)]), 0.1, 1.0), ValueError, "neither momentum"),
        (lambda: lr_scheduler.ReduceLROnPlateau(optimizer, factor=1.0), ValueError, "factor"),
        (lambda: lr_scheduler.ReduceLROnPlateau(optimizer, "low"), ValueError, "mode"),
        (lambda: lr_scheduler.ReduceLROnPlateau(optimizer, threshold_mode="x"), ValueError, "threshold_mode"),
        (lambda: lr_scheduler.ChainedScheduler([]), ValueError, "at least one"),
        (
            lambda: lr_scheduler.ChainedScheduler([lr_scheduler.ReduceLROnPlateau(optimizer)]),
            TypeError,
            "cannot be combined",
        ),
        (lambda: lr_scheduler.SequentialLR(optimizer_of(flow), [chained], []), ValueError, "another optimizer"),
        (lambda: lr_scheduler.SequentialLR(optimizer, [chained], [3]), ValueError, "need 0 milestones"),
        (lambda: lr_scheduler.SequentialLR(optimizer, [chained] * 3, [3, 2]), ValueError, "must not go down"),
        (lambda: chained.step(3), NotImplementedError, "takes no epoch"),
        (lambda: lr_scheduler.WarmUpLR(chained), NotImplementedError, "no rate is known in advance"),
        (lambda: lr_scheduler.WarmUpLR(optimizer, warmup_method="cubic"), ValueError, "warmup_method"),
        (lambda: lr_scheduler.WarmUpLR(optimizer, warmup_iters=0), ValueError, "warmup_iters"),
    ):
        with pytest.raises(error, match=match):
            make()
    with pytest.raises(NotImplementedError, match="defines no rate_at"):
        lr_scheduler.LRScheduler(optimizer)


def test_a_schedule_changes_the_steps() -> None:
    parameter = flow.zeros(1, requires_grad=True)
    optimizer = optim.SGD([parameter], lr=1.0)
    scheduler = lr_scheduler.StepLR(optimizer, 1, 0.5)
    for _ in range(3):
        parameter.grad = flow.ones(1)
        optimizer.step()
        scheduler.step()
    assert parameter.item() == -1.75
