"""The device memory of a training step, eagerly and as a graph: ``python -m tests.benchmarks.graph_memory``.

The device is the simulated one, on which the allocator counts all memory.  Memory that is in use before and after a
step (parameters, the optimizer's state, the batch) does not count; gradients, activations, kernels' workspaces and the
result do.  A graph keeps its memory from one call to the next, so that its peak is that of building it and the first
call.

"checkpointed" computes the activations inside the model's blocks again in the backward pass; "recomputed" computes
values again for up to this share of the step's time, which only graphs do.  The column "time" has the cost of this: the
time of the graph on the CPU, divided by that of the plain eager step.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs

import vmflow as flow
from tests.benchmarks.measure import EAGER, Case, measure
from tests.benchmarks.tables import Table, conditions
from vmflow import nn
from vmflow.context import MODE
from vmflow.utils.checkpoint import checkpoint

DEVICE: Final = "sim"
COLUMNS: Final = ("lives", "eager", "graph", "graph/eager", "planned", "bound", "no reuse", "time")

functional = nn.functional


@attrs.frozen
class Model:
    """A classifier to train, and a batch.

    Attributes:
        module: maps inputs to scores of shape (n, classes), or with more dimensions before the last.
        blocks: the names of the submodules that are checkpointed.
        inputs, targets: a batch.
    """

    module: nn.Module
    blocks: tuple[str, ...]
    inputs: flow.Tensor
    targets: flow.Tensor


@attrs.frozen
class Footprint:
    """The memory that a training step takes, in bytes.

    Attributes:
        lives: the bytes in use before the step, which the other figures do not count.
        peak: the most bytes that were requested and not yet freed at any time.
        handed_out: the peak as the allocator counts it, which may round a block up to twice its requested size.
        kept: the bytes that are still in use after the step, including its loss.
    """

    lives: int
    peak: int
    handed_out: int
    kept: int


def gpt() -> Model:
    """The network of ``examples/char_gpt.py``, with a batch of 16 texts of 64 characters."""
    path = Path(__file__).resolve().parents[2] / "examples" / "char_gpt.py"
    spec = importlib.util.spec_from_file_location("char_gpt_measured", path)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = example  # dataclasses look up their own module there
    spec.loader.exec_module(example)
    module = example.GPT(64, context=64, width=128, depth=4)
    blocks = tuple([f"blocks.{number}" for number in range(4)])
    return Model(module, blocks, flow.randint(0, 64, (16, 64)), flow.randint(0, 64, (16 * 64,)))


def digits() -> Model:
    """The network of ``examples/digits.py``, whose two convolutional blocks can be checkpointed."""
    first = [nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)]
    end = [nn.Flatten(), nn.Dropout(0.2), nn.Linear(128, 10)]
    module = nn.Sequential(nn.Sequential(*first), nn.Sequential(*second), *end)
    return Model(module, ("0", "1"), flow.rand(64, 1, 8, 8), flow.randint(0, 10, (64,)))


def mlp() -> Model:
    """A network of three hidden layers, with a batch of 64 images of 28 x 28 pixels."""
    hidden = [nn.Sequential(nn.Linear(before, 256), nn.ReLU()) for before in (784, 256, 256)]
    module = nn.Sequential(*hidden, nn.Linear(256, 10))
    return Model(module, ("0", "1", "2"), flow.rand(64, 784), flow.randint(0, 10, (64,)))


MODELS: Final[dict[str, Callable[[], Model]]] = {"GPT": gpt, "digits CNN": digits, "MLP": mlp}


# The ways in which a step saves memory: not at all, or by checkpointed blocks.
PLAIN, CHECKPOINTED = "", "checkpointed"
# By way, the share of the step's time that a graph may spend on computing values again to save memory.
RECOMPUTED: Final = {"recomputed, 3 %": 0.03, "recomputed, 20 %": 0.2}
WAYS: Final = (PLAIN, *RECOMPUTED, CHECKPOINTED)


class Step(nn.Graph):
    """A graph of a training step that saves memory in a given way."""

    def __init__(self, model: Model, optimizer: Any, way: str) -> None:
        super().__init__()
        self.model = model.module
        self.add_optimizer(optimizer)
        self.config.allow_recomputation(RECOMPUTED.get(way, 0))
        for path in model.blocks if way == CHECKPOINTED else ():
            block = self.model
            for name in path.split("."):
                block = getattr(block, name)
            block.config.activation_checkpointing = True

    def build(self, inputs: flow.Tensor, targets: flow.Tensor) -> flow.Tensor:
        """Compute the loss and its gradients; return the loss."""
        loss = loss_of(self.model, inputs, targets)
        loss.backward()
        return loss


def loss_of(module: Any, inputs: flow.Tensor, targets: flow.Tensor) -> flow.Tensor:
    """The cross-entropy of a module's scores, whose last dimension is the classes."""
    scores = module(inputs)
    return functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), targets)


