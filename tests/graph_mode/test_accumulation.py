"""Gradients accumulated by graphs: against an eager loop over the micro-batches, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest

import vmflow as flow
from vmflow import nn, optim
from vmflow.graph_mode.compiler import compile_job
from vmflow.graph_mode.job import Buffer, Job, JobOp, Operand, between_feeds_and_fetches
from vmflow.instructions.blob import meta

from .support import computing

STEPS = 3
functional = nn.functional


def model() -> nn.Sequential:
    """Running statistics, random numbers, and a value that must not change."""
    flow.manual_seed(1)
    made = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 4))
    made[4].bias.requires_grad_(False)
    return made


class Train(nn.Graph):
    """A step of training by `STEPS` micro-batches."""

    def __init__(self, module: nn.Module, optimizer: optim.Optimizer, scaler: Any = None) -> None:
        super().__init__()
        self.model = module
        self.add_optimizer(optimizer)
        self.config.set_gradient_accumulation_steps(STEPS)
        if scaler is not None:
            self.set_grad_scaler(scaler)

    def build(self, x: flow.Tensor, y: flow.Tensor) -> Any:
        """The loss, and the tensors that it was computed from."""
        out = self.model(x)
        loss = functional.cross_entropy(out, y)
        loss.backward()
        return loss, {"out": out}


def parts(tensor: flow.Tensor) -> list[flow.Tensor]:
    """The micro-batches."""
    size = len(tensor) // STEPS
    return [tensor[position : position + size] for position in range(0, len(tensor), size)]


def batches(count: int = 4) -> list[tuple[flow.Tensor, flow.Tensor]]:
    generator = np.random.default_rng(3)
    return [
        (flow.tensor(generator.normal(size=(12, 6)).astype(np.float32)), flow.tensor(generator.integers(0, 4, 12)))
        for _ in range(count)
    ]


def by_hand(
    module: nn.Module, optimizer: optim.Optimizer, clip: bool = False, scaler: Any = None
) -> tuple[list[Any], list[Any]]:
    """The losses and outputs of the eager loop."""
    losses: list[Any] = []
    outputs: list[Any] = []
    for x, y in batches():
        optimizer.zero_grad()
        for given, wanted in zip(parts(x), parts(y), strict=True):
            out = module(given)
            loss = functional.cross_entropy(out, wanted)
            mean = loss / STEPS
            (mean if scaler is None else scaler.scale(mean)).backward()
            losses.append(loss.detach())
            outputs.append(out.detach())
        if scaler is not None:
            scaler.unscale_(optimizer)
        if clip:
            optimizer.clip_grad()
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
    return [value.numpy() for value in losses], [output.numpy() for output in outputs]


def same_state(one: nn.Module, other: nn.Module) -> None:
    there = other.state_dict()
    for name, tensor in one.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), there[name].numpy(), err_msg=name)


def sgd(parameters: Any) -> optim.Optimizer:
    return optim.SGD(parameters, lr=0.1, momentum=0.9)


def adam(parameters: Any) -> optim.Optimizer:
    return optim.AdamW(parameters, lr=0.01)


@pytest.mark.parametrize("by_vm", [False, True], ids=["actors", "vm"])
@pytest.mark.parametrize("make", [sgd, adam])
def test_a_graph_does_what_the_loop_does(make: Callable[[Any], optim.Optimizer], by_vm: bool) -> None:
    eager, shared = model(), model()
    flow.manual_seed(5)
    losses, outputs = by_hand(eager, make(eager.parameters()))
    graph = Train(shared, make(shared.parameters()))
    flow.manual_seed(5)
    call = graph.run_by_vm if by_vm else graph
    results = [call(x, y) for x, y in batches()]
    np.testing.assert_array_equal(np.concatenate([result[0].numpy() for result in results]), np.array(losses))
    np.testing.assert_array_equal(
        np.concatenate([result[1]["out"].numpy() for result in results]), np.concatenate(outputs), strict=True
    )
    assert tuple(results[0][0].shape) == (STEPS,)
    same_state(eager, shared)


def test_clipped_and_scaled() -> None:
    eager, shared = model(), model()
    groups = [{"params": list(value.parameters()), "clip_grad_max_norm": 0.05} for value in (eager, shared)]
    scalers = [flow.amp.GradScaler(init_scale=64.0, growth_interval=2) for _ in range(2)]
    flow.manual_seed(5)
    losses, _ = by_hand(eager, sgd([groups[0]]), clip=True, scaler=scalers[0])
    graph = Train(shared, sgd([groups[1]]), scalers[1])
    flow.manual_seed(5)
    found = [graph(x, y)[0].numpy() for x, y in batches()]
    np.testing.assert_array_equal(np.concatenate(found), np.array(losses))
    same_state(eager, shared)
    assert scalers[0].get_scale() == scalers[1].get_scale() == 256.0


def test_the_next_launch_sees_the_step() -> None:
    given = batches(20)
    waiting, overlapping = [Train(value, sgd(value.parameters())) for value in (model(), model())]
    flow.manual_seed(5)
    waited = [waiting(x, y)[0].numpy() for x, y in given]
    flow.manual_seed(5)
    results = [overlapping(x, y)[0] for x, y in given]  # none is waited for before the next call
    assert overlapping.plan.launches_at_once == 1
    np.testing.assert_array_equal([result.numpy() for result in results], waited)
    same_state(waiting.model.origin, overlapping.model.origin)


def test_the_job() -> None:
    shared = model()
    graph = Train(shared, sgd(shared.parameters()))
    graph._compile(*batches()[0])
    job = graph.full_job
    assert job.micro_batches == STEPS
    assert [op.op for op in job.ops if op.kind in ("unpack", "accumulate", "pack")] == ["unpack", "accumulate", "pack"]
    assert [op.op for op in computing(job) if op.phase == "step"] == ["SGD.step"]
    assert {draw.phase for draw in job.draws} == {"micro"}
    kinds = [task.kind for task in graph.plan.tasks]
    assert sorted(kind for kind in kinds if kind in ("unpack", "acc", "pack")) == ["acc", "pack", "unpack"]
    gathered = next(op for op in job.ops if op.kind == "accumulate")
    assert len(gathered.inputs) == 5  # all parameters but the frozen one


class Whatever(nn.Graph):
    """Results of all kinds, without training."""

    def __init__(self, module: nn.Module, does: Callable[..., Any]) -> None:
        super().__init__()
        self.model = module
        self.does = does
        self.config.set_gradient_accumulation_steps(STEPS)

    def build(self, *args: Any, **kwargs: Any) -> Any:
        """As given."""
        return self.does(self.model, *args, **kwargs)


def views(module: Any, x: flow.Tensor) -> Any:
    """Parts of other tensors, the same one twice, and tensors that are no results of an op."""
    y = x * 2
    return y.t(), y[0, 0], (y, y), x, module.weight, flow.full((), 3.0)


def test_results_of_all_kinds_are_packed() -> None:
    linear = nn.Linear(6, 2)
    x = batches(1)[0][0]
    graph = Whatever(linear, views)
    want = [args for part in parts(x) for args in [views(linear, part)]]
    for found in (graph(x), graph.run_by_vm(x)):
        transposed, first, (one, other), same, weight, constant = found
        np.testing.assert_array_equal(transposed.numpy(), np.concatenate([value[0].numpy() for value in want]))
        np.testing.assert_array_equal(first.numpy(), np.array([value[1].numpy() for value in want]))
        np.testing.assert_array_equal(one.numpy(), 2 * x.numpy())
        np.testing.assert_array_equal(other.numpy(), 2 * x.numpy())
        np.testing.assert_array_equal(same.numpy(), x.numpy())
        np.testing.assert_array_equal(weight.numpy(), np.concatenate([linear.weight.detach().numpy()] * STEPS))
        assert constant.tolist() == [3.0] * STEPS


def in_place(module: Any, x: flow.Tensor) -> Any:
    x.add_(1)
    module.running.mul_(2).add_(x.sum())
    return x, module.running * 1


def test_changes_in_place_happen_for_each_micro_batch() -> None:
    module = nn.Module()
    module.register_buffer("running", flow.ones(()))
    x = flow.arange(6, dtype=flow.float32)
    found, running = Whatever(module, in_place)(x)
    assert found.tolist() == [1, 2, 3, 4, 5, 6]
    assert x.tolist() == [0, 1, 2, 3, 4, 5]  # the caller's stays as it is
    assert running.tolist() == [5, 17, 45]
    assert module.running.item() == 45


def test_arguments_that_nothing_uses() -> None:
    module = nn.Module()
    module.register_buffer("count", flow.zeros(()))

    def counting(module: Any, x: flow.Tensor) -> None:
        module.count.add_(1)

    graph = Whatever(module, counting)
    for _ in range(2):
        assert graph(flow.ones(3)) is None
    graph.run_by_vm(flow.ones(3))
    assert module.count.item() == 3 * STEPS


def test_micro_batches_that_read_nothing_are_paced() -> None:
    """As passes may leave a job: without unpacking, and with results that nobody reads."""
    of = meta((), flow.float32, flow.device("cpu"))
    add = JobOp("add_scalar", (Operand(0, of),), (Operand(0, of),), scalars=(1.0,), kind="into", phase="micro")
    buffers = {0: Buffer(0, of, "variable", "v")}
    job = Job("alone", buffers, between_feeds_and_fetches([add], buffers), micro_batches=STEPS)
    kinds = [task.kind for task in compile_job(job).tasks]
    assert kinds == ["wait_and_send_ids", "compute", "unpack", "acc", "callback_notify"]


@pytest.mark.parametrize(
    ("args", "kwargs", "what"),
    [
        ((), {}, "no tensor among them"),
        (
            (flow.ones(3), flow.ones(4)),
            {},
            r"args\[1\] of shape \[4\] has 4 along its first dim.*a multiple",
        ),
        ((flow.ones(3),), {"y": flow.ones(())}, r"kwargs\['y'\] of shape \[\] has no dimension"),
    ],
)
def test_arguments_that_cannot_be_cut(args: Any, kwargs: Any, what: str) -> None:
    graph = Whatever(nn.Linear(1, 1), lambda module, *args, **kwargs: None)
    with pytest.raises(ValueError, match=what):
        graph(*args, **kwargs)
    assert not graph.is_compiled


def test_a_step_cannot_read_what_is_not_accumulated() -> None:
    shared = model()
    graph = Train(shared, sgd(shared.parameters()))
    graph._compile(*batches()[0])
    job = graph.job
    kept = tuple([op for op in job.ops if op.kind != "accumulate"])
    gradients = next(op for op in job.ops if op.kind == "accumulate")
    names = {made.buffer: given for given, made in zip(gradients.inputs, gradients.outputs, strict=True)}
    careless = tuple(
        [attrs.evolve(op, inputs=tuple([names.get(operand.buffer, operand) for operand in op.inputs])) for op in kept],
    )
    with pytest.raises(ValueError, match="made in the phase 'micro'; it must be accumulated"):
        attrs.evolve(job, ops=careless).check()
    late = tuple(sorted(job.ops, key=lambda op: op.op == "linear"))
    with pytest.raises(ValueError, match=r"reads buffer|which the step has changed before"):
        attrs.evolve(job, ops=late).check()


def test_a_failing_micro_batch_fails_the_call_and_not_the_next() -> None:
    def divided(module: Any, x: flow.Tensor) -> Any:
        return functional.one_hot(x, 4)

    graph = Whatever(nn.Linear(1, 1), divided)
    good, bad = flow.tensor([0, 1, 2]), flow.tensor([0, 9, 2])
    assert graph(good).shape == (3, 4)
    failed = graph(bad)
    with pytest.raises((RuntimeError, ValueError, IndexError)):
        failed.numpy()
    assert graph(good).numpy().argmax(1).tolist() == [0, 1, 2]
    with pytest.raises((RuntimeError, ValueError, IndexError)):
        graph.run_by_vm(bad).numpy()


class Across(nn.Graph):
    """Trains on one device with inputs from another."""

    def __init__(self, module: nn.Module, optimizer: optim.Optimizer, slots: int) -> None:
        super().__init__()
        self.model = module
        self.add_optimizer(optimizer)
        self.config.set_gradient_accumulation_steps(STEPS)
        self.config.set_outputs_buffer_size(slots)

    def build(self, x: flow.Tensor, y: flow.Tensor) -> Any:
        """The loss and the output, back on the host."""
        out = self.model(x.to("sim"))
        loss = functional.cross_entropy(out.cpu(), y)
        loss.backward()
        return loss, out


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_over_two_devices(slots: int) -> None:
    eager, shared = model().to("sim"), model().to("sim")
    made = [sgd([{"params": list(value.parameters()), "clip_grad_max_norm": 0.5}]) for value in (eager, shared)]
    given = [(x.cpu(), y.cpu()) for x, y in batches()]
    flow.manual_seed(5)
    losses: list[Any] = []
    for x, y in given:
        made[0].zero_grad()
        for some, wanted in zip(parts(x), parts(y), strict=True):
            loss = functional.cross_entropy(eager(some.to("sim")).cpu(), wanted)
            (loss / STEPS).backward()
            losses.append(loss.item())
        made[0].clip_grad()
        made[0].step()
    graph = Across(shared, made[1], slots)
    flow.manual_seed(5)
    found = [graph(x, y) for x, y in given]  # without waiting in between
    assert [value for loss, _ in found for value in loss.tolist()] == losses
    assert found[0][1].device.type == "sim"
    same_state(eager, shared)


def test_stages_and_micro_batches() -> None:
    """Micro-batches pass through the stages of a pipeline, one behind the other."""
    eager, shared = model(), model()
    flow.manual_seed(5)
    losses, _ = by_hand(eager, sgd(eager.parameters()))
    graph = Train(shared, sgd(shared.parameters()))
    blocks: Any = graph.model
    for number, stage in enumerate([0, 0, 0, 1, 1]):
        blocks[number].config.set_stage(stage)
    flow.manual_seed(5)
    found = [graph(x, y)[0] for x, y in batches()]
    np.testing.assert_array_equal(np.concatenate([tensor.numpy() for tensor in found]), np.array(losses))
    same_state(eager, shared)
    assert len({op.stage for op in graph.full_job.ops}) == 2
