"""The kinds of streams that each type of device has, their policies, and the devices' memory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from vmflow.devices import device as Device
from vmflow.forking import lock_held_while_forking
from vmflow.streams import (
    ControlStreamPolicy,
    CpuStreamPolicy,
    DeviceMemory,
    IndependentStreamPolicy,
    StreamPolicy,
)
from vmflow.streams.communication import KIND as COMM, open_lane

if TYPE_CHECKING:
    from vmflow.streams import SimulatedDevice

# The kinds of streams that every device has and whose instructions run on the host; see `IndependentStreamPolicy`.
_INDEPENDENT: Final = {
    "critical_section": IndependentStreamPolicy("critical_section", blocking=False),
    "lazy_job": IndependentStreamPolicy("lazy_job", sequential=True, blocking=False),
}
_QUEUED: Final = ("compute", "host_to_device", "device_to_host")
# The kinds "compute:1" and so on: a compute stream for each further stage of a pipeline.
STAGE_PREFIX: Final = "compute:"
# The kinds "stream:PRIORITY:NUMBER": streams that the program has made, which keep program order.
STREAM_PREFIX: Final = "stream:"
# The kinds "external:ADDRESS": CUDA streams of another library, which keep program order, too.
EXTERNAL_PREFIX: Final = "external:"

_MEMORY_VARIABLE: Final = "VMFLOW_SIM_MEMORY"
SIMULATED_BYTES: Final = 1 << 30
# The byte with which `ReleaseTensor` fills memory of simulated devices: all bits set are nan in every floating dtype,
# and -1 in every signed integer dtype.
GARBAGE: Final = 0xFF

_lock = lock_held_while_forking()
_memories: dict[Device, DeviceMemory] = {}
_simulated: dict[Device, SimulatedDevice] = {}


def make_policy(machine: str, device: Device | None, kind: str, cpu_worker: str) -> StreamPolicy:
    """Return the policy for a new stream, by its device and kind; streams of some kinds share one.

    Args:
        device: the stream's device; None if it belongs to no device.
        kind: the kind, such as "compute"; see `StreamPolicy.kind`.
        cpu_worker: "auto", "always" or "never"; see `CpuStreamPolicy`.

    Raises:
        DeviceUnavailable: if the device cannot be used here; for exchanges, if there is no connection to other ranks.
        ValueError: if the device has no stream of this kind; for a simulated device, see `simulated_device`.
    """
    if device is None:
        # A stream's instructions are erased in the order in which they are launched.  If that is program order, a
        # `HandoverIn` waits for none that was issued later, so that machines cannot wait for each other.
        return ControlStreamPolicy(sequential=kind == "handover")
    device.require()
    if exchanges(kind):
        return open_lane()
    if kind in _INDEPENDENT:
        return _INDEPENDENT[kind]
    if device.type == "cpu" and kind == "compute":
        return CpuStreamPolicy(worker=cpu_worker)
    if device.type == "meta" and kind == "compute":
        return CpuStreamPolicy(worker="never")  # the meta device computes nothing, so it needs no worker
    staged = kind.startswith(STAGE_PREFIX) and kind.removeprefix(STAGE_PREFIX).isdecimal()
    if device.type == "cpu" and staged:
        # Stages of a pipeline are meant to overlap, even in a plain script, so their instructions run on workers unless
        # `cpu_worker` is "never".
        return CpuStreamPolicy(worker="always" if cpu_worker == "auto" else cpu_worker, kind=kind)
    if device.type == "cuda" and (kind in _QUEUED or staged or kind.startswith((STREAM_PREFIX, EXTERNAL_PREFIX))):
        from vmflow.streams.cuda import registry

        if kind.startswith(EXTERNAL_PREFIX):
            return registry.open_stream_at(device.index, kind, int(kind.removeprefix(EXTERNAL_PREFIX)))
        if not kind.startswith(STREAM_PREFIX):
            return registry.open_stream(device.index, kind)
        return registry.open_stream(device.index, kind, int(kind.split(":")[1]), sequential=True)
    if device.type == "sim" and (kind in _QUEUED or staged):
        from vmflow.streams import SimulatedStreamPolicy

        return SimulatedStreamPolicy(kind, simulated_device(device).queue(f"{machine}:{kind}"))
    raise ValueError(f"{device} has no stream of kind {kind!r}")


def exchanges(kind: str) -> bool:
    """Whether streams of this kind run collective operations between ranks; see `vmflow.streams.communication`."""
    return kind == COMM or kind.startswith(f"{COMM}:")


def device_memory(device: Device) -> DeviceMemory:
    """Return the `DeviceMemory` of a device, which all virtual machines share; made at the first use.

    Raises:
        ValueError: for a simulated device, if ``VMFLOW_SIM_MEMORY`` is no positive integer.
    """
    with _lock:
        found = _memories.get(device)
        if found is None:
            if device.type == "sim":
                from vmflow.streams.simulated import parse_positive

                given = os.environ.get(_MEMORY_VARIABLE, str(SIMULATED_BYTES))
                limit = parse_positive(_MEMORY_VARIABLE, given, SIMULATED_BYTES)
                found = DeviceMemory(str(device), limit=limit, garbage=GARBAGE)
            elif device.type == "cuda":
                from vmflow.streams.cuda import registry

                found = registry.memory_of(device.index)
            elif device.type == "meta":
                from vmflow.streams.cuda.arrays import bytes_at

                # The meta device's arrays have addresses, but no memory.
                found = DeviceMemory(
                    str(device), lambda nbytes: bytes_at(0, nbytes, None), nothing=bytes_at(0, 0, None)
                )
            else:
                found = DeviceMemory(str(device), staggers=True)
            _memories[device] = found
        return found


def simulated_device(device: Device) -> SimulatedDevice:
    """Return the simulated accelerator behind a "sim" device.

    It is made at the first use, in the mode of the environment variable ``VMFLOW_SIM`` ("lazy", "eager" or
    "random", or one and a seed as "random:17"; by default lazy).

    Raises:
        ValueError: for a device of another type, or if ``VMFLOW_SIM`` is no such mode.
    """
    if device.type != "sim":
        raise ValueError(f"{device} is not simulated")
    from vmflow.streams.simulated import SimulatedDevice, parse_mode

    with _lock:
        found = _simulated.get(device)
        if found is None:
            mode, seed = parse_mode(os.environ.get("VMFLOW_SIM", "lazy"))
            found = _simulated[device] = SimulatedDevice(str(device), mode, seed=seed)
        return found


def replace_memories(memories: dict[Device, DeviceMemory]) -> dict[Device, DeviceMemory]:
    """Forget the `DeviceMemory` of all CUDA devices, and add `memories`; returns the old ones.  For tests."""
    with _lock:
        before = {device: memory for device, memory in _memories.items() if device.type == "cuda"}
        for device in before:
            del _memories[device]
        _memories.update(memories)
    return before


def known_devices() -> list[Any]:
    """Return the devices that have a `DeviceMemory` by now."""
    return list(_memories)
