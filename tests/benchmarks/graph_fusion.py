"""The speed of fused elementwise ops, and of a graph's tiny ops: ``python -m tests.benchmarks.graph_fusion``.

Chains of elementwise ops run as a graph with fusion and without, as eager ops, in torch, and in numpy: plainly, and by
hand with one temporary array and tiles.  "program" is the graph's computation alone, without copies of its arguments
and results and without the cost of a launch.  Every figure is a ratio of two medians from one run.

The last table is a chain of additions of 64 floats run by a graph, compared with the same calls of numpy in a loop.
"""

# ruff: noqa: E402 (the environment has to be set before numpy is imported)

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Callable
from typing import Any, Final

# One thread for every library, so that kernels are compared and not threads.
for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import numpy as np

import vmflow as flow
from tests.benchmarks.contenders import torch_if_installed
from tests.benchmarks.measure import Case, measure
from tests.benchmarks.models import GraphOf, elementwise_chain, repeated
from vmflow.context import MODE
from vmflow.graph_mode.launch import Launch
from vmflow.graph_mode.program import Program
from vmflow.instructions.blob import Blob, Storage

Work = Callable[[], object]

SIZES: Final = (64, 1 << 18, 1 << 22)
TINY: Final = 64
TINY_CALLS: Final = 200
TILE: Final = 1 << 15


def chain_by_hand(x: Any, y: Any, out: Any) -> None:
    """Compute `elementwise_chain` by calls of numpy that write into `out` and allocate no arrays."""
    np.add(x, y, out)
    np.multiply(out, np.float32(1.5), out)
    np.subtract(out, y, out)
    np.multiply(out, x, out)
    np.add(out, np.float32(0.5), out)
    np.multiply(out, y, out)
    np.subtract(out, x, out)
    np.multiply(out, np.float32(0.25), out)


def gelu(x: Any, y: Any) -> Any:
    """Compute ``gelu(x) + y``, gelu approximated by a hyperbolic tangent."""
    return x * (((x + x * x * x * 0.044715) * 0.79788456).tanh() + 1.0) * 0.5 + y


def program_of(graph: GraphOf, *arguments: flow.Tensor) -> Work:
    """Make a function that runs the program of a compiled graph, without a launch and copies of inputs and outputs."""
    graph(*arguments).numpy()
    (compiled,) = graph._forms
    runtime = compiled._runtime(MODE.get())
    (program,) = runtime.memory._programs.values()
    assert isinstance(program, Program)
    results = [
        Blob(Storage(None, np.empty(output.meta.shape, np.float32)), output.meta) for output in graph.job.outputs
    ]
    launch = Launch((), tuple(results), (), (), 0)
    launch.inputs = [argument.numpy() for argument in arguments]
    inputs, outputs = program._inputs, program._outputs

    # The default argument keeps the graph alive, which owns the program's memory.
    def run(_owner: GraphOf = graph) -> None:
        program._inputs, program._outputs = [], []
        program.run(launch)
        program._inputs, program._outputs = inputs, outputs

    return run


def by_hand(x: Any, y: Any) -> Work:
    """Make a function that computes `chain_by_hand` in tiles that fit into the CPU's caches."""
    out = np.empty_like(x)

    def run() -> None:
        for start in range(0, x.size, TILE):
            stop = start + TILE
            chain_by_hand(x[start:stop], y[start:stop], out[start:stop])

    return run


def contenders(function: Callable[[Any, Any], Any], size: int, torch: Any) -> dict[str, Work]:
    """Functions that compute the same chain of ops in several ways, by name."""
    random = np.random.default_rng(0)
    a, b = [random.standard_normal(size).astype(np.float32) for _ in range(2)]
    x, y = flow.tensor(a), flow.tensor(b)
    fused, unfused = GraphOf(function, True), GraphOf(function, False)
    found: dict[str, Work] = {
        "fused": lambda: fused(x, y)._array(),
        "unfused": lambda: unfused(x, y)._array(),
        "eager": lambda: function(x, y)._array(),
        "program, fused": program_of(GraphOf(function, True), x, y),
        "program, unfused": program_of(GraphOf(function, False), x, y),
    }
    if function is elementwise_chain:
        found["numpy"] = lambda: elementwise_chain(a, b)
        found["numpy, by hand"] = by_hand(a, b)
    if torch is not None:
        theirs = [torch.from_numpy(value) for value in (a, b)]
        found["torch"] = lambda: function(*theirs)
    return found


