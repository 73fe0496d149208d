"""Counts what is asked of the devices' drivers, whichever they are, and tells why graphs were not replayed."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, final

from vmflow.kernels.cuda.replay import Replay
from vmflow.streams.cuda.registry import device_of, opened

_SYNCHRONIZING: Final = ("synchronize", "synchronize_stream", "synchronize_event")
_COUNTED: Final = ("launch", "launch_graph", "call", "multiply", "copy", "fill", "query", "record", *_SYNCHRONIZING)


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


def refusals() -> list[str]:
    """Why graphs that are alive are not replayed, each reason once."""
    found = {it.refusal for it in gc.get_objects() if isinstance(it, Replay) and it.refusal is not None}
    return sorted(found)
