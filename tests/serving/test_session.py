"""Sessions: results, batches, shapes, weights, streams, threads, and how they end."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
import warnings
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

import vmflow as flow
from tests.vm.gates import HEAVY, Gate, call, entered
from vmflow import nn
from vmflow.serving import (
    Dim,
    Draining,
    Expired,
    InferenceSession,
    InvalidInput,
    NotReady,
    Overloaded,
    TensorSpec,
    pace,
)
from vmflow.serving.pace import Pace
from vmflow.vm.virtual_machine import VirtualMachine

FIVE = TensorSpec((5,))


def model(width: int = 3) -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, width)).eval()


def samples(count: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal((count, 5)).astype(np.float32)


async def expected(of: nn.Module, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The model's own result."""
    device = next(iter(of.parameters())).device
    with flow.no_grad():
        result: Any = (await of(flow.from_numpy(rows).to(device)).cpu()).numpy()
    return np.asarray(result)


@pytest.mark.parametrize("graph", [True, False])
async def test_everybody_gets_the_result_of_their_own_sample(graph: bool) -> None:
    net, rows = model(), samples(50)
    async with InferenceSession(net, inputs=FIVE, graph=graph, max_batch=8) as session:
        found = await asyncio.gather(*[session.run(row) for row in rows])
        np.testing.assert_allclose(np.stack(found), await expected(net, rows), rtol=1e-5, atol=1e-6)
        stats = session.stats()
    assert stats["done"] == stats["samples"] == 50
    assert stats["batches"] <= 9
    assert stats["compiled"] == {"warming": 4 if graph else 0, "ready": 0}
    assert session.state == "closed"


async def test_results_are_nested_as_the_model_has_them_and_share_nothing() -> None:
    def both(x: flow.Tensor, *, scale: flow.Tensor) -> dict[str, Any]:
        return {"sum": (x * scale).sum(1), "parts": [x, scale]}

    inputs = {"x": TensorSpec((2,)), "scale": TensorSpec((1,))}
    session = InferenceSession(lambda x, scale: both(x, scale=scale), inputs=inputs)
    async with session:
        one, two = await asyncio.gather(
            session.run({"x": [1, 2], "scale": [10]}), session.run({"scale": [2], "x": [3, 4]})
        )
    assert one["sum"] == 30
    assert two["sum"] == 14
    assert [tensor.tolist() for tensor in two["parts"]] == [[3, 4], [2]]
    one["parts"][0][...] = 0
    assert two["parts"][0].base is None


@pytest.mark.parametrize("outputs", [None, [()]])
@pytest.mark.parametrize("nested", [True, False])
async def test_a_number_for_each_sample_is_an_array(outputs: list[tuple[()]] | None, nested: bool) -> None:
    def total(x: flow.Tensor) -> Any:
        return {"sum": x.sum(1)} if nested else x.sum(1)

    async with InferenceSession(total, inputs=FIVE, outputs=outputs) as session:
        found = await session.run(np.arange(5))
    number = found["sum"] if nested else found
    assert isinstance(number, np.ndarray)
    assert (number.shape, number.tolist()) == ((), 10)


async def test_compilations_after_warming_up_are_counted() -> None:
    class Scaled(nn.Module):
        scale = 1.0

        def forward(self, x: flow.Tensor) -> flow.Tensor:
            return x * self.scale

    net = Scaled().eval()
    async with InferenceSession(net, inputs=FIVE, batch_sizes=[1, 2]) as session:
        for scale in (2.0, 3.0):
            net.scale = scale
            np.testing.assert_array_equal(await session.run([1.0] * 5), [scale] * 5)
    assert session.stats()["compiled"] == {"warming": 2, "ready": 2}


