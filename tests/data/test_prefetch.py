"""`Prefetch`: workers of any speed, in any order, that fail or run out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from vmflow.utils.data.prefetch import NOTHING, Prefetch


class Run:
    """Drives a `Prefetch` as an iteration does, and checks its invariants at each step."""

    def __init__(self, workers: int, ahead: int, in_order: bool, length: int, shares: list[int] | None) -> None:
        self.prefetch = Prefetch(workers, ahead, in_order)
        self.limit = workers * ahead
        self.left_in_source = length
        self.shares = shares  # how many batches each worker has, of an iterable dataset
        self.queues: list[list[int]] = [[] for _ in range(workers)]
        self.taken: list[Any] = []
        self.by_worker: dict[int, int] = {}
        self.assign()

    def assign(self) -> None:
        prefetch = self.prefetch
        while (worker := prefetch.wanted()) is not None:
            if not self.left_in_source:
                prefetch.source_ended()
                continue
            self.left_in_source -= 1
            ticket = prefetch.assign(worker)
            self.by_worker[ticket] = worker
            self.queues[worker].append(ticket)
            assert prefetch.on_their_way <= self.limit

    def work(self, worker: int) -> None:
        """The worker ends the first of its jobs."""
        if not self.queues[worker]:
            return
        ticket = self.queues[worker].pop(0)
        if self.shares is not None:
            if not self.shares[worker]:
                self.prefetch.ran_out(ticket)
                return
            self.shares[worker] -= 1
        self.prefetch.arrived(ticket, ticket)

    def take(self) -> None:
        result = self.prefetch.take()
        if result is not NOTHING:
            self.taken.append(result)
        self.assign()

    def finish(self) -> None:
        for _ in range(1000):
            if self.prefetch.finished():
                return
            for worker in range(len(self.queues)):
                self.work(worker)
            self.take()
        pytest.fail("it never ends")


@settings(max_examples=200)
@given(
    st.integers(1, 4), st.integers(1, 3), st.booleans(), st.integers(0, 15), st.lists(st.integers(0, 4), max_size=60)
)
def test_every_batch_comes_once(workers: int, ahead: int, in_order: bool, length: int, steps: list[int]) -> None:
    run = Run(workers, ahead, in_order, length, None)
    for step in steps:
        if step < workers:
            run.work(step)
        else:
            run.take()
    run.finish()
    assert sorted(run.taken) == list(range(length))
    if in_order:
        assert run.taken == sorted(run.taken)
        assert all(worker == ticket % workers for ticket, worker in run.by_worker.items())


@settings(max_examples=200)
@given(
    st.integers(1, 3), st.booleans(), st.lists(st.integers(0, 5), min_size=1, max_size=4), st.lists(st.integers(0, 4))
)
def test_workers_run_out_one_by_one(ahead: int, in_order: bool, shares: list[int], steps: list[int]) -> None:
    run = Run(len(shares), ahead, in_order, 10_000, list(shares))
    for step in steps:
        if step < len(shares):
            run.work(step)
        else:
            run.take()
    run.finish()
    assert len(run.taken) == sum(shares)
    if in_order:
        assert run.taken == sorted(run.taken)


def test_the_order_of_an_iterable_dataset_does_not_depend_on_speed() -> None:
    orders = []
    for speeds in ([0, 1, 2], [2, 1, 0], [1, 1, 0, 2]):
        run = Run(3, 2, True, 10_000, [2, 5, 1])
        for _ in range(50):
            for worker in speeds:
                run.work(worker)
            run.take()
        orders.append([run.by_worker[ticket] for ticket in run.taken])
    assert orders[0] == orders[1] == orders[2]


def test_out_of_order_asks_the_one_with_least_to_do() -> None:
    run = Run(2, 2, False, 10, None)
    assert [len(queue) for queue in run.queues] == [2, 2]
    run.work(1)
    run.take()
    assert [len(queue) for queue in run.queues] == [2, 2]
    assert run.taken == [1]


def test_a_slow_first_batch_holds_the_others_back() -> None:
    run = Run(2, 2, True, 10, None)
    run.work(1)
    run.work(1)
    run.take()
    assert run.taken == []
    assert run.prefetch.on_their_way == 4
    assert run.queues[1] == []  # nothing more until the first has been taken
    run.work(0)
    run.take()
    assert run.taken == [0]
    assert run.prefetch.on_their_way == 4
