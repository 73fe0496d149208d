"""Arrays of dtypes that the array module knows only in part, as arrays of dtypes that it knows well."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from vmflow import dtypes

_BFLOAT16: Final = dtypes.bfloat16.numpy


def widened(array: Any) -> Any:
    """float32 for the 16-bit dtypes, in which sums and squares lose too much; other arrays as they are."""
    is_half = array.dtype == _BFLOAT16 or array.dtype == np.float16
    return array.astype(np.float32) if is_half else array
