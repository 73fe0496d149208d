"""A language model and a convolutional network, trained by any spread as on one rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import distributed as dist, nn, optim, sbp

pytestmark = [pytest.mark.host, pytest.mark.slow]

STEPS = 20


class Gpt(nn.Module):
    """Two layers of a transformer over a vocabulary of 20."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(20, 16), nn.Embedding(8, 16)
        self.layers = nn.ModuleList(
            [nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True) for _ in range(2)]
        )
        self.head = nn.Linear(16, 20)

    def forward(self, x: flow.Tensor, places: flow.Tensor) -> flow.Tensor:
        """The scores of the next token."""
        hidden = self.tokens(x) + self.places(places)
        for layer in self.layers:
            hidden = layer(hidden)
        scores: flow.Tensor = self.head(hidden)
        return scores.reshape(-1, 20)


class LeNet(nn.Module):
    """Two convolutions and two dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 8, 3)
        self.fc1, self.fc2 = nn.Linear(8, 16), nn.Linear(16, 5)

    def forward(self, x: flow.Tensor, places: flow.Tensor) -> flow.Tensor:
        """The scores of the classes."""
        x = nn.functional.max_pool2d(self.conv1(x).relu(), 2)
        x = nn.functional.max_pool2d(self.conv2(x).relu(), 2)
        scores: flow.Tensor = self.fc2(self.fc1(x.flatten(1)).relu())
        return scores


# By the end of a parameter's name, how it is spread where layers are.
TENSOR_PARALLEL = {
    "linear1.weight": sbp.split(0),
    "linear1.bias": sbp.split(0),
    "linear2.weight": sbp.split(1),
    "fc1.weight": sbp.split(0),
    "fc1.bias": sbp.split(0),
    "fc2.weight": sbp.split(1),
    "head.weight": sbp.split(0),
    "head.bias": sbp.split(0),
    "tokens.weight": sbp.split(1),
}
MESHES: dict[str, Any] = {"data": [0, 1, 2, 3], "tensor": [0, 1, 2, 3], "both": [[0, 1], [2, 3]]}


def train(kind: str, way: str | None = None) -> list[float]:
    """The losses of the steps."""
    flow.manual_seed(0)
    model: nn.Module = Gpt() if kind == "gpt" else LeNet()
    if kind == "gpt":
        x = flow.tensor(np.arange(64).reshape(8, 8) % 20)
        y = ((x + 1) % 20).reshape(-1)
    else:
        x = flow.tensor(np.random.default_rng(1).normal(size=(8, 1, 12, 12)).astype("f4"))
        y = flow.arange(8) % 5
    places = flow.arange(8)
    if way is not None:
        where = flow.placement("cpu", MESHES[way])
        everywhere = [sbp.broadcast] * len(where.shape)
        batch = {"data": [sbp.split(0)], "tensor": [sbp.broadcast], "both": [sbp.split(0), sbp.broadcast]}[way]
        x, y = [each.to_global(where, everywhere).to_global(sbp=batch) for each in (x, y)]
        places = places.to_global(where, everywhere)
        model.to_global(where, everywhere)
        if way != "data":
            with flow.no_grad():
                for name, parameter in model.named_parameters():
                    ending = ".".join(name.split(".")[-2:])
                    how = [*everywhere[1:], TENSOR_PARALLEL.get(ending, sbp.broadcast)]
                    parameter.data = parameter.to_global(sbp=how)
    optimizer = optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for _ in range(STEPS):
        loss = nn.functional.cross_entropy(model(x, places), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("way", MESHES)
@pytest.mark.parametrize("kind", ["gpt", "lenet"])
def test_losses_are_those_of_one_rank(kind: str, way: str) -> None:
    wanted = train(kind)
    assert wanted[-1] < wanted[0]
    for losses in dist.simulate(lambda: train(kind, way), 4, seed=1):
        np.testing.assert_allclose(losses, wanted, rtol=1e-5)


def train_in_parts(rank: int | None = None) -> list[float]:
    """The losses of a whole batch, by the usual wrapper of a local module if a rank is given."""
    flow.manual_seed(0 if rank is None else rank)
    model: nn.Module = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8).eval(), nn.Linear(8, 4))
    chance = np.random.default_rng(2)
    x, y = flow.tensor(chance.normal(size=(12, 6)).astype("f4")), flow.tensor(chance.integers(0, 4, 12))
    if rank is not None:
        model = nn.parallel.DistributedDataParallel(model)
        x, y = x[4 * rank : 4 * rank + 4], y[4 * rank : 4 * rank + 4]
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(STEPS):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item() if rank is None else (dist.all_reduce(loss.detach()) / 3).item())
    return losses


def test_a_module_that_is_wrapped_trains_as_on_one_rank() -> None:
    wanted = train_in_parts()
    assert wanted[-1] < wanted[0]
    for losses in dist.simulate(lambda: train_in_parts(dist.get_rank()), 3, seed=2, delay=0.5):
        np.testing.assert_allclose(losses, wanted, rtol=1e-5)


def test_local_tensors_that_cannot_become_global() -> None:
    def program() -> None:
        with pytest.raises(ValueError, match="no parameter of the module requires a gradient"):
            nn.parallel.DistributedDataParallel(nn.ReLU())
        model = nn.Linear(2, 2).to_global(flow.placement.all("cpu"), sbp.broadcast)
        with pytest.raises(ValueError, match="a parameter is a global tensor"):
            nn.parallel.DistributedDataParallel(model)

    dist.simulate(program)
