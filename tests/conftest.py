"""After every test: no engine contradicts itself, and nothing is left behind."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

import vmflow as flow
from vmflow.vm.virtual_machine import current_machine, live_machines


@pytest.fixture(autouse=True)
def _engines_are_sound() -> Iterator[None]:
    yield
    for machine in live_machines():
        machine.engine.check_invariants()
    machine = current_machine()
    machine.drain()
    machine.engine.check_invariants()
    assert machine.engine.idle()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    flow.manual_seed(0)


@pytest.fixture
def collected() -> Iterator[None]:
    """Collect garbage before and after, for tests that count objects."""
    gc.collect()
    yield
    gc.collect()
