"""Copies between the host and a device, between devices, and within the memory of one."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from vmflow.dtypes import by_name
from vmflow.instructions.blob import Array
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.driver import Driver
from vmflow.streams.cuda.launching import current
from vmflow.streams.cuda.pinned import lies_pinned
from vmflow.streams.cuda.registry import device_of

from .generated import single
from .pointwise import copy_array, launch_pointwise


def copy_across(array: Array, *more: Array | None) -> Array:
    """Copy an array across devices to ``more[-1]``, or, if that is None, to a new page-locked array of the host.

    Copies from and to the host go through page-locked memory, unless the source is a contiguous array in such memory:
    only from and to page-locked memory can a device copy while the host goes on.
    """
    out = more[-1]
    launcher = current()
    if isinstance(array, DeviceArray) and isinstance(out, DeviceArray):
        launcher.copy(out, array)
        return out
    if isinstance(array, DeviceArray):
        return _to_host(array, out)
    assert isinstance(out, DeviceArray)
    driver = launcher.driver
    if lies_pinned(array) and array.flags.c_contiguous:
        launcher.copy(out, array)
        return out
    staged = launcher.device.pinned.array(out.shape, out.dtype)
    driver.host_access(staged, write=True)
    np.copyto(staged, array)
    launcher.copy(out, staged)
    return out


def copy_into_pinned(array: Array, out: Array | None) -> Array:
    """Return a copy of a host's array in new page-locked memory; `out` is ignored."""
    device = device_of(0)  # page-locked memory serves all devices
    pinned = device.pinned.array(array.shape, array.dtype)
    device.driver.host_access(pinned, write=True)
    np.copyto(pinned, array)
    return pinned


def assign(out: DeviceArray, array: DeviceArray) -> None:
    """Copy `array` to `out`, an array of the same shape, cast to the dtype of `out`."""
    copy_array(current(), array, out)


def add_to(out: DeviceArray, array: DeviceArray) -> None:
    """Add `array` to `out`, an array of the same shape and dtype, in place."""
    dtype = by_name(out.dtype.name)
    function = single("add", [dtype.name] * 2, 0, range(2), dtype, dtype)
    if function is None:
        raise NotImplementedError(f"arrays of {dtype.name} cannot be added on a CUDA device")
    launch_pointwise(current(), function, (out, array), (), (out,))


def _to_host(array: DeviceArray, out: Array | None) -> Array:
    launcher = current()
    landed = launcher.device.pinned.array(array.shape, array.dtype)
    launcher.copy(landed, array)
    launcher.check(partial(_land, launcher.driver, landed, out))
    return landed if out is None else out


def _land(driver: Driver, landed: np.ndarray[Any, Any], out: Array | None) -> Exception | None:
    """Copy the page-locked array to `out`, unless that is None, once the device has written it; return the error if the
    device's copy failed, else None.
    """
    try:
        driver.host_access(landed, write=False)
    except Exception as error:
        return error
    if out is not None:
        np.copyto(out, landed)
    return None
