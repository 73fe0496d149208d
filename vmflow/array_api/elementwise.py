"""Elementwise functions by the array API standard, version 2024.12.

One of two operands may be a Python number.  The docstrings name the errors of the functions of `vmflow` that compute
the results, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import vmflow as flow
from vmflow.operands import check_tensors
from vmflow.ops.elementwise import floating_point
from vmflow.ops.elementwise.inference import fitting
from vmflow.tensors import Tensor
from vmflow.transfers import beside

from .data_types import together

Unary = Callable[[Tensor], Tensor]
Function = TypeVar("Function", bound=Callable[..., Any])
Operand = Tensor | bool | int | float | complex
Example = tuple[str, str]  # for docstrings: a call's arguments, and the text that Python prints for its result


def _unary(name: str, function: Callable[..., Tensor], summary: str, example: Example) -> Unary:
    def call(x: Tensor, /) -> Tensor:
        check_tensors(name, x)
        return function(x)

    raises = f"TypeError: if `vmflow.{function.__name__}` does not take the dtype of `x`."
    return _named(call, name, summary, "A tensor of the shape of `x`.", raises, example)


def _binary(
    name: str, function: Callable[..., Tensor], summary: str, example: Example
) -> Callable[[Operand, Operand], Tensor]:
    def call(x1: Operand, x2: Operand, /) -> Tensor:
        return function(*together(name, x1, x2))

    ours = f"`vmflow.{function.__name__}`"
    returns = f"A tensor of the broadcast shape.  Unlike in {ours}, 0-d tensors can widen the dtype."
    raises = (
        f"TypeError: if neither operand is a tensor, they have no common dtype, or {ours} does not take it.\n"
        "    ValueError: if the shapes do not broadcast.\n"
        "    ValueError, OverflowError: if a number does not fit into the common dtype.\n"
        "    RuntimeError: if the tensors are on different devices."
    )
    return _named(call, name, summary, returns, raises, example)


def _named(call: Function, name: str, summary: str, returns: str, raises: str, example: Example) -> Function:
    call.__name__ = call.__qualname__ = name
    arguments, printed = example
    call.__doc__ = (
        f"{summary}\n\nReturns:\n    {returns}\n\nRaises:\n    {raises}\n\n"
        f"Example:\n    >>> flow.array_api.{name}({arguments})\n    {printed}\n"
    )
    return call


abs = _unary("abs", flow.abs, "The absolute value.", ("flow.tensor([-1, 2])", "tensor([1, 2])"))
acos = _unary("acos", flow.acos, "The arc cosine in radians.", ("flow.tensor([1.0, 0.0])", "tensor([0.0000, 1.5708])"))
acosh = _unary(
    "acosh", flow.acosh, "The inverse hyperbolic cosine.", ("flow.tensor([1.0, 2.0])", "tensor([0.0000, 1.3170])")
)
asin = _unary("asin", flow.asin, "The arc sine in radians.", ("flow.tensor([0.0, 1.0])", "tensor([0.0000, 1.5708])"))
asinh = _unary(
    "asinh", flow.asinh, "The inverse hyperbolic sine.", ("flow.tensor([0.0, 1.0])", "tensor([0.0000, 0.8814])")
)
atan = _unary("atan", flow.atan, "The arc tangent in radians.", ("flow.tensor([0.0, 1.0])", "tensor([0.0000, 0.7854])"))
atanh = _unary(
    "atanh", flow.atanh, "The inverse hyperbolic tangent.", ("flow.tensor([0.0, 0.5])", "tensor([0.0000, 0.5493])")
)
bitwise_invert = _unary(
    "bitwise_invert", flow.bitwise_not, "The inverted bits.", ("flow.tensor([0, 5])", "tensor([-1, -6])")
)
ceil = _unary(
    "ceil",
    flow.ceil,
    "The smallest integer that is not below the element.",
    ("flow.tensor([1.5, -1.5])", "tensor([ 2., -1.])"),
)
conj = _unary("conj", flow.conj, "The complex conjugate.", ("flow.tensor([1 + 2j])", "tensor([1.-2.j])"))
cos = _unary(
    "cos", flow.cos, "The cosine of an angle in radians.", ("flow.tensor([0.0, 1.0])", "tensor([1.0000, 0.5403])")
)
cosh = _unary("cosh", flow.cosh, "The hyperbolic cosine.", ("flow.tensor([0.0, 1.0])", "tensor([1.0000, 1.5431])"))
exp = _unary(
    "exp", flow.exp, "e to the power of each element.", ("flow.tensor([0.0, 1.0])", "tensor([1.0000, 2.7183])")
)
expm1 = _unary(
    "expm1", flow.expm1, "``exp(x) - 1``, accurate near 0.", ("flow.tensor([0.0, 1.0])", "tensor([0.0000, 1.7183])")
)
imag = _unary(
    "imag",
    flow.imag,
    "The imaginary part.  Raises RuntimeError for real tensors.",
    ("flow.tensor([1 + 2j])", "tensor([2.])"),
)
floor = _unary(
    "floor",
    flow.floor,
    "The largest integer that is not above the element.",
    ("flow.tensor([1.5, -1.5])", "tensor([ 1., -2.])"),
)
isfinite = _unary(
    "isfinite",
    flow.isfinite,
    "Whether an element is neither infinite nor nan.",
    ("flow.tensor([1.0, flow.inf, flow.nan])", "tensor([ True, False, False])"),
)
isinf = _unary(
    "isinf", flow.isinf, "Whether an element is infinite.", ("flow.tensor([1.0, flow.inf])", "tensor([False,  True])")
)
isnan = _unary(
    "isnan", flow.isnan, "Whether an element is nan.", ("flow.tensor([1.0, flow.nan])", "tensor([False,  True])")
)
log = _unary("log", flow.log, "The natural logarithm.", ("flow.tensor([1.0, 2.0])", "tensor([0.0000, 0.6931])"))
log1p = _unary(
    "log1p", flow.log1p, "``log(1 + x)``, accurate near 0.", ("flow.tensor([0.0, 1.0])", "tensor([0.0000, 0.6931])")
)
log2 = _unary("log2", flow.log2, "The logarithm to base 2.", ("flow.tensor([1.0, 3.0])", "tensor([0.0000, 1.5850])"))
log10 = _unary(
    "log10", flow.log10, "The logarithm to base 10.", ("flow.tensor([1.0, 20.0])", "tensor([0.0000, 1.3010])")
)
logical_not = _unary(
    "logical_not",
    flow.logical_not,
    "Whether an element is zero.",
    ("flow.tensor([True, False])", "tensor([False,  True])"),
)
negative = _unary("negative", flow.neg, "``-x``.", ("flow.tensor([1, -2])", "tensor([-1,  2])"))
positive = _unary(
    "positive",
    flow.clone,
    "A copy of `x`; `vmflow.positive` returns `x` itself.",
    ("flow.tensor([1, -2])", "tensor([ 1, -2])"),
)
real = _unary("real", flow.real, "The real part.", ("flow.tensor([1 + 2j])", "tensor([1.])"))
reciprocal = _unary(
    "reciprocal", flow.reciprocal, "``1 / x``.", ("flow.tensor([2.0, 4.0])", "tensor([0.5000, 0.2500])")
)
signbit = _unary(
    "signbit",
    floating_point.signbit,
    "Whether the sign bit is set, as in negative numbers, -0.0 and some nan.",
    ("flow.tensor([-0.0, 1.0])", "tensor([ True, False])"),
)
sin = _unary(
    "sin", flow.sin, "The sine of an angle in radians.", ("flow.tensor([0.0, 1.0])", "tensor([0.0000, 0.8415])")
)
sinh = _unary("sinh", flow.sinh, "The hyperbolic sine.", ("flow.tensor([0.0, 1.0])", "tensor([0.0000, 1.1752])"))
sqrt = _unary("sqrt", flow.sqrt, "The square root.", ("flow.tensor([4.0, 9.0])", "tensor([2., 3.])"))
square = _unary("square", flow.square, "``x * x``.", ("flow.tensor([2, -3])", "tensor([4, 9])"))
tan = _unary(
    "tan", flow.tan, "The tangent of an angle in radians.", ("flow.tensor([0.0, 1.0])", "tensor([0.0000, 1.5574])")
)
tanh = _unary("tanh", flow.tanh, "The hyperbolic tangent.", ("flow.tensor([0.0, 1.0])", "tensor([0.0000, 0.7616])"))
trunc = _unary(
    "trunc", flow.trunc, "The element rounded towards 0.", ("flow.tensor([1.5, -1.5])", "tensor([ 1., -1.])")
)

add = _binary("add", flow.add, "``x1 + x2``.", ("flow.tensor([1, 2]), flow.tensor([3, 4])", "tensor([4, 6])"))
atan2 = _binary(
    "atan2",
    flow.atan2,
    "The angle of the point (`x2`, `x1`) in radians.",
    ("flow.tensor([1.0]), flow.tensor([1.0])", "tensor([0.7854])"),
)
bitwise_and = _binary("bitwise_and", flow.bitwise_and, "``x1 & x2``.", ("flow.tensor([6, 5]), 3", "tensor([2, 1])"))
bitwise_left_shift = _binary(
    "bitwise_left_shift",
    flow.bitwise_left_shift,
    "`x1` shifted left by `x2` bits.",
    ("flow.tensor([1, 3]), 2", "tensor([ 4, 12])"),
)
bitwise_or = _binary("bitwise_or", flow.bitwise_or, "``x1 | x2``.", ("flow.tensor([6, 5]), 3", "tensor([7, 7])"))
bitwise_right_shift = _binary(
    "bitwise_right_shift",
    flow.bitwise_right_shift,
    "`x1` shifted right by `x2` bits; for signed integers, the sign bit fills the gap.",
    ("flow.tensor([16, -4]), 1", "tensor([ 8, -2])"),
)
bitwise_xor = _binary("bitwise_xor", flow.bitwise_xor, "``x1 ^ x2``.", ("flow.tensor([6, 5]), 3", "tensor([5, 6])"))
copysign = _binary(
    "copysign",
    floating_point.copysign,
    "The magnitude of `x1` with the sign of `x2`.",
    ("flow.tensor([1.0, -2.0]), flow.tensor([-0.0, 3.0])", "tensor([-1.,  2.])"),
)
divide = _binary(
    "divide", flow.div, "``x1 / x2``.", ("flow.tensor([1.0, 2.0]), flow.tensor([4.0, 5.0])", "tensor([0.2500, 0.4000])")
)
equal = _binary("equal", flow.eq, "``x1 == x2``.", ("flow.tensor([1, 2]), 2", "tensor([False,  True])"))
floor_divide = _binary(
    "floor_divide", flow.floor_divide, "``x1 // x2``.", ("flow.tensor([7, -7]), 2", "tensor([ 3, -4])")
)
greater = _binary("greater", flow.gt, "``x1 > x2``.", ("flow.tensor([1, 2, 3]), 2", "tensor([False, False,  True])"))
greater_equal = _binary(
    "greater_equal", flow.ge, "``x1 >= x2``.", ("flow.tensor([1, 2, 3]), 2", "tensor([False,  True,  True])")
)
hypot = _binary(
    "hypot",
    flow.hypot,
    "The square root of ``x1**2 + x2**2``.",
    ("flow.tensor([3.0, 1.0]), flow.tensor([4.0, 1.0])", "tensor([5.0000, 1.4142])"),
)
less = _binary("less", flow.lt, "``x1 < x2``.", ("flow.tensor([1, 2, 3]), 2", "tensor([ True, False, False])"))
less_equal = _binary(
    "less_equal", flow.le, "``x1 <= x2``.", ("flow.tensor([1, 2, 3]), 2", "tensor([ True,  True, False])")
)
logaddexp = _binary(
    "logaddexp",
    flow.logaddexp,
    "``log(exp(x1) + exp(x2))``, without overflow.",
    ("flow.tensor([0.0, 1000.0]), flow.tensor([0.0, 1000.0])", "tensor([6.9315e-01, 1.0007e+03])"),
)
logical_and = _binary(
    "logical_and",
    flow.logical_and,
    "Whether both elements are non-zero.",
    ("flow.tensor([True, False]), flow.tensor([True, True])", "tensor([ True, False])"),
)
logical_or = _binary(
    "logical_or",
    flow.logical_or,
    "Whether an element or its partner is non-zero.",
    ("flow.tensor([True, False]), flow.tensor([False, False])", "tensor([ True, False])"),
)
logical_xor = _binary(
    "logical_xor",
    flow.logical_xor,
    "Whether exactly one of two elements is non-zero.",
    ("flow.tensor([True, False]), flow.tensor([True, True])", "tensor([False,  True])"),
)
maximum = _binary(
    "maximum",
    flow.maximum,
    "The larger element; nan if either is nan.",
    ("flow.tensor([1, 4]), flow.tensor([3, 2])", "tensor([3, 4])"),
)
minimum = _binary(
    "minimum",
    flow.minimum,
    "The smaller element; nan if either is nan.",
    ("flow.tensor([1, 4]), flow.tensor([3, 2])", "tensor([1, 2])"),
)
multiply = _binary("multiply", flow.mul, "``x1 * x2``.", ("flow.tensor([1, 2]), flow.tensor([3, 4])", "tensor([3, 8])"))
nextafter = _binary(
    "nextafter",
    floating_point.nextafter,
    "The next number after `x1` towards `x2` that the dtype holds; `x2` if both are equal.",
    ("flow.tensor([0.0]), flow.tensor([1.0])", "tensor([1.4013e-45])"),
)
not_equal = _binary("not_equal", flow.ne, "``x1 != x2``.", ("flow.tensor([1, 2]), 2", "tensor([ True, False])"))
pow = _binary("pow", flow.pow, "``x1 ** x2``.", ("flow.tensor([1, 2, 3]), 2", "tensor([1, 4, 9])"))
remainder = _binary(
    "remainder", flow.remainder, "``x1 % x2``, with the sign of `x2`.", ("flow.tensor([7, -7]), 3", "tensor([1, 2])")
)
subtract = _binary("subtract", flow.sub, "``x1 - x2``.", ("flow.tensor([5, 7]), flow.tensor([1, 2])", "tensor([4, 5])"))


def sign(x: Tensor, /) -> Tensor:
    """-1, 0 or 1 for each element; nan for nan, unlike `vmflow.sign`.

    For a complex element other than 0, the number of absolute value 1 in its direction; nan if both parts are infinite.

    Raises:
        TypeError: if `x` is no tensor.

    Example:
        >>> flow.array_api.sign(flow.tensor([-2.0, 0.0, flow.nan]))
        tensor([-1.,  0., nan])
    """
    check_tensors("sign", x)
    if x.is_floating_point():
        return flow.where(flow.isnan(x), x, flow.sign(x))
    if not x.is_complex():
        return flow.sign(x)
    # If only the real or only the imaginary part is infinite, that part alone determines the direction.
    real_infinite, imag_infinite = flow.isinf(x.real), flow.isinf(x.imag)
    either, zero = real_infinite ^ imag_infinite, flow.zeros_like(x.real)
    real = flow.where(either, flow.where(real_infinite, flow.sign(x.real), zero), x.real)
    imag = flow.where(either, flow.where(imag_infinite, flow.sign(x.imag), zero), x.imag)
    size = flow.hypot(real, imag)
    direction = flow.complex(real / size, imag / size)  # complex division would lose the signs of zeros
    return flow.where(size == 0, flow.zeros_like(x), direction)


def round(x: Tensor, /) -> Tensor:
    """Each element rounded to the nearest integer; ties go to even.

    Both parts of complex elements are rounded.

    Raises:
        TypeError: if `x` is bool.

    Example:
        >>> flow.array_api.round(flow.tensor([0.5, 1.5, 2.6]))
        tensor([0., 2., 3.])
    """
    check_tensors("round", x)
    return flow.complex(flow.round(x.real), flow.round(x.imag)) if x.is_complex() else flow.round(x)


def clip(x: Tensor, /, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """Each element limited to [`min`, `max`]; None is no limit.  The shapes broadcast.

    The limits are converted to the dtype of `x`, which the result has; elements of a tensor may wrap around.

    Raises:
        TypeError: if a limit is neither a tensor nor a number, is complex, or given for a complex `x`.
        ValueError: if the shapes do not broadcast.
        ValueError, OverflowError: if a number is out of the range of the dtype.

    Example:
        >>> flow.array_api.clip(flow.tensor([-1, 5, 9]), 0, 6)
        tensor([0, 5, 6])
    """
    check_tensors("clip", x)
    limited = x
    if min is not None:
        low = _limit(min, x)
        limited = flow.maximum(limited, low)
    if max is not None:
        high = _limit(max, x)
        limited = flow.minimum(limited, high)
    return flow.clone(x) if limited is x else limited


def _limit(limit: Operand, x: Tensor) -> Tensor:
    """A limit of `clip` as a tensor of the dtype of `x`; a number also goes to the device and the ranks of `x`."""
    if isinstance(limit, Tensor):
        if limit.is_complex():
            raise TypeError(f"clip: a limit cannot be {limit.dtype.name}")
        return limit.to(x.dtype)
    return beside(flow.full((), fitting("clip", limit, x.dtype), dtype=x.dtype, device=x.device), x)


def where(condition: Tensor, x1: Operand, x2: Operand, /) -> Tensor:
    """Elements of `x1` where the bool tensor `condition` is True, else elements of `x2`.  The shapes broadcast.

    Unlike in `vmflow.where`, 0-d tensors can widen the dtype.

    Raises:
        TypeError: if `condition` is no bool tensor, a value is neither a tensor nor a number, or there is no common
            dtype.
        ValueError: if the shapes do not broadcast.
        ValueError, OverflowError: if a number does not fit into the common dtype.

    Example:
        >>> flow.array_api.where(flow.tensor([True, False]), flow.tensor([1, 2]), 0)
        tensor([1, 0])
    """
    if not isinstance(x1, Tensor) and not isinstance(x2, Tensor):
        return flow.where(condition, x1, x2)
    first, second = together("where", x1, x2)
    return flow.where(condition, first, second)
