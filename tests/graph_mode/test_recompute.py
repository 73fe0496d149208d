"""Checkpointed blocks: the ops that are repeated, the memory that this saves, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import vmflow as flow
from vmflow import nn, optim
from vmflow.graph_mode.job import Job

functional = nn.functional


class Train(nn.Graph):
    """Steps of training, with the blocks at `paths` checkpointed."""

    def __init__(self, module: nn.Module, paths: Sequence[str] = (), steps: int = 1) -> None:
        super().__init__()
        self.model = module
        self.add_optimizer(optim.AdamW(module.parameters(), lr=0.01))
        self.config.set_gradient_accumulation_steps(steps)
        self.config.set_execution_order("given")
        self.config.allow_fusion(False)
        for path in paths:
            block = self.model
            for name in path.split(".") if path else ():
                block = getattr(block, name)
            block.config.activation_checkpointing = True

    def build(self, x: flow.Tensor) -> Any:
        """The mean of the squares."""
        loss = (self.model(x) ** 2).mean()
        loss.backward()
        return loss


def numbers(*shape: int) -> flow.Tensor:
    return flow.tensor(np.random.default_rng(2).normal(size=shape).astype(np.float32))


def compared(
    make: Callable[[], nn.Module], paths: Sequence[str], x: flow.Tensor, steps: int = 1
) -> tuple[Train, Train]:
    """A graph without and one with checkpointing, after having seen that they do the same, to the bit."""
    graphs: list[Train] = []
    stories: list[list[Any]] = []
    for chosen in ((), paths):
        flow.manual_seed(1)
        graph = Train(make(), chosen, steps)
        flow.manual_seed(2)
        story = [graph(x).numpy() for _ in range(3)]
        story.append(graph.run_by_vm(x).numpy())
        story += [value.numpy() for value in graph.model.origin.state_dict().values()]
        stories.append(story)
        graphs.append(graph)
    for one, other in zip(*stories, strict=True):
        np.testing.assert_array_equal(one, other)
    return graphs[0], graphs[1]


def forward_backward(job: Job) -> list[tuple[str, str]]:
    return [(op.op, op.module) for op in job.ops if op.phase == "micro" or op.kind == "call"]


def mlp() -> nn.Module:
    block = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 6), nn.Tanh())
    return nn.Sequential(nn.Linear(6, 6), block, nn.Linear(6, 6))


def test_the_job_before_and_after() -> None:
    _, graph = compared(mlp, ["1"], numbers(4, 6))
    before = [op.op for op in graph.job.ops if op.module.startswith("model.1")]
    after = [op.op for op in graph.full_job.ops if op.module.startswith("model.1")]
    forward = ["linear", "relu", "dropout", "linear", "tanh"]
    assert before[: len(forward)] == forward == after[: len(forward)]
    # The block's results are still there, so that its last two ops need not be repeated.
    assert after[len(forward) :].count("linear") == 1
    assert [value for value in after[len(forward) :] if value in forward][:3] == ["linear", "relu", "dropout"]
    assert len(after) == len(before) + 3
    repeated = [op for op in graph.full_job.ops if op.op == "dropout"]
    assert [op.scalars for op in repeated] == [repeated[0].scalars] * 2
    assert [op.backward for op in repeated] == [False, True]


def test_without_checkpointing_the_job_stays_as_it_is() -> None:
    graph, _ = compared(mlp, [""], numbers(4, 6))
    assert [op.op for op in graph.full_job.ops].count("relu") == 1


@pytest.mark.parametrize(
    "paths",
    [["1"], ["", "1"], ["1", "1.1"], ["0", "1", "2"]],
    ids=lambda paths: "+".join(path or "model" for path in paths),
)
def test_nested_blocks(paths: list[str]) -> None:
    def make() -> nn.Module:
        inner = [nn.Sequential(nn.Linear(6, 6), nn.SiLU(), nn.Dropout(0.2)) for _ in range(3)]
        return nn.Sequential(nn.Linear(6, 6), nn.Sequential(*inner), nn.Softplus())

    _, graph = compared(make, paths, numbers(4, 6))
    if "1.1" in paths:
        # The block within is there a third time, for its own part of the backward pass.
        ops = [op.op for op in graph.full_job.ops if op.module == "model.1.1.0" and op.op == "linear"]
        assert len(ops) == 3


class Twice(nn.Module):
    """Calls a block twice, with something in between."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Dropout(0.3), nn.Linear(6, 6))

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        """Itself, of itself."""
        y: flow.Tensor = self.block(self.block(x).sin())
        return y


