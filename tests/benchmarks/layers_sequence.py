"""The time of training steps of recurrent layers and attention: vmflow's layers, plain compositions of ops, and torch.

``OPENBLAS_NUM_THREADS=1 python -m tests.benchmarks.layers_sequence [--rounds 9]``, so that both libraries have one
thread.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import vmflow as flow
from tests.benchmarks.contenders import torch_if_installed
from tests.benchmarks.measure import Case, measure
from vmflow import nn
from vmflow.ops.nn.recurrent import Layer, composed_layer

STEPS, BATCH, HIDDEN = 64, 32, 128


def _stepping(module: Any, network: Any, source: Any) -> Callable[[], object]:
    """Make a function that runs a network forward and backward, and waits for the results."""

    def step() -> None:
        result, _ = network(source)
        loss = result.sum()
        network.zero_grad()
        loss.backward()
        loss.item()
        if module is flow:
            flow.synchronize()

    return step


class Composed(nn.Module):
    """A recurrent layer with the parameters of `network`, computed by plain ops instead of a fused one."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, source: flow.Tensor) -> tuple[flow.Tensor, flow.Tensor]:
        layer = Layer(self.network._kind, False, True, False)
        zeros = [flow.zeros(source.shape[1], HIDDEN) for _ in range(layer.states)]
        result, last, *_ = composed_layer(layer, source, *zeros, *self.network.parameters())
        return result, last


def recurrent(torch: Any, steps: int = STEPS) -> Iterator[Case]:
    """Generate the cases of RNN, LSTM and GRU."""
    array = np.random.default_rng(0).standard_normal((steps, BATCH, HIDDEN)).astype(np.float32)
    for name in ("RNN", "LSTM", "GRU"):
        network = getattr(nn, name)(HIDDEN, HIDDEN)
        contenders = {
            "vmflow": _stepping(flow, network, flow.tensor(array)),
            "composed": _stepping(flow, Composed(network), flow.tensor(array)),
        }
        if torch is not None:
            contenders["torch"] = _stepping(torch, getattr(torch.nn, name)(HIDDEN, HIDDEN), torch.tensor(array))
        yield Case(f"{name}, {steps} steps of {BATCH} x {HIDDEN}", contenders)


class Itself:
    """Self-attention with the interface of a recurrent network: ``(x) -> (output, _)``."""

    def __init__(self, attention: Any) -> None:
        self.attention = attention
        self.zero_grad = attention.zero_grad

    def __call__(self, x: Any) -> Any:
        return self.attention(x, x, x, need_weights=False)


def attention(torch: Any, length: int = STEPS) -> Iterator[Case]:
    """Generate the case of self-attention with four heads."""
    array = np.random.default_rng(0).standard_normal((length, BATCH, HIDDEN)).astype(np.float32)
    contenders = {"vmflow": _stepping(flow, Itself(nn.MultiheadAttention(HIDDEN, 4)), flow.tensor(array))}
    if torch is not None:
        other = torch.nn.MultiheadAttention(HIDDEN, 4)
        contenders["torch"] = _stepping(torch, Itself(other), torch.tensor(array))
    yield Case(f"attention, {length} steps of {BATCH} x {HIDDEN}", contenders)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.layers_sequence", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="times each contender runs; the median counts")
    options = parser.parse_args()
    torch = torch_if_installed()
    columns = ("vmflow", "composed", "torch")
    print(f"forward and backward, medians of {options.rounds} rounds, milliseconds")
    print(f"{'case':36}" + "".join([f"{column:>10}" for column in columns]) + f"{'/torch':>9}")
    for family in (recurrent, attention):
        for case in family(torch):
            result = measure(case, options.rounds)
            times = [result.microseconds.get(name) for name in columns]
            ratio = result.ratio("torch")
            shown = "".join([f"{time_ / 1e3:10.2f}" if time_ is not None else f"{'-':>10}" for time_ in times])
            print(f"{result.name:36}{shown}" + (f"{ratio:9.2f}" if ratio is not None else ""), flush=True)


if __name__ == "__main__":
    main()
