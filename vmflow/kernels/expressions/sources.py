"""The source of the functions of one element, such as exp_f, that the expressions of `rules` call."""

from __future__ import annotations

from functools import cache


@cache
def elements() -> str:
    """Return the text of elements.h: functions of one element, in C and CUDA C++.

    Its first comment lists the definitions that the including source must have.
    """
    from pathlib import Path

    return Path(__file__).with_name("elements.h").read_text()
