"""Activations made of pieces, most of them straight: rectifiers, shrinkages and their softened and random relatives.

At a bend each takes the derivative that PyTorch takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from vmflow import dtypes, random
from vmflow.autograd.grad_mode import is_grad_enabled
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.copying import copy_
from vmflow.ops.declaration import function, public
from vmflow.ops.destination import out_by_copy
from vmflow.ops.formula import Formula, formula
from vmflow.ops.nn.layer_operands import check_floating, is_half

from .activation import hardtanh
from .selection import where

if TYPE_CHECKING:
    from vmflow.tensors import Tensor

# The fixed point of mean 0 and variance 1 (G. Klambauer et al., Self-Normalizing Neural Networks, 2017).
SELU_ALPHA: Final = 1.6732632423543772848170429916717
SELU_SCALE: Final = 1.0507009873554804934193349852946


def applied(name: str, function: Callable[..., Tensor], input: Tensor, inplace: bool, *parameters: Any) -> Tensor:
    """``function(input, *parameters)`` of a floating-point tensor, half precision computed in float32.

    Args:
        name: of the activation, for errors.
        function: in terms of flow ops.
        input: floating-point.
        inplace: write the result into `input` and return that.
        parameters: handed on.

    Raises:
        TypeError: for another dtype.
    """
    check_floating(name, input._blob.meta)
    # What the gradient needs of the tensor must stay as it was.
    before = input.clone() if inplace and input.requires_grad and is_grad_enabled() else input
    if is_half(input._blob.meta) and not isinstance(function, Formula):
        result = function(before.to(dtypes.float32), *parameters).to(input.dtype)
    else:
        result = function(before, *parameters)
    return copy_(input, result) if inplace else result


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """``min(max(input, 0), 6)``."""
    return applied("relu6", hardtanh, input, inplace, 0.0, 6.0)


@formula("hardsigmoid")
def _hardsigmoid(input: Tensor) -> Tensor:
    return hardtanh(input / 6 + 0.5, 0.0, 1.0)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """``input / 6 + 1 / 2`` limited to [0, 1]."""
    return applied("hardsigmoid", _hardsigmoid, input, inplace)


@formula("hardswish")
def _hardswish(input: Tensor) -> Tensor:
    return input * (hardtanh(input + 3, 0.0, 6.0) / 6)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """``input * hardsigmoid(input)`` (A. Howard et al., Searching for MobileNetV3, 2019)."""
    return applied("hardswish", _hardswish, input, inplace)


@formula("threshold")
def _threshold(input: Tensor, limit: float, value: float) -> Tensor:
    return where(input <= limit, value, input).to(input.dtype)


@function()
@out_by_copy()
def threshold(
    input: Tensor, threshold: float, value: float, inplace: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """`input` where above `threshold`, else `value`."""
    return applied("threshold", _threshold, input, inplace, threshold, value)


@function()
def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """In-place `threshold`."""
    return applied("threshold_", _threshold, input, True, threshold, value)


# Of `selu` and `celu`.
@formula("exponential_linear")
def _exponential(input: Tensor, alpha: float, scale: float, rate: float) -> Tensor:
    # The branch not taken must not overflow, or its gradient would be nan.
    return where(input > 0, input * scale, (input.clamp(max=0) * rate).expm1() * (alpha * scale))


@public()
def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """`elu`, scaled so that a mean of 0 and a variance of 1 are kept from layer to layer."""
    return applied("selu", _exponential, input, inplace, SELU_ALPHA, SELU_SCALE, 1.0)


@function()
def selu_(input: Tensor) -> Tensor:
    """In-place `selu`."""
    return selu(input, True)


@function()
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """`input` where positive, else ``alpha * (exp(input / alpha) - 1)``.

    Raises:
        ValueError: if `alpha` is 0.
    """
    if alpha == 0:
        raise ValueError("celu: alpha must not be 0")
    return applied("celu", _exponential, input, inplace, alpha, 1.0, 1.0 / alpha)


@function()
def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """In-place `celu`."""
    return celu(input, alpha, True)


@formula("hardshrink")
def _hardshrink(input: Tensor, lambd: float) -> Tensor:
    # A nan is within no distance, and stays.
    return where((input >= -lambd) & (input <= lambd), 0.0, input)


@public()
@out_by_copy()
def hardshrink(input: Tensor, lambd: float = 0.5, *, out: Tensor | None = None) -> Tensor:
    """`input`, but 0 where within `lambd` of 0."""
    return applied("hardshrink", _hardshrink, input, False, lambd)


@formula("softshrink")
def _softshrink(input: Tensor, lambd: float) -> Tensor:
    return where(input > lambd, input - lambd, where(input < -lambd, input + lambd, input * 0.0))


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """`input` brought closer to 0 by `lambd`; 0 where it is no further away.

    Raises:
        ValueError: if `lambd` is negative.
    """
    if not lambd >= 0:
        raise ValueError(f"softshrink: lambd cannot be negative, got {lambd}")
    return applied("softshrink", _softshrink, input, False, lambd)


@public()
@autocast_as_op
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """`input` where positive, else ``weight * input``.

    Args:
        input: floating-point, (N, C, ...) or of any shape.
        weight: of the same dtype, with one element or, for dimension 1, C.

    Raises:
        TypeError: for dtypes that differ.
        ValueError: for another number of weights.
    """
    if weight.dtype is not input.dtype:
        raise TypeError(
            f"prelu: the input and the weight must have one dtype, not {input.dtype.name} and {weight.dtype.name}"
        )
    channels = input.shape[1] if input.ndim > 1 else 1
    if weight.ndim > 1 or weight.numel() not in (1, channels):
        raise ValueError(
            f"prelu: an input of shape {list(input.shape)} takes a weight with 1 element"
            f"{f' or {channels}' if channels != 1 else ''}, not of shape {list(weight.shape)}"
        )
    slope = weight.reshape(()) if weight.numel() == 1 else weight.reshape((1, channels) + (1,) * (input.ndim - 2))
    # Where the input is infinite, the branch not taken must stay finite, or the slope's gradient would be nan.
    return applied("prelu", lambda x: where(x > 0, x, x.clamp(max=0) * slope.to(x.dtype)), input, False)


@function()
def rrelu(
    input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """`input` where positive, else times a slope from [lower, upper): random if `training`, else the middle.

    Raises:
        ValueError: if `lower` is above `upper`.
    """
    if not lower <= upper:
        raise ValueError(f"rrelu: the lower slope {lower} must not be above the upper slope {upper}")

    def sloped(x: Tensor) -> Tensor:
        if not training:
            return where(x > 0, x, x * ((lower + upper) / 2))
        slope = random.rand_like(x.detach()) * (upper - lower) + lower
        return where(x > 0, x, x.clamp(max=0) * slope)

    return applied("rrelu", sloped, input, inplace)


@function()
def rrelu_(input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Tensor:
    """In-place `rrelu`."""
    return rrelu(input, lower, upper, training, True)


@formula("square_relu")
def _square_relu(input: Tensor) -> Tensor:
    return input.clamp(min=0).square()


def square_relu(input: Tensor) -> Tensor:
    """``max(input, 0)**2``, under OneFlow's name."""
    return applied("square_relu", _square_relu, input, False)