def elementwise(torch: Any, sizes: tuple[int, ...], rounds: int) -> dict[str, dict[str, float]]:
    """Measure chains of elementwise ops; return microseconds by case and contender."""
    found: dict[str, dict[str, float]] = {}
    for function in (elementwise_chain, gelu):
        for size in sizes:
            count = max(1, min(200, 1_000_000 // size))
            works = {name: repeated(work, count) for name, work in contenders(function, size, torch).items()}
            name = f"{function.__name__.removeprefix('elementwise_')}, {size}"
            found[name] = measure(Case(name, works, count), rounds).microseconds
    return found


def tiny(rounds: int) -> dict[str, float]:
    """The microseconds per op of a long chain of ops on 64 floats, by contender."""

    def adds(x: Any, y: Any) -> Any:
        for _ in range(TINY_CALLS):
            x = x + y
        return x

    def scalings(x: Any, y: Any) -> Any:
        for _ in range(TINY_CALLS):
            x = x * 1.0
        return x

    a, b, out = np.ones(TINY, np.float32), np.ones(TINY, np.float32), np.empty(TINY, np.float32)
    one = np.ones((), np.float32)

    def bare() -> None:
        for _ in range(TINY_CALLS):
            np.add(a, b, out)

    def bare_scaling() -> None:
        for _ in range(TINY_CALLS):
            np.multiply(a, one, out)

    x, y = flow.ones(TINY), flow.ones(TINY)
    graph = GraphOf(adds, True)
    works: dict[str, Work] = {
        "add: numpy": bare,
        "add: program": program_of(GraphOf(adds, False), x, y),
        "add: program, fused": program_of(GraphOf(adds, True), x, y),
        "add: graph": lambda: graph(x, y)._array(),
        "scalar: numpy": bare_scaling,
        "scalar: program": program_of(GraphOf(scalings, False), x, y),
        "scalar: program, fused": program_of(GraphOf(scalings, True), x, y),
    }
    return measure(Case("tiny", works, TINY_CALLS), rounds).microseconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.graph_fusion", description=__doc__)
    parser.add_argument("--rounds", type=int, default=11, help="times each contender runs; the median counts")
    parser.add_argument("--quick", action="store_true", help="two rounds, one small size")
    options = parser.parse_args()
    rounds = 2 if options.quick else options.rounds
    with np.errstate(all="ignore"):  # programs run again on their former results, which may overflow
        _print(rounds, SIZES[:1] if options.quick else SIZES)


def _print(rounds: int, sizes: tuple[int, ...]) -> None:
    torch = torch_if_installed()
    versions = f"vmflow {flow.__version__}, Python {platform.python_version()}, numpy {np.__version__}"
    print(versions + (f", torch {torch.__version__}" if torch is not None else ", no torch"))
    pairs = [
        (one, other) for one in ("fused", "program, fused") for other in (one.replace("fused", "unfused"), "torch")
    ]
    pairs += [("unfused", "torch"), ("eager", "torch"), ("fused", "numpy, by hand"), ("fused", "numpy")]
    pairs.append(("program, fused", "numpy, by hand"))
    for name, times in elementwise(torch, sizes, rounds).items():
        print(f"{name}: fused graph {times['fused']:.1f} us")
        for one, other in pairs:
            if other in times:
                print(f"    {one} / {other:24} {times[one] / times[other]:8.2f}")
    times = tiny(rounds)
    for name, value in times.items():
        kind = name.partition(":")[0]
        ratio = value / times[f"{kind}: numpy"]
        print(f"{TINY_CALLS} tiny ops, {name:24} {value * 1e3:8.0f} ns each {ratio:8.2f} of numpy")


if __name__ == "__main__":
    main()
