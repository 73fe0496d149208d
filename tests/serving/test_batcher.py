"""Batches: when they begin, how each request ends, and that nobody is left waiting.  In virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from contextvars import ContextVar
from typing import Any

import pytest

from tests.serving.batchers import batcher_of
from tests.serving.virtual_time import run
from vmflow import OutOfMemory
from vmflow.serving import Draining, Expired, NotReady, Overloaded, Statistics
from vmflow.serving.batcher import Batch, Batcher
from vmflow.serving.requests import Request


class Device:
    """Computes ten times each number, a batch in 1 s; keeps account of the batches.

    Args:
        poison: of these it cannot.
        capacity: how many samples fit into its memory.
    """

    def __init__(self, poison: Sequence[int] = (), capacity: int = 1000) -> None:
        self.poison = set(poison)
        self.capacity = capacity
        self.batches: list[tuple[float, list[int]]] = []
        self.abandoned = 0

    async def compute(self, requests: Sequence[Request], batch: Batch) -> list[int]:
        numbers = [request.payload for request in requests]
        self.batches.append((asyncio.get_running_loop().time(), numbers))
        given_up = asyncio.Event()
        batch.abandon = given_up.set
        try:
            async with asyncio.timeout(1.0):
                await given_up.wait()
            self.abandoned += 1
            raise RuntimeError("given up")
        except TimeoutError:
            pass
        if len(numbers) > self.capacity:
            raise OutOfMemory("too many", requested=len(numbers), limit=self.capacity, used=0)
        for number in numbers:
            if number in self.poison:
                raise ValueError(f"cannot compute {number}")
        return [10 * number for number in numbers]


async def ask(batcher: Batcher, number: int, seconds: float | None = None, **about: Any) -> int:
    loop = asyncio.get_running_loop()
    request = Request(number, deadline=None if seconds is None else loop.time() + seconds, **about)
    batcher.submit(request)
    try:
        result: int = await request.future
    except asyncio.CancelledError:
        batcher.cancel(request)
        raise
    return result


def timed(main: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test in virtual time, after which nothing is left."""

    async def whole() -> None:
        await main()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    def test() -> None:
        run(whole())

    test.__name__ = main.__name__
    test.__doc__ = main.__doc__
    return test


def reconciles(statistics: Statistics, batcher: Batcher) -> bool:
    return statistics.accepted == sum(statistics.ends.values()) + batcher.queued() + batcher.running()


@timed
async def test_one_request_waits_for_nobody() -> None:
    device = Device()
    batcher = batcher_of(device.compute)
    assert await ask(batcher, 1) == 10
    assert device.batches == [(0.0, [1])]
    assert asyncio.get_running_loop().time() == 1.0


@timed
async def test_requests_that_arrive_meanwhile_become_one_batch() -> None:
    device = Device()
    batcher = batcher_of(device.compute)
    first = asyncio.create_task(ask(batcher, 0))
    await asyncio.sleep(0.1)
    assert await asyncio.gather(*[ask(batcher, index) for index in range(1, 6)]) == [10, 20, 30, 40, 50]
    assert await first == 0
    assert device.batches == [(0.0, [0]), (1.0, [1, 2, 3, 4]), (2.0, [5])]


@timed
async def test_requests_of_the_same_turn_join_the_batch() -> None:
    device, statistics = Device(), Statistics()
    batcher = batcher_of(device.compute, statistics)
    assert await asyncio.gather(*[ask(batcher, index) for index in range(6)]) == [0, 10, 20, 30, 40, 50]
    assert device.batches == [(0.0, [0, 1, 2, 3]), (1.0, [4, 5])]
    assert statistics.ends["done"] == 6
    assert statistics.waiting.count() == 6


@timed
async def test_only_requests_of_the_same_key_join_a_batch() -> None:
    device = Device()
    batcher = batcher_of(device.compute)
    keys = [(), "other", (), "other"]
    await asyncio.gather(*[ask(batcher, number, key=key) for number, key in enumerate(keys)])
    assert device.batches == [(0.0, [0, 2]), (1.0, [1, 3])]


