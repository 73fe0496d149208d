"""The number of CUDA devices, and their names, compute capabilities and other properties."""

from __future__ import annotations

from vmflow.devices import cuda_device, device as Device
from vmflow.streams.cuda.driver import DeviceProperties
from vmflow.streams.cuda.registry import device_of, opened

from . import availability


def is_available() -> bool:
    """Whether there is a CUDA device that can be used; if not, `vmflow.cuda.why_not` says why.

    Raises:
        ValueError: as `vmflow.cuda.why_not`.

    Example:
        >>> flow.cuda.is_available() == (flow.cuda.device_count() > 0)
        True
    """
    return availability.why_not() is None


def is_initialized() -> bool:
    """Whether this process has opened its CUDA devices, as the first use does; True in children forked afterwards, too.

    Example:
        >>> flow.cuda.is_initialized() in (True, False)
        True
    """
    return bool(opened())


def device_count() -> int:
    """How many CUDA devices this process can use.

    Raises:
        ValueError: as `vmflow.cuda.why_not`.

    Example:
        >>> flow.cuda.device_count() >= 0
        True
    """
    return availability.device_count()


def get_device_properties(device: Device | str | int | None = None) -> DeviceProperties:
    """The properties of a CUDA device, by default the current one.

    Raises:
        DeviceUnavailable: if the device cannot be used.
        ValueError: if `device` is no CUDA device.

    Example:
        >>> if flow.cuda.is_available():
        ...     bytes_in_all = flow.cuda.get_device_properties(0).total_memory
    """
    found = cuda_device(device)
    found.require()
    return device_of(found.index).driver.properties()


def get_device_name(device: Device | str | int | None = None) -> str:
    """The model name of a CUDA device, by default the current one.

    Raises:
        DeviceUnavailable: if the device cannot be used.
        ValueError: if `device` is no CUDA device.

    Example:
        >>> if flow.cuda.is_available():
        ...     model = flow.cuda.get_device_name(0)
    """
    return get_device_properties(device).name


def get_device_capability(device: Device | str | int | None = None) -> tuple[int, int]:
    """The compute capability, major and minor, of a CUDA device, by default the current one.

    Raises:
        DeviceUnavailable: if the device cannot be used.
        ValueError: if `device` is no CUDA device.

    Example:
        >>> if flow.cuda.is_available():
        ...     major, minor = flow.cuda.get_device_capability(0)
    """
    properties = get_device_properties(device)
    return properties.major, properties.minor


def is_bf16_supported() -> bool:
    """Whether CUDA is available and the compute capability of the current CUDA device is 8.0 or higher.

    Raises:
        ValueError: as `vmflow.cuda.why_not`.

    Example:
        >>> flow.cuda.is_bf16_supported() <= flow.cuda.is_available()
        True
    """
    return is_available() and get_device_capability() >= (8, 0)
