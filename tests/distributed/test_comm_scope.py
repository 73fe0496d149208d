"""Communication scopes: tasks that work with other ranks side by side, and end on all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import vmflow as flow
from vmflow import distributed as dist, sbp
from vmflow.vm.virtual_machine import current_machine

pytestmark = [pytest.mark.host, pytest.mark.filterwarnings("ignore::vmflow.errors.BroadcastWarning")]


async def _sum(number: float) -> float:
    total = dist.all_reduce(flow.tensor([number]))
    return float((await total).numpy()[0])


@pytest.mark.parametrize("seed", range(10))
def test_tasks_with_scopes_of_their_own_exchange_in_any_order(seed: int) -> None:
    async def program() -> list[float]:
        rank = dist.get_rank()

        async def work(name: str, first: float) -> float:
            async with flow.comm_scope(name):
                # Each rank comes to its scopes at other times.
                await asyncio.sleep((rank * 7 + len(name) * 3) % 5)
                total = 0.0
                for step in range(5):
                    total += await _sum(first + step + rank)
                    await asyncio.sleep((rank + len(name)) % 3)
            return total

        names = ["a", "bb", "ccc"] if rank % 2 else ["ccc", "a", "bb"]
        tasks = {name: asyncio.ensure_future(work(name, len(name))) for name in names}
        return [await tasks[name] for name in ("a", "bb", "ccc")]

    wanted = [float(sum([3 * (first + step) + 3 for step in range(5)])) for first in (1, 2, 3)]
    assert dist.simulate(program, 3, seed, delay=2.0) == [wanted] * 3


def test_exchanges_of_a_scope_do_not_wait_for_those_of_another() -> None:
    async def program() -> None:
        async def one() -> None:
            async with flow.comm_scope("one"):
                total = dist.all_reduce(flow.ones(1))
                await dist.all_reduce(total * 2)

        async def other() -> None:
            async with flow.comm_scope("other"):
                total = dist.all_reduce(flow.ones(1))
                await dist.all_reduce(total * 2)

        # The second exchange of each waits for the first; in one lane, each rank would wait for the other's scope.
        both = [one(), other()] if dist.get_rank() else [other(), one()]
        await asyncio.gather(*both)

    for seed in range(5):
        dist.simulate(program, 2, seed)


@pytest.mark.parametrize(
    "use",
    [
        lambda x: dist.all_reduce(flow.ones(1)),
        lambda x: x + x,
        lambda x: x[0],
        lambda x: x.to_global(sbp=sbp.broadcast),
    ],
)
def test_a_second_task_without_a_scope_is_refused(use: Callable[[flow.Tensor], Any]) -> None:
    async def program() -> None:
        x = flow.ones(4, placement=flow.placement.all("cpu"), sbp=sbp.split(0))

        async def second() -> None:
            use(x)

        use(x)
        with pytest.raises(RuntimeError, match="task 'second' exchanges with other ranks in the outermost"):
            await asyncio.create_task(second(), name="second")
        with pytest.raises(RuntimeError, match="an order of its own, by 'async with vmflow"):
            await asyncio.to_thread(use, x)
        async with flow.comm_scope("third"):
            await asyncio.create_task(second())

    dist.simulate(program, 2)


def test_a_task_may_exchange_behind_one_that_has_ended() -> None:
    async def program() -> list[float]:
        return [await asyncio.create_task(_sum(number)) for number in (1.0, 2.0)]

    assert dist.simulate(program, 2) == [[2.0, 4.0]] * 2


def test_a_loop_within_plain_code_goes_on_with_its_order() -> None:
    def program() -> list[float]:
        w = flow.ones(3, placement=flow.placement.all("cpu"), sbp=sbp.broadcast)

        async def main() -> float:
            return float((await (w + w).sum()).numpy()[()])

        found = [asyncio.run(main()), asyncio.run(main())]
        return [*found, (w * 3).sum().item()]

    assert dist.simulate(program, 1) == [[6.0, 6.0, 9.0]]


# The end of a scope


def test_a_task_that_is_cancelled_ends_its_scope_on_all_ranks() -> None:
    async def program() -> str:
        async def evaluate() -> None:
            async with flow.comm_scope("evaluation"):
                for _ in range(1000):
                    await _sum(1.0)
                    await asyncio.sleep(1)

        task = asyncio.create_task(evaluate())
        await asyncio.sleep(10.5)
        if dist.get_rank() == 1:
            task.cancel()
        (error,) = await asyncio.gather(task, return_exceptions=True)
        # The scope around goes on.
        assert await _sum(1.0) == 3.0
        if dist.get_rank() == 1:
            assert isinstance(error, asyncio.CancelledError)
            return ""
        assert isinstance(error, dist.CollectiveCancelled)
        return str(error)

    for seed in range(5):
        found = dist.simulate(program, 3, seed, delay=0.1)
        assert found[1] == ""
        for message in (found[0], found[2]):
            assert "rank 1 has left the communication scope 'evaluation#1' by CancelledError" in message
            assert "test_comm_scope.py" in message


def test_exchanges_issued_before_a_scope_is_left_take_place() -> None:
    async def program() -> float:
        async with flow.comm_scope("short"):
            x = flow.ones(300, 300)
            total = dist.all_reduce((x @ x).sum().reshape(1))
        return float((await total).numpy()[0])

    assert dist.simulate(program, 3) == [3 * 300.0**3] * 3


def test_a_rank_that_leaves_early_is_named() -> None:
    async def program() -> None:
        async with flow.comm_scope("uneven"):
            await _sum(1.0)
            if dist.get_rank() == 0:
                with pytest.raises(dist.PeerLost, match="rank 1 has left the communication scope 'uneven#1' and will"):
                    await _sum(2.0)

    dist.simulate(program, 2)


def test_a_scope_has_a_timeout() -> None:
    async def program() -> float:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        async with flow.comm_scope("hasty", timeout=2.5):
            if dist.get_rank() == 0:
                with pytest.raises(dist.CollectiveTimeout, match=r"ranks \[1\] did not come within 2.5 s") as caught:
                    await _sum(1.0)
                notes = "\n".join(caught.value.__notes__)
                assert "rank 1, operation 0, done: all_reduce of float32 [1] among ranks [0, 1] at" in notes
            else:
                await asyncio.sleep(5)
        return loop.time() - begin

    async def after_another() -> float:
        await _sum(1.0)
        return await program()

    assert dist.simulate(after_another, 2) == [2.5, 5.0]


def test_nothing_is_left_of_scopes() -> None:
    async def program() -> int:
        for number in range(30):
            async with flow.comm_scope("again"), flow.comm_scope(f"inner {number}"):
                await _sum(1.0)
        return len([stream for stream in current_machine().streams() if "comm" in stream.name])

    assert max(dist.simulate(program, 2)) <= 5


def test_names() -> None:
    def program() -> None:
        with flow.comm_scope("x") as outer:
            assert isinstance(outer, flow.comm_scope)
            with flow.comm_scope("y"), flow.comm_scope("y"):  # one within the other
                assert dist.all_reduce(flow.ones(1)).item() == 2
        with flow.comm_scope("x"):
            pass
        for name, error in ((3, TypeError), ("", ValueError), ("a/b", ValueError)):
            with pytest.raises(error, match="comm_scope: the name must"):
                flow.comm_scope(name)  # type: ignore[arg-type]
        for timeout, error in (("1", TypeError), (True, TypeError), (0, ValueError), (float("nan"), ValueError)):
            with pytest.raises(error, match="comm_scope: the timeout must be"):
                flow.comm_scope("x", timeout)  # type: ignore[arg-type]

    dist.simulate(program, 2)


def test_two_tasks_cannot_enter_one_name() -> None:
    async def program() -> None:
        inside = asyncio.Event()

        async def first() -> None:
            async with flow.comm_scope("same"):
                inside.set()
                await _sum(1.0)
                await asyncio.sleep(1)

        task = asyncio.create_task(first())
        await inside.wait()
        with pytest.raises(RuntimeError, match="'same' is entered already in the outermost communication scope"):
            async with flow.comm_scope("same"):
                pass
        await task
        async with flow.comm_scope("same"):
            assert await _sum(1.0) == 2.0

    dist.simulate(program, 2)


def test_an_ordinary_scope_drops_no_exchange() -> None:
    async def program() -> float:
        with flow.scope() as request:
            x = dist.all_reduce(flow.ones(1))
            if dist.get_rank() == 0:
                request.cancel()
        assert await _sum(1.0) == 2.0
        return float((await x).numpy()[0]) if dist.get_rank() else 2.0

    assert dist.simulate(program, 2) == [2.0, 2.0]


# Checked mode


def _both_ways(program: Callable[[], Any]) -> list[Any]:
    async def coroutine() -> Any:
        return program()

    forms: list[Callable[[], Any] | Callable[[], Coroutine[Any, Any, Any]]] = [program, coroutine]
    return [dist.simulate(form, 3, check=True, return_exceptions=True) for form in forms]


def test_ranks_that_call_different_ops_fail_in_checked_mode_although_they_exchange_nothing() -> None:
    def program() -> None:
        x = flow.ones(6, placement=flow.placement.all("cpu"), sbp=sbp.split(0))
        x = x * 2
        if dist.get_rank() == 1:
            x = x * x  # on one rank
        else:
            x = x + x  # on the others

    for found in _both_ways(program):
        for error in found:
            assert isinstance(error, dist.CollectiveMismatch)
            assert "for mul(" in str(error)
            assert "for add(" in str(error)
            lines = [part.split(",")[0] for part in str(error).split("test_comm_scope.py:")[1:]]
            assert len(set(lines)) == 2
            assert any(["rank 1, operation" in note for note in error.__notes__])


def test_other_attributes_shapes_and_views_differ_as_well() -> None:
    def attributes() -> None:
        x = flow.ones(6, 6, placement=flow.placement.all("cpu"), sbp=sbp.split(0))
        x.sum(0 if dist.get_rank() else 1)

    def views() -> None:
        x = flow.ones(6, 6, placement=flow.placement.all("cpu"), sbp=sbp.broadcast)
        x[: dist.get_rank() + 1].sum()

    def in_place() -> None:
        x = flow.ones(6, 6, placement=flow.placement.all("cpu"), sbp=sbp.broadcast)
        if dist.get_rank() == 2:
            x.add_(1)
        x.mul_(2)

    for program in (attributes, views, in_place):
        for found in _both_ways(program):
            assert [type(error) for error in found] == [dist.CollectiveMismatch] * 3


def test_a_result_of_ops_that_differ_raises_where_it_is_looked_at() -> None:
    async def program() -> Any:
        x = flow.ones(6, placement=flow.placement.all("cpu"), sbp=sbp.broadcast)
        y = x * 2 if dist.get_rank() else x * 3 + 1
        with pytest.raises(dist.CollectiveMismatch):
            await y
        raise KeyError("seen")

    found = dist.simulate(program, 2, check=True, return_exceptions=True)
    assert [type(error) for error in found] == [KeyError] * 2


def test_programs_that_agree_pass_the_check_and_unchecked_ones_do_not_notice() -> None:
    def agreeing() -> Any:
        x = flow.randn(6, 4, placement=flow.placement.all("cpu"), sbp=sbp.split(0)).requires_grad_()
        w = flow.randn(4, 4, placement=flow.placement.all("cpu"), sbp=sbp.split(1)).requires_grad_()
        loss = flow.nn.functional.cross_entropy(
            x @ w, flow.tensor([0, 1, 2, 3, 0, 1]).to_global(x.placement, sbp.broadcast)
        )
        loss.backward()
        assert x.grad is not None
        x.grad.add_(1.0)
        return x.grad.tolist()

    assert dist.simulate(agreeing, 3, check=True) == dist.simulate(agreeing, 3)

    def differing() -> None:
        x = flow.ones(6, placement=flow.placement.all("cpu"), sbp=sbp.split(0))
        x = x * 2 if dist.get_rank() else x * 3

    dist.simulate(differing, 2)


def test_the_environment_asks_for_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    def differing() -> None:
        x = flow.ones(6, placement=flow.placement.all("cpu"), sbp=sbp.split(0))
        x = x * x if dist.get_rank() else x + x

    monkeypatch.setenv("VMFLOW_DEBUG_COMM", "1")
    with pytest.raises(dist.CollectiveMismatch):
        dist.simulate(differing, 2)
    dist.simulate(differing, 2, check=False)


def test_a_rank_that_meets_one_that_has_left_the_scope_and_ended_hears_of_the_scope() -> None:
    def program() -> type[BaseException]:
        try:
            with flow.comm_scope("a"):
                if dist.get_rank() == 1:
                    raise KeyError("left")
                dist.all_reduce(flow.ones(1)).item()
        except (KeyError, dist.CollectiveError) as error:
            return type(error)
        raise AssertionError

    assert dist.simulate(program, 2) == [dist.CollectiveCancelled, KeyError]


@pytest.mark.parametrize("seed", range(3))
def test_a_loop_that_runs_many_turns_during_an_exchange_is_woken_once(seed: int) -> None:
    async def program() -> int:
        if dist.get_rank():
            await asyncio.sleep(100)
        total = dist.all_reduce(flow.ones(1))
        if not dist.get_rank():
            for _ in range(50):
                await asyncio.sleep(1)
                flow.ones(1)
        loop, wakes = asyncio.get_running_loop(), 0
        schedule = loop.call_soon_threadsafe

        def counted(callback: Any, *arguments: Any) -> Any:
            nonlocal wakes
            wakes += 1
            return schedule(callback, *arguments)

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign, assignment]
        await total
        return wakes

    assert dist.simulate(program, 2, seed)[0] < 10
