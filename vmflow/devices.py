"""`device`: the CPU, a GPU or another device, named by type and index."""

from __future__ import annotations

import operator
from contextvars import ContextVar
from typing import Final

from .arguments import is_integer
from .context import MODE
from .errors import DeviceUnavailable
from .open_blocks import OpenBlocks

# The index of the CUDA device that "cuda" means, in each task and thread.
CURRENT_CUDA: Final[ContextVar[int]] = ContextVar("vmflow.cuda.device", default=0)

_BLOCKS: Final = OpenBlocks(
    "vmflow.device_blocks",
    lambda: MODE.get().device,
    lambda chosen: MODE.set(MODE.get().replace(device=chosen)),
)

_KINDS: Final = ("cpu", "cuda", "sim", "meta")

# The types of which there is one device.
_SINGLE: Final = ("cpu", "meta")


class device:
    """The device that a tensor's memory is on: ``device("cpu")``, ``device("cuda:1")``, ``device("cuda", 1)``.

    As a context manager, it is the default device of new tensors: ``with device("cuda"): x = zeros(3)``.

    ``device("auto")`` is the current CUDA device if it can be used, else the CPU.

    Equal devices are the same object.  Naming a device is always possible; using a device that does not exist raises
    `DeviceUnavailable`.

    Attributes:
        type: "cpu", "cuda", "sim" (a simulated accelerator, to test programs against) or "meta": meta tensors have
            shapes and dtypes and no data, and ops infer the shapes and dtypes of their results.
        index: the number among devices of the same type; by default 0, for "cuda" that of the current device; always 0
            for "cpu" and "meta".

    Raises:
        ValueError: for an unknown type, a malformed index, an index that is given twice, or one with "auto"; for
            "auto", as `vmflow.cuda.why_not`.
        TypeError: if the type is neither a string nor a device, or the index no integer.

    Example:
        >>> flow.device("cuda:1").index
        1
        >>> with flow.device("meta"):
        ...     flow.zeros(3).device
        device(type='meta', index=0)
    """

    __slots__ = ("index", "type")

    type: str
    index: int

    def __new__(cls, type: str | device, index: int | None = None) -> device:
        if isinstance(type, device):
            if index is not None:
                raise ValueError(f"the index is given twice, in {type!r} and as {index!r}")
            return type
        if not isinstance(type, str):
            raise TypeError(f"a device is named by a string such as 'cpu' or 'cuda:0', not {type!r}")
        if index is not None:
            if not is_integer(index):
                raise TypeError(f"a device index must be an integer, not {index!r}")
            index = operator.index(index)
        if index is None and type == "cuda":
            index = CURRENT_CUDA.get()
        found = _DEVICES.get((type, index))
        return found if found is not None else _make(cls, type, index)

    def __enter__(self) -> device:
        _BLOCKS.enter(self, self)
        return self

    def __exit__(self, *raised: object) -> None:
        _BLOCKS.leave(self)

    def require(self) -> None:
        """Check that ops can run on this device.

        Raises:
            DeviceUnavailable: if they cannot.  The message says why, and what to do.
            ValueError: for a CUDA device, as `vmflow.cuda.why_not`.
        """
        if self.type == "cuda":
            # Imported here, since few programs name a CUDA device, and vmflow.cuda imports this module.
            from .cuda.availability import why_not_device

            reason = why_not_device(self.index)
            if reason is not None:
                raise DeviceUnavailable(f"{self} cannot be used: {reason}; or use device='cpu'")

    def __repr__(self) -> str:
        return f"device(type={self.type!r}, index={self.index})"

    def __str__(self) -> str:
        return self.type if self.type in _SINGLE else f"{self.type}:{self.index}"

    def __reduce__(self) -> tuple[object, ...]:
        return device, (self.type, self.index)


_DEVICES: dict[tuple[str, int | None], device] = {}


def cuda_device(chosen: device | str | int | None) -> device:
    """Convert a name, an index or None (the current CUDA device) to a CUDA device.

    Raises:
        ValueError: if it is no CUDA device, or a malformed name or index.
        TypeError: if it is neither a device nor a name nor an index.
    """
    found = device("cuda", chosen) if chosen is None or isinstance(chosen, int) else device(chosen)
    if found.type != "cuda":
        raise ValueError(f"a CUDA device was expected, not {found}")
    return found


def _best(index: int | None) -> device:
    """The device "auto": the current CUDA device if it can be used, else the CPU; ValueError unless `index` is None."""
    from .cuda.availability import why_not_device

    if index is not None:
        raise ValueError(f"the device 'auto' has no index, and {index} is given")
    return device("cuda") if why_not_device(CURRENT_CUDA.get()) is None else device("cpu")


def _make(cls: type[device], name: str, index: int | None) -> device:
    kind, colon, number = name.partition(":")
    if name == "auto":
        return _best(index)
    if kind not in _KINDS:
        raise ValueError(f"unknown device type {kind!r} in {name!r}; known are {', '.join(_KINDS)} and auto")
    if colon:
        if index is not None:
            raise ValueError(f"the index is given twice: {name!r} and {index}")
        if not (number.isascii() and number.isdigit()):
            raise ValueError(f"malformed device {name!r}: expected an index after the colon")
        index = int(number)
    if index is not None and index < 0:
        raise ValueError(f"a device index cannot be negative: {index}")
    key = (kind, 0 if kind in _SINGLE else index or 0)
    made = _DEVICES.get(key)
    if made is None:
        made = object.__new__(cls)
        made.type, made.index = key
        # Two threads may make the same device at the same time; setdefault gives both of them one object.
        made = _DEVICES.setdefault(key, made)
    if index is None:
        _DEVICES[kind, None] = made
    return made
