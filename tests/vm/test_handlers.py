"""Signal handlers that compute: their results are usable immediately, at any point of interruption.

A handler runs where Python looks for signals: as a function is entered, and after a call of one that is written in C.
`sys.setprofile` tells of the same points, so that a test can call one at each of them in turn.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType, FunctionType
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow.graph_mode.program import Program
from vmflow.instructions.instruction import Instruction
from vmflow.instructions.op_call import op_call
from vmflow.vm import machine_fields, settings
from vmflow.vm.virtual_machine import default_machine

# Nothing runs in the middle of something else on a device, or where every access is to be watched.
pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(settings.race_check(None), reason="with the race check, nothing runs inline"),
]

Handler = Callable[[], object]


@pytest.fixture(params=["auto"])
def default(request: pytest.FixtureRequest) -> Iterator[flow.VirtualMachine]:
    """A default machine of the test's own."""
    before = machine_fields.DEFAULT[:]
    machine = flow.VirtualMachine("default", cpu_worker=request.param)
    machine_fields.DEFAULT[:] = [machine]
    yield machine
    machine_fields.DEFAULT[:] = before
    machine.engine.check_invariants()
    assert machine.engine.idle()
    machine.close()


def interrupted_at(number: int, body: Callable[[], object], handler: Handler) -> bool:
    """Run the body, and the handler at one of the points at which one may run; False if there are fewer."""
    points = 0
    thread = threading.get_ident()

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal points
        if event not in ("call", "c_return", "c_exception") or threading.get_ident() != thread:
            return
        points += 1
        if points == number + 1:
            handler()

    sys.setprofile(count)
    try:
        body()
    finally:
        sys.setprofile(None)
    return points > number


def at_every_point(make: Callable[[], tuple[Callable[[], object], Handler]], most: int = 4000) -> int:
    """Interrupt a body at each point in turn, after a run in which it imports; how many there were."""
    body, _ = make()
    body()
    for number in range(most):
        body, handler = make()
        if not interrupted_at(number, body, handler):
            return number
    pytest.fail(f"there are more than {most} points")


class Counter:
    """A handler that computes with tensors that are there, in place as well."""

    def __init__(self) -> None:
        self.known = flow.arange(4.0)
        self.count = flow.zeros(1)
        self.large = flow.ones(40_000)
        for tensor in (self.known, self.count, self.large):
            tensor.numpy()

    def __call__(self) -> None:
        self.count.add_(1)
        assert self.count.item() == 1
        assert (self.known * 2 + 1).sum().item() == 16
        assert (self.large + self.large).max().item() == 2
        assert flow.randn(3).isfinite().all().item()


def small_ops() -> tuple[Callable[[], object], Handler]:
    def body() -> None:
        x = flow.ones(3) * 2 + 1
        x.add_(1)
        assert x.tolist() == [4.0] * 3

    return body, Counter()


def turns() -> tuple[Callable[[], object], Handler]:
    """Instructions of several kinds, which the engine orders; results from the allocator among them."""

    def body() -> None:
        machine = default_machine()
        machine.observers.inline = False
        try:
            x = flow.ones(3)
            large = flow.ones(40_000) * 2
            for _ in range(3):
                x = x * 2
                x.add_(1)
            found = (x.sum() + large.sum()).item()
        finally:
            machine.observers.inline = True
        assert found == 45 + 80_000

    return body, Counter()


def training() -> tuple[Callable[[], object], Handler]:
    weight = flow.zeros(2, requires_grad=True)
    optimizer = flow.optim.SGD([weight], lr=1.0)

    def body() -> None:
        (weight * 3).sum().backward()
        optimizer.step()
        assert weight.tolist() == [-3.0, -3.0]
        with flow.no_grad():
            weight.zero_()
        optimizer.zero_grad()

    return body, Counter()


GRAPH = flow.nn.Graph.trace(lambda x: (x * 2).relu() + 1)


def graph_call() -> tuple[Callable[[], object], Handler]:
    given = flow.ones(3)

    def body() -> None:
        assert GRAPH(given).tolist() == [3.0] * 3

    return body, Counter()


def worker() -> tuple[Callable[[], object], Handler]:
    """The thread that is interrupted hands work to a worker, and waits for it."""

    def body() -> None:
        x = flow.ones(100, 100)
        assert (x @ x).max().item() == 100

    return body, Counter()


def coroutine() -> tuple[Callable[[], object], Handler]:
    """A loop drives a machine of its own."""
    counter = Counter()

    async def main() -> None:
        async with flow.VirtualMachine("own"):
            x = counter.known * 1
            for _ in range(3):
                x = x * 2
            assert (await x).tolist() == [0, 8, 16, 24]

    def handler() -> None:
        with suppress(flow.VirtualMachineClosed):  # at the end of the block, the machine takes nothing new
            counter()

    return lambda: asyncio.run(main()), handler


@pytest.mark.slow
@pytest.mark.parametrize("make", [small_ops, turns, training, graph_call])
def test_a_handler_may_come_anywhere(
    default: flow.VirtualMachine, make: Callable[[], tuple[Callable[[], object], Handler]]
) -> None:
    assert at_every_point(make) > 20


