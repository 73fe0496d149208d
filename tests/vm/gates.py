"""Ops made for a test, and gates: hold a machine in the middle of its work, and show the work that it ran."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow.context import MODE
from vmflow.devices import device as Device
from vmflow.instructions import Instruction, InstructionPolicy
from vmflow.instructions.blob import TensorMeta, meta
from vmflow.interpreter import dispatch
from vmflow.kernels.choosing import Kernel
from vmflow.ops.table import OPS, Attributes, Inferred, Kinds, Metas, OpExpr
from vmflow.vm.virtual_machine import VirtualMachine

# Far longer than anything here takes; only a test that fails gets there.
PATIENCE = 30.0

# An estimate that fills a CPU stream: nothing more is handed over before it has ended.
HEAVY = 600_000


def _infer(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    function, output, cost = attributes
    assert callable(function)
    assert isinstance(output, TensorMeta)
    assert isinstance(cost, int)

    def kernel(*arguments: Any) -> Any:
        *arrays, out = arguments
        result = np.empty(output.shape, output.dtype.numpy) if out is None else out
        found = function(*arrays)
        if found is not None:
            result[...] = found
        return result

    return Inferred(output, cost, Kernel(kernel))


_PLANTED = OpExpr("planted", _infer)
del OPS["planted"]  # the table has only vmflow's own ops


def call(
    function: Callable[..., object],
    *inputs: flow.Tensor,
    shape: tuple[int, ...] = (1,),
    cost: int = 0,
    device: str = "cpu",
) -> flow.Tensor:
    """A float32 tensor that ``function(*arrays of the inputs)`` computes, issued and run as the result of any op is.

    Args:
        function: called when the op's turn comes; its result, if not None, becomes the tensor's value.
        inputs: its operands.
        shape: of the result.
        cost: the estimate, in nanoseconds.
        device: where the result is.
    """
    output = meta(shape, flow.float32, Device(device))
    try:
        return dispatch(_PLANTED, inputs, (function, output, cost))
    finally:
        _PLANTED.forget()  # it would keep the function, and the objects that it refers to


class Call(InstructionPolicy):
    """The policy of an instruction that calls a function."""

    name = "call"

    def __init__(self, function: Callable[[], None]) -> None:
        self.function = function

    def compute(self) -> None:
        self.function()


def issue_call(machine: VirtualMachine, function: Callable[[], None], cost: int = 0) -> Instruction:
    """Issue an instruction that calls a function, on the compute stream of the CPU."""
    instruction = Instruction(machine.stream(flow.device("cpu")), Call(function), cost=cost)
    machine.issue(instruction)
    return instruction


class Gate:
    """An op that has begun, and does not end before the gate is opened.

    Attributes:
        tensor: its result, 1.
        begun: set when it runs.
        opened: set by `open`.
    """

    def __init__(self, cost: int = HEAVY) -> None:
        self.begun = threading.Event()
        self.opened = threading.Event()
        self.tensor = call(self._hold, cost=cost)

    def _hold(self) -> float:
        self.begun.set()
        if not self.opened.wait(PATIENCE):
            raise TimeoutError("nobody opened the gate")
        return 1.0

    def open(self) -> None:
        """Let the op end."""
        self.opened.set()

    async def reached(self) -> None:
        """Return when the op has begun; the loop goes on meanwhile."""
        assert await asyncio.to_thread(self.begun.wait, PATIENCE)


@contextmanager
def gate(cost: int = HEAVY) -> Iterator[Gate]:
    """A gate that is opened at the end of the block at the latest."""
    made = Gate(cost)
    try:
        yield made
    finally:
        made.open()


@contextmanager
def held(machine: VirtualMachine) -> Iterator[Gate]:
    """In plain code: `machine` is where everything in the block is issued, and its worker stands at a gate."""
    with entered(machine), gate() as made:
        assert made.begun.wait(PATIENCE)
        yield made


@contextmanager
def entered(machine: VirtualMachine) -> Iterator[VirtualMachine]:
    """In plain code: everything in the block is issued to `machine`, which is closed afterwards."""
    before = MODE.get().machine
    MODE.set(MODE.get().replace(machine=machine))
    try:
        yield machine
    finally:
        MODE.set(MODE.get().replace(machine=before))
        machine.close()


def eager(**options: Any) -> VirtualMachine:
    """A machine with a worker, on which plain code's instructions are launched immediately."""
    return VirtualMachine(**{"cpu_worker": "always", "gather": 1, **options})


async def turns(count: int = 5) -> None:
    """Let the loop go round a few times."""
    for _ in range(count):
        await asyncio.sleep(0)


@contextmanager
def listening(pattern: str, level: int = logging.WARNING) -> Iterator[Listener]:
    """Listen to vmflow's logger for messages that contain `pattern`."""
    listener = Listener(pattern, level)
    logger = logging.getLogger("vmflow")
    logger.addHandler(listener)
    try:
        yield listener
    finally:
        logger.removeHandler(listener)


class Listener(logging.Handler):
    """Remembers messages.

    Attributes:
        messages: those that contain the pattern.
        heard: set at the first of them.
        then: called at each of them, on the thread that logs.
    """

    def __init__(self, pattern: str, level: int) -> None:
        super().__init__(level)
        self.pattern = pattern
        self.messages: list[str] = []
        self.heard = threading.Event()
        self.then: Callable[[], None] = _nothing

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if self.pattern in message:
            self.messages.append(message)
            self.heard.set()
            self.then()


def _nothing() -> None:
    pass


def line_of(mark: str, path: str) -> int:
    """The number of the line of this file that ends with the comment ``# {mark}``."""
    with open(path) as source:
        return next(number for number, text in enumerate(source, 1) if text.rstrip().endswith(f"# {mark}"))


def in_thread(function: Callable[[], object]) -> Any:
    """Call `function` on a thread of its own; its result or exception becomes this call's."""
    results: list[Any] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(PATIENCE)
    if thread.is_alive():
        pytest.fail("the thread does not end")
    if errors:
        raise errors[0]
    return results[0]
