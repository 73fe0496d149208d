"""Calls of the C functions in random.c: random numbers of a counter-based generator by position, and sorted keys."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from vmflow.instructions.blob import Array

from .addresses import address
from .functions import WORTHWHILE, CFunction, function

DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "words": np.dtype(np.uint32),
    "uniform_floats": np.dtype(np.float32),
    "uniform_doubles": np.dtype(np.float64),
    "normal_floats": np.dtype(np.float32),
    "normal_doubles": np.dtype(np.float64),
    "kept": np.dtype(np.bool_),
    "integers": np.dtype(np.int64),
}


# A call for at least this many random numbers has the C library compiled.  Other ops need more elements, but with
# random numbers numpy takes many times as long as C.
_WORTHWHILE: Final = 1 << 8


def drawing(name: str, elements: int) -> CFunction | None:
    """Return a C function of random.c for a number of elements, or None if it may not be used now; see `function`."""
    return function(name, WORTHWHILE if elements >= _WORTHWHILE else 0)


def sort_keys(keys: Array, lowest: int) -> None:
    """Sort a vector of uint64 keys in place; by their bits below number `lowest` the keys are sorted already."""
    found = drawing("sort_keys", keys.size)
    if found is None:
        keys.sort()
    else:
        scratch = np.empty_like(keys)
        found.call(address(keys), address(scratch), keys.size, lowest)


def fill(drawn: CFunction, to: Array, first: int, seed: int, offset: int, further: tuple[Any, ...]) -> None:
    """Fill the contiguous array `to` with numbers of `drawn`, from number `first` of the seed's range at `offset` on.

    `further` are the last arguments of `drawn`.
    """
    drawn.call(address(to), first, to.size, seed, offset, *further)
