"""Run random programs with autograd in vmflow and in PyTorch, and print how many there were and which differ.

``python -m tests.benchmarks.autograd_programs [20000] [--seed 0]``

Every tenth program has blocks under autocast.  Every twentieth has dropout; since PyTorch draws other random numbers,
it is compared with the same program in vmflow without checkpoints and custom functions.  The exit code is 1 if any
program differs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.autograd.program_runs import Check, shrunk
from tests.autograd.program_steps import our_library, torch_library
from tests.autograd.random_graphs import Kinds, drawn


def kinds_of(seed: int) -> Kinds:
    """The kinds of steps from which the program of this seed is drawn: with autocast, with dropout, or neither."""
    if seed % 20 == 1:
        return Kinds(dropout=True)
    return Kinds(low="bfloat16" if seed % 20 == 2 else "float16") if seed % 10 == 2 else Kinds()


def main() -> int:
    """Run the programs, print those that differ and the counts, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=20000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--differing", type=int, default=10, help="stop after so many")
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    with_torch = Check(our_library(), torch_library(), torch_library(plain=True), counts)
    without = Check(our_library(), our_library(plain=True), our_library(plain=True), counts)
    start, differing, steps = time.perf_counter(), 0, 0
    for seed in range(given.seed, given.seed + given.count):
        kinds = kinds_of(seed)
        check = without if kinds.dropout else with_torch
        program = drawn(seed, kinds)
        steps += len(program)
        counts["programs"] += 1
        if check.problem(program) is not None:
            differing += 1
            program = shrunk(program, lambda x, check=check: check.problem(x) is not None)  # type: ignore[misc]
            print(f"seed {seed}: {check.problem(program)}", *program, "", sep="\n", flush=True)
            if differing == given.differing:
                break
    for name, count in counts.items():
        print(f"{count:8d} {name}")
    print(f"{steps:8d} steps in {time.perf_counter() - start:.0f} s; {differing} programs differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
