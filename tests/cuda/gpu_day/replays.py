"""Counts the calls of the devices' drivers, and records the reports of graphs on their replays."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, Final, final

from vmflow import nn
from vmflow.streams.cuda.registry import device_of, opened

_SYNCHRONIZING: Final = ("synchronize", "synchronize_stream", "synchronize_event")
_COUNTED: Final = ("launch", "launch_graph", "call", "multiply", "copy", "fill", "query", "record", *_SYNCHRONIZING)

# The word in all sentences about that.
_HOW: Final = " run "


@final
class Counted:
    """How often each method of `Driver` was called in the block of `replays`.

    Attributes:
        calls: by the name of the method.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    @property
    def graphs(self) -> int:
        """How many graphs were launched."""
        return self.calls["launch_graph"]

    @property
    def synchronizations(self) -> int:
        """How often the host waited."""
        return sum([self.calls[name] for name in _SYNCHRONIZING])


@contextmanager
def replays() -> Iterator[Counted]:
    """Count the calls in a block."""
    counted = Counted()
    device_of(0)  # opens all of them
    drivers = [device.driver for device in opened()]
    for driver in drivers:
        for name in _COUNTED:
            setattr(driver, name, _counting(getattr(driver, name), name, counted.calls))
    try:
        yield counted
    finally:
        for driver in drivers:
            for name in _COUNTED:
                delattr(driver, name)


def _counting(method: Callable[..., Any], name: str, calls: Counter[str]) -> Callable[..., Any]:
    def counting(*arguments: Any, **named: Any) -> Any:
        calls[name] += 1
        return method(*arguments, **named)

    return counting


@contextmanager
def told(graph: Any) -> Iterator[list[str]]:
    """The sentences in which a graph tells, in a block, how a device runs its ops; in the end, they are in the list.

    Args:
        graph: an `nn.Graph`; others tell nothing.
    """
    sentences: list[str] = []
    if not isinstance(graph, nn.Graph):
        yield sentences
        return
    graph.debug(0)
    with redirect_stdout(io.StringIO()) as printed:
        yield sentences
    sentences += [line for line in printed.getvalue().splitlines() if _HOW in line]
