"""Layers and batch normalisations as one layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import nn
from vmflow.nn import utils


def trained(bn: Any, features: int) -> Any:
    """With statistics and parameters that are not the usual ones."""
    for parameter in (*bn.parameters(), bn.running_mean):
        nn.init.normal_(parameter)
    nn.init.uniform_(bn.running_var, 0.5, 2.0)
    assert bn.num_features == features
    return bn.eval()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolutions(rank: int, affine: bool, bias: bool) -> None:
    conv = getattr(nn, f"Conv{rank}d")(4, 6, 3, groups=2, bias=bias).eval()
    bn = trained(getattr(nn, f"BatchNorm{rank}d")(6, affine=affine), 6)
    x = flow.rand(2, 4, *[5] * rank)
    fused = utils.fuse_conv_bn_eval(conv, bn)
    assert type(fused) is type(conv)
    assert (conv.bias is None) is not bias
    np.testing.assert_allclose(fused(x).detach().numpy(), bn(conv(x)).detach().numpy(), rtol=1e-4, atol=1e-5)
    assert fused.bias.requires_grad is bias  # as in PyTorch


def test_a_transposed_convolution() -> None:
    conv, bn = nn.ConvTranspose2d(4, 6, 3).eval(), trained(nn.BatchNorm2d(6), 6)
    x = flow.rand(2, 4, 5, 5)
    fused = utils.fuse_conv_bn_eval(conv, bn, transpose=True)
    np.testing.assert_allclose(fused(x).detach().numpy(), bn(conv(x)).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_a_transposed_convolution_of_several_groups_is_refused() -> None:
    conv, bn = nn.ConvTranspose2d(4, 4, 3, groups=2).eval(), nn.BatchNorm2d(4).eval()
    with pytest.raises(ValueError, match="expected a transposed convolution of one group, got 2 groups"):
        utils.fuse_conv_bn_eval(conv, bn, transpose=True)


@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_layer(bias: bool) -> None:
    linear, bn = nn.Linear(4, 6, bias=bias).eval(), trained(nn.BatchNorm1d(6), 6)
    x = flow.rand(3, 4)
    fused = utils.fuse_linear_bn_eval(linear, bn)
    np.testing.assert_allclose(fused(x).detach().numpy(), bn(linear(x)).detach().numpy(), rtol=1e-4, atol=1e-5)
    frozen = utils.fuse_linear_bn_eval(linear.requires_grad_(False), bn)
    assert not frozen.weight.requires_grad


def test_dtypes_are_those_of_the_layer() -> None:
    weight, bias = utils.fuse_linear_bn_weights(
        flow.ones(2, 3).half(), None, flow.zeros(2), flow.ones(2), 0.0, flow.ones(2) * 3, None
    )
    assert weight.dtype is flow.float16
    assert bias.dtype is flow.float16
    assert weight.tolist() == [[3] * 3] * 2


@pytest.mark.parametrize(
    ("layer", "bn", "message"),
    [
        (nn.Linear(2, 2), nn.BatchNorm1d(2), "both layers must be in evaluation"),
        (nn.Linear(2, 2).eval(), nn.BatchNorm1d(2), "both layers must be in evaluation"),
        (nn.Linear(2, 2).eval(), nn.BatchNorm1d(2, track_running_stats=False).eval(), "no running statistics"),
        (nn.Linear(2, 2).eval(), nn.BatchNorm1d(3).eval(), "3 features does not fit"),
    ],
)
def test_layers_that_cannot_be_fused(layer: Any, bn: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        utils.fuse_linear_bn_eval(layer, bn)
