"""Launches that run within the call of the graph: when they may, and that nobody can tell the difference."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from contextvars import copy_context
from itertools import count
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any, TypeVar

import numpy as np
import pytest

import vmflow as flow
from tests.support import no_collections, weak_storage
from tests.vm.gates import entered
from vmflow import nn
from vmflow.context import MODE
from vmflow.graph_mode.config import GraphConfig
from vmflow.graph_mode.launch import Launch
from vmflow.graph_mode.program import Program
from vmflow.graph_mode.runtime import GraphRuntime
from vmflow.graph_mode.single_task import SingleTask
from vmflow.vm import settings
from vmflow.vm.virtual_machine import VirtualMachine

pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(settings.race_check(None), reason="every launch is issued where accesses are watched"),
    pytest.mark.skipif(GraphConfig().actors, reason="actors run no launch within the call"),
]


class Product(nn.Graph):
    """Of a row and a parameter, and one more."""

    def __init__(self, size: int = 3) -> None:
        super().__init__()
        self.linear = nn.Linear(size, 2, bias=False)

    def build(self, x: flow.Tensor) -> Any:
        return self.linear(x) + 1


Made = TypeVar("Made", bound=nn.Graph)


def ready(graph: Made, *given: flow.Tensor) -> Made:
    """The graph after its first calls, which differ from later ones."""
    for _ in range(2):
        graph(*given).numpy()
    return graph


def wanted(graph: Product, x: flow.Tensor) -> Any:
    weight = next(graph.linear.parameters()).detach().numpy()
    return x.numpy() @ weight.T + 1


@pytest.fixture(autouse=True)
def machine() -> Iterator[VirtualMachine]:
    """One that leaves nothing to a worker."""
    with entered(VirtualMachine("calls", cpu_worker="never")) as made:
        yield made


@pytest.fixture
def issued(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The graphs of the issued that were issued."""
    seen: list[str] = []
    expect = GraphRuntime.expect

    def seeing(self: GraphRuntime, launch: Launch) -> bool:
        seen.append(self.name)
        return expect(self, launch)

    monkeypatch.setattr(GraphRuntime, "expect", seeing)
    return seen


def test_a_call_runs_inline_and_gives_the_same(issued: list[str]) -> None:
    graph = Product()
    ready(graph, flow.ones(4, 3))
    issued.clear()
    for _ in range(3):
        x = flow.randn(4, 3)
        found = graph(x)
        np.testing.assert_array_equal(found.numpy(), graph.run_by_vm(x).numpy())
        np.testing.assert_allclose(found.numpy(), wanted(graph, x), rtol=1e-5)
    assert not issued
    first, second = graph(flow.ones(4, 3)), graph(flow.zeros(4, 3))
    assert first.sum().item() != second.sum().item()  # each has memory of its own


def test_views_are_arguments_as_others() -> None:
    graph = ready(Product(), flow.ones(4, 3))
    x = flow.arange(12, dtype=flow.float32).reshape(3, 4).T
    np.testing.assert_allclose(graph(x).numpy(), wanted(graph, x), rtol=1e-5)


def test_other_arguments_are_refused_as_ever() -> None:
    graph = ready(Product(), flow.ones(4, 3))
    for given in [(flow.ones(5, 3),), (flow.ones(4, 3, dtype=flow.float64),), (flow.ones(4, 3),) * 2, (1.0,), ()]:
        with pytest.raises(ValueError, match="when the graph was built"):
            graph(*given)
    with pytest.raises(ValueError, match="when the graph was built"):
        graph(x=flow.ones(4, 3))
    assert graph(flow.ones(4, 3)).shape == (4, 2)


def test_a_parameter_of_other_memory_is_seen() -> None:
    graph = ready(Product(), flow.ones(4, 3))
    parameter = next(graph.linear.parameters())
    x = flow.randn(4, 3)
    with flow.no_grad():
        parameter.mul_(2)
    np.testing.assert_allclose(graph(x).numpy(), wanted(graph, x), rtol=1e-5)
    parameter.data = flow.full((2, 3), 3.0)
    np.testing.assert_allclose(graph(x).numpy(), x.numpy() @ np.full((3, 2), 3.0) + 1, rtol=1e-5)
    for data, said in [
        (flow.zeros(3, 3), "and is now"),
        (flow.ones(2, 3, dtype=flow.float64), "and is now"),
        (flow.arange(6.0).reshape(3, 2).T, "a view of another tensor"),
    ]:
        parameter.data = data
        for call in (graph, graph.run_by_vm):
            with pytest.raises(ValueError, match=said):
                call(x)


