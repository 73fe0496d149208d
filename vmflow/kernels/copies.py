"""The entry point to the kernels that copy arrays: between devices, and within the memory of one device.

Kernels between devices read on one and write on another, and run on streams of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .choosing import Function

if TYPE_CHECKING:
    from vmflow.devices import device as Device
    from vmflow.instructions.blob import Array, TensorMeta


def copier(accelerator: Device) -> Function:
    """The kernel of copies from and to a device: ``kernel(array, ..., out)``, where `out` may be None for a new array.

    Args:
        accelerator: the device that is not the host; of two such devices, the target.
    """
    if accelerator.type != "cuda":
        return _copy
    from .cuda.transfers import copy_across  # not imported by programs without such a device

    return copy_across


def copy_into_pinned(array: Array, out: Array | None) -> Array:
    """A copy of an array of the host in page-locked memory."""
    from .cuda.transfers import copy_into_pinned as copy

    return copy(array, out)


def _copy(array: Array, *more: Array | None) -> Array:
    out = more[-1]
    if out is None:
        return array.copy(order="C")
    out[...] = array
    return out


# Within the memory of one device.  On a CUDA device the calling thread launches these kernels with its current
# launcher.


def view_at(memory: Array, offset: int, of: TensorMeta) -> Array:
    """The contiguous array that begins at this byte of an array of bytes."""
    shape, dtype = of.sizes, of.dtype.numpy
    if isinstance(memory, np.ndarray):
        return np.ndarray(shape, dtype, memory, offset)
    return memory.strided(shape, dtype, offset)


def assign(out: Array, array: Array) -> None:
    """Copy an array into another one of its shape, cast to the dtype of that."""
    if isinstance(out, np.ndarray):
        np.copyto(out, array, casting="unsafe")
    else:
        _on_cuda().assign(out, array)


def assign_number(out: Array, number: float) -> None:
    """Set the only element of a 0-d array."""
    if isinstance(out, np.ndarray):
        out[...] = number
    else:
        _on_cuda().copy_across(np.array(number, out.dtype), out)


def add_to(out: Array, array: Array) -> None:
    """Add an array to another one of its shape and dtype."""
    if isinstance(out, np.ndarray):
        np.add(out, array, out=out)
    else:
        _on_cuda().add_to(out, array)


def rows_of(array: Array, begin: int, end: int) -> Array:
    """Return the rows `begin` to `end` of a contiguous array, as a view."""
    if isinstance(array, np.ndarray):
        return array[begin:end]
    shape: Sequence[int] = array.shape
    return array.strided((end - begin, *shape[1:]), array.dtype, begin * array.strides[0])


def _on_cuda() -> Any:
    from .cuda import transfers  # not imported by programs without such a device

    return transfers
