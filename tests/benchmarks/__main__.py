"""Print one table: what vmflow takes, next to others, and whether that is what is wanted.

``python -m tests.benchmarks [--against torch,numpy,jax] [--threads 1,2] [--only NAME...] [--quick] [--json FILE]``

On a machine that is busy with other things, ``--clock cpu`` is steadier than the time on the wall.

Figures are medians; the contenders take turns, so that ratios are of one run.  A row that ends in "graph" is the same
work as a graph.  "wanted" is the largest ratio to torch that is good enough, or else says what it is.  Whoever is not
installed is left out.  Each number of threads is a process of its own, since libraries read it when they are imported.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.contenders import LIBRARIES, gathered, thread_environment
from tests.benchmarks.families import FAMILIES, chosen
from tests.benchmarks.header import core_is_compiled, header
from tests.benchmarks.measure import measure, processor_seconds
from tests.benchmarks.report import Report

CLOCKS: Final = {"wall": time.perf_counter, "cpu": processor_seconds}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--against", default=",".join(LIBRARIES), help="whom to compare with, where installed")
    parser.add_argument("--threads", default="1", help="numbers of threads, separated by commas")
    parser.add_argument("--rounds", type=int, default=15, help="times each contender runs; the median counts")
    parser.add_argument("--seconds", type=float, default=10.0, help="after which a row gets no more rounds")
    parser.add_argument(
        "--clock", choices=sorted(CLOCKS), default="wall", help="the time on the wall, or of processors"
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help=f"of {', '.join(FAMILIES)}, or of rows")
    parser.add_argument("--quick", action="store_true", help="small sizes and few rounds, to see that everything runs")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    return parser.parse_args()


def main() -> None:
    """Run what was asked for, in as many processes as that takes."""
    options = _options()
    counts = [int(value) for value in options.threads.split(",")]
    runs: list[Any] = []
    for threads in counts:
        environment = thread_environment(threads)
        if len(counts) == 1 and environment.items() <= os.environ.items():
            runs.append(run(options, threads))
        else:
            runs += _run_elsewhere(threads, environment)
    if options.json is not None:
        options.json.write_text(json.dumps(runs, indent=2))


def _run_elsewhere(threads: int, environment: dict[str, str]) -> Any:
    """The runs of a process that has this environment from its beginning."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "results.json")
        # Of options that are given twice the later counts.
        command = [sys.executable, "-m", "tests.benchmarks", *sys.argv[1:], f"--threads={threads}", f"--json={file}"]
        subprocess.run(command, check=True, env=os.environ | environment)
        return json.loads(file.read_text())


def run(options: argparse.Namespace, threads: int) -> dict[str, Any]:
    """Measure and print in this process; the results for a file."""
    company = gathered(options.against.split(","), threads, options.quick)
    said = header(company, threads)
    for topic, text in said.items():
        print(f"{topic:10}{text}")
    rounds = 2 if options.quick else options.rounds
    print(f"medians of at most {rounds} rounds, {options.clock} time; ratios are vmflow's to the other's")
    # What is wanted is not wanted of small sizes.
    report = Report(company.names(), core_is_compiled(), judged=not options.quick)
    report.print_head()
    for case in chosen(company, options.only):
        alone = threads > 1 and not options.quick
        # Else what other libraries and cases have made would be looked through whenever somebody makes many objects.
        gc.collect()
        gc.freeze()
        report.add(case, measure(case, rounds, options.seconds, CLOCKS[options.clock], alone))
    report.print_summary()
    return {"conditions": {**said, "clock": options.clock}, "rows": report.rows}


if __name__ == "__main__":
    main()
