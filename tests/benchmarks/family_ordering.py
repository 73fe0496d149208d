"""The cost of ordering per instruction; `tests.benchmarks.throughput` measures graphs of other shapes and sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.benchmarks import throughput
from tests.benchmarks.contenders import Company
from tests.benchmarks.measure import EAGER, Bar, Case
from vmflow.vm.virtual_machine import VirtualMachine


def ordering(company: Company) -> Iterator[Case]:
    """Generate cases of a hundred thousand empty instructions, each of which depends on one to three earlier ones."""
    size = 200 if company.quick else 100_000
    graph = throughput.random_graph(size)
    machine = VirtualMachine("ordering")

    def of(contender: throughput.Contender) -> Callable[[], Any]:
        return lambda: contender(graph)

    for name, ours, bars in (
        ("engine", throughput.engine_alone, (Bar(1.5, to=None, compiled=True),)),
        ("machine", throughput.machine_contender(machine), ()),
    ):
        contenders = {EAGER: of(ours), "asyncio": of(throughput.asyncio_tasks), "graphlib": of(throughput.graphlib)}
        yield Case(f"{name}, {size:,} instructions", contenders, size, bars=bars)
    machine.close()
