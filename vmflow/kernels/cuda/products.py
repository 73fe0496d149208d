"""Products of matrices."""

from __future__ import annotations

from typing import Any

from vmflow import dtypes
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher


def multiply(launcher: Launcher, left: DeviceArray, right: DeviceArray, out: DeviceArray) -> None:
    """The products of batches of matrices, into a contiguous array; see `multiply_arrays`."""
    launcher.call("matmul", multiply_arrays, (left, right), (out,))


def multiply_arrays(xp: Any, left: Any, right: Any, out: Any) -> None:
    """The matrix product, computed in float32 if the result is of half precision."""
    if out.dtype in (dtypes.float16.numpy, dtypes.bfloat16.numpy):
        product = xp.matmul(left.astype("float32"), right.astype("float32"))
        xp.copyto(out, product, casting="unsafe")
    else:
        xp.matmul(left, right, out=out)
