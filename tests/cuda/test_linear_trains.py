"""Small models train on the device as they do on the host."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import vmflow as flow
from vmflow import nn, optim

pytestmark = pytest.mark.emulated

MODELS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(6, 3),
    "perceptron": lambda: nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3)),
}

OPTIMIZERS: dict[str, Callable[[nn.Module], optim.Optimizer]] = {
    "SGD": lambda model: optim.SGD(model.parameters(), 0.05),
    "momentum": lambda model: optim.SGD(model.parameters(), 0.02, momentum=0.9),
    "Adam": lambda model: optim.Adam(model.parameters(), 0.01),
    "AdamW": lambda model: optim.AdamW(model.parameters(), 0.01, weight_decay=0.1),
}

STEPS = 10


def _train(model: nn.Module, choose: Callable[[nn.Module], optim.Optimizer], device: str) -> list[float]:
    """The losses of some steps on batches of fixed random numbers."""
    random = np.random.default_rng(0)
    optimizer = choose(model)
    losses = []
    for _ in range(STEPS):
        batch = flow.tensor(random.standard_normal((20, 6)).astype(np.float32), device=device)
        wanted = batch[:, :3] * 2 - batch[:, 3:]
        loss = (model(batch) - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", MODELS)
def test_training_is_the_same_on_both_devices(model: str, optimizer: str) -> None:
    flow.manual_seed(0)
    with_host = MODELS[model]().to("cpu")
    with_device = MODELS[model]().to("cuda")
    with_device.load_state_dict(with_host.state_dict())
    expected = _train(with_host, OPTIMIZERS[optimizer], "cpu")
    found = _train(with_device, OPTIMIZERS[optimizer], "cuda")
    assert expected[-1] < expected[0]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    for theirs, mine in zip(with_host.parameters(), with_device.parameters(), strict=True):
        assert mine.device.type == "cuda"
        np.testing.assert_allclose(mine.detach().cpu().numpy(), theirs.detach().numpy(), rtol=1e-5, atol=1e-5)
