"""Activation functions."""

from __future__ import annotations

from math import pi, sqrt
from typing import TYPE_CHECKING, cast

from vmflow import dtypes, interpreter as _interpreter
from vmflow.dtypes import FLOATING, INTEGER, dtype as DType
from vmflow.operands import check_tensors
from vmflow.ops.declaration import public
from vmflow.ops.destination import delivered
from vmflow.ops.formula import formula
from vmflow.ops.nn.layer_operands import check_floating
from vmflow.ops.table import Attributes, Dim, Form, Inferred, Kinds, Metas, OpExpr, normalize_dim

from .arithmetic_gradients import conj_if_complex
from .error_function import erf as erf
from .inference import CHEAP, EXPENSIVE, TO_FLOAT, elementwise
from .pointwise import unary
from .selection import where
from .transcendental import exp

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor


_RELU = elementwise("relu", least=INTEGER, most=FLOATING)


@_RELU.gradient(outputs=(0,))
def _relu_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (_interpreter.dispatch(_RELU_GRADIENT, (node.output(0), gradient)),)


# The gradient by relu's input.  Operands: relu's result, and the gradient with respect to that result.
_RELU_GRADIENT = elementwise(
    "relu_gradient",
    least=FLOATING,
    most=FLOATING,
    cost=2 * CHEAP,
    operands=2,
)


@_RELU_GRADIENT.gradient(inputs=(0,))
def _relu_gradient_gradient(node: OpNode, gradient: Tensor) -> tuple[None, Tensor]:
    return None, _interpreter.dispatch(_RELU_GRADIENT, (node.input(0), gradient))


@public()
def relu(input: Tensor) -> Tensor:
    """``max(input, 0)`` of each element; the derivative at 0 is taken as 0.

    Raises:
        TypeError: if `input` is no tensor, or bool or complex.

    Example:
        >>> flow.relu(flow.tensor([-1.0, 2.0]))
        tensor([0., 2.])
    """
    return _interpreter.dispatch(_RELU, (input,))


@public()
def relu_(input: Tensor) -> Tensor:
    """In-place `relu`."""
    check_tensors("relu_", input)
    return _interpreter.dispatch_into(_RELU, input, (input,))


sigmoid = unary(
    "sigmoid",
    TO_FLOAT,
    cost=EXPENSIVE,
    most=FLOATING,
    doc="``1 / (1 + exp(-input))``.",
    example=("flow.sigmoid(flow.tensor([0.0, 2.0]))", "tensor([0.5000, 0.8808])"),
)


@sigmoid.op.gradient(outputs=(0,))
def _sigmoid_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    value = node.output(0)
    return (gradient * (value * (1 - value)),)


tanh = unary(
    "tanh",
    TO_FLOAT,
    cost=EXPENSIVE,
    doc="The hyperbolic tangent.",
    example=("flow.tanh(flow.tensor([0.0, 1.0]))", "tensor([0.0000, 0.7616])"),
)


@tanh.op.gradient(outputs=(0,))
def _tanh_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    value = conj_if_complex(node.output(0))
    return (gradient * (1 - value * value),)


_GELU: OpExpr = elementwise("gelu", least=FLOATING, most=FLOATING, cost=EXPENSIVE)
_GELU_GRADIENT: OpExpr = elementwise(
    "gelu_gradient",
    least=FLOATING,
    most=FLOATING,
    cost=EXPENSIVE * 2,
    operands=2,
)


@_GELU.gradient(inputs=(0,))
def _gelu_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (_interpreter.dispatch(_GELU_GRADIENT, (gradient, node.input(0))),)


@_GELU_GRADIENT.gradient(inputs=(0, 1))
def _gelu_second_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    first, second = node.needs
    upstream, operand = node.input(0), node.input(1)
    square = operand * operand
    return (
        _interpreter.dispatch(_GELU_GRADIENT, (gradient, operand)) if first else None,
        gradient * upstream * exp(square * -0.5) * (2 - square) * (1 / sqrt(2 * pi)) if second else None,
    )


