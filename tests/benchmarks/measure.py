"""Time several contenders in one run and compare them.

A shared machine is slow in phases.  So the contenders take turns within each round, and their medians over the rounds
are compared; a ratio of two medians from one run means more than any number of microseconds.
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

# The names of the two contenders that are vmflow: eager ops, and a graph.
EAGER: Final = "vmflow"
GRAPH: Final = "graph"

# The number of rounds that a case gets however long they take.
FEWEST_ROUNDS: Final = 3

# Seconds between two checks whether threads of this process still compute, seconds after which that is an error, and
# seconds for which a contender works before it is timed; see `_have_to_itself`.
_LOOK: Final = 0.01
_PATIENCE: Final = 10.0
_WARM: Final = 0.1


@dataclass(frozen=True)
class Bar:
    """An upper limit for one figure of a row: a contender's time, or its ratio to another contender's.

    Attributes:
        most: the largest figure that is good enough.
        of: the contender whose figure is limited.
        to: the contender that the figure is relative to; None for a figure in the row's own unit.
        compiled: True if the limit holds only with a compiled core, False if only without one, None for both.
    """

    most: float
    of: str = EAGER
    to: str | None = "torch"
    compiled: bool | None = None


@dataclass(frozen=True)
class Case:
    """One row of the table: the same work by several contenders.

    Attributes:
        name: the name of the row.
        contenders: by name, a function that does the work `repeat` times.
        repeat: how many units of work one call does; figures are given per unit.
        before, after: called before and after vmflow's work, untimed.
        bars: the limits that figures have to meet.
        unit: of the figures; with another unit than "us", the figures are the values that the contenders return.
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
    """A case's figures by contender: medians over the rounds, in microseconds (or the case's unit) per unit of work."""

    name: str
    microseconds: dict[str, float] = field(default_factory=dict)

    def ratio(self, to: str, of: str = EAGER) -> float | None:
        """The figure of contender `of`, by default vmflow's, divided by that of `to`; None if one was not measured."""
        both = of in self.microseconds and to in self.microseconds
        return self.microseconds[of] / self.microseconds[to] if both else None

    def figure(self, bar: Bar) -> float | None:
        """The figure or ratio that `bar` limits; None if it was not measured."""
        return self.microseconds.get(bar.of) if bar.to is None else self.ratio(bar.to, bar.of)


def processor_seconds() -> float:
    """The processor time of all threads of this process, and of its children that have ended.

    Other programs on the machine do not count; two threads that compute at the same time count twice.
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
    """Run every contender of a case `rounds` times, taking turns, and return the medians.

    Args:
        case: the contenders.
        rounds: how often each contender is timed.
        seconds: after this time no new round begins, once there have been `FEWEST_ROUNDS`.
        clock: the clock by which a contender is timed, in seconds.
        alone: whether to wait until other threads are idle, see `_have_to_itself`; needed if libraries have threads.
    """
    figures: dict[str, list[float]] = {name: [] for name in case.contenders}
    for name, work in case.contenders.items():  # the first run fills caches
        _one(case, name, work, clock)
    # Wait for the kernels that the first run had compiled, as if this process had found them in the cache.
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
    """Wait until other libraries' threads are idle, and warm the contender up, as if it had a process of its own.

    Threads of a library that spin for more work keep a core busy for up to a tenth of a second; and threads that are
    woken meanwhile may share their waker's core for as long.
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
    """Run a contender once, and return its figure per unit of work."""
    ours = name in (EAGER, GRAPH)
    if case.before is not None and ours:
        case.before()
    begin = clock()
    returned = work()
    taken = clock() - begin
    if case.after is not None and ours:
        case.after()
    return (taken * 1e6 if case.unit == "us" else float(returned)) / case.repeat
