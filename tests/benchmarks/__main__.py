"""Print one table: ``python -m tests.benchmarks [--rounds 15] [--against numpy,torch] [--json FILE]``."""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path

import numpy as np

import vmflow as flow
from tests.benchmarks import cases
from tests.benchmarks.measure import Result, measure


def main() -> None:
    """Run every case and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="times each contender runs; the median counts")
    parser.add_argument("--against", default="numpy,torch", help="whom to compare with, where installed")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()
    others = options.against.split(",")
    torch = cases.torch_if_installed() if "torch" in others else None
    versions = f"vmflow {flow.__version__}, Python {platform.python_version()}, numpy {np.__version__}"
    if torch is not None:
        versions += f", torch {torch.__version__}"
    print(f"{versions}; medians of {options.rounds} rounds, microseconds; ratios are vmflow's time to the other's")
    print(f"{'case':32}{'vmflow':>10}{'numpy':>10}{'torch':>10}{'/numpy':>9}{'/torch':>9}")
    results: list[Result] = []
    for family in cases.ALL:
        for case in family(torch):
            result = measure(case, options.rounds)
            results.append(result)
            columns = [result.microseconds.get(name) for name in ("vmflow", "numpy", "torch")]
            ratios = [result.ratio(name) if name in others else None for name in ("numpy", "torch")]
            print(
                f"{result.name:32}"
                + "".join([f"{it:10.2f}" if it is not None else f"{'-':>10}" for it in columns])
                + "".join([f"{it:9.2f}" if it is not None else f"{'-':>9}" for it in ratios]),
                flush=True,
            )
    if options.json is not None:
        options.json.write_text(
            json.dumps({"versions": versions, "results": {it.name: it.microseconds for it in results}}, indent=2)
        )


if __name__ == "__main__":
    main()