class Quick:
    """Computes ten times each number immediately, but takes a second for the first `slow` batches; counts them."""

    def __init__(self, slow: int = 0) -> None:
        self.slow = slow
        self.batches: list[list[int]] = []

    async def compute(self, requests: Sequence[Request], batch: Batch) -> list[int]:
        self.batches.append([request.payload for request in requests])
        if self.slow >= len(self.batches):
            await asyncio.sleep(1.0)
        if -1 in self.batches[-1]:
            raise ValueError("cannot compute -1")
        return [10 * request.payload for request in requests]


@timed
async def test_a_single_request_has_its_result_when_the_call_returns() -> None:
    device, statistics = Quick(), Statistics()
    batcher = batcher_of(device.compute, statistics, hurries=True)
    for number in range(3):
        request, same_turn = Request(number), Request(number)
        batcher.submit(request)
        assert request.future.result() == 10 * number
        batcher.submit(same_turn)
        assert not same_turn.future.done()
        assert await same_turn.future == 10 * number
        await asyncio.sleep(0)  # for the batch to be over
    assert len(device.batches) == 6
    await batcher.until_idle()
    assert statistics.ends["done"] == 6
    with pytest.raises(ValueError, match="cannot compute -1"):
        await ask(batcher, -1)
    assert statistics.ends["failed"] == 1


@timed
async def test_where_several_come_nobody_hurries() -> None:
    device = Quick()
    batcher = batcher_of(device.compute, hurries=True)
    for _ in range(3):
        await asyncio.gather(*[ask(batcher, index) for index in range(4)])
    assert device.batches == [[0], [1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3]]


@pytest.mark.parametrize("turns", [0, 1, 2, 5])
@pytest.mark.parametrize("hurries", [True, False])
def test_closing_as_soon_as_may_be(turns: int, hurries: bool) -> None:
    async def main() -> None:
        statistics = Statistics()
        batcher = batcher_of(Quick(slow=2).compute, statistics, hurries=hurries)
        requests = [Request(number) for number in range(2)]
        for request in requests:
            batcher.submit(request)
        for _ in range(turns):
            await asyncio.sleep(0)
        await batcher.close()
        assert not batcher.running()
        assert statistics.ends["failed"] == 2
        for request in requests:
            with pytest.raises(NotReady):
                await request.future
        await batcher.until_idle()

    run(main())


@timed
async def test_a_computation_that_cancels_itself_in_the_call_cancels_nothing_else() -> None:
    async def compute(requests: Sequence[Request], batch: Batch) -> list[int]:
        raise asyncio.CancelledError

    batcher = batcher_of(compute, hurries=True)
    with pytest.raises(NotReady):
        await ask(batcher, 1)


@timed
async def test_a_request_that_arrives_while_a_call_computes_waits_for_the_place() -> None:
    device, meanwhile = Quick(slow=2), Request(2)

    async def compute(requests: Sequence[Request], batch: Batch) -> list[int]:
        if not device.batches:
            batcher.submit(meanwhile)
        return await device.compute(requests, batch)

    batcher, loop = batcher_of(compute, hurries=True), asyncio.get_running_loop()
    assert await ask(batcher, 1) == 10
    assert loop.time() == 1.0
    assert await meanwhile.future == 20
    assert loop.time() == 2.0


@timed
async def test_cancelling_a_request_that_began_in_the_call() -> None:
    device, statistics = Device(), Statistics()
    batcher = batcher_of(device.compute, statistics, hurries=True)
    task = asyncio.create_task(ask(batcher, 1))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await ask(batcher, 2) == 20
    assert device.abandoned == 1
    assert reconciles(statistics, batcher)


@timed
async def test_ctrl_c_in_a_call_leaves_nobody_waiting() -> None:
    async def compute(requests: Sequence[Request], batch: Batch) -> list[int]:
        raise KeyboardInterrupt

    statistics = Statistics()
    batcher = batcher_of(compute, statistics, hurries=True)
    request = Request(1)
    with pytest.raises(KeyboardInterrupt):
        batcher.submit(request)
    with pytest.raises(NotReady):
        await request.future
    await batcher.until_idle()
    assert reconciles(statistics, batcher)


