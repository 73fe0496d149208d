"""Models as graphs compute the same as eagerly, and training them gives the same losses at each step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.graph_mode.support import Of, Train, assert_same

from .sources import DIGITS, GPT2, LENET, RESNET18, SEQUENCE, TRAINING, loaded

STEPS = 8


@pytest.mark.parametrize("name", ["lenet", "resnet18", "gpt2", "sequence"])
def test_eval_graphs_compute_the_same_as_the_model(name: str) -> None:
    module = loaded({"lenet": LENET, "resnet18": RESNET18, "gpt2": GPT2, "sequence": SEQUENCE}[name], "vmflow")
    model = module.build().eval()
    operands = [flow.tensor(operand) for operand in module.inputs(np.random.default_rng(2))]
    with flow.no_grad():
        expected = model(*operands)
    exact, fused = Of(model, model), Of(model, model)
    exact.config.allow_fusion(False)
    for results in (exact(*operands), exact(*operands), exact.run_by_vm(*operands)):
        assert_same(results, expected)
    np.testing.assert_allclose(fused(*operands).numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)


def _pixels(random: np.random.Generator) -> tuple[Any, Any]:
    return random.random((32, 1, 8, 8), np.float32), random.integers(0, 10, 32)


def _characters(random: np.random.Generator) -> tuple[Any, Any]:
    text = random.integers(0, 211, (4, 33))
    return text[:, :-1].copy(), text[:, 1:].copy()


def _series(random: np.random.Generator) -> tuple[Any, Any]:
    return random.standard_normal((16, 12, 1)).astype(np.float32), random.standard_normal(16).astype(np.float32)


CASES = {
    "digits": (DIGITS, "classify", _pixels, {"lr": 2e-3, "weight_decay": 0.01}),
    "characters": (GPT2, "next_token", _characters, {"lr": 1e-3, "weight_decay": 0.1, "max_norm": 1.0}),
    "series": (SEQUENCE, "forecast", _series, {"lr": 5e-3, "max_norm": 0.5}),
}


@pytest.mark.parametrize("fusion", [False, True], ids=["exact", "fused"])
@pytest.mark.parametrize("name", CASES)
def test_training_by_graphs_has_the_losses_of_eager_training(name: str, fusion: bool) -> None:
    source, loss, draw, settings = CASES[name]
    random = np.random.default_rng(0)
    batches = [draw(random) for _ in range(STEPS)]
    training = loaded(TRAINING, "vmflow")
    model, twin = loaded(source, "vmflow").build(), loaded(source, "vmflow").build()
    twin.load_state_dict({name: value.clone() for name, value in model.state_dict().items()})
    expected = training.train(twin, getattr(training, loss), batches, **settings)
    model.train()
    group = {"params": model.parameters(), "clip_grad_max_norm": settings.get("max_norm")}
    optimizer = flow.optim.AdamW([group], lr=settings["lr"], weight_decay=settings.get("weight_decay", 0.0))
    schedule = flow.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS)
    graph = Train(model, getattr(training, loss), optimizer, schedule, fusion)
    found = [graph(*[flow.tensor(entry) for entry in batch]).item() for batch in batches]
    if fusion:
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    else:
        assert found == expected
        assert_same(dict(model.state_dict()), dict(twin.state_dict()))
