"""Averages of weights: against PyTorch's and by hand; their rates; batch norms seen anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.support import instructions_issued
from vmflow import nn, optim
from vmflow.optim import swa_utils


@pytest.mark.host  # elsewhere the values read between are copied, which takes instructions too
def test_the_plain_average_is_one_instruction() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    averaged = swa_utils.AveragedModel(model)
    seen: list[list[np.ndarray]] = []
    for step in range(4):
        with flow.no_grad():
            for number, parameter in enumerate(model.parameters()):
                parameter.fill_(1.0 + number * step * step)
            model[1].running_mean.fill_(float(step))
        seen.append([value.detach().numpy().copy() for value in model.parameters()])
        with instructions_issued() as issued:
            averaged.update_parameters(model)
        assert len(issued) == 1
    for have, *each in zip(averaged.module.parameters(), *seen, strict=True):
        np.testing.assert_allclose(have.detach().numpy(), np.mean(each, 0), rtol=1e-6)
    assert averaged.n_averaged.item() == 4
    assert averaged.module.get_buffer("1.running_mean").tolist() == [3, 3]
    assert averaged(flow.ones(2, 3)).shape == (2, 2)
    again = swa_utils.AveragedModel(model)
    again.load_state_dict(averaged.state_dict())
    assert again.n_averaged.item() == 4


@pytest.mark.parametrize("which", ["one", "all", "own", "own all", "own one"])
def test_moving_averages(which: str) -> None:
    def own(averaged: Any, current: Any, number: Any) -> None:
        for old, new in zip(averaged, current, strict=True):
            old.copy_(old * 0.75 + new * 0.25)

    cases: dict[str, dict[str, Any]] = {
        "one": {"avg_fn": swa_utils.get_ema_avg_fn(0.75)},
        "all": {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.75)},
        "own": {"avg_fn": lambda old, new, number: old * 0.75 + new * 0.25},
        "own one": {"avg_fn": lambda *it: swa_utils.get_ema_avg_fn(0.75)(*it)},
        "own all": {"multi_avg_fn": own},
    }
    model = nn.Linear(1, 1)
    averaged = swa_utils.AveragedModel(model, **cases[which])
    for value in (4.0, 8.0, 0.0):
        with flow.no_grad():
            model.weight.fill_(value)
        averaged.update_parameters(model)
    assert averaged.module.weight.item() == (4 * 0.75 + 8 * 0.25) * 0.75
    assert averaged.n_averaged.item() == 3


def test_buffers_may_be_averaged_too() -> None:
    model = nn.BatchNorm1d(1)
    averaged = swa_utils.AveragedModel(model, use_buffers=True)
    for value in (1.0, 2.0):
        model.running_mean.fill_(value)
        model.num_batches_tracked.fill_(int(value))
        averaged.update_parameters(model)
    assert averaged.module.running_mean.item() == 1.5
    assert averaged.module.num_batches_tracked.item() == 2
    with pytest.raises(ValueError, match="not both"):
        swa_utils.AveragedModel(model, avg_fn=lambda *it: it[0], multi_avg_fn=lambda *it: None)
    with pytest.raises(ValueError, match="decay"):
        swa_utils.get_ema_avg_fn(2.0)


@pytest.mark.parametrize("arguments", [{}, {"anneal_epochs": 0}, {"anneal_epochs": 7, "anneal_strategy": "linear"}])
def test_rates_are_those_of_pytorch(arguments: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    found: list[list[float]] = []
    for lib in (flow, torch):
        optimizer = lib.optim.SGD([lib.zeros(1, requires_grad=True)], lr=0.1)
        scheduler = lib.optim.swa_utils.SWALR(optimizer, 0.02, **arguments)
        found.append([])
        for _ in range(15):
            found[-1].append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        if lib is flow:
            known = [scheduler.rate_at(epoch, 0.1) for epoch in range(15)]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-10)
    np.testing.assert_allclose(found[0], known, rtol=1e-10)


@pytest.mark.parametrize("anneal_epochs", [0, 4])
@pytest.mark.parametrize("milestones", [[5], [0], [3, 3]])
def test_annealing_behind_another_schedule_as_in_pytorch(milestones: list[int], anneal_epochs: int) -> None:
    torch = pytest.importorskip("torch")
    found: list[list[float]] = []
    for lib in (flow, torch):
        optimizer = lib.optim.SGD([lib.zeros(1, requires_grad=True)], lr=0.5)
        schedules = lib.optim.lr_scheduler
        parts = [schedules.ExponentialLR(optimizer, 0.9) for _ in milestones]
        parts.append(lib.optim.swa_utils.SWALR(optimizer, 0.05, anneal_epochs))
        scheduler = schedules.SequentialLR(optimizer, parts, milestones)
        found.append([])
        for _ in range(12):
            found[-1].append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
    np.testing.assert_allclose(found[0], found[1], rtol=1e-10)


@pytest.mark.parametrize("anneal_epochs", [0, 4])
def test_annealing_goes_on_by_the_number_of_the_epoch(anneal_epochs: int) -> None:
    optimizer, other = [flow.optim.SGD([flow.zeros(1)], lr=0.5) for _ in range(2)]
    scheduler = swa_utils.SWALR(optimizer, 0.1, anneal_epochs)
    for _ in range(2):
        scheduler.step()
    other.load_state_dict(optimizer.state_dict())
    resumed = swa_utils.SWALR(other, 0.1, anneal_epochs, last_epoch=1)
    for _ in range(4):
        assert resumed.get_last_lr() == scheduler.get_last_lr()
        resumed.step()
        scheduler.step()


def test_wrong_rates_are_refused() -> None:
    optimizer = optim.SGD([flow.zeros(1)])
    for arguments, match in (
        ({"anneal_strategy": "log"}, "anneal_strategy"),
        ({"anneal_epochs": -1}, "anneal_epochs"),
        ({"swa_lr": [0.1, 0.2]}, "got 2 rates for 1 groups"),
    ):
        given: dict[str, Any] = {"swa_lr": 0.1, **arguments}
        with pytest.raises(ValueError, match=match):
            swa_utils.SWALR(optimizer, **given)


def test_batch_norms_are_seen_anew() -> None:
    data = np.random.default_rng(0).normal(3, 2, size=(6, 8, 2)).astype(np.float32)
    model = nn.Sequential(nn.BatchNorm1d(2, momentum=0.3)).eval()
    model[0].running_mean.fill_(100.0)
    swa_utils.update_bn([(flow.tensor(batch), None) for batch in data], model)
    np.testing.assert_allclose(model[0].running_mean.numpy(), data.mean((0, 1)), rtol=1e-5)
    np.testing.assert_allclose(model[0].running_var.numpy(), data.var(1, ddof=1).mean(0), rtol=1e-5)
    assert model[0].momentum == 0.3
    assert not model[0].training
    swa_utils.update_bn([], nn.Linear(1, 1))


def test_statistics_of_instance_norms_go_on_as_in_training() -> None:
    torch = pytest.importorskip("torch")
    data = np.random.default_rng(0).normal(3, 2, size=(6, 4, 2, 5)).astype(np.float32)
    found = []
    for lib in (flow, torch):
        layers = lib.nn.BatchNorm1d(2), lib.nn.InstanceNorm1d(2, momentum=0.3, track_running_stats=True)
        model = lib.nn.Sequential(*layers)
        model[1].running_mean.fill_(100.0)
        lib.optim.swa_utils.update_bn([lib.tensor(batch) for batch in data], model)
        assert model[1].momentum == 0.3
        found.append([buffer.numpy() for norm in model for buffer in (norm.running_mean, norm.running_var)])
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4)
    only = nn.Sequential(nn.InstanceNorm1d(2, track_running_stats=True))
    only[0].running_mean.fill_(100.0)
    swa_utils.update_bn([flow.tensor(batch) for batch in data], only)
    assert only[0].running_mean.tolist() == [100.0, 100.0]


def test_a_model_of_other_shapes_is_refused_before_an_average_changes() -> None:
    averaged = swa_utils.AveragedModel(nn.Linear(1, 2))
    for other in (nn.Linear(3, 2), nn.Linear(1, 2, bias=False)):
        with pytest.raises(ValueError, match=r"the averages have the shapes \[\[2, 1\], \[2\]\]"):
            averaged.update_parameters(other)
    assert averaged.n_averaged.item() == 0
