"""The time of ops on ten floats, where the kernel takes nearly no time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

import numpy as np

import vmflow as flow
from tests.benchmarks.contenders import Company
from tests.benchmarks.measure import EAGER, GRAPH, Bar, Case
from tests.benchmarks.models import AddOne, finish, repeated
from vmflow.context import MODE
from vmflow.vm.virtual_machine import VirtualMachine

TINY: Final = 10

# The number of graph calls, with results dropped unread, that are timed before all of them are waited for.
ISSUED: Final = 50


def tiny(company: Company) -> Iterator[Case]:
    """Generate the cases of tiny ops: chains, chains with gradients, single ops that are read, and calls of a graph."""
    yield forward(company, 100 if company.quick else 10_000)
    yield in_place(company, 100 if company.quick else 10_000)
    yield from issue_and_execute(100 if company.quick else 2000)
    yield forward_and_backward(company, 50 if company.quick else 1000)
    count = 20 if company.quick else 2000
    yield op_and_item(company, count)
    yield awaited(company, 20 if company.quick else 10_000)
    yield graph_call_issued()
    yield graph_call_read(company, count // 4)


def additions(one: Any, length: int, finish: Callable[[Any], object] | None = None) -> Callable[[], None]:
    """Make a function that runs a chain of `length` additions of `one`, and then calls `finish`."""

    def run() -> None:
        x = one
        for _ in range(length):
            x = x + one
        if finish is not None:
            finish(x)

    return run


def forward(company: Company, length: int) -> Case:
    """Make the case of a chain of additions without gradients."""
    contenders: dict[str, Callable[[], Any]] = {EAGER: additions(flow.ones(TINY), length, lambda x: finish())}
    if company.numpy:
        contenders["numpy"] = additions(np.ones(TINY, np.float32), length)
    if company.torch is not None:
        contenders["torch"] = additions(company.torch.ones(TINY), length)
    if company.jax is not None:
        contenders["jax"] = additions(company.jax.numpy.ones(TINY), length, company.jax.block_until_ready)
    bars = (Bar(1.0, compiled=True), Bar(3.0, compiled=False))
    return Case(f"tiny op, chain of {length:,}", contenders, length, bars=bars)


def in_place(company: Company, length: int) -> Case:
    """Make the case of a chain of in-place additions to one tensor."""

    def changes(one: Any, finish: Callable[[], object] | None = None) -> Callable[[], None]:
        def run() -> None:
            x = one + one
            for _ in range(length):
                x += one
            if finish is not None:
                finish()

        return run

    contenders: dict[str, Callable[[], Any]] = {EAGER: changes(flow.ones(TINY), finish)}
    if company.numpy:
        contenders["numpy"] = changes(np.ones(TINY, np.float32))
    if company.torch is not None:
        contenders["torch"] = changes(company.torch.ones(TINY))
    bars = (Bar(1.2, compiled=True), Bar(3.0, compiled=False))
    return Case(f"tiny op in place, chain of {length:,}", contenders, length, bars=bars)


def issue_and_execute(length: int) -> Iterator[Case]:
    """Generate the cases of issuing tiny ops and of executing them, apart: the machine runs ops only when drained."""
    patient = VirtualMachine("patient", gather=1 << 60)
    chain = additions(flow.ones(TINY), length)

    def issue() -> None:
        mode = MODE.get()
        MODE.set(mode.replace(machine=patient))
        chain()
        MODE.set(mode)

    yield Case("tiny op, issue", {EAGER: issue}, length, after=patient.drain)
    yield Case("tiny op, execute", {EAGER: patient.drain}, length, before=issue)
    patient.close()


def forward_and_backward(company: Company, length: int) -> Case:
    """Make the case of a chain of multiplications and its backward pass; times are per op, for both directions."""

    def differentiated(library: Any, finish: Callable[[Any], object] | None = None) -> Callable[[], None]:
        leaf, factor = library.ones(TINY, requires_grad=True), library.ones(TINY)

        def run() -> None:
            leaf.grad = None
            x = leaf
            for _ in range(length):
                x = x * factor
            x.sum().backward()
            if finish is not None:
                finish(leaf.grad)

        return run

    contenders: dict[str, Callable[[], Any]] = {EAGER: differentiated(flow, lambda gradient: gradient.numpy())}
    if company.numpy:
        contenders["numpy"] = _numpy_forward_and_backward(length)
    if company.torch is not None:
        contenders["torch"] = differentiated(company.torch)
    return Case(f"tiny op, forward + backward, {length:,}", contenders, length, bars=(Bar(0.7),))


def _numpy_forward_and_backward(length: int) -> Callable[[], None]:
    one = np.ones(TINY, np.float32)

    def run() -> None:
        saved = []
        x = one
        for _ in range(length):
            saved.append(x)
            x = x * one
        gradient = np.ones_like(x)
        for _ in saved:
            gradient = gradient * one

    return run


def op_and_item(company: Company, count: int) -> Case:
    """Make the case of an op and reading its result by `item`."""

    def reading(one: Any) -> Callable[[], None]:
        return repeated(lambda: (one + one).item(), count)

    contenders: dict[str, Callable[[], Any]] = {EAGER: reading(flow.ones(1))}
    if company.numpy:
        contenders["numpy"] = reading(np.ones(1, np.float32))
    if company.torch is not None:
        contenders["torch"] = reading(company.torch.ones(1))
    if company.jax is not None:
        contenders["jax"] = reading(company.jax.numpy.ones(1))
    return Case("tiny op + item()", contenders, count, bars=(Bar(1.2),))


def awaited(company: Company, count: int) -> Case:
    """Make the case of awaiting an op's result in a coroutine; other libraries return computed results."""

    def on_a_loop(step: Callable[[], Coroutine[Any, Any, object]]) -> Callable[[], None]:
        async def run() -> None:
            for _ in range(count):
                await step()

        return lambda: asyncio.run(run())

    one = flow.ones(TINY)

    async def waiting() -> object:
        return await (one + one)

    def calling(one: Any) -> Callable[[], Coroutine[Any, Any, object]]:
        async def call() -> object:
            return one + one

        return call

    contenders: dict[str, Callable[[], Any]] = {EAGER: on_a_loop(waiting)}
    if company.numpy:
        contenders["numpy"] = on_a_loop(calling(np.ones(TINY, np.float32)))
    if company.torch is not None:
        contenders["torch"] = on_a_loop(calling(company.torch.ones(TINY)))
    return Case("tiny op, awaited on an event loop", contenders, count)