def test_a_failed_argument_fails_the_call_and_no_other() -> None:
    graph = ready(Product(), flow.ones(4, 3))
    broken = flow.ones(4, 3, dtype=flow.int64)
    index = flow.tensor([7])
    failed = broken.index_select(0, index).to(flow.float32).expand(4, 3)
    with pytest.raises(IndexError):
        graph(failed).numpy()
    assert graph(flow.ones(4, 3)).shape == (4, 2)


def test_an_op_that_fails_is_named_with_its_line_and_the_next_call_works() -> None:
    class Chosen(nn.Graph):
        def build(self, x: flow.Tensor, index: flow.Tensor) -> flow.Tensor:
            return x.index_select(0, index) * 2

    x = flow.ones(4, 3)
    graph = ready(Chosen(), x, flow.tensor([1]))
    with pytest.raises(IndexError) as caught:
        graph(x, flow.tensor([9])).numpy()
    notes = "".join(caught.value.__notes__)
    assert "test_calls_run_inline.py" in notes
    assert "of graph 'Chosen" in notes
    assert graph(x, flow.tensor([2])).tolist() == [[2.0] * 3]


class Counting(nn.Module):
    """Adds to a buffer at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", flow.zeros(3))

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        self.count.add_(x + 1)
        return x * 2


class Counts(nn.Graph):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def build(self, x: flow.Tensor) -> Any:
        return self.module(x)


def test_an_argument_that_the_graph_changes_is_copied_first(issued: list[str]) -> None:
    module = Counting()
    graph = Counts(module)
    values = []
    for _ in range(4):
        values.append((graph(module.count).tolist()[0], module.count.tolist()[0]))
    assert values == [(0.0, 1.0), (2.0, 3.0), (6.0, 7.0), (14.0, 15.0)]
    assert not issued
    version = module.count._blob.storage.version
    graph(module.count)
    assert module.count._blob.storage.version == version + 1


def test_a_write_counts_once_though_the_runtime_is_closed_before_the_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Counting()
    graph = Counts(module)
    graph(flow.zeros(3)).numpy()
    expect = GraphRuntime.expect

    def closing(self: GraphRuntime, launch: Launch) -> bool:
        monkeypatch.undo()
        self.close()
        return expect(self, launch)

    monkeypatch.setattr(GraphRuntime, "expect", closing)
    version = module.count._blob.storage.version
    with entered(VirtualMachine("late", cpu_worker="never", gather=1000)):
        assert graph(flow.zeros(3)).tolist() == [0.0] * 3
        assert module.count.tolist() == [2.0] * 3
    assert module.count._blob.storage.version == version + 1


def test_another_machine_has_its_own() -> None:
    graph = ready(Product(), flow.ones(4, 3))
    machine = VirtualMachine("other", cpu_worker="never")
    with entered(machine):
        x = flow.ones(4, 3)
        found = graph(x)
        assert found._blob.storage.machine is machine
        np.testing.assert_allclose(found.numpy(), wanted(graph, x), rtol=1e-5)
    again = graph(flow.ones(4, 3))
    assert again._blob.storage.machine is not machine
    machine.close()


def test_a_scope_is_obeyed(issued: list[str]) -> None:
    graph = ready(Product(), flow.ones(4, 3))
    issued.clear()
    with flow.scope(name="one") as scope:
        result = graph(flow.ones(4, 3))
        assert not issued  # it is there
        scope.cancel()
        dropped = graph(flow.ones(4, 3))
    np.testing.assert_allclose(result.numpy(), wanted(graph, flow.ones(4, 3)), rtol=1e-5)
    with pytest.raises(flow.Cancelled):
        dropped.numpy()


def test_a_closed_graph_is_built_anew() -> None:
    graph = ready(Product(), flow.ones(4, 3))
    (before,) = graph._forms
    graph.close()
    assert before.sources_of((flow.ones(4, 3),), MODE.get()) is None
    assert graph(flow.ones(4, 3)).shape == (4, 2)
    assert before not in graph._forms


def test_the_form_used_last_is_the_one_that_is_kept() -> None:
    graph = Product()
    graph.with_dynamic_input_shape(size=2)
    for rows in (1, 2):
        graph(flow.ones(rows, 3)).numpy()
        graph(flow.ones(rows, 3)).numpy()
    graph(flow.ones(1, 3)).numpy()
    for _ in range(3):
        graph(flow.ones(1, 3)).numpy()
    graph(flow.ones(3, 3)).numpy()  # which takes the place of two rows
    assert sorted([key[1][0].shape[0] for key in graph._compiled]) == [1, 3]


def test_closing_while_another_thread_calls() -> None:
    graph = ready(Product(64), flow.ones(4, 64))
    x, stop = flow.ones(4, 64), threading.Event()
    expected = graph(x).numpy()
    wrong: list[Any] = []

    def calls() -> None:
        while not stop.is_set():
            found = graph(x).numpy()
            if not np.array_equal(found, expected):
                wrong.append(found)

    threads = [threading.Thread(target=copy_context().run, args=(calls,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(30):
        graph.close()
        graph(x).numpy()
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_loaded_graph_runs_inline_too(tmp_path: Path, issued: list[str]) -> None:
    graph = ready(Product(), flow.ones(4, 3))
    flow.save(graph, tmp_path / "graph")
    loaded = flow.load_graph(tmp_path / "graph")
    x = flow.randn(4, 3)
    found = [loaded(x).numpy() for _ in range(3)]
    issued.clear()
    np.testing.assert_array_equal(loaded(x).numpy(), found[0])
    assert not issued
    with pytest.raises(ValueError, match="when the graph was built"):
        loaded(flow.ones(5, 3))


def test_schedules_go_on_though_nothing_is_trained() -> None:
    class Trains(nn.Graph):
        def __init__(self, rate: flow.Tensor) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 2)
            optimizer = flow.optim.SGD(self.linear.parameters(), lr=rate)
            self.add_optimizer(optimizer, lr_sch=flow.optim.lr_scheduler.ExponentialLR(optimizer, 0.5))

        def build(self, x: flow.Tensor) -> Any:
            return self.linear(x)

    rate = flow.tensor(1.0)
    graph = Trains(rate)
    rates = []
    for _ in range(5):
        graph(flow.ones(4, 3)).numpy()
        rates.append(rate.item())
    assert rates == [0.5, 0.25, 0.125, 0.0625, 0.03125]


def test_a_graph_keeps_no_machine() -> None:
    class Doubles(nn.Graph):
        def build(self, x: flow.Tensor) -> Any:
            return x * 2

    graph, other = Doubles(), VirtualMachine("other", cpu_worker="never")
    with entered(other):
        ready(graph, flow.ones(4))
    gone = weakref.ref(other)
    del other
    gc.collect()
    assert gone() is None
    assert graph(flow.ones(4)).tolist() == [2.0] * 4


async def test_old_weights_are_not_kept() -> None:
    graph = Product()
    for _ in range(3):
        await asyncio.to_thread(lambda: graph(flow.ones(4, 3)).numpy())
    parameter = next(graph.linear.parameters())
    old = weak_storage(parameter)
    parameter.data = flow.ones(2, 3)
    await graph(flow.ones(4, 3))  # which, on a loop, is launched
    gc.collect()
    assert old() is None


def test_a_graph_that_is_gone_leaves_nothing_to_the_collector(machine: VirtualMachine) -> None:
    graph = ready(Product(), flow.ones(4, 3))
    (runtime,) = [weakref.ref(value) for value in machine.graphs.values()]
    with no_collections():
        del graph
        assert runtime() is None


def test_ctrl_c_in_a_call_is_told_once_and_keeps_nothing(
    machine: VirtualMachine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    graph = ready(Product(), flow.ones(4, 3))
    (runtime,) = machine.graphs.values()

    def interrupted(self: Program, launch: Launch) -> None:
        raise KeyboardInterrupt

    if not isinstance(Program.run, FunctionType):
        pytest.skip("compiled code calls its own")
    monkeypatch.setattr(Program, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        graph(flow.ones(4, 3))
    monkeypatch.undo()
    gc.collect()
    machine.drain()
    assert not caplog.records
    assert not runtime._open
    assert graph(flow.ones(4, 3)).shape == (4, 2)


def test_ctrl_c_at_any_call_within_keeps_nothing(machine: VirtualMachine) -> None:
    """Python looks for signals where a function begins."""
    x = flow.ones(4, 3)
    graph = ready(Product(), x)
    (runtime,) = machine.graphs.values()
    expected = graph(x).numpy()
    left, inside = 0, False

    def interrupt(frame: FrameType, event: str, argument: object) -> None:
        nonlocal left, inside
        # From when the run is known until it is not, and where it says so.
        inside = inside or bool(runtime._open)
        if inside and event == "call":
            left -= 1
            if left < 0:
                raise KeyboardInterrupt

    def call() -> Any:
        nonlocal inside
        inside = False
        gc.disable()  # destructors of other tests' objects are no calls of the graph
        sys.settrace(interrupt)
        try:
            return graph(x)
        finally:
            sys.settrace(None)
            gc.enable()

    for after in count():
        left = after
        try:
            result = call()
        except KeyboardInterrupt:
            assert not runtime._open
            assert machine.driver.turn_lock.owner is None
        else:
            break
    np.testing.assert_array_equal(np.asarray(result), expected)
    assert after or not isinstance(SingleTask.act, FunctionType)  # compiled, they are no such functions
    np.testing.assert_array_equal(graph(x).numpy(), expected)
