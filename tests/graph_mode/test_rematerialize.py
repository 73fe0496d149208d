"""Values are made anew for the backward pass within a time: the job before and after, the memory, and equal bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest
from hypothesis import given, settings, strategies as st

import vmflow as flow
from vmflow import nn, optim
from vmflow.graph_mode.job import Job, JobOp

from .agreement import Bits, bits
from .test_recompute import PIECES, Residual, grown, nests, numbers

# As much as can be won.
_ANY_TIME = 100.0


class Train(nn.Graph):
    """Steps of training."""

    def __init__(self, module: nn.Module, part_of_time: float, fusion: bool = False, steps: int = 1) -> None:
        super().__init__()
        self.model = module
        self.add_optimizer(_optimizer(module))
        self.config.allow_recomputation(part_of_time)
        self.config.allow_fusion(fusion)
        self.config.set_gradient_accumulation_steps(steps)

    def build(self, x: flow.Tensor) -> Any:
        """The mean of the squares."""
        loss = (self.model(x) ** 2).mean()
        loss.backward()
        return loss


def _optimizer(module: nn.Module) -> optim.Optimizer:
    return optim.AdamW(module.parameters(), lr=0.01)


def trained(
    make: Callable[[], nn.Module], x: flow.Tensor, part_of_time: float, fusion: bool = False, steps: int = 1
) -> tuple[Train, list[Bits]]:
    """A graph after four steps, the last by the machine's instructions, and all that came out."""
    flow.manual_seed(1)
    graph = Train(make(), part_of_time, fusion, steps)
    flow.manual_seed(2)
    story = [graph(x) for _ in range(3)]
    story += [graph.run_by_vm(x), *graph.model.origin.state_dict().values()]
    return graph, [bits(value) for value in story]


def eagerly(make: Callable[[], nn.Module], x: flow.Tensor) -> list[Bits]:
    """The same without a graph."""
    flow.manual_seed(1)
    module = make()
    optimizer = _optimizer(module)
    flow.manual_seed(2)
    story: list[Bits] = []
    for _ in range(4):
        loss = (module(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        story.append(bits(loss))
    return story + [bits(value) for value in module.state_dict().values()]


def compared(
    make: Callable[[], nn.Module], x: flow.Tensor, fusion: bool = False, part_of_time: float = _ANY_TIME
) -> tuple[Train, Train]:
    """A graph that keeps everything and one that does not, after having seen that they do the same, to the bit."""
    plain, kept = trained(make, x, 0, fusion)
    graph, anew = trained(make, x, part_of_time, fusion)
    assert anew == kept
    if not fusion:
        assert anew == eagerly(make, x)
    return plain, graph


def added(plain: Job, job: Job) -> list[JobOp]:
    """The ops that are there beyond those of the plain job."""
    old = [(op.op, op.outputs) for op in plain.ops]
    return [op for op in job.ops if (op.op, op.outputs) not in old]


def normalised(width: int = 32) -> nn.Module:
    """Four times a normalisation and products, added to the input."""
    layers = [nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.Linear(width, width)) for _ in range(4)]
    return nn.Sequential(*[Residual(layer) for layer in layers])


def test_the_job_before_and_after() -> None:
    plain, graph = compared(lambda: normalised(128), numbers(1024, 128), part_of_time=0.05)
    again = added(plain.full_job, graph.full_job)
    assert {op.op for op in again} == {"layer_norm"}
    assert all([op.backward for op in again])
    ops = list(graph.full_job.ops)
    for op in again:
        # Right before the product's gradient, which reads the copy, and is the only one that does.
        reader = ops[ops.index(op) + 1]
        assert reader.op == "linear_gradient"
        assert op.outputs[0].buffer in reader.reads()
        original = next(value for value in ops if value.op == "layer_norm" and value.module == op.module)
        assert (op.inputs, op.attributes, op.scalars) == (original.inputs, original.attributes, original.scalars)
        assert [value.op for value in ops if original.outputs[0].buffer in value.reads()] == ["linear"]
    # Without the copies the ops are the same, except for those that read copies.
    assert [op.name for op in ops if op not in again] == [op.name for op in plain.full_job.ops]


def test_the_saved_memory() -> None:
    plain, graph = compared(normalised, numbers(256, 32))
    # Each block kept its input, the normalised tensor and the product before the last.
    assert graph.plan.nbytes < 0.8 * plain.plan.nbytes
    assert graph.plan.lower_bound < 0.8 * plain.plan.lower_bound


def test_it_takes_no_more_than_the_time_that_it_is_given() -> None:
    x = numbers(256, 32)
    sizes = [trained(normalised, x, part)[0].plan.nbytes for part in (0, 0.002, 0.01, _ANY_TIME)]
    assert sizes == sorted(sizes, reverse=True)
    counts = [len(trained(normalised, x, part)[0].full_job.ops) for part in (0, 1e-9)]
    assert counts[0] == counts[1]


def test_values_outside_of_the_peak_are_kept() -> None:
    def make() -> nn.Module:
        wide = [nn.Linear(16, 512), nn.Linear(512, 512), nn.Linear(512, 4)]
        return nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 16), *wide)

    plain, graph = compared(make, numbers(8, 4))
    assert [op.op for op in graph.full_job.ops] == [op.op for op in plain.full_job.ops]


