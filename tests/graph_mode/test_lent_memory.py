"""Large arguments are read, and large results made, where the caller has them; nobody can tell but by the time."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.vm.gates import _PLANTED, HEAVY, PATIENCE, call
from vmflow import nn
from vmflow.instructions.builder import physical_run
from vmflow.instructions.instruction import Instruction
from vmflow.ops.table import OPS
from vmflow.vm.virtual_machine import current_machine

from .support import Of

pytestmark = pytest.mark.host

ROWS, COLUMNS = 512, 520  # more than a MiB of float32


def large(seed: int = 0) -> flow.Tensor:
    return flow.tensor(np.random.default_rng(seed).standard_normal((ROWS, COLUMNS)).astype(np.float32))


def lent(graph: nn.Graph) -> tuple[int, int]:
    """How many arguments and results are not copied."""
    (chain,) = graph.plan.chains.values()
    return len(chain.kept), len(chain.straight)


class Ended:
    """To be awaited for the end of an instruction."""

    def __init__(self, instruction: Instruction) -> None:
        self.instruction = instruction

    def __await__(self) -> Generator[Any, None, None]:
        yield from current_machine().wait_async(self.instruction)


def arrays(result: Any) -> list[Any]:
    return [tensor.detach().numpy().copy() for tensor in (result if isinstance(result, (tuple, list)) else (result,))]


def address(tensor: flow.Tensor) -> int:
    tensor.detach().numpy()
    return int(tensor._blob.array().__array_interface__["data"][0])


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[int, int]]] = {
    "a chain": (lambda x, y: (x + y) * 1.5 - y, (2, 1)),
    "an op that is not fused": (lambda x, y: x.cumsum(0) - y.sum(1, keepdim=True), (2, 1)),
    "written after it was made": (lambda x, y: (x * 2).add_(y).mul_(3), (2, 1)),
    "an argument that is written": (lambda x, y: x.add_(y) * 2, (2, 1)),
    "an argument as it is": (lambda x, y: (x, y * 2), (2, 1)),
    "a part of an argument": (lambda x, y: (x[1:, 3:], x + y), (2, 1)),
    "a part of what was made": (lambda x, y: (x + y)[3:], (2, 0)),
    "turned round": (lambda x, y: (x + y).t(), (2, 0)),
    "in another shape": (lambda x, y: (x + y).reshape(-1), (2, 1)),
    "nothing of an argument": (lambda x, y: x + 1, (1, 1)),
    "little": (lambda x, y: x.sum() + y.sum(), (2, 0)),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("fusion", [True, False])
def test_results_are_those_of_eager_ops(name: str, fusion: bool) -> None:
    program, expected = PROGRAMS[name]
    graph = Of(program)
    graph.config.allow_fusion(fusion)
    for seed in range(3):
        x, y = large(seed), large(seed + 10)
        wanted = arrays(program(x.clone(), y.clone()))
        before = arrays([x, y])
        for found in (graph(x, y), graph.run_by_vm(x, y)):
            assert all(map(np.array_equal, arrays(found), wanted))
        assert all(map(np.array_equal, arrays([x, y]), before))
    assert lent(graph) == expected


def test_each_launch_has_results_of_its_own() -> None:
    graph = Of(lambda x: x + 1)
    x, y = large(1), large(2)
    one, other = graph(x), graph(y)
    assert address(one) != address(other)
    one.zero_()
    assert np.array_equal(other.numpy(), y.numpy() + 1)


def test_one_tensor_given_twice() -> None:
    graph = Of(lambda x, y: (x * 2, y - x, x.add_(1), y))
    x = large()
    before = x.numpy().copy()
    for _ in range(2):
        twice, nothing, more, same = graph(x, x)
        assert np.array_equal(twice.numpy(), before * 2)
        assert not nothing.numpy().any()
        assert np.array_equal(more.numpy(), before + 1)
        assert np.array_equal(same.numpy(), before)
        assert np.array_equal(x.numpy(), before)


def test_one_buffer_returned_twice() -> None:
    def build(x: flow.Tensor) -> Any:
        y = x + 1
        return y, y, y.reshape(-1)

    graph = Of(build)
    x = large()
    found = graph(x)
    assert lent(graph) == (1, 1)
    assert len({address(value) for value in found}) == 3
    for tensor in found:
        assert np.array_equal(tensor.numpy().reshape(-1), x.numpy().reshape(-1) + 1)


def test_results_that_are_arguments_or_views_of_them_have_memory_of_their_own() -> None:
    graph = Of(lambda x: (x, x.reshape(-1), x[:500]))
    x = large()
    before = x.numpy().copy()
    for result in graph(x):
        result.zero_()
    assert np.array_equal(x.numpy(), before)


@pytest.mark.parametrize(
    "seen",
    [
        lambda x: x.t().contiguous().t(),
        lambda x: flow.cat([x, x])[::2],
        lambda x: flow.cat([x, x])[ROWS:],
        lambda x: x[0].expand(ROWS, COLUMNS),
    ],
)
def test_arguments_that_are_views(seen: Callable[[flow.Tensor], flow.Tensor]) -> None:
    def build(x: flow.Tensor) -> Any:
        return x * 2, x.sum(1), x.reshape(-1)[7:9]

    graph = Of(build)
    x = seen(large())
    assert all(map(np.array_equal, arrays(graph(x)), arrays(build(x.contiguous()))))
    assert lent(graph)[0] == 1


def test_arrays_that_numpy_calls_unaligned() -> None:
    memory = np.zeros(ROWS * COLUMNS * 4 + 1, np.uint8)
    odd = memory[1:].view(np.float32).reshape(ROWS, COLUMNS)
    odd[...] = large().numpy()
    graph = Of(lambda x: x + 1)
    assert np.array_equal(graph(flow.from_numpy(odd)).numpy(), odd + 1)


def test_variables_as_results_and_as_arguments() -> None:
    layer = nn.Linear(COLUMNS, ROWS, bias=False)

    def build(x: flow.Tensor) -> Any:
        old = layer.weight * 1
        layer.weight.data.add_(x)
        return layer.weight, old, x * 2

    graph = Of(build, layer)
    for _ in range(3):
        before = layer.weight.detach().numpy().copy()
        # The argument lies in the memory that the run changes.
        now, old, twice = graph(layer.weight.data)
        assert np.array_equal(now.detach().numpy(), before * 2)
        assert np.array_equal(old.detach().numpy(), before)
        assert np.array_equal(twice.numpy(), before * 2)
        assert np.array_equal(layer.weight.detach().numpy(), before * 2)
        assert address(now) != address(layer.weight)


def test_later_writes_of_the_caller_have_no_effect() -> None:
    graph = Of(lambda x: x + 1)
    x = large()
    before = x.numpy().copy()
    result = graph(x)
    x.zero_()
    assert np.array_equal(result.numpy(), before + 1)
    assert not x.numpy().any()


async def test_in_a_coroutine_too() -> None:
    graph = Of(lambda x: x * 2 + 1)
    x = large()
    before = x.numpy().copy()
    results = []
    for _ in range(10):
        results.append(graph(x))
        x.mul_(2)
    for number, result in enumerate(results):
        assert np.array_equal((await result).numpy(), before * 2**number * 2 + 1)


def test_results_of_one_launch_are_arguments_of_the_next() -> None:
    graph = Of(lambda x, y: (x + y, x - y))
    x, y = large(1), large(2)
    a, b = x.numpy().copy(), y.numpy().copy()
    for _ in range(5):
        x, y = graph(x, y)
        a, b = a + b, a - b
    assert np.array_equal(x.numpy(), a)
    assert np.array_equal(y.numpy(), b)


@pytest.mark.parametrize("place", ["first", "last"])
def test_a_failing_launch_names_its_op_and_gives_arguments_back(place: str) -> None:
    def build(x: flow.Tensor, at: flow.Tensor) -> flow.Tensor:
        if place == "first":
            return flow.gather(x, 0, at) + x[:1]  # the line that fails
        return flow.gather(x * 2 + 1, 0, at) * 2  # the line that fails

    graph = Of(build)
    x = large()
    with pytest.raises(IndexError) as caught:
        graph(x, flow.full((1, COLUMNS), ROWS, dtype=flow.int64)).numpy()
    assert any(["gather(" in note for note in caught.value.__notes__]), caught.value.__notes__
    x.add_(1)
    at = flow.full((1, COLUMNS), 3, dtype=flow.int64)
    assert np.array_equal(graph(x, at).numpy(), build(x, at).numpy())


def test_nothing_of_the_caller_is_held_afterwards() -> None:
    graph = Of(lambda x: x * 2 + 1)
    given = np.ones((ROWS, COLUMNS), np.float32)
    x = flow.from_numpy(given)
    graph(x).numpy()
    gone = weakref.ref(given)
    del x, given
    flow.ones(1).numpy()  # takes released memory back
    gc.collect()
    assert gone() is None
    assert lent(graph) == (1, 1)


@pytest.mark.worker
async def test_an_argument_is_free_behind_its_last_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPS, "planted", _PLANTED)
    begun, opened = threading.Event(), threading.Event()

    def hold(array: Any) -> Any:
        begun.set()
        if not opened.wait(PATIENCE):
            raise TimeoutError("nobody opened the gate")
        return array

    graph = Of(lambda x: call(hold, x.max(), shape=(), cost=HEAVY) + 1)
    x = large()
    wanted = (await x.max()).item() + 1
    graph._compile(x)
    assert lent(graph) == (1, 0)
    result = graph(x)
    assert await asyncio.to_thread(begun.wait, PATIENCE)
    try:
        async with asyncio.timeout(PATIENCE):
            # While the run goes on, and with it the stream of all other ops.
            await Ended(physical_run(current_machine(), lambda builder: builder.await_uses((x._blob,))))
    finally:
        opened.set()
    assert (await result).item() == wanted


def test_arguments_of_long_runs_are_copied() -> None:
    def build(x: flow.Tensor) -> flow.Tensor:
        y = x
        for _ in range(10):
            y = (x @ y.t()).sum(1, keepdim=True) * x
        return y

    graph = Of(build)
    graph._compile(large())
    assert lent(graph) == (0, 1)


def test_small_ones_are_copied() -> None:
    graph = Of(lambda x: x + 1)
    graph._compile(flow.ones(1000))
    assert lent(graph) == (0, 0)


def test_plans_say_so_in_json() -> None:
    graph = Of(lambda x: x + 1)
    graph._compile(large())
    again = type(graph.plan).from_json(graph.plan.to_json())
    assert lent(graph) == (1, 1)
    assert again.chains == graph.plan.chains
