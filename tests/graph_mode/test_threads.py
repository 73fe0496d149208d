"""Graphs and threads: called by several, built by several, dropped by one while another's work runs."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.vm.gates import PATIENCE
from vmflow import nn
from vmflow.vm.virtual_machine import current_machine


def at_once(count: int, work: Callable[[int], object]) -> list[Any]:
    """The results of `work` for 0, 1, ... on as many threads, which begin together."""
    barrier = threading.Barrier(count)
    results: list[Any] = [None] * count
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            barrier.wait(PATIENCE)
            results[number] = work(number)
        except BaseException as error:
            errors.append(error)

    # Each in a copy of the context, such as the default device.
    threads = [threading.Thread(target=copy_context().run, args=(run, number)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    if errors:
        raise errors[0]
    return results


def test_calls_from_several_threads() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    predict = nn.Graph.trace(model)

    def work(number: int) -> bool:
        for step in range(30):
            x = flow.full((3, 4), number + step / 8)
            np.testing.assert_array_equal(predict(x).detach().numpy(), model(x).detach().numpy())
        return True

    predict(flow.zeros(3, 4))
    assert at_once(4, work) == [True] * 4


def test_steps_from_several_threads_are_all_taken() -> None:
    weight = flow.zeros(1, requires_grad=True)
    optimizer = flow.optim.SGD([weight], lr=1.0)
    schedule = flow.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=1.0)

    @flow.global_function("train", optimizer=optimizer, lr_scheduler=schedule)
    def step(x: flow.Tensor) -> tuple[flow.Tensor, flow.Tensor]:
        return (weight * x).sum(), weight * 1

    def work(number: int) -> list[float]:
        return [step(flow.ones(1))[1].item() for _ in range(25)]

    seen = at_once(4, work)
    assert sorted([value for each in seen for value in each]) == [-float(index) for index in reversed(range(100))]
    assert weight.item() == -100
    assert schedule.last_epoch == 100
    for each in seen:
        assert each == sorted(each, reverse=True)


def test_one_thread_builds_and_the_others_wait() -> None:
    built: list[int] = []

    @flow.global_function
    def f(x: flow.Tensor) -> flow.Tensor:
        built.append(threading.get_ident())
        for _ in range(30):
            x = x + 1
        return x

    found = at_once(6, lambda number: f(flow.full((2,), float(number))).tolist())
    assert found == [[30.0 + number] * 2 for number in range(6)]
    assert len(built) == 1


def test_graphs_over_one_module_are_built_one_at_a_time() -> None:
    """Each replaces gradients and learning rates of the shared modules."""
    layer = nn.Linear(3, 1)
    before = [value.detach().numpy().copy() for value in layer.parameters()]
    optimizer = flow.optim.SGD(layer.parameters(), lr=0.25)
    for parameter in layer.parameters():
        parameter.grad = flow.ones_like(parameter)
    building = threading.Semaphore(1)
    overlaps: list[int] = []

    def loss(x: flow.Tensor) -> Any:
        if not building.acquire(blocking=False):
            overlaps.append(1)
            building.acquire(timeout=PATIENCE)
        try:
            return layer(x).sum()
        finally:
            building.release()

    steps = [flow.global_function("train", optimizer=optimizer)(loss) for _ in range(4)]
    at_once(4, lambda number: steps[number](flow.ones(1, 3)).item())
    assert overlaps == []
    for parameter, start in zip(layer.parameters(), before, strict=True):
        np.testing.assert_allclose(parameter.detach().numpy(), start - 4 * 0.25, rtol=1e-6)
        assert parameter.grad is not None
        assert not parameter.grad.is_lazy
    assert optimizer.param_groups[0]["lr"] == 0.25


def test_calls_do_not_wait_for_another_graph_to_be_built() -> None:
    built = nn.Graph.trace(lambda x: x + 1)
    built(flow.ones(2)).numpy()
    inside, called = threading.Event(), threading.Event()

    def slowly(x: flow.Tensor) -> flow.Tensor:
        inside.set()
        assert called.wait(PATIENCE)
        return x * 2

    def work(number: int) -> list[float]:
        if number:
            found: list[float] = nn.Graph.trace(slowly)(flow.ones(2)).tolist()
            return found
        assert inside.wait(PATIENCE)
        found = built(flow.ones(2) * 2).tolist()
        called.set()
        return found

    assert at_once(2, work) == [[3, 3], [2, 2]]


def test_a_thread_that_cannot_build_leaves_it_to_the_next() -> None:
    turns = iter([True, False])

    @flow.global_function
    def f(x: flow.Tensor) -> flow.Tensor:
        if next(turns):
            raise LookupError("on purpose")
        return x + 1

    def work(number: int) -> str:
        try:
            return str(f(flow.ones(1)).tolist())
        except LookupError as error:
            return str(error)

    assert sorted(at_once(2, work)) == ["[2.0]", "on purpose"]


def test_methods_from_several_threads_share_the_objects_graph() -> None:
    class Owner:
        @flow.global_function
        def double(self, x: flow.Tensor) -> flow.Tensor:
            return x * 2

    owner = Owner()
    found = at_once(5, lambda number: (owner.double(flow.ones(1)).tolist(), owner.double.graph))
    assert {id(graph) for _, graph in found} == {id(owner.double.graph)}
    assert [values for values, _ in found] == [[2.0]] * 5


def test_draws_are_never_handed_out_twice() -> None:
    drawn = nn.Graph.trace(lambda x: flow.rand_like(x))
    drawn(flow.ones(64))
    found = at_once(4, lambda number: [tuple(drawn(flow.ones(64)).tolist()) for _ in range(10)])
    assert len({value for each in found for value in each}) == 40


# Dropped


@pytest.mark.usefixtures("collected")
def test_a_graph_that_is_dropped_while_running_still_delivers() -> None:
    for round in range(20):
        f: Any = nn.Graph.trace(lambda x: (x + 1).exp())
        results = [f(flow.full((4,), float(number))) for number in range(3 + round % 3)]
        graph = weakref.ref(f.graph)
        del f
        assert graph() is None
        for number, result in enumerate(results):
            np.testing.assert_array_equal(result.numpy(), (flow.full((4,), float(number)) + 1).exp().numpy())


@pytest.mark.host
@pytest.mark.usefixtures("collected")
def test_its_memory_comes_back_without_the_garbage_collector() -> None:
    device = flow.device("cpu")
    machine = current_machine()
    machine.drain()
    before = flow.memory_allocated(device)
    threads = threading.active_count()
    gc.disable()
    try:
        f: Any = nn.Graph.trace(lambda x: ((x + 1) @ (x * 2)).exp().sum())
        results = [f(flow.ones(300, 300)) for _ in range(4)]
        assert flow.memory_allocated(device) > before
        del f
        for result in results:
            result.numpy()
        del results, result
        for _ in range(3):
            machine.drain()
        assert flow.memory_allocated(device) == before
    finally:
        gc.enable()
    assert threading.active_count() <= threads


@pytest.mark.usefixtures("collected")
def test_it_is_dropped_by_another_thread() -> None:
    f: Any = nn.Graph.trace(lambda x: x + 1)
    f(flow.ones(2)).numpy()
    holder = [f]
    del f
    results: list[flow.Tensor] = []

    def call() -> None:
        compiled = holder[0]
        for _ in range(50):
            results.append(compiled(flow.ones(2)))

    def drop() -> None:
        holder[0].graph.close()
        gc.collect()

    at_once(2, lambda number: drop() if number else call())
    holder.clear()
    assert [result.tolist() for result in results] == [[2, 2]] * 50
