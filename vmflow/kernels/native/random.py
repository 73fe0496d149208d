"""Calls of the C functions in random.c, which compute the random numbers of a counter-based generator by position."""

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


# The least random numbers of a call for which the C library is compiled; fewer than the elements of other ops, since
# numpy takes 10 times as long as C.
_WORTHWHILE: Final = 1 << 8


def drawing(name: str, elements: int) -> CFunction | None:
    """Return a C function of random.c, or None; if it is not loaded, `elements` decides whether it is compiled."""
    return function(name, WORTHWHILE if elements >= _WORTHWHILE else 0)


def sort_keys(keys: Array, lowest: int) -> None:
    """Sort 64-bit keys in place, which are already sorted by their bits below number `lowest`."""
    found = drawing("sort_keys", keys.size)
    if found is None:
        keys.sort()
    else:
        scratch = np.empty_like(keys)
        found.call(address(keys), address(scratch), keys.size, lowest)


def fill(drawn: CFunction, to: Array, first: int, seed: int, offset: int, further: tuple[Any, ...]) -> None:
    """Fill the contiguous array `to` with numbers of a C function, from number `first` of the range at `offset` on.

    `further` are the function's last arguments.
    """
    drawn.call(address(to), first, to.size, seed, offset, *further)
