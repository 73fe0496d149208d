"""The functions of one element that rules call."""

from __future__ import annotations

from functools import cache


@cache
def elements() -> str:
    """Their source; see there for what the text around it has to define."""
    from pathlib import Path

    return Path(__file__).with_name("elements.h").read_text()
