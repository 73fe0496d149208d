"""Ratios of vmflow's to torch's time by size, printed and drawn: ``python -m tests.benchmarks.sweep [--png FILE]``.

Some ops run on ten to ten million float32 elements, and training steps of the dense classifier on batches of one to a
thousand samples, eagerly and as a graph; both libraries on one thread.  Drawing needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

import vmflow as flow
from tests.benchmarks.contenders import Company, module_if_installed, restart_with_one_thread, torch_if_installed
from tests.benchmarks.family_training import mlp
from tests.benchmarks.measure import EAGER, GRAPH, Case, measure
from tests.benchmarks.models import finish, repeated
from tests.benchmarks.tables import conditions

ELEMENTS: Final = (10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)
BATCHES: Final = (1, 4, 16, 64, 256, 1024)

# The seconds of one contender's turn, unless a single call takes longer.
TURN: Final = 0.01

# The seconds after which a size gets no more rounds.
PATIENCE: Final = 6.0

# The most elements in a row of softmax's operand.
ROW: Final = 1000

# Functions that compute an op by a library from its operand.
OPS: Final[dict[str, Callable[..., Any]]] = {
    "add": lambda library, x: x + x,
    "exp": lambda library, x: x.exp(),
    "matmul": lambda library, x: x @ x,
    "sum": lambda library, x: x.sum(),
    "softmax": lambda library, x: library.nn.functional.softmax(x, dim=-1),
}

# Microseconds by curve (op or step), size and contender.
Curves = dict[str, dict[int, dict[str, float]]]


def operand(name: str, elements: int) -> np.ndarray[Any, Any]:
    """Draw about `elements` random numbers: a square matrix for products, rows for softmax, else a vector."""
    side = max(1, round(math.sqrt(elements)))
    row = min(elements, ROW)
    shape = {"matmul": (side, side), "softmax": (elements // row, row)}.get(name, (elements,))
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def op_case(name: str, elements: int, torch: Any) -> Case:
    """Make the case of one op at one size, repeated to fill a turn."""
    op, array = OPS[name], operand(name, elements)
    ours = flow.tensor(array)
    once = measure(Case(name, {EAGER: repeated(lambda: op(flow, ours), 1, finish)}), 3).microseconds[EAGER] * 1e-6
    count = max(1, min(1000, int(TURN / once)))
    contenders: dict[str, Callable[[], Any]] = {EAGER: repeated(lambda: op(flow, ours), count, finish)}
    if torch is not None:
        theirs = torch.from_numpy(array)
        contenders["torch"] = repeated(lambda: op(torch, theirs), count)
    return Case(name, contenders, count)


def points(torch: Any, elements: tuple[int, ...], batches: tuple[int, ...]) -> Iterator[tuple[str, int, Case]]:
    """Generate the cases with their curves and sizes, from small to large."""
    for name in OPS:
        for size in elements:
            yield name, size, op_case(name, size, torch)
    for batch in batches:
        yield "MLP step", batch, mlp(Company(numpy=False, torch=torch), batch, graph_share=1.0)


def run(torch: Any, elements: tuple[int, ...], batches: tuple[int, ...], rounds: int) -> Curves:
    """Measure and print."""
    curves: Curves = {}
    print(f"{'':20}{'size':>12}{'vmflow us':>14}{'torch us':>14}{'ratio':>8}")
    for name, size, case in points(torch, elements, batches):
        found = measure(case, rounds, PATIENCE).microseconds
        for way in (EAGER, GRAPH):
            if way in found:
                curve = name + (", graph" if way == GRAPH else "")
                curves.setdefault(curve, {})[size] = {EAGER: found[way], **_torch_of(found)}
                _print(curve, size, curves[curve][size])
    return curves


def _torch_of(found: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in found.items() if name == "torch"}


def _print(curve: str, size: int, found: dict[str, float]) -> None:
    ours, theirs = found[EAGER], found.get("torch")
    other = f"{'-':>14}{'-':>8}" if theirs is None else f"{theirs:14.2f}{ours / theirs:8.2f}"
    print(f"{curve:20}{size:12,}{ours:14.2f}{other}", flush=True)


def draw(curves: Curves, title: str, file: Path) -> None:
    """Draw the ratios to an image file: ops on the left, training steps on the right."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 5), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for name, found in curves.items():
        ratios = {size: value[EAGER] / value["torch"] for size, value in found.items()}
        (right if name.startswith("MLP") else left).plot(list(ratios), list(ratios.values()), marker="o", label=name)
    for axes, sizes in ((left, "elements"), (right, "samples in a batch")):
        axes.set(xscale="log", yscale="log", xlabel=sizes, ylabel="vmflow's time / torch's")
        axes.axhline(1.0, color="black", linewidth=0.8)
        axes.grid(visible=True, which="both", alpha=0.3)
        if axes.lines[1:]:
            axes.legend()
    figure.suptitle(title, fontsize="small")
    figure.savefig(file)


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.sweep", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="times each contender runs; the median counts")
    parser.add_argument("--quick", action="store_true", help="a few small sizes and rounds, to see that it works")
    parser.add_argument("--png", type=Path, default=Path("sweep.png"), help="where to draw")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = parser.parse_args()
    restart_with_one_thread()
    torch = torch_if_installed()
    said = conditions()
    print(f"{said}; one thread, medians")
    if options.quick:
        curves = run(torch, ELEMENTS[:2], BATCHES[:2], 2)
    else:
        curves = run(torch, ELEMENTS, BATCHES, options.rounds)
    if options.json is not None:
        options.json.write_text(json.dumps({"conditions": said, "curves": curves}, indent=2))
    if torch is None:
        print("no picture: torch, whom the ratios are to, is not installed")
    elif module_if_installed("matplotlib") is None:
        print("no picture: matplotlib is not installed")
    else:
        draw(curves, said, options.png)
        print(f"drawn to {options.png}")


if __name__ == "__main__":
    main()
