"""Grad modes in all forms: blocks, calls, and decorators of functions, generators, coroutines and async generators."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, Protocol, TypeVar

import pytest

import vmflow as flow

pytestmark = pytest.mark.host

State = tuple[bool, bool]
Function = TypeVar("Function", bound=Callable[..., Any])


class Decorate(Protocol):
    def __call__(self, function: Function, /) -> Function: ...


def state() -> State:
    return flow.is_grad_enabled(), flow.is_inference_mode_enabled()


# By name, a decorator, and the state within decorated functions.
DECORATORS: dict[str, tuple[Any, State]] = {
    "no_grad": (flow.no_grad, (False, False)),
    "no_grad()": (flow.no_grad(), (False, False)),
    "inference_mode": (flow.inference_mode, (False, True)),
    "inference_mode()": (flow.inference_mode(), (False, True)),
    "inference_mode(True)": (flow.inference_mode(True), (False, True)),
    "inference_mode(mode=False)": (flow.inference_mode(mode=False), (True, False)),
    "enable_grad": (flow.enable_grad, (True, False)),
    "enable_grad()": (flow.enable_grad(), (True, False)),
}


@pytest.fixture(params=DECORATORS)
def decorator(request: pytest.FixtureRequest) -> tuple[Decorate, State]:
    return DECORATORS[request.param]


def test_of_functions(decorator: tuple[Decorate, State]) -> None:
    decorate, within = decorator

    @decorate
    def called(number: int, *, other: int) -> tuple[State, int]:
        """The docstring."""
        return state(), number + other

    before = state()
    assert called(1, other=2) == (within, 3)
    assert state() == before
    assert (called.__name__, called.__doc__) == ("called", "The docstring.")


def test_a_function_that_raises_or_calls_itself(decorator: tuple[Decorate, State]) -> None:
    decorate, within = decorator

    @decorate
    def called(depth: int) -> None:
        assert state() == within
        if depth:
            with pytest.raises(KeyError):
                called(depth - 1)
        assert state() == within
        raise KeyError(depth)

    with pytest.raises(KeyError):
        called(3)
    assert state() == (True, False)


def test_of_methods_and_partial_functions(decorator: tuple[Decorate, State]) -> None:
    decorate, within = decorator

    class Owner:
        @decorate
        def method(self) -> State:
            return state()

        @classmethod
        @decorate
        def of_class(cls) -> State:
            return state()

        @staticmethod
        @decorate
        def alone() -> State:
            return state()

    assert [Owner().method(), Owner.of_class(), Owner.alone()] == [within] * 3

    def pair(first: int, second: int) -> tuple[State, int]:
        return state(), first - second

    assert decorate(functools.partial(pair, 5))(2) == (within, 3)


def test_of_generators(decorator: tuple[Decorate, State]) -> None:
    decorate, within = decorator
    seen: list[State] = []

    @decorate
    def steps() -> Generator[int, int | None, str]:
        try:
            for number in range(3):
                seen.append(state())
                got = yield number
                seen.append(state())
                assert got is None or got == 10 * number
        except KeyError:
            seen.append(state())
            yield -1
        finally:
            seen.append(state())
        return "done"

    running = steps()
    assert next(running) == 0
    assert state() == (True, False)
    assert running.send(0) == 1
    assert state() == (True, False)
    assert running.throw(KeyError) == -1
    with pytest.raises(StopIteration) as ended:
        next(running)
    assert ended.value.value == "done"
    given_up = steps()
    next(given_up)
    given_up.close()
    assert state() == (True, False)
    assert set(seen) == {within}


async def test_of_coroutines(decorator: tuple[Decorate, State]) -> None:
    decorate, within = decorator
    seen: list[State] = []

    @decorate
    async def work(steps: int) -> int:
        for _ in range(steps):
            seen.append(state())
            await asyncio.sleep(0)
            seen.append(state())
        return steps

    # As a part of this task, where everything between its steps is another's; and as tasks side by side.
    assert await work(2) == 2
    assert state() == (True, False)
    watched: list[State] = []

    async def watch() -> None:
        for _ in range(5):
            watched.append(state())
            await asyncio.sleep(0)

    await asyncio.gather(work(3), watch(), work(4))
    assert set(seen) == {within}
    assert set(watched) == {(True, False)}


async def test_a_coroutine_that_is_cancelled_leaves_nothing(decorator: tuple[Decorate, State]) -> None:
    decorate, within = decorator
    last: list[State] = []

    @decorate
    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            last.append(state())

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(work(), 0.001)
    assert last == [within]
    assert state() == (True, False)


async def test_of_async_generators(decorator: tuple[Decorate, State]) -> None:
    decorate, within = decorator
    seen: list[State] = []

    @decorate
    async def steps() -> AsyncGenerator[int, None]:
        try:
            for number in range(3):
                await asyncio.sleep(0)
                seen.append(state())
                yield number
        finally:
            seen.append(state())

    async for number in steps():
        assert state() == (True, False)
        if number == 1:
            break
    running = steps()
    assert [number async for number in running] == [0, 1, 2]
    given_up = steps()
    await anext(given_up)
    await given_up.aclose()
    assert state() == (True, False)
    assert set(seen) == {within}


def test_blocks_and_their_nesting() -> None:
    with flow.inference_mode():
        assert state() == (False, True)
        with flow.enable_grad():
            assert state() == (True, True)
        with flow.inference_mode(False):
            assert state() == (True, False)
        assert state() == (False, True)
    with flow.no_grad(), flow.inference_mode(mode=False):
        assert state() == (True, False)
    assert state() == (True, False)


def test_one_object_in_several_blocks() -> None:
    def set_grad() -> Any:
        return flow.set_grad_enabled(False)

    for make in (flow.no_grad, flow.inference_mode, set_grad):
        mode = make()
        with mode:
            assert not flow.is_grad_enabled()
        with mode:
            assert not flow.is_grad_enabled()
        assert flow.is_grad_enabled()


def test_a_plain_call() -> None:
    flow.set_grad_enabled(False)
    try:
        assert not flow.is_grad_enabled()
    finally:
        flow.set_grad_enabled(True)
    assert flow.is_grad_enabled()


def test_one_mode_set_in_nested_blocks() -> None:
    mode = flow.set_grad_enabled(False)
    flow.set_grad_enabled(True)
    with mode:
        with flow.enable_grad(), mode:
            assert not flow.is_grad_enabled()
        assert not flow.is_grad_enabled()
    assert flow.is_grad_enabled()


def test_another_thread_begins_with_gradients() -> None:
    found: list[State] = []
    with flow.inference_mode():
        thread = threading.Thread(target=lambda: found.append(state()))
        thread.start()
        thread.join()
    assert found == [(True, False)]


def test_inference_mode_makes_ordinary_tensors() -> None:
    x = flow.ones(2, requires_grad=True)
    with flow.inference_mode():
        factor = x + 1
    assert not factor.requires_grad
    (x * factor).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2]


@pytest.mark.parametrize("mode", [flow.no_grad, flow.inference_mode, flow.enable_grad, flow.set_grad_enabled(True)])
def test_a_class_is_decorated_with_a_warning(mode: Any) -> None:
    class Made:
        def __init__(self, number: int) -> None:
            self.state, self.number = state(), number

    with pytest.warns(FutureWarning, match="decorate __init__"):
        decorated = mode(Made)
    made = decorated(3)
    assert isinstance(made, Made)
    assert (made.state[0], made.number) == (mode in (flow.enable_grad,) or isinstance(mode, flow.set_grad_enabled), 3)


def test_only_functions_can_be_decorated() -> None:
    with pytest.raises(TypeError, match="decorates functions, not int"):
        flow.no_grad(3)  # type: ignore[arg-type]


def test_the_number_of_threads_of_a_backward_pass_is_of_no_account() -> None:
    def called() -> bool:
        return flow.is_grad_enabled()

    x = flow.ones(2, requires_grad=True)
    flow.autograd.set_multithreading_enabled(True)
    with flow.autograd.set_multithreading_enabled(False):
        (x * 3).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3, 3]
    assert flow.autograd.set_multithreading_enabled(False)(called)()


def test_anomalies_are_detected_within_a_block_and_between_calls() -> None:
    assert not flow.is_anomaly_enabled()
    with flow.autograd.set_detect_anomaly(True):
        assert flow.is_anomaly_enabled()
        with flow.autograd.detect_anomaly(check_nan=False):
            assert not flow.is_anomaly_check_nan_enabled()
        with flow.autograd.set_detect_anomaly(True, check_nan=False):
            assert not flow.is_anomaly_check_nan_enabled()
        assert flow.is_anomaly_enabled()
    assert not flow.is_anomaly_enabled()
