"""The time that torch takes for the same work on the same device."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

from tests.benchmarks.models import eager_training, elementwise_chain

from .networks import Network

# Steps before a step is captured, on a stream of their own, as torch asks for.
_WARM_UP = 3


def torch_with_cuda() -> Any:
    """The module; None if it is not installed or has no CUDA device.

    Its products of float32 are as exact as vmflow's.
    """
    if importlib.util.find_spec("torch") is None:
        return None
    torch: Any = importlib.import_module("torch")
    if not torch.cuda.is_available():
        return None
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    return torch


def repeated(torch: Any, work: Callable[[], object], count: int) -> Callable[[], None]:
    """So many times, and then a wait for the device, if there is one."""

    def run() -> None:
        for _ in range(count):
            work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    return run


def tiny_op(torch: Any, size: int, count: int, device: str = "cuda") -> Callable[[], None]:
    """An op on a small tensor."""
    x, y = [torch.full((size,), 0.5, device=device) for _ in range(2)]
    return repeated(torch, lambda: x + y, count)


def chain(torch: Any, size: int, count: int, device: str = "cuda") -> dict[str, Callable[[], None]]:
    """Eight elementwise ops, and a copy."""
    x, y = [torch.full((size,), 0.5, device=device) for _ in range(2)]
    out = torch.empty(size, device=device)
    return {
        "torch": repeated(torch, lambda: elementwise_chain(x, y), count),
        "torch, copy": repeated(torch, lambda: out.copy_(x), count),
    }


def product(torch: Any, size: int, dtype: str, count: int, device: str = "cuda") -> Callable[[], None]:
    """The product of two square matrices."""
    x, y = [torch.full((size, size), 0.5, device=device, dtype=getattr(torch, dtype)) for _ in range(2)]
    return repeated(torch, lambda: x @ y, count)


def training_steps(torch: Any, network: Network, count: int) -> dict[str, Callable[[], None]]:
    """Steps one op after the other, and as a CUDA graph."""
    steps = {"torch": step_of(torch, network), "torch, graph": _captured(torch, network)}
    return {name: repeated(torch, step, count) for name, step in steps.items()}


def step_of(torch: Any, network: Network, device: str = "cuda", capturable: bool = False) -> Callable[[], Any]:
    """A training step, one op after the other.

    Args:
        torch: the module.
        network: the network to train.
        device: where.
        capturable: whether the optimizer keeps all on the device.
    """
    torch.manual_seed(0)
    model = network.make(torch).to(device)
    optimizer = network.optimizer(torch, model.parameters())
    if capturable:
        for group in optimizer.param_groups:
            if "capturable" in group:
                group["capturable"] = True
    x, target = [torch.tensor(value, device=device) for value in network.batch(0)]
    return eager_training(model, optimizer, getattr(torch.nn.functional, network.loss), x, target)


def _captured(torch: Any, network: Network) -> Callable[[], Any]:
    step = step_of(torch, network, capturable=True)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UP):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    replay: Callable[[], Any] = graph.replay
    return replay
