"""One machine used from several loops and threads together, many times: all get their values, none hangs."""

from __future__ import annotations

import asyncio
import random
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest

import vmflow as flow
from vmflow.context import MODE
from vmflow.vm.virtual_machine import VirtualMachine

ROUNDS = 150


def on(machine: VirtualMachine) -> None:
    """Let this thread issue to `machine` from now on."""
    MODE.set(MODE.get().replace(machine=machine))


@pytest.mark.parametrize("worker", ["never", "always"])
def test_one_tensor_awaited_from_everywhere(worker: str) -> None:
    """Three loops, a thread, and a blocking read on a loop's own thread, all for one tensor that is being computed."""
    machine = VirtualMachine(cpu_worker=worker)
    errors: list[BaseException] = []

    def use(kind: int, tensor: flow.Tensor, start: threading.Barrier) -> None:
        on(machine)
        chance = random.Random(kind)

        async def on_loop() -> None:
            start.wait(30)
            if kind == 3:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    assert tensor.tolist() == [30.0, 30.0]
                return
            for _ in range(chance.randrange(3)):
                await asyncio.sleep(0)
            assert (await tensor).tolist() == [30.0, 30.0]
            more = tensor + kind
            assert (await more).tolist() == [30.0 + kind] * 2

        try:
            if kind < 4:
                asyncio.run(on_loop())
            else:
                start.wait(30)
                assert tensor.tolist() == [30.0, 30.0]
        except BaseException as error:
            errors.append(error)

    with ThreadPoolExecutor(5) as pool:
        for _ in range(ROUNDS):
            start = threading.Barrier(5)
            on(machine)
            tensor = flow.zeros(2)
            for _ in range(30):
                tensor = tensor + 1
            futures = [pool.submit(use, kind, tensor, start) for kind in range(5)]
            done, late = wait(futures, timeout=60)
            assert not late, f"{len(late)} of {len(done) + len(late)} hang\n{machine.engine.story}"
            assert errors == []
    on(None)  # type: ignore[arg-type]
    machine.drain()
    machine.engine.check_invariants()
    machine.close()


@pytest.mark.parametrize("seed", range(4))
def test_machines_that_come_and_go(seed: int) -> None:
    """Threads with loops of their own enter machines, share tensors through a list, and leave by different doors."""
    shared: list[flow.Tensor] = [flow.zeros(4) for _ in range(6)]
    errors: list[BaseException] = []

    def work(number: int) -> None:
        chance = random.Random(seed * 100 + number)

        async def main() -> None:
            for _ in range(8):
                try:
                    async with VirtualMachine(f"m{number}", cpu_worker=chance.choice(["never", "always", "auto"])):
                        for _ in range(chance.randrange(1, 12)):
                            index = chance.randrange(len(shared))
                            result = shared[index] * 0.5 + 1
                            if chance.random() < 0.4:
                                await result
                            shared[chance.randrange(len(shared))] = result
                        if chance.random() < 0.3:
                            raise KeyError("leave by an exception")
                        await asyncio.gather(*[tensor.detach() for tensor in shared], return_exceptions=True)
                except KeyError:
                    pass

        try:
            asyncio.run(main())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    assert [error for error in errors if not isinstance(error, flow.VirtualMachineClosed)] == []
    for tensor in shared:
        try:
            values = tensor.tolist()
        except flow.VirtualMachineClosed:
            continue  # dropped by a machine that was left by an exception
        assert all(0 <= value <= 2 for value in values)


def test_machines_that_share_two_tensors_do_not_wait_for_each_other() -> None:
    """Each takes over, now and again, the other's storages; none may wait for later instructions."""
    w, b = flow.ones(8), flow.ones(8)
    errors: list[BaseException] = []

    def work(number: int) -> None:
        async def main() -> None:
            async with VirtualMachine(f"m{number}"):
                for _ in range(60):
                    total = w + b
                    product = w * b
                    await product
                    assert (await total).tolist() == [2.0] * 8

        try:
            asyncio.run(main())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "the machines wait for each other"
    assert errors == []


def test_taking_over_in_the_middle_of_another_machines_issue() -> None:
    """The deterministic core of the above: one has looked up its first operand when the other takes that over."""
    first, second = VirtualMachine("first"), VirtualMachine("second")
    on(first)
    w = flow.ones(4) + 0
    w.tolist()
    w = w + 0
    on(second)
    b = flow.ones(4) + 0
    real = first.take_over
    others: list[flow.Tensor] = []

    def interfere() -> None:
        on(second)
        others.append(w + b)

    def take_over(storage: Any) -> Any:
        thread = threading.Thread(target=interfere)
        thread.start()
        thread.join()
        return real(storage)

    first.take_over = take_over  # type: ignore[method-assign]
    on(first)
    result = w + b
    assert others[0].tolist() == [2.0] * 4
    assert result.tolist() == [2.0] * 4
    on(None)  # type: ignore[arg-type]
    for machine in (first, second):
        machine.close()