async def test_dimensions_that_differ_are_padded_and_cut_back() -> None:
    length = Dim("length", (2, 4, 8))

    def running_sums(x: flow.Tensor) -> tuple[flow.Tensor, flow.Tensor]:
        return x.cumsum(1), x.sum(1)

    inputs = TensorSpec((length,), flow.int64)
    async with InferenceSession(running_sums, inputs=inputs, outputs=[(length,), ()], max_batch=4) as session:
        found = await asyncio.gather(*[session.run(list(range(1, count + 1))) for count in (1, 2, 3, 5, 8, 3)])
        assert [value[0].tolist() for value in found[:3]] == [[1], [1, 3], [1, 3, 6]]
        assert [int(value[1]) for value in found] == [1, 3, 6, 15, 36, 6]
        with pytest.raises(InvalidInput, match="length is 9"):
            await session.run([1] * 9)
        stats = session.stats()
        assert stats["compiled"] == {"warming": 9, "ready": 0}
        assert stats["rejected"]["invalid"] == 1
        assert stats["accepted"] == 6


@pytest.mark.host
async def test_a_saved_graph_declares_its_inputs(tmp_path: Path) -> None:
    class Predict(nn.Graph):
        def __init__(self, net: nn.Module) -> None:
            super().__init__()
            self.net = net

        def build(self, x: flow.Tensor) -> Any:
            return self.net(x)

    pytest.importorskip("safetensors")
    net, rows = model(), samples(7)
    graph = Predict(net)
    graph.with_dynamic_input_shape()
    for size in (4, 1):
        await graph(flow.zeros(size, 5))
    flow.save(graph, tmp_path / "saved")
    async with InferenceSession(tmp_path / "saved") as session:
        assert session.batch_sizes == (1, 4)
        assert session.signature.specs == (FIVE,)
        found = await asyncio.gather(*[session.run(row) for row in rows])
        np.testing.assert_allclose(np.stack(found), await expected(net, rows), rtol=1e-5, atol=1e-6)
        other = model()
        await session.swap({f"net.{name}": value for name, value in other.state_dict().items()})
        np.testing.assert_allclose(await session.run(rows[0]), (await expected(other, rows))[0], rtol=1e-5, atol=1e-6)


@pytest.mark.host
async def test_a_graph_saved_for_several_lengths_is_served_with_inputs_that_are_given(tmp_path: Path) -> None:
    class Sums(nn.Graph):
        def build(self, x: flow.Tensor) -> Any:
            return x.sum(1)

    pytest.importorskip("safetensors")
    graph = Sums()
    graph.with_dynamic_input_shape()
    for size in (1, 2):
        for length in (3, 6):
            await graph(flow.zeros(size, length))
    flow.save(graph, tmp_path / "saved")
    with pytest.raises(ValueError, match="differ in more than the batch; give inputs="):
        InferenceSession(tmp_path / "saved")
    async with InferenceSession(tmp_path / "saved", inputs=TensorSpec((Dim("length", (3, 6)),))) as session:
        assert session.batch_sizes == (1, 2)
        found = await asyncio.gather(*[session.run(np.ones(length, np.float32)) for length in (2, 3, 5, 6, 1)])
        assert [float(value) for value in found] == [2, 3, 5, 6, 1]


async def test_a_tensor_that_is_being_computed_may_be_given() -> None:
    async with InferenceSession(model(), inputs=FIVE) as session:
        row = samples(1)[0]
        assert (await session.run(flow.tensor(row) * 2)).tolist() == (await session.run(row * 2)).tolist()


# Weights


def constant(value: float) -> dict[str, flow.Tensor]:
    """Weights with which `Linear(5, 3)` says this, of every sample of ones."""
    return {"weight": flow.full((3, 5), value / 5), "bias": flow.zeros(3)}


