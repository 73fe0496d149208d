"""``vmflow.cuda``: what programs ask of CUDA before they choose a device; `why_not` says why there is none.

Questions are answered, and seeds taken, so that the usual ``"cuda" if vmflow.cuda.is_available() else "cpu"`` runs.
What would need a device raises `DeviceUnavailable`.
"""

from __future__ import annotations

from vmflow.devices import device as Device

from . import amp as amp, availability
from .availability import why_not as why_not


def is_available() -> bool:
    """Whether there is a CUDA device that can be used; if not, `why_not` says why."""
    return availability.why_not() is None


def is_bf16_supported() -> bool:
    """Whether a CUDA device computes in bfloat16: False."""
    return False


def device_count() -> int:
    """How many CUDA devices can be used."""
    return availability.device_count()


def manual_seed(seed: int) -> None:
    """Seed the current device's generator; there is none to seed."""
    int(seed)


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices; there are none to seed."""
    int(seed)


def empty_cache() -> None:
    """Give memory kept for reuse back to the devices; there is none."""


def memory_allocated(device: Device | str | int | None = None) -> int:
    """Bytes in tensors on a device: none; `vmflow.memory_allocated` has those of other devices."""
    return 0


def max_memory_allocated(device: Device | str | int | None = None) -> int:
    """The most bytes in tensors on a device: none."""
    return 0


def synchronize(device: Device | str | int | None = None) -> None:
    """Wait for a device's work.

    Raises:
        DeviceUnavailable: always.
    """
    _chosen(device).require()


def set_device(device: Device | str | int) -> None:
    """Choose the device that "cuda" means.

    Raises:
        DeviceUnavailable: always.
    """
    _chosen(device).require()


def current_device() -> int:
    """The index of the device that "cuda" means.

    Raises:
        DeviceUnavailable: always.
    """
    _chosen(None).require()
    return 0


def get_device_name(device: Device | str | int | None = None) -> str:
    """What a device is called.

    Raises:
        DeviceUnavailable: always.
    """
    chosen = _chosen(device)
    chosen.require()
    return str(chosen)


def _chosen(device: Device | str | int | None) -> Device:
    return Device("cuda", device) if device is None or isinstance(device, int) else Device(device)
