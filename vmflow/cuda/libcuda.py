"""Asks the NVIDIA driver for its version and its GPUs, by a few functions of ``libcuda.so.1``.

The driver's library belongs to the driver, not to a CUDA toolkit, and cupy need not be installed to ask it.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final, NamedTuple

LIBRARY: Final = "libcuda.so.1"

# Two error numbers of the CUDA driver API.
NOT_INITIALIZED: Final = 3
NO_DEVICE: Final = 100

# The size of the buffer for a GPU's name and the zero byte at its end.
_NAME_BYTES: Final = 256


class DriverError(RuntimeError):
    """A function of the driver has failed.

    Attributes:
        number: the error number that the function returned.
    """

    def __init__(self, function: str, name: str, number: int) -> None:
        super().__init__(f"{function} says {name} ({number})")
        self.number = number


class Driver(NamedTuple):
    """The NVIDIA driver's version and GPUs.

    Attributes:
        cuda: major and minor number of the newest CUDA that the driver can run.
        devices: the names of the GPUs that this process can see, by index.
        error: the first error of a function of the driver, as when the driver does not start; None if all succeeded.
    """

    cuda: tuple[int, int]
    devices: tuple[str, ...] = ()
    error: DriverError | None = None


def load() -> Any:
    """Load the driver's library, ``libcuda.so.1``.

    Raises:
        OSError: if the library cannot be loaded, as on a machine without a driver.
    """
    return ctypes.CDLL(LIBRARY)


def ask(library: Any) -> Driver:
    """Start the driver in this process, and ask for its version and its GPUs; never raises `DriverError`.

    Args:
        library: as `load` returns it.
    """
    version = ctypes.c_int()
    try:
        _call(library, "cuDriverGetVersion", ctypes.byref(version))
        _call(library, "cuInit", ctypes.c_uint(0))
        return Driver(_major_and_minor(version.value), _device_names(library))
    except DriverError as error:
        return Driver(_major_and_minor(version.value), error=error.with_traceback(None))


def _major_and_minor(version: int) -> tuple[int, int]:
    """Split the number of a CUDA version: 12040 gives (12, 4)."""
    return version // 1000, version % 1000 // 10


def _device_names(library: Any) -> tuple[str, ...]:
    count = ctypes.c_int()
    _call(library, "cuDeviceGetCount", ctypes.byref(count))
    return tuple(_device_name(library, index) for index in range(count.value))


def _device_name(library: Any, index: int) -> str:
    device = ctypes.c_int()
    _call(library, "cuDeviceGet", ctypes.byref(device), ctypes.c_int(index))
    name = ctypes.create_string_buffer(_NAME_BYTES)
    _call(library, "cuDeviceGetName", name, ctypes.c_int(_NAME_BYTES), device)
    return name.value.decode(errors="replace")


def _call(library: Any, function: str, *arguments: Any) -> None:
    status = getattr(library, function)(*arguments)
    if status:
        raise DriverError(function, _error_name(library, status), status)


def _error_name(library: Any, status: int) -> str:
    name = ctypes.c_char_p()
    if library.cuGetErrorName(ctypes.c_int(status), ctypes.byref(name)) or name.value is None:
        return "an error without a name"
    return name.value.decode()