@public()
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """Each element x times the probability that a standard normal variable is at most x.

    D. Hendrycks and K. Gimpel, Gaussian error linear units, 2016.

    Args:
        input: floating-point, of any shape.
        approximate: "none", or "tanh" for an approximation by a hyperbolic tangent.

    Raises:
        TypeError: if `input` is not floating-point.
        ValueError: for another `approximate`.

    Example:
        >>> flow.gelu(flow.tensor([0.0, 1.0]))
        tensor([0.0000, 0.8413])
    """
    if approximate == "none":
        _check_activated("gelu", input)
        return _interpreter.dispatch(_GELU, (input,))
    if approximate == "tanh":
        _check_activated("gelu", input)
        return _gelu_by_tanh(input)
    raise ValueError(f"gelu: approximate must be 'none' or 'tanh', not {approximate!r}")


def _check_activated(name: str, input: Tensor) -> None:
    check_tensors(name, input)
    if input.dtype.category != FLOATING:
        raise TypeError(f"{name} is not defined for {input.dtype.name} tensors; convert with .float() first")


@formula("gelu_by_tanh")
def _gelu_by_tanh(x: Tensor) -> Tensor:
    return x * (tanh((x + x * x * x * 0.044715) * sqrt(2 / pi)) + 1) * 0.5


_SILU: OpExpr = elementwise("silu", least=FLOATING, most=FLOATING, cost=EXPENSIVE)


@_SILU.gradient(inputs=(0,))
def _silu_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (_silu_product(gradient, node.input(0)),)


@formula("silu_gradient", operands=2)
def _silu_product(gradient: Tensor, operand: Tensor) -> Tensor:
    gate = sigmoid(operand)
    return gradient * (gate * (operand * (1 - gate) + 1))


@public()
def silu(input: Tensor) -> Tensor:
    """``input * sigmoid(input)`` of each element, also called swish.

    Raises:
        TypeError: if `input` is not floating-point.

    Example:
        >>> flow.silu(flow.tensor([0.0, 1.0]))
        tensor([0.0000, 0.7311])
    """
    _check_activated("silu", input)
    return _interpreter.dispatch(_SILU, (input,))


