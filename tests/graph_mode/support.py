"""Shared by the tests of whole graphs: a graph of a function, and comparison to the bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import vmflow as flow
from vmflow.graph_mode import Job
from vmflow.graph_mode.job import BOUNDARY, JobOp


class Of(flow.nn.Graph):
    """The graph of a function, with the modules that it uses.

    Args:
        call: the function that `build` calls.
        modules: whose parameters are part of the graph.
    """

    def __init__(self, call: Callable[..., Any], *modules: flow.nn.Module) -> None:
        super().__init__()
        self.call = call
        for position, module in enumerate(modules):
            setattr(self, f"module{position}", module)

    def build(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(*args, **kwargs)


class Train(flow.nn.Graph):
    """Steps of an optimizer by the loss of a model.

    Args:
        model: the model to train.
        loss_of: given the model and the arguments of a call, returns the loss.
        optimizer: of the model's parameters.
        schedule: of the optimizer's learning rates.
        fusion: whether ops may be fused, and so be rounded otherwise.
    """

    def __init__(
        self,
        model: flow.nn.Module,
        loss_of: Callable[..., flow.Tensor],
        optimizer: Any,
        schedule: Any = None,
        fusion: bool = False,
    ) -> None:
        super().__init__()
        self.model = model
        self.loss_of = loss_of
        self.config.allow_fusion(fusion)
        self.add_optimizer(optimizer, lr_sch=schedule)

    def build(self, *args: Any) -> Any:
        loss = self.loss_of(self.model, *args)
        loss.backward()
        return loss


def flattened(result: Any) -> Iterator[Any]:
    """The leaves of nested tuples, lists and dicts."""
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, (tuple, list)) and not isinstance(result, flow.Size):
        for part in result:
            yield from flattened(part)
    else:
        yield result


def assert_same(found: Any, expected: Any) -> None:
    """The same structure, dtypes, shapes and bits."""
    mine, others = list(flattened(found)), list(flattened(expected))
    assert len(mine) == len(others)
    for one, other in zip(mine, others, strict=True):
        if not isinstance(other, flow.Tensor):
            assert one == other
            continue
        assert (one.dtype, one.shape, one.device) == (other.dtype, other.shape, other.device)
        left, right = one.detach().numpy(), other.detach().numpy()
        assert left.tobytes() == right.tobytes(), f"{left!r}\nis not\n{right!r}"


def check_in_graph(call: Callable[..., Any], given: Callable[[], list[flow.Tensor]]) -> None:
    """A graph of `call`, run by actors, twice, and op by op, gives the results of eager ops.

    Args:
        call: of tensors.
        given: makes the arguments; they are the same each time.
    """
    results = []
    graph = Of(call)
    graph.config.allow_fusion(False)
    for run in (call, graph, graph, graph.run_by_vm):
        flow.manual_seed(3)
        results.append(run(*given()))
    flow.synchronize()
    for found in results[1:]:
        assert_same(found, results[0])


def computing(job: Job) -> list[JobOp]:
    """The ops between the feeds and the fetches."""
    return [op for op in job.ops if op.kind not in BOUNDARY]
