"""``vmflow.utils.dlpack``: the names under which PyTorch has DLPack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vmflow.exchange import from_dlpack as from_dlpack

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


def to_dlpack(tensor: Tensor) -> Any:
    """A DLPack capsule of the tensor, for one consumer; see `Tensor.__dlpack__`."""
    return tensor.__dlpack__()
