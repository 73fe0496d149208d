"""Time several contenders in one run and compare them.

A shared machine is slow in phases.  So the contenders take turns within each round, and what is compared is the median
of each over the rounds; a ratio of two medians from one run means more than any number of microseconds.
"""

from __future__ import annotations

import gc
import math
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import vmflow as flow

# The contenders that are vmflow, in its two ways.
EAGER: Final = "vmflow"
GRAPH: Final = "graph"

# However long they take.
FEWEST_ROUNDS: Final = 3

# In seconds: between two looks at whether anybody computes, for how long that may be so, and how long a contender works
# before it is timed.
_LOOK: Final = 0.01
_PATIENCE: Final = 10.0
_WARM: Final = 0.1


@dataclass(frozen=True)
class Bar:
    """What is wanted of one figure of a row.

    Attributes:
        most: the largest that is good enough.
        of: the contender that it is wanted of.
        to: whose share it is; None if it is in the row's own unit.
        compiled: True if it only holds where the core is compiled, False if only where it is not.
    """

    most: float
    of: str = EAGER
    to: str | None = "torch"
    compiled: bool | None = None


@dataclass(frozen=True)
class Case:
    """One row of the table.

    Attributes:
        name: of the row.
        contenders: by name, a function that does the work `repeat` times.
        repeat: how many units of work one call does; figures are given per unit.
        before, after: done around vmflow's work, untimed.
        bars: what is wanted.
        unit: of the figures; where it is not "us", they are what the contenders return.
    """

    name: str
    contenders: dict[str, Callable[[], Any]]
    repeat: int = 1
    before: Callable[[], object] | None = None
    after: Callable[[], object] | None = None
    bars: tuple[Bar, ...] = ()
    unit: str = "us"


@dataclass
class Result:
    """Microseconds (or what the case's unit says) per unit of work, the median of the rounds, by contender."""

    name: str
    microseconds: dict[str, float] = field(default_factory=dict)

    def ratio(self, to: str, of: str = EAGER) -> float | None:
        """vmflow's time, or that of another contender, divided by another's; smaller is better."""
        both = of in self.microseconds and to in self.microseconds
        return self.microseconds[of] / self.microseconds[to] if both else None

    def figure(self, bar: Bar) -> float | None:
        """What is to be held against the bar; None if it was not measured."""
        return self.microseconds.get(bar.of) if bar.to is None else self.ratio(bar.to, bar.of)


def processor_seconds() -> float:
    """Processor time, of all threads and of children that have ended.

    Others on the same machine do not count here; what two threads do at the same time counts twice.
    """
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def measure(
    case: Case,
    rounds: int,
    seconds: float = math.inf,
    clock: Callable[[], float] = time.perf_counter,
    alone: bool = False,
) -> Result:
    """Run every contender `rounds` times, taking turns.

    Args:
        case: what to run.
        rounds: how often.
        seconds: after which no new round begins, once there have been a few.
        clock: what tells the seconds that a contender has taken.
        alone: whether each is to have the cores for itself, see `_have_to_itself`; where libraries have threads.
    """
    figures: dict[str, list[float]] = {name: [] for name in case.contenders}
    for name, work in case.contenders.items():  # the first run fills caches
        _one(case, name, work, clock)
    # As in a process that finds on disk what the first run has had compiled.
    flow.backends.codegen.wait()
    begin = time.perf_counter()
    for turn in range(rounds):
        if turn >= FEWEST_ROUNDS and time.perf_counter() - begin > seconds:
            break
        for name, work in case.contenders.items():
            gc.collect()
            if alone:
                _have_to_itself(case, name, work)
            figures[name].append(_one(case, name, work, clock))
    return Result(case.name, {name: statistics.median(found) for name, found in figures.items()})


def _have_to_itself(case: Case, name: str, work: Callable[[], Any]) -> None:
    """Let a contender find the cores as it would in a process of its own that has worked for a while.

    Threads that a library leaves waiting for more work keep a core for up to a tenth of a second; and threads that are
    woken then may lie on their waker's core for as long.
    """
    patience = time.perf_counter() + _PATIENCE
    while True:
        before = time.process_time()
        time.sleep(_LOOK)
        if time.process_time() - before < _LOOK / 4:
            break
        if time.perf_counter() > patience:
            raise RuntimeError(
                f"{case.name}: for {_PATIENCE} s, threads of this process have computed for nobody; if a library is "
                "told to let them wait so (OMP_WAIT_POLICY=active, KMP_BLOCKTIME), tell it not to"
            )
    until = time.perf_counter() + _WARM
    while time.perf_counter() < until:
        _one(case, name, work, time.perf_counter)


def _one(case: Case, name: str, work: Callable[[], Any], clock: Callable[[], float]) -> float:
    """One figure of one contender."""
    ours = name in (EAGER, GRAPH)
    if case.before is not None and ours:
        case.before()
    begin = clock()
    returned = work()
    taken = clock() - begin
    if case.after is not None and ours:
        case.after()
    return (taken * 1e6 if case.unit == "us" else float(returned)) / case.repeat
