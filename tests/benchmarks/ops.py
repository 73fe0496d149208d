"""The op table as ratios to torch: ``python -m tests.benchmarks.ops [--sizes 64,512,2048] [--only add,exp] [--quick]``.

Each op runs on square float32 matrices of these sizes, repeated for about five milliseconds, both libraries on one
thread.  A ratio below one says that vmflow is faster.
"""

# ruff: noqa: E402 (the environment has to be set before numpy is imported)

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

# One thread for every library, so that kernels are compared and not threads.
for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import numpy as np

import vmflow as flow
from tests.benchmarks.contenders import torch_if_installed
from tests.benchmarks.measure import Case, Result, measure
from vmflow.vm.virtual_machine import default_machine

SIZES: Final = (64, 512, 2048)
SECONDS: Final = 5e-3

# A function that computes an op from the library, its nn.functional, two matrices, a matrix of positive values, a mask
# and indices of rows.
Op = Callable[[Any, Any, Any, Any, Any, Any, Any], Any]

OPS: Final[dict[str, Op]] = {
    "add": lambda t, f, x, y, p, m, i: x + y,
    "add, scalar": lambda t, f, x, y, p, m, i: x + 1.5,
    "mul": lambda t, f, x, y, p, m, i: x * y,
    "div": lambda t, f, x, y, p, m, i: x / p,
    "pow 2": lambda t, f, x, y, p, m, i: x**2,
    "abs": lambda t, f, x, y, p, m, i: x.abs(),
    "clamp": lambda t, f, x, y, p, m, i: x.clamp(-0.5, 0.5),
    "maximum": lambda t, f, x, y, p, m, i: t.maximum(x, y),
    "exp": lambda t, f, x, y, p, m, i: x.exp(),
    "log": lambda t, f, x, y, p, m, i: p.log(),
    "sqrt": lambda t, f, x, y, p, m, i: p.sqrt(),
    "rsqrt": lambda t, f, x, y, p, m, i: p.rsqrt(),
    "sin": lambda t, f, x, y, p, m, i: x.sin(),
    "erf": lambda t, f, x, y, p, m, i: t.erf(x),
    "tanh": lambda t, f, x, y, p, m, i: x.tanh(),
    "sigmoid": lambda t, f, x, y, p, m, i: x.sigmoid(),
    "relu": lambda t, f, x, y, p, m, i: f.relu(x),
    "gelu": lambda t, f, x, y, p, m, i: f.gelu(x),
    "silu": lambda t, f, x, y, p, m, i: f.silu(x),
    "eq": lambda t, f, x, y, p, m, i: x == y,
    "where": lambda t, f, x, y, p, m, i: t.where(m, x, y),
    "masked_fill": lambda t, f, x, y, p, m, i: x.masked_fill(m, 0.0),
    "cast to float64": lambda t, f, x, y, p, m, i: x.to(t.float64),
    "sum": lambda t, f, x, y, p, m, i: x.sum(),
    "sum, rows": lambda t, f, x, y, p, m, i: x.sum(1),
    "sum, columns": lambda t, f, x, y, p, m, i: x.sum(0),
    "mean, rows": lambda t, f, x, y, p, m, i: x.mean(1),
    "var, rows": lambda t, f, x, y, p, m, i: x.var(1),
    "amax, rows": lambda t, f, x, y, p, m, i: x.amax(1),
    "argmax, rows": lambda t, f, x, y, p, m, i: x.argmax(1),
    "cumsum": lambda t, f, x, y, p, m, i: x.cumsum(1),
    "logsumexp": lambda t, f, x, y, p, m, i: x.logsumexp(1),
    "softmax": lambda t, f, x, y, p, m, i: f.softmax(x, dim=1),
    "log_softmax": lambda t, f, x, y, p, m, i: f.log_softmax(x, dim=1),
    "layer_norm": lambda t, f, x, y, p, m, i: f.layer_norm(x, (x.shape[1],)),
    "matmul": lambda t, f, x, y, p, m, i: x @ y,
    "matmul, transposed": lambda t, f, x, y, p, m, i: x @ y.t(),
    "linear": lambda t, f, x, y, p, m, i: f.linear(x, y, y[0]),
    "cat": lambda t, f, x, y, p, m, i: t.cat([x, y], 1),
    "transposed copy": lambda t, f, x, y, p, m, i: x.t().contiguous(),
    "sort": lambda t, f, x, y, p, m, i: x.sort(1)[0],
    "topk": lambda t, f, x, y, p, m, i: x.topk(10, 1)[0],
    "index_select": lambda t, f, x, y, p, m, i: x.index_select(0, i),
    "gather": lambda t, f, x, y, p, m, i: x.gather(0, i[None].expand(x.shape)),
    "embedding": lambda t, f, x, y, p, m, i: f.embedding(i, x),
    "tril": lambda t, f, x, y, p, m, i: x.tril(),
}