@pytest.mark.parametrize("default", ["always"], indirect=True)
def test_a_handler_may_come_anywhere_while_a_worker_computes(default: flow.VirtualMachine) -> None:
    assert at_every_point(worker) > 20


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::vmflow.errors.BlockingCallWarning")
def test_a_handler_may_come_anywhere_in_a_coroutine(default: flow.VirtualMachine) -> None:
    assert at_every_point(coroutine) > 20


@pytest.mark.slow
def test_a_result_that_a_handler_cannot_wait_for_raises_an_error(default: flow.VirtualMachine) -> None:
    """A read of the interrupted result, and a graph's call: right, or an immediate error; right afterwards."""
    refused: list[str] = []

    def make() -> tuple[Callable[[], object], Handler]:
        body, _ = turns()
        made: list[flow.Tensor] = [flow.ones(2)]
        expected = [1.0]

        def working() -> None:
            default.observers.inline = False
            try:
                for _ in range(3):
                    made.append(made[-1] * 2)
                    expected.append(expected[-1] * 2)
                body()
            finally:
                default.observers.inline = True
            for tensor, value in zip(made, expected, strict=False):
                assert tensor.tolist() == [value] * 2

        def handler() -> None:
            for graph in (False, True):
                try:
                    found: list[float] = (GRAPH(flow.ones(3)) if graph else made[-1]).tolist()
                    assert found[0] in ([3.0] if graph else [1.0, 2.0, 4.0, 8.0])
                except RuntimeError as error:
                    refused.append(str(error))

        return working, handler

    at_every_point(make)
    assert refused
    assert all(["cannot be waited for" in entry for entry in refused])


def raising_kernel(array: Any, out: Any) -> Any:
    """A kernel in the middle of which a signal comes."""
    signal.raise_signal(signal.SIGUSR1)
    return np.add(array, 1, out=out)


def issue_raising(source: flow.Tensor) -> flow.Tensor:
    """An op with that kernel."""
    result = flow.zeros(*source.shape)
    machine = default_machine()
    stream = machine.stream(source.device)
    reads = (machine.access(source._blob.storage, stream),)
    writes = (machine.access(result._blob.storage, stream),)
    policy = op_call("raises a signal", raising_kernel, (source._blob,), (result._blob,))
    machine.issue(Instruction(stream, policy, reads, writes), result._blob.storage)
    return result


@pytest.fixture
def handled() -> Iterator[list[float]]:
    """The results of a handler of SIGUSR1."""
    found: list[float] = []
    known = flow.ones(3)
    count = flow.zeros(1)

    def handler(number: int, frame: FrameType | None) -> None:
        count.add_(1)
        found.append((known * 2).sum().item() + count.item())

    before = signal.signal(signal.SIGUSR1, handler)
    yield found
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("hurries", [True, False])
def test_a_signal_in_a_kernel(default: flow.VirtualMachine, handled: list[float], hurries: bool) -> None:
    """Inline, and in a turn."""
    default.observers.inline = hurries
    results = [issue_raising(flow.ones(2)) for _ in range(2)]
    assert [result.tolist() for result in results] == [[2.0, 2.0]] * 2
    assert handled == [7.0, 8.0]


@pytest.mark.skipif(not isinstance(Program.run, FunctionType), reason="compiled functions cannot be replaced")
def test_a_signal_in_a_graph_call(
    default: flow.VirtualMachine, handled: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    GRAPH(flow.ones(3)).numpy()
    run: Callable[..., None] = Program.run

    def interrupted(self: Program, *arguments: Any) -> None:
        signal.raise_signal(signal.SIGUSR1)
        run(self, *arguments)

    monkeypatch.setattr(Program, "run", interrupted)
    assert GRAPH(flow.ones(3)).tolist() == [3.0] * 3
    assert handled == [7.0]


@pytest.mark.parametrize("default", ["always"], indirect=True)
def test_a_signal_while_waiting(default: flow.VirtualMachine, handled: list[float]) -> None:
    """The worker goes on when the handler, which runs on the thread that waits for it, has computed."""
    main = threading.main_thread().ident
    assert main is not None

    def kernel(array: Any, out: Any) -> Any:
        signal.pthread_kill(main, signal.SIGUSR1)
        return np.add(array, 1, out=out)

    source, result = flow.ones(2), flow.zeros(2)
    stream = default.stream(source.device)
    reads = (default.access(source._blob.storage, stream),)
    writes = (default.access(result._blob.storage, stream),)
    policy = op_call("raises a signal", kernel, (source._blob,), (result._blob,))
    default.issue(Instruction(stream, policy, reads, writes, 10**9), result._blob.storage)
    assert result.tolist() == [2.0, 2.0]
    assert handled == [7.0]


@pytest.mark.slow
def test_ctrl_c_is_heard_after_a_handler_has_computed_in_a_turn(default: flow.VirtualMachine) -> None:
    """A handler that drives, in the moment before a turn begins, leaves Ctrl-C as it was."""
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        at_every_point(turns)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
