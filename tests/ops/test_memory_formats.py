"""Memory formats: the order of elements in memory, which no op's result depends on."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
import vmflow.nn.functional as F

SHAPE = (2, 3, 4, 5)


def image() -> flow.Tensor:
    return flow.tensor(np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32))


def test_formats_are_four_objects() -> None:
    assert repr(flow.channels_last) == "vmflow.channels_last"
    for value in (flow.channels_last, flow.channels_last_3d, flow.contiguous_format, flow.preserve_format):
        assert isinstance(value, flow.memory_format)
        assert copy.deepcopy(value) is value
        assert pickle.loads(pickle.dumps(value)) is value


def test_a_copy_in_a_format_has_the_values_and_a_gradient() -> None:
    x = image().requires_grad_()
    y = x.contiguous(memory_format=flow.channels_last)
    assert y.stride() == (60, 1, 15, 3)
    assert y.is_contiguous(memory_format=flow.channels_last)
    assert not y.is_contiguous()
    assert y.tolist() == x.tolist()
    assert y.contiguous(memory_format=flow.channels_last) is y
    assert y.contiguous().stride() == x.stride()
    (y * y).sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), 2 * x.detach().numpy())


def test_errors_of_wrong_formats() -> None:
    x = flow.zeros(2, 3)
    with pytest.raises(
        ValueError, match=r"contiguous: vmflow\.channels_last is for tensors of 4 dimensions, got one of 2"
    ):
        x.contiguous(memory_format=flow.channels_last)
    with pytest.raises(ValueError, match=r"to: vmflow[.]channels_last_3d is for tensors of 5 dimensions"):
        x.to(memory_format=flow.channels_last_3d)
    with pytest.raises(ValueError, match="contiguous: preserve_format is no order"):
        x.t().contiguous(memory_format=flow.preserve_format)
    with pytest.raises(TypeError, match=r"clone: memory_format must be one such as vmflow[.]channels_last, not 'NHWC'"):
        x.clone(memory_format="NHWC")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is_contiguous: memory_format must be"):
        x.is_contiguous(memory_format=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="to: memory_format must be"):
        x.to(memory_format="channels_last")
    assert not x.is_contiguous(memory_format=flow.channels_last)


def test_new_tensors_in_a_format_can_be_changed_and_be_leaves() -> None:
    x = flow.empty(SHAPE, memory_format=flow.channels_last)
    assert x.fill_(1).add_(2).tolist() == flow.full(SHAPE, 3.0).tolist()
    assert x.is_contiguous(memory_format=flow.channels_last)
    leaf = flow.zeros_like(x, memory_format=flow.preserve_format, requires_grad=True)
    assert leaf.is_leaf
    (leaf + 1).square().sum().backward()
    assert leaf.grad is not None
    with flow.no_grad():
        leaf -= leaf.grad
    assert leaf.tolist() == flow.full(SHAPE, -2.0).tolist()
    flow.manual_seed(1)
    drawn = flow.rand_like(x, memory_format=flow.channels_last)
    assert drawn.is_contiguous(memory_format=flow.channels_last)
    assert 0 <= drawn.min() < drawn.max() < 1


LAYERS: dict[str, Callable[[Any], Any]] = {
    "conv2d": lambda x: F.conv2d(x, flow.arange(2.0 * 3 * 9).reshape(2, 3, 3, 3) / 10, padding=1),
    "grouped conv2d": lambda x: F.conv2d(x, flow.arange(27.0).reshape(3, 1, 3, 3) / 10, groups=3),
    "conv_transpose2d": lambda x: F.conv_transpose2d(x, flow.arange(24.0).reshape(3, 2, 2, 2) / 10, stride=2),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 2, padding=1),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, (3, 2)),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, (3, 2)),
    "group_norm": lambda x: F.group_norm(x, 3, flow.arange(3.0), flow.ones(3)),
    "batch_norm": lambda x: F.batch_norm(x, flow.zeros(3), flow.ones(3), training=True),
    "instance_norm": lambda x: F.instance_norm(x),
    "layer_norm": lambda x: F.layer_norm(x, (5,)),
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "bilinear": lambda x: F.interpolate(x, size=(7, 3), mode="bilinear", align_corners=True),
    "pad": lambda x: F.pad(x, (1, 2, 1, 0), "reflect"),
    "relu": F.relu,
    "softmax": lambda x: x.softmax(1),
    "dropout": lambda x: F.dropout(x, 1.0),
    "mean": lambda x: x.mean((2, 3)),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x.repeat(1, 4, 1, 1), 2),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_channels_last_data(name: str) -> None:
    found = []
    for format in (flow.contiguous_format, flow.channels_last):
        x = image().contiguous(memory_format=format).requires_grad_()
        result = LAYERS[name](x)
        (result * flow.arange(float(result.numel())).reshape(result.shape)).sum().backward()
        assert x.grad is not None
        found.append((result.detach().numpy(), x.grad.numpy()))
    for mine, other in zip(*found, strict=True):
        np.testing.assert_allclose(mine, other, 1e-4, 1e-4)


def test_formats_on_another_device() -> None:
    x = flow.rand(2, 3)
    there = x.t().to("sim", memory_format=flow.preserve_format)
    assert there.stride() == (1, 3)
    assert there.tolist() == x.t().tolist()
    assert image().to("sim", memory_format=flow.channels_last).is_contiguous(memory_format=flow.channels_last)
    assert x.t().to("sim", flow.float64, memory_format=flow.preserve_format).stride() == (1, 3)
    assert x.t().to("sim").stride() == (2, 1)


def test_modules_in_a_format_train_as_others() -> None:
    found = []
    for format in (flow.contiguous_format, flow.channels_last):
        flow.manual_seed(3)
        model = flow.nn.Sequential(
            flow.nn.Conv2d(3, 4, 3), flow.nn.BatchNorm2d(4), flow.nn.ReLU(), flow.nn.Flatten(), flow.nn.Linear(24, 2)
        )
        assert model.to(memory_format=format) is model
        weight = model[0].weight
        assert weight.is_contiguous(memory_format=format)
        assert weight.is_leaf
        optimizer = flow.optim.Adam(model.parameters(), 0.01)
        for _ in range(3):
            optimizer.zero_grad()
            model(image().to(memory_format=format)).square().mean().backward()
            optimizer.step()
        assert weight.is_contiguous(memory_format=format)
        found.append([parameter.detach().numpy() for parameter in model.parameters()])
        model.double().to(memory_format=flow.preserve_format)
    for mine, other in zip(*found, strict=True):
        np.testing.assert_allclose(mine, other, 1e-4, 1e-5)


def test_formats_in_graphs() -> None:
    class Formats(flow.nn.Graph):
        def build(self, x: flow.Tensor) -> flow.Tensor:
            y = x.contiguous(memory_format=flow.channels_last)
            assert y.is_contiguous(memory_format=flow.channels_last)
            found: flow.Tensor = F.max_pool2d(y, 2)
            return found + flow.zeros_like(y, memory_format=flow.preserve_format)[..., :2, :2]

    assert Formats()(image()).tolist() == F.max_pool2d(image(), 2).tolist()
