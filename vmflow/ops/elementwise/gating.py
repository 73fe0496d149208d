"""Smooth activations, most built from sigmoids, hyperbolic tangents or softmaxes, and sampling from a softmax."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmflow import dtypes, random
from vmflow.dtypes import dtype as DType
from vmflow.operands import check_tensors
from vmflow.ops.declaration import public
from vmflow.ops.formula import formula
from vmflow.ops.table import normalize_dim

from .activation import sigmoid, softmax, softplus, tanh
from .piecewise import applied

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


@formula("logsigmoid")
def _log_sigmoid(input: Tensor) -> Tensor:
    # Above the threshold 40, log1p(exp(x)) is x in float64; below it, exp(x) does not overflow.
    return -softplus(-input, threshold=40)


def logsigmoid(input: Tensor) -> Tensor:
    """``log(sigmoid(input))`` of each element, accurate for inputs of any size.

    Raises:
        TypeError: if `input` is not floating-point.

    Example:
        >>> flow.nn.functional.logsigmoid(flow.tensor([0.0, -50.0]))
        tensor([ -0.6931, -50.0000])
    """
    return applied("logsigmoid", _log_sigmoid, input, False)


@formula("mish")
def _mish(input: Tensor) -> Tensor:
    return input * tanh(softplus(input))


@public()
def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """``input * tanh(softplus(input))`` of each element (D. Misra, Mish, 2019).

    Args:
        input: floating-point.
        inplace: whether to write the result into `input`.

    Raises:
        TypeError: if `input` is not floating-point.

    Example:
        >>> flow.mish(flow.tensor([0.0, 1.0]))
        tensor([0.0000, 0.8651])
    """
    return applied("mish", _mish, input, inplace)


@formula("quick_gelu")
def _quick_gelu(input: Tensor) -> Tensor:
    return input * sigmoid(input * 1.702)


def quick_gelu(input: Tensor) -> Tensor:
    """``input * sigmoid(1.702 * input)`` of each element, a rough `gelu`; the name is OneFlow's.

    Raises:
        TypeError: if `input` is not floating-point.

    Example:
        >>> flow.nn.functional.quick_gelu(flow.tensor([0.0, 1.0]))
        tensor([0.0000, 0.8458])
    """
    return applied("quick_gelu", _quick_gelu, input, False)


@formula("softsign")
def _softsign(input: Tensor) -> Tensor:
    return input / (input.abs() + 1)


@public()
def softsign(input: Tensor) -> Tensor:
    """``input / (1 + |input|)`` of each element.

    Raises:
        TypeError: if `input` is not floating-point.

    Example:
        >>> flow.softsign(flow.tensor([-1.0, 3.0]))
        tensor([-0.5000,  0.7500])
    """
    return applied("softsign", _softsign, input, False)


@formula("tanhshrink")
def _tanhshrink(input: Tensor) -> Tensor:
    return input - tanh(input)


def tanhshrink(input: Tensor) -> Tensor:
    """``input - tanh(input)`` of each element.

    Raises:
        TypeError: if `input` is not floating-point.

    Example:
        >>> flow.nn.functional.tanhshrink(flow.tensor([0.0, 1.0]))
        tensor([0.0000, 0.2384])
    """
    return applied("tanhshrink", _tanhshrink, input, False)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half of `input` along `dim`, times the sigmoid of the second half.

    Raises:
        TypeError: if `input` is not floating-point.
        ValueError: if the size of the dimension is odd.
        IndexError: if there is no dimension `dim`.

    Example:
        >>> flow.nn.functional.glu(flow.tensor([1.0, 2.0, 0.0, 0.0]))
        tensor([0.5000, 1.0000])
    """
    check_tensors("glu", input)
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
        input: floating-point, of any shape.
        dim: the dimension along which the results sum to 1.  None is PyTorch's old default: dimension 0 of tensors
            with 0, 1 or 3 dimensions, else dimension 1.
        dtype: the input is cast to this dtype first.

    Raises:
        TypeError: if `input`, after the cast, is not floating-point.
        IndexError: if there is no dimension `dim`.

    Example:
        >>> flow.nn.functional.softmin(flow.tensor([0.0, 1.0]), 0)
        tensor([0.7311, 0.2689])
    """
    check_tensors("softmin", input)
    if dim is None:
        dim = 0 if input.ndim in (0, 1, 3) else 1
    if dtype is not None:
        input = input.to(dtypes.checked("softmin", dtype))
    return softmax(-input, dim)


def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """A differentiable sample from the categories with the log-probabilities `logits`.

    E. Jang et al., Categorical reparameterization with Gumbel-softmax, 2017.

    Args:
        logits: unnormalized log-probabilities, floating-point, of any shape.
        tau: the temperature; the lower, the closer the sample is to a one-hot vector.
        hard: whether to return one-hot vectors; their gradient is that of the soft sample.
        eps: without effect, as in PyTorch.
        dim: the dimension of the categories.

    Raises:
        TypeError: if `logits` is not floating-point.
        ValueError: if `tau` is not positive.
        IndexError: if there is no dimension `dim`.

    Example:
        >>> flow.nn.functional.gumbel_softmax(flow.tensor([0.0, -1e9]), hard=True)
        tensor([1., 0.])
    """
    check_tensors("gumbel_softmax", logits)
    if not tau > 0:
        raise ValueError(f"gumbel_softmax: the temperature tau must be positive, got {tau}")
    axis = normalize_dim("gumbel_softmax", dim, logits.ndim)

    def sampled(x: Tensor) -> Tensor:
        # Random numbers may be 0, whose logarithm is infinite: clamp them at the smallest normal number.
        uniform = random.rand_like(x.detach()).clamp(min=dtypes.finfo(x.dtype).tiny)
        soft = softmax((x - (-uniform.log()).log()) / tau, axis)
        if not hard:
            return soft
        # A straight-through sample: up to rounding its value is the one-hot vector, and its gradient that of `soft`.
        return _one_hot_of_largest(soft.detach(), axis) - soft.detach() + soft

    return applied("gumbel_softmax", sampled, logits, False)


def _one_hot_of_largest(values: Tensor, dim: int) -> Tensor:
    return (values * 0.0).scatter(dim, values.argmax(dim, keepdim=True), 1.0)
