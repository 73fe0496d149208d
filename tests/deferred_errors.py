"""One program for each way in which an error comes later than the line that is to blame."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import vmflow as flow
from tests.vm.gates import call, eager, entered, held
from vmflow import nn
from vmflow.serving import InferenceSession, TensorSpec
from vmflow.utils.data import DataLoader, Dataset
from vmflow.vm.stream_table import device_memory
from vmflow.vm.virtual_machine import VirtualMachine

MIB = 2**20


def an_op() -> None:
    loss = nn.functional.cross_entropy(flow.randn(3, 4), flow.tensor([1, 2, 9]))  # to blame: an_op
    loss.item()  # looks: an_op


def a_dependent_op() -> None:
    row = flow.gather(flow.ones(3), 0, flow.tensor([7]))  # to blame: a_dependent_op
    ((row * 2).sum() + 1).tolist()  # looks: a_dependent_op


def awaited() -> None:
    async def program() -> None:
        await flow.gather(flow.ones(3), 0, flow.tensor([7]))  # looks: awaited

    asyncio.run(program())


def no_memory() -> None:
    with entered(VirtualMachine("small")):
        flow.set_memory_limit(device_memory(flow.device("cpu")).used + 8 * MIB, "cpu")
        try:
            large = flow.zeros(2**40, device="cpu")  # to blame: no_memory
            large.numpy()  # looks: no_memory
        finally:
            flow.set_memory_limit(None, "cpu")


def a_cancelled_scope() -> None:
    with held(eager()), flow.scope(name="given up") as scope:
        dropped = flow.ones(3) + 1
        scope.cancel()
        dropped.numpy()  # looks: a_cancelled_scope


def a_scope_with_a_reason() -> None:
    with held(eager()), flow.scope() as scope:
        dropped = flow.ones(3) + 1
        scope.cancel(ValueError("the reason"))
        dropped.numpy()  # looks: a_scope_with_a_reason


def a_deadline() -> None:
    with held(eager()), flow.scope(deadline=time.monotonic()):
        dropped = flow.ones(3) + 1
        dropped.numpy()  # looks: a_deadline


def a_closed_machine() -> None:
    machine = eager()
    with held(machine) as gate:
        dropped = gate.tensor + 1
        machine.abort()
        dropped.numpy()  # looks: a_closed_machine


def backward() -> None:
    x = flow.ones(3, requires_grad=True)
    flow.gather(x * 2, 0, flow.tensor([9])).sum().backward()  # to blame: backward
    assert x.grad is not None
    x.grad.numpy()  # looks: backward


def a_user_function_of_backward() -> None:
    class Broken(flow.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: flow.Tensor) -> flow.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: flow.Tensor) -> flow.Tensor:
            places = flow.tensor([5, 5, 5])
            wrong: flow.Tensor = flow.gather(gradient, 0, places)  # to blame: a_user_function_of_backward
            return wrong

    x = flow.ones(3, requires_grad=True)
    Broken.apply(x).sum().backward()
    assert x.grad is not None
    x.grad.tolist()  # looks: a_user_function_of_backward


class Lookup(nn.Graph):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(4, 2)

    def build(self, ids: flow.Tensor) -> Any:
        return self.table(ids).sum()  # to blame: a_graph


def a_graph() -> None:
    Lookup()(flow.tensor([0, 9])).item()  # looks: a_graph


class Broken(Dataset[Any]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return flow.ones(3)[flow.tensor([index + 2])].numpy()  # to blame: a_loader


def a_loader() -> None:
    for _ in DataLoader(Broken(), batch_size=2):  # looks: a_loader
        pass


def a_loader_with_threads() -> None:
    for _ in DataLoader(Broken(), batch_size=2, num_workers=1, worker_kind="thread"):  # looks: a_loader_with_threads
        pass


def a_loader_with_processes() -> None:
    for _ in DataLoader(Broken(), batch_size=2, num_workers=1, worker_kind="process"):  # looks: a_loader_with_processes
        pass


def serving() -> None:
    def model(ids: flow.Tensor) -> flow.Tensor:
        return flow.arange(4.0)[ids]  # to blame: serving

    async def program() -> None:
        async with InferenceSession(model, inputs=TensorSpec((1,), flow.int64), graph=False) as session:
            await session.run([9])  # looks: serving

    asyncio.run(program())


def a_kernel_with_a_cause() -> None:
    """Several tracebacks in a chain, of a kernel with cells, arguments and nested functions."""

    def kernel(*given: Any, scale: int = 2) -> Any:
        values = [scale * number for number in range(3)]

        def inner() -> Any:
            return values[7], given

        try:
            return inner()
        except IndexError as error:
            raise LookupError("planted") from error

    call(kernel).numpy()  # looks: a_kernel_with_a_cause


PROGRAMS: tuple[Callable[[], None], ...] = (
    an_op,
    a_dependent_op,
    awaited,
    no_memory,
    a_cancelled_scope,
    a_scope_with_a_reason,
    a_deadline,
    a_closed_machine,
    backward,
    a_user_function_of_backward,
    a_graph,
    a_loader,
    a_loader_with_threads,
    a_loader_with_processes,
    serving,
    a_kernel_with_a_cause,
)


def raised_by(program: Callable[[], None]) -> BaseException:
    """The error, with the traceback of whoever called."""
    try:
        program()
    except Exception as error:
        return error
    raise AssertionError(f"{program.__name__} raised nothing")


def line_that_looks(program: Callable[[], None]) -> str:
    """The text of the line of `program` that looks at the result."""
    return _lines_with(f"# looks: {program.__name__}")[0][1]


def places_to_blame(program: Callable[[], None]) -> tuple[str, ...]:
    """How an error tells the line that is to blame, if one is marked: its text in a traceback, its place in a note."""
    found = _lines_with(f"# to blame: {program.__name__}")
    return (found[0][1], f"{__file__}:{found[0][0]}, in") if found else ()


def _lines_with(mark: str) -> list[tuple[int, str]]:
    with open(__file__) as source:
        return [(number, line.strip()) for number, line in enumerate(source, 1) if line.rstrip().endswith(mark)]
