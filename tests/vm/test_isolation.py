"""Modes belong to the task or thread that sets them: grad mode, generators, default dtype, the machine, and errors."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import vmflow as flow


def records() -> bool:
    """Whether an op issued here is recorded: by the mode, and in fact."""
    happens = (flow.ones(1, requires_grad=True) * 2).requires_grad
    assert happens == flow.is_grad_enabled()
    return happens


async def test_a_task_does_not_lose_gradients_to_another() -> None:
    """One task waits inside no_grad while another computes."""
    inside, leave = asyncio.Event(), asyncio.Event()

    async def without() -> None:
        with flow.no_grad():
            inside.set()
            await leave.wait()
            assert not records()

    task = asyncio.create_task(without())
    await inside.wait()
    assert records()
    leave.set()
    await task
    assert records()


async def test_overlapping_blocks_restore() -> None:
    """Two blocks that do not nest, but overlap in time, in two tasks."""
    events = [asyncio.Event() for _ in range(3)]

    async def first() -> None:
        with flow.no_grad():
            events[0].set()
            await events[1].wait()
        assert records()
        events[2].set()

    async def second() -> None:
        await events[0].wait()
        with flow.no_grad():
            events[1].set()
            await events[2].wait()
            assert not records()
        assert records()

    await asyncio.gather(first(), second())
    assert records()


async def test_to_thread_inherits() -> None:
    with flow.no_grad():
        assert not await asyncio.to_thread(records)
    assert await asyncio.to_thread(records)


async def test_a_thread_does_not_change_the_loop() -> None:
    def disable() -> None:
        flow.set_grad_enabled(False)
        assert not records()

    await asyncio.to_thread(disable)
    assert records()


async def test_decorated_coroutine() -> None:
    step = asyncio.Event()

    @flow.no_grad()
    async def without() -> bool:
        before = records()
        await step.wait()
        return before or records()

    task = asyncio.create_task(without())
    await asyncio.sleep(0)
    assert records()
    step.set()
    assert not await task
    assert not await without()
    assert records()


def test_decorated_function_and_generator() -> None:
    @flow.no_grad()
    def plain() -> bool:
        return records()

    @flow.no_grad()
    def generate() -> Generator[bool, None, None]:
        yield records()
        yield records()

    assert not plain()
    for inside in generate():
        assert not inside
        assert records()
    unfinished = generate()
    next(unfinished)
    assert records()
    unfinished.close()
    assert records()


async def test_decorated_async_generator() -> None:
    @flow.no_grad()
    async def generate() -> AsyncGenerator[bool, None]:
        yield records()
        await asyncio.sleep(0)
        yield records()

    async for inside in generate():
        assert not inside
        assert records()
    unfinished = generate()
    await anext(unfinished)
    assert records()
    await unfinished.aclose()
    assert records()


def test_a_generator_gets_sent_values_and_thrown_exceptions() -> None:
    heard: list[object] = []

    @flow.enable_grad()
    def generate() -> Generator[int, str, None]:
        try:
            heard.append((yield 1))
            yield 2
        except KeyError as error:
            heard.append(error.args[0])
        return

    generator = generate()
    assert next(generator) == 1
    assert generator.send("sent") == 2
    with pytest.raises(StopIteration):
        generator.throw(KeyError("thrown"))
    assert heard == ["sent", "thrown"]


@pytest.mark.parametrize(
    "make",
    [
        flow.no_grad,
        flow.inference_mode,
        lambda: flow.autocast("cpu"),
        lambda: flow.autograd.graph.save_on_cpu(),
        lambda: flow.cuda.device(None),
        lambda: flow.cuda.stream(None),
        lambda: flow.device("cpu"),
        flow.distributed.record_boxing,
        flow.nn.init.skipped,
        flow.nn.utils.parametrize.cached,
        flow.random.fork_rng,
    ],
)
async def test_leaving_a_block_in_another_task(make: Callable[[], Any]) -> None:
    """An async context manager closed by another task must not raise, as a context variable's token would."""
    block = make()

    async def enter() -> None:
        block.__enter__()

    async def leave() -> None:
        block.__exit__(None, None, None)

    await asyncio.create_task(enter())
    await asyncio.create_task(leave())
    assert records()


