"""Latencies of urgent work, of deadlines and of cancellation on an event loop that computes.

``python -m tests.benchmarks.cancellation [--quick] [--json FILE]``

Everything is issued from coroutines on an event loop, with one BLAS thread.  Three tables:

- *urgent*: the latency of a small forward (a few products of small matrices), alone, and issued while a long forward (a
  chain of large products) runs, with the same priority and with a higher one.  The best possible latency is the time of
  one op of the long forward, which cannot be interrupted, plus the small forward's own time.
- *deadlines*: how late a coroutine gets `DeadlineExceeded` for an awaited result while a long forward keeps the worker
  busy, compared with how late `asyncio.sleep` wakes a coroutine at the same time.
- *cancelled*: forwards of many ops, whose kernels count the ops, are each cancelled at a random point: how many ops
  began after the cancellation (without the op that was running), how many were never run, and how long it took until
  the awaiting coroutine was told.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import vmflow as flow
from tests.benchmarks.contenders import restart_with_one_thread
from tests.benchmarks.tables import Table, conditions
from tests.vm.gates import call
from vmflow.vm.virtual_machine import VirtualMachine


@dataclass(frozen=True)
class Sizes:
    """The sizes and repetitions of the three measurements.

    Attributes:
        side: the number of rows and columns of the long forward's matrices.
        products: the number of products in the long forward.
        small_side, small_products: the side and the number of products of the small forward.
        runs: how often each latency is measured.
        timeout: the seconds to each deadline.
        forwards, ops: how many forwards are cancelled, and how many ops each of them has.
    """

    side: int = 1024
    products: int = 12
    small_side: int = 64
    small_products: int = 5
    runs: int = 30
    timeout: float = 0.01
    forwards: int = 200
    ops: int = 200


QUICK = Sizes(side=512, runs=8, forwards=40)


class Forwards:
    """The long forward and the small forward, with matrices on the current virtual machine."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes
        self._large = flow.full((sizes.side, sizes.side), 1 / sizes.side)
        self._small = flow.full((sizes.small_side, sizes.small_side), 1 / sizes.small_side)

    def long(self, products: int | None = None) -> flow.Tensor:
        """Issue a chain of products of large matrices, and return the last one."""
        x = self._large
        for _ in range(self._sizes.products if products is None else products):
            x = x @ self._large
        return x

    def small(self, priority: int = 0) -> flow.Tensor:
        """Issue a few products of small matrices with this priority, and return the last one."""
        with flow.scope(priority=priority):
            x = self._small
            for _ in range(self._sizes.small_products):
                x = x @ self._small
            return x


async def taken(tensor: flow.Tensor, since: float) -> float:
    """Await `tensor`; return the seconds from the time `since` until it was computed."""
    await tensor
    return time.perf_counter() - since


# Urgent work


