"""Call random graphs with tensors of many strides and offsets, and compare the results with those of eager ops.

``python -m tests.benchmarks.strided_graphs [5000] [--seed 0]``

It prints how many graphs there were and which differ; the exit code is 1 if any differs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import attrs

from tests.autograd.program_runs import shrunk
from tests.graph_mode.strided_programs import GraphCheck, GraphProgram, drawn


def main() -> int:
    """Run the graphs, print those that differ and the counts, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--differing", type=int, default=10, help="stop after so many")
    given = parser.parse_args()
    start, differing = time.perf_counter(), 0
    # Graphs are saved to a folder in memory if there is one, since saving waits for the disk.
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        check = GraphCheck(Path(folder))
        for seed in range(given.seed, given.seed + given.count):
            program = drawn(seed)
            if _problem(check, program, seed) is not None:
                differing += 1
                _tell(check, program, seed)
                if differing == given.differing:
                    break
    for name, count in check.counts.items():
        print(f"{count:8d} {name}")
    print(f"{differing} programs differ; {time.perf_counter() - start:.0f} s")
    return 1 if differing else 0


def _problem(check: GraphCheck, program: GraphProgram, seed: int) -> str | None:
    try:
        return check.problem(program, seed)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _tell(check: GraphCheck, program: GraphProgram, seed: int) -> None:
    kind = _kind(_problem(check, program, seed))
    steps = shrunk(program.steps, lambda x: _kind(_problem(check, attrs.evolve(program, steps=x), seed)) == kind)
    program = attrs.evolve(program, steps=steps)
    print(f"seed {seed}: {_problem(check, program, seed)}", *program.given, *steps, program.results, "", sep="\n")


def _kind(problem: str | None) -> str:
    return (problem or "").partition(",")[0].partition(":")[0]


if __name__ == "__main__":
    sys.exit(main())
