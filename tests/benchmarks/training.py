"""One training step of whole networks against PyTorch on one thread.

``python -m tests.benchmarks.training [--only LeNet,MLP] [--rounds 15] [--profile] [--quick] [--json FILE]``

A step is forward, loss, backward and the optimizer's.  Both compute in float32, and take turns within each round.  With
``--profile``, what vmflow's time goes to is printed instead: the kernels by op, the largest first, and the rest.
"""

# ruff: noqa: E402 (the environment has to be set before numpy is imported)

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

# Whoever has two threads would compare threads instead of kernels.
for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import numpy as np

import vmflow as flow
from tests.benchmarks.contenders import torch_if_installed
from tests.benchmarks.measure import Case, measure
from tests.benchmarks.tables import Table, conditions
from vmflow.instructions import Instruction
from vmflow.vm.virtual_machine import current_machine

Array = np.ndarray[Any, Any]
# library -> model
Model = Callable[[Any], Any]


class Network(NamedTuple):
    """What is trained.

    Attributes:
        name: of the row.
        model: makes it with the `nn` of a library.
        inputs, labels: a batch.
        optimizer: makes one with the `optim` of a library, for parameters.
        steps: how many are measured together.
    """

    name: str
    model: Model
    inputs: Array
    labels: Array
    optimizer: Callable[[Any, Any], Any]
    steps: int = 3


def _mlp(library: Any) -> Any:
    nn = library.nn
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))


def _lenet(library: Any) -> Any:
    nn = library.nn
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )


