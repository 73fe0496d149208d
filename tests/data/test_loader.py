"""`DataLoader`, in place and with threads, in plain code and in coroutines; processes where they must do the same."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import vmflow as flow
from vmflow.utils import data
from vmflow.utils.data import DataLoader

from .conftest import PATIENCE, join_workers
from .support import Failing, Gated, Infos, Noise, Shares, Squares, same

pytestmark = pytest.mark.usefixtures("nothing_is_left")

Collected = list[Any]


def plainly(loader: DataLoader) -> Collected:
    return list(loader)


def awaiting(loader: DataLoader) -> Collected:
    async def collect() -> Collected:
        return [batch async for batch in loader]

    return asyncio.run(collect())


ways = pytest.mark.parametrize("way", [plainly, awaiting])
Way = Callable[[DataLoader], Collected]
workers = pytest.mark.parametrize("num_workers", [0, 1, 3])


@ways
@workers
@pytest.mark.parametrize("drop_last", [False, True])
def test_batches_in_order(way: Way, num_workers: int, drop_last: bool) -> None:
    loader = DataLoader(Squares(10), batch_size=4, num_workers=num_workers, drop_last=drop_last)
    found = way(loader)
    assert [indices.tolist() for _, indices in found] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]][: 2 if drop_last else 3]
    assert len(found) == len(loader)
    squares = found[1][0]
    np.testing.assert_array_equal(squares.numpy(), np.repeat([[16.0], [25.0], [36.0], [49.0]], 3, 1))
    assert squares.dtype is flow.float32


@ways
@workers
def test_samples_by_themselves(way: Way, num_workers: int) -> None:
    found = way(DataLoader(Squares(3), batch_size=None, num_workers=num_workers))
    assert [index for _, index in found] == [0, 1, 2]
    assert isinstance(found[0][0], flow.Tensor)


@ways
def test_the_order_and_the_random_numbers_do_not_depend_on_the_workers(way: Way) -> None:
    def run(num_workers: int, seed: int) -> list[Any]:
        generator = flow.Generator().manual_seed(seed)
        loader = DataLoader(Noise(20), 3, shuffle=True, num_workers=num_workers, generator=generator)
        return [[(tensor.tolist(), noise.tolist()) for tensor, noise in way(loader)] for _ in range(2)]

    first = run(0, 1)
    assert first[0] != first[1]
    assert run(1, 1) == run(3, 1) == first
    assert run(3, 2) != first


def test_the_default_generator_decides_if_none_is_given() -> None:
    loader = DataLoader(Squares(50), 50, shuffle=True)
    orders = []
    for seed in (3, 3, 4):
        flow.manual_seed(seed)
        orders.append(next(iter(loader))[1].tolist())
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == list(range(50))


def test_workers_know_their_number_and_seed() -> None:
    generator = flow.Generator()

    def infos(num_workers: int) -> list[Any]:
        generator.manual_seed(5)
        loader = DataLoader(Infos(8), 2, num_workers=num_workers, generator=generator, collate_fn=same)
        return list(itertools.chain.from_iterable(loader))

    assert infos(0) == [None] * 8
    two, four = infos(2), infos(4)
    assert [(number, count) for number, count, _, _ in two] == [(0, 2), (0, 2), (1, 2), (1, 2)] * 2
    assert {value[2] for value in two} < {value[2] for value in four}
    assert {value[3] for value in two} == {"thread"}
    assert data.get_worker_info() is None


def test_iterable_datasets_are_shared_among_workers() -> None:
    assert [tensor.tolist() for tensor in DataLoader(Shares(7), 3)] == [[0, 1, 2], [3, 4, 5], [6]]
    found = [tensor.tolist() for tensor in DataLoader(Shares(7), 2, num_workers=2)]
    assert found == [[0, 2], [1, 3], [4, 6], [5]]
    assert [tensor.tolist() for tensor in DataLoader(Shares(7), 2, num_workers=2, drop_last=True)] == [
        [0, 2],
        [1, 3],
        [4, 6],
    ]
    assert [tensor.tolist() for tensor in DataLoader(Shares(4, all_to_first=True), 1, num_workers=3)] == [
        [0],
        [1],
        [2],
        [3],
    ]
    assert list(DataLoader(Shares(3), None)) == [0, 1, 2]
    assert len(DataLoader(Shares(7), 3)) == 3
    assert len(DataLoader(Shares(7), 3, drop_last=True)) == 2


@ways
def test_out_of_order(way: Way) -> None:
    """The first batch waits until the others have arrived."""

    class FirstLate(Gated):
        def __getitem__(self, index: int) -> Any:
            if index == 5:
                self.gate.set()
            if index == 0:
                assert self.gate.wait(PATIENCE)
            return index

    dataset = FirstLate(6)
    found = [int(tensor.item()) for tensor in way(DataLoader(dataset, 1, num_workers=2, in_order=False))]
    assert sorted(found) == list(range(6))
    assert found[:3] == [1, 3, 4]


# Errors


@ways
@workers
def test_an_error_comes_in_its_turn(way: Way, num_workers: int) -> None:
    taken: list[int] = []

    def collate(samples: list[Any]) -> list[int]:
        return [index for _, index in samples]

    loader = DataLoader(Failing(5, KeyError("planted")), 2, num_workers=num_workers, collate_fn=collate)

    def consume() -> None:
        for batch in loader:
            taken.extend(batch)

    async def consume_awaiting() -> None:
        async for batch in loader:
            taken.extend(batch)

    with pytest.raises(KeyError, match="planted") as caught:
        consume() if way is plainly else asyncio.run(consume_awaiting())
    assert taken == [0, 1, 2, 3]
    assert "while fetching sample 5 of batch 2" in caught.value.__notes__[0]
    assert "support.py" in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("error", [StopIteration(1), StopAsyncIteration(), GeneratorExit(), asyncio.CancelledError()])
@workers
def test_exceptions_that_would_steer_the_consumer_become_errors(error: BaseException, num_workers: int) -> None:
    with pytest.raises(RuntimeError, match=f"{type(error).__name__} was raised while fetching sample 1") as caught:
        plainly(DataLoader(Failing(1, error), num_workers=num_workers))
    assert caught.value.__cause__ is error


@ways
@pytest.mark.parametrize("num_workers", [0, 2])
def test_errors_of_samplers_and_collating(way: Way, num_workers: int) -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise LookupError("no more")

    class Sampler(data.Sampler[int]):
        def __iter__(self) -> Iterator[int]:
            return broken()

    with pytest.raises(LookupError, match="no more"):
        way(DataLoader(Squares(), sampler=Sampler(), num_workers=num_workers))

    def collate(samples: list[Any]) -> None:
        raise ArithmeticError("no batch")

    with pytest.raises(ArithmeticError, match="no batch") as caught:
        way(DataLoader(Squares(), 2, collate_fn=collate, num_workers=num_workers))
    assert "while collating batch 0 of samples [0, 1]" in caught.value.__notes__[0]


def test_an_iterable_dataset_that_fails() -> None:
    batches = iter(DataLoader(Shares(9, bad=4), 2, num_workers=2))
    assert next(batches).tolist() == [0, 2]
    assert next(batches).tolist() == [1, 3]
    with pytest.raises(ValueError, match="number 4"):
        next(batches)
    with pytest.raises(StopIteration):
        next(batches)


def test_worker_init_fn() -> None:
    begun: list[int] = []
    loader = DataLoader(Squares(), num_workers=2, worker_init_fn=begun.append, persistent_workers=True)
    for _ in range(3):
        assert len(plainly(loader)) == 10
    assert sorted(begun) == [0, 1]

    def refuse(number: int) -> None:
        raise OSError(f"worker {number} does not want to")

    with pytest.raises(OSError, match="does not want to"):
        plainly(DataLoader(Squares(), num_workers=2, worker_init_fn=refuse))


def test_timeout() -> None:
    dataset = Gated()
    with pytest.raises(TimeoutError, match=r"within 0\.01 seconds"):
        next(iter(DataLoader(dataset, num_workers=1, timeout=0.01)))

    async def consume() -> None:
        await anext(aiter(DataLoader(dataset, num_workers=1, timeout=0.01)))

    with pytest.raises(TimeoutError, match=r"within 0\.01 seconds"):
        asyncio.run(consume())
    dataset.gate.set()


# Back-pressure


@pytest.mark.parametrize(("num_workers", "prefetch_factor"), [(1, 1), (2, 2), (3, 1)])
def test_no_more_is_fetched_ahead_than_was_said(num_workers: int, prefetch_factor: int) -> None:
    dataset = Gated(30, held=30)
    batches = iter(DataLoader(dataset, 1, num_workers=num_workers, prefetch_factor=prefetch_factor))
    ahead = num_workers * prefetch_factor
    for taken in range(30):
        for _ in range(min(ahead, 30) if taken == 0 else int(taken + ahead <= 30)):
            assert dataset.reached.acquire(timeout=PATIENCE)
        assert len(dataset.asked) == min(taken + ahead, 30)
        assert next(batches)[1].tolist() == [taken]
    assert list(batches) == []


async def test_without_workers_nothing_is_fetched_ahead() -> None:
    dataset = Gated(5, held=5)
    batches = aiter(DataLoader(dataset))
    for taken in range(5):
        assert len(dataset.asked) == taken
        await anext(batches)


# Leaving early


@pytest.mark.parametrize("persistent", [False, True])
def test_break_ends_the_workers(persistent: bool) -> None:
    loader = DataLoader(Squares(1000), num_workers=2, persistent_workers=persistent)
    for _ in range(3):
        for _ in loader:
            break
    assert len(plainly(loader)) == 1000
    del loader
    join_workers()


def test_close_waits_for_the_workers() -> None:
    with contextlib.closing(iter(DataLoader(Squares(1000), num_workers=2))) as batches:
        next(batches)
    assert [value.name for value in threading.enumerate() if value.name.startswith("vmflow-data")] == []
    with pytest.raises(StopIteration):
        next(batches)


async def test_aclose_waits_for_the_workers() -> None:
    for num_workers in (0, 2):
        batches: Any = aiter(DataLoader(Squares(1000), num_workers=num_workers))
        async with contextlib.aclosing(batches):
            await anext(batches)
        assert [value.name for value in threading.enumerate() if value.name.startswith("vmflow-data")] == []
        with pytest.raises(StopAsyncIteration):
            await anext(batches)


@pytest.mark.parametrize("num_workers", [0, 2])
async def test_cancelling_the_consumer_ends_the_workers(num_workers: int) -> None:
    dataset = Gated(10, held=1)
    seen = asyncio.Event()

    async def consume() -> None:
        async for _ in DataLoader(dataset, num_workers=num_workers):
            seen.set()

    task = asyncio.create_task(consume())
    await seen.wait()
    for _ in range(3):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    dataset.gate.set()
    join_workers()  # although the task and its exception are still around
    assert caught.value is not None
    assert task.cancelled()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_batch_is_not_lost_by_a_cancelled_wait() -> None:
    dataset = Gated(4)
    batches = aiter(DataLoader(dataset, num_workers=2, collate_fn=same))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(batches), 0.01)
    dataset.gate.set()
    assert [index async for [(_, index)] in batches] == [0, 1, 2, 3]


def test_a_loop_that_closes_with_a_consumer_pending() -> None:
    dataset = Gated(10)
    loop = asyncio.new_event_loop()

    async def consume() -> None:
        async for _ in DataLoader(dataset, num_workers=2):
            pass

    reported: list[Any] = []
    loop.set_exception_handler(lambda _, context: reported.append(context["message"]))
    task = loop.create_task(consume())
    loop.run_until_complete(asyncio.sleep(0))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    dataset.gate.set()  # the workers now call a loop that is closed
    del task
    gc.collect()
    join_workers()
    assert reported == ["Task was destroyed but it is pending!"]


def test_iterators_are_not_kept_alive_by_their_workers() -> None:
    batches = iter(DataLoader(Squares(1000), num_workers=2))
    next(batches)
    seen = weakref.ref(batches)
    del batches
    assert seen() is None
    join_workers()


async def test_one_consumer_at_a_time() -> None:
    dataset = Gated()
    batches = aiter(DataLoader(dataset, num_workers=1, collate_fn=same))
    first = asyncio.create_task(_one(batches))
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="already waiting"):
        await anext(batches)
    dataset.gate.set()
    assert (await first)[0][1] == 0


async def _one(batches: Any) -> Any:
    return await anext(batches)


# Several iterations at the same time


@pytest.mark.parametrize("persistent", [False, True])
def test_iterations_at_once_are_independent(persistent: bool) -> None:
    def order(generator: flow.Generator, interleaved: bool) -> list[list[int]]:
        loader = DataLoader(
            Squares(12), 1, shuffle=True, num_workers=2, generator=generator, persistent_workers=persistent
        )
        one, other = iter(loader), iter(loader)
        if interleaved:
            pairs = list(zip(one, other, strict=True))
            return [[int(pair[0][1].item()) for pair in pairs], [int(pair[1][1].item()) for pair in pairs]]
        return [[int(index.item()) for _, index in value] for value in (one, other)]

    interleaved = order(flow.Generator().manual_seed(1), True)
    assert interleaved == order(flow.Generator().manual_seed(1), False)
    assert interleaved[0] != interleaved[1]
    assert sorted(interleaved[0]) == sorted(interleaved[1]) == list(range(12))


async def test_the_loop_goes_on_while_a_sample_is_fetched() -> None:
    """The sample can only come if a coroutine runs meanwhile."""
    for num_workers in (0, 1):
        dataset = Gated(1)
        waiting = asyncio.create_task(_one(aiter(DataLoader(dataset, None, num_workers=num_workers, collate_fn=same))))
        assert await asyncio.to_thread(dataset.reached.acquire, timeout=PATIENCE)
        dataset.gate.set()
        assert (await waiting)[1] == 0


async def test_tensors_belong_to_the_consumers_machine() -> None:
    images = flow.arange(12).reshape(6, 2)
    async with flow.VirtualMachine("own") as machine:
        dataset = data.TensorDataset(images * 2, flow.arange(6))
        found = [batch async for batch in DataLoader(dataset, 4, num_workers=2)]
        assert found[0][0]._blob.storage.machine is machine
        assert (await found[1][0]).tolist() == [[16, 18], [20, 22]]


# Random schedules


@settings(max_examples=40)
@given(
    length=st.integers(0, 12),
    num_workers=st.integers(0, 3),
    prefetch=st.integers(1, 2),
    bad=st.none() | st.integers(0, 11),
    leave_after=st.none() | st.integers(0, 12),
    asynchronous=st.booleans(),
    persistent=st.booleans(),
)
def test_any_loader(
    length: int,
    num_workers: int,
    prefetch: int,
    bad: int | None,
    leave_after: int | None,
    asynchronous: bool,
    persistent: bool,
) -> None:
    dataset = (
        Squares(length) if bad is None else Failing(bad, KeyError, length)
    )  # a new one each time: it holds its frames
    more: dict[str, Any] = {"prefetch_factor": prefetch, "persistent_workers": persistent} if num_workers else {}
    loader = DataLoader(dataset, 2, num_workers=num_workers, collate_fn=same, **more)
    found: list[int] = []

    async def consume(loader: DataLoader) -> None:
        async for batch in loader:
            found.extend(index for _, index in batch)
            if leave_after is not None and len(found) >= leave_after:
                return

    def iterate(loader: DataLoader) -> None:
        for batch in loader:
            found.extend(index for _, index in batch)
            if leave_after is not None and len(found) >= leave_after:
                return

    until = length if bad is None or bad >= length else bad // 2 * 2
    left = leave_after is not None and max(leave_after, 1) <= until
    run: Callable[[DataLoader], None] = (lambda x: asyncio.run(consume(x))) if asynchronous else iterate
    if until < length and not left:
        with pytest.raises(KeyError):
            run(loader)
    else:
        run(loader)
    assert found == list(range(until))[: len(found)]
    if not left:
        assert len(found) == until
    del loader
    gc.collect()
    join_workers()


# Arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_workers": -1}, "num_workers must be at least 0"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"timeout": -1, "num_workers": 1}, "timeout must be"),
        ({"timeout": 1}, "timeout needs num_workers"),
        ({"prefetch_factor": 2}, "prefetch_factor needs num_workers"),
        ({"prefetch_factor": 0, "num_workers": 1}, "prefetch_factor must be at least 1"),
        ({"persistent_workers": True}, "persistent_workers needs num_workers"),
        ({"worker_kind": "fibre"}, "worker_kind must be"),
        ({"multiprocessing_context": "spawn", "num_workers": 1}, 'worker_kind="process"'),
        ({"multiprocessing_context": "teleport", "num_workers": 1, "worker_kind": "process"}, "teleport"),
        ({"sampler": [1], "shuffle": True}, "a sampler or shuffle"),
        ({"batch_sampler": [[1]], "batch_size": 2}, "a batch_sampler"),
        ({"batch_sampler": [[1]], "drop_last": True}, "a batch_sampler"),
        ({"batch_size": None, "drop_last": True}, "drop_last needs a batch_size"),
    ],
)
def test_arguments_that_will_not_do(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataLoader(Squares(), **arguments)


@pytest.mark.parametrize("name", ["shuffle", "sampler", "batch_sampler"])
def test_an_iterable_dataset_has_its_own_order(name: str) -> None:
    arguments: dict[str, Any] = {name: [1]}
    with pytest.raises(ValueError, match=f"{name} cannot be given"):
        DataLoader(Shares(3), **arguments)


def test_wrong_types() -> None:
    with pytest.raises(TypeError, match="must be an IterableDataset"):
        DataLoader(iter([1, 2]))
    with pytest.raises(TypeError, match="num_workers must be an integer"):
        DataLoader([1], num_workers=1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="has no length"):
        len(DataLoader(Squares(), sampler=iter([1])))


def test_a_list_is_a_dataset_and_other_samplers_do() -> None:
    loader = DataLoader([1.5, 2.5, 3.5], 2)
    assert [tensor.tolist() for tensor in loader] == [[1.5, 2.5], [3.5]]
    assert next(iter(loader)).dtype is flow.float64
    chosen = DataLoader(Squares(), batch_sampler=[[3, 1], [2]], num_workers=1)
    assert [indices.tolist() for _, indices in chosen] == [[3, 1], [2]]
    assert len(chosen) == 2