async def test_every_response_is_of_one_version() -> None:
    net = nn.Linear(5, 3).eval()
    net.load_state_dict(constant(0))
    ones = np.ones(5, np.float32)
    async with InferenceSession(net, inputs=FIVE, max_batch=4) as session:
        seen: set[float] = set()
        swapped = asyncio.Event()

        async def client() -> None:
            while not swapped.is_set():
                result = await session.run(ones)
                assert len(set(result.tolist())) == 1
                seen.add(round(float(result[0]), 3))

        clients = [asyncio.create_task(client()) for _ in range(6)]
        for version in range(1, 11):
            assert await session.swap(constant(version)) == version
            # Requests from now on are of the new version.
            assert round(float((await session.run(ones))[0]), 3) == version
        swapped.set()
        await asyncio.gather(*clients)
        assert seen <= {float(index) for index in range(11)}
        assert session.stats()["failed"] == 0
        assert session.stats()["compiled"]["ready"] == 0


@pytest.mark.parametrize("bad", [{}, {"weight": flow.zeros(3, 5)}, {"weight": flow.zeros(2, 5), "bias": flow.zeros(3)}])
async def test_weights_that_do_not_fit_change_nothing(bad: dict[str, flow.Tensor]) -> None:
    net = nn.Linear(5, 3).eval()
    net.load_state_dict(constant(7))
    async with InferenceSession(net, inputs=FIVE) as session:
        with pytest.raises(RuntimeError, match=r"weight|bias"):
            await session.swap(bad)
        assert session.version == 0
        np.testing.assert_allclose(await session.run(np.ones(5)), [7, 7, 7], rtol=1e-6)


async def test_a_function_has_no_weights() -> None:
    async with InferenceSession(lambda x: x, inputs=FIVE) as session:
        with pytest.raises(TypeError, match="no weights"):
            await session.swap({})


# Streams


async def counting(net: Any, given: np.ndarray[Any, Any]) -> AsyncIterator[int]:
    """Yields as many numbers as the first element of the sample; notes how it ends."""
    try:
        for number in range(int(given[0])):
            net.computed.append(number)
            yield number
    finally:
        net.closed.append(len(net.computed))


class Counter:
    """A model that only streams."""

    def __init__(self) -> None:
        self.computed: list[int] = []
        self.closed: list[int] = []

    def __call__(self, x: flow.Tensor) -> flow.Tensor:
        return x


async def test_a_stream() -> None:
    net = Counter()
    async with InferenceSession(net, inputs=TensorSpec((1,)), stream=counting) as session:
        assert [value async for value in session.stream([4])] == [0, 1, 2, 3]
        assert net.closed == [4]
        assert session.stats()["done"] == 1
        assert session.stats()["streams"] == 1


