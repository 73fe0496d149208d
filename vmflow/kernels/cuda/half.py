"""Half precision, which is computed in float32."""

from __future__ import annotations

from typing import Any

from vmflow import dtypes
from vmflow.kernels.numpy.half import computes_in as computes_in


def widened(array: Any, dtype: dtypes.dtype) -> Any:
    """The array in the dtype to compute in: float32 for half precision, else as it is.

    Args:
        array: of a device.
        dtype: of its elements.
    """
    return array.astype(dtypes.float32.numpy, copy=False) if dtypes.is_half(dtype) else array
