"""Arrays of dtypes that the array module knows only in part, as arrays of dtypes that it knows well."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from vmflow import dtypes

_BFLOAT16: Final = dtypes.bfloat16.numpy


def as_bits(array: Any) -> Any:
    """The same memory for work that only moves elements: integers of its size in place of bfloat16."""
    return array.view(np.uint16) if array.dtype == _BFLOAT16 else array


def comparable(array: Any) -> Any:
    """The array in a dtype that is sorted and compared: float32 in place of bfloat16, which is exact."""
    return array.astype(np.float32) if array.dtype == _BFLOAT16 else array


def widened(array: Any) -> Any:
    """float32 for the 16-bit dtypes, in which sums and squares lose too much; other arrays as they are."""
    is_half = array.dtype == _BFLOAT16 or array.dtype == np.float16
    return array.astype(np.float32) if is_half else array


def converted(array: Any, dtype: np.dtype[Any]) -> Any:
    """A copy in this dtype; of complex numbers the real part, where it holds no others."""
    if array.dtype.kind == "c" and dtype.kind not in "cb":
        array = array.real
    return array.astype(dtype)
