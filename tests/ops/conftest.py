"""Fixtures of the op tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .oracle import KernelContract


@pytest.fixture
def contract() -> Iterator[KernelContract]:
    """Every kernel that runs in the test is checked against what a machine relies on."""
    with KernelContract().entered() as entered:
        yield entered
