"""Functions for devices of all types, which copy arrays between devices, or view, copy and add arrays of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .choosing import Function

if TYPE_CHECKING:
    from vmflow.devices import device as Device
    from vmflow.instructions.blob import Array, TensorMeta


def copier(accelerator: Device) -> Function:
    """Return the kernel ``kernel(array, *ignored, out)``, which copies an array from or to a device into `out`.

    The kernel returns `out`; for a copy to the host, `out` may be None: then the kernel returns a new array.

    Args:
        accelerator: the device that is not the host; for a copy between two such devices, the target.
    """
    if accelerator.type != "cuda":
        return _copy
    from .cuda.transfers import copy_across  # imported here, so that programs without a CUDA device need not import it

    return copy_across


def copy_into_pinned(array: Array, out: Array | None) -> Array:
    """Return a copy of an array of the host in new page-locked memory; `out` is ignored."""
    from .cuda.transfers import copy_into_pinned as copy

    return copy(array, out)


def _copy(array: Array, *more: Array | None) -> Array:
    out = more[-1]
    if out is None:
        return array.copy(order="C")
    out[...] = array
    return out


# On a CUDA device, functions that write to arrays use the current launcher of the calling thread.


def view_at(memory: Array, offset: int, of: TensorMeta) -> Array:
    """Return the contiguous array, shaped and typed like `of`, at byte `offset` of `memory`, an array of bytes."""
    shape, dtype = of.sizes, of.dtype.numpy
    if isinstance(memory, np.ndarray):
        return np.ndarray(shape, dtype, memory, offset)
    return memory.strided(shape, dtype, offset)


def assign(out: Array, array: Array) -> None:
    """Copy `array` into `out`, which has its shape, cast to the dtype of `out`."""
    if isinstance(out, np.ndarray):
        np.copyto(out, array, casting="unsafe")
    else:
        _on_cuda().assign(out, array)


def assign_number(out: Array, number: float) -> None:
    """Set the only element of `out`, an array without dimensions, to `number`."""
    if isinstance(out, np.ndarray):
        out[...] = number
    else:
        _on_cuda().copy_across(np.array(number, out.dtype), out)


def add_to(out: Array, array: Array) -> None:
    """Add `array` to `out`, which has its shape and dtype, in place."""
    if isinstance(out, np.ndarray):
        np.add(out, array, out=out)
    else:
        _on_cuda().add_to(out, array)


def rows_of(array: Array, begin: int, end: int) -> Array:
    """Return rows `begin` to `end` - 1 of a contiguous array, as a view."""
    if isinstance(array, np.ndarray):
        return array[begin:end]
    shape: Sequence[int] = array.shape
    return array.strided((end - begin, *shape[1:]), array.dtype, begin * array.strides[0])


def _on_cuda() -> Any:
    from .cuda import transfers  # imported here, so that programs without a CUDA device need not import it

    return transfers
