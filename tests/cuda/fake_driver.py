"""A driver's library that is not there, with as many GPUs as a test wants."""

from __future__ import annotations

import ctypes
from typing import Any, Final

# The names that the driver has for its errors.
ERRORS: Final = {
    1: b"CUDA_ERROR_INVALID_VALUE",
    3: b"CUDA_ERROR_NOT_INITIALIZED",
    100: b"CUDA_ERROR_NO_DEVICE",
    803: b"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
}


class FakeLibcuda:
    """The functions of libcuda.so.1 that vmflow calls, by their rules: no device before cuInit, no name too long.

    Args:
        version: as cuDriverGetVersion tells it, such as 12040 for CUDA 12.4.
        names: of the GPUs.
        refusal: the error of cuInit, 0 for none.
    """

    def __init__(self, version: int = 13000, names: tuple[str, ...] = ("H100",), refusal: int = 0) -> None:
        self.version = version
        self.names = names
        self.refusal = refusal
        self.started = False

    def cuInit(self, flags: Any) -> int:
        assert flags.value == 0
        self.started = not self.refusal
        return self.refusal

    def cuDriverGetVersion(self, version: Any) -> int:
        _write(version, self.version)
        return 0

    def cuDeviceGetCount(self, count: Any) -> int:
        if self.started:
            _write(count, len(self.names))
        return 0 if self.started else 3

    def cuDeviceGet(self, device: Any, ordinal: Any) -> int:
        if not 0 <= ordinal.value < len(self.names):
            return 1
        # A handle need not be the index.
        _write(device, 70 + ordinal.value)
        return 0

    def cuDeviceGetName(self, name: Any, room: Any, device: Any) -> int:
        assert room.value == len(name)
        name.value = self.names[device.value - 70].encode()
        return 0

    def cuGetErrorName(self, status: Any, name: Any) -> int:
        if status.value not in ERRORS:
            return 1
        ctypes.cast(name, ctypes.POINTER(ctypes.c_char_p))[0] = ERRORS[status.value]
        return 0


def _write(target: Any, value: int) -> None:
    ctypes.cast(target, ctypes.POINTER(ctypes.c_int))[0] = value
