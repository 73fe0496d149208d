"""Names by which tensors are made."""

from __future__ import annotations

from typing import Final

from .case import Case

CASES: Final = [
    Case("tensor", lambda t: t.tensor([1.5, 2], pin_memory=False)),
]
