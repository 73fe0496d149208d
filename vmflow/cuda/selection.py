"""The current CUDA device of a task or thread: the device that "cuda" without an index means."""

from __future__ import annotations

from types import TracebackType
from typing import Final

from vmflow.devices import CURRENT_CUDA, cuda_device, device as Device
from vmflow.open_blocks import OpenBlocks

_BLOCKS: Final = OpenBlocks("vmflow.cuda.device_blocks", CURRENT_CUDA.get, CURRENT_CUDA.set)


def current_device() -> int:
    """The index of the device that "cuda" means in this task or thread.

    Raises:
        DeviceUnavailable: if that device cannot be used.

    Example:
        >>> flow.cuda.current_device() if flow.cuda.is_available() else 0
        0
    """
    found = cuda_device(None)
    found.require()
    return found.index


def set_device(device: Device | str | int) -> None:
    """Let "cuda" mean `device` from now on, in this task or thread; a negative integer changes nothing.

    Raises:
        DeviceUnavailable: if the device cannot be used.
        ValueError: if `device` is no CUDA device.

    Example:
        >>> flow.cuda.set_device(-1)
    """
    if isinstance(device, int) and device < 0:
        return
    found = cuda_device(device)
    found.require()
    CURRENT_CUDA.set(found.index)


class device:
    """A context manager in which "cuda" means the given device; a negative integer, or None, changes nothing.

    Raises:
        DeviceUnavailable: on entry, if the device cannot be used.
        ValueError: on entry, if `device` is no CUDA device.

    Example:
        >>> with flow.cuda.device(0 if flow.cuda.is_available() else None):
        ...     flow.device("cuda").index
        0
    """

    def __init__(self, device: Device | str | int | None) -> None:
        self._device = device

    def __enter__(self) -> None:
        device = self._device
        if device is None or (isinstance(device, int) and device < 0):
            return
        found = cuda_device(device)
        found.require()
        _BLOCKS.enter(self, found.index)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _BLOCKS.leave(self)
