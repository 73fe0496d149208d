"""The README's first command on a machine without cached kernels: does compiling them falsify the times it prints?

``python -m tests.benchmarks.first_run [--python .venv/bin/python] [--runs 3] [--alone]``

Each run has an empty kernel cache and, without ``--alone``, another program at the same time that keeps a core busy.

- `examples/digits.py` must say that kernels are compiled; once they are, its graph must take at most 1.05 of the time
  of eager steps, in the median of pairs.
- Eager steps in the mode "background", while kernels are compiled or queued, are compared with steps of a process that
  compiles nothing.

``--python`` names an interpreter that has vmflow and the extra "examples" installed, as the first command leaves it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

# The largest ratio of the graph's time to the eager step's that is good enough.
BAR = 1.05

# The seconds after which a run is killed, and after which the program that keeps a core busy ends by itself.
PATIENCE = 300

BUSY = f"import time\nend = time.monotonic() + {PATIENCE}\nwhile time.monotonic() < end: pass"

# A program that trains eagerly for a number of seconds, or until no kernel is left to compile.  It prints the mean
# seconds of a step and the number of steps, without those of the first second.
STEPS = """
import asyncio, json, sys, time
sys.path.insert(0, sys.argv[1])
import digits as example
import vmflow as flow

async def main(seconds):
    data, _ = example.load(0)
    model = example.build()
    optimizer = flow.optim.Adam(model.parameters(), lr=2e-3)
    spent, compiles = [], flow.backends.codegen.mode != "off"
    first = time.perf_counter()
    while (now := time.perf_counter()) < first + seconds:
        await example.train_step(model, optimizer, data.images[:64], data.labels[:64])
        if now > first + 1:
            if compiles and not flow.backends.codegen.pending():
                break
            spent.append(time.perf_counter() - now)
    print(json.dumps([sum(spent) / len(spent), len(spent)]))

asyncio.run(main(float(sys.argv[2])))
"""


class Run(NamedTuple):
    """The figures that a run of `examples/digits.py` has printed.

    Attributes:
        compiled: the number of libraries that it said it compiles.
        graph: the milliseconds of a training step as a graph.
        eager: the milliseconds of an eager step.
        ratio: of the graph's time to the eager time.
    """

    compiled: int
    graph: float
    eager: float
    ratio: float


def read(printed: str) -> Run:
    """Parse the numbers of compiled libraries and the times in the example's output.

    Raises:
        ValueError: if the output has no times.
    """
    compiled = sum([int(count) for count in re.findall(r"compiling (\d+) librar", printed)])
    times = re.search(r"takes ([\d.]+) ms as a graph and ([\d.]+) ms eagerly: ([\d.]+) of the time", printed)
    if times is None:
        raise ValueError(f"the example has printed no times, but: {printed!r}")
    graph, eager, ratio = [float(number) for number in times.groups()]
    return Run(compiled, graph, eager, ratio)


@contextmanager
def busy() -> Iterator[None]:
    """A context manager in which another process keeps a core busy, at the usual priority."""
    process = subprocess.Popen([sys.executable, "-S", "-c", BUSY])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def call(python: str, *arguments: str, jit: str = "") -> str:
    """Run an interpreter with an empty kernel cache; return its output."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "VMFLOW_CACHE_DIR": folder, "VMFLOW_JIT": jit}
        done = subprocess.run(
            [python, *arguments], env=environment, cwd=folder, stdout=subprocess.PIPE, text=True, timeout=PATIENCE
        )
    if done.returncode:
        raise SystemExit(f"{python} {arguments[0]} has ended with {done.returncode}")
    return done.stdout


def first_run(python: str) -> Run:
    """Run `examples/digits.py` with an empty kernel cache, print its figures and return them."""
    begin = time.perf_counter()
    found = read(call(python, str(EXAMPLES / "digits.py")))
    print(
        f"  {time.perf_counter() - begin:.1f} s in all; it said that it compiles {found.compiled} libraries; "
        f"once settled {found.graph:.1f} ms as a graph, {found.eager:.1f} ms eagerly, ratio {found.ratio:.2f}",
        flush=True,
    )
    return found


def beside_the_compiler(python: str, seconds: float) -> float:
    """Print and return the ratio of an eager step's time while kernels are compiled to its time without compiling."""
    arguments = ("-c", STEPS, str(EXAMPLES), str(seconds))
    without, _ = json.loads(call(python, *arguments, jit="0"))
    beside, count = json.loads(call(python, *arguments))
    print(
        f"  an eager step: {without * 1e3:.1f} ms where nothing is compiled, {beside * 1e3:.1f} ms in the mean of "
        f"{count} while kernels are, ratio {beside / without:.2f}",
        flush=True,
    )
    return float(beside / without)


def main() -> int:
    """Run and print all; return 1 if the graph was too slow, or the example did not say that it compiles kernels."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--alone", action="store_true", help="without another program beside it")
    parser.add_argument("--seconds", type=float, default=20.0, help="of eager steps at most (default: %(default)s)")
    options = parser.parse_args()
    # The path is not resolved, since a virtual environment is found by the symbolic link to its interpreter.
    python = os.path.abspath(options.python)
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} before", flush=True)
    with nullcontext() if options.alone else busy():
        runs = [first_run(python) for _ in range(options.runs)]
        beside = [beside_the_compiler(python, options.seconds) for _ in range(options.runs)]
    good = all([run.ratio <= BAR and run.compiled for run in runs])
    ratio = statistics.median([run.ratio for run in runs])
    print(
        f"graph to eager {ratio:.2f} in the median, at most {BAR} is wanted each time: {'good' if good else 'NOT GOOD'}"
    )
    print(f"eager steps beside the compiler {statistics.median(beside):.2f} in the median")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
