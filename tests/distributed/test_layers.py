"""Layers of global parameters have the same results and gradients with a split batch as on one rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import pytest

import vmflow as flow
from vmflow import distributed as dist, nn, sbp
from vmflow.distributed import global_interpreter

pytestmark = pytest.mark.host


class Case(NamedTuple):
    """A module and the shape of its input, the first dimension of which is the batch; or the number of indices."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    indices: int = 0


class First(nn.Module):
    """The first result of a layer that has several."""

    def __init__(self, layer: nn.Module, times: int = 1) -> None:
        super().__init__()
        self.layer = layer
        self.times = times

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        """Call it with the same tensor so many times."""
        result: flow.Tensor = self.layer(*[x] * self.times)[0]
        return result


CASES: Final[dict[str, Case]] = {
    "linear": Case(lambda: nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 4)), (7, 6)),
    "conv": Case(
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)), (5, 3, 6, 6)
    ),
    "conv transposed": Case(lambda: nn.ConvTranspose2d(3, 4, 3, stride=2), (5, 3, 4, 4)),
    "norms": Case(
        lambda: nn.Sequential(nn.GroupNorm(2, 4), nn.InstanceNorm1d(4, affine=True), nn.LayerNorm(6)), (5, 4, 6)
    ),
    "rms norm": Case(lambda: nn.RMSNorm(6), (5, 4, 6)),
    "embedding": Case(lambda: nn.Embedding(9, 4), (5, 3), 9),
    "rnn": Case(lambda: First(nn.RNN(6, 4, batch_first=True)), (5, 3, 6)),
    "lstm": Case(lambda: First(nn.LSTM(6, 4, num_layers=2, batch_first=True, bidirectional=True)), (5, 3, 6)),
    "gru": Case(lambda: First(nn.GRU(6, 4, batch_first=True)), (5, 3, 6)),
    "attention": Case(lambda: First(nn.MultiheadAttention(6, 2, batch_first=True), 3), (5, 3, 6)),
    "encoder": Case(lambda: nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True), (5, 3, 6)),
    "dropout": Case(lambda: nn.Sequential(nn.Dropout(0.3), nn.Linear(6, 3)), (5, 6)),
    "activations": Case(
        lambda: nn.Sequential(nn.SiLU(), nn.Softplus(), nn.PReLU(), nn.LeakyReLU(), nn.Softmax(1), nn.LogSigmoid()),
        (5, 6),
    ),
    "pools": Case(lambda: nn.Sequential(nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(2), nn.Flatten()), (5, 3, 8, 8)),
    "upsample": Case(lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (5, 3, 4, 4)),
    "pads": Case(lambda: nn.Sequential(nn.ReflectionPad2d(1), nn.ZeroPad2d(1)), (5, 3, 4, 4)),
    "pixel shuffle": Case(lambda: nn.PixelShuffle(2), (5, 8, 3, 3)),
    "unfold": Case(lambda: nn.Unfold(2), (5, 3, 4, 4)),
}


def _input(case: Case) -> flow.Tensor:
    chance = np.random.default_rng(3)
    if case.indices:
        return flow.tensor(chance.integers(0, case.indices, case.shape))
    return flow.tensor(chance.normal(size=case.shape))


def _run(model: nn.Module, x: flow.Tensor) -> list[Any]:
    flow.manual_seed(11)
    model.train()
    if x.is_floating_point():
        x.requires_grad_()
    result = model(x)
    (result * result).sum().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    tensors = [result.detach(), *([x.grad] if x.is_floating_point() else []), *gradients, *model.buffers()]
    return [None if tensor is None else tensor.numpy() for tensor in tensors]


@pytest.mark.parametrize("name", CASES)
def test_a_split_batch_has_the_results_of_one_rank(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]

    def program() -> None:
        where = flow.placement.all("cpu")
        flow.manual_seed(2)
        alone, spread = case.make().double(), case.make().double()
        spread.load_state_dict(alone.state_dict())
        wanted = _run(alone, _input(case))
        spread.to_global(where, sbp.broadcast)
        x = flow.tensor(_input(case), placement=where, sbp=sbp.split(0))
        for found, expected in zip(_run(spread, x), wanted, strict=True):
            if expected is not None:
                np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)

    monkeypatch.setattr(global_interpreter, "_WARNED", set())
    dist.simulate(program, 3)