@timed
async def test_a_computation_that_began_in_the_call_and_waits_goes_on_by_itself() -> None:
    surroundings: ContextVar[str] = ContextVar("surroundings")
    seen: list[str | None] = []
    device = Quick(slow=2)

    async def compute(requests: Sequence[Request], batch: Batch) -> list[int]:
        seen.append(surroundings.get(None))
        results = await device.compute(requests, batch)
        seen.append(surroundings.get(None))
        return results

    batcher = batcher_of(compute, hurries=True)
    surroundings.set("of the caller")
    assert await ask(batcher, 1) == 10
    assert asyncio.get_running_loop().time() == 1.0
    assert seen == [None, None]
    task = asyncio.create_task(ask(batcher, 2))
    await asyncio.sleep(0.5)
    await batcher.close()  # which cancels running batches
    with pytest.raises(NotReady, match="in the middle"):
        await task


@timed
async def test_the_loop_gets_to_others_while_a_large_batch_is_delivered() -> None:
    device, loop = Device(), asyncio.get_running_loop()
    turns = 0
    seen: list[int] = []

    def turn() -> None:
        nonlocal turns
        turns += 1
        if len(seen) < 100:
            loop.call_soon(turn)

    async def compute(requests: Sequence[Request], batch: Batch) -> list[int]:
        results = await device.compute(requests, batch)
        if len(requests) > 1:
            turn()
        return results

    batcher = batcher_of(compute, most=128, limit=128, limit_per_client=128)

    async def one(number: int) -> None:
        await ask(batcher, number)
        seen.append(turns)

    await asyncio.gather(*[one(index) for index in range(100)])
    assert [len(numbers) for _, numbers in device.batches] == [100]
    assert max([seen.count(value) for value in seen]) <= 32
    assert turns < 10


@timed
async def test_closing_in_the_middle_of_a_delivery_loses_no_result() -> None:
    device, statistics = Device(), Statistics()
    batcher = batcher_of(device.compute, statistics, most=128, limit=128, limit_per_client=128)
    tasks = [asyncio.create_task(ask(batcher, index)) for index in range(70)]
    await asyncio.sleep(0.5)
    await tasks[1]  # of the second batch, the first to be told
    assert statistics.ends["done"] < 70
    await batcher.close()
    assert await asyncio.gather(*tasks) == [10 * index for index in range(70)]
    assert statistics.ends["done"] == 70


@timed
async def test_a_batch_on_this_thread_is_begun_when_a_turn_brings_nothing() -> None:
    device = Device()
    batcher = batcher_of(device.compute, most=8, limit=32, limit_per_client=32, computed_here=lambda count, key: True)
    tasks = [asyncio.create_task(ask(batcher, number)) for number in range(2)]
    for number in range(2, 5):  # one in each turn
        await asyncio.sleep(0)
        tasks.append(asyncio.create_task(ask(batcher, number)))
    for _ in range(4):
        await asyncio.sleep(0)
    tasks.append(asyncio.create_task(ask(batcher, 5)))
    assert await asyncio.gather(*tasks) == [10 * index for index in range(6)]
    assert [numbers for _, numbers in device.batches] == [[0, 1, 2, 3, 4], [5]]


@timed
async def test_a_full_batch_on_this_thread_waits_no_further_turn() -> None:
    device = Device()
    batcher = batcher_of(device.compute, most=2, computed_here=lambda count, key: True)
    tasks = [asyncio.create_task(ask(batcher, number)) for number in range(2)]
    await asyncio.sleep(0)  # the first request begins a batch, which the second one fills
    await asyncio.sleep(0)
    assert batcher.running() == 2
    assert len(device.batches) == 1
    assert await asyncio.gather(*tasks) == [0, 10]


