"""Calls of the functions in random.c: random numbers by index."""

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


# numpy takes 10 times as long as C for so many numbers, so fewer are worth compiling for than with other ops.
_WORTHWHILE: Final = 1 << 8


def drawing(name: str, elements: int) -> CFunction | None:
    """A C function for so many random numbers; None if C has none now."""
    return function(name, WORTHWHILE if elements >= _WORTHWHILE else 0)


def sort_keys(keys: Array, lowest: int) -> None:
    """Sort 64-bit keys in place, which are already in the order of the bits below `lowest`."""
    found = drawing("sort_keys", keys.size)
    if found is None:
        keys.sort()
    else:
        scratch = np.empty_like(keys)
        found.call(address(keys), address(scratch), keys.size, lowest)


def fill(drawn: CFunction, to: Array, first: int, seed: int, offset: int, further: tuple[Any, ...]) -> None:
    """Fill a contiguous array with the random numbers of index `first` and following."""
    drawn.call(address(to), first, to.size, seed, offset, *further)
