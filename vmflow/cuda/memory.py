"""The memory of CUDA devices; `vmflow.memory` has most of these functions for every device."""

from __future__ import annotations

from vmflow import memory as _memory
from vmflow.devices import cuda_device, device as Device
from vmflow.streams.cuda.registry import device_of, opened
from vmflow.vm.stream_table import device_memory

from .properties import device_count, is_available


def memory_stats(device: Device | str | int | None = None) -> dict[str, int]:
    """Counters of a CUDA device's allocators, under PyTorch's names; see `vmflow.memory_stats`.

    Raises:
        DeviceUnavailable: if the device cannot be used.
        TypeError, ValueError: if `device` is no CUDA device.

    Example:
        >>> not flow.cuda.is_available() or flow.cuda.memory_stats()["num_ooms"] >= 0
        True
    """
    return _memory.memory_stats(cuda_device(device))


def memory_allocated(device: Device | str | int | None = None) -> int:
    """The bytes that vmflow's allocators have handed out on a device; 0 if CUDA is not available.

    Raises:
        DeviceUnavailable: if CUDA is available, but not this device.
        TypeError, ValueError: if `device` is no CUDA device.

    Example:
        >>> flow.cuda.memory_allocated() <= flow.cuda.max_memory_allocated()
        True
    """
    found = cuda_device(device)
    return _memory.memory_allocated(found) if is_available() else 0


def max_memory_allocated(device: Device | str | int | None = None) -> int:
    """The peak of `memory_allocated`, as `vmflow.memory_stats` counts it; 0 if CUDA is not available.

    Raises:
        DeviceUnavailable: if CUDA is available, but not this device.
        TypeError, ValueError: if `device` is no CUDA device.

    Example:
        >>> flow.cuda.max_memory_allocated() >= flow.cuda.memory_allocated()
        True
    """
    found = cuda_device(device)
    return _memory.max_memory_allocated(found) if is_available() else 0


def memory_reserved(device: Device | str | int | None = None) -> int:
    """The bytes that vmflow has allocated on a device, in tensors or cached for reuse; 0 if CUDA is not available.

    Raises:
        DeviceUnavailable: if CUDA is available, but not this device.
        TypeError, ValueError: if `device` is no CUDA device.

    Example:
        >>> flow.cuda.memory_reserved() >= flow.cuda.memory_allocated()
        True
    """
    found = cuda_device(device)
    return _memory.memory_reserved(found) if is_available() else 0


def max_memory_reserved(device: Device | str | int | None = None) -> int:
    """The peak of `memory_reserved`, as `vmflow.memory_stats` counts it; 0 if CUDA is not available.

    Raises:
        DeviceUnavailable: if CUDA is available, but not this device.
        TypeError, ValueError: if `device` is no CUDA device.

    Example:
        >>> flow.cuda.max_memory_reserved() >= flow.cuda.memory_reserved()
        True
    """
    found = cuda_device(device)
    return memory_stats(found)["reserved_bytes.all.peak"] if is_available() else 0


def reset_peak_memory_stats(device: Device | str | int | None = None) -> None:
    """Reset the peak values of a CUDA device's memory counters; see `vmflow.reset_peak_memory_stats`.

    Raises:
        DeviceUnavailable: if the device cannot be used.
        TypeError, ValueError: if `device` is no CUDA device.

    Example:
        >>> if flow.cuda.is_available():
        ...     flow.cuda.reset_peak_memory_stats()
    """
    _memory.reset_peak_memory_stats(cuda_device(device))


def mem_get_info(device: Device | str | int | None = None) -> tuple[int, int]:
    """How many bytes of a device's memory are free, and how many there are in total.

    Raises:
        DeviceUnavailable: if the device cannot be used.
        TypeError, ValueError: if `device` is no CUDA device.

    Example:
        >>> if flow.cuda.is_available():
        ...     free, total = flow.cuda.mem_get_info()
    """
    found = cuda_device(device)
    found.require()
    return device_of(found.index).driver.memory_info()


def set_per_process_memory_fraction(fraction: float, device: Device | str | int | None = None) -> None:
    """Limit the bytes that vmflow reserves on a device to `fraction` of the device's memory.

    Raises:
        TypeError, ValueError: if `fraction` is no number from 0 to 1, or `device` is no CUDA device.
        DeviceUnavailable: if the device cannot be used.

    Example:
        >>> if flow.cuda.is_available():
        ...     flow.cuda.set_per_process_memory_fraction(1.0)
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"a fraction of the memory is a number from 0 to 1, not {fraction}")
    found = cuda_device(device)
    _, total = mem_get_info(found)
    device_memory(found).set_limit(int(total * fraction))


def empty_cache() -> None:
    """Free the cached memory of all CUDA devices, and cached page-locked host memory; see `vmflow.empty_cache`.

    Example:
        >>> flow.cuda.empty_cache()
    """
    if not opened():
        return
    for index in range(device_count()):
        _memory.empty_cache(Device("cuda", index))
        device_of(index).pinned.empty_cache()
        device_of(index).driver.empty_cache()
