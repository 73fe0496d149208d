"""Names of optimizers and of schedules of learning rates."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from .case import Call, Case


def _trained(name: str, **settings: Any) -> Call:
    """Parameters after some steps, with the settings that PyTorch has for how a step is carried out."""

    def call(t: Any) -> list[Any]:
        generator = np.random.default_rng(0)
        parameters = [t.tensor(generator.normal(size=value), requires_grad=True) for value in ((3, 4), (4, 2))]
        optimizer = getattr(t.optim, name)(parameters, **settings)
        for _ in range(5):
            for parameter in parameters:
                parameter.grad = t.tensor(generator.normal(size=tuple(parameter.shape)))
            optimizer.step()
        return parameters

    return call


def _refused(name: str, **settings: Any) -> Call:
    def call(t: Any) -> str:
        try:
            getattr(t.optim, name)([t.zeros(1, requires_grad=True)], **settings)
        except ValueError:
            return "refused"
        return "taken"

    return call


def _rates(name: str, *args: Any, **kwargs: Any) -> Call:
    """The learning rates of a schedule."""

    def call(t: Any) -> list[float]:
        optimizer = t.optim.SGD([t.zeros(1, requires_grad=True)], lr=0.1, momentum=0.9)
        scheduler = getattr(t.optim.lr_scheduler, name)(optimizer, *args, **kwargs)
        found: list[float] = []
        for _ in range(8):
            found.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        return found

    return call


def _uncorrected() -> list[Any]:
    """Adam's first step without corrections, by hand: the averages are a tenth and a thousandth of what they see."""
    slope = np.array([0.5, -2.0])
    return [np.array([1.0, 2.0]) - 0.1 * (0.1 * slope) / (np.sqrt(0.001 * slope**2) + 1e-8)]


def _one_step(name: str) -> Call:
    def call(t: Any) -> list[Any]:
        parameter = t.tensor(np.array([1.0, 2.0]), requires_grad=True)
        optimizer = getattr(t.optim, name)([parameter], lr=0.1, weight_decay=0, do_bias_correction=False)
        parameter.grad = t.tensor(np.array([0.5, -2.0]))
        optimizer.step()
        return [parameter]

    return call


def _last_step(t: Any) -> list[int]:
    optimizer = t.optim.SGD([t.zeros(1)], lr=0.1)
    scheduler = t.optim.lr_scheduler.StepLR(optimizer, 2, last_step=-1)
    scheduler.step()
    return [scheduler.last_step, scheduler.last_epoch]


CASES: Final = [
    Case("optim.ASGD", _trained("ASGD", lr=0.1, lambd=0.1, t0=2)),
    Case("optim.ASGD", _trained("ASGD", foreach=False, capturable=False, differentiable=False)),
    Case("optim.Adafactor", _trained("Adafactor", lr=0.1, weight_decay=0.1)),
    Case("optim.Muon", _trained("Muon"), tolerance=2e-3),
    Case("optim.SGD", _trained("SGD", momentum=0.9, nesterov=True, foreach=True)),
    Case("optim.SGD", _refused("SGD", nesterov=True)),
    Case("optim.SGD", _refused("SGD", nesterov=True, momentum=0.9, dampening=0.5)),
    Case("optim.Adam", _trained("Adam", foreach=None, fused=False, capturable=False, differentiable=False)),
    Case("optim.Adam", _one_step("Adam"), _uncorrected),
    Case("optim.AdamW", _trained("AdamW", foreach=True, capturable=False)),
    Case("optim.AdamW", _one_step("AdamW"), _uncorrected),
    Case("optim.RMSprop", _trained("RMSprop", foreach=True, maximize=True)),
    Case("optim.lr_scheduler.PolynomialLR", _rates("PolynomialLR", 4, 2.0)),
    Case(
        "optim.lr_scheduler.PolynomialLR",
        _rates("PolynomialLR", 4, 0.02, 2.0, False),
        lambda: [0.08 * (1 - min(index, 4) / 4) ** 2 + 0.02 for index in range(8)],
    ),
    Case("optim.lr_scheduler.CosineAnnealingWarmRestarts", _rates("CosineAnnealingWarmRestarts", 2, 2, 0.01)),
    Case(
        "optim.lr_scheduler.CosineAnnealingWarmRestarts",
        _rates("CosineAnnealingWarmRestarts", 1, decay_rate=0.5, restart_limit=3),
        lambda: [0.1, 0.05, 0.025, *[0.0] * 5],
    ),
    Case("optim.lr_scheduler.LinearLR", _rates("LinearLR", 0.5, total_iters=4)),
    Case("optim.lr_scheduler.LRScheduler.last_step", _last_step, lambda: [1, 1]),
]