@contextmanager
def on_device() -> Iterator[None]:
    """A context manager in which new tensors are made on the simulated device."""
    before = MODE.get().device
    flow.set_default_device(DEVICE)
    try:
        yield
    finally:
        MODE.set(MODE.get().replace(device=before))


@contextmanager
def blocks_checkpointed(model: Model) -> Iterator[None]:
    """A context manager in which eager code checkpoints the model's blocks: backward computes them again."""
    modules: list[Any] = [model.module.get_submodule(path) for path in model.blocks]
    for module in modules:
        module.forward = _anew(module.forward)
    try:
        yield
    finally:
        for module in modules:
            del module.forward


def _anew(forward: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: checkpoint(forward, *args)


def _settled() -> dict[str, int]:
    """The device's memory counters, after issued ops have finished and dropped tensors were freed."""
    gc.collect()
    flow.synchronize()
    return flow.memory_stats(DEVICE)


def footprint(step: Callable[[], flow.Tensor]) -> Footprint:
    """Measure the memory that one call of `step`, which returns the loss, takes."""
    before = _settled()
    flow.reset_peak_memory_stats(DEVICE)
    loss = step()
    after = _settled()
    assert loss.item() > 0
    lives = before["requested_bytes.all.current"]
    return Footprint(
        lives,
        after["requested_bytes.all.peak"] - lives,
        after["allocated_bytes.all.peak"] - before["allocated_bytes.all.current"],
        after["requested_bytes.all.current"] - lives,
    )


@attrs.frozen
class Trained:
    """A model that has been trained for some steps, so that its optimizer's state exists."""

    model: Model
    optimizer: Any

    def eager_step(self) -> flow.Tensor:
        """Run a training step as eager loops do; its gradients are kept until `forget` is called."""
        loss = loss_of(self.model.module, self.model.inputs, self.model.targets)
        loss.backward()
        self.optimizer.step()
        return loss

    def forget(self) -> None:
        """Drop the gradients."""
        self.optimizer.zero_grad()

    def eager(self, way: str = PLAIN) -> Footprint:
        """The memory of an eager step, with checkpointed blocks if `way` says so; other ways need a graph."""
        if way != CHECKPOINTED:
            found = footprint(self.eager_step)
        else:
            with blocks_checkpointed(self.model):
                found = footprint(self.eager_step)
        self.forget()
        return found

    def graph(self, way: str = PLAIN) -> tuple[Footprint, Step]:
        """Build a graph of the step and call it once; return the memory that this took, and the graph."""
        graph = Step(self.model, self.optimizer, way)
        return footprint(lambda: graph(self.model.inputs, self.model.targets)), graph


def trained(make: Callable[[], Model]) -> Trained:
    """Make a model and an optimizer, and train for two eager steps."""
    flow.manual_seed(0)
    model = make()
    found = Trained(model, flow.optim.AdamW(model.module.parameters(), lr=1e-3))
    for _ in range(2):
        found.eager_step()
        found.forget()
    return found


def times(subject: Trained, rounds: int) -> dict[str, float]:
    """By way of saving memory, the time of the graph's step divided by that of the plain eager step."""

    def eagerly() -> None:
        subject.eager_step().item()
        subject.forget()

    def called(graph: Step) -> Callable[[], object]:
        return lambda: graph(subject.model.inputs, subject.model.targets).item()

    graphs = {way: Step(subject.model, subject.optimizer, way) for way in WAYS}
    contenders = {EAGER: eagerly, **{way: called(graph) for way, graph in graphs.items()}}
    result = measure(Case("step", contenders), rounds)
    return {way: result.microseconds[way] / result.microseconds[EAGER] for way in WAYS}


def run(models: dict[str, Callable[[], Model]], rounds: int) -> Table:
    """Measure and print rows in kilobytes for each model: plain, recomputing, and with checkpointed blocks."""
    table = Table("kilobytes", COLUMNS)
    table.print_head()
    for name, make in models.items():
        taken = times(trained(make), rounds)
        with on_device():
            _add_rows(table, name, trained(make), taken)
    return table


def _add_rows(table: Table, name: str, subject: Trained, taken: dict[str, float]) -> None:
    for way in WAYS:
        eager = subject.eager(way)
        graph, built = subject.graph(way)
        plan = built.plan
        sizes = (eager.lives, eager.peak, graph.peak, plan.nbytes, plan.lower_bound, plan.without_reuse)
        lives, by_eager, by_graph, planned, bound, no_reuse = [round(size / 1000, 1) for size in sizes]
        table.add(
            f"{name}, {way}" if way else name,
            lives=lives,
            eager=by_eager,
            graph=by_graph,
            graph_eager=graph.peak / eager.peak,
            planned=planned,
            bound=bound,
            no_reuse=no_reuse,
            time=taken[way],
        )
        built.close()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--rounds", type=int, default=15, help="times each step is timed; the median counts")
    options = parser.parse_args()
    table = run(MODELS, options.rounds)
    print(conditions())
    if options.json is not None:
        table.write(options.json, conditions())


if __name__ == "__main__":
    main()
