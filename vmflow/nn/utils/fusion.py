"""Fusing a convolution or linear layer and the batch norm behind it into one layer, for evaluation."""

from __future__ import annotations

import copy
from typing import TypeVar

from vmflow.autograd import no_grad
from vmflow.nn.layers import Linear
from vmflow.nn.module import Module
from vmflow.nn.parameter import Parameter
from vmflow.operands import check_tensors
from vmflow.ops.creation.creation import ones_like, zeros_like
from vmflow.tensors import Tensor

Fused = TypeVar("Fused", bound=Module)


def fuse_conv_bn_eval(conv: Fused, bn: Module, transpose: bool = False) -> Fused:
    """Return a convolution that computes the same as `conv` followed by the batch norm `bn` in evaluation mode.

        fused = nn.utils.fuse_conv_bn_eval(conv.eval(), bn.eval())

    Args:
        conv: a convolution of any number of dimensions, in evaluation mode; it is not changed.
        bn: the batch norm behind `conv`, in evaluation mode, with running statistics.
        transpose: whether `conv` is a transposed convolution, of one group.

    Raises:
        ValueError: for layers in training mode, a batch norm without running statistics, or a transposed convolution of
            several groups.

    Example:
        >>> conv, bn = flow.nn.Conv2d(3, 4, 2).eval(), flow.nn.BatchNorm2d(4).eval()
        >>> x = flow.ones(1, 3, 5, 5)
        >>> flow.allclose(flow.nn.utils.fuse_conv_bn_eval(conv, bn)(x), bn(conv(x)), atol=1e-5)
        True
    """
    mean, variance, eps = _statistics("fuse_conv_bn_eval", conv, bn)
    if transpose and conv.groups != 1:
        raise ValueError(f"fuse_conv_bn_eval: expected a transposed convolution of one group, got {conv.groups} groups")
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight, fused.bias, mean, variance, eps, bn.weight, bn.bias, transpose
    )
    return fused


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Return weight and bias of a convolution that does the same as a given convolution followed by a batch norm.

    Args:
        conv_w, conv_b: the convolution's weight (outputs, inputs, ...) and bias (outputs,), or None.
        bn_rm, bn_rv: the batch norm's running mean and variance, (outputs,).
        bn_eps: the batch norm's `eps`, added to the variance.
        bn_w, bn_b: the weight and the bias of the batch norm, (outputs,), or None.
        transpose: whether the weight is that of a transposed convolution of one group, (inputs, outputs, ...).

    Raises:
        TypeError: for anything else than tensors, or None for an optional one.
    """
    return _fused("fuse_conv_bn_weights", conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 1 if transpose else 0)


def fuse_linear_bn_eval(linear: Fused, bn: Module) -> Fused:
    """Return a linear layer that computes the same as `linear` followed by the batch norm `bn` in evaluation mode.

    Both layers must be in evaluation mode; see `fuse_conv_bn_eval`.

    Raises:
        ValueError: for layers in training mode, no running statistics, or numbers of features that differ, unless `bn`
            has 1 feature.
    """
    mean, variance, eps = _statistics("fuse_linear_bn_eval", linear, bn)
    if isinstance(linear, Linear) and mean.shape[0] not in (1, linear.out_features):
        raise ValueError(
            f"fuse_linear_bn_eval: a normalisation of {mean.shape[0]} features does not fit behind a layer of "
            f"{linear.out_features} outputs"
        )
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(fused.weight, fused.bias, mean, variance, eps, bn.weight, bn.bias)
    return fused


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
) -> tuple[Parameter, Parameter]:
    """Return weight and bias of a linear layer that does the same as a given linear layer followed by a batch norm.

    Args:
        linear_w, linear_b: the linear layer's weight (outputs, inputs) and bias (outputs,), or None.
        bn_rm, bn_rv, bn_eps, bn_w, bn_b: as for `fuse_conv_bn_weights`.

    Raises:
        TypeError: as `fuse_conv_bn_weights`.
    """
    return _fused("fuse_linear_bn_weights", linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 0)


def _statistics(function: str, layer: Module, bn: Module) -> tuple[Tensor, Tensor, float]:
    if layer.training or bn.training:
        raise ValueError(f"{function}: both layers must be in evaluation, where alone they are one; call eval() first")
    mean, variance = bn.running_mean, bn.running_var
    if mean is None or variance is None:
        raise ValueError(f"{function}: {type(bn).__name__} has no running statistics, so it depends on the batch")
    return mean, variance, bn.eps


def _fused(
    name: str,
    weight: Tensor,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    eps: float,
    scale: Tensor | None,
    shift: Tensor | None,
    outputs: int,
) -> tuple[Parameter, Parameter]:
    """Return weight and bias of a fused layer; `outputs` is the index of the weight's dimension for the outputs."""
    check_tensors(name, weight, mean, variance, optional=(bias, scale, shift))
    trained = bias is not None and bias.requires_grad  # a new bias is not trained, as in PyTorch
    with no_grad():
        before = zeros_like(mean) if bias is None else bias
        by = (variance + eps).rsqrt() * (ones_like(mean) if scale is None else scale)
        shape = [1] * weight.ndim
        shape[outputs] = -1
        new_weight = (weight * by.reshape(shape)).to(dtype=weight.dtype)
        new_bias = (before - mean) * by + (zeros_like(mean) if shift is None else shift)
        new_bias = new_bias.to(dtype=weight.dtype if bias is None else bias.dtype)
    return Parameter(new_weight, weight.requires_grad), Parameter(new_bias, trained)