async def measure_urgent(sizes: Sizes) -> Table:
    """Measure and print the table "urgent": latencies of the small forward."""
    table = Table("urgent", ["runs", "p50 ms", "p90 ms", "max ms"], width=44)
    table.print_head()
    async with VirtualMachine():
        forwards = Forwards(sizes)
        await forwards.long(1)
        await forwards.small()
        alone = [await taken(forwards.small(), time.perf_counter()) for _ in range(sizes.runs)]
        one = [await taken(forwards.long(1), time.perf_counter()) for _ in range(sizes.runs)]
        _add_latencies(table, "small forward alone", alone)
        _add_latencies(table, "one op of the long forward", one)
        _add_latencies(table, "one op and own time, the best there is", [*map(sum, zip(alone, one, strict=True))])
        generator = random.Random(0)
        whole: list[float] = []
        behind: dict[int, list[float]] = {0: [], 1: []}
        # Both priorities are measured in turn, since a shared machine is slow in phases.
        for _ in range(max(1, sizes.runs // 3)):
            for priority, found in behind.items():
                begin = time.perf_counter()
                long = forwards.long()
                # Wait for a random time, to continue in the middle of an op; an event would fire at the end of one.
                await asyncio.sleep(generator.uniform(1, 3) * float(np.median(one)))
                found.append(await taken(forwards.small(priority), time.perf_counter()))
                whole.append(await taken(long, begin))
        _add_latencies(table, "the long forward", whole)
        _add_latencies(table, "small behind long, same priority", behind[0])
        _add_latencies(table, "small behind long, priority 1", behind[1])
    return table


# Deadlines


async def measure_deadlines(sizes: Sizes) -> Table:
    """Measure and print the table "deadlines": how late coroutines learn of a passed deadline."""
    table = Table("deadlines", ["runs", "p50 ms", "p90 ms", "max ms"], width=44)
    table.print_head()
    async with VirtualMachine():
        forwards = Forwards(sizes)
        await forwards.long(1)
        told: list[float] = []
        woken: list[float] = []
        for _ in range(sizes.runs):
            busy = forwards.long()
            await asyncio.sleep(0)
            late, other = await asyncio.gather(_lateness_of_deadline(forwards, sizes), _lateness_of_sleep(sizes))
            told.append(late)
            woken.append(other)
            await busy
        _add_latencies(table, "asyncio.sleep beside it", woken)
        _add_latencies(table, f"a deadline of {sizes.timeout * 1e3:g} ms, {len(told)} queued one by one", told)
        busy = forwards.long()
        await asyncio.sleep(0)
        together = await asyncio.gather(*[_lateness_of_deadline(forwards, sizes) for _ in range(50)])
        await busy
        _add_latencies(table, "the same, 50 queued at once", together)
    return table


async def _lateness_of_deadline(forwards: Forwards, sizes: Sizes) -> float:
    async with flow.scope(timeout=sizes.timeout) as scope:
        try:
            await forwards.long(1)
        except flow.DeadlineExceeded:
            pass
        else:
            raise RuntimeError("the long forward was over before the deadline; let it have more or larger products")
        assert scope.deadline is not None
        return time.monotonic() - scope.deadline


async def _lateness_of_sleep(sizes: Sizes) -> float:
    due = time.monotonic() + sizes.timeout
    # The lateness of this sleep is measured.
    await asyncio.sleep(sizes.timeout)
    return time.monotonic() - due


# Cancellation


async def measure_cancelled(sizes: Sizes) -> Table:
    """Measure and print the table "cancelled": how many ops run after their scope is cancelled."""
    table = Table("cancelled", ["cancelled", "after p50", "after max", "not run %", "told p50 ms"], width=44)
    table.print_head()
    for worker, name in (
        ("never", "inline on the loop"),
        ("always", "on the worker"),
        ("auto", "as the machine chooses"),
    ):
        generator = random.Random(0)
        async with VirtualMachine(cpu_worker=worker):
            seen = [await _cancel_one(sizes, generator) for _ in range(sizes.forwards)]
        seen = [value for value in seen if value.dropped]
        table.add(
            name,
            cancelled=len(seen),
            after_p50=float(np.median([value.after for value in seen])),
            after_max=max([value.after for value in seen]),
            not_run__=100 * sum([sizes.ops - value.run for value in seen]) / (sizes.ops * len(seen)),
            told_p50_ms=float(np.median([value.told for value in seen])) * 1e3,
        )
    return table


@dataclass(frozen=True)
class Ended:
    """The outcome of a forward that was cancelled.

    Attributes:
        dropped: whether it was cancelled before its last op was computed.
        run: the number of ops that were run.
        after: the number of these ops that began after the cancellation.
        told: the seconds from the cancellation until the awaiting coroutine got `Cancelled`.
    """

    dropped: bool
    run: int
    after: int
    told: float


async def _cancel_one(sizes: Sizes, generator: random.Random) -> Ended:
    """Issue a forward of many ops; cancel it from the event loop once a random number of its ops have begun."""
    loop = asyncio.get_running_loop()
    stop_at = generator.randrange(1, sizes.ops)
    begun = begun_by_then = 0
    cancelled_at = 0.0
    over = asyncio.Event()

    def cancel() -> None:
        nonlocal begun_by_then, cancelled_at
        scope.cancel()
        begun_by_then = begun
        cancelled_at = time.perf_counter()
        over.set()

    def work(array: Any) -> Any:
        nonlocal begun
        begun += 1
        if begun == stop_at:
            loop.call_soon_threadsafe(cancel)
        return array @ array

    shape = (sizes.small_side * 2, sizes.small_side * 2)
    with flow.scope() as scope:
        x = flow.zeros(*shape)
        for _ in range(sizes.ops):
            # The cost is realistic: a product of this size takes a few hundred microseconds.
            x = call(work, x, shape=shape, cost=200_000)
    dropped, told = False, 0.0
    try:
        await x
    except flow.Cancelled:
        dropped, told = True, time.perf_counter() - cancelled_at
    await over.wait()
    await flow.synchronize()
    return Ended(dropped, begun, begun - begun_by_then, told)


# Printing


def _add_latencies(table: Table, name: str, seconds: Sequence[float]) -> None:
    p50, p90 = (np.percentile(seconds, (50, 90)) * 1e3).tolist()
    table.add(name, runs=len(seconds), p50_ms=p50, p90_ms=p90, max_ms=max(seconds) * 1e3)


def run(sizes: Sizes) -> list[Table]:
    """Measure and print all three tables."""
    tables: list[Table] = []
    for measure in (measure_urgent, measure_deadlines, measure_cancelled):
        tables.append(asyncio.run(measure(sizes)))
        print()
    return tables


def main() -> None:
    """Print the tables."""
    restart_with_one_thread()
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.cancellation", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller matrices, fewer runs")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()
    sizes = QUICK if options.quick else Sizes()
    said = (
        f"{conditions()}; one BLAS thread; long forward: {sizes.products} products of {sizes.side} x {sizes.side}, "
        f"small forward: {sizes.small_products} of {sizes.small_side} x {sizes.small_side}"
    )
    print(said)
    tables = run(sizes)
    if options.json is not None:
        everything = Table("all", sorted({column for table in tables for column in table.columns}))
        for table in tables:
            everything.rows |= {f"{table.title}: {name}": row for name, row in table.rows.items()}
        everything.write(options.json, said)


if __name__ == "__main__":
    main()
