"""The cost of ordering per instruction, by the shape and the size of the dependence graph.

``python -m tests.benchmarks.throughput [--quick] [--json FILE]``

Every contender gets the same graph, as a list that has for each node the earlier nodes that it needs, and converts it
to objects of its own; both converting and running are timed, since a program pays both for every op.  The body of every
node is an empty Python call.

Nodes live as long as the graph, as tensors do that a program refers to.  Python's garbage collector stays on, as it is
in programs, and traverses all living objects again and again, which costs time for large graphs.

- *machine*: a virtual machine, to which a script issues instructions and which is then drained.  It runs instructions
  while others are issued, as in users' programs, and so has few pending instructions at any time.
- *engine*: the engine alone, scheduled as often as a machine does.
- *engine, held*: the engine alone, which must receive the whole graph before any node completes; on four streams, so
  that there are edges within streams and between them.
- *dask*: dask's threaded scheduler.
- *graphlib*: the standard library's `TopologicalSorter`, which gets the whole graph before the first node can run.
- *asyncio*: one task per node, which awaits the tasks of the nodes that it needs.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import importlib.util
import random
import statistics
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import vmflow as flow
from tests.benchmarks.tables import Cell, Table, conditions
from vmflow.instructions import Dependence, Instruction, InstructionPolicy
from vmflow.streams import CpuStreamPolicy, Stream
from vmflow.vm import VirtualMachineEngine
from vmflow.vm.virtual_machine import VirtualMachine

# A graph: for each node, the indices of the earlier nodes that it needs.
Graph = list[tuple[int, ...]]
Contender = Callable[[Graph], None]
# The seconds of each round, by size and contender.
Times = dict[int, dict[str, list[float]]]

# The base of flatness, which is the time per node at the largest size divided by that at this size, where fixed costs
# count little.
BASE = 10_000

# The number of nodes that a node of "fan-in" needs: as many as the widest op of a large model has operands.
DEGREE = 31

# The number of instructions that a machine receives from a script before it schedules them.
GATHER = 32

# The largest distance between a node of the random graph and a node that it needs.
REACH = 50

# Microseconds per node.
SLOW = 50.0

# A contender is left out of sizes at which one run would take more than this many seconds.
PATIENCE = 60.0


# Graphs


def chain(size: int) -> Graph:
    """A graph in which each node needs the node before it."""
    return [(number - 1,) if number else () for number in range(size)]


def fan_out(size: int) -> Graph:
    """A graph in which all nodes need the first one."""
    return [(0,) if number else () for number in range(size)]


def fan_in(size: int, degree: int = DEGREE) -> Graph:
    """A graph of groups: `degree` nodes that need no other, and a node that needs all of them."""
    group = degree + 1
    return [tuple(range(index - degree, index)) if index % group == degree else () for index in range(size)]


def full_fan_in(size: int) -> Graph:
    """A graph in which the last node needs all others, which need none."""
    return fan_in(size, size - 1)


def random_graph(size: int) -> Graph:
    """A graph in which each node needs one to three of the `REACH` nodes before it, chosen at random."""
    chance = random.Random(0)
    graph: Graph = [()]
    for number in range(1, size):
        earlier = range(max(0, number - REACH), number)
        graph.append(tuple(set(chance.choices(earlier, k=chance.randint(1, 3)))))
    return graph


SHAPES: dict[str, Callable[[int], Graph]] = {
    "chain": chain,
    "fan-out": fan_out,
    f"fan-in of {DEGREE}": fan_in,
    "fan-in of all": full_fan_in,
    "random": random_graph,
}


# Contenders


class Nothing(InstructionPolicy):
    """The policy of an instruction that computes nothing."""

    __slots__ = ()
    name = "nothing"

    def compute(self) -> None:
        return


def _instruction(stream: Stream, nodes: list[Dependence], needed: tuple[int, ...], machine: Any = None) -> Instruction:
    """Make an instruction that reads the dependences of the nodes `needed`, and writes a new one, added to `nodes`."""
    node = Dependence(machine)
    reads = tuple([nodes[value] for value in needed])
    nodes.append(node)
    return Instruction(stream, _NOTHING, reads, (node,))


_NOTHING = Nothing()


def machine_contender(machine: VirtualMachine) -> Contender:
    """Make a contender that issues the graph to a virtual machine and drains it."""
    stream = machine.stream(flow.device("cpu"))

    def run(graph: Graph) -> None:
        nodes: list[Dependence] = []
        for needed in graph:
            machine.issue(_instruction(stream, nodes, needed, machine))
        machine.drain()

    return run


def engine_alone(graph: Graph) -> None:
    """Run the graph by the engine alone, scheduling after every `GATHER` received instructions."""
    engine = VirtualMachineEngine()
    stream = Stream("only", None, CpuStreamPolicy())
    nodes: list[Dependence] = []
    for begin in range(0, len(graph), GATHER):
        for needed in graph[begin : begin + GATHER]:
            engine.receive(_instruction(stream, nodes, needed))
        _finish(engine)
    assert engine.idle()


def engine_held(graph: Graph) -> None:
    """Run the graph by the engine alone, which receives and launches all instructions before the first completes."""
    engine = VirtualMachineEngine()
    streams = [Stream(name, None, CpuStreamPolicy()) for name in "abcd"]
    nodes: list[Dependence] = []
    for number, needed in enumerate(graph):
        engine.receive(_instruction(streams[number % len(streams)], nodes, needed))
    launched: list[Instruction] = []
    while engine.has_work():
        launched += engine.schedule()
    for instruction in launched:
        _complete(engine, instruction)
    # The list would keep erased instructions alive.
    launched.clear()
    _finish(engine)
    assert engine.idle()


def _finish(engine: VirtualMachineEngine) -> None:
    while engine.has_work():
        for instruction in engine.schedule():
            _complete(engine, instruction)


def _complete(engine: VirtualMachineEngine, instruction: Instruction) -> None:
    policy = instruction.policy
    assert policy is not None
    policy.compute()
    engine.completed(instruction)


def dask_contender() -> Contender | None:
    """Make a contender of dask's threaded scheduler; None if dask is not installed."""
    if importlib.util.find_spec("dask") is None:
        return None
    get: Callable[[dict[int, Any], list[int]], Any] = importlib.import_module("dask.threaded").get

    def run(graph: Graph) -> None:
        needed_by_others = {value for needed in graph for value in needed}
        # dask runs the requested nodes and the nodes that they need, so nodes that no other needs are requested.
        last = [index for index in range(len(graph)) if index not in needed_by_others]
        get({number: (_nothing, *needed) for number, needed in enumerate(graph)}, last)

    return run


