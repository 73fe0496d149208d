"""Where arrays begin."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

import numpy as np

# Where an array object keeps the address of its memory: behind what every object begins with.  To ask numpy by its
# public ways takes as long as computing a few thousand elements.
_FIELD: Final = object.__basicsize__


def _public_address(array: Any) -> int:
    found: int = array.__array_interface__["data"][0]
    return found


def _field_address(array: Any) -> int:
    return _Word.from_address(id(array) + _FIELD).value


_Word: Final = ctypes.c_ssize_t
_trial = np.arange(8)[3:]

# Where an array's first element is; it must be a numpy array.
address: Final[Callable[[Any], int]] = (
    _field_address if _field_address(_trial) == _public_address(_trial) else _public_address
)
