"""How a tensor is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from . import dtypes
from .vm.wakers import running_loop

if TYPE_CHECKING:
    from .tensors import Tensor

# Above this many elements only the borders are shown.
_THRESHOLD = 1000


def represent(tensor: Tensor) -> str:
    """As PyTorch does; a value that is not there yet is not waited for on a running loop."""
    name = type(tensor).__name__
    prefix = f"{name} containing:\ntensor(" if name != "Tensor" else "tensor("
    suffix = _suffix(tensor)
    if not tensor.is_ready() and running_loop() is not None:
        return f"{prefix}..., size={tuple(tensor.shape)}, pending{suffix})"
    array = tensor.detach()._array()
    if tensor.dtype is dtypes.bfloat16:
        array = array.astype(np.float32)
    if array.size == 0:
        return f"{prefix}[], size={tuple(tensor.shape)}{suffix})"
    text = np.array2string(
        array,
        precision=4,
        separator=", ",
        prefix=prefix.rpartition("\n")[2],
        threshold=_THRESHOLD,
        max_line_width=80,
        suppress_small=None,
    )
    return f"{prefix}{text}{suffix})"


def _suffix(tensor: Tensor) -> str:
    parts = ""
    if tensor.device.type != "cpu":
        parts += f", device='{tensor.device}'"
    if tensor.dtype not in (dtypes.get_default_dtype(), dtypes.int64, dtypes.bool_):
        parts += f", dtype={tensor.dtype!r}"
    if tensor.grad_fn is not None:
        parts += f", grad_fn={tensor.grad_fn!r}"
    elif tensor.requires_grad:
        parts += ", requires_grad=True"
    return parts