def graph_call_issued() -> Case:
    """Make the case of a graph call until it returns; computing the result is waited for untimed."""
    graph, x = AddOne(), flow.ones(TINY)
    contenders = {GRAPH: repeated(lambda: graph(x), ISSUED), EAGER: repeated(lambda: x + 1, ISSUED)}
    return Case("call of a one-op graph", contenders, ISSUED, after=finish, bars=(Bar(8.0, GRAPH, None),))


def graph_call_read(company: Company, count: int) -> Case:
    """Make the case of a graph call until its result is computed and read."""
    graph, x = AddOne(), flow.ones(TINY)
    contenders: dict[str, Callable[[], Any]] = {
        GRAPH: repeated(lambda: graph(x).numpy(), count),
        EAGER: repeated(lambda: (x + 1).numpy(), count),
    }
    if company.numpy:
        array = np.ones(TINY, np.float32)
        contenders["numpy"] = repeated(lambda: array + 1, count)
    if company.torch is not None:
        tensor = company.torch.ones(TINY)
        contenders["torch"] = repeated(lambda: (tensor + 1).numpy(), count)
    if company.jax is not None:
        jax = company.jax
        compiled, operand = jax.jit(lambda x: x + 1), jax.numpy.ones(TINY)
        contenders["jax"] = repeated(lambda: np.asarray(compiled(operand)), count)
    return Case("call of a one-op graph, read", contenders, count)
