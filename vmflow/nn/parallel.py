"""``vmflow.nn.parallel``: data parallelism of modules whose parameters are local tensors of each rank."""

from __future__ import annotations

from typing import Any

from vmflow.autograd.grad_mode import no_grad
from vmflow.distributed.collectives import reduced, sent_by_root, world
from vmflow.distributed.process import get_world_size
from vmflow.tensors import Tensor

from .module import Module


class DistributedDataParallel(Module):
    """Wraps a module for data parallelism: each rank has a part of the batch; gradients are averaged over all ranks.

    At first, parameters and buffers become copies of those of rank 0.  Each gradient is averaged over the ranks as soon
    as the backward pass has computed it, while the pass continues.  All ranks must compute gradients of the same
    parameters.

    Args:
        module: a module whose parameters are local tensors.
        broadcast_buffers: whether rank 0 sends its buffers to the other ranks before each call in training.

    Attributes:
        module: the wrapped module.

    Raises:
        ValueError: if no parameter requires a gradient, or a parameter is a global tensor.

    Example:
        >>> model = flow.nn.parallel.DistributedDataParallel(flow.nn.Linear(2, 3))
        >>> model(flow.ones(4, 2)).shape
        vmflow.Size([4, 3])
    """

    def __init__(self, module: Module, broadcast_buffers: bool = True) -> None:
        super().__init__()
        self.module = module
        self._broadcast_buffers = broadcast_buffers
        parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        if not parameters:
            raise ValueError("DistributedDataParallel: no parameter of the module requires a gradient")
        if any([parameter.is_global for parameter in module.parameters()]):
            raise ValueError("DistributedDataParallel: a parameter is a global tensor, and needs no such wrapper")
        if get_world_size() > 1:
            self._take_from_first([*module.parameters(), *module.buffers()])
            for parameter in parameters:
                parameter.register_post_accumulate_grad_hook(_average)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the wrapped module; in training with `broadcast_buffers`, first copy rank 0's buffers to all ranks."""
        if self._broadcast_buffers and get_world_size() > 1 and self.training:
            self._take_from_first(list(self.module.buffers()))
        return self.module(*args, **kwargs)

    def _take_from_first(self, tensors: list[Tensor]) -> None:
        with no_grad():
            for tensor in tensors:
                tensor.copy_(sent_by_root(tensor.detach(), world(), 0))


def _average(parameter: Tensor) -> None:
    gradient = parameter.grad
    assert gradient is not None
    with no_grad():
        gradient.copy_(reduced(gradient, world()) / get_world_size())
