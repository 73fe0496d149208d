"""Graphs in coroutines: awaiting results, several launches together, cancellation, and failures."""

from __future__ import annotations

import asyncio
import gc
import re
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.vm.gates import _PLANTED, HEAVY, PATIENCE, call, line_of, listening, turns
from vmflow import nn
from vmflow.context import MODE
from vmflow.errors import Cancelled, DeadlineExceeded, OutOfMemory
from vmflow.instructions.blob import meta
from vmflow.interpreter import dispatch_into
from vmflow.ops.table import OPS
from vmflow.vm import VirtualMachine
from vmflow.vm.stream_table import SIMULATED_BYTES

MIB = 1 << 20
DEVICE = flow.device("sim:6")  # nobody else's


@pytest.fixture(autouse=True)
def _gates_in_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ops of `tests.vm.gates` can be recorded like any other."""
    monkeypatch.setitem(OPS, "planted", _PLANTED)


class Gate:
    """A step of a graph that does not end before the gate is opened.

    Attributes:
        begun: released each time it is reached.
        threads: on which it ran.
    """

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.opened = threading.Event()
        self.threads: list[int] = []

    def step(self, x: flow.Tensor) -> flow.Tensor:
        """The same, later."""
        return call(self._hold, x, shape=tuple(x.shape), cost=HEAVY)

    def _hold(self, array: Any) -> Any:
        self.threads.append(threading.get_ident())
        self.begun.release()
        if not self.opened.wait(PATIENCE):
            raise TimeoutError("nobody opened the gate")
        return array

    async def reached(self) -> None:
        """Return when it has been reached once more; the loop goes on meanwhile."""
        assert await asyncio.to_thread(self.begun.acquire, timeout=PATIENCE)


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.opened.set()


def compiled(function: Callable[..., Any]) -> Any:
    return flow.global_function(function)


def gathered(x: flow.Tensor, index: flow.Tensor) -> flow.Tensor:
    """Fails in the kernel if the index is too large."""
    return flow.gather(x * 2, 0, index) + 1  # a line of the graph


GOOD, BAD = 1, 7


def index(value: int) -> flow.Tensor:
    return flow.tensor([value])


# Awaiting


async def test_results_of_every_kind_can_be_awaited() -> None:
    kinds: dict[str, Callable[[flow.Tensor], Any]] = {
        "tensor": lambda x: x + 1,
        "tuple": lambda x: (x + 1, x + 2),
        "list": lambda x: [x + 1, [x + 2]],
        "dict": lambda x: {"a": x + 1, "b": (x + 2, None), "c": 3},
    }
    for kind, function in kinds.items():
        result = await compiled(function)(flow.ones(2))
        if kind == "tensor":
            assert result.tolist() == [2, 2]
        elif kind == "tuple":
            assert [tensor.tolist() for tensor in result] == [[2, 2], [3, 3]]
        elif kind == "list":
            assert (result[0].tolist(), result[1][0].tolist()) == ([2, 2], [3, 3])
        else:
            assert (result["a"].tolist(), result["b"][0].tolist()) == ([2, 2], [3, 3])
            assert (result["b"][1], result["c"]) == (None, 3)


async def test_a_part_of_a_result_can_be_awaited_alone() -> None:
    results = compiled(lambda x: {"a": (x + 1, x + 2)})(flow.ones(2))
    one, other = await results["a"]
    assert (one.tolist(), other.tolist()) == ([2, 2], [3, 3])


async def test_many_launches_from_many_tasks() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    predict = nn.Graph.trace(model)
    inputs = [flow.full((3, 4), float(number)) for number in range(20)]
    ended: list[int] = []

    async def one(number: int) -> Any:
        found = await predict(inputs[number])
        ended.append(number)
        return found.detach().numpy()

    async with asyncio.timeout(PATIENCE):
        found = await asyncio.gather(*[one(number) for number in range(20)])
    assert ended == list(range(20))
    for number in range(20):
        np.testing.assert_array_equal(found[number], (await model(inputs[number])).detach().numpy())


async def test_steps_from_many_tasks_are_taken_in_order() -> None:
    weight = flow.zeros(1, requires_grad=True)

    @flow.global_function("train", optimizer=flow.optim.SGD([weight], lr=1.0))
    def step(x: flow.Tensor) -> tuple[flow.Tensor, flow.Tensor]:
        return (weight * x).sum(), weight * 1

    async def one(number: int) -> Any:
        return (await step(flow.full((1,), float(number))))[1].item()

    assert await asyncio.gather(*[one(number) for number in range(20)]) == [
        -float(sum(range(number))) for number in range(20)
    ]


async def test_the_argument_can_be_written_after_the_call() -> None:
    double = compiled(lambda x: x * 2)
    x = flow.zeros(3)
    results = []
    for _ in range(5):
        results.append(double(x))
        x += 1
    assert [(await result).tolist() for result in results] == [[2.0 * number] * 3 for number in range(5)]


# Given up


@pytest.mark.host
async def test_a_cancelled_await_leaves_the_launch_alone(gate: Gate) -> None:
    async with VirtualMachine(cpu_worker="always"):
        f = compiled(lambda x: gate.step(x) + 1)
        result = f(flow.ones(2))
        waiting = asyncio.ensure_future(result)
        await gate.reached()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        late = f(flow.ones(2) * 2)
        gate.opened.set()
        assert (await late).tolist() == [3, 3]
        assert (await result).tolist() == [2, 2]


@pytest.mark.host
@pytest.mark.usefixtures("collected")
async def test_memory_of_unawaited_launches_comes_back(gate: Gate) -> None:
    big = MIB // 4
    device = flow.device("cpu")
    async with VirtualMachine(cpu_worker="always"):
        before = flow.memory_allocated(device)
        f = compiled(lambda x: gate.step(x) + 1)
        waiting = asyncio.ensure_future(f(flow.ones(big)))
        await gate.reached()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gate.opened.set()
        assert (await f(flow.ones(big)))[0].item() == 2
        graph = weakref.ref(f.graph)
        del f, waiting
        gc.collect()
        assert graph() is None
        await flow.synchronize()
        await flow.synchronize()
        assert flow.memory_allocated(device) == before


@pytest.mark.host
async def test_a_scope_drops_launches_that_have_not_begun(gate: Gate) -> None:
    ran: list[float] = []

    def note(array: Any) -> None:
        ran.append(float(array[0]))

    @compiled
    def f(x: flow.Tensor) -> flow.Tensor:
        return call(note, gate.step(x), shape=(1,), cost=HEAVY)

    async with VirtualMachine(cpu_worker="always"):
        first = f(flow.ones(1))
        with flow.scope(name="given up") as scope:
            # Its argument is not there before the first launch has ended, so that it cannot begin.
            second = f(first * 0 + 2)
        await gate.reached()
        scope.cancel()
        with pytest.raises(Cancelled):
            await second
        third = f(flow.ones(1) * 3)
        gate.opened.set()
        await first
        await third
        assert ran == [1, 3]


@pytest.mark.host
async def test_a_deadline_ends_the_waiting_and_not_the_graph(gate: Gate) -> None:
    f = compiled(lambda x: gate.step(x) + 1)
    async with VirtualMachine(cpu_worker="always"):
        blocking = f(flow.zeros(2))
        await gate.reached()
        with flow.scope(timeout=0.01):
            late = f(flow.ones(2))
        with pytest.raises(DeadlineExceeded):
            await late
        gate.opened.set()
        assert (await blocking).tolist() == [1, 1]
        assert (await f(flow.ones(2))).tolist() == [2, 2]


async def test_priorities_do_not_mix_launches_up() -> None:
    weight = flow.zeros(1)

    class Count(nn.Graph):
        def build(self, x: flow.Tensor) -> flow.Tensor:
            weight.add_(1)
            return weight * x

    count = Count()
    results = []
    for number in range(12):
        with flow.scope(priority=number % 3 - 1):
            results.append(count(flow.ones(1)))
    found = sorted([(await result).item() for result in results])
    assert found == list(range(1, 13))
    assert weight.item() == 12


# Failures


async def test_a_failing_op_fails_its_call_and_no_other() -> None:
    class Picks(nn.Module):
        def forward(self, x: flow.Tensor, at: flow.Tensor) -> flow.Tensor:
            return gathered(x, at)

    class Predict(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.picks = Picks()

        def build(self, x: flow.Tensor, at: flow.Tensor) -> Any:
            return self.picks(x, at) * 10

    predict = Predict()
    x = flow.arange(3).float()
    results = [predict(x, index(value)) for value in (0, BAD, GOOD, BAD, 2)]
    wanted = [10, None, 30, None, 50]
    errors = []
    for result, value in zip(results, wanted, strict=True):
        if value is not None:
            assert (await result).tolist() == [value]
            continue
        with pytest.raises(IndexError, match="7") as caught:
            await result
        errors.append(caught.value)
    assert errors[0] is not errors[1]
    notes = "\n".join(errors[0].__notes__)
    assert re.search(rf"while running gather\(float32\[3\], int64\[1\]\).* of graph '{predict.name}'", notes)
    assert f"built at {__file__}:{line_of('a line of the graph', __file__)}, in gathered" in notes
    assert "in module picks" in notes
    assert len(set(errors[0].__notes__)) == len(errors[0].__notes__)
    assert (await predict(x, index(GOOD))).tolist() == [30]


async def test_all_results_of_a_failed_launch_have_its_exception() -> None:
    both = compiled(lambda x, at: (x + 1, gathered(x, at)))
    first, second = both(flow.arange(3).float(), index(BAD))
    for result in (first, second):
        with pytest.raises(IndexError):
            await result


def _put_one(array: Any, at: Any) -> Any:
    """Stands for an in-place op that may fail half-way."""
    result = array.copy()
    result[at] = 1
    return result


class Update(nn.Graph):
    """Writes one parameter before an op that may fail, and one by it."""

    def __init__(self, fails_in_place: bool) -> None:
        super().__init__()
        self.state = nn.ParameterDict(
            {name: nn.Parameter(flow.zeros(3), requires_grad=False) for name in ("before", "by", "behind")}
        )
        self.fails_in_place = fails_in_place
        # The second failure is of an unread result, and has to happen between the two.
        self.config.disable_pass("dead_ops")
        self.config.set_execution_order("given")

    def build(self, at: flow.Tensor) -> Any:
        self.state["before"].add_(1)
        if self.fails_in_place:
            written = meta((3,), flow.float32, self.state["by"].device)
            dispatch_into(_PLANTED, self.state["by"], (self.state["by"], at), (_put_one, written, 0))
        else:
            gathered(flow.ones(3), at)
        self.state["behind"].add_(1)
        return self.state["before"] * 1


@pytest.mark.not_on_cuda
async def test_parameters_hold_the_failure_only_if_the_failing_op_writes_them() -> None:
    update = Update(fails_in_place=False)
    with pytest.raises(IndexError):
        await update(index(BAD))
    state = update.state.origin
    assert [state[name].tolist() for name in ("before", "by", "behind")] == [[1] * 3, [0] * 3, [0] * 3]
    await update(index(GOOD))
    assert [state[name].tolist() for name in ("before", "by", "behind")] == [[2] * 3, [0] * 3, [1] * 3]


@pytest.mark.not_on_cuda
async def test_a_torn_parameter_says_so_until_it_is_written_anew() -> None:
    update = Update(fails_in_place=True)
    state = update.state.origin
    with pytest.raises(IndexError) as caught:
        await update(index(BAD))
    with pytest.raises(IndexError) as again:
        state["by"].tolist()
    assert again.value is caught.value
    assert state["before"].tolist() == [1] * 3
    assert state["behind"].tolist() == [0] * 3
    with pytest.raises(IndexError) as third:
        await update(index(GOOD))
    assert third.value is caught.value
    assert state["before"].tolist() == [1] * 3
    state["by"].data = flow.zeros(3)
    await update(index(GOOD))
    assert state["by"].tolist() == [0, 1, 0]


async def test_a_poisoned_argument() -> None:
    calls = compiled(lambda x, y: x + y)
    broken = flow.gather(flow.ones(3), 0, index(BAD))
    good = calls(flow.ones(1), flow.ones(1))
    bad = calls(broken, flow.ones(1))
    later = calls(flow.ones(1), flow.ones(1) * 2)
    with pytest.raises(IndexError, match="7"):
        await bad
    assert (await good).tolist() == [2]
    assert (await later).tolist() == [3]


async def test_launches_with_the_results_of_others() -> None:
    weight = flow.zeros(1)

    def count(x: flow.Tensor) -> flow.Tensor:
        weight.add_(1)
        return x * weight

    one, other = compiled(lambda x: x * 3), compiled(count)
    x = y = z = flow.ones(1)
    for _ in range(4):
        x = one(x)
        y = other(y)
    for _ in range(2):
        z = other(one(z) + 1)
    assert [(await value).item() for value in (x, y, z)] == [81, 24, (4 * 5 * 3 + 1) * 6]


async def test_a_launch_with_the_result_of_a_failed_one() -> None:
    f = compiled(gathered)
    chained = compiled(lambda x: x * 3)
    bad = chained(f(flow.ones(3), index(BAD)))
    with pytest.raises(IndexError):
        await bad
    assert (await chained(f(flow.ones(3), index(GOOD)))).tolist() == [9]


async def test_a_poisoned_parameter() -> None:
    layer = nn.Linear(3, 1)
    predict = nn.Graph.trace(layer)
    wanted = (await predict(flow.ones(1, 3))).tolist()
    good = layer.bias.detach().clone()
    layer.bias.data = flow.gather(flow.ones(3), 0, index(BAD))
    with pytest.raises(IndexError, match="7"):
        await predict(flow.ones(1, 3))
    layer.bias.data = good
    assert (await predict(flow.ones(1, 3))).tolist() == wanted


@pytest.fixture
def short_of_memory() -> Iterator[VirtualMachine]:
    gc.collect()
    flow.empty_cache(DEVICE)
    flow.set_memory_limit(64 * MIB, DEVICE)
    machine = VirtualMachine("short of memory")
    before = MODE.get()
    MODE.set(before.replace(machine=machine, device=DEVICE))
    yield machine
    machine.drain()
    MODE.set(before)
    machine.close()
    flow.set_memory_limit(SIMULATED_BYTES, DEVICE)


async def test_no_memory_for_a_result(short_of_memory: VirtualMachine) -> None:
    def grow(x: flow.Tensor) -> flow.Tensor:
        return x.expand(8, MIB).exp()

    f = compiled(grow)
    x = flow.zeros(MIB)
    held = flow.zeros(20 * MIB // 4)
    for _ in range(2):
        with pytest.raises(OutOfMemory):
            await f(x)
    assert held[0].item() == 0


async def test_no_memory_for_the_result_of_one_of_several_launches(short_of_memory: VirtualMachine) -> None:
    f = compiled(lambda x: x + 1)
    x = flow.zeros(8 * MIB // 4)
    results = []
    for _ in range(8):
        results.append(f(x))
    good = bad = 0
    for result in results:
        try:
            assert (await result[0]).item() == 1
            good += 1
        except OutOfMemory:
            bad += 1
    assert good > 0
    assert bad > 0
    del results, result
    gc.collect()
    assert (await f(x)[0]).item() == 1


async def test_an_unawaited_failure_is_reported_once() -> None:
    f = compiled(lambda x, at: (gathered(x, at), x + 1))
    with listening("never looked at") as listener:
        results = f(flow.ones(3), index(BAD))
        await flow.synchronize()
        assert listener.messages == []
        del results
        gc.collect()
        await flow.synchronize()
        assert len(listener.messages) == 1


async def test_an_observed_failure_is_not_reported() -> None:
    f = compiled(gathered)
    with listening("never looked at") as listener:
        result = f(flow.ones(3), index(BAD))
        with pytest.raises(IndexError):
            await result
        del result
        gc.collect()
        await flow.synchronize()
    assert listener.messages == []


@pytest.mark.not_on_cuda
async def test_a_graph_without_results_that_fails() -> None:
    state = flow.zeros(3)

    def update(at: flow.Tensor) -> None:
        state.add_(gathered(flow.ones(3), at).max())

    f = compiled(update)
    with listening("never looked at") as listener:
        assert f(index(BAD)) is None
        await flow.synchronize()
        gc.collect()
        await flow.synchronize()
        assert len(listener.messages) == 1
        f(index(GOOD))
        assert (await state).tolist() == [3] * 3
        assert len(listener.messages) == 1


# On the loop


@pytest.mark.host
async def test_blocking_reads_of_results_warn_as_others_do() -> None:
    f = compiled(lambda x: x + 1)
    async with VirtualMachine():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert f(flow.ones(2)).tolist() == [2, 2]
            (await f(flow.ones(2))).tolist()
        assert [warning.category for warning in caught] == [flow.BlockingCallWarning]
        assert caught[0].filename == __file__


@pytest.mark.host
async def test_the_loop_goes_round_while_a_heavy_graph_runs(gate: Gate) -> None:
    f = compiled(lambda x: gate.step(x * 2) + 1)
    async with VirtualMachine():
        result = f(flow.ones(2))
        beats = 0
        await gate.reached()
        # With the kernel on this thread nobody would get here before it has ended.
        assert not gate.opened.is_set()
        for _ in range(100):
            await turns(1)
            beats += 1
        gate.opened.set()
        assert (await result).tolist() == [3, 3]
    assert beats == 100
    assert gate.threads != [threading.get_ident()]
    assert len(gate.threads) == 1


@pytest.mark.host
async def test_other_work_goes_on_while_a_graph_is_held_up(gate: Gate) -> None:
    f = compiled(gate.step)
    async with VirtualMachine():
        result = f(flow.ones(2))
        await gate.reached()
        # On a device of its own, which the graph does not keep.
        x = flow.ones(4, device="sim") * 3
        assert (await x).tolist() == [3] * 4
        gate.opened.set()
        assert (await result).tolist() == [1, 1]


@pytest.mark.host
async def test_a_closing_machine_fails_launches_that_have_not_run(gate: Gate) -> None:
    f = compiled(lambda x: gate.step(x) + 1)
    machine = VirtualMachine(cpu_worker="always")
    async with machine:
        running = f(flow.ones(2))
        await gate.reached()
        waiting = f(flow.ones(2))
        gate.opened.set()
    # Leaving the block has finished both.
    assert running.tolist() == [2, 2]
    assert waiting.tolist() == [2, 2]
    before = MODE.get()
    MODE.set(before.replace(machine=machine))
    with pytest.raises(flow.VirtualMachineClosed):
        f(flow.ones(2))
    MODE.set(before)
    assert (await f(flow.ones(2))).tolist() == [2, 2]


def test_loops_one_after_the_other() -> None:
    f = compiled(lambda x: x + 1)

    async def use() -> list[float]:
        found: list[float] = (await f(flow.ones(2))).tolist()
        return found

    for _ in range(3):
        assert asyncio.run(use()) == [2, 2]
    assert f(flow.ones(2)).tolist() == [2, 2]


async def test_one_graph_on_two_machines() -> None:
    f = compiled(lambda x: x + 1)
    for _ in range(2):
        async with VirtualMachine():
            assert (await f(flow.ones(2))).tolist() == [2, 2]
    assert (await f(flow.ones(2) * 2)).tolist() == [3, 3]


# Observing launches


@pytest.mark.host
async def test_a_snapshot_names_the_graph(gate: Gate) -> None:
    @compiled
    def named(x: flow.Tensor) -> flow.Tensor:
        return gate.step(x) + 1

    async with VirtualMachine(cpu_worker="always") as machine:
        result = named(flow.ones(2))
        await gate.reached()
        text = str(machine.snapshot())
        gate.opened.set()
        await result
    assert named.graph.name in text
    assert "test_async.py" in text


@pytest.mark.host
async def test_a_stall_report_names_the_graph(gate: Gate) -> None:
    @compiled
    def stuck(x: flow.Tensor) -> flow.Tensor:
        return gate.step(x) + 1

    async with VirtualMachine(cpu_worker="always", stall_after=0.01):
        with listening("nothing has ended") as stalled:
            result = stuck(flow.ones(2))
            waiting = asyncio.ensure_future(result)
            assert await asyncio.to_thread(stalled.heard.wait, PATIENCE)
            gate.opened.set()
            await waiting
    assert stuck.graph.name in stalled.messages[0]
