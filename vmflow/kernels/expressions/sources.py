"""The functions of one element that rules call."""

from __future__ import annotations

from functools import cache


@cache
def elements() -> str:
    """Their source; it lists the definitions that the text around it needs."""
    from pathlib import Path

    return Path(__file__).with_name("elements.h").read_text()
