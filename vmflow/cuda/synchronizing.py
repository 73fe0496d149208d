"""`synchronize`: await the current virtual machine's work on all devices; without a running event loop, it blocks."""

from __future__ import annotations

from vmflow.devices import cuda_device, device as Device
from vmflow.vm.virtual_machine import current_machine
from vmflow.vm.waiting import Synchronization


def synchronize(device: Device | str | int | None = None) -> Synchronization:
    """Wait for all work issued to the current virtual machine, on all devices: await the result.

    Without a running event loop, this call blocks.

    Args:
        device: a CUDA device, only checked.

    Raises:
        DeviceUnavailable: if the device cannot be used.
        ValueError: if `device` is no CUDA device.

    Example:
        >>> if flow.cuda.is_available():
        ...     _ = flow.cuda.synchronize()
    """
    cuda_device(device).require()
    return current_machine().synchronize()
