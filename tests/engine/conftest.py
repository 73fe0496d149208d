"""Every script ends by letting all that it issued finish."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .bench import Bench


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.drain()