async def settle() -> None:
    """Let everybody go on for as long as they can."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_a_stream_function_gets_the_inputs_of_one_request_unpadded() -> None:
    length = Dim("length", (4, 8))
    word = contextvars.ContextVar("word", default="")
    found: list[Any] = []

    async def looking(model: Any, inputs: Any) -> AsyncIterator[Any]:
        found.append(inputs)
        yield model, word.get(), asyncio.current_task()

    for specs, given in (
        (TensorSpec((length, 2)), [[1, 2]] * 3),
        ([TensorSpec((length,)), TensorSpec((), flow.int64)], [[1, 2, 3], 4]),
        ({"text": TensorSpec((length,)), "scale": TensorSpec((), flow.int64)}, {"text": [1, 2, 3], "scale": 4}),
    ):
        function = (lambda text, scale: text * scale.reshape(-1, 1)) if isinstance(specs, dict) else lambda *xs: xs[0]
        word.set("at the start")
        async with InferenceSession(function, inputs=specs, graph=False, stream=looking) as session:
            word.set("later")
            ((model, said, task),) = [chunk async for chunk in session.stream(given)]
        assert model is function
        assert said == "at the start"
        assert task is not asyncio.current_task()
    single, several, named = found
    assert (single.shape, single.dtype) == ((3, 2), np.float32)
    assert [tensor.shape for tensor in several] == [(3,), ()]
    assert {name: value.dtype for name, value in named.items()} == {"text": np.float32, "scale": np.int64}


@pytest.mark.parametrize("place", ["await", "yield"])
async def test_a_stream_function_hears_how_it_is_ended_and_may_await_then(place: str) -> None:
    heard: list[type[BaseException]] = []
    reached, ended = asyncio.Event(), asyncio.Event()

    async def waiting(model: Any, x: Any) -> AsyncIterator[int]:
        try:
            yield 0
            if place == "await":
                reached.set()
                await asyncio.Event().wait()
            for number in range(1, 100):
                reached.set()
                yield number
        except BaseException as error:
            heard.append(type(error))
            raise
        finally:
            await asyncio.sleep(0)
            ended.set()

    async with InferenceSession(Counter(), inputs=TensorSpec((1,)), stream=waiting) as session:
        async with contextlib.aclosing(session.stream([1])) as chunks:
            assert await anext(chunks) == 0
            await reached.wait()
        await ended.wait()
        assert heard == [asyncio.CancelledError if place == "await" else GeneratorExit]
        assert session.statistics.ends["cancelled"] == 1


async def test_a_stream_is_not_computed_far_ahead_of_its_reader() -> None:
    net = Counter()
    async with InferenceSession(net, inputs=TensorSpec((1,)), stream=counting, look_ahead=2) as session:
        async with contextlib.aclosing(session.stream([100])) as chunks:
            assert await anext(chunks) == 0
            await settle()
            assert net.computed == [0, 1, 2, 3]  # one was read, two wait, one is being put
            assert await anext(chunks) == 1
            await settle()
            assert len(net.computed) == 5
        await settle()
        assert net.closed == [5]
        assert session.stats()["cancelled"] == 1
        assert session.stats()["running"] == 0


async def test_a_stream_that_fails_raises_after_its_chunks() -> None:
    async def failing(net: Any, given: Any) -> AsyncIterator[int]:
        yield 1
        raise ValueError("no second chunk")

    async with InferenceSession(Counter(), inputs=TensorSpec((1,)), stream=failing) as session:
        chunks = session.stream([1])
        assert await anext(chunks) == 1
        with pytest.raises(ValueError, match="no second chunk"):
            await anext(chunks)
        assert session.stats()["failed"] == 1


async def test_a_stream_ends_at_its_deadline_and_lets_the_next_one_begin() -> None:
    closed = []

    async def endless(net: Any, given: Any) -> AsyncIterator[int]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    session = InferenceSession(Counter(), inputs=TensorSpec((1,)), stream=endless, max_streams=1)
    async with session:
        for _ in range(2):
            chunks = session.stream([1], timeout=0.05)
            assert await anext(chunks) == 1
            with pytest.raises(Expired):
                await anext(chunks)
        await settle()
        assert closed == [True, True]


async def test_new_weights_wait_for_streams_and_single_requests_do_not() -> None:
    net = nn.Linear(5, 3).eval()
    net.load_state_dict(constant(1))
    ones = np.ones(5, np.float32)

    async def twice(net: Any, given: Any) -> AsyncIterator[float]:
        for _ in range(3):
            yield round(float((await net(flow.ones(1, 5)))[0, 0].item()), 3)

    async with InferenceSession(net, inputs=FIVE, stream=twice) as session:
        with flow.no_grad():
            first = session.stream(ones)
            assert await anext(first) == 1
            swapping = asyncio.create_task(session.swap(constant(2)))
            await settle()
            second = session.stream(ones)
            waits = asyncio.ensure_future(anext(second))
            assert (await session.run(ones))[0] == pytest.approx(1)
            assert not swapping.done()
            assert [value async for value in first] == [1, 1]
            assert await swapping == 1
            assert await waits == 2
            assert [value async for value in second] == [2, 2]


async def test_a_session_without_streams_says_so() -> None:
    async with InferenceSession(model(), inputs=FIVE) as session:
        assert not session.streams
        with pytest.raises(InvalidInput, match="stream="):
            await anext(session.stream(samples(1)[0]))


# Deadlines and leaving


async def test_a_scope_s_deadline_is_the_request_s() -> None:
    async with InferenceSession(model(), inputs=FIVE) as session:
        with flow.scope(timeout=-1.0), pytest.raises(Expired):
            await session.run(samples(1)[0])
        with pytest.raises(Expired):
            await session.run(samples(1)[0], timeout=1e-9)
        with pytest.raises(ValueError, match="positive number of seconds"):
            await session.run(samples(1)[0], timeout=0)
        assert session.stats()["expired"] == 2
        assert session.stats()["never_ran"] == 2


async def test_a_caller_that_is_cancelled_leaves_nothing() -> None:
    async with InferenceSession(model(), inputs=FIVE, max_batch=2) as session:
        tasks = [asyncio.create_task(session.run(row)) for row in samples(20)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        stats = session.stats()
        assert stats["accepted"] == stats["done"] + stats["cancelled"]
        assert stats["queued"] == stats["running"] == 0
        assert sum([isinstance(result, np.ndarray) for result in results]) >= 10


# Life


async def test_before_and_after() -> None:
    session = InferenceSession(model(), inputs=FIVE)
    assert session.state == "new"
    with pytest.raises(NotReady, match="is new, not ready"):
        await session.run(samples(1)[0])
    with pytest.raises(NotReady, match="has not been started"):
        session.run_sync(samples(1)[0])
    async with session:
        with pytest.raises(RuntimeError, match="is ready; make a new one"):
            await session.start()
        with pytest.raises(RuntimeError, match="would block the loop"):
            session.run_sync(samples(1)[0])
    with pytest.raises(NotReady, match="is closed"):
        await session.run(samples(1)[0])
    assert session.stats()["rejected"]["not_ready"] == 2


async def test_draining_finishes_and_takes_nothing_new() -> None:
    async with InferenceSession(Counter(), inputs=TensorSpec((1,)), stream=counting) as session:
        chunks = session.stream([3])
        assert await anext(chunks) == 0
        draining = asyncio.create_task(session.drain())
        await settle()
        assert session.state == "draining"
        with pytest.raises(Draining):
            await session.run([1])
        assert not draining.done()
        assert [chunk async for chunk in chunks] == [1, 2]
        assert await draining
        assert session.stats()["rejected"]["draining"] == 1


async def test_draining_has_an_end() -> None:
    async with InferenceSession(Counter(), inputs=TensorSpec((1,)), stream=counting) as session:
        chunks = session.stream([3])
        assert await anext(chunks) == 0
        assert not await session.drain(timeout=0.01)
        await session.close()
        assert await anext(chunks) == 1  # which was there
        with pytest.raises(NotReady):
            await anext(chunks)


async def test_a_model_that_does_not_work_is_known_before_it_is_ready() -> None:
    session = InferenceSession(model(), inputs=TensorSpec((6,)))
    with pytest.raises(ValueError, match="6"):
        await session.start()
    assert session.state == "closed"
    for wrong, message in (
        (lambda x: x.sum(), "its first dimension must be 1"),
        (lambda x: x.mT, "its first dimension must be 1"),
    ):
        with pytest.raises(ValueError, match=message):
            await InferenceSession(wrong, inputs=FIVE, max_batch=2).start()
    with pytest.raises(ValueError, match=r"result 0 has shape \[1, 5\]; outputs declares \[1, 4\]"):
        await InferenceSession(lambda x: x, inputs=FIVE, outputs=[(4,)]).start()
    with pytest.raises(ValueError, match="outputs has 2 shapes"):
        await InferenceSession(lambda x: x, inputs=FIVE, outputs=[(5,), ()]).start()


def test_invalid_sessions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"training mode.*call model.eval\(\)"):
        InferenceSession(model().train(), inputs=FIVE)
    with pytest.raises(TypeError, match="inputs must be given"):
        InferenceSession(model())
    with pytest.raises(TypeError, match="expected a module, a function, a graph or a folder, got int"):
        InferenceSession(3, inputs=FIVE)
    for about in ("max_batch", "max_queue", "max_queue_per_client", "concurrency", "max_streams", "look_ahead"):
        for value in (0, -1, 1.5, True):
            with pytest.raises(ValueError, match=about):
                InferenceSession(model(), inputs=FIVE, **{about: value})  # type: ignore[arg-type]
    for about in ("max_wait", "timeout"):
        with pytest.raises(ValueError, match="expected seconds"):
            InferenceSession(model(), inputs=FIVE, **{about: float("nan")})  # type: ignore[arg-type]
    for sizes in ([4, 2], [1, "2"]):
        with pytest.raises(ValueError, match="batch_sizes must be"):
            InferenceSession(model(), inputs=FIVE, batch_sizes=sizes)  # type: ignore[arg-type]


def test_plain_code_and_its_threads() -> None:
    net, rows = model(), samples(40)
    with InferenceSession(net, inputs=FIVE) as session:
        found: dict[int, Any] = {}

        def ask(number: int) -> None:
            found[number] = session.run_sync(rows[number])

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with pytest.raises(InvalidInput):
            session.run_sync([1, 2])
    assert len(found) == 40
    with flow.no_grad():
        device = next(iter(net.parameters())).device
        wanted = net(flow.from_numpy(rows).to(device)).cpu().numpy()
    np.testing.assert_allclose(np.stack([found[index] for index in range(40)]), wanted, rtol=1e-5, atol=1e-6)
    assert not [value for value in threading.enumerate() if value.name.startswith("session")]
    with pytest.raises(NotReady):
        session.run_sync(rows[0])


def test_a_session_that_cannot_start_leaves_no_thread() -> None:
    with pytest.raises(ValueError, match="6"), InferenceSession(model(), inputs=TensorSpec((6,))):
        pass
    assert not [value for value in threading.enumerate() if value.name.startswith("session")]


async def test_the_same_bits_among_any_neighbours() -> None:
    net, rows = model(), samples(40)
    async with InferenceSession(net, inputs=FIVE, max_batch=8, batch_invariant=True) as session:
        assert len(session.batch_sizes) == 1
        alone = [(await session.run(row)).tobytes() for row in rows]
        together = await asyncio.gather(*[session.run(row) for row in rows])
        assert [value.tobytes() for value in together] == alone


async def test_sums_over_the_batch_are_never_invariant_but_alone() -> None:
    async with InferenceSession(
        lambda x: x + x.sum(0, keepdim=True), inputs=FIVE, max_batch=4, batch_invariant=True
    ) as session:
        assert session.batch_sizes == (1,)


# In the middle of a model


class Slow:
    """A model of many ops, of which the first waits at a gate; without a graph, each can be dropped.

    Attributes:
        ready: whether the session has warmed up.
        ran: the ops behind the gate that ran.
        gates: one for each call.
    """

    def __init__(self) -> None:
        self.ready = False
        self.ran: list[int] = []
        self.gates: list[Gate] = []
        self.called = asyncio.Semaphore(0)

    def __call__(self, x: flow.Tensor) -> flow.Tensor:
        if not self.ready:
            return x
        self.gates.append(Gate())
        self.called.release()
        result = x + self.gates[-1].tensor
        for number in range(10):
            result = call(partial(self._step, number), result, shape=tuple(result.shape), cost=HEAVY)
        return result

    def _step(self, number: int, array: Any) -> Any:
        self.ran.append(number)
        return array

    async def reached(self) -> Gate:
        """The gate at which the next call stands, once it does."""
        await self.called.acquire()
        await self.gates[-1].reached()
        return self.gates[-1]


@contextlib.asynccontextmanager
async def slow_session() -> AsyncIterator[tuple[InferenceSession, Slow]]:
    net = Slow()
    async with (
        VirtualMachine("with a worker"),  # else the loop would stand still at the gates
        InferenceSession(net, inputs=TensorSpec((1,)), graph=False) as session,
    ):
        net.ready = True
        try:
            yield session, net
        finally:
            for gate in net.gates:
                gate.open()


@pytest.mark.host
async def test_an_abandoned_batch_stops_after_the_running_op() -> None:
    async with slow_session() as (session, net):
        task = asyncio.create_task(session.run([1]))
        gate = await net.reached()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert session.stats()["running"] == 0  # immediately, although the op has not ended
        gate.open()
        await session.drain()
        assert net.ran == []
        assert session.stats()["cancelled"] == 1


@pytest.mark.host
async def test_a_deadline_in_the_middle_of_a_model_is_kept() -> None:
    async with slow_session() as (session, net):
        with pytest.raises(Expired, match="was being computed"):
            await session.run([1], timeout=0.02)
        (await net.reached()).open()
        await session.drain()
        assert net.ran == []
        assert session.stats()["expired"] == 1
        assert session.stats()["never_ran"] == 0


@pytest.mark.host
async def test_the_result_is_given_up_and_not_the_batch() -> None:
    async with slow_session() as (session, net):
        first = asyncio.create_task(session.run([1]))
        gate = await net.reached()
        both = [asyncio.create_task(session.run([number])) for number in (2, 3)]
        await settle()
        both[0].cancel()
        gate.open()
        assert await first == 2
        (await net.reached()).open()
        assert await both[1] == 4
        assert len(net.ran) == 20


@pytest.mark.host
async def test_a_sample_that_the_model_cannot_take_fails_alone_with_its_own_error() -> None:
    def rooted(x: flow.Tensor) -> flow.Tensor:
        return call(root, x, shape=tuple(x.shape), cost=HEAVY)

    def root(array: Any) -> Any:
        if (array < 0).any():
            raise ArithmeticError("no root")
        return np.sqrt(array)

    async with InferenceSession(rooted, inputs=TensorSpec((1,)), graph=False, max_batch=8) as session:
        numbers = [4, 9, -1, 16, 25, 36]
        found = await asyncio.gather(*[session.run([number]) for number in numbers], return_exceptions=True)
        failed = found.pop(2)
        assert [np.asarray(value).tolist() for value in found] == [[2], [3], [4], [5], [6]]
        assert isinstance(failed, ArithmeticError)
        assert "gates.py" in "".join(failed.__notes__)  # where the op was issued
        assert session.stats()["failed"] == 1


async def test_tensors_in_a_list_are_waited_for() -> None:
    """As rows of one input; to read them would hold the loop up."""
    gate = threading.Event()

    def late(array: Any) -> Any:
        gate.wait(30)
        return array

    async with InferenceSession(lambda x: x * 2, inputs=TensorSpec((2, 3)), graph=False) as session:
        with entered(VirtualMachine("worker", cpu_worker="always")):
            rows = [call(late, flow.ones(3), shape=(3,), cost=HEAVY) for _ in range(2)]
            asyncio.get_running_loop().call_soon(gate.set)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                result = await session.run(rows)
    assert result.tolist() == [[2.0] * 3] * 2


@pytest.mark.parametrize("stream", [False, True])
async def test_a_tensor_that_is_computed_too_late_ends_the_request(stream: bool) -> None:
    gate = threading.Event()

    def late(array: Any) -> Any:
        gate.wait(30)
        return array

    async def parts(net: Any, x: Any) -> AsyncIterator[Any]:
        yield x

    async with InferenceSession(lambda x: x * 2, inputs=FIVE, graph=False, stream=parts) as session:
        with entered(VirtualMachine("worker", cpu_worker="always")):
            row = call(late, flow.ones(5), shape=(5,), cost=HEAVY)
            try:
                for timeout, error, message in (
                    (0, ValueError, "positive"),
                    (0.01, Expired, "tensors among the inputs"),
                ):
                    asked = anext(session.stream(row, timeout=timeout)) if stream else session.run(row, timeout=timeout)
                    with pytest.raises(error, match=message):
                        await asked
            finally:
                gate.set()
        assert session.stats()["rejected"]["expired"] == 1
        assert session.stats()["accepted"] == 0


async def test_a_request_whose_tensors_are_being_computed_has_a_place_in_the_queue() -> None:
    gate = threading.Event()

    def late(array: Any) -> Any:
        gate.wait(30)
        return array

    options: dict[str, Any] = {"max_queue": 1, "concurrency": 1}
    async with (
        VirtualMachine("worker", cpu_worker="always"),
        InferenceSession(lambda x: x * 2, inputs=FIVE, graph=False, **options) as session,
    ):
        try:
            row = call(late, flow.ones(5), shape=(5,), cost=HEAVY)
            waiting = [asyncio.create_task(session.run(row)) for _ in range(2)]
            await asyncio.sleep(0)  # the tasks begin to wait: one may wait, and one may be computed
            with pytest.raises(Overloaded):
                await session.run(row)
            drained = asyncio.create_task(session.drain())
        finally:
            gate.set()
        assert [(await task).tolist() for task in waiting] == [[2.0] * 5] * 2
        await drained
    assert session.stats()["rejected"]["overloaded"] == 1


@pytest.fixture
async def quick(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[InferenceSession, Any, list[str]]]:
    """A session that computes where it is asked, however busy the machine is; its model, and how it is called."""
    net, calls = model(), []
    async with (
        VirtualMachine("hurrying", cpu_worker="auto", race_check=False),
        InferenceSession(net, inputs=FIVE, max_batch=4) as session,
    ):
        runner = session._runner
        monkeypatch.setattr(pace, "HERE_BELOW", 60.0)
        for size in runner.batch_sizes:
            runner._paces[size, ()] = Pace(0.0)
        call = runner._call

        def counting(inputs: Any) -> Any:
            calls.append("called")
            return call(inputs)

        monkeypatch.setattr(runner, "_call", counting)
        yield session, net, calls


Quick: TypeAlias = tuple[InferenceSession, Any, list[str]]


@pytest.mark.host
async def test_results_of_a_quick_graph_lie_in_memory_of_their_own(quick: Quick) -> None:
    session, net, _ = quick
    for together in (1, 2, 1, 4, 3, 3, 1, 2, 4) * 2:
        rows = samples(together)
        found = await asyncio.gather(*[session.run(row) for row in rows])
        np.testing.assert_allclose(found, await expected(net, rows), rtol=1e-5, atol=1e-6)
        kept = [value.copy() for value in found]
        found[0][:] = 0
        assert all([np.array_equal(a, b) for a, b in zip(found[1:], kept[1:], strict=True)])
        assert all([value.base is None for value in found])


@pytest.mark.host
async def test_a_failed_batch_is_tried_again_one_by_one(quick: Quick, monkeypatch: pytest.MonkeyPatch) -> None:
    session, _, calls = quick

    def failing(inputs: Any) -> Any:
        calls.append("failed")
        raise ArithmeticError("not today")

    monkeypatch.setattr(session._runner, "_call", failing)
    # A single request, and four that come together.
    for together in (1, 4):
        calls.clear()
        for outcome in await asyncio.gather(
            *[session.run(sample) for sample in samples(together)], return_exceptions=True
        ):
            assert isinstance(outcome, ArithmeticError)
    assert calls.count("failed") == 1 + (1 + 1 + 1 + 1 + 1)


@pytest.mark.host
async def test_a_size_for_which_the_machine_was_too_busy_at_first_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size, padding, row = 1, (), samples(1)[0]
    async with (
        VirtualMachine("hurrying", cpu_worker="auto", race_check=False),
        InferenceSession(model(), inputs=FIVE) as session,
    ):
        session._runner._paces[size, padding] = Pace(2 * pace.HERE_BELOW)
        monkeypatch.setattr(pace, "HERE_BELOW", 60.0)  # also if it is busy now
        for _ in range(pace.TRIED_AFTER):
            await session.run(row)
        assert not session._runner.computes_here(size, padding)
        await session.run(row)
        assert session._runner.computes_here(size, padding)
