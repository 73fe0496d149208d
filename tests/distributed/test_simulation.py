"""Several ranks in one process: the same way each time, also where something goes wrong."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import distributed as dist
from vmflow.distributed import scheduler
from vmflow.distributed.collectives import reduced
from vmflow.distributed.process import process_of
from vmflow.vm.virtual_machine import live_machines

pytestmark = pytest.mark.host

RANKS = [1, 2, 3, 4]


def of_rank(*shape: int, dtype: flow.dtype = flow.float32) -> flow.Tensor:
    """Numbers that differ from rank to rank, all of them small integers."""
    count = int(np.prod(shape))
    return (flow.arange(count) % 7 + dist.get_rank() * 3).to(dtype).reshape(shape)


def expected(rank: int, *shape: int) -> np.ndarray:
    return (np.arange(int(np.prod(shape))) % 7 + rank * 3).reshape(shape)


# Exchanges


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("dtype", [flow.float32, flow.float64, flow.int64, flow.bfloat16])
def test_reductions(ranks: int, dtype: flow.dtype) -> None:
    def program() -> list[Any]:
        return [dist.all_reduce(of_rank(2, 3, dtype=dtype), op).tolist() for op in ("sum", "max", "min")]

    everything = np.stack([expected(rank, 2, 3) for rank in range(ranks)])
    wanted = [getattr(everything, op)(0).tolist() for op in ("sum", "max", "min")]
    assert dist.simulate(program, ranks, seed=5) == [wanted] * ranks


@pytest.mark.parametrize("ranks", RANKS)
def test_all_other_exchanges(ranks: int) -> None:
    def program() -> dict[str, Any]:
        rank = dist.get_rank()
        gathered = [flow.empty(2, 3) for _ in range(ranks)]
        dist.all_gather(gathered, of_rank(2, 3))
        parts = [of_rank(4) + 100 * other for other in range(ranks)]
        share = dist.reduce_scatter(flow.empty(4), parts)
        received = [flow.empty(4) for _ in range(ranks)]
        dist.all_to_all(received, parts)
        sent = dist.broadcast(of_rank(5), ranks - 1)
        reduced = dist.reduce(of_rank(5), 0)
        dist.barrier().tolist()
        return {
            "all_gather": [tensor.tolist() for tensor in gathered],
            "reduce_scatter": share.tolist(),
            "all_to_all": [tensor.tolist() for tensor in received],
            "broadcast": sent.tolist(),
            "reduce": reduced.tolist(),
            "rank": rank,
        }

    for rank, found in enumerate(dist.simulate(program, ranks, seed=2)):
        everybody = range(ranks)
        total = sum([expected(other, 5) for other in everybody])
        assert found == {
            "all_gather": [expected(other, 2, 3).tolist() for other in everybody],
            "reduce_scatter": sum([expected(other, 4) + 100 * rank for other in everybody]).tolist(),  # type: ignore
            "all_to_all": [(expected(other, 4) + 100 * rank).tolist() for other in everybody],
            "broadcast": expected(ranks - 1, 5).tolist(),
            "reduce": (total if rank == 0 else expected(rank, 5)).tolist(),  # type: ignore[union-attr]
            "rank": rank,
        }


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("seed", range(5))
def test_messages_go_round_although_all_send_first(ranks: int, seed: int) -> None:
    def program() -> list[Any]:
        rank = dist.get_rank()
        got = []
        for turn in range(3):
            dist.send(of_rank(3) + turn, (rank + 1) % ranks)
            got.append(dist.recv(flow.empty(3), (rank - 1) % ranks).tolist())
        return got

    found = dist.simulate(program, ranks, seed, delay=1.0)
    assert found == [[(expected((rank - 1) % ranks, 3) + turn).tolist() for turn in range(3)] for rank in range(ranks)]


def test_results_are_awaited_and_ops_go_on_with_them() -> None:
    async def program() -> Any:
        x = of_rank(3)
        total = dist.all_reduce(x * 2)
        y = total + 1
        await y
        await dist.barrier()
        return y.tolist()

    total = sum([expected(rank, 3) for rank in range(3)], np.zeros(3))
    assert dist.simulate(program, 3) == [(2 * total + 1).tolist()] * 3


def test_received_values_can_be_sent_on() -> None:
    def program() -> Any:
        x = flow.ones(2)
        for _ in range(4):
            x = dist.all_reduce(x)
        first = reduced(x, (0, 1))
        second = reduced(first, (0, 1))
        third = first + 1  # another reader, on another stream
        fourth = reduced(first, (0, 1))
        return x.tolist(), second.tolist(), third.tolist(), fourth.tolist()

    found = dist.simulate(program, 2, delay=2.0)
    assert found == [([16.0, 16.0], [64.0, 64.0], [33.0, 33.0], [64.0, 64.0])] * 2


def test_views_are_given_and_changed() -> None:
    def program() -> Any:
        x = of_rank(3, 4)
        dist.all_reduce(x.t()[1])
        return x.tolist()

    wanted = [expected(rank, 3, 4) for rank in range(2)]
    column = wanted[0][:, 1] + wanted[1][:, 1]
    for array in wanted:
        array[:, 1] = column
    assert dist.simulate(program, 2) == [array.tolist() for array in wanted]


# The same way each time


def trace(seed: int, delay: float = 0.0) -> list[Any]:
    """In which order ranks came where."""
    order: list[Any] = []

    async def program() -> None:
        rank = dist.get_rank()

        async def task(number: int) -> None:
            for step in range(3):
                await asyncio.sleep(0.01 * (rank + number))
                order.append((rank, number, step))

        await asyncio.gather(task(1), task(2))
        for step in range(3):
            await dist.all_reduce(of_rank(3))
            order.append((rank, "reduced", step))

    dist.simulate(program, 3, seed, delay=delay)
    return order


def test_a_seed_decides_in_which_order_things_happen() -> None:
    runs = {seed: trace(seed) for seed in range(6)}
    assert all([trace(seed) == order for seed, order in runs.items()])
    assert len({str(order) for order in runs.values()}) > 3
    assert trace(1, delay=3.0) == trace(1, delay=3.0)


def test_time_is_the_simulations() -> None:
    async def program() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.sleep(100 * (1 + dist.get_rank()))
        await dist.barrier()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        return round(loop.time() - began)

    began = time.monotonic()
    assert dist.simulate(program, 3) == [3 * 100 + 5] * 3
    assert time.monotonic() - began < 20


def test_deadlines_of_scopes_are_the_simulations_time() -> None:
    async def program() -> list[Any]:
        with flow.scope(timeout=1000) as outer:
            await asyncio.sleep(999)
            left = outer.remaining()
            early = (await (flow.ones(1) + 1)).item()
            await asyncio.sleep(2)
            with pytest.raises(flow.errors.DeadlineExceeded):
                await (flow.ones(1) + 1)
        return [left, early, outer.cancelled()]

    assert dist.simulate(program, 2) == [[1.0, 2.0, True]] * 2


def test_the_clock_waits_for_threads() -> None:
    async def program() -> str:
        def work() -> str:
            for _ in range(50):
                threading.Event().wait(1e-3)
            return "done"

        async with asyncio.timeout(1):
            found = await asyncio.to_thread(work)
        await dist.barrier()
        return found

    assert dist.simulate(program, 2) == ["done", "done"]


def test_each_rank_has_numbers_and_modes_of_its_own() -> None:
    def program() -> Any:
        rank = dist.get_rank()
        first = flow.randn(3).tolist()
        if rank == 1:
            flow.manual_seed(7)
            with flow.no_grad():
                dist.barrier().tolist()
                inside = flow.is_grad_enabled()
        else:
            dist.barrier().tolist()
            inside = flow.is_grad_enabled()
        return first, inside, flow.randn(3).tolist()

    (first, one, two), (again, other, third) = dist.simulate(program, 2)
    assert first == again
    assert (one, other) == (True, False)
    assert two != third


# Faults and errors


@pytest.mark.parametrize("seed", range(4))
def test_a_mismatch_names_both_lines_on_all_ranks(seed: int) -> None:
    def program() -> None:
        if dist.get_rank() == 1:
            dist.all_reduce(flow.ones(4)).tolist()
        else:
            dist.all_reduce(flow.ones(3)).tolist()

    for error in dist.simulate(program, 3, seed, return_exceptions=True):
        assert isinstance(error, dist.CollectiveMismatch)
        assert "rank 1: all_reduce of float32 [4]" in str(error)
        assert "all_reduce of float32 [3]" in str(error)
        assert str(error).count("test_simulation.py") == 2
    with pytest.raises(dist.CollectiveMismatch) as caught:
        dist.simulate(program, 3, seed)
    assert any("of 3, simulated with seed" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("seed", range(4))
def test_swapped_exchanges_are_a_mismatch(seed: int) -> None:
    def program() -> None:
        x, y = flow.ones(3), flow.ones(4)
        dist.broadcast(x, 0)
        dist.all_reduce(y)
        x.tolist(), y.tolist()

    found = dist.simulate(program, 2, seed, faults=[dist.Fault(1, 0, "swap")], return_exceptions=True, timeout=5)
    assert all([isinstance(error, dist.CollectiveError) for error in found])
    assert any([isinstance(error, (dist.CollectiveMismatch, dist.CollectiveTimeout)) for error in found])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_lost_rank_is_noticed_immediately_and_a_frozen_one_by_the_timeout(seed: int, asynchronous: bool) -> None:
    def program() -> str:
        for _ in range(3):
            dist.all_reduce(flow.ones(3)).tolist()
        return "done"

    async def same() -> str:
        for _ in range(3):
            await dist.all_reduce(flow.ones(3))
        return "done"

    wanted: Any = same if asynchronous else program
    lost = dist.simulate(wanted, 3, seed, faults=[dist.Fault(2, 1, "lose")], return_exceptions=True)
    assert lost[2] is None
    for error in lost[:2]:
        assert isinstance(error, dist.PeerLost)
        assert "rank 2 was lost" in str(error)
    frozen = dist.simulate(wanted, 3, seed, faults=[dist.Fault(2, 1, "freeze")], return_exceptions=True)
    assert frozen[2] is None
    for error in frozen[:2]:
        assert isinstance(error, dist.CollectiveTimeout)
        assert "ranks [2] did not come within 300 s" in str(error)
        assert "test_simulation.py" in str(error)
    late = dist.simulate(wanted, 3, seed, faults=[dist.Fault(2, 1, "delay", 10)])
    assert late == ["done"] * 3


def test_a_rank_that_raises_or_ends_early_is_named() -> None:
    def raises() -> None:
        if dist.get_rank() == 1:
            raise KeyError("planted")
        dist.all_reduce(flow.ones(3)).tolist()

    def ends() -> None:
        if dist.get_rank() != 1:
            dist.recv(flow.empty(3), 1).tolist()

    found = dist.simulate(raises, 3, return_exceptions=True)
    assert isinstance(found[1], KeyError)
    assert "rank 1 has raised KeyError: 'planted'" in str(found[0])
    with pytest.raises(KeyError, match="planted"):
        dist.simulate(raises, 3)
    with pytest.raises(dist.PeerLost, match="rank 1 has ended and will not come to operations that others wait for"):
        dist.simulate(ends, 2)


def test_messages_about_errors_of_other_ranks_do_not_grow_with_each_exchange() -> None:
    def program() -> Any:
        x = flow.ones(3)
        if dist.get_rank() == 1:
            x = flow.tensor([1, 2, 3])[flow.tensor([0, 1, 9])].float()
        for _ in range(8):
            x = dist.all_reduce(x * 1)
        if dist.get_rank() == 2:
            raise KeyError("a 'quoted' \\ word")
        return x.tolist()

    first, second, third = dist.simulate(program, 3, return_exceptions=True)
    for error in (first, second):
        assert isinstance(error, dist.PeerLost)
        assert str(error).count("could not compute") == 1
        assert len(str(error)) < 1000
    assert isinstance(third, KeyError)

    def late() -> Any:
        if dist.get_rank() == 0:
            raise ValueError("a 'quoted' \\ word")
        return dist.all_reduce(dist.all_reduce(flow.ones(1))).tolist()

    for error in dist.simulate(late, 3, return_exceptions=True)[1:]:
        assert "rank 0 has raised ValueError: a 'quoted' \\ word" in str(error)


def test_a_tensor_that_could_not_be_computed_fails_on_all_ranks() -> None:
    def program() -> Any:
        x = flow.ones(3)
        if dist.get_rank() == 1:
            x = flow.tensor([1, 2, 3])[flow.tensor([0, 1, 9])].float()
        return dist.all_reduce(x).tolist()

    for error in dist.simulate(program, 2, return_exceptions=True):
        assert isinstance(error, dist.PeerLost)
        assert "rank 1 could not compute the tensor to send: IndexError" in str(error)


def test_a_rank_without_memory_for_its_part_fails_on_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = np.ascontiguousarray

    def refused(array: np.ndarray) -> np.ndarray:
        if array.shape == (7,) and array[0] == 100:
            raise MemoryError("planted")
        return copied(array)

    monkeypatch.setattr(np, "ascontiguousarray", refused)

    def program() -> Any:
        return dist.all_reduce(flow.full((7,), 100.0 * dist.get_rank())).tolist()

    first, second = dist.simulate(program, 2, return_exceptions=True)
    assert isinstance(first, dist.PeerLost)
    assert "rank 1 could not compute the tensor to send: MemoryError" in str(first)
    assert isinstance(second, MemoryError)


def test_a_rank_that_waits_for_nothing_that_can_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "PATIENCE", 0.05)

    async def program() -> None:
        await asyncio.Event().wait()

    waits = "waits for its event loop to have something to do"
    with pytest.raises(dist.SimulationDeadlock, match=f"no rank can go on: rank 0 {waits}; rank 1 {waits}"):
        dist.simulate(program, 2)


def test_a_task_that_is_cancelled_leaves_the_exchange_alone() -> None:
    async def program() -> Any:
        x = dist.all_reduce(of_rank(3))

        async def reader() -> None:
            await x

        task = asyncio.create_task(reader())
        await asyncio.sleep(0)
        if dist.get_rank() == 0:
            task.cancel()
        await asyncio.wait([task])
        return (await dist.all_reduce(flow.ones(2) * x.sum())).tolist()

    total = 2 * float(sum([expected(rank, 3) for rank in range(2)]).sum())  # type: ignore[union-attr]
    assert dist.simulate(program, 2, delay=1.0) == [[total, total]] * 2


def test_a_scope_that_ends_drops_no_exchange() -> None:
    def program() -> Any:
        x = of_rank(3)
        with flow.scope() as scope:
            if dist.get_rank() == 0:
                scope.cancel()
            total = reduced(x, (0, 1))
        return [*total.tolist(), *dist.all_reduce(x).tolist()]

    total = sum([expected(rank, 3) for rank in range(2)]).tolist()  # type: ignore[union-attr]
    assert dist.simulate(program, 2) == [total + total] * 2


def spread() -> flow.Tensor:
    return flow.ones(2, placement=flow.placement.all("cpu"), sbp=flow.sbp.split(0))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dist.broadcast(flow.ones(2), 5), "there is no rank 5; ranks go from 0 to 1"),
        (lambda: dist.send(flow.ones(2), dist.get_rank()), "cannot send to itself"),
        (lambda: dist.all_reduce(flow.ones(2), "product"), "a reduction is one of"),  # type: ignore[arg-type]
        (lambda: dist.all_gather([flow.ones(2)], flow.ones(2)), "a tensor for each of 2 ranks, got 1"),
        (lambda: dist.all_gather([flow.ones(2), flow.ones(3)], flow.ones(2)), "tensors of one shape"),
        (lambda: dist.all_reduce(spread()), "all_reduce: expected a local tensor, got a global one"),
        (lambda: dist.broadcast(spread(), 0), "broadcast: expected a local tensor"),
        (lambda: dist.reduce(spread(), 0), "reduce: expected a local tensor"),
        (lambda: dist.send(spread(), 1 - dist.get_rank()), "send: expected a local tensor"),
        (lambda: dist.recv(spread(), 1 - dist.get_rank()), "recv: expected a local tensor"),
        (lambda: dist.all_gather([flow.ones(2), flow.ones(2)], spread()), "all_gather: expected a local tensor"),
        (lambda: dist.all_to_all([spread()] * 2, [flow.ones(2)] * 2), "all_to_all: expected a local tensor"),
        (lambda: dist.reduce_scatter(flow.ones(2), [spread()] * 2), "reduce_scatter: expected a local tensor"),
    ],
)
def test_mistakes_raise_before_anything_is_issued(call: Callable[[], Any], message: str) -> None:
    def program() -> None:
        with pytest.raises(ValueError, match=message):
            call()
        dist.barrier().tolist()

    dist.simulate(program, 2)


def test_arguments_of_simulate() -> None:
    with pytest.raises(ValueError, match="at least one rank, not 0"):
        dist.simulate(lambda: None, 0)
    with pytest.raises(ValueError, match="no rank 2 for Fault"):
        dist.simulate(lambda: None, 2, faults=[dist.Fault(2, 0, "lose")])
    with pytest.raises(ValueError, match="one of lose, freeze, swap, delay, not 'loose'"):
        dist.simulate(lambda: None, 2, faults=[dist.Fault(1, 0, "loose")])  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match="must be a number of seconds, not None"):
        dist.simulate(lambda: None, 2, timeout=None)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="must be positive, got 0"):
        dist.simulate(lambda: None, 2, timeout=0)


def test_a_simulation_within_a_communication_scope() -> None:
    with flow.comm_scope("outside"):
        assert dist.simulate(lambda: reduced(flow.ones(1), (0, 1)).item(), 2) == [2.0, 2.0]


def test_the_clock_goes_on_after_a_function_could_not_be_run_in_a_thread() -> None:
    async def program() -> float:
        ended = ThreadPoolExecutor(1)
        ended.shutdown()
        with pytest.raises(RuntimeError, match="after shutdown"):
            asyncio.get_running_loop().run_in_executor(ended, int)
        await asyncio.sleep(10)
        return asyncio.get_running_loop().time()

    assert _within_seconds(lambda: dist.simulate(program, 2)) == [10.0, 10.0]


def test_the_clock_goes_on_while_a_function_that_nobody_awaits_waits_for_ranks() -> None:
    async def program() -> float:
        if dist.get_rank() == 0:
            may_begin, found = threading.Event(), list[float]()

            def work() -> None:
                may_begin.wait()
                found.append(reduced(flow.ones(1), (0, 1)).item())

            task = asyncio.create_task(asyncio.to_thread(work))
            await asyncio.sleep(0)
            task.cancel()
            may_begin.set()
            while not found:  # noqa: ASYNC110 - the thread ends in real time
                await asyncio.sleep(1e-3)
            return found[0]
        await asyncio.sleep(1)
        return float((await reduced(flow.ones(1), (0, 1))).numpy()[0])

    assert _within_seconds(lambda: dist.simulate(program, 2)) == [2.0, 2.0]


def test_an_exchange_that_never_ends_is_a_deadlock_for_a_coroutine_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """No timer of a virtual machine keeps the clock going."""
    monkeypatch.setattr(scheduler, "PATIENCE", 0.01)

    async def program() -> None:
        await dist.all_reduce(flow.ones(3))

    def run() -> Any:
        return dist.simulate(program, 2, faults=[dist.Fault(1, 0, "swap")], return_exceptions=True)

    assert [type(error) for error in _within_seconds(run)] == [dist.CollectiveTimeout, dist.SimulationDeadlock]


def _within_seconds(function: Callable[[], Any]) -> Any:
    """The result of a function that must not hang."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(function()), daemon=True)
    thread.start()
    thread.join(10)
    return found[0] if found else "nothing yet"


