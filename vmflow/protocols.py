"""Methods of `Tensor` for other libraries, pickle, `repr`, global tensors and storages; loaded at first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .instructions.blob import Array
from .ops.declaration import attribute, method
from .tensor_fields import meta_of

if TYPE_CHECKING:
    from .storages import TypedStorage, UntypedStorage
    from .tensors import Tensor


@method()
def __array__(self: Tensor, dtype: Any = None, copy: bool | None = None) -> Array:
    """Convert a tensor to a numpy array, by numpy's protocol: on the memory of the tensor if possible.

    A global tensor, or one on another device than the CPU, is copied.  Waits for the value.  Uses of shared memory are
    ordered after ops issued before, and not with ops issued later; see `vmflow.exchange`.  `Tensor.numpy` returns a
    copy.

    Args:
        dtype: the numpy dtype of the array; None for the tensor's.
        copy: True to copy in any case, False never to copy, None to copy if necessary.

    Raises:
        RuntimeError: if the tensor requires a gradient, or is on the meta device.
        ValueError: if `copy` is False and a copy is needed.
    """
    from .exchange import as_array

    return as_array(self, dtype, copy)


@attribute("__array_interface__")
def __array_interface__(self: Tensor) -> dict[str, Any]:
    """The memory of a tensor on the CPU, by numpy's array interface protocol; waits for the value.

    Raises:
        AttributeError: for a tensor on another device, a global tensor, and for bfloat16.
        RuntimeError: if the tensor requires a gradient.
    """
    from .exchange import array_interface

    return array_interface(self)


@method()
def __array_function__(self: Tensor, func: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
    """Run a function of numpy on arrays made of the tensors in its arguments; return its result; see `__array__`."""
    from .exchange import call_numpy

    return call_numpy(func, args, kwargs)


@attribute("__cuda_array_interface__")
def __cuda_array_interface__(self: Tensor) -> dict[str, Any]:
    """The memory of a tensor on a CUDA device, and the stream after whose work a borrower must use the memory.

    Later ops, and the next use of the memory once the tensor is gone, are not ordered with the borrower's work, unless
    their stream waits for the borrower's stream.

    Raises:
        AttributeError: for a tensor on another device, a global tensor, and for bfloat16.
        RuntimeError: if the tensor requires a gradient.
    """
    if self.device.type != "cuda" or self.is_global:
        kind = "global tensor" if self.is_global else "tensor"
        raise AttributeError(f"a {kind} on {self.device} has no __cuda_array_interface__")
    from .exchange import cuda_array_interface

    return cuda_array_interface(self)


@method()
def __dlpack__(
    self: Tensor,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """Make a DLPack capsule of the tensor's memory, for one consumer; on the CPU this waits for the value.

    Args:
        stream: None on the CPU, where the value is computed when this returns.  For memory of a CUDA device, the
            address of the consumer's stream, whose later work runs after all work issued here; 1 or None for CUDA's
            default stream, 2 for the thread's default stream, -1 for no order.
        max_version: the newest version of DLPack that the consumer understands; None for a version before 1.0.
        dl_device: ``(1, 0)`` for the CPU, to which global tensors and those on other devices are copied; None for the
            tensor's device.
        copy: True to copy in any case, False never to copy, None to copy if necessary.

    Raises:
        BufferError: if the tensor requires a gradient, or cannot be exported in the requested way.
    """
    from .exchange import to_capsule

    return to_capsule(self, stream, max_version, dl_device, copy)


@method()
def __dlpack_device__(self: Tensor) -> tuple[int, int]:
    """The device in DLPack's numbers: ``(1, 0)`` for the CPU, ``(2, index)`` for CUDA, ``(12, index)`` if simulated.

    Raises:
        BufferError: for the meta device.
    """
    from .exchange import dlpack_device

    return dlpack_device(self)


@method()
def __array_namespace__(self: Tensor, *, api_version: str | None = None) -> Any:
    """The module `vmflow.array_api`, for libraries that follow the Python array API standard.

    Args:
        api_version: None or an implemented version, "2021.12" to "2024.12".

    Raises:
        ValueError: for another version.
    """
    if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
        raise ValueError(f"this is version 2024.12 of the array API standard, not {api_version!r}")
    from . import array_api

    return array_api


@method()
def __repr__(self: Tensor) -> str:
    from .representation import represent

    return represent(self)


@method()
def _repr_html_(self: Tensor) -> str:
    """The tensor as HTML for notebooks; never waits for the value."""
    from .representation import represent_in_html

    return represent_in_html(self)


@method()
def __reduce__(self: Tensor) -> tuple[Any, ...]:
    from .io import rebuild_tensor

    return rebuild_tensor, (type(self), self.detach().numpy(), self.requires_grad, self.device)


# Global tensors


@attribute("is_global")
def is_global(self: Tensor) -> bool:
    """Whether the tensor is global: spread over ranks, so that this process may have only some of its elements.

    Example:
        >>> flow.ones(2).is_global
        False
    """
    return meta_of(self).spread is not None


@attribute("placement")
def placement(self: Tensor) -> Any:
    """The ranks that a global tensor of any shape is spread over.

    Raises:
        AttributeError: if the tensor is local.

    Example:
        >>> x = flow.ones(2).to_global(flow.placement("cpu", [0]), flow.sbp.split(0))
        >>> x.placement
        vmflow.placement(type='cpu', ranks=[0])
    """
    return _spread_of(self, "placement").placement


@attribute("sbp")
def sbp(self: Tensor) -> Any:
    """How a global tensor of any shape is spread (split, broadcast or partial), for each axis of its placement.

    Raises:
        AttributeError: if the tensor is local.

    Example:
        >>> flow.ones(2).to_global(flow.placement("cpu", [0]), flow.sbp.split(0)).sbp
        (vmflow.sbp.split(dim=0),)
    """
    return _spread_of(self, "sbp").sbp


def _spread_of(tensor: Tensor, name: str) -> Any:
    spread = meta_of(tensor).spread
    if spread is None:
        raise AttributeError(f"a local tensor has no {name}; see Tensor.to_global")
    return spread


@method()
def to_global(self: Tensor, placement: Any = None, sbp: Any = None, *, grad_sbp: Any = None) -> Tensor:
    """Make a global tensor of the local tensors of several ranks, or spread a global tensor in another way.

    For local tensors, all ranks of the placement call it with their parts, whose sizes add up along a split dimension;
    for a broadcast, the first rank's tensor counts.  A global tensor is redistributed: all ranks of the old and the new
    placement call it.

    Args:
        placement: the ranks to spread over; by default those of the global tensor.
        sbp: how to spread, see `vmflow.sbp`; one for each axis of the placement; by default that of the global tensor.
        grad_sbp: how the gradient of a global tensor is spread in the backward pass; ignored for local tensors.

    Raises:
        ValueError: if the parts do not make a whole, a split dimension does not exist, or an argument is missing.
        TypeError: if `placement` is no placement, `sbp` is no sbp, or the parts differ in dtype.

    Example:
        >>> x = flow.ones(2).to_global(flow.placement("cpu", [0]), flow.sbp.broadcast)
        >>> x.shape
        vmflow.Size([2])
    """
    from .distributed.global_tensors import to_global as to

    return to(self, placement, sbp, grad_sbp)


@method()
def to_local(self: Tensor) -> Tensor:
    """This rank's part of a global tensor of any shape: a local tensor on the same memory.

    Raises:
        ValueError: if the tensor is local.

    Example:
        >>> flow.ones(2).to_global(flow.placement("cpu", [0]), flow.sbp.broadcast).to_local()
        tensor([1., 1.])
    """
    from .distributed.global_tensors import to_local as to

    return to(self)


@method()
def untyped_storage(self: Tensor) -> UntypedStorage:
    """The memory that a tensor of any shape shares with its views, as bytes.

    Raises:
        RuntimeError: if the tensor is global.
    Example:
        >>> flow.zeros(2, 3)[1].untyped_storage().nbytes()
        24
    """
    from .storages import UntypedStorage

    return UntypedStorage(self)


@method()
def storage(self: Tensor) -> TypedStorage:
    """The memory that a tensor of any shape shares with its views, as elements of the tensor's dtype.

    Raises:
        RuntimeError: if the tensor is global.
    Example:
        >>> flow.tensor([1, 2, 3])[1:].storage().tolist()
        [1, 2, 3]
    """
    from .storages import TypedStorage

    return TypedStorage(self)
