"""Tensor methods about page-locked memory, and about memory that other libraries' kernels use on a CUDA stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .devices import device as Device
from .instructions.builder import physical_run
from .ops.declaration import method
from .transfers import pin
from .vm.virtual_machine import current_machine

if TYPE_CHECKING:
    from .cuda.streams import Stream
    from .tensors import Tensor


@method()
def pin_memory(input: Tensor, device: Any = None) -> Tensor:
    """Copy a tensor into page-locked memory, from which a CUDA device copies faster; return a pinned `input` itself.

    Waits for the tensor's value.  The copy has no autograd history.

    Args:
        input: of any shape, on the CPU.
        device: makes no difference, since the memory serves all devices.

    Raises:
        RuntimeError: if the tensor is not on the CPU.
        DeviceUnavailable: if no CUDA device can be used here.
        Exception: that of the op that failed to compute the value.
    Example:
        >>> x = flow.ones(2)
        >>> (x.pin_memory() if flow.cuda.is_available() else x).tolist()
        [1.0, 1.0]
    """
    if input.device.type != "cpu":
        raise RuntimeError(
            f"pin_memory: only tensors on the CPU have page-locked memory, and this one is on {input.device}"
        )
    Device("cuda").require()
    return input if is_pinned(input) else pin(input.detach())


@method()
def is_pinned(input: Tensor, device: Any = None) -> bool:
    """Whether a tensor is on the CPU, in memory that vmflow has page-locked; on the CPU, waits for the value.

    The tensor has any shape; of a global tensor, this rank's part is meant.  `device` makes no difference.

    Raises:
        Exception: that of the op that failed to compute the value.

    Example:
        >>> flow.ones(2).is_pinned()
        False
    """
    from .streams.cuda.pinned import lies_pinned  # imported here, as programs without CUDA do not need it

    part = input.detach().to_local() if input.is_global else input
    return part.device.type == "cpu" and lies_pinned(part._array())


@method()
def record_stream(input: Tensor, stream: Stream) -> None:
    """Keep the memory of a tensor of any shape from reuse until the present work of a `vmflow.cuda.Stream` has ended.

    Ops of vmflow need no such call: it is for kernels of other libraries that were launched on the stream.

    Raises:
        TypeError: if `stream` is no stream.
        DeviceUnavailable: if the stream's device cannot be used here.

    Example:
        >>> if flow.cuda.is_available():
        ...     flow.ones(2, device="cuda").record_stream(flow.cuda.current_stream())
    """
    if not hasattr(stream, "kind"):
        raise TypeError(f"record_stream: expected a vmflow.cuda.Stream, not {stream!r}")
    blob = input._blob
    machine = current_machine()
    used = machine.stream(stream.device, stream.kind)
    physical_run(machine, lambda builder: builder.touch(used, (blob,)))
