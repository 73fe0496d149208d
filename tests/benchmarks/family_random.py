"""The cost of random numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

import vmflow as flow
from tests.benchmarks.contenders import Company
from tests.benchmarks.measure import EAGER, Bar, Case
from tests.benchmarks.models import finish, repeated

# The approximate count of random numbers that a contender draws in one turn.
TURN: Final = 10_000_000

# By function, the largest ratio to numpy's time, for a million numbers, that is good enough.
DRAWS: Final = {"rand": 1.0, "randn": 0.6, "dropout": None}


def random(company: Company) -> Iterator[Case]:
    """Generate the cases of uniform numbers, normal numbers and dropout, for small and large tensors."""
    for size in (10, 100) if company.quick else (1_000, 1_000_000, 10_000_000):
        for name, share in DRAWS.items():
            yield _draw(company, name, size, share)


def _draw(company: Company, name: str, size: int, share: float | None) -> Case:
    count = 1 if company.quick else max(1, TURN // max(size, 10_000))
    contenders: dict[str, Callable[[], Any]] = {}
    x = flow.ones(size)
    ours = {
        "rand": lambda: flow.rand(size),
        "randn": lambda: flow.randn(size),
        "dropout": lambda: flow.nn.functional.dropout(x, 0.3),
    }
    contenders[EAGER] = repeated(ours[name], count, finish)
    if company.numpy and share is not None:
        generator = np.random.default_rng(0)
        draw = generator.random if name == "rand" else generator.standard_normal
        contenders["numpy"] = repeated(lambda: draw(size, np.float32), count)
    if company.torch is not None:
        torch, ones = company.torch, company.torch.ones(size)
        theirs = {
            "rand": lambda: torch.rand(size),
            "randn": lambda: torch.randn(size),
            "dropout": lambda: torch.nn.functional.dropout(ones, 0.3),
        }
        contenders["torch"] = repeated(theirs[name], count)
    bars = (Bar(1.0), *([] if share is None or size != 1_000_000 else [Bar(share, to="numpy")]))
    return Case(f"{name}, {size:,} elements", contenders, count, bars=bars)