def cases(torch: Any, size: int, names: list[str], seconds: float) -> Iterator[Case]:
    """Generate a case for each op at this size, repeated for about `seconds`; called once if `seconds` is 0."""
    random = np.random.default_rng(0)
    arrays: list[Any] = [random.standard_normal((size, size)).astype(np.float32) for _ in range(2)]
    arrays += [np.abs(arrays[0]) + 0.1, arrays[1] > 0, random.integers(0, size, size)]
    ours = [flow.tensor(array) for array in arrays]
    theirs = [torch.from_numpy(array) for array in arrays] if torch is not None else []
    for name in names:
        op = OPS[name]
        repeat = 1
        if seconds:
            once = measure(Case(name, {"vmflow": partial(_ours, op, ours, 1)}), 3).microseconds["vmflow"] * 1e-6
            repeat = max(1, min(2000, int(seconds / once)))
        contenders: dict[str, Callable[[], object]] = {"vmflow": partial(_ours, op, ours, repeat)}
        if torch is not None:
            contenders["torch"] = partial(_theirs, torch, op, theirs, repeat)
        yield Case(name, contenders, repeat)


@flow.no_grad()
def _ours(op: Op, operands: list[Any], repeat: int) -> None:
    for _ in range(repeat):
        op(flow, flow.nn.functional, *operands)
    default_machine().drain()


def _theirs(torch: Any, op: Op, operands: list[Any], repeat: int) -> None:
    with torch.no_grad():
        for _ in range(repeat):
            op(torch, torch.nn.functional, *operands)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.ops", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="times each contender runs; the median counts")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--only", help="names of ops, separated by commas")
    parser.add_argument("--quick", action="store_true", help="two rounds, one small size")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()
    sizes = (16,) if options.quick else tuple([int(entry) for entry in options.sizes.split(",")])
    rounds = 2 if options.quick else options.rounds
    names = options.only.split(",") if options.only else list(OPS)
    torch = torch_if_installed()
    versions = f"vmflow {flow.__version__}, Python {platform.python_version()}, numpy {np.__version__}"
    versions += f", torch {torch.__version__}" if torch is not None else ", no torch"
    print(f"{versions}; one thread; float32 matrices; medians of {rounds} rounds; vmflow's microseconds, and / torch's")
    print(f"{'op':24}" + "".join([f"{size:>12}{'/ torch':>9}" for size in sizes]))
    table: dict[str, dict[int, Result]] = {name: {} for name in names}
    for size in sizes:
        for case in cases(torch, size, names, SECONDS / 50 if options.quick else SECONDS):
            table[case.name][size] = measure(case, rounds)
    for name, row in table.items():
        cells = [f"{row[size].microseconds['vmflow']:12.1f}{_ratio(row[size]):>9}" for size in sizes]
        print(f"{name:24}" + "".join(cells), flush=True)
    if options.json is not None:
        figures = {name: {size: value.microseconds for size, value in row.items()} for name, row in table.items()}
        options.json.write_text(json.dumps({"versions": versions, "results": figures}, indent=2))


def _ratio(result: Result) -> str:
    ratio = result.ratio("torch")
    return "-" if ratio is None else f"{ratio:.2f}"


if __name__ == "__main__":
    main()
