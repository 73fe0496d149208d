"""The door to the kernels that copy between the host and another device, or into page-locked memory.

Unlike ops they read on one device and write on another, and run on streams of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .choosing import Function

if TYPE_CHECKING:
    from vmflow.devices import device as Device
    from vmflow.instructions.blob import Array


def copier(accelerator: Device) -> Function:
    """The kernel of copies from and to a device: ``kernel(array, ..., out)``, where `out` may be None for a new array.

    Args:
        accelerator: the device that is not the host, or the one that is copied to.
    """
    if accelerator.type != "cuda":
        return _copy
    from .cuda.transfers import copy_across  # which programs without such a device do without

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
