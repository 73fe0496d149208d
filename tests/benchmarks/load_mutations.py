"""Load saved graphs that were changed at random: the result must be values, or documented errors.

``python -m tests.benchmarks.load_mutations [--count 100000] [--seed 0] [--first 0] [--few]``

Saved graphs of many kinds are changed at random, loaded and run in children of this process; see
`tests.graph_mode.mutations`.  The outcomes are counted and printed; the exit code is 1 if a child crashed or hung, or
if an error was not a documented one.  With VMFLOW_C_CHECKS=1, functions in C check their arguments.
"""

from __future__ import annotations

import argparse
import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.graph_mode.mutations import Tally, graphs, report, saved, tried

ROOT = Path(__file__).parents[2]

# The number of changed graphs after which progress is printed.
_TOLD: Final = 10_000


def seeds_of_all_ops(folder: Path) -> list[object]:
    """Save a graph for each op in the tests of ops, with its gradients; return them as seeds for mutations."""
    import vmflow as flow
    from tests.graph_mode.test_serialization import Forward, differentiated
    from tests.ops.test_coverage import ROWS

    found: list[object] = []
    for name in sorted(ROWS):
        row = ROWS[name][0]
        args = tuple([flow.tensor(operand) for operand in row.operands(row.usual(), row.dtypes[0])])
        found.append(saved(folder / f"op {name}", f"op {name}", Forward(differentiated(row)), args))
    return found


def prepare(folder: Path, few: bool) -> None:
    """Save the graphs that will be changed; in a process of its own, so that the forking process computes nothing."""
    found: list[object] = [saved(folder / name, name, graph, args) for name, graph, args in graphs()]
    if not few:
        found += seeds_of_all_ops(folder)
    (folder / "seeds").write_bytes(pickle.dumps(found))


def main() -> int:
    """Change, load and run graphs, print the outcomes, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--few", action="store_true", help="only graphs of several ops, not one for each op")
    parser.add_argument("--prepare", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.prepare is not None:
        prepare(given.prepare, given.few)
        return 0
    tally, begun = Tally(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        call = [sys.executable, "-m", "tests.benchmarks.load_mutations", "--prepare", folder]
        subprocess.run([*call, *["--few"] * given.few], check=True, cwd=ROOT)
        from vmflow.graph_mode.serialization import declare_all_ops
        from vmflow.kernels.native import functions
        from vmflow.kernels.native.loading import LOADER

        declare_all_ops()
        if LOADER.mode != "off":
            LOADER.mode = "wait"  # hand-written C functions are compiled here, so that children inherit them
            for name in functions._DECLARED:
                functions.function(name, 1 << 20)
            LOADER.mode = "background"
        seeds = pickle.loads((Path(folder) / "seeds").read_bytes())
        last = given.first + given.count
        for first in range(given.first, last, _TOLD):
            tried(seeds, given.seed, first, min(first + _TOLD, last), tally)
            print(f"{min(first + _TOLD, last)}: {dict(tally.outcomes)}", file=sys.stderr, flush=True)
    print(report(tally, begun))
    return 1 if tally.faults else 0


if __name__ == "__main__":
    sys.exit(main())
