"""Unsigned integers of more than eight bits."""

from __future__ import annotations

from typing import Final

from .case import Case

CASES: Final = [
    Case("uint16", lambda lib: lib.tensor([1, 65535], dtype=lib.uint16)),
    Case("uint32", lambda lib: lib.tensor([1, 2**32 - 1], dtype=lib.uint32)),
    Case("uint64", lambda lib: lib.tensor([1, 2**64 - 1], dtype=lib.uint64)),
    Case("uint64", lambda lib: lib.full((2,), 2**63, dtype=lib.uint64).to(lib.float64)),
    Case("uint16", lambda lib: lib.tensor([1, 65535], dtype=lib.uint16) + 1.5),
    Case("uint32", lambda lib: lib.tensor([1, 2**32 - 1], dtype=lib.uint32).sum()),
    Case("uint16", lambda lib: lib.tensor([3, 1, 65535], dtype=lib.uint16).sort().values),
    Case("promote_types", lambda lib: lib.zeros(2, dtype=lib.promote_types(lib.uint16, lib.float16))),
]