def test_set_grad_enabled_in_its_three_forms() -> None:
    flow.set_grad_enabled(False)
    assert not records()
    flow.set_grad_enabled(True)
    with flow.set_grad_enabled(False):
        assert not records()
        with flow.enable_grad():
            assert records()
    assert records()

    @flow.set_grad_enabled(False)
    def decorated() -> bool:
        return records()

    assert records()
    assert not decorated()


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["enter", "exit", "check", "await"])), max_size=40))
def test_random_interleavings(script: list[tuple[int, str]]) -> None:
    """Four tasks enter and leave modes in a drawn order; each sees its own."""

    async def main() -> None:
        queues: list[asyncio.Queue[str]] = [asyncio.Queue() for _ in range(4)]
        done = asyncio.Event()

        async def task(number: int) -> None:
            blocks: list[flow.set_grad_enabled] = []
            while (order := await queues[number].get()) != "stop":
                if order == "enter":
                    block = flow.set_grad_enabled(len(blocks) % 2 == 1)
                    block.__enter__()
                    blocks.append(block)
                elif order == "exit" and blocks:
                    blocks.pop().__exit__(None, None, None)
                elif order == "await":
                    await asyncio.sleep(0)
                assert records() == (len(blocks) % 2 == 0)
                done.set()

        tasks = [asyncio.create_task(task(number)) for number in range(4)]
        for number, order in script:
            done.clear()
            queues[number].put_nowait(order)
            await done.wait()
            assert records()
        for queue in queues:
            queue.put_nowait("stop")
        await asyncio.gather(*tasks)

    asyncio.run(main())


def work(number: int, pause: Callable[[], object]) -> list[float]:
    """Code that uses every mode together; its numbers do not depend on other tasks."""
    generator = flow.Generator().manual_seed(number)
    values: list[float] = []
    with flow.random.fork_rng():
        flow.manual_seed(number)
        for step in range(10):
            pause()
            if step % 2:
                with flow.no_grad():
                    pause()
                    x = flow.rand(3, generator=generator)
                    assert not (flow.ones(1, requires_grad=True) + x).requires_grad
            else:
                x = flow.randn(3)
                assert (flow.ones(1, requires_grad=True) + x).requires_grad
            index = flow.tensor([100 + number])
            bad = flow.gather(x, 0, index) + 1
            pause()
            values += x.detach()._array().tolist()
            with pytest.raises(IndexError, match=f"{100 + number}"):
                bad._array()
    return values


async def test_four_tasks_and_two_threads() -> None:
    """no_grad, seeded generators and errors of six concurrent parties do not mix."""

    async def in_task(number: int) -> list[float]:
        generator = flow.Generator().manual_seed(number)
        values: list[float] = []
        with flow.random.fork_rng():
            flow.manual_seed(number)
            for step in range(10):
                await asyncio.sleep(0)
                if step % 2:
                    with flow.no_grad():
                        await asyncio.sleep(0)
                        x = flow.rand(3, generator=generator)
                        assert not (flow.ones(1, requires_grad=True) + x).requires_grad
                else:
                    x = flow.randn(3)
                    assert (flow.ones(1, requires_grad=True) + x).requires_grad
                bad = flow.gather(x, 0, flow.tensor([100 + number])) + 1
                await x
                values += x.tolist()
                with pytest.raises(IndexError, match=f"{100 + number}"):
                    await bad
        return values

    started = threading.Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        loop = asyncio.get_running_loop()
        threads = [loop.run_in_executor(pool, work, number, started.wait) for number in (4, 5)]
        tasks = [asyncio.create_task(in_task(number)) for number in range(4)]
        together = [*await asyncio.gather(*tasks), *await asyncio.gather(*threads)]
    alone = [await asyncio.to_thread(work, number, lambda: None) for number in range(6)]
    np.testing.assert_array_equal(together, alone)


async def test_default_dtype_and_device_are_the_tasks_own() -> None:
    async def other() -> None:
        flow.set_default_dtype(flow.float64)
        assert flow.ones(1).dtype is flow.float64
        assert (flow.arange(3) / 2).dtype is flow.float64

    await asyncio.create_task(other())
    assert flow.ones(1).dtype is flow.float32
    assert (flow.arange(3) / 2).dtype is flow.float32


async def test_the_machine_is_the_tasks_own() -> None:
    from vmflow.vm.virtual_machine import current_machine, default_machine

    entered, leave = asyncio.Event(), asyncio.Event()

    async def own() -> None:
        async with flow.VirtualMachine("own") as machine:
            entered.set()
            await leave.wait()
            assert current_machine() is machine

    task = asyncio.create_task(own())
    await entered.wait()
    assert current_machine() is default_machine()
    leave.set()
    await task