def graphlib(graph: Graph) -> None:
    """Run the graph by the standard library's `TopologicalSorter`."""
    sorter = TopologicalSorter(dict(enumerate(graph)))
    sorter.prepare()
    while sorter.is_active():
        for node in sorter.get_ready():
            _nothing()
            sorter.done(node)


def asyncio_tasks(graph: Graph) -> None:
    """Run the graph by one asyncio task per node."""
    asyncio.run(_make_and_await_tasks(graph))


async def _make_and_await_tasks(graph: Graph) -> None:
    tasks: list[asyncio.Task[None]] = []
    for needed in graph:
        tasks.append(asyncio.create_task(_node([tasks[value] for value in needed])))
    for task in tasks:
        await task


async def _node(needed: list[asyncio.Task[None]]) -> None:
    for task in needed:
        await task
    _nothing()


def _nothing(*inputs: None) -> None:
    return


# Measuring


@dataclass(frozen=True)
class Plan:
    """The sizes and rounds to measure.

    Attributes:
        rounds: by size of the graph, how often each contender runs.
        traced: the size at which memory is measured; a tenth of it for contenders that take more than `SLOW`, since
            tracing memory is slow itself.
        patience: a contender is left out of sizes at which one run would take more seconds than this.
    """

    rounds: dict[int, int]
    traced: int
    patience: float = PATIENCE


FULL = Plan({1_000: 15, 10_000: 9, 100_000: 3, 1_000_000: 2}, traced=100_000)
QUICK = Plan({1_000: 3, 4_000: 2}, traced=1_000)


def measure(contenders: dict[str, Contender], make: Callable[[int], Graph], plan: Plan) -> Times:
    """Time all contenders at all sizes of one shape of graph.

    In each round every contender runs once at each size, since a shared machine is slow in phases, and both sizes and
    contenders are compared.
    """
    graphs = {size: make(size) for size in plan.rounds}
    times: Times = {size: {name: [] for name in contenders} for size in plan.rounds}
    for turn in range(max(plan.rounds.values())):
        for name, work in contenders.items():
            each = 0.0
            for size, rounds in plan.rounds.items():
                if turn >= rounds or each * size > plan.patience:
                    break
                gc.collect()
                begin = time.perf_counter()
                work(graphs[size])
                taken = time.perf_counter() - begin
                times[size][name].append(taken)
                each = taken / size
    return times