def leaky_relu(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """Each element if it is positive, else ``negative_slope`` times the element.

    Raises:
        TypeError: if `input` is not floating-point.

    Example:
        >>> flow.nn.functional.leaky_relu(flow.tensor([-1.0, 2.0]), 0.5)
        tensor([-0.5000,  2.0000])
    """
    _check_activated("leaky_relu", input)
    return _leaky_relu(input, negative_slope)


@formula("leaky_relu")
def _leaky_relu(x: Tensor, slope: float) -> Tensor:
    return where(x > 0, x, x * slope)


def elu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """Each element x if it is positive, else ``alpha * (exp(x) - 1)``.

    Raises:
        TypeError: if `input` is not floating-point.

    Example:
        >>> flow.nn.functional.elu(flow.tensor([-1.0, 2.0]))
        tensor([-0.6321,  2.0000])
    """
    _check_activated("elu", input)
    return _exponential_linear(input, alpha)


@formula("elu")
def _exponential_linear(x: Tensor, alpha: float) -> Tensor:
    # Clamped, since an overflow of expm1 in the branch that `where` drops would make the gradient 0 * inf = nan.
    return where(x > 0, x, (x.clamp(max=0)).expm1() * alpha)


@public()
def softplus(input: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """``log(1 + exp(beta * input)) / beta`` of each element; `input` itself where ``beta * input > threshold``.

    Raises:
        TypeError: if `input` is not floating-point.

    Example:
        >>> flow.softplus(flow.tensor([0.0, 30.0]))
        tensor([ 0.6931, 30.0000])
    """
    _check_activated("softplus", input)
    return _softplus(input, beta, threshold)


@formula("softplus")
def _softplus(x: Tensor, beta: float, threshold: float) -> Tensor:
    scaled = x * beta
    return where(scaled > threshold, x, scaled.clamp(max=threshold).exp().log1p() / beta)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """Each element limited to [`min_val`, `max_val`].

    As in PyTorch, the derivative at the limits is 0; that of `clamp` is 1.

    Raises:
        TypeError: if `input` is bool or complex.
        ValueError: if `min_val` is above `max_val`.

    Example:
        >>> flow.nn.functional.hardtanh(flow.tensor([-2.0, 0.5, 2.0]))
        tensor([-1.0000,  0.5000,  1.0000])
    """
    if min_val > max_val:
        raise ValueError(f"hardtanh: min_val {min_val} must not be above max_val {max_val}")
    if input.dtype is dtypes.bool_:
        raise TypeError("hardtanh is not defined for bool tensors")
    return _hardtanh(input, min_val, max_val)


@formula("hardtanh")
def _hardtanh(x: Tensor, low: float, high: float) -> Tensor:
    return where(x <= low, low, where(x >= high, high, x)).to(x.dtype)


# Softmax


def _softmax(name: str) -> OpExpr:
    def infer(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
        (source,) = metas
        check_floating(name, source)
        return Inferred(source, source.numel * (EXPENSIVE + 4 * CHEAP))

    return OpExpr(name, infer, Form(1, tuple[Dim]), "softmax")


_SOFTMAX = _softmax("softmax")
_LOG_SOFTMAX = _softmax("log_softmax")


@_SOFTMAX.gradient(outputs=(0,))
def _softmax_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    (dim,) = cast("tuple[int]", node.attributes)
    value = node.output(0)
    weighted = gradient * value
    return (weighted - value * weighted.sum(dim, keepdim=True),)


@_LOG_SOFTMAX.gradient(outputs=(0,))
def _log_softmax_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    (dim,) = cast("tuple[int]", node.attributes)
    return (gradient - exp(node.output(0)) * gradient.sum(dim, keepdim=True),)


@public(numpy_names=True)
def softmax(input: Tensor, dim: int, *, dtype: DType | None = None, out: Tensor | None = None) -> Tensor:
    """``exp(input) / sum(exp(input))`` along `dim`, computed without overflow.

    Args:
        input: floating-point, of any shape.
        dim: the dimension along which the results sum to 1.
        dtype: the input is cast to this dtype first.

    Raises:
        TypeError: if `input`, after the cast, is not floating-point.
        IndexError: if there is no dimension `dim`.

    Example:
        >>> flow.softmax(flow.tensor([0.0, 0.0, -flow.inf]), 0)
        tensor([0.5000, 0.5000, 0.0000])
    """
    check_tensors("softmax", input)
    if out is not None:
        return delivered("softmax", out, (input,), lambda: softmax(input, dim, dtype=dtype))
    if dtype is not None:
        input = input.to(dtypes.checked("softmax", dtype))
    return _interpreter.dispatch(_SOFTMAX, (input,), (normalize_dim("softmax", dim, input.ndim),))


@public(numpy_names=True)
def log_softmax(input: Tensor, dim: int, *, dtype: DType | None = None, out: Tensor | None = None) -> Tensor:
    """``log(softmax(input, dim))``, accurate also where the softmax is tiny.

    Args:
        input: floating-point, of any shape.
        dim: the dimension along which the exponentials of the results sum to 1.
        dtype: the input is cast to this dtype first.

    Raises:
        TypeError: if `input`, after the cast, is not floating-point.
        IndexError: if there is no dimension `dim`.

    Example:
        >>> flow.log_softmax(flow.tensor([0.0, 0.0]), 0)
        tensor([-0.6931, -0.6931])
    """
    check_tensors("log_softmax", input)
    if out is not None:
        return delivered("log_softmax", out, (input,), lambda: log_softmax(input, dim, dtype=dtype))
    if dtype is not None:
        input = input.to(dtypes.checked("log_softmax", dtype))
    return _interpreter.dispatch(_LOG_SOFTMAX, (input,), (normalize_dim("log_softmax", dim, input.ndim),))
