"""The speed of C kernels: ``python -m tests.benchmarks.codegen [--rounds 11] [--only softmax,chain] [--quick]``.

Ops, optimizers' steps and graphs are each computed by C kernels, by numpy, and by torch on one thread.  The three take
turns within each round; a figure is a ratio of two medians of processor time from one run.
"""

# ruff: noqa: E402 (the environment has to be set before numpy is imported)

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any, Final

# One thread for every library, so that kernels are compared and not threads.
for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import numpy as np

import vmflow as flow
from tests.benchmarks.contenders import torch_if_installed
from tests.benchmarks.measure import Case, measure, processor_seconds
from vmflow import nn
from vmflow.kernels.native.loading import LOADER

Work = Callable[[], object]

# The functions to time: for vmflow, and, if torch is installed, for torch.
Pair = tuple[Work, Work | None]

ROWS: Final = (512, 1024)
LARGE: Final = 1 << 22
PARAMETERS: Final = 1 << 21


class GraphOf(nn.Graph):
    """A graph of a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def build(self, *arguments: flow.Tensor) -> Any:
        return self.function(*arguments)


class Training(nn.Graph):
    """A graph of a training step: forward, cross-entropy, backward and the optimizer's step."""

    def __init__(self, model: nn.Module, optimizer: flow.optim.Optimizer) -> None:
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer)

    def build(self, x: flow.Tensor, target: flow.Tensor) -> flow.Tensor:
        loss: flow.Tensor = nn.functional.cross_entropy(self.model(x), target)
        loss.backward()
        return loss


def ops(torch: Any, quick: bool) -> dict[str, Pair]:
    """Cases of single ops on large arrays."""
    shape = (8, 16) if quick else ROWS
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    ours, theirs = flow.tensor(x), None if torch is None else torch.from_numpy(x)
    names = {
        "exp": "exp",
        "sigmoid": "sigmoid",
        "tanh": "tanh",
        "erf": "erf",
        "silu": "nn.functional.silu",
        "gelu": "nn.functional.gelu",
        "softmax": "softmax",
        "log_softmax": "log_softmax",
    }
    found: dict[str, Pair] = {}
    for name, path in names.items():
        arguments = (-1,) if "softmax" in name else ()
        found[name] = (
            _calling(_attribute(flow, path), ours, *arguments),
            None if torch is None else _calling(_attribute(torch, path), theirs, *arguments),
        )
    found["layer_norm"] = (
        lambda: nn.functional.layer_norm(ours, shape[-1:])._array(),
        None if torch is None else lambda: torch.nn.functional.layer_norm(theirs, shape[-1:]),
    )
    return found


def _attribute(library: Any, path: str) -> Any:
    for name in path.split("."):
        library = getattr(library, name)
    return library


def _calling(function: Callable[..., Any], *arguments: Any) -> Work:
    def work() -> object:
        result = function(*arguments)
        return result._array() if isinstance(result, flow.Tensor) else result

    return work


def steps(torch: Any, quick: bool) -> dict[str, Pair]:
    """Cases of optimizers' steps on two million parameters."""
    size = 64 if quick else PARAMETERS
    settings: dict[str, dict[str, Any]] = {"SGD": {"lr": 1e-3, "momentum": 0.9}, "Adam": {}, "AdamW": {}}
    return {
        f"{name}, {size} parameters": (_step(flow, name, size, given), torch and _step(torch, name, size, given))
        for name, given in settings.items()
    }


def _step(library: Any, name: str, size: int, settings: dict[str, Any]) -> Work:
    values = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    parameter = library.nn.Parameter(library.tensor(values))
    parameter.grad = library.tensor(values)
    optimizer = getattr(library.optim, name)([parameter], **settings)

    def work() -> None:
        optimizer.step()
        if library is flow:
            parameter._array()

    return work