def test_a_mask_is_drawn_once() -> None:
    def make() -> nn.Module:
        blocks = [nn.Sequential(nn.LayerNorm(32), nn.Dropout(0.3), nn.Linear(32, 32)) for _ in range(4)]
        return nn.Sequential(*[Residual(block) for block in blocks])

    plain, graph = compared(make, numbers(256, 32))
    again = [op for op in added(plain.full_job, graph.full_job) if op.op == "dropout"]
    drawn = {op.module: op.scalars for op in plain.full_job.ops if op.op == "dropout"}
    assert again
    assert all([op.scalars == drawn[op.module] for op in again])
    assert graph.full_job.draws == plain.full_job.draws
    assert graph.plan.nbytes < plain.plan.nbytes


class Shifted(nn.Module):
    """Two functions of a product, the one shifted by a number that it changes, or does not."""

    def __init__(self, size: int, changing: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size)
        self.changing = changing
        self.register_buffer("shift", flow.ones(()))

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        """Both read their operands again: the sum can be computed again from the product and the number."""
        product = self.linear(x)
        shifted = product + self.shift
        if self.changing:
            self.shift += 1
        result: flow.Tensor = shifted.cos() + product.sin()
        return result


@pytest.mark.parametrize("changing", [False, True])
def test_values_whose_operands_have_changed_are_kept(changing: bool) -> None:
    plain, graph = compared(lambda: nn.Sequential(*[Shifted(32, changing) for _ in range(3)]), numbers(256, 32))
    again = [op for op in added(plain.full_job, graph.full_job) if op.op == "add" and op.inputs[1].meta.numel == 1]
    assert bool(again) is not changing


