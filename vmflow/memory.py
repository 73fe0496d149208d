"""PyTorch's functions about the memory of devices and its use; the default device is that of new tensors.

On the CPU vmflow's allocator serves results above 64 KiB; numpy allocates smaller ones and tensors made from arrays,
which are not counted.
"""

from __future__ import annotations

from vmflow.arguments import whole_number

from .context import MODE
from .devices import device as Device
from .vm.stream_table import device_memory
from .vm.virtual_machine import current_machine, live_machines
from .vm.wakers import running_loop


def memory_stats(device: Device | str | None = None) -> dict[str, int]:
    """Counters of the device's allocators, summed over existing virtual machines, under PyTorch's names.

    Among them ``allocated_bytes.all.current`` (in tensors), ``allocated_bytes.all.peak``,
    ``reserved_bytes.all.current`` (allocated on the device, in tensors or cached for reuse), ``num_alloc_retries``
    (allocations that failed at first and were tried again) and ``num_ooms`` (those that failed for good).  Peaks of
    several machines are added up too, although they need not have happened at the same time.

    Raises:
        DeviceUnavailable: if the device cannot be used here.

    Example:
        >>> flow.memory_stats("cpu")["num_ooms"] >= 0
        True
    """
    chosen = _chosen(device)
    total: dict[str, int] = {}
    for machine in live_machines():
        machine.flush()
        for allocator in machine.memory.of_device(chosen):
            for name, count in allocator.statistics().items():
                total[name] = total.get(name, 0) + count
    # A device that was never used has a full set of zeros.
    return total or dict.fromkeys(current_machine().memory.allocator(chosen).statistics(), 0)


def memory_allocated(device: Device | str | None = None) -> int:
    """The bytes that vmflow's allocator has handed out for tensors on a device.

    Raises:
        DeviceUnavailable: if the device cannot be used here.

    Example:
        >>> flow.memory_allocated("cpu") <= flow.memory_reserved("cpu")
        True
    """
    return memory_stats(device)["allocated_bytes.all.current"]


def max_memory_allocated(device: Device | str | None = None) -> int:
    """The peak of `memory_allocated`, as `memory_stats` counts it, since the start or `reset_peak_memory_stats`.

    Raises:
        DeviceUnavailable: if the device cannot be used here.

    Example:
        >>> flow.max_memory_allocated("cpu") >= flow.memory_allocated("cpu")
        True
    """
    return memory_stats(device)["allocated_bytes.all.peak"]


def memory_reserved(device: Device | str | None = None) -> int:
    """The number of bytes that vmflow has allocated on a device, in tensors or cached for reuse.

    Raises:
        DeviceUnavailable: if the device cannot be used here.

    Example:
        >>> flow.memory_reserved("cpu") >= 0
        True
    """
    return memory_stats(device)["reserved_bytes.all.current"]


def reset_peak_memory_stats(device: Device | str | None = None) -> None:
    """Reset the peak values of a device's memory counters to their current values.

    Raises:
        DeviceUnavailable: if the device cannot be used here.

    Example:
        >>> flow.reset_peak_memory_stats("cpu")
    """
    chosen = _chosen(device)
    for machine in live_machines():
        machine.flush()
        for allocator in machine.memory.of_device(chosen):
            allocator.reset_peak()


def set_memory_limit(limit: int | None, device: Device | str | None = None) -> None:
    """Limit the bytes that vmflow reserves on a device to `limit`; None for no limit.

    Allocations beyond the limit fail with `OutOfMemory`, after cached memory was freed.

    Raises:
        TypeError: if `limit` is no integer.
        ValueError: for a negative limit.
        DeviceUnavailable: if the device cannot be used here.

    Example:
        >>> flow.set_memory_limit(None, "cpu")
    """
    if limit is not None:
        limit = whole_number("set_memory_limit", "the limit", limit)
    device_memory(_chosen(device)).set_limit(limit)


def empty_cache(device: Device | str | None = None) -> None:
    """Free a device's cached memory, as far as it is unused.

    Only memory of idle virtual machines is freed.  In plain code this waits for the current machine's work first.  On
    an event loop it does not wait: ``await vmflow.synchronize()`` first.

    Raises:
        DeviceUnavailable: if the device cannot be used here.

    Example:
        >>> flow.empty_cache("cpu")
    """
    chosen = _chosen(device)
    if running_loop() is None:
        current_machine().drain()
    for machine in live_machines():
        machine.shrink(chosen)


def _chosen(device: Device | str | None) -> Device:
    chosen = Device(device) if device is not None else MODE.get().device or Device("cpu")
    chosen.require()
    return chosen