def _gpt(width: int, layers: int, heads: int, length: int, vocabulary: int) -> Model:
    """A decoder of blocks: causal attention and a small network, each normalised before and added after."""

    def model(library: Any) -> Any:
        nn, functional = library.nn, library.nn.functional

        class Block(nn.Module):  # type: ignore[misc,name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.before_attention = nn.LayerNorm(width)
                self.qkv = nn.Linear(width, 3 * width)
                self.project = nn.Linear(width, width)
                self.before_network = nn.LayerNorm(width)
                self.widen = nn.Linear(width, 4 * width)
                self.narrow = nn.Linear(4 * width, width)

            def forward(self, x: Any) -> Any:
                samples = x.shape[0]
                parts = self.qkv(self.before_attention(x)).reshape(samples, length, 3, heads, width // heads)
                query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
                attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
                x = x + self.project(attended.transpose(1, 2).reshape(samples, length, width))
                return x + self.narrow(functional.gelu(self.widen(self.before_network(x))))

        class Decoder(nn.Module):  # type: ignore[misc,name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.tokens = nn.Embedding(vocabulary, width)
                self.places = nn.Parameter(library.zeros(length, width))
                self.blocks = nn.Sequential(*[Block() for _ in range(layers)])
                self.normalise = nn.LayerNorm(width)
                self.head = nn.Linear(width, vocabulary, bias=False)

            def forward(self, tokens: Any) -> Any:
                x = self.blocks(self.tokens(tokens) + self.places)
                return self.head(self.normalise(x)).reshape(-1, vocabulary)

        return Decoder()

    return model


def networks(quick: bool = False) -> Iterator[Network]:
    """All of them; in small if quick."""
    random = np.random.default_rng(0)

    def classes(count: int, of: int = 10) -> Array:
        return random.integers(0, of, count)

    def descent(library: Any, parameters: Any) -> Any:
        return library.optim.SGD(parameters, lr=1e-3, momentum=0.9)

    def adam(library: Any, parameters: Any) -> Any:
        return library.optim.AdamW(parameters, lr=1e-3)

    for batch in (4,) if quick else (64, 512):
        inputs = random.random((batch, 784), np.float32)
        yield Network(f"MLP, batch {batch}", _mlp, inputs, classes(batch), descent)
    batch = 4 if quick else 64
    yield Network("LeNet", _lenet, random.random((batch, 1, 28, 28), np.float32), classes(batch), descent)
    samples, width, layers, length = (2, 16, 1, 8) if quick else (8, 256, 4, 128)
    tokens = random.integers(0, 256, (samples, length))
    model = _gpt(width, layers, 4, length, 256)
    yield Network("GPT blocks", model, tokens, classes(samples * length, 256), adam, 1)


def training(library: Any, network: Network) -> Callable[[], object]:
    """So many steps of it."""
    model = network.model(library)
    inputs, labels = library.tensor(network.inputs), library.tensor(network.labels)
    optimizer = network.optimizer(library, model.parameters())
    loss_of = library.nn.CrossEntropyLoss()

    def run() -> object:
        for _ in range(network.steps):
            optimizer.zero_grad()
            loss = loss_of(model(inputs), labels)
            loss.backward()
            optimizer.step()
        if library is flow:
            flow.synchronize()
        return loss.item()

    return run


COLUMNS: Final = ("ms", "torch ms", "ratio")


def run(chosen: list[Network], rounds: int, torch: Any) -> Table:
    """Measure and print one row for each network."""
    table = Table("training step", COLUMNS)
    table.print_head()
    for network in chosen:
        contenders = {"vmflow": training(flow, network)}
        if torch is not None:
            contenders["torch"] = training(torch, network)
        result = measure(Case(network.name, contenders, network.steps), rounds)
        reference = result.microseconds.get("torch")
        table.add(
            network.name,
            ms=result.microseconds["vmflow"] / 1000,
            torch_ms=None if reference is None else reference / 1000,
            ratio=result.ratio("torch"),
        )
    return table


class _Stopwatch:
    """A tracer that adds up how long what is called the same has run, in seconds."""

    def __init__(self) -> None:
        self.spent: defaultdict[str, float] = defaultdict(float)
        self._begun: dict[Instruction, float] = {}

    def began(self, instruction: Instruction) -> None:
        self._begun[instruction] = time.perf_counter()

    def ended(self, instruction: Instruction, outcome: object) -> None:
        self.spent[instruction.name] += time.perf_counter() - self._begun.pop(instruction)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


def profile(network: Network, rounds: int) -> dict[str, float]:
    """Milliseconds per step by what they went to, the whole step under "step".

    While it is looked at, every op is an instruction that has its turn; the rest of the step is longer than otherwise.
    """
    step = training(flow, network)
    step()
    machine = current_machine()
    machine.tracer = stopwatch = _Stopwatch()
    spent = stopwatch.spent
    try:
        begin = time.perf_counter()
        for _ in range(rounds):
            step()
        spent["step"] = time.perf_counter() - begin
    finally:
        machine.tracer = None
    ordered = sorted(spent.items(), key=lambda it: -it[1])
    return {name: seconds * 1000 / rounds / network.steps for name, seconds in ordered}


def main() -> None:
    """Print the table, and write it to a file if asked."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.training", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="times each contender runs; the median counts")
    parser.add_argument("--only", help="how the names of the networks begin, separated by commas")
    parser.add_argument("--profile", action="store_true", help="print what vmflow's time goes to")
    parser.add_argument("--quick", action="store_true", help="small networks and two rounds, to see that it works")
    parser.add_argument("--json", type=Path, help="also write the table to this file")
    options = parser.parse_args()
    names = tuple(options.only.split(",")) if options.only else ("",)
    chosen = [it for it in networks(options.quick) if it.name.startswith(names)]
    rounds = 2 if options.quick else options.rounds
    if options.profile:
        for network in chosen:
            times = profile(network, rounds)
            print(f"{network.name}: milliseconds per step")
            for name, taken in times.items():
                print(f"  {name:44}{taken:9.3f}")
            print(f"  {'outside of kernels':44}{2 * times['step'] - sum(times.values()):9.3f}")
        return
    print(f"{conditions()}; medians, one thread; ratios are vmflow's time to PyTorch's")
    table = run(chosen, rounds, torch_if_installed())
    if options.json is not None:
        table.write(options.json, conditions())


if __name__ == "__main__":
    main()
