"""Rebuilding tensors from their bytes."""

from __future__ import annotations

from typing import Any


def rebuild_tensor(kind: type, array: Any, requires_grad: bool) -> Any:
    """Undo `Tensor.__reduce__`."""
    from .devices import device
    from .ops.creation import from_array

    tensor: Any = from_array(array, device("cpu"))
    if kind is not type(tensor):
        tensor = kind(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)
