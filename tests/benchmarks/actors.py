"""The time of a hop from one actor to the next, compared with passing an item by `asyncio.Queue`.

``python -m tests.benchmarks.actors [--actors 10000] [--rounds 7]``

The actors form a chain on one thread; the act of each is an empty Python call.  A hop is the message to an actor, the
decision to act, the act, its completion and the message back.  The queues pass one item down a chain of as many
coroutines, each of which waits for its queue, makes the same call and puts the item into the next queue.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable

from tests.benchmarks.measure import Case, measure
from tests.benchmarks.tables import Table, conditions
from vmflow.graph_mode.actors import ActorSystem, RegisterDescriptor, TaskDescriptor, TaskId, ThreadId

# The number of messages that go down the chain in one measurement.
PIECES = 3


def _nothing(action: object) -> None:
    """The empty act of each actor, and of each coroutine."""


def chain(length: int) -> tuple[list[TaskDescriptor], list[RegisterDescriptor]]:
    """Describe a chain of actors on one thread: a source, `length` tasks that compute, and a task that calls back."""
    thread = ThreadId()
    ids = [TaskId(thread, number).encode() for number in range(length + 2)]
    registers = [RegisterDescriptor(number, ids[number], (ids[number + 1],)) for number in range(length + 1)]
    tasks = [TaskDescriptor(ids[0], "wait_and_send_ids", {"out": (0,)}, buffer="pieces")]
    for number in range(1, length + 1):
        tasks.append(TaskDescriptor(ids[number], "compute", {"out": (number,)}, {"in": (number - 1,)}))
    tasks.append(TaskDescriptor(ids[-1], "callback_notify", {}, {"in": (length,)}, buffer="callbacks"))
    return tasks, registers


def started(length: int) -> ActorSystem:
    """Construct and start an actor system with a chain of `length` tasks, ready for launches."""
    tasks, registers = chain(length)
    system = ActorSystem(tasks, registers, {task.id: _nothing for task in tasks})
    system.construct()
    drive(system)
    system.start()
    drive(system)
    return system


def drive(system: ActorSystem) -> int:
    """Run actions of the system until none is left; return the number of actions."""
    (thread,) = system.threads
    ran = 0
    while system.has_work(thread):
        actions = system.turn(thread)
        for action in actions:
            if action.run is not None:
                action.run(action)
        system.completed(thread, len(actions))
        ran += len(actions)
    return ran


def actors(system: ActorSystem) -> Callable[[], None]:
    """Make a function that sends `PIECES` messages down the system's chain, one after the other."""

    def work() -> None:
        for _ in range(PIECES):
            system.launch()
            drive(system)

    return work


class Queues:
    """A chain of coroutines with an `asyncio.Queue` before each.

    Attributes:
        seconds: the time of the last run's hops, without making and ending the coroutines.
    """

    def __init__(self, length: int) -> None:
        self.length = length
        self.seconds = 0.0

    async def run(self) -> None:
        """Make the coroutines, pass `PIECES` items down the chain, and wait for the coroutines to end."""
        line: list[asyncio.Queue[object]] = [asyncio.Queue() for _ in range(self.length + 1)]
        hops = [asyncio.create_task(self.hop(line[index], line[index + 1])) for index in range(self.length)]
        await asyncio.sleep(0)  # every coroutine runs until it waits for its queue
        begin = time.perf_counter()
        for piece in range(PIECES):
            line[0].put_nowait(piece)
            await line[-1].get()
        self.seconds = time.perf_counter() - begin
        await asyncio.gather(*hops)

    async def hop(self, source: asyncio.Queue[object], target: asyncio.Queue[object]) -> None:
        """Run one coroutine of the chain: pass items from its queue to the next one."""
        for _ in range(PIECES):
            item = await source.get()
            _nothing(item)
            target.put_nowait(item)


def run(length: int, rounds: int) -> Table:
    """Measure actors and queues, taking turns, and print the table."""
    table = Table("hop", ["actors us", "queue us", "ratio"])
    table.print_head()
    system = started(length)
    hops = Queues(length)
    inner: list[float] = []

    def hand_over() -> None:
        asyncio.run(hops.run())
        inner.append(hops.seconds / (length * PIECES) * 1e6)

    result = measure(
        Case(f"{length:,}", {"vmflow": actors(system), "asyncio.Queue": hand_over}, length * PIECES),
        rounds,
    )
    # The queues' own clock is used, which leaves out making the coroutines: the actors' time has no such part either.
    queue = sorted(inner)[len(inner) // 2]
    mine = result.microseconds["vmflow"]
    table.add(f"chain of {length:,}", actors_us=mine, queue_us=queue, ratio=mine / queue)
    return table


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.actors", description=__doc__)
    parser.add_argument("--actors", type=int, default=10_000, help="how long the chain is")
    parser.add_argument("--rounds", type=int, default=7, help="times each contender runs; the median counts")
    options = parser.parse_args()
    print(f"{conditions()}; microseconds per hop, medians of {options.rounds} rounds")
    run(options.actors, options.rounds)


if __name__ == "__main__":
    main()
