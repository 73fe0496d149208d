"""Elementwise functions by the array API standard, which allows a Python number for one of two operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import vmflow as flow
from vmflow.ops.elementwise import floating_point
from vmflow.tensors import Tensor

from .data_types import together

Unary = Callable[[Tensor], Tensor]
Function = TypeVar("Function", bound=Callable[..., Any])
Operand = Tensor | bool | int | float | complex


def _unary(name: str, function: Callable[..., Tensor], what: str) -> Unary:
    def call(x: Tensor, /) -> Tensor:
        return function(x)

    return _named(call, name, what)


def _binary(name: str, function: Callable[..., Tensor], what: str) -> Callable[[Operand, Operand], Tensor]:
    def call(x1: Operand, x2: Operand, /) -> Tensor:
        return function(*together(name, x1, x2))

    return _named(call, name, what)


def _named(call: Function, name: str, what: str) -> Function:
    call.__name__ = call.__qualname__ = name
    call.__doc__ = what
    return call


abs = _unary("abs", flow.abs, "Absolute values.")
acos = _unary("acos", flow.acos, "Inverse cosine.")
acosh = _unary("acosh", flow.acosh, "Inverse hyperbolic cosine.")
asin = _unary("asin", flow.asin, "Inverse sine.")
asinh = _unary("asinh", flow.asinh, "Inverse hyperbolic sine.")
atan = _unary("atan", flow.atan, "Inverse tangent.")
atanh = _unary("atanh", flow.atanh, "Inverse hyperbolic tangent.")
bitwise_invert = _unary("bitwise_invert", flow.bitwise_not, "Every bit inverted.")
ceil = _unary("ceil", flow.ceil, "Rounded up.")
conj = _unary("conj", flow.conj, "Complex conjugate.")
cos = _unary("cos", flow.cos, "Cosine.")
cosh = _unary("cosh", flow.cosh, "Hyperbolic cosine.")
exp = _unary("exp", flow.exp, "e to the power of each element.")
expm1 = _unary("expm1", flow.expm1, "exp(x) - 1, accurate near 0.")
imag = _unary("imag", flow.imag, "Imaginary parts.")
floor = _unary("floor", flow.floor, "Rounded down.")
isfinite = _unary("isfinite", flow.isfinite, "Whether neither infinite nor nan.")
isinf = _unary("isinf", flow.isinf, "Whether infinite.")
isnan = _unary("isnan", flow.isnan, "Whether nan.")
log = _unary("log", flow.log, "Natural logarithm.")
log1p = _unary("log1p", flow.log1p, "log(1 + x), accurate near 0.")
log2 = _unary("log2", flow.log2, "Logarithm to base 2.")
log10 = _unary("log10", flow.log10, "Logarithm to base 10.")
logical_not = _unary("logical_not", flow.logical_not, "Whether zero.")
negative = _unary("negative", flow.neg, "Negated.")
positive = _unary("positive", flow.clone, "A copy.")
real = _unary("real", flow.real, "Real parts.")
reciprocal = _unary("reciprocal", flow.reciprocal, "1 / x.")
signbit = _unary("signbit", floating_point.signbit, "Whether there is a minus sign, also of -0.0 and -nan.")
sin = _unary("sin", flow.sin, "Sine.")
sinh = _unary("sinh", flow.sinh, "Hyperbolic sine.")
sqrt = _unary("sqrt", flow.sqrt, "Square root.")
square = _unary("square", flow.square, "x * x.")
tan = _unary("tan", flow.tan, "Tangent.")
tanh = _unary("tanh", flow.tanh, "Hyperbolic tangent.")
trunc = _unary("trunc", flow.trunc, "Rounded towards 0.")

add = _binary("add", flow.add, "x1 + x2.")
atan2 = _binary("atan2", flow.atan2, "The angle of the point (x2, x1).")
bitwise_and = _binary("bitwise_and", flow.bitwise_and, "x1 & x2.")
bitwise_left_shift = _binary("bitwise_left_shift", flow.bitwise_left_shift, "The bits of x1 moved up by x2 places.")
bitwise_or = _binary("bitwise_or", flow.bitwise_or, "x1 | x2.")
bitwise_right_shift = _binary(
    "bitwise_right_shift", flow.bitwise_right_shift, "The bits of x1 moved down by x2 places, the sign repeated."
)
bitwise_xor = _binary("bitwise_xor", flow.bitwise_xor, "x1 ^ x2.")
copysign = _binary("copysign", floating_point.copysign, "The size of x1 with the sign of x2.")
divide = _binary("divide", flow.div, "x1 / x2.")
equal = _binary("equal", flow.eq, "x1 == x2.")
floor_divide = _binary("floor_divide", flow.floor_divide, "x1 // x2.")
greater = _binary("greater", flow.gt, "x1 > x2.")
greater_equal = _binary("greater_equal", flow.ge, "x1 >= x2.")
hypot = _binary("hypot", flow.hypot, "The square root of x1**2 + x2**2.")
less = _binary("less", flow.lt, "x1 < x2.")
less_equal = _binary("less_equal", flow.le, "x1 <= x2.")
logaddexp = _binary("logaddexp", flow.logaddexp, "log(exp(x1) + exp(x2)).")
logical_and = _binary("logical_and", flow.logical_and, "Whether both are not zero.")
logical_or = _binary("logical_or", flow.logical_or, "Whether one is not zero.")
logical_xor = _binary("logical_xor", flow.logical_xor, "Whether exactly one is not zero.")
maximum = _binary("maximum", flow.maximum, "The larger; nan if one is.")
minimum = _binary("minimum", flow.minimum, "The smaller; nan if one is.")
multiply = _binary("multiply", flow.mul, "x1 * x2.")
nextafter = _binary("nextafter", floating_point.nextafter, "The next number that there is after x1, towards x2.")
not_equal = _binary("not_equal", flow.ne, "x1 != x2.")
pow = _binary("pow", flow.pow, "x1 ** x2.")
remainder = _binary("remainder", flow.remainder, "x1 % x2, with the sign of x2.")
subtract = _binary("subtract", flow.sub, "x1 - x2.")


def sign(x: Tensor, /) -> Tensor:
    """-1, 0 or 1, and nan of nan; of a complex number the one of size 1 in its direction."""
    if x.is_floating_point():
        return flow.where(flow.isnan(x), x, flow.sign(x))
    if not x.is_complex():
        return flow.sign(x)
    # A single infinite part is the whole direction.
    of_real, of_imag = flow.isinf(x.real), flow.isinf(x.imag)
    one, nothing = of_real ^ of_imag, flow.zeros_like(x.real)
    real = flow.where(one, flow.where(of_real, flow.sign(x.real), nothing), x.real)
    imag = flow.where(one, flow.where(of_imag, flow.sign(x.imag), nothing), x.imag)
    size = flow.hypot(real, imag)
    found = flow.complex(real / size, imag / size)  # a quotient of complex numbers would lose the signs of zeros
    return flow.where(size == 0, flow.zeros_like(x), found)


def round(x: Tensor, /) -> Tensor:
    """Rounded to the nearest integer, halves to the even one; of complex numbers both parts."""
    return flow.complex(flow.round(x.real), flow.round(x.imag)) if x.is_complex() else flow.round(x)


def clip(x: Tensor, /, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """`x` brought between two limits, in the dtype of `x`; None is no limit."""
    found = x
    if min is not None:
        low = min.to(x.dtype) if isinstance(min, Tensor) else flow.full((), min, dtype=x.dtype, device=x.device)
        found = flow.maximum(found, low)
    if max is not None:
        high = max.to(x.dtype) if isinstance(max, Tensor) else flow.full((), max, dtype=x.dtype, device=x.device)
        found = flow.minimum(found, high)
    return flow.clone(x) if found is x else found


def where(condition: Tensor, x1: Operand, x2: Operand, /) -> Tensor:
    """`x1` where the condition holds, `x2` elsewhere; of two numbers as `vmflow.where`."""
    if not isinstance(x1, Tensor) and not isinstance(x2, Tensor):
        return flow.where(condition, x1, x2)
    one, other = together("where", x1, x2)
    return flow.where(condition, one, other)