@timed
async def test_a_batch_that_takes_others_along_can_be_closed() -> None:
    device, statistics = Device(), Statistics()
    batcher = batcher_of(device.compute, statistics, most=8, computed_here=lambda count, key: True)
    tasks: list[asyncio.Task[int]] = []
    for turns in range(6):
        batcher = batcher_of(device.compute, statistics, most=8, computed_here=lambda count, key: True)
        tasks = [asyncio.create_task(ask(batcher, number)) for number in range(3)]
        for _ in range(turns):
            await asyncio.sleep(0)
        await batcher.close()
        assert all(
            [isinstance(value, (int, NotReady)) for value in await asyncio.gather(*tasks, return_exceptions=True)]
        )
        assert batcher.running() == batcher.queued() == 0


@timed
async def test_results_of_a_wrong_number_are_an_error_of_each_request() -> None:
    async def compute(requests: Sequence[Request], batch: Batch) -> list[int]:
        return [1] * (len(requests) + 1)

    for hurries in (False, True):
        statistics = Statistics()
        batcher = batcher_of(compute, statistics, hurries=hurries)
        for count in (1, 3):
            found = await asyncio.gather(*[ask(batcher, index) for index in range(count)], return_exceptions=True)
            assert [type(value) for value in found] == [ValueError] * count
        assert statistics.accepted == statistics.ends["failed"] == 4


@timed
async def test_several_places() -> None:
    device = Device()
    batcher = batcher_of(device.compute, places=2)
    await asyncio.gather(*[ask(batcher, index) for index in range(7)])
    assert device.batches == [(0.0, [0, 2, 3, 4]), (0.0, [1, 5, 6])]


@timed
async def test_waiting_for_company() -> None:
    device = Device()
    statistics = Statistics()
    batcher = batcher_of(device.compute, statistics, wait=0.5)

    async def later(seconds: float, number: int) -> int:
        await asyncio.sleep(seconds)
        return await ask(batcher, number)

    assert list(await asyncio.gather(later(0, 1), later(0.2, 2), later(0.7, 3))) == [10, 20, 30]
    assert device.batches == [(0.5, [1, 2]), (1.5, [3])]
    await asyncio.gather(*[ask(batcher, index) for index in range(4)])
    assert device.batches[-1] == (2.5, [0, 1, 2, 3])  # enough for a whole one
    assert statistics.batches.begun == {"full": 1, "free": 0, "waited": 2}


@timed
async def test_a_deadline_in_the_queue_holds_while_the_device_is_busy() -> None:
    device = Device()
    statistics = Statistics()
    batcher = batcher_of(device.compute, statistics)
    busy = asyncio.create_task(ask(batcher, 0))
    await asyncio.sleep(0)
    begin = asyncio.get_running_loop().time()
    results = await asyncio.gather(
        *[ask(batcher, index, seconds=0.01) for index in range(1, 6)], return_exceptions=True
    )
    assert asyncio.get_running_loop().time() == begin + 0.01
    assert [type(result) for result in results] == [Expired] * 5
    assert "while the request waited" in str(results[0])
    assert await busy == 0
    assert device.batches == [(0.0, [0])]  # expired requests are never computed
    assert statistics.ends == {"done": 1, "failed": 0, "cancelled": 0, "expired": 5}
    assert statistics.never_ran == 5


@timed
async def test_a_deadline_holds_while_the_request_is_computed() -> None:
    device = Device()
    batcher = batcher_of(device.compute)
    first = asyncio.create_task(ask(batcher, 1, seconds=0.3))
    await asyncio.sleep(0.1)
    second = asyncio.create_task(ask(batcher, 2))
    with pytest.raises(Expired, match="was being computed"):
        await first
    assert asyncio.get_running_loop().time() == 0.3
    assert await second == 20
    assert device.abandoned == 1  # nobody else was in that batch
    assert [when for when, _ in device.batches] == [0.0, 0.3]


@timed
async def test_a_deadline_that_has_passed() -> None:
    device = Device()
    batcher = batcher_of(device.compute)
    with pytest.raises(Expired):
        await ask(batcher, 1, seconds=0.0)
    assert device.batches == []