def chains(torch: Any, quick: bool) -> dict[str, Pair]:
    """Cases of graphs of fused elementwise ops, compared with torch's eager ops."""
    size = 64 if quick else LARGE
    a, b = (np.random.default_rng(seed).standard_normal(size).astype(np.float32) for seed in range(2))
    x, y = flow.tensor(a), flow.tensor(b)
    theirs = () if torch is None else (torch.from_numpy(a), torch.from_numpy(b))

    def eight(x: Any, y: Any) -> Any:
        t = (x + y) * 1.5 - y
        return ((t * x + 0.5) * y - x) * 0.25

    def gelu(x: Any, y: Any) -> Any:
        return x * (((x + x * x * x * 0.044715) * 0.79788456).tanh() + 1.0) * 0.5 + y

    found: dict[str, Pair] = {}
    for name, function in (("chain of 8 ops", eight), ("gelu by tanh and a residual", gelu)):
        graph = GraphOf(function)
        found[f"{name}, {size}"] = (
            _calling(graph, x, y),
            None if torch is None else _calling(function, *theirs),
        )
    return found


def networks(torch: Any, quick: bool) -> dict[str, Pair]:
    """The case of an MLP's training step as a graph, compared with torch's eager step."""
    del quick
    random = np.random.default_rng(0)
    x, target = random.standard_normal((64, 784)).astype(np.float32), random.integers(0, 10, 64)
    model = _mlp(flow)
    graph = Training(model, flow.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9))
    given = flow.tensor(x), flow.tensor(target)
    if torch is None:
        return {"MLP, a step": (_calling(graph, *given), None)}
    theirs = _mlp(torch)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=1e-3, momentum=0.9)
    their_x, their_target = torch.from_numpy(x), torch.from_numpy(target)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(theirs(their_x), their_target).backward()
        optimizer.step()

    return {"MLP, a step": (_calling(graph, *given), step)}


def _mlp(library: Any) -> Any:
    layers = library.nn
    return layers.Sequential(
        layers.Linear(784, 256), layers.ReLU(), layers.Linear(256, 128), layers.ReLU(), layers.Linear(128, 10)
    )


def _in_mode(mode: str, work: Work) -> Work:
    def switched() -> object:
        if LOADER.mode != mode:
            LOADER.mode = mode
        return work()

    return switched


def run(rounds: int, quick: bool, only: list[str]) -> dict[str, dict[str, float]]:
    """Measure all cases; return microseconds by case and contender ("C", "numpy" and "torch")."""
    torch = torch_if_installed()
    before = LOADER.mode
    found: dict[str, dict[str, float]] = {}
    try:
        for family in (ops, steps, chains, networks):
            for name, (ours, theirs) in family(torch, quick).items():
                if only and not any([value in name for value in only]):
                    continue
                works = {"C": _in_mode("wait", ours), "numpy": _in_mode("off", ours)}
                if theirs is not None:
                    works["torch"] = theirs
                # A turn repeats its work, so that choosing kernels anew after the change of mode counts little.
                case = Case(name, {value: _repeated(work) for value, work in works.items()}, _REPEAT)
                found[name] = measure(case, rounds, clock=processor_seconds).microseconds
    finally:
        LOADER.mode = before
    return found


_REPEAT: Final = 5


def _repeated(work: Work) -> Work:
    def several() -> None:
        for _ in range(_REPEAT):
            work()

    return several


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.codegen", description=__doc__)
    parser.add_argument("--rounds", type=int, default=11, help="times each contender runs; the median counts")
    parser.add_argument("--only", default="", help="parts of names, with commas between them")
    parser.add_argument("--quick", action="store_true", help="two rounds, small sizes")
    options = parser.parse_args()
    rounds = 2 if options.quick else options.rounds
    print(f"{'':36} {'C, us':>10} {'/ numpy':>8} {'/ torch':>8}")
    for name, times in run(rounds, options.quick, [value for value in options.only.split(",") if value]).items():
        against = [
            f"{times['C'] / times[value]:8.2f}" if value in times else f"{'-':>8}" for value in ("numpy", "torch")
        ]
        print(f"{name:36} {times['C']:10.0f} {' '.join(against)}")


if __name__ == "__main__":
    main()
