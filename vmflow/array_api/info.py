"""What this namespace can do, by the array API standard."""

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
    """What `__array_namespace_info__` returns."""

    def capabilities(self) -> dict[str, Any]:
        """Masks as indices and shapes that depend on data work; numpy allows 64 dimensions."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        """Where new tensors are."""
        return MODE.get().device or Device("cpu")

    def default_dtypes(self, *, device: Device | None = None) -> dict[str, DType]:
        """Which dtypes are chosen where none is given."""
        return {
            "real floating": flow.get_default_dtype(),
            "complex floating": dtypes.of_scalar(complex),
            "integral": flow.int64,
            "indexing": flow.int64,
        }

    def devices(self) -> list[Device]:
        """Where tensors can be: the CPU, the simulated device, and the GPUs that there are."""
        return [Device("cpu"), Device("sim"), *[Device(f"cuda:{index}") for index in range(flow.cuda.device_count())]]

    def dtypes(self, *, device: Device | None = None, kind: str | tuple[str, ...] | None = None) -> dict[str, DType]:
        """The standard's dtypes that there are, all or of a kind."""
        return {value.name: value for value in _STANDARD if kind is None or isdtype(value, kind)}


def __array_namespace_info__() -> Information:
    """What this namespace can do."""
    return Information()