@timed
async def test_a_request_that_leaves_the_queue_frees_its_place_immediately() -> None:
    device = Device()
    batcher = batcher_of(device.compute, limit=1)
    busy = asyncio.create_task(ask(batcher, 0))
    await asyncio.sleep(0)
    waits = asyncio.create_task(ask(batcher, 1))
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await ask(batcher, 2)
    waits.cancel()
    await asyncio.sleep(0)
    assert batcher.queued() == 0
    assert await ask(batcher, 3) == 30
    assert await busy == 0
    assert [numbers for _, numbers in device.batches] == [[0], [3]]


@timed
async def test_one_of_a_batch_may_leave_and_the_others_stay() -> None:
    device = Device()
    batcher = batcher_of(device.compute)
    busy = asyncio.create_task(ask(batcher, 0))
    await asyncio.sleep(0)
    tasks = [asyncio.create_task(ask(batcher, number)) for number in (1, 2)]
    await busy
    await asyncio.sleep(0.5)
    tasks[0].cancel()
    assert await tasks[1] == 20
    assert device.abandoned == 0
    assert asyncio.get_running_loop().time() == 2.0


@timed
async def test_one_that_cannot_be_computed_fails_alone() -> None:
    device = Device(poison=[3])
    statistics = Statistics()
    batcher = batcher_of(device.compute, statistics, most=8)
    busy = asyncio.create_task(ask(batcher, 0))
    await asyncio.sleep(0)
    results = await asyncio.gather(*[ask(batcher, index) for index in range(1, 7)], return_exceptions=True)
    assert [result if isinstance(result, int) else str(result) for result in results] == [
        10,
        20,
        "cannot compute 3",
        40,
        50,
        60,
    ]
    assert await busy == 0
    assert statistics.ends == {"done": 6, "failed": 1, "cancelled": 0, "expired": 0}
    assert await ask(batcher, 7) == 70


@timed
async def test_a_batch_that_does_not_fit_becomes_two() -> None:
    device = Device(capacity=2)
    batcher = batcher_of(device.compute)
    busy = asyncio.create_task(ask(batcher, 0))
    await asyncio.sleep(0)
    assert await asyncio.gather(*[ask(batcher, index) for index in range(1, 5)]) == [10, 20, 30, 40]
    await busy
    assert [numbers for _, numbers in device.batches] == [[0], [1, 2, 3, 4], [1, 2], [3, 4]]


@timed
async def test_a_refused_request_gets_a_time_to_try_again() -> None:
    device = Device()
    batcher = batcher_of(device.compute, most=1, limit=5)
    assert await ask(batcher, 0) == 0  # so that a second per batch is known
    tasks = [asyncio.create_task(ask(batcher, index)) for index in range(6)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded) as caught:
        await ask(batcher, 9)
    assert caught.value.retry_after == 7.0
    await asyncio.gather(*tasks)


@timed
async def test_holding() -> None:
    device = Device()
    batcher = batcher_of(device.compute)
    running = asyncio.create_task(ask(batcher, 1))
    await asyncio.sleep(0)
    batcher.hold()
    waiting = asyncio.create_task(ask(batcher, 2))
    await batcher.until_nothing_runs()
    assert running.done() or await running == 10
    await asyncio.sleep(5)
    assert not waiting.done()
    batcher.go_on()
    assert await waiting == 20


@timed
async def test_draining() -> None:
    device = Device()
    batcher = batcher_of(device.compute)
    tasks = [asyncio.create_task(ask(batcher, index)) for index in range(3)]
    await asyncio.sleep(0)
    batcher.refuse(Draining)
    with pytest.raises(Draining):
        await ask(batcher, 9)
    await batcher.until_idle()
    assert await asyncio.gather(*tasks) == [0, 10, 20]


@timed
async def test_closing_leaves_nobody_waiting() -> None:
    device = Device()
    statistics = Statistics()
    batcher = batcher_of(device.compute, statistics, wait=0.1)
    tasks = [asyncio.create_task(ask(batcher, index)) for index in range(8)]
    await asyncio.sleep(0.2)
    await batcher.close()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [NotReady] * 8
    assert "in the middle" in str(results[0])
    assert "before the request had its turn" in str(results[-1])
    assert reconciles(statistics, batcher)
    with pytest.raises(NotReady):
        await ask(batcher, 9)


