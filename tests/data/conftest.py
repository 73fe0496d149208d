"""After a test that uses `nothing_is_left`: no worker thread, process or file descriptor is left."""

from __future__ import annotations

import gc
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from multiprocessing import resource_tracker

import pytest

PATIENCE = 30.0  # far longer than anything takes; only a test that fails gets there


def descriptors() -> int:
    """How many file descriptors are open."""
    return len(os.listdir("/proc/self/fd"))


def join_workers() -> None:
    """Wait for the workers that were told to end; fail if one was not."""
    for thread in threading.enumerate():
        if thread.name.startswith("vmflow-data"):
            deadline = time.monotonic() + PATIENCE
            while thread.is_alive() and time.monotonic() < deadline:
                # The thread itself may have kept the objects alive during the last collection, on its way to its inbox.
                gc.collect()
                thread.join(0.1)
            assert not thread.is_alive(), f"{thread.name} was left behind"


@pytest.fixture
def nothing_is_left() -> Iterator[None]:
    # Python starts one for spawned processes and keeps it until it exits.
    resource_tracker.ensure_running()
    join_workers()
    before = descriptors()
    yield
    gc.collect()
    join_workers()
    assert multiprocessing.active_children() == []
    assert descriptors() == before
