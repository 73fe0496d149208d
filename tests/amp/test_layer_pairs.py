"""Layers that follow each other train under autocast: gradients arrive, in the right dtype, and graphs agree.

Here each layer and loss follows one that gives 16 bits, and each class of behaviour follows each other; all pairs:
``python -m tests.benchmarks.autocast_pairs``.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from vmflow import nn

from .layer_pairs import LOWER, Pair, behaviour, check, pair_of
from .layer_table import LAYERS, LOSSES, NOT_LAYERS, Entry

FIRST = LAYERS[0]


def test_every_layer_is_in_the_table() -> None:
    # A lazy layer becomes one of the others at its first call.
    classes = {name for name in dir(nn) if inspect.isclass(getattr(nn, name)) and not name.startswith("Lazy")}
    assert not classes - {entry.name for entry in (*LAYERS, *LOSSES)} - set(NOT_LAYERS)
    names = [str(entry) for entry in (*LAYERS, *LOSSES)]
    assert len(set(names)) == len(names)


ONE_LOWER = [LOWER[0], *[pytest.param(each, marks=pytest.mark.exhaustive) for each in LOWER[1:]]]


@pytest.mark.parametrize("lower", ONE_LOWER, ids=str)
@pytest.mark.parametrize("second", [entry for entry in (*LAYERS, *LOSSES) if not entry.words], ids=str)
def test_after_a_linear_layer(second: Entry, lower: Any) -> None:
    pair = pair_of(FIRST, second)
    assert pair is not None
    check(pair, lower)


@pytest.mark.parametrize("lower", ONE_LOWER, ids=str)
def test_each_class_of_behaviour_after_each_other(lower: Any) -> None:
    classes: dict[tuple[Any, ...], list[Entry]] = {}
    for entry in LAYERS:
        classes.setdefault(behaviour(entry), []).append(entry)
    assert len(classes) > 5
    for one, firsts in classes.items():
        for other, seconds in {**classes, ("loss",): LOSSES}.items():
            if any([entry.words for entry in seconds]):
                continue
            check(_some_pair(firsts, seconds, turn=len(one) + len(other)), lower)


def _some_pair(firsts: list[Entry], seconds: list[Entry], turn: int) -> Pair:
    """A pair of these, not always that of the first ones."""
    for place in range(len(firsts) * len(seconds)):
        first, second = firsts[(place + turn) % len(firsts)], seconds[place // len(firsts)]
        if (pair := pair_of(first, second)) is not None:
            return pair
    raise AssertionError(f"none of {', '.join(map(str, firsts))} can come before {', '.join(map(str, seconds))}")
