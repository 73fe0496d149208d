"""Kernels placed over memory that stays where it is: graphs compute the same with them as eager ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import nn
from vmflow.graph_mode.job import JobOp
from vmflow.instructions.blob import Array
from vmflow.kernels.native.loading import LOADER
from vmflow.tensors import Tensor

from .support import same_bits

pytestmark = [pytest.mark.usefixtures("compiled"), pytest.mark.host]

F = nn.functional


def _model() -> nn.Sequential:
    """With a layer of each kind that is placed."""
    flow.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 5, 3, padding=1),
        nn.BatchNorm2d(5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(5, 4, 3, stride=2, bias=False),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(16, 8),
        nn.Sigmoid(),
        nn.Linear(8, 3, bias=False),
    )


def _x(seed: int = 0) -> Tensor:
    return flow.tensor(np.random.default_rng(seed).standard_normal((6, 2, 11, 12)).astype(np.float32))


def _gradients(model: nn.Module, x: Tensor) -> list[Tensor | None]:
    return [*flow.autograd.grad(model(x).square().sum(), [x, *model.parameters()])]


class Gradients(nn.Graph):
    """The gradients of a model, including that by its input."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def build(self, x: Tensor) -> Any:
        return _gradients(self.model, x.detach().requires_grad_())


def _arrays(tensors: Sequence[Tensor | None]) -> list[Array]:
    return [tensor.detach().numpy() for tensor in tensors if tensor is not None]


def _check(graph: Gradients, model: nn.Module, x: Tensor) -> None:
    found = _arrays(graph(x))
    expected = _arrays(_gradients(model, x.detach().requires_grad_()))
    assert len(found) == 1 + len(list(model.parameters()))
    for one, other in zip(expected, found, strict=True):
        assert same_bits(one, other)


def test_graphs_and_eager_ops_compute_the_same() -> None:
    model = _model()
    graph = Gradients(model)
    for seed in range(3):
        _check(graph, model, _x(seed))


def test_memory_that_is_elsewhere_is_found() -> None:
    """Parameters that are replaced between two launches, and kernels that come and go."""
    model = _model()
    graph = Gradients(model)
    _check(graph, model, _x())
    for parameter in model.parameters():
        parameter.data = parameter.detach() * 0.5
    _check(graph, model, _x())
    LOADER.mode = "off"
    _arrays(graph(_x()))
    LOADER.mode = "wait"
    _check(graph, model, _x())


def _is_placed(op: JobOp) -> bool:
    placed = op.infer().kernel.placed
    given, made = [
        [np.zeros(value.meta.shape, value.meta.dtype.numpy) for value in those] for those in (op.inputs, op.outputs)
    ]
    return placed is not None and bool(placed(given, made, None))


def test_every_op_of_theirs_is_placed() -> None:
    graph = Gradients(_model())
    graph.config.allow_fusion(False)
    _arrays(graph(_x()))
    wanted = {"conv2d", "conv2d_gradient", "batch_norm", "batch_norm_gradient", "relu", "relu_gradient", "gelu"}
    wanted |= {"gelu_gradient", "max_pool2d_with_indices", "linear", "linear_gradient", "sigmoid"}
    assert {op.op for op in graph.full_job.ops if op.kind == "call" and _is_placed(op)} == wanted


class Losses(nn.Graph):
    """The mean and the sum of losses, with the gradient of both together."""

    def build(self, scores: Tensor, target: Tensor) -> Any:
        return _losses(scores.detach().requires_grad_(), target)


def _losses(scores: Tensor, target: Tensor) -> list[Tensor | None]:
    mean, total = F.cross_entropy(scores, target), F.cross_entropy(scores, target, reduction="sum")
    return [mean, total, *flow.autograd.grad(mean + total * 0.5, [scores])]


@pytest.mark.parametrize("shape", [(500, 10), (3, 1), (10,)])
def test_losses_by_classes(shape: tuple[int, ...]) -> None:
    classes = shape[-1]
    targets = np.random.default_rng(1).integers(0, classes, shape[:-1])
    ignored = np.where(np.arange(targets.size).reshape(targets.shape) % 3 == 1, -100, targets)
    graph = Losses()
    for seed, target in enumerate((targets, ignored, targets)):
        scores = flow.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32) * 5)
        expected = _losses(scores.clone().requires_grad_(), flow.tensor(target))
        for one, other in zip(_arrays(expected), _arrays(graph(scores, flow.tensor(target))), strict=True):
            assert same_bits(one, other)
    placed = {op.op for op in graph.full_job.ops if op.kind == "call" and _is_placed(op)}
    assert placed >= {"cross_entropy", "cross_entropy_gradient"}


def test_a_class_that_does_not_exist_is_said_by_a_graph_too_and_the_next_call_works() -> None:
    graph, scores = Losses(), flow.tensor(np.ones((500, 10), np.float32))
    good = flow.zeros(500, dtype=flow.int64)
    before = _arrays(graph(scores, good))
    target = np.zeros(500, np.int64)
    target[499] = 10
    with pytest.raises(IndexError, match="class index 10 is out of range for 10 classes"):
        _arrays(graph(scores, flow.tensor(target)))
    for one, other in zip(before, _arrays(graph(scores, good)), strict=True):
        assert same_bits(one, other)


def test_arrays_with_gaps_take_the_usual_way() -> None:
    weight, bias = flow.randn(7, 5), flow.randn(7)
    images, kernel = flow.randn(3, 4, 9, 9), flow.randn(2, 2, 3, 3)

    class Parts(nn.Graph):
        def build(self, x: Tensor, images: Tensor) -> Any:
            return _of_parts(x, images)

    def _of_parts(x: Tensor, images: Tensor) -> list[Tensor]:
        part, turned = images[:, ::2], images.permute(0, 1, 3, 2)
        return [
            F.linear(x.t(), weight, bias),
            F.conv2d(part, kernel),
            F.max_pool2d(turned, 2),
            F.batch_norm(turned, None, None, training=True),
            F.relu(turned[:, 1:]),
        ]

    x = flow.randn(5, 6)
    for one, other in zip(_of_parts(x, images), Parts()(x, images), strict=True):
        assert same_bits(one.numpy(), other.numpy())
