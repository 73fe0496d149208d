"""Names by which tensors are made."""

from __future__ import annotations

from typing import Final

from .case import Case

CASES: Final = [
    Case("tensor", lambda t: t.tensor([1.5, 2], pin_memory=False)),
    Case("e", lambda t: [type(t.e).__name__, t.e, t.log(t.tensor(t.e, dtype=t.float64))]),
    Case("inf", lambda t: [type(t.inf).__name__, t.inf, t.full((2,), -t.inf)]),
    Case("nan", lambda t: [type(t.nan).__name__, t.nan, t.tensor([t.nan, 1]).isnan()]),
    Case("newaxis", lambda t: [t.newaxis, t.arange(3)[:, t.newaxis], t.ones(2, 2)[t.newaxis, ..., t.newaxis]]),
    Case("pi", lambda t: [type(t.pi).__name__, t.pi, t.cos(t.tensor(t.pi, dtype=t.float64))]),
]
