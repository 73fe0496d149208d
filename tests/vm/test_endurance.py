"""Memory after many instructions is the same as before."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from itertools import pairwise

import pytest

import vmflow as flow
from vmflow.context import MODE
from vmflow.vm.story import Story
from vmflow.vm.virtual_machine import current_machine


def chain() -> None:
    x = flow.zeros(4)
    for _ in range(1000):
        x = x + 1
    x.tolist()


def reads_of_one() -> None:
    """A parameter that everything reads and nothing writes."""
    parameter = flow.ones(4)
    for _ in range(1000):
        parameter * 2
    flow.synchronize()


def training() -> None:
    weight = flow.ones(4, requires_grad=True)
    for _ in range(100):
        (weight * 2).exp().sum().backward()
        with flow.no_grad():
            assert weight.grad is not None
            weight -= weight.grad * 0.001
            weight.grad = None
    weight.tolist()


def failures() -> None:
    for _ in range(100):
        bad = flow.gather(flow.ones(3), 0, flow.tensor([7])) + 1
        with pytest.raises(IndexError):
            bad.tolist()


def settle() -> None:
    """Let everything go that nobody needs."""
    flow.synchronize()
    gc.collect()
    flow.memory_stats()  # takes back the memory that destructors have left
    flow.synchronize()


@pytest.mark.slow
@pytest.mark.parametrize("work", [chain, reads_of_one, training, failures])
def test_memory_is_flat(work: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    # The story is bounded, but its size varies with the last turns.
    monkeypatch.setattr(current_machine().engine, "story", Story(0))
    tracemalloc.start()
    try:
        for _ in range(3):  # fills the caches
            work()
        sizes: list[int] = []
        on_host = MODE.get().device is None
        for _ in range(3 if on_host else 5):
            settle()
            sizes.append(tracemalloc.get_traced_memory()[0])
            for _ in range(5):
                work()
    finally:
        tracemalloc.stop()
    grown = [later - earlier for earlier, later in pairwise(sizes)]
    # One more kilobyte for each of the five rounds would be one byte for each instruction.  On another device than the
    # host, a table may grow now and then; a leak of each instruction would make it grow each time.
    worst = max(grown) if on_host else min(grown)
    assert worst < 5_000, f"{grown} bytes more after each five rounds"
    assert current_machine().engine.idle()
