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
    ("CosineAnnealingLR", {"T_max": 5}),
    ("CosineAnnealingLR", {"T_max": 4, "eta_min": 0.01}),
    ("LambdaLR", {"lr_lambda": lambda epoch: 0.9**epoch}),
    ("LambdaLR", {"lr_lambda": [lambda epoch: epoch + 1, lambda epoch: 1 / (epoch + 1)]}),
]


def optimizer_of(lib: Any) -> Any:
    return lib.optim.SGD(
        [{"params": [lib.zeros(1, requires_grad=True)]}, {"params": [lib.zeros(1, requires_grad=True)], "lr": 0.2}],
        lr=0.1,
    )


def rates(optimizer: Any, scheduler: Any, epochs: int) -> list[list[float]]:
    found = []
    for _ in range(epochs):
        found.append([float(group["lr"]) for group in optimizer.param_groups])
        assert found[-1] == [float(it) for it in scheduler.get_last_lr()]
        optimizer.step()
        scheduler.step()
    return found


@pytest.mark.parametrize(("name", "arguments"), CASES)
def test_rates_are_those_of_pytorch(name: str, arguments: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    found = []
    for lib in (flow, torch):
        optimizer = optimizer_of(lib)
        found.append(rates(optimizer, getattr(lib.optim.lr_scheduler, name)(optimizer, **arguments), 17))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12, atol=1e-15)


def test_rates_by_hand() -> None:
    optimizer = optimizer_of(flow)
    scheduler = lr_scheduler.StepLR(optimizer, 2)
    assert [it[0] for it in rates(optimizer, scheduler, 5)] == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001])
    optimizer = optimizer_of(flow)
    cosine = lr_scheduler.CosineAnnealingLR(optimizer, 4)
    expected = [0.1 * (1 + math.cos(math.pi * epoch / 4)) / 2 for epoch in range(10)]
    np.testing.assert_allclose([it[0] for it in rates(optimizer, cosine, 10)], expected, atol=1e-15)


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
    schedulers = [getattr(lr_scheduler, name)(it, **arguments) for it in (optimizer, plain)]
    for _ in range(6):
        for scheduler in schedulers:
            scheduler.step()
    for group, tensor, expected in zip(optimizer.param_groups, tensors, plain.param_groups, strict=True):
        assert group["lr"] is tensor
        assert (await tensor).item() == pytest.approx(expected["lr"], rel=1e-12)


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


def test_what_is_refused() -> None:
    optimizer = optimizer_of(flow)
    with pytest.raises(TypeError, match="expected an optimizer, got int"):
        lr_scheduler.StepLR(3, 2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="step_size"):
        lr_scheduler.StepLR(optimizer, 0)
    with pytest.raises(ValueError, match="T_max"):
        lr_scheduler.CosineAnnealingLR(optimizer, 0)
    with pytest.raises(ValueError, match="got 1 functions for 2 groups"):
        lr_scheduler.LambdaLR(optimizer, [lambda epoch: 1.0])
    with pytest.raises(NotImplementedError, match="defines no get_lr"):
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