# One process


def test_a_program_without_other_ranks_needs_no_way_to_them() -> None:
    assert (dist.get_rank(), dist.get_world_size(), dist.get_local_rank()) == (0, 1, 0)
    x = flow.ones(3)
    assert dist.all_reduce(x) is x
    assert dist.broadcast(x, 0) is x
    assert dist.broadcast(x, np.int64(0)) is x  # type: ignore[arg-type]
    assert dist.barrier().numel() == 0


def test_the_environment_of_a_launcher() -> None:
    found = process_of({"RANK": "5", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"})
    assert (found.rank, found.world_size, found.local_rank, found.local_world_size) == (5, 8, 1, 4)
    for wrong in ({"RANK": "x"}, {"RANK": "-1"}, {"WORLD_SIZE": "0"}, {"RANK": "2", "WORLD_SIZE": "2"}):
        with pytest.raises(ValueError, match=r"RANK|WORLD_SIZE"):
            process_of(wrong)


def test_nothing_is_left_of_a_simulation() -> None:
    def program() -> None:
        dist.all_reduce(flow.ones(3)).tolist()

    def of_global_tensors() -> None:
        placement = flow.placement("cpu", range(dist.get_world_size()))
        (flow.ones(4, placement=placement, sbp=flow.sbp.split(0)) + 1).numpy()

    def engines() -> int:
        gc.collect()
        return len([each for each in gc.get_objects() if type(each).__name__ == "LocalEngine"])

    before, others = threading.active_count(), engines()
    dist.simulate(program, 4)
    dist.simulate(program, 4, faults=[dist.Fault(1, 0, "freeze")], return_exceptions=True)
    dist.simulate(of_global_tensors, 2)
    assert threading.active_count() == before
    assert engines() == others
    assert not [machine for machine in live_machines() if machine.name.startswith("rank ")]


def test_env_has_oneflows_names() -> None:
    def program() -> list[int]:
        assert flow.env.is_multi_client()
        return [flow.env.get_rank(), flow.env.get_local_rank(), flow.env.get_world_size(), flow.env.get_node_size()]

    assert dist.simulate(program, 2) == [[0, 0, 2, 1], [1, 1, 2, 1]]
    assert program() == [0, 0, 1, 1]


@pytest.mark.parametrize("seed", range(5))
def test_ranks_share_local_tensors(seed: int) -> None:
    """A rank waits for another's machine, and is the first to freeze."""
    shared = flow.arange(6.0)
    made: list[flow.Tensor] = []

    def program() -> Any:
        made.append(shared * (dist.get_rank() + 1))
        total = dist.all_reduce(shared.clone())
        for other in list(made):
            total = total + other.sum()
        dist.barrier().numpy()
        return (total + sum([other.sum() for other in made])).tolist()

    assert len(dist.simulate(program, 4, seed, delay=1.0)) == 4


@pytest.mark.parametrize("seed", range(5))
def test_ranks_that_read_one_tensor_between_exchanges_do_not_wait_for_each_other(seed: int) -> None:
    """A rank that is ahead reads the tensor behind an exchange, to which the others come behind their own reads."""
    shared = flow.arange(6.0)

    def program() -> Any:
        x = flow.ones(6)
        for _ in range(3):
            x = dist.all_reduce(x * shared)
        return x.tolist()

    assert dist.simulate(program, 3, seed) == [[(3.0 * number) ** 3 for number in range(6)]] * 3
    assert shared.add_(1).tolist() == [1, 2, 3, 4, 5, 6]


def test_threads_of_a_rank_exchange_in_scopes_of_their_own() -> None:
    async def program() -> float:
        def work() -> Any:
            with flow.comm_scope("thread"):
                return sum([dist.all_reduce(flow.ones(1)).item() for _ in range(3)])

        result = await asyncio.to_thread(work)
        return float(result) + float((await dist.all_reduce(flow.ones(1))).numpy()[0])

    for seed in range(3):
        assert dist.simulate(program, 3, seed, delay=0.5) == [12.0] * 3