def test_a_block_that_is_called_twice() -> None:
    _, graph = compared(Twice, ["block"], numbers(4, 6))
    assert [op.backward for op in graph.full_job.ops if op.op == "relu"] == [False, False, True, True]


def test_running_statistics_are_updated_once() -> None:
    def make() -> nn.Module:
        return nn.Sequential(
            nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Linear(8, 6))
        )

    _, graph = compared(make, ["1"], numbers(4, 6))
    ops = [op.op for op in graph.full_job.ops]
    assert ops.count("batch_norm") == 2
    assert ops.count("batch_norm.running") == 1


class Counting(nn.Module):
    """Reads its own changes."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size)
        self.register_buffer("factor", flow.ones(()))

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        """Another function each time."""
        y: flow.Tensor = (self.linear(x) + self.factor).sin()
        self.factor += 1
        return y.cos()


def test_a_block_that_reads_its_own_changes_is_left_alone() -> None:
    plain, graph = compared(lambda: nn.Sequential(nn.Linear(6, 6), Counting(6)), ["1"], numbers(4, 6))
    assert [op.op for op in graph.full_job.ops] == [op.op for op in plain.full_job.ops]


def test_with_micro_batches() -> None:
    _, graph = compared(mlp, ["1"], numbers(6, 6), steps=3)
    assert {op.phase for op in graph.full_job.ops if op.op == "dropout"} == {"micro"}


def test_a_pass_that_is_disabled() -> None:
    graph = Train(mlp(), ["1"])
    graph.config.disable_pass("recompute")
    graph(numbers(4, 6)).numpy()
    assert [op.op for op in graph.full_job.ops].count("relu") == 1


def transformer() -> nn.Module:
    """Six layers."""
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
    return nn.Sequential(nn.Linear(16, 32), nn.TransformerEncoder(layer, 6), nn.Linear(32, 5))


LAYERS = [f"1.layers.{layer}" for layer in range(6)]


def test_the_saved_memory() -> None:
    plain, graph = compared(transformer, LAYERS, numbers(8, 16, 16))
    assert graph.plan.nbytes < 0.4 * plain.plan.nbytes


@pytest.mark.parametrize("order", ["memory", "speed"])
def test_the_saved_memory_with_all_passes(order: Any) -> None:
    """Reordering and fusing ops must not keep values that are to be computed again."""
    x = numbers(8, 16, 16)
    sizes: list[int] = []
    losses: list[Any] = []
    for paths in ((), LAYERS):
        flow.manual_seed(1)
        graph = Train(transformer(), paths)
        graph.config.set_execution_order(order)
        graph.config.allow_fusion()
        flow.manual_seed(2)
        losses.append([graph(x).item() for _ in range(3)])
        sizes.append(graph.plan.nbytes)
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    assert sizes[1] < 0.5 * sizes[0], sizes


class InPlace(nn.Module):
    """Writes into its own result, and into a view of it."""

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        """Another function of each column."""
        y: flow.Tensor = x * 3
        y[:, 0].add_(1)
        y.mul_(0.5)
        return y.sin()


class Residual(nn.Module):
    """Adds its argument, which has to live on."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        """The sum."""
        result: flow.Tensor = self.inner(x) + x
        return result


PIECES: list[Callable[[], nn.Module]] = [
    lambda: nn.Linear(4, 4),
    lambda: nn.BatchNorm1d(4),
    lambda: nn.LayerNorm(4),
    lambda: nn.Dropout(0.4),
    lambda: nn.ReLU(),
    lambda: nn.GELU(),
    lambda: nn.Softmax(-1),
    InPlace,
    lambda: Counting(4),
]


@st.composite
def nests(draw: st.DrawFn, depth: int = 2) -> Any:
    """Numbers of pieces, in nested lists."""
    members = st.integers(0, len(PIECES) - 1)
    return draw(st.lists(members | nests(depth=depth - 1) if depth else members, min_size=1, max_size=4))


def grown(nest: Any) -> nn.Module:
    """The modules of a nest; a list within is a block that is called twice if its length is odd."""
    if isinstance(nest, int):
        return PIECES[nest]()
    inner = Residual(nn.Sequential(*[grown(value) for value in nest]))
    return nn.Sequential(inner, inner) if len(nest) % 2 else inner


@settings(max_examples=12)
@given(nest=nests(), data=st.data())
def test_any_blocks_may_be_checkpointed(nest: Any, data: st.DataObject) -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 4), grown(nest), nn.Linear(4, 4))

    paths = [name for name, _ in make().named_modules()]
    chosen = data.draw(st.lists(st.sampled_from(paths), min_size=1, max_size=4, unique=True))
    compared(make, chosen, numbers(6, 4), steps=data.draw(st.sampled_from([1, 1, 3])))
