"""What a training step takes of a device's memory, eagerly and as a graph: ``python -m tests.benchmarks.graph_memory``.

The device is the simulated one, where everything lies in the allocator's memory.  What lives before and after a step
(parameters, the optimizer's state, the batch) does not count; what does are gradients, activations, what kernels work
in, and the result.  A graph keeps its memory from one call to the next, so that its peak is taken over building, the
first call and all that comes with them.

"checkpointed" computes the insides of the model's blocks anew for the backward pass; "recomputed" makes values anew
within so much of the step's time, which only graphs do.  What it costs is in the column "time": that of the graph on
the CPU, divided by that of the plain eager step.
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
    """Something to train.

    Attributes:
        module: it maps inputs to scores (n, classes), or more dimensions before the last.
        blocks: the names of the modules that are checkpointed.
        inputs, targets: a batch.
    """

    module: nn.Module
    blocks: tuple[str, ...]
    inputs: flow.Tensor
    targets: flow.Tensor


@attrs.frozen
class Footprint:
    """What a step takes, in bytes.

    Attributes:
        lives: what there is before and after it, and does not count.
        peak: the most that was asked for and not given back at one time.
        handed_out: the same as the allocator hands it out, which may round a piece up to twice its size.
        kept: what is still held once the step is over, its loss included.
    """

    lives: int
    peak: int
    handed_out: int
    kept: int


def gpt() -> Model:
    """The network of ``examples/char_gpt.py``, 64 windows' worth of characters for each of 16 texts."""
    path = Path(__file__).resolve().parents[2] / "examples" / "char_gpt.py"
    spec = importlib.util.spec_from_file_location("char_gpt_measured", path)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = example  # its dataclasses look themselves up there
    spec.loader.exec_module(example)
    module = example.GPT(64, context=64, width=128, depth=4)
    blocks = tuple([f"blocks.{number}" for number in range(4)])
    return Model(module, blocks, flow.randint(0, 64, (16, 64)), flow.randint(0, 64, (16 * 64,)))


def digits() -> Model:
    """The network of ``examples/digits.py``, with its convolutions as blocks."""
    first = [nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)]
    end = [nn.Flatten(), nn.Dropout(0.2), nn.Linear(128, 10)]
    module = nn.Sequential(nn.Sequential(*first), nn.Sequential(*second), *end)
    return Model(module, ("0", "1"), flow.rand(64, 1, 8, 8), flow.randint(0, 10, (64,)))


def mlp() -> Model:
    """Three hidden layers, and images of handwriting in pairs of 32."""
    hidden = [nn.Sequential(nn.Linear(before, 256), nn.ReLU()) for before in (784, 256, 256)]
    module = nn.Sequential(*hidden, nn.Linear(256, 10))
    return Model(module, ("0", "1", "2"), flow.rand(64, 784), flow.randint(0, 10, (64,)))


MODELS: Final[dict[str, Callable[[], Model]]] = {"GPT": gpt, "digits CNN": digits, "MLP": mlp}


# In what way a step saves memory.
PLAIN, CHECKPOINTED = "", "checkpointed"
# By what part of its time it may take longer for that.
RECOMPUTED: Final = {"recomputed, 3 %": 0.03, "recomputed, 20 %": 0.2}
WAYS: Final = (PLAIN, *RECOMPUTED, CHECKPOINTED)


class Step(nn.Graph):
    """A step of training as a graph."""

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
        """The loss."""
        loss = loss_of(self.model, inputs, targets)
        loss.backward()
        return loss


def loss_of(module: Any, inputs: flow.Tensor, targets: flow.Tensor) -> flow.Tensor:
    """The cross-entropy of scores in any number of dimensions."""
    scores = module(inputs)
    return functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), targets)


@contextmanager
def on_device() -> Iterator[None]:
    """New tensors go there."""
    before = MODE.get().device
    flow.set_default_device(DEVICE)
    try:
        yield
    finally:
        MODE.set(MODE.get().replace(device=before))


@contextmanager
def blocks_checkpointed(model: Model) -> Iterator[None]:
    """Within, eager code computes the blocks anew for the backward pass."""
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
    """The allocator's counters, when everything that was issued or dropped has come to its end."""
    gc.collect()
    flow.synchronize()
    return flow.memory_stats(DEVICE)


def footprint(step: Callable[[], flow.Tensor]) -> Footprint:
    """What one call of it takes; it returns the loss."""
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
    """A model that has been trained for some steps, so that its optimizer has its state."""

    model: Model
    optimizer: Any

    def eager_step(self) -> flow.Tensor:
        """As loops are written; the gradients stay until `forget`."""
        loss = loss_of(self.model.module, self.model.inputs, self.model.targets)
        loss.backward()
        self.optimizer.step()
        return loss

    def forget(self) -> None:
        """Drop the gradients."""
        self.optimizer.zero_grad()

    def eager(self, way: str = PLAIN) -> Footprint:
        """What an eager step takes, which knows of no recomputing but checkpoints."""
        if way != CHECKPOINTED:
            found = footprint(self.eager_step)
        else:
            with blocks_checkpointed(self.model):
                found = footprint(self.eager_step)
        self.forget()
        return found

    def graph(self, way: str = PLAIN) -> tuple[Footprint, Step]:
        """What the first call of a graph takes, with building it, and the graph."""
        graph = Step(self.model, self.optimizer, way)
        return footprint(lambda: graph(self.model.inputs, self.model.targets)), graph


def trained(make: Callable[[], Model]) -> Trained:
    """The model after two eager steps."""
    flow.manual_seed(0)
    model = make()
    found = Trained(model, flow.optim.AdamW(model.module.parameters(), lr=1e-3))
    for _ in range(2):
        found.eager_step()
        found.forget()
    return found


def times(subject: Trained, rounds: int) -> dict[str, float]:
    """By way, the time of the graph's step divided by that of the plain eager one."""

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
    """Rows in kilobytes for each model: as it is, allowed to recompute, and with checkpointed blocks."""
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
