"""Check that a virtual machine is as fast after a million instructions: ``python -m tests.benchmarks.endurance``.

Blocks of additions of ten floats by vmflow and by numpy take turns; the last tenth of the blocks is compared with the
first tenth, each relative to numpy's blocks at that time.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

import vmflow as flow
from tests.benchmarks.models import finish
from tests.benchmarks.tables import Table, conditions


def run(blocks: int, each: int) -> Table:
    """Time `blocks` blocks of `each` instructions; return a table with rows for the first tenth and the last tenth."""
    y, one = flow.ones(10), np.ones(10, np.float32)
    x, z = y, one
    taken: list[float] = []
    relative: list[float] = []
    for _ in range(blocks):
        begin = time.perf_counter()
        for _ in range(each):
            x = x + y
        finish()
        middle = time.perf_counter()
        for _ in range(each):
            z = z + one
        taken.append((middle - begin) / each * 1e6)
        relative.append((middle - begin) / (time.perf_counter() - middle))
    tenth = max(1, blocks // 10)
    table = Table("instructions", ["us each", "/ numpy"])
    table.print_head()
    for name, part in (("the first tenth", slice(tenth)), ("the last tenth", slice(-tenth, None))):
        table.add(name, us_each=statistics.median(taken[part]), __numpy=statistics.median(relative[part]))
    return table


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.endurance", description=__doc__)
    parser.add_argument("--instructions", type=int, default=1_000_000)
    options = parser.parse_args()
    print(f"{conditions()}; medians of blocks of 1,000")
    run(max(1, options.instructions // 1000), 1000)


if __name__ == "__main__":
    main()
