"""Train every sequence of two layers under autocast, in both 16-bit dtypes, eagerly and as a graph.

``python -m tests.benchmarks.autocast_pairs [--first NAME...] [--second NAME...]``

The gradients are compared with those of float32, and the graph with the eager step; see `tests.amp.layer_pairs`.  All
layers and losses of `vmflow.nn` are paired where the second can follow the first, which takes some ten minutes of one
core.  Failures are printed, the last line says how many pairs there were, and the exit status tells whether one failed.
The test suite runs some of the pairs, in `tests/amp/test_layer_pairs.py`.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.amp.layer_pairs import LOWER, Pair, check, pairs


def _failures(pair: Pair) -> list[str]:
    """Check a pair of layers in each 16-bit dtype; return the errors as texts."""
    found: list[str] = []
    for lower in LOWER:
        try:
            check(pair, lower)
        except Exception as error:
            found.append(f"{pair} of {list(pair.shape)} in {lower.name}: {type(error).__name__}: {error}")
    return found


def main() -> int:
    """Check the chosen pairs, and print failures.

    Returns:
        The exit status: 0 if no pair fails.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.autocast_pairs", description=__doc__)
    parser.add_argument("--first", nargs="*", default=[], help="labels of the layers that come first; all by default")
    parser.add_argument("--second", nargs="*", default=[], help="labels of those that follow")
    options = parser.parse_args()
    count, failures, start = 0, 0, time.perf_counter()
    for pair in pairs():
        if (options.first and str(pair.first) not in options.first) or (
            options.second and str(pair.second) not in options.second
        ):
            continue
        count += 1
        for line in _failures(pair):
            failures += 1
            print(line, flush=True)
    seconds = time.perf_counter() - start
    print(f"{count} pairs, each in {len(LOWER)} dtypes, eagerly and as a graph: {failures} failures, {seconds:.0f} s")
    return 1 if failures or not count else 0


if __name__ == "__main__":
    sys.exit(main())
