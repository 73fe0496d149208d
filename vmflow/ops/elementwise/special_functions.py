"""Bessel functions, functions of the normal distribution, incomplete gamma functions and zeta functions.

On the CPU, like the gamma functions, they are computed in float64 for every dtype and rounded once, except `ndtr`,
`log_ndtr`, `xlog1py` and `mvlgamma`, which are composed of other functions.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from vmflow import dtypes, interpreter as _interpreter, tensors as _tensors
from vmflow.arguments import whole_number
from vmflow.dtypes import FLOATING
from vmflow.operands import check_tensors, not_tensors
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.copying import cast
from vmflow.ops.creation.creation import tensor
from vmflow.ops.declaration import public
from vmflow.ops.destination import out_by_copy, written
from vmflow.ops.in_place import copied_in_place
from vmflow.ops.inquiry import result_type
from vmflow.transfers import beside

from .arithmetic import sign
from .error_function import erfc
from .gamma_function import lgamma
from .inference import EXPENSIVE, TO_FLOAT, elementwise, number
from .pointwise import Binary, pair, unary
from .selection import where
from .transcendental import exp, log, log1p

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

    from .inference import Scalar

# Bessel functions

i0 = unary(
    "i0",
    TO_FLOAT,
    cost=EXPENSIVE * 30,
    most=FLOATING,
    doc="The modified Bessel function of the first kind, of order 0.",
    example=("flow.i0(flow.tensor([0.0, 1.0]))", "tensor([1.0000, 1.2661])"),
)
_I0E = elementwise("i0e", TO_FLOAT, cost=EXPENSIVE * 30, most=FLOATING)
_I1 = elementwise("i1", TO_FLOAT, cost=EXPENSIVE * 30, most=FLOATING)
_I1E = elementwise("i1e", TO_FLOAT, cost=EXPENSIVE * 30, most=FLOATING)


def i0e(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``exp(-abs(input)) * i0(input)`` of each element, computed without overflow.

    Raises:
        TypeError: if `input` is no tensor, or complex.

    Example:
        >>> flow.special.i0e(flow.tensor([0.0, 1.0]))
        tensor([1.0000, 0.4658])
    """
    return _interpreter.dispatch(_I0E, (input,)) if out is None else written(_I0E, out, (input,))


def i1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The modified Bessel function of the first kind, of order 1, at each element.

    Raises:
        TypeError: if `input` is no tensor, or complex.

    Example:
        >>> flow.special.i1(flow.tensor([0.0, 1.0]))
        tensor([0.0000, 0.5652])
    """
    return _interpreter.dispatch(_I1, (input,)) if out is None else written(_I1, out, (input,))


def i1e(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``exp(-abs(input)) * i1(input)`` of each element, computed without overflow.

    Raises:
        TypeError: if `input` is no tensor, or complex.

    Example:
        >>> flow.special.i1e(flow.tensor([0.0, 1.0]))
        tensor([0.0000, 0.2079])
    """
    return _interpreter.dispatch(_I1E, (input,)) if out is None else written(_I1E, out, (input,))


def _by_argument(function: Tensor, x: Tensor) -> Tensor:
    """Compute ``function / x``, or its limit 1/2 at 0, where `function` holds the values of `i1` or `i1e` at x."""
    is_zero = x == 0
    return where(is_zero, 0.5, function / where(is_zero, 1.0, x))


@i0.op.gradient(inputs=(0,))
def _i0_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient * i1(node.input(0)),)


@_I0E.gradient(inputs=(0,), outputs=(0,))
def _i0e_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    x = node.input(0)
    return (gradient * (i1e(x) - sign(x) * node.output(0)),)


@_I1.gradient(inputs=(0,), outputs=(0,))
def _i1_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    x = node.input(0)
    return (gradient * (i0(x) - _by_argument(node.output(0), x)),)


@_I1E.gradient(inputs=(0,), outputs=(0,))
def _i1e_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    x, value = node.input(0), node.output(0)
    return (gradient * (i0e(x) - sign(x) * value - _by_argument(value, x)),)


# The normal distribution

_ERFCX = elementwise("erfcx", TO_FLOAT, cost=EXPENSIVE * 4, most=FLOATING)
_NDTRI = elementwise("ndtri", TO_FLOAT, cost=EXPENSIVE * 4, most=FLOATING)


