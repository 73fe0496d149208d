"""The table's rows (cases), grouped into families by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from tests.benchmarks.contenders import Company
from tests.benchmarks.family_large import chain, large
from tests.benchmarks.family_ordering import ordering
from tests.benchmarks.family_random import random
from tests.benchmarks.family_startup import startup
from tests.benchmarks.family_tiny import tiny
from tests.benchmarks.family_training import optimizer, training
from tests.benchmarks.measure import Case

FAMILIES: Final[dict[str, Callable[[Company], Iterator[Case]]]] = {
    "tiny": tiny,
    "large": large,
    "chain": chain,
    "random": random,
    "training": training,
    "optimizer": optimizer,
    "startup": startup,
    "ordering": ordering,
}


def chosen(company: Company, only: list[str]) -> Iterator[Case]:
    """Generate the cases whose family is in `only`, or whose own name contains a word in `only`; all if it is empty."""
    words = [value for value in only if value not in FAMILIES]
    for name, family in FAMILIES.items():
        if not only or words or name in only:
            for case in family(company):
                if not only or name in only or any(word in case.name for word in words):
                    yield case
