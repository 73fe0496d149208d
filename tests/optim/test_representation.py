"""How optimizers and schedules are shown: as PyTorch's, less the settings of its kernels that there are none for."""

from __future__ import annotations

from typing import Any

import pytest

import vmflow as flow

torch = pytest.importorskip("torch", reason="compares with PyTorch")

OF_KERNELS = ("capturable:", "differentiable:", "foreach:", "fused:")


def _shown(library: Any, name: str, **settings: Any) -> list[str]:
    groups = [{"params": [library.zeros(2, requires_grad=True)]}, {"params": [library.zeros(1)], "lr": 0.5}]
    optimizer = getattr(library.optim, name)(groups, lr=0.1, **settings)
    library.optim.lr_scheduler.StepLR(optimizer, 3)
    return [line for line in repr(optimizer).split("\n") if not line.strip().startswith(OF_KERNELS)]


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
def test_optimizers_are_shown_as_in_pytorch(name: str) -> None:
    assert _shown(flow, name, weight_decay=0.25) == _shown(torch, name, weight_decay=0.25)


def test_schedules_are_shown_as_any_object() -> None:
    shown = []
    for library in (flow, torch):
        optimizer = library.optim.SGD([library.zeros(1, requires_grad=True)], lr=0.1)
        shown.append(repr(library.optim.lr_scheduler.StepLR(optimizer, 3)).split(".")[-1].split(" at ")[0])
    assert shown[0] == shown[1] == "StepLR object"
