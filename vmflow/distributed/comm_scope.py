"""`comm_scope`: gives a task an order of exchanges of its own."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from vmflow.streams.channel import Channel
from vmflow.streams.communication import CHANNEL

from .collectives import leave
from .meeting import said_by
from .order import ORDER, Order, check_timeout, current_order


class comm_scope:
    """A block whose exchanges with other ranks are in an order of their own.

        async def evaluate(model, batches):
            async with flow.comm_scope("evaluation"):
                ...

        async with asyncio.TaskGroup() as group:
            group.create_task(train(model))          # exchanges in the enclosing scope
            group.create_task(evaluate(model, ...))  # exchanges concurrently

    All ranks enter the same scopes; scopes of one name equally often and in the same order.  One task exchanges in a
    scope until that task has ended; another task's exchanges and ops of global tensors raise RuntimeError.  A task's
    cancellation, or a deadline of `scope`, on one rank does not end issued exchanges for the others.  But if an
    exception leaves the block, including `asyncio.CancelledError`, the exchanges of the scope that wait for this rank
    raise `CollectiveCancelled` on the others, or perhaps `PeerLost` if the exception ends this rank's program; without
    an exception, `PeerLost`.  ``with`` and ``async with`` do the same.

    Args:
        name: the same on all ranks; scopes that are open in one scope at the same time need different names.
        timeout: seconds after which an exchange in the block fails if not all ranks have started it; by default that of
            `simulate`.

    Raises:
        TypeError: if the name is no string, or the timeout no number.
        ValueError: for an empty name, one with a slash, or a timeout that is not positive.
        RuntimeError: on entering, if a scope of this name is open in the enclosing scope.

    Example:
        >>> def program():
        ...     with flow.comm_scope("evaluation"):
        ...         return flow.distributed.all_reduce(flow.ones(1)).item()
        >>> flow.distributed.simulate(program, ranks=2)
        [2.0, 2.0]
    """

    def __init__(self, name: str, timeout: float | None = None) -> None:
        if not isinstance(name, str):
            raise TypeError(f"comm_scope: the name must be a string, not {name!r}")
        if not name or "/" in name:
            raise ValueError(f"comm_scope: the name must not be empty, nor have a slash in it, as {name!r} has")
        if timeout is not None:
            check_timeout("comm_scope", timeout)
        self._name = name
        self._timeout = timeout
        self._entered: list[tuple[Order, Order, Channel | None]] = []

    def __enter__(self) -> Self:
        around = current_order()
        if self._name in around.inner:
            raise RuntimeError(
                f"comm_scope: {self._name!r} is entered already in {around}; scopes beside each other need different "
                "names"
            )
        around.inner.add(self._name)
        number = around.entered[self._name] = around.entered.get(self._name, 0) + 1
        path = f"{around.path}/{self._name}" if around.path else self._name
        order = Order(f"{path}#{number}", self._timeout)
        channel = CHANNEL.get()
        self._entered.append((around, order, channel))
        ORDER.set(order)
        if channel is not None:
            CHANNEL.set(channel.scoped(order.path, self._timeout))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        around, order, channel = self._entered.pop()
        try:
            if channel is not None:
                leave(order, "" if error is None else said_by(error))
        finally:
            around.inner.discard(self._name)
            ORDER.set(around if around.path else None)
            CHANNEL.set(channel)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)
