"""The cancellation benchmark still runs and fills its tables; only figures that do not depend on time are checked."""

from __future__ import annotations

import pytest

from tests.benchmarks import cancellation

pytestmark = pytest.mark.host


def test_the_tables_are_filled() -> None:
    sizes = cancellation.Sizes(side=256, products=40, runs=3, timeout=0.002, forwards=10, ops=100)
    urgent, deadlines, cancelled = cancellation.run(sizes)
    assert len(urgent.rows) == 6
    assert len(deadlines.rows) == 3
    for table in (urgent, deadlines):
        for row in table.rows.values():
            assert all(isinstance(value, int | float) for value in row.values())
    assert cancelled.rows["inline on the loop"]["after max"] == 0
    after = cancelled.rows["on the worker"]["after max"]
    assert isinstance(after, int)
    assert after <= 1
