"""Calls that run where they are made, without a launch: where they may, and that nobody can tell the difference."""

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
from vmflow.graph_mode.compiled import CompiledGraph
from vmflow.graph_mode.launch import Launch, Run
from vmflow.graph_mode.loading import LoadedGraph
from vmflow.graph_mode.lone_task import LoneTask, PureCall
from vmflow.vm import settings
from vmflow.vm.driver import NOT_NOW
from vmflow.vm.virtual_machine import VirtualMachine

pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(settings.race_check(None), reason="every call is a launch where accesses are watched"),
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
    """The graph after calls that have made it what later calls find."""
    for _ in range(2):
        graph(*given).numpy()
    assert short(graph) is not None
    return graph


def short(graph: nn.Graph) -> PureCall | None:
    """The short way of its next call, if there is one."""
    handle = None if graph._last is None else graph._last._last
    return None if handle is None else handle.pure()


def wanted(graph: Product, x: flow.Tensor) -> Any:
    weight = next(graph.linear.parameters()).detach().numpy()
    return x.numpy() @ weight.T + 1


@pytest.fixture(autouse=True)
def machine() -> Iterator[VirtualMachine]:
    """One that leaves nothing to a worker."""
    with entered(VirtualMachine("calls", cpu_worker="never")) as made:
        yield made


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The graphs that were called in the usual way."""
    seen: list[str] = []
    usual = CompiledGraph.call

    def call(self: CompiledGraph, *given: Any) -> Any:
        seen.append(self.job.name)
        return usual(self, *given)

    monkeypatch.setattr(CompiledGraph, "call", call)
    return seen


def test_a_call_takes_the_short_way_and_gives_the_same(launches: list[str]) -> None:
    graph = Product()
    ready(graph, flow.ones(4, 3))
    launches.clear()
    for _ in range(3):
        x = flow.randn(4, 3)
        found = graph(x)
        np.testing.assert_array_equal(found.numpy(), graph.run_by_vm(x).numpy())
        np.testing.assert_allclose(found.numpy(), wanted(graph, x), rtol=1e-5)
    assert not launches
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
    parameter.data = flow.zeros(3, 3)
    with pytest.raises(ValueError, match="has since been made"):
        graph(x)


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
    assert "test_lone_task.py" in notes
    assert "of graph 'Chosen" in notes
    assert graph(x, flow.tensor([2])).tolist() == [[2.0] * 3]


def test_an_argument_that_the_graph_changes_is_copied_first(launches: list[str]) -> None:
    class Counting(nn.Module):
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

    module = Counting()
    graph = Counts(module)
    values = []
    for _ in range(4):
        values.append((graph(module.count).tolist()[0], module.count.tolist()[0]))
    assert values == [(0.0, 1.0), (2.0, 3.0), (6.0, 7.0), (14.0, 15.0)]
    assert short(graph) is None
    version = module.count._blob.storage.version
    graph(module.count)
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


def test_a_scope_is_obeyed(launches: list[str]) -> None:
    graph = ready(Product(), flow.ones(4, 3))
    launches.clear()
    with flow.scope(name="one") as scope:
        result = graph(flow.ones(4, 3))
        assert not launches  # it is there
        scope.cancel()
        dropped = graph(flow.ones(4, 3))
    np.testing.assert_allclose(result.numpy(), wanted(graph, flow.ones(4, 3)), rtol=1e-5)
    with pytest.raises(flow.Cancelled):
        dropped.numpy()


def test_what_is_closed_runs_no_more() -> None:
    graph = ready(Product(), flow.ones(4, 3))
    pure = short(graph)
    assert pure is not None
    graph.close()
    assert short(graph) is None
    assert pure.call((flow.ones(4, 3),)) is NOT_NOW
    assert graph(flow.ones(4, 3)).shape == (4, 2)  # built anew
    assert short(graph) is not pure


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


@pytest.mark.parametrize("with_arrays", [False, True])
def test_closing_while_another_thread_calls(with_arrays: bool) -> None:
    graph = ready(Product(64), flow.ones(4, 64))
    x, stop = flow.ones(4, 64), threading.Event()
    expected = graph(x).numpy()
    wrong: list[Any] = []

    def calls() -> None:
        while not stop.is_set():
            found = on_arrays(graph, x) if with_arrays else graph(x).numpy()
            if found is not NOT_NOW and not np.array_equal(found, expected):
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


def test_a_loaded_graph_takes_the_short_way_too(tmp_path: Path, launches: list[str]) -> None:
    graph = ready(Product(), flow.ones(4, 3))
    flow.save(graph, tmp_path / "graph")
    loaded = flow.load_graph(tmp_path / "graph")
    x = flow.randn(4, 3)
    found = [loaded(x).numpy() for _ in range(3)]
    launches.clear()
    np.testing.assert_array_equal(loaded(x).numpy(), found[0])
    assert not launches
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
    (runtime,) = [weakref.ref(it) for it in machine.graphs.values()]
    with no_collections():
        del graph
        assert runtime() is None


def test_ctrl_c_in_a_call_is_told_once_and_keeps_nothing(
    machine: VirtualMachine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    graph = ready(Product(), flow.ones(4, 3))
    (runtime,) = machine.graphs.values()

    def interrupted(self: LoneTask, launch: Launch) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LoneTask, "_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        graph(flow.ones(4, 3))
    monkeypatch.undo()
    gc.collect()
    machine.drain()
    assert not caplog.records
    assert not runtime._open
    assert graph(flow.ones(4, 3)).shape == (4, 2)


# On arrays


def on_arrays(graph: nn.Graph | LoadedGraph, *given: flow.Tensor) -> Any:
    return graph._call_on_arrays([it.numpy() for it in given])


def test_a_call_on_arrays_gives_the_same(launches: list[str]) -> None:
    graph = ready(Product(), flow.ones(4, 3))
    launches.clear()
    x, y = flow.randn(4, 3), flow.randn(4, 3)
    found, other = on_arrays(graph, x), on_arrays(graph, y)
    np.testing.assert_array_equal(found, graph.run_by_vm(x).numpy())
    np.testing.assert_array_equal(other, graph.run_by_vm(y).numpy())
    assert not launches
    assert found.flags.owndata


def test_a_loaded_graph_takes_arrays_too(tmp_path: Path) -> None:
    graph = ready(Product(), flow.ones(4, 3))
    flow.save(graph, tmp_path / "graph")
    loaded = flow.load_graph(tmp_path / "graph")
    x = flow.randn(4, 3)
    assert on_arrays(loaded, x) is NOT_NOW
    for _ in range(2):
        expected = loaded(x).numpy()
    np.testing.assert_array_equal(on_arrays(loaded, x), expected)


def test_arrays_that_a_graph_only_hands_on_are_not_the_result() -> None:
    class Same(nn.Graph):
        def build(self, x: flow.Tensor) -> flow.Tensor:
            return x

    x = flow.ones(4, 3)
    graph = ready(Same(), x)
    array = x.numpy()
    found = graph._call_on_arrays([array])
    assert not np.shares_memory(found, array)
    np.testing.assert_array_equal(found, array)


def test_arrays_of_another_kind_are_left_to_an_ordinary_call() -> None:
    graph = ready(Product(), flow.ones(4, 3))
    for given in [(flow.ones(5, 3),), (flow.ones(4, 3, dtype=flow.float64),), (flow.ones(4, 3),) * 2, ()]:
        assert on_arrays(graph, *given) is NOT_NOW


def test_arrays_meet_the_parameters_of_now() -> None:
    graph = ready(Product(), flow.ones(4, 3))
    parameter, x = next(graph.linear.parameters()), flow.randn(4, 3)
    with flow.no_grad():
        parameter.mul_(2)
    np.testing.assert_allclose(on_arrays(graph, x), wanted(graph, x), rtol=1e-5)
    parameter.data = flow.full((2, 3), 3.0)
    assert on_arrays(graph, x) is NOT_NOW


def test_arrays_wait_for_nothing(machine: VirtualMachine) -> None:
    graph = ready(Product(), flow.ones(4, 3))
    x = flow.ones(4, 3)
    with flow.scope() as scope:
        scope.cancel()
        assert on_arrays(graph, x) is NOT_NOW
    with entered(VirtualMachine("other", cpu_worker="never")):
        assert on_arrays(graph, x) is NOT_NOW
    pure = short(graph)
    assert pure is not None
    graph.close()
    assert pure.call_on_arrays([x.numpy()]) is NOT_NOW
    assert on_arrays(graph, x) is NOT_NOW


def test_what_fails_on_arrays_is_left_to_a_call_that_tells_of_it(machine: VirtualMachine) -> None:
    class Chosen(nn.Graph):
        def build(self, x: flow.Tensor, index: flow.Tensor) -> flow.Tensor:
            return x.index_select(0, index) * 2

    x = flow.ones(4, 3)
    graph = ready(Chosen(), x, flow.tensor([1]))
    assert on_arrays(graph, x, flow.tensor([9])) is NOT_NOW
    with pytest.raises(IndexError):
        graph(x, flow.tensor([9])).numpy()
    assert on_arrays(graph, x, flow.tensor([2])).tolist() == [[2.0] * 3]
    (runtime,) = machine.graphs.values()
    assert not runtime._open


@pytest.mark.parametrize("way", ["tensors", "arrays"])
def test_ctrl_c_at_any_call_within_keeps_nothing(way: str, machine: VirtualMachine) -> None:
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
        gc.disable()  # the destructors of what other tests have left are no calls of the graph's
        sys.settrace(interrupt)
        try:
            return graph(x) if way == "tensors" else on_arrays(graph, x)
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
    assert after or not isinstance(LoneTask.run_at_once, FunctionType)  # compiled, they are no such functions
    np.testing.assert_array_equal(graph(x).numpy(), expected)


def test_arrays_of_any_size_that_was_met_are_taken() -> None:
    graph = Product()
    graph.with_dynamic_input_shape(size=4)
    sizes = (1, 4, 2)
    for size in sizes:
        ready(graph, flow.ones(size, 3))
    for size in sizes * 2:
        x = flow.randn(size, 3)
        found = on_arrays(graph, x)
        np.testing.assert_array_equal(found, graph.run_by_vm(x).numpy())
    assert on_arrays(graph, flow.ones(3, 3)) is NOT_NOW
    for size in (5, 6):  # for which others are given up
        ready(graph, flow.ones(size, 3))
    assert set(graph._forms) == {form for forms in graph._compiled.values() for form in forms}
    assert len(graph._forms) == 4
    graph.close()
    assert not graph._forms


def test_ctrl_c_in_a_call_on_arrays_keeps_nothing(machine: VirtualMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    x = flow.ones(4, 3)
    graph = ready(Product(), x)
    (runtime,) = machine.graphs.values()

    def interrupted(self: LoneTask, run: Run) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LoneTask, "_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        on_arrays(graph, x)
    monkeypatch.undo()
    assert not runtime._open
    np.testing.assert_allclose(on_arrays(graph, x), wanted(graph, x), rtol=1e-5)
