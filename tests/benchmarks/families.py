"""Which rows there are, by family."""

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
    """The cases of the families named, and those whose own names contain one of the words; all if there are none."""
    words = [value for value in only if value not in FAMILIES]
    for name, family in FAMILIES.items():
        if not only or words or name in only:
            for case in family(company):
                if not only or name in only or any(word in case.name for word in words):
                    yield case
