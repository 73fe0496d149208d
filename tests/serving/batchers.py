"""Batchers for tests: four samples at most in a batch, which begins without a wait, and eight waiting requests."""

from __future__ import annotations

from typing import Any

from vmflow.serving import Statistics
from vmflow.serving.batcher import Batcher


def batcher_of(compute: Any, statistics: Statistics | None = None, **about: Any) -> Batcher:
    """Return a batcher that computes by `compute`; `about` gives other settings."""
    settings: dict[str, Any] = {"most": 4, "places": 1, "wait": 0.0, "limit": 8, "limit_per_client": 8}
    statistics = statistics or Statistics()
    return Batcher(compute, statistics, statistics.batches, **(settings | about))
