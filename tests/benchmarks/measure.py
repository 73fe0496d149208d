"""Time several contenders in one run and compare them.

A shared machine is slow in phases.  So the contenders take turns within each round, and what is compared is the median
of each over the rounds; a ratio of two medians from one run means more than any number of microseconds.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Case:
    """One row of the table.

    Attributes:
        name: of the row.
        contenders: by name, a function that does the work `repeat` times.
        repeat: how many units of work one call does; times are given per unit.
        before, after: done around vmflow's work, untimed.
    """

    name: str
    contenders: dict[str, Callable[[], object]]
    repeat: int = 1
    before: Callable[[], object] | None = None
    after: Callable[[], object] | None = None


@dataclass
class Result:
    """Microseconds per unit of work, the median of the rounds, by contender."""

    name: str
    microseconds: dict[str, float] = field(default_factory=dict)

    def ratio(self, to: str) -> float | None:
        """vmflow's time divided by another's; smaller is better."""
        return self.microseconds["vmflow"] / self.microseconds[to] if to in self.microseconds else None


def measure(case: Case, rounds: int) -> Result:
    """Run every contender `rounds` times, taking turns."""
    times: dict[str, list[float]] = {name: [] for name in case.contenders}
    for turn in range(rounds + 1):
        for name, work in case.contenders.items():
            if case.before is not None and name == "vmflow":
                case.before()
            gc.collect()
            begin = time.perf_counter()
            work()
            taken = time.perf_counter() - begin
            if case.after is not None and name == "vmflow":
                case.after()
            if turn > 0:  # the first fills caches
                times[name].append(taken)
    return Result(case.name, {name: statistics.median(taken) / case.repeat * 1e6 for name, taken in times.items()})
