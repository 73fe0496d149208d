"""Activations that have different formulas on parts of the number line: rectifiers, shrinkages and their variants.

Where two parts meet, the derivative is PyTorch's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from vmflow import dtypes, random
from vmflow.autograd.grad_mode import is_grad_enabled
from vmflow.operands import check_tensors
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

# With these constants of SELU, mean 0 and variance 1 are a fixed point of a layer (G. Klambauer et al.,
# Self-Normalizing Neural Networks, 2017).
SELU_ALPHA: Final = 1.6732632423543772848170429916717
SELU_SCALE: Final = 1.0507009873554804934193349852946


def applied(name: str, function: Callable[..., Tensor], input: Tensor, inplace: bool, *parameters: Any) -> Tensor:
    """Compute the activation ``function(input, *parameters)``, in float32 for half precision, perhaps in place.

    Args:
        name: of the activation, for errors.
        function: composed of vmflow ops.
        input: floating-point.
        inplace: whether to write the result into `input` and return `input`.
        parameters: further arguments of `function`.

    Raises:
        TypeError: if `input` is not floating-point.
    """
    check_tensors(name, input)
    check_floating(name, input._blob.meta)
    # Copied, since the backward pass needs the values that the in-place write overwrites.
    before = input.clone() if inplace and input.requires_grad and is_grad_enabled() else input
    if is_half(input._blob.meta) and not isinstance(function, Formula):
        result = function(before.to(dtypes.float32), *parameters).to(input.dtype)
    else:
        result = function(before, *parameters)
    return copy_(input, result) if inplace else result


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """``min(max(input, 0), 6)`` of each element.

    Args:
        input: floating-point, of any shape.
        inplace: whether to write the result into `input`.

    Raises:
        TypeError: if `input` is not floating-point.

    Example:
        >>> flow.nn.functional.relu6(flow.tensor([-1.0, 2.0, 8.0]))
        tensor([0., 2., 6.])
    """
    return applied("relu6", hardtanh, input, inplace, 0.0, 6.0)


@formula("hardsigmoid")
def _hardsigmoid(input: Tensor) -> Tensor:
    return hardtanh(input / 6 + 0.5, 0.0, 1.0)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """``input / 6 + 1 / 2`` of each element, limited to [0, 1].

    Args:
        input: floating-point, of any shape.
        inplace: whether to write the result into `input`.

    Raises:
        TypeError: if `input` is not floating-point.

    Example:
        >>> flow.nn.functional.hardsigmoid(flow.tensor([-4.0, 0.0, 4.0]))
        tensor([0.0000, 0.5000, 1.0000])
    """
    return applied("hardsigmoid", _hardsigmoid, input, inplace)


@formula("hardswish")
def _hardswish(input: Tensor) -> Tensor:
    return input * (hardtanh(input + 3, 0.0, 6.0) / 6)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """``input * hardsigmoid(input)`` of each element (A. Howard et al., Searching for MobileNetV3, 2019).

    Args:
        input: floating-point, of any shape.
        inplace: whether to write the result into `input`.

    Raises:
        TypeError: if `input` is not floating-point.

    Example:
        >>> flow.nn.functional.hardswish(flow.tensor([-1.5, 3.0]))
        tensor([-0.3750,  3.0000])
    """
    return applied("hardswish", _hardswish, input, inplace)


@formula("threshold")
def _threshold(input: Tensor, limit: float, value: float) -> Tensor:
    return where(input <= limit, value, input).to(input.dtype)


@function()
@out_by_copy()
def threshold(
    input: Tensor, threshold: float, value: float, inplace: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """Each element, but `value` for elements up to `threshold`.

    Args:
        input: floating-point, of any shape.
        threshold, value: numbers.
        inplace: whether to write the result into `input`.

    Raises:
        TypeError: if `input` is not floating-point.

    Example:
        >>> flow.threshold(flow.tensor([1.0, 3.0]), 2, 9)
        tensor([9., 3.])
    """
    return applied("threshold", _threshold, input, inplace, threshold, value)


@function()
def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """In-place `threshold`."""
    return applied("threshold_", _threshold, input, True, threshold, value)


# The formula of `selu` and `celu`.
@formula("exponential_linear")
def _exponential(input: Tensor, alpha: float, scale: float, rate: float) -> Tensor:
    # Clamped, since an overflow of expm1 in the branch that `where` drops would make the gradient 0 * inf = nan.
    return where(input > 0, input * scale, (input.clamp(max=0) * rate).expm1() * (alpha * scale))


@public()
def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """`elu` with a scale that keeps mean 0 and variance 1 from layer to layer.

    G. Klambauer et al., Self-normalizing neural networks, 2017.

    Args:
        input: floating-point, of any shape.
        inplace: whether to write the result into `input`.

    Raises:
        TypeError: if `input` is not floating-point.

    Example:
        >>> flow.selu(flow.tensor([-1.0, 1.0]))
        tensor([-1.1113,  1.0507])
    """
    return applied("selu", _exponential, input, inplace, SELU_ALPHA, SELU_SCALE, 1.0)


@function()
def selu_(input: Tensor) -> Tensor:
    """In-place `selu`."""
    return selu(input, True)


@function()
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Each element x if it is positive, else ``alpha * (exp(x / alpha) - 1)``.

    Args:
        input: floating-point, of any shape.
        alpha: not 0; if positive, the negative of the limit at -inf.
        inplace: whether to write the result into `input`.

    Raises:
        TypeError: if `input` is not floating-point.
        ValueError: if `alpha` is 0.

    Example:
        >>> flow.celu(flow.tensor([-1.0, 2.0]))
        tensor([-0.6321,  2.0000])
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
    # `where` keeps nan, since both comparisons with nan are false.
    return where((input >= -lambd) & (input <= lambd), 0.0, input)


@public()
@out_by_copy()
def hardshrink(input: Tensor, lambd: float = 0.5, *, out: Tensor | None = None) -> Tensor:
    """Each element, but 0 for elements from -`lambd` to `lambd`.

    Raises:
        TypeError: if `input` is not floating-point.

    Example:
        >>> flow.hardshrink(flow.tensor([-0.3, 0.5, 2.0]))
        tensor([0., 0., 2.])
    """
    return applied("hardshrink", _hardshrink, input, False, lambd)


@formula("softshrink")
def _softshrink(input: Tensor, lambd: float) -> Tensor:
    return where(input > lambd, input - lambd, where(input < -lambd, input + lambd, input * 0.0))


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """Each element moved towards 0 by `lambd`; 0 for elements from -`lambd` to `lambd`.

    Raises:
        TypeError: if `input` is not floating-point.
        ValueError: if `lambd` is negative.

    Example:
        >>> flow.nn.functional.softshrink(flow.tensor([0.25, 2.0, -3.0]))
        tensor([ 0.0000,  1.5000, -2.5000])
    """
    if not lambd >= 0:
        raise ValueError(f"softshrink: lambd cannot be negative, got {lambd}")
    return applied("softshrink", _softshrink, input, False, lambd)


@public()
@autocast_as_op
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """Each element if it is positive, else ``weight`` times the element.

    Args:
        input: floating-point, (N, C, ...) or of any shape.
        weight: a scalar or vector of the same dtype, with one element, or C elements for dimension 1.

    Raises:
        TypeError: if the dtypes differ, or are not floating-point.
        ValueError: for a weight of another shape.

    Example:
        >>> flow.prelu(flow.tensor([-2.0, 3.0]), flow.tensor([0.5]))
        tensor([-1.,  3.])
    """
    check_tensors("prelu", input, weight)
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
    # Clamped, since an infinite x in the branch that `where` drops would make the weight's gradient 0 * inf = nan.
    return applied("prelu", lambda x: where(x > 0, x, x.clamp(max=0) * slope.to(x.dtype)), input, False)


@function()
def rrelu(
    input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """Each element if it is positive, else the element times a slope from [`lower`, `upper`).

    Args:
        input: floating-point, of any shape.
        lower, upper: the range of slopes.
        training: whether each element has a random slope; else all have the mean of `lower` and `upper`.
        inplace: whether to write the result into `input`.

    Raises:
        TypeError: if `input` is not floating-point.
        ValueError: if `lower` is above `upper`.

    Example:
        >>> flow.rrelu(flow.tensor([-4.0, 3.0]), 0.25, 0.75)
        tensor([-2.,  3.])
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
    """``max(input, 0) ** 2`` of each element; the name is OneFlow's.

    Raises:
        TypeError: if `input` is not floating-point.

    Example:
        >>> flow.nn.functional.square_relu(flow.tensor([-1.0, 3.0]))
        tensor([0., 9.])
    """
    return applied("square_relu", _square_relu, input, False)