def typical(times: dict[str, list[float]], size: int) -> dict[str, float]:
    """The microseconds per node, the median over the rounds, of each contender that ran at this size."""
    return {name: statistics.median(taken) / size * 1e6 for name, taken in times.items() if taken}


def peak_bytes(work: Contender, graph: Graph) -> float:
    """The most bytes that a contender has allocated at any time, divided by the number of nodes; without the graph."""
    gc.collect()
    tracemalloc.start()
    try:
        work(graph)
        return tracemalloc.get_traced_memory()[1] / len(graph)
    finally:
        tracemalloc.stop()


def run(contenders: dict[str, Contender], plan: Plan) -> tuple[Table, list[str]]:
    """Measure all shapes; return the table, and remarks about contenders that were left out."""
    table = Table("us per instruction", [*contenders, "machine/dask", "machine/asyncio"])
    table.print_head()
    remarks: list[str] = []
    flatness: dict[str, dict[str, Cell]] = {}
    slow: set[str] = set()
    for work in contenders.values():
        work(chain(100))  # the first run opens pools and fills caches
    for shape, make in SHAPES.items():
        by_size = {size: typical(times, size) for size, times in measure(contenders, make, plan).items()}
        for size, each in by_size.items():
            table.add(f"{shape} {size:,}", **_cells(each), **_ratios(each))
            absent = [name for name in contenders if name not in each]
            remarks += [
                f"{shape} {size:,}: {value} left out, {plan.patience:.0f} s a run would not do" for value in absent
            ]
            slow |= {name for name, taken in each.items() if taken > SLOW}
        flatness[shape] = _cells(_flatness(by_size, list(contenders)))
    for shape, ratios in flatness.items():
        table.add(f"{shape}, flatness", **ratios)
    remarks += [f"peak bytes of {name} at {plan.traced // 10:,}" for name in sorted(slow)]
    for shape, make in SHAPES.items():
        graph, smaller = make(plan.traced), make(plan.traced // 10)
        peaks = {name: peak_bytes(work, smaller if name in slow else graph) for name, work in contenders.items()}
        table.add(f"{shape}, peak bytes", **_cells(peaks), **_ratios(peaks))
    return table, remarks


def _cells(numbers: dict[str, float]) -> dict[str, Cell]:
    return {name.replace(", ", "__"): number for name, number in numbers.items()}


def _ratios(numbers: dict[str, float]) -> dict[str, Cell]:
    return {f"machine_{name}": numbers["machine"] / numbers[name] for name in ("dask", "asyncio") if name in numbers}


def _flatness(by_size: dict[int, dict[str, float]], contenders: Sequence[str]) -> dict[str, float]:
    """By contender, the time per node at its largest size divided by that at `BASE`."""
    base = BASE if BASE in by_size and max(by_size) != BASE else min(by_size)
    ratios: dict[str, float] = {}
    for name in contenders:
        largest = max(size for size, times in by_size.items() if name in times)
        ratios[name] = by_size[largest][name] / by_size[base][name]
    return ratios


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.throughput", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small graphs and few rounds")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()
    plan = QUICK if options.quick else FULL
    machine = VirtualMachine("throughput")
    contenders: dict[str, Contender] = {
        "machine": machine_contender(machine),
        "engine": engine_alone,
        "engine, held": engine_held,
    }
    dask = dask_contender()
    if dask is not None:
        contenders["dask"] = dask
    contenders["graphlib"] = graphlib
    contenders["asyncio"] = asyncio_tasks
    said = conditions()
    print(f"{said}; medians of {', '.join([f'{n} at {size:,}' for size, n in plan.rounds.items()])} rounds")
    print(
        f"flatness is the time per instruction at the largest size run to that at {BASE:,} (or the smallest, if that "
        f"is the largest); peak bytes are per instruction at {plan.traced:,}"
    )
    table, remarks = run(contenders, plan)
    if dask is None:
        remarks.append("dask is not installed")
    for remark in remarks:
        print(remark)
    if options.json is not None:
        table.write(options.json, said, remarks)
    machine.close()


if __name__ == "__main__":
    main()
