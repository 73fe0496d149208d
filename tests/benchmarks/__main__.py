"""Print a table of vmflow's times next to those of other libraries, and whether the ratios meet their bars.

``python -m tests.benchmarks [--against torch,numpy,jax] [--threads 1,2] [--only NAME...] [--quick] [--json FILE]
[--page docs/performance.md]``

On a busy machine, processor time (``--clock cpu``) varies less than wall-clock time.

Figures are medians; the libraries take turns, so that both times of a ratio are from one run.  A row that ends in
"graph" is the work of the row before, as a graph.  "wanted" is the largest ratio to torch that is good enough, unless
it names another unit or library.  Libraries that are not installed are left out.  Each number of threads is measured in
a process of its own, since libraries read the number when they are imported.  ``--page`` writes the table into the
marked part of a Markdown page.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shlex
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
from tests.benchmarks.page import split_page, write_page
from tests.benchmarks.report import Report

CLOCKS: Final = {"wall": time.perf_counter, "cpu": processor_seconds}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--against", default=",".join(LIBRARIES), help="libraries to compare with, where installed")
    parser.add_argument("--threads", default="1", help="numbers of threads, separated by commas")
    parser.add_argument("--rounds", type=int, default=15, help="times each contender runs; the median counts")
    parser.add_argument("--seconds", type=float, default=10.0, help="after which a row gets no more rounds")
    parser.add_argument(
        "--clock", choices=sorted(CLOCKS), default="wall", help="the time on the wall, or of processors"
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help=f"of {', '.join(FAMILIES)}, or of rows")
    parser.add_argument("--quick", action="store_true", help="small sizes and few rounds, to see that everything runs")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--page", type=_path_or_none, help="also write a table into the marked part of this page")
    options = parser.parse_args()
    if options.page is not None:
        try:
            split_page(options.page)  # raises an error before the measurements, and not after them
        except (OSError, ValueError) as error:
            parser.error(str(error))
    return options


def _path_or_none(text: str) -> Path | None:
    return Path(text) if text else None


def main() -> None:
    """Run the chosen rows, in a process for each number of threads."""
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
    if options.page is not None:
        write_page(options.page, runs, f"python -m tests.benchmarks {shlex.join(sys.argv[1:])}")


def _run_elsewhere(threads: int, environment: dict[str, str]) -> Any:
    """Run the benchmark in a new process with these environment variables; return the results that it writes."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "results.json")
        # The last occurrence of an option counts, so these override the program's own; an empty page means no page.
        own = [f"--threads={threads}", f"--json={file}", "--page="]
        command = [sys.executable, "-m", "tests.benchmarks", *sys.argv[1:], *own]
        subprocess.run(command, check=True, env=os.environ | environment)
        return json.loads(file.read_text())


def run(options: argparse.Namespace, threads: int) -> dict[str, Any]:
    """Measure and print the chosen rows in this process; return the conditions and rows for the JSON file."""
    company = gathered(options.against.split(","), threads, options.quick)
    conditions = header(company, threads)
    for topic, text in conditions.items():
        print(f"{topic:10}{text}")
    rounds = 2 if options.quick else options.rounds
    print(f"medians of at most {rounds} rounds, {options.clock} time; ratios are vmflow's to the other's")
    # Quick runs are not judged, since the bars are for full sizes.
    report = Report(company.names(), core_is_compiled(), judged=not options.quick)
    report.print_head()
    for case in chosen(company, options.only):
        alone = threads > 1 and not options.quick
        # Objects of other libraries and earlier cases are frozen, so that garbage collections do not traverse them.
        gc.collect()
        gc.freeze()
        report.add(case, measure(case, rounds, options.seconds, CLOCKS[options.clock], alone))
    report.print_summary()
    return {"conditions": {**conditions, "clock": options.clock}, "rows": report.rows}


if __name__ == "__main__":
    main()