class Spread(nn.Module):
    """A number for each row and one for each column, added."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.columns = nn.Parameter(numbers(size))

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        """Of a column, something larger."""
        result: flow.Tensor = x + self.columns
        return result


@pytest.mark.parametrize("of_argument", [True, False])
def test_arguments_are_not_kept_longer_for_it(of_argument: bool) -> None:
    def make() -> nn.Module:
        before: list[nn.Module] = [] if of_argument else [nn.Linear(1, 1)]
        return nn.Sequential(*before, Spread(64), nn.Linear(64, 32), nn.Linear(32, 64))

    plain, graph = compared(make, numbers(256, 1))
    again = [op.op for op in added(plain.full_job, graph.full_job)]
    assert ("add" in again) is not of_argument


def test_chains_of_ops() -> None:
    def make() -> nn.Module:
        blocks = [nn.Sequential(nn.Linear(32, 32), nn.BatchNorm1d(32), nn.Tanh(), nn.Linear(32, 32)) for _ in range(3)]
        return nn.Sequential(*blocks)

    plain, graph = compared(make, numbers(256, 32))
    again = [op.op for op in added(plain.full_job, graph.full_job)]
    # Of the product, which the normalisation's gradient needs in any case.
    assert "tanh" in again
    assert again[again.index("tanh") - 1] == "batch_norm"
    assert "batch_norm.running" not in again
    assert graph.plan.nbytes < plain.plan.nbytes


def transformer() -> nn.Module:
    """Three layers of attention and products."""
    layers = [nn.TransformerEncoderLayer(128, 4, 256, dropout=0.1, batch_first=True) for _ in range(3)]
    return nn.Sequential(nn.Linear(128, 128), *layers)


@pytest.mark.slow
def test_products_are_repeated_where_there_is_time_for_them_and_updates_never() -> None:
    x = numbers(8, 64, 128)
    plain, quick = compared(transformer, x, part_of_time=0.01)
    _, slow = compared(transformer, x)
    assert "linear" not in [op.op for op in added(plain.full_job, quick.full_job)]
    again = added(plain.full_job, slow.full_job)
    assert {"linear", "scaled_dot_product_attention"} <= {op.op for op in again}
    assert {op.kind for op in again} == {"call"}
    assert slow.plan.lower_bound < 0.6 * plain.plan.lower_bound
    assert slow.plan.lower_bound < quick.plan.lower_bound < plain.plan.lower_bound


@pytest.mark.not_on_cuda
def test_convolutions() -> None:
    def make() -> nn.Module:
        layers = [nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()) for _ in range(3)]
        return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), *layers, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 4))

    plain, graph = compared(make, numbers(32, 1, 8, 8))
    again = {op.op for op in added(plain.full_job, graph.full_job)}
    assert "conv2d_with_columns" in again
    assert "batch_norm.running" not in again
    assert graph.plan.lower_bound < 0.8 * plain.plan.lower_bound


def test_with_micro_batches() -> None:
    x = numbers(512, 32)
    plain, kept = trained(normalised, x, 0, steps=2)
    graph, anew = trained(normalised, x, _ANY_TIME, steps=2)
    assert anew == kept
    assert {op.phase for op in added(plain.full_job, graph.full_job)} == {"micro"}
    assert graph.plan.nbytes < plain.plan.nbytes


def test_without_a_backward_pass_nothing_changes() -> None:
    class Predict(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.model = normalised()
            self.config.allow_recomputation(_ANY_TIME)

        def build(self, x: flow.Tensor) -> flow.Tensor:
            result: flow.Tensor = self.model(x)
            return result

    graph = Predict()
    with flow.no_grad():
        graph(numbers(4, 32))
    assert [op.op for op in graph.full_job.ops].count("layer_norm") == 4


@pytest.mark.parametrize("order", ["memory", "speed", "given"])
def test_with_fusion_and_every_order(order: Literal["memory", "speed", "given"]) -> None:
    sizes: list[int] = []
    stories: list[list[Bits]] = []
    for part in (0, _ANY_TIME):
        flow.manual_seed(1)
        graph = Train(normalised(), part, fusion=True)
        graph.config.set_execution_order(order)
        stories.append([bits(graph(numbers(256, 32))) for _ in range(3)])
        sizes.append(graph.plan.nbytes)
    assert stories[0] == stories[1]
    assert sizes[1] < sizes[0]


@pytest.mark.slow
@settings(max_examples=20)
@given(nest=nests(), rows=st.sampled_from([1, 6, 40]), fusion=st.booleans())
def test_any_modules_give_the_same_bits_in_no_more_memory(nest: Any, rows: int, fusion: bool) -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 4), grown(nest), *[piece() for piece in PIECES[:5]], nn.Linear(4, 4))

    plain, graph = compared(make, numbers(rows + 1, 4), fusion)
    assert graph.plan.lower_bound <= plain.plan.lower_bound
