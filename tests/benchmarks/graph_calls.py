"""The time of calling a graph: ``python -m tests.benchmarks.graph_calls``.

A compiled graph of one op, ``x + 1`` for eight floats, is called in a script and in a coroutine; "issued" is the call
until it returns, "read" ends when the value is read.  The same op is timed eagerly, in numpy and, if installed, in
torch.  "training step" is a step (784-256-128-10, batches of 64, SGD with momentum) as a graph and eagerly.  "guard" is
the part of a call that checks whether modules and settings that the graph was built from have changed.  Compare only
ratios of medians from one run.
"""

# ruff: noqa: E402 (the environment has to be set before numpy is imported)

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

# One thread for every library, so that calls are compared and not threads.
for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import numpy as np

import vmflow as flow
from tests.benchmarks.contenders import torch_if_installed
from tests.benchmarks.measure import Case, measure
from tests.benchmarks.models import (
    MLP_MOMENTUM,
    MLP_RATE,
    MLP_SIZES,
    AddOne,
    Training,
    eager_training,
    mlp,
    repeated,
)
from vmflow import nn
from vmflow.nn import functional as F

Work = Callable[[], object]

ELEMENTS: Final = 8

# The number of calls, with results dropped unread, that are timed before all of them are waited for.
ISSUED: Final = 50


def in_a_script(torch: Any, count: int, rounds: int) -> dict[str, float]:
    """The microseconds of one call whose result is read immediately, by contender."""
    graph, x, array = AddOne(), flow.ones(ELEMENTS), np.ones(ELEMENTS, np.float32)
    works: dict[str, Work] = {
        "graph": lambda: graph(x).numpy(),
        "eager": lambda: (x + 1).numpy(),
        "numpy": lambda: array + 1,
    }
    if torch is not None:
        theirs = torch.ones(ELEMENTS)
        works["torch"] = lambda: (theirs + 1).numpy()
    return measure(
        Case("read", {name: repeated(work, count) for name, work in works.items()}, count), rounds
    ).microseconds


def issued(rounds: int) -> dict[str, float]:
    """The microseconds until a call returns, by contender; computing the results is waited for untimed."""
    graph, x = AddOne(), flow.ones(ELEMENTS)
    works: dict[str, Callable[[], flow.Tensor]] = {"graph": lambda: graph(x), "eager": lambda: x + 1}
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(rounds + 1):
        for name, work in works.items():
            begin = time.perf_counter()
            results = [work() for _ in range(ISSUED)]
            taken = time.perf_counter() - begin
            results[-1].numpy()
            if turn > 0:  # the first turn builds the graph, and is not timed
                times[name].append(taken)
    return {name: statistics.median(taken) / ISSUED * 1e6 for name, taken in times.items()}


async def in_a_coroutine(count: int, rounds: int) -> dict[str, float]:
    """The microseconds of one awaited call, by contender."""
    graph, x = AddOne(), flow.ones(ELEMENTS)
    works: dict[str, Callable[[], Awaitable[object]]] = {"graph": lambda: graph(x), "eager": lambda: x + 1}
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(rounds + 1):
        for name, work in works.items():
            begin = time.perf_counter()
            for _ in range(count):
                await work()
            if turn > 0:
                times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(taken) / count * 1e6 for name, taken in times.items()}


def training(count: int, rounds: int) -> dict[str, float]:
    """The microseconds of a training step whose loss is read, as a graph and eagerly."""

    def classifier() -> tuple[nn.Module, flow.optim.Optimizer]:
        model = mlp(flow)
        return model, flow.optim.SGD(model.parameters(), lr=MLP_RATE, momentum=MLP_MOMENTUM)

    flow.manual_seed(0)
    x, target = flow.randn(64, MLP_SIZES[0]), flow.randint(0, MLP_SIZES[-1], (64,))
    eager = eager_training(*classifier(), F.cross_entropy, x, target)
    graph = Training(*classifier(), F.cross_entropy)
    works: dict[str, Work] = {"graph": lambda: graph(x, target).item(), "eager": lambda: eager().item()}
    return measure(
        Case("training", {name: repeated(work, count) for name, work in works.items()}, count), rounds
    ).microseconds


def guards(count: int, rounds: int) -> dict[str, float]:
    """The microseconds in which a call checks for changes, for a small and a large model; and those of a whole call."""
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(120)])
    small, large = AddOne(), Of(model)
    x = flow.ones(ELEMENTS)
    small(x).numpy()
    large(flow.ones(1, 4)).numpy()
    (of_small,), (of_large,) = small._forms, large._forms

    def after_a_change() -> bool:
        model.note = None
        return of_large.holds()

    works: dict[str, Work] = {
        "graph": of_small.holds,
        "120 layers": of_large.holds,
        "120 layers after a change": after_a_change,
        "call": lambda: small(x),
    }
    case = Case("guards", {name: repeated(work, count) for name, work in works.items()}, count)
    return measure(case, rounds).microseconds


class Of(nn.Graph):
    """A graph whose `build` calls one module."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def build(self, x: flow.Tensor) -> Any:
        return self.model(x)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.graph_calls", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="times each contender runs; the median counts")
    parser.add_argument("--quick", action="store_true", help="two rounds of a few calls")
    options = parser.parse_args()
    rounds, count = (2, 5) if options.quick else (options.rounds, 200)
    torch = torch_if_installed()
    versions = f"vmflow {flow.__version__}, Python {platform.python_version()}, numpy {np.__version__}"
    print(versions + (f", torch {torch.__version__}" if torch is not None else ", no torch"))
    tables = {
        "issued": issued(rounds),
        "read": in_a_script(torch, count, rounds),
        "awaited": asyncio.run(in_a_coroutine(count, rounds)),
        "training step": training(max(1, count // 20), rounds),
        "guard": guards(count, rounds),
    }
    for name, times in tables.items():
        ratios = [f"{times['graph'] / time_:7.2f} of {other}" for other, time_ in times.items() if other != "graph"]
        print(f"{name:14} {times['graph']:9.1f} us " + " ".join(ratios))


if __name__ == "__main__":
    main()