@_ERFCX.gradient(inputs=(0,), outputs=(0,))
def _erfcx_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient * (node.input(0) * node.output(0) - 1 / math.sqrt(math.pi)) * 2,)


@_NDTRI.gradient(outputs=(0,))
def _ndtri_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    value = node.output(0)
    return (gradient * (exp(value * value * 0.5) * math.sqrt(2 * math.pi)),)


def erfcx(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``exp(input ** 2) * erfc(input)`` of each element, without overflow for positive elements.

    Raises:
        TypeError: if `input` is no tensor, or complex.

    Example:
        >>> flow.special.erfcx(flow.tensor([0.0, 1.0]))
        tensor([1.0000, 0.4276])
    """
    return _interpreter.dispatch(_ERFCX, (input,)) if out is None else written(_ERFCX, out, (input,))


def ndtri(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse of `ndtr` at each element; infinite at 0 and 1, nan outside.

    Raises:
        TypeError: if `input` is no tensor, or complex.

    Example:
        >>> flow.special.ndtri(flow.tensor([0.5, 0.975]))
        tensor([0.0000, 1.9600])
    """
    return _interpreter.dispatch(_NDTRI, (input,)) if out is None else written(_NDTRI, out, (input,))


@out_by_copy()
def ndtr(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The probability that a standard normal variable is less than each element.

    Raises:
        TypeError: if `input` is no tensor, or complex.

    Example:
        >>> flow.special.ndtr(flow.tensor([0.0, 1.96]))
        tensor([0.5000, 0.9750])
    """
    check_tensors("ndtr", input)
    return erfc(input * -math.sqrt(0.5)) * 0.5


@out_by_copy()
def log_ndtr(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``log(ndtr(input))`` of each element, also where the probability underflows.

    Raises:
        TypeError: if `input` is no tensor, or complex.

    Example:
        >>> flow.special.log_ndtr(flow.tensor([0.0, -100.0]))
        tensor([-6.9315e-01, -5.0055e+03])
    """
    check_tensors("log_ndtr", input)
    floating = _floating(input)
    # The argument of each formula is clamped to the range where `where` selects the formula: an overflow outside would
    # make the gradient nan.
    low, high = floating.clamp(max=-1.0), floating.clamp(min=-1.0)
    tail = log(erfcx(low * -math.sqrt(0.5)) * 0.5) - low * low * 0.5
    return where(floating < -1.0, tail, log1p(erfc(high * math.sqrt(0.5)) * -0.5))


def _floating(input: Tensor) -> Tensor:
    return input if input.dtype.category >= FLOATING else cast(input, dtypes.get_default_dtype())


@out_by_copy()
def xlog1py(input: Tensor | Scalar, other: Tensor | Scalar, *, out: Tensor | None = None) -> Tensor:
    """``input * log1p(other)``; 0 where `input` is 0, unless `other` is nan.  The shapes broadcast.

    Raises:
        TypeError: if neither operand is a tensor, one is neither a tensor nor a number, or one is complex.
        ValueError: if the shapes do not broadcast.

    Example:
        >>> flow.special.xlog1py(flow.tensor([0.0, 2.0]), flow.tensor([-1.0, 1.0]))
        tensor([0.0000, 1.3863])
    """
    for operand in (input, other):
        if not isinstance(operand, _tensors.Tensor):
            number("xlog1py", operand)
    if not isinstance(input, _tensors.Tensor) and not isinstance(other, _tensors.Tensor):
        raise not_tensors("xlog1py", (input, other))
    common = result_type(input, other)
    if common.category < FLOATING:
        common = dtypes.get_default_dtype()
    if isinstance(other, _tensors.Tensor):
        other = cast(other, common)
    else:
        assert isinstance(input, _tensors.Tensor)
        other = beside(tensor(other, dtype=common, device=input.device), input)
    is_zero = (input == 0) & ((other <= -1) | (other == math.inf))
    product: Tensor = input * log1p(where(is_zero, 0.0, other))
    return product


# Gamma and zeta functions

igamma = pair(
    "igamma",
    TO_FLOAT,
    cost=EXPENSIVE * 60,
    least=FLOATING,
    most=FLOATING,
    in_place=True,
    doc="The regularized lower incomplete gamma function of `input`: the integral from 0 to `other`.\n\n"
    "nan where an operand is negative.  Differentiable with respect to `other` only.",
    example=("flow.igamma(flow.tensor([1.0, 4.0]), flow.tensor([2.0, 4.0]))", "tensor([0.8647, 0.5665])"),
)
igammac = pair(
    "igammac",
    TO_FLOAT,
    cost=EXPENSIVE * 60,
    least=FLOATING,
    most=FLOATING,
    in_place=True,
    doc="The regularized upper incomplete gamma function of `input`: the integral from `other` to infinity.\n\n"
    "nan where an operand is negative.  Differentiable with respect to `other` only.",
    example=("flow.igammac(flow.tensor([1.0, 4.0]), flow.tensor([2.0, 4.0]))", "tensor([0.1353, 0.4335])"),
)
_ZETA = Binary("zeta", TO_FLOAT, cost=EXPENSIVE * 60, most=FLOATING)


def _not_by_first(name: str, node: OpNode) -> None:
    if node.needs[0]:
        raise RuntimeError(f"{name} is not differentiable with respect to its first operand; detach() that operand")


def _density(node: OpNode) -> Tensor:
    a, x = node.input(0), node.input(1)
    return exp(log(x) * (a - 1) - x - lgamma(a))


@igamma.op.gradient(inputs=(0, 1))
def _igamma_gradient(node: OpNode, gradient: Tensor) -> tuple[None, Tensor]:
    _not_by_first("igamma", node)
    return None, gradient * _density(node)


@igammac.op.gradient(inputs=(0, 1))
def _igammac_gradient(node: OpNode, gradient: Tensor) -> tuple[None, Tensor]:
    _not_by_first("igammac", node)
    return None, -gradient * _density(node)


@_ZETA.tensors.gradient(inputs=(0, 1))
def _zeta_gradient(node: OpNode, gradient: Tensor) -> tuple[None, Tensor]:
    _not_by_first("zeta", node)
    exponent = node.input(0)
    return None, -gradient * exponent * zeta(exponent + 1, node.input(1))


@_ZETA.scalar.gradient(inputs=(0,))
def _zeta_scalar_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    if not node.attributes:
        _not_by_first("zeta", node)
    exponent = node.scalars[0]
    return (-gradient * exponent * zeta(exponent + 1, node.input(0)),)


def zeta(input: Tensor | Scalar, other: Tensor | Scalar, *, out: Tensor | None = None) -> Tensor:
    """Hurwitz's zeta function: the sum of ``(k + other) ** -input`` over all k from 0.  The shapes broadcast.

    Differentiable with respect to `other` only.

    Args:
        input: the exponent; the result is infinite at 1, nan below.
        other: the base of the first term; the result is infinite at 0, -1 and so on.  At other negative bases, it is
            nan unless the exponent is an integer.

    Raises:
        TypeError: if neither operand is a tensor, one is neither a tensor nor a number, or one is complex.
        ValueError: if the shapes do not broadcast.
        RuntimeError: in the backward pass, if `input` requires a gradient.

    Example:
        >>> flow.special.zeta(flow.tensor([2.0, 3.0]), 1.0)
        tensor([1.6449, 1.2021])
    """
    return _ZETA.of(input, other) if out is None else _ZETA.written(out, input, other)


@public()
@copied_in_place()
@autocast_as_op
@out_by_copy()
def mvlgamma(input: Tensor, p: int, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of the absolute value of the multivariate gamma function of dimension `p` at each element.

    Raises:
        TypeError: if `input` is no tensor, or complex, or `p` is no integer.
        ValueError: if `p` is not positive.

    Example:
        >>> flow.mvlgamma(flow.tensor([1.0, 2.0]), 2)
        tensor([1.1447, 0.4516])
    """
    check_tensors("mvlgamma", input)
    p = whole_number("mvlgamma", "the dimension p", p)
    if p < 1:
        raise ValueError(f"mvlgamma: the dimension p must be positive, got {p}")
    wide = _floating(input)
    total = lgamma(wide)
    for place in range(1, p):
        total = total + lgamma(wide - place * 0.5)
    return total + p * (p - 1) / 4 * math.log(math.pi)