@timed
async def test_a_batch_does_not_inherit_the_context_of_the_first_caller() -> None:
    variable: ContextVar[str] = ContextVar("variable", default="nobody's")
    seen = []

    async def compute(requests: Sequence[Request], batch: Batch) -> list[int]:
        seen.append(variable.get())
        return [0] * len(requests)

    batcher = batcher_of(compute)
    variable.set("the caller's")
    await ask(batcher, 1)
    assert seen == ["nobody's"]


@timed
async def test_batches_that_are_computed_at_a_time_do_not_share_their_surroundings() -> None:
    variable: ContextVar[int] = ContextVar("variable", default=0)
    found = []

    async def compute(requests: Sequence[Request], batch: Batch) -> list[int]:
        found.append(variable.get())
        variable.set(requests[0].payload)
        await asyncio.sleep(1.0)
        found.append(variable.get())
        return [0]

    batcher = batcher_of(compute, most=1, places=2)
    await asyncio.gather(ask(batcher, 1), ask(batcher, 2))
    assert found == [0, 0, 1, 2]


def test_an_exit_fails_the_batch_and_goes_on_to_the_loop() -> None:
    requests: list[Request] = []

    async def compute(requests: Sequence[Request], batch: Batch) -> list[int]:
        raise SystemExit(3)

    async def main() -> None:
        batcher = batcher_of(compute)
        requests.append(Request(1))
        batcher.submit(requests[0])
        await asyncio.sleep(1)

    with pytest.raises(SystemExit):
        run(main())
    assert isinstance(requests[0].future.exception(), NotReady)


@pytest.mark.parametrize("seed", range(50))
def test_everything_together(seed: int) -> None:
    """In every case, all callers get an outcome, the counts always add up, and in the end nothing is left."""
    draw = random.Random(seed)

    async def main() -> None:
        device = Device(poison=[7, 77], capacity=3)
        statistics = Statistics()
        batcher = batcher_of(
            device.compute, statistics, most=draw.choice([1, 4]), places=draw.choice([1, 3]), wait=draw.choice([0, 0.4])
        )
        tasks = []
        for number in range(120):
            seconds = draw.choice([None, 0.0, 0.5, 1.5, 4.0])
            client, priority = draw.choice([None, "a", "b"]), draw.choice([0, 0, 1])
            tasks.append(asyncio.create_task(ask(batcher, number, seconds, client=client, priority=priority)))
            await asyncio.sleep(draw.choice([0.0, 0.0, 0.1, 1.0]))
            if draw.random() < 0.2:
                draw.choice(tasks).cancel()
            assert reconciles(statistics, batcher)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for number, result in enumerate(results):
            if isinstance(result, int):
                assert result == 10 * number
            elif isinstance(result, ValueError):
                assert number in device.poison
            else:
                assert isinstance(result, (Expired, Overloaded, asyncio.CancelledError))
        await batcher.until_idle()
        # A caller that is cancelled in the moment of the result does not get it.
        late = statistics.ends["done"] - sum([isinstance(value, int) for value in results])
        assert 0 <= late <= sum([isinstance(value, asyncio.CancelledError) for value in results])
        assert statistics.accepted == sum(statistics.ends.values())
        assert batcher.running() == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main())


@timed
async def test_an_interrupt_at_its_beginning_leaves_a_request_counted() -> None:
    class Interrupted:
        def __next__(self) -> int:
            raise KeyboardInterrupt

    device, statistics = Quick(), Statistics()
    batcher = batcher_of(device.compute, statistics, hurries=True)
    numbers, batcher._tracing.batches = batcher._tracing.batches, Interrupted()  # type: ignore[assignment]
    request = Request(1, deadline=asyncio.get_running_loop().time() + 1)
    with pytest.raises(KeyboardInterrupt):
        batcher.submit(request)
    batcher._tracing.batches = numbers
    assert reconciles(statistics, batcher)
    assert statistics.ends["failed"] == 1
    assert await ask(batcher, 2) == 20
    assert batcher.running() == 0
    assert reconciles(statistics, batcher)
