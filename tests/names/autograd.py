"""Names of automatic differentiation."""

from __future__ import annotations

from typing import Any, Final

from .case import Case


def _modes(t: Any) -> list[bool]:
    """What modes say of themselves, in their forms."""
    found: list[bool] = []

    def look() -> None:
        found.extend([t.is_grad_enabled(), t.is_inference_mode_enabled()])

    for mode in (t.no_grad, t.no_grad(), t.enable_grad, t.enable_grad(), t.inference_mode, t.inference_mode(False)):
        mode(look)()
    for mode in (t.no_grad(), t.enable_grad(), t.inference_mode(), t.inference_mode(mode=False)):
        with mode:
            look()
    t.set_grad_enabled(False)
    look()
    t.set_grad_enabled(True)
    look()
    with t.autograd.grad_mode.set_grad_enabled(mode=False):
        look()
    return found


def _anomaly(t: Any) -> list[bool]:
    found: list[bool] = []
    with t.autograd.set_detect_anomaly(True):
        found.append(t.is_anomaly_enabled())
    with t.autograd.set_detect_anomaly(False, check_nan=True):
        found.append(t.is_anomaly_enabled())
    found.append(t.is_anomaly_enabled())
    return found


def _threads(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    with t.autograd.set_multithreading_enabled(False):
        (x * 2).sum().backward()
    return x.grad


CASES: Final = [
    *[
        Case(name, _modes)
        for name in (
            "no_grad",
            "enable_grad",
            "inference_mode",
            "set_grad_enabled",
            "is_inference_mode_enabled",
            "autograd.inference_mode",
            "autograd.grad_mode.no_grad",
        )
    ],
    Case("autograd.set_detect_anomaly", _anomaly),
    Case("autograd.set_multithreading_enabled", _threads),
]
