"""``vmflow.utils.tensor``: OneFlow's names for tensors that are handed to PyTorch, and taken from it."""

from __future__ import annotations

from typing import Any

from vmflow.exchange import from_dlpack
from vmflow.operands import described
from vmflow.tensors import Tensor


def from_torch(torch_tensor: Any) -> Tensor:
    """A tensor that shares the memory of a tensor of PyTorch's, without its history; see `vmflow.from_dlpack`.

    Memory of a device that vmflow cannot use is copied to the CPU instead; a lazy conjugate or negative is copied, too.

        x = flow.utils.tensor.from_torch(torch.ones(2))

    Raises:
        ImportError: if PyTorch is not installed.
        TypeError: if `torch_tensor` is no tensor of PyTorch's, or has a dtype that vmflow does not have.
        Exception: PyTorch's own, if it cannot export the tensor, such as a BufferError for a sparse one.
    """
    if not isinstance(torch_tensor, _torch("from_torch").Tensor):
        raise TypeError(f"from_torch: expected a tensor of PyTorch's, got {described(torch_tensor)}")
    plain = torch_tensor.detach().resolve_conj().resolve_neg()
    return from_dlpack(plain)


def to_torch(flow_tensor: Tensor) -> Any:
    """A tensor of PyTorch's that shares the memory of `flow_tensor`, without its history.

    Each library sees the other's writes; a global tensor is copied instead.  vmflow's ops on the memory that were
    issued before the call are done, or on CUDA devices launched; ops issued later may run at any time until they are
    awaited.

        y = flow.utils.tensor.to_torch(flow.ones(2))

    Raises:
        ImportError: if PyTorch is not installed.
        TypeError: if `flow_tensor` is no tensor of vmflow's.
        BufferError: if PyTorch cannot see memory of the tensor's device.
        Exception: that of the op that failed to compute `flow_tensor`.
    """
    if not isinstance(flow_tensor, Tensor):
        raise TypeError(f"to_torch: expected a tensor of vmflow's, got {described(flow_tensor)}")
    return _torch("to_torch").from_dlpack(flow_tensor.detach())


def _torch(name: str) -> Any:
    try:
        import torch
    except ImportError as error:
        raise ImportError(f"{name} needs PyTorch; install it with: pip install torch") from error
    return torch
