"""Smooth activations made of sigmoids, hyperbolic tangents and softmaxes, and sampling from a softmax."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmflow import dtypes, random
from vmflow.dtypes import dtype as DType
from vmflow.ops.declaration import public
from vmflow.ops.formula import formula
from vmflow.ops.table import normalize_dim

from .activation import sigmoid, softmax, softplus, tanh
from .piecewise import applied

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


@formula("logsigmoid")
def _log_sigmoid(input: Tensor) -> Tensor:
    # Beyond 40 the logarithm would add less than the last digit of float64, and before it no exponential overflows.
    return -softplus(-input, threshold=40)


def logsigmoid(input: Tensor) -> Tensor:
    """``log(sigmoid(input))``, accurate for inputs of any size."""
    return applied("logsigmoid", _log_sigmoid, input, False)


@formula("mish")
def _mish(input: Tensor) -> Tensor:
    return input * tanh(softplus(input))


@public()
def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """``input * tanh(softplus(input))`` (D. Misra, Mish, 2019)."""
    return applied("mish", _mish, input, inplace)


@formula("quick_gelu")
def _quick_gelu(input: Tensor) -> Tensor:
    return input * sigmoid(input * 1.702)


def quick_gelu(input: Tensor) -> Tensor:
    """``input * sigmoid(1.702 * input)``, a rough `gelu`; OneFlow's name."""
    return applied("quick_gelu", _quick_gelu, input, False)


@formula("softsign")
def _softsign(input: Tensor) -> Tensor:
    return input / (input.abs() + 1)


@public()
def softsign(input: Tensor) -> Tensor:
    """``input / (1 + |input|)``."""
    return applied("softsign", _softsign, input, False)


@formula("tanhshrink")
def _tanhshrink(input: Tensor) -> Tensor:
    return input - tanh(input)


def tanhshrink(input: Tensor) -> Tensor:
    """``input - tanh(input)``."""
    return applied("tanhshrink", _tanhshrink, input, False)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half along `dim`, times the sigmoid of the second.

    Raises:
        ValueError: if the dimension cannot be halved.
    """
    axis = normalize_dim("glu", dim, input.ndim)
    size = input.shape[axis] if input.ndim else 1
    if size % 2:
        raise ValueError(f"glu: dimension {dim} of shape {list(input.shape)} has an odd size and cannot be halved")
    half = size // 2

    def gated(x: Tensor) -> Tensor:
        return x.narrow(axis, 0, half) * sigmoid(x.narrow(axis, half, half))

    return applied("glu", gated, input, False)


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """``softmax(-input, dim)``.

    Args:
        input: of any shape.
        dim: to sum over; None is PyTorch's old choice, dimension 0 of 0, 1 or 3 dimensions and else dimension 1.
        dtype: cast to it first.
    """
    if dim is None:
        dim = 0 if input.ndim in (0, 1, 3) else 1
    return softmax(-input, dim, dtype=dtype)


def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """A sample from the categories that `logits` weighs, through which gradients flow (E. Jang et al., 2017).

    Args:
        logits: unnormalised log-probabilities, floating-point.
        tau: temperature; the lower, the closer to a single one.
        hard: return one-hot vectors, whose gradient is that of the soft sample.
        eps: of no effect, as in PyTorch.
        dim: of the categories.

    Raises:
        ValueError: if `tau` is not positive.
    """
    if not tau > 0:
        raise ValueError(f"gumbel_softmax: the temperature tau must be positive, got {tau}")
    axis = normalize_dim("gumbel_softmax", dim, logits.ndim)

    def sampled(x: Tensor) -> Tensor:
        # Not 0, whose logarithm is infinite.
        uniform = random.rand_like(x.detach()).clamp(min=dtypes.finfo(x.dtype).tiny)
        soft = softmax((x - (-uniform.log()).log()) / tau, axis)
        if not hard:
            return soft
        # The value is the one-hot vector up to rounding, the gradient that of the soft sample.
        return _one_hot_of_largest(soft.detach(), axis) - soft.detach() + soft

    return applied("gumbel_softmax", sampled, logits, False)


def _one_hot_of_largest(values: Tensor, dim: int) -> Tensor:
    return (values * 0.0).scatter(dim, values.argmax(dim, keepdim=True), 1.0)
