"""Inspection of the namespace by the array API standard, version 2024.12."""

from __future__ import annotations

from typing import Any

import vmflow as flow
from vmflow import dtypes
from vmflow.context import MODE
from vmflow.devices import device as Device
from vmflow.dtypes import dtype as DType

from .data_types import isdtype

_STANDARD = (
    flow.bool_,
    flow.int8,
    flow.int16,
    flow.int32,
    flow.int64,
    flow.uint8,
    flow.uint16,
    flow.uint32,
    flow.uint64,
    flow.float32,
    flow.float64,
    flow.complex64,
    flow.complex128,
)


class Information:
    """The result of `__array_namespace_info__`."""

    def capabilities(self) -> dict[str, Any]:
        """The supported features: bool masks as indices, data-dependent shapes, and up to numpy's 64 dimensions."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        """The device of new tensors."""
        return MODE.get().device or Device("cpu")

    def default_dtypes(self, *, device: Device | None = None) -> dict[str, DType]:
        """The default dtypes, by kind."""
        return {
            "real floating": flow.get_default_dtype(),
            "complex floating": dtypes.of_scalar(complex),
            "integral": flow.int64,
            "indexing": flow.int64,
        }

    def devices(self) -> list[Device]:
        """The CPU, the simulated device, and the available CUDA devices."""
        return [Device("cpu"), Device("sim"), *[Device(f"cuda:{index}") for index in range(flow.cuda.device_count())]]

    def dtypes(self, *, device: Device | None = None, kind: str | tuple[str, ...] | None = None) -> dict[str, DType]:
        """The standard's dtypes by name; only those that belong to `kind` if it is not None."""
        return {dtype.name: dtype for dtype in _STANDARD if kind is None or isdtype(dtype, kind)}


def __array_namespace_info__() -> Information:
    """An object whose methods tell the capabilities, devices and dtypes of the namespace."""
    return Information()
