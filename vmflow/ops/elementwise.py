"""Ops that treat each element alone: arithmetic, comparison, logic, rounding, casts.

Two tensors broadcast as in numpy.  dtypes promote as in PyTorch: the higher category (bool, integer, floating, complex)
wins without widening; Python numbers and 0-d tensors raise the category but do not widen.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Number
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vmflow import dtypes
from vmflow import interpreter as _interpreter
from vmflow import tensor as _tensor
from vmflow.dtypes import BOOL, COMPLEX, FLOATING
from vmflow.dtypes import dtype as DType
from vmflow.instructions.blob import Array, TensorMeta, meta
from vmflow.instructions.op_call import Kernel

from .table import Attributes, Inferred, Kinds, Metas, OpExpr, array_module, broadcast_shapes, common_device

if TYPE_CHECKING:
    from typing import TypeAlias

    from vmflow.autograd.node import OpNode
    from vmflow.tensor import Tensor

    Scalar: TypeAlias = bool | int | float | complex

# Nanoseconds per element on one core, for deciding inline or worker: memory-bound, and transcendental functions.
CHEAP: Final = 0.5
DEAR: Final = 5.0

# What the dtype of the result is, given the promoted dtype of the operands.
SAME: Final = "same"
TO_FLOAT: Final = "to float"
TO_BOOL: Final = "to bool"
TO_REAL: Final = "to real"

REVERSED: Final = ("reversed",)


def result_dtype(metas: Metas, kinds: Kinds = ()) -> DType:
    """The dtype that these tensors and numbers make together, as in PyTorch."""
    if len(metas) == 1 and not kinds:
        return metas[0].dtype
    with_dims = [it.dtype for it in metas if it.shape]
    without = [it.dtype for it in metas if not it.shape]
    ranked = _promote_all(with_dims)
    if ranked is None:
        ranked = _promote_all(without)
    else:
        scalar = _promote_all(without)
        if scalar is not None and scalar.category > ranked.category:
            ranked = dtypes.promote_types(ranked, scalar)
    for kind in kinds:
        ranked = dtypes.of_scalar(kind) if ranked is None else dtypes.promote_scalar(ranked, kind)
    assert ranked is not None
    return ranked


def _promote_all(given: list[DType]) -> DType | None:
    if not given:
        return None
    result = given[0]
    for other in given[1:]:
        result = dtypes.promote_types(result, other)
    return result


_constants: dict[tuple[Any, Any], Array] = {}


def constant(value: Any, numpy_dtype: np.dtype[Any]) -> Array:
    """`value` as a 0-d array, which a ufunc takes faster than a Python number.  Integers wrap around."""
    if not value:
        return np.array(value).astype(numpy_dtype)  # 0.0 and -0.0 are equal, and must not be confused
    key = (value, numpy_dtype)
    found = _constants.get(key)
    if found is None:
        if len(_constants) >= 4096:
            _constants.clear()
        found = _constants[key] = np.array(value).astype(numpy_dtype)
    return found


def elementwise(
    name: str,
    function: str | Callable[[Any], Kernel],
    result: str = SAME,
    *,
    cost: float = CHEAP,
    least: int = BOOL,
    most: int = COMPLEX,
) -> OpExpr:
    """Declare an op that applies a ufunc to broadcast operands.

    Args:
        name: of the op.
        function: name of the array module's ufunc, or a function from the module to ``kernel(*arrays, out)``.
        result: SAME, TO_FLOAT (integers become the default dtype), TO_BOOL or TO_REAL.
        cost: nanoseconds per element.
        least, most: the categories accepted.
    """

    def infer(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
        device = common_device(name, metas)
        shape = metas[0].shape if len(metas) == 1 else broadcast_shapes(name, *[it.shape for it in metas])
        compute = result_dtype(metas, kinds)
        if not least <= compute.category <= most:
            raise TypeError(f"{name} is not defined for {compute.name} tensors")
        if result == TO_FLOAT and compute.category < FLOATING:
            compute = dtypes.get_default_dtype()
        output = dtypes.bool_ if result == TO_BOOL else compute.to_real() if result == TO_REAL else compute
        xp = array_module(device)
        ufunc = getattr(xp, function) if isinstance(function, str) else function(xp)
        return Inferred(
            (out := meta(shape, output, device)),
            _kernel(ufunc, compute, metas, bool(kinds), attributes == REVERSED),
            out.numel * cost,
        )

    return OpExpr(name, infer)


def _kernel(ufunc: Kernel, compute: DType, metas: Metas, scalar: bool, reversed_: bool) -> Kernel:
    """`ufunc`, with the operands cast to `compute` where they are not."""
    to = compute.numpy
    if scalar:
        cast = metas[0].dtype is not compute

        def with_scalar(array: Array, value: Any, out: Array | None) -> Array:
            if cast:
                array = array.astype(to)
            if reversed_:
                return ufunc(constant(value, to), array, out)
            return ufunc(array, constant(value, to), out)

        return with_scalar
    if all(it.dtype is compute for it in metas):
        return ufunc

    def with_casts(*arguments: Any) -> Array:
        return ufunc(*[array.astype(to, copy=False) for array in arguments[:-1]], arguments[-1])

    return with_casts


class Binary:
    """An op of two operands, of which one may be a Python number.

    Attributes:
        tensors: the op on two tensors.
        scalar: the op on a tensor and a number; its attributes are `REVERSED` if the number stands first.
    """

    __slots__ = ("name", "scalar", "tensors")

    def __init__(self, name: str, function: str | Callable[[Any], Kernel], result: str = SAME, **options: Any) -> None:
        self.name = name
        self.tensors = elementwise(name, function, result, **options)
        self.scalar = elementwise(f"{name}_scalar", function, result, **options)

    def __call__(self, input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
        if isinstance(other, _tensor.Tensor):
            if isinstance(input, _tensor.Tensor):
                return _interpreter.dispatch(self.tensors, (input, other))
            return _interpreter.dispatch(self.scalar, (other,), REVERSED, (number(self.name, input),))
        if isinstance(input, _tensor.Tensor):
            return _interpreter.dispatch(self.scalar, (input,), (), (number(self.name, other),))
        raise TypeError(f"{self.name}: expected a tensor, got {type(input).__name__} and {type(other).__name__}")

    def operator(self) -> Callable[[Tensor, Tensor | Scalar], Tensor]:
        """The op as a method for an operator, one call shorter on the commonest path."""
        tensors = self.tensors
        either = self.__call__

        def operate(self: Tensor, other: Tensor | Scalar) -> Tensor:
            if isinstance(other, _tensor.Tensor):
                return _interpreter.dispatch(tensors, (self, other))
            return either(self, other)

        return operate

    def into(self, input: Tensor, other: Tensor | Scalar) -> Tensor:
        """``input = input op other``, in place."""
        if isinstance(other, _tensor.Tensor):
            return _interpreter.dispatch_into(self.tensors, input, (input, other))
        return _interpreter.dispatch_into(self.scalar, input, (input,), (), (number(self.name, other),))


def number(name: str, value: Any) -> Any:
    """`value` as a Python number.

    Raises:
        TypeError: if it is none.
        OverflowError: if it is an integer that no dtype holds.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, Number):
        raise TypeError(f"{name}: expected a tensor or a number, got {type(value).__name__}")
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise OverflowError(f"{name}: {value} does not fit into int64")
    return value


def conj_if_complex(tensor: Tensor) -> Tensor:
    """The conjugate, which is what gradients of complex products need; real tensors are returned as they are."""
    return conj(tensor) if tensor.dtype.is_complex else tensor


# Arithmetic

_ADD = Binary("add", "add")
_SUB = Binary("sub", "subtract")
_MUL = Binary("mul", "multiply")
_DIV = Binary("div", "true_divide", TO_FLOAT)
_POW = Binary("pow", lambda xp: _power(xp), cost=DEAR)
_FLOOR_DIVIDE = Binary("floor_divide", "floor_divide", most=FLOATING)
_REMAINDER = Binary("remainder", "remainder", most=FLOATING)
_FMOD = Binary("fmod", "fmod", most=FLOATING)
_MAXIMUM = Binary("maximum", lambda xp: _by_keyword(xp.maximum), most=FLOATING)
_MINIMUM = Binary("minimum", lambda xp: _by_keyword(xp.minimum), most=FLOATING)
_ATAN2 = Binary("atan2", "arctan2", TO_FLOAT, cost=DEAR, most=FLOATING)


def _by_keyword(ufunc: Any) -> Kernel:
    """maximum and minimum are about to give a third positional operand another meaning."""
    return lambda first, second, out: ufunc(first, second, out=out)


# As methods of Tensor.
plus = _ADD.operator()
times = _MUL.operator()
over = _DIV.operator()


def _power(xp: Any) -> Kernel:
    def power(base: Array, exponent: Array, out: Array | None) -> Array:
        # numpy's float power is ten times slower than these two, which are also the common ones.
        if exponent.ndim == 0 and base.ndim and base.dtype.kind in "fc":
            if exponent == 2:
                return xp.multiply(base, base, out)
            if exponent == 0.5:
                return xp.sqrt(base, out)
        return xp.power(base, exponent, out)

    return power


def add(input: Tensor | Scalar, other: Tensor | Scalar, *, alpha: Scalar = 1) -> Tensor:
    """``input + alpha * other``."""
    return _ADD(input, other if alpha == 1 else other * alpha)


def sub(input: Tensor | Scalar, other: Tensor | Scalar, *, alpha: Scalar = 1) -> Tensor:
    """``input - alpha * other``.

    Raises:
        TypeError: for two bool tensors.
    """
    _no_bools("sub", input, other)
    return _SUB(input, other if alpha == 1 else other * alpha)


def mul(input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """``input * other``."""
    return _MUL(input, other)


def div(input: Tensor | Scalar, other: Tensor | Scalar, *, rounding_mode: str | None = None) -> Tensor:
    """``input / other``; integers divide to the default floating-point dtype.

    Args:
        rounding_mode: None, "trunc" (towards zero) or "floor"; with either, integers stay integers.
    """
    if rounding_mode is None:
        return _DIV(input, other)
    if rounding_mode == "floor":
        return _FLOOR_DIVIDE(input, other)
    if rounding_mode != "trunc":
        raise ValueError(f"div: rounding_mode must be None, 'trunc' or 'floor', not {rounding_mode!r}")
    quotient = _DIV(input, other)
    return trunc(quotient).to(_common_dtype(input, other))


def pow(input: Tensor | Scalar, exponent: Tensor | Scalar) -> Tensor:
    """``input ** exponent``.

    Raises:
        ValueError: for an integer tensor and a negative integer exponent.
    """
    if isinstance(exponent, int) and exponent < 0 and isinstance(input, _tensor.Tensor):
        if input.dtype.category < FLOATING:
            raise ValueError("pow: integers to a negative integer power are not integers; convert with .float() first")
    return _POW(input, exponent)


def floor_divide(input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """The quotient rounded down."""
    return _FLOOR_DIVIDE(input, other)


def remainder(input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """The remainder of `floor_divide`; it has the divisor's sign."""
    return _REMAINDER(input, other)


def fmod(input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """The remainder of division rounded towards zero; it has the dividend's sign."""
    return _FMOD(input, other)


def maximum(input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """The larger of two elements; nan if either is."""
    return _MAXIMUM(input, other)


def minimum(input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """The smaller of two elements; nan if either is."""
    return _MINIMUM(input, other)


def atan2(input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """The angle, in radians, of the point (other, input)."""
    return _ATAN2(input, other)


def add_(input: Tensor, other: Tensor | Scalar, *, alpha: Scalar = 1) -> Tensor:
    """In-place `add`."""
    return _ADD.into(input, other if alpha == 1 else other * alpha)


def sub_(input: Tensor, other: Tensor | Scalar, *, alpha: Scalar = 1) -> Tensor:
    """In-place `sub`."""
    _no_bools("sub_", input, other)
    return _SUB.into(input, other if alpha == 1 else other * alpha)


def mul_(input: Tensor, other: Tensor | Scalar) -> Tensor:
    """In-place `mul`."""
    return _MUL.into(input, other)


def div_(input: Tensor, other: Tensor | Scalar) -> Tensor:
    """In-place `div`."""
    return _DIV.into(input, other)


def pow_(input: Tensor, exponent: Tensor | Scalar) -> Tensor:
    """In-place `pow`."""
    return _POW.into(input, exponent)


def _no_bools(name: str, input: Tensor | Scalar, other: Tensor | Scalar) -> None:
    if _common_dtype(input, other) is dtypes.bool_:
        raise TypeError(f"{name}: bool tensors cannot be subtracted; use logical_xor")


def _common_dtype(input: Tensor | Scalar, other: Tensor | Scalar) -> DType:
    operands = (input, other)
    return result_dtype(
        tuple([it._blob.meta for it in operands if isinstance(it, _tensor.Tensor)]),
        tuple([type(it) for it in operands if not isinstance(it, _tensor.Tensor)]),
    )


@_ADD.tensors.gradient()
def _add_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor, Tensor]:
    return gradient, gradient


@_ADD.scalar.gradient()
def _add_scalar_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient,)


@_SUB.tensors.gradient()
def _sub_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor, Tensor | None]:
    return gradient, -gradient if node.needs[1] else None


@_SUB.scalar.gradient()
def _sub_scalar_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (-gradient if node.attributes == REVERSED else gradient,)


@_MUL.tensors.gradient(inputs=(0, 1))
def _mul_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    first, second = node.needs
    return (
        gradient * conj_if_complex(node.input(1)) if first else None,
        gradient * conj_if_complex(node.input(0)) if second else None,
    )


@_MUL.scalar.gradient()
def _mul_scalar_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient * node.scalars[0].conjugate(),)


@_DIV.tensors.gradient(inputs=(0, 1))
def _div_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    first, second = node.needs
    divisor = conj_if_complex(node.input(1))
    quotient = gradient / divisor
    return (
        quotient if first else None,
        -quotient * conj_if_complex(node.input(0)) / divisor if second else None,
    )


@_DIV.scalar.gradient(inputs=(0,))
def _div_scalar_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    value = node.scalars[0].conjugate()
    if node.attributes == REVERSED:
        divisor = conj_if_complex(node.input(0))
        return (gradient * -value / (divisor * divisor),)
    return (gradient / value,)


@_POW.tensors.gradient(inputs=(0, 1), outputs=(0,))
def _pow_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    base, exponent = node.input(0), node.input(1)
    first, second = node.needs
    return (
        # 0 * 0**-1 would be nan where the derivative is 0.
        gradient * where(exponent == 0, 0.0, exponent * base ** (exponent - 1)) if first else None,
        gradient * where((base == 0) & (exponent >= 0), 0.0, node.output(0) * log(base)) if second else None,
    )


@_POW.scalar.gradient(inputs=(0,))
def _pow_scalar_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    value = node.scalars[0]
    operand = node.input(0)
    if node.attributes == REVERSED:
        if value == 0:
            return (gradient * 0.0,)
        import cmath
        import math

        logarithm = math.log(value) if not isinstance(value, complex) and value > 0 else cmath.log(value)
        return (gradient * _POW(value, operand) * logarithm,)
    if value == 0:
        return (gradient * 0.0,)
    return (gradient * (operand ** (value - 1) * value),)


@_REMAINDER.tensors.gradient(inputs=(0, 1))
def _remainder_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    second = -gradient * floor(node.input(0) / node.input(1)) if node.needs[1] else None
    return gradient, second


@_REMAINDER.scalar.gradient()
def _remainder_scalar_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    if node.attributes == REVERSED:
        raise RuntimeError("remainder: the gradient by a divisor under a number is not defined here; make it a tensor")
    return (gradient,)


@_FMOD.tensors.gradient(inputs=(0, 1))
def _fmod_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    second = -gradient * trunc(node.input(0) / node.input(1)) if node.needs[1] else None
    return gradient, second


@_FMOD.scalar.gradient()
def _fmod_scalar_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    if node.attributes == REVERSED:
        raise RuntimeError("fmod: the gradient by a divisor under a number is not defined here; make it a tensor")
    return (gradient,)


def _select_gradient(node: OpNode, gradient: Tensor, first_wins: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Of two equal elements each gets half, as in PyTorch."""
    first, second = node.input(0), node.input(1)
    half = where(first == second, gradient * 0.5, 0.0)
    needs_first, needs_second = node.needs
    return (
        where(first_wins, gradient, half) if needs_first else None,
        where(first_wins | (first == second), half, gradient) if needs_second else None,
    )


@_MAXIMUM.tensors.gradient(inputs=(0, 1))
def _maximum_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    return _select_gradient(node, gradient, node.input(0) > node.input(1))


@_MINIMUM.tensors.gradient(inputs=(0, 1))
def _minimum_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    return _select_gradient(node, gradient, node.input(0) < node.input(1))


@_MAXIMUM.scalar.gradient(inputs=(0,))
def _maximum_scalar_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    operand = node.input(0)
    return (gradient * ((operand > node.scalars[0]) + (operand == node.scalars[0]) * 0.5),)


@_MINIMUM.scalar.gradient(inputs=(0,))
def _minimum_scalar_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    operand = node.input(0)
    return (gradient * ((operand < node.scalars[0]) + (operand == node.scalars[0]) * 0.5),)


@_ATAN2.tensors.gradient(inputs=(0, 1))
def _atan2_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    y, x = node.input(0), node.input(1)
    scaled = gradient / (x * x + y * y)
    return scaled * x if node.needs[0] else None, -scaled * y if node.needs[1] else None


# Functions of one operand

_NEG = elementwise("neg", "negative", least=1)
_ABS = elementwise("abs", "absolute", TO_REAL, least=1)
_SIGN = elementwise("sign", "sign")
_SQUARE = elementwise("square", "square", least=1)
_FLOOR = elementwise("floor", "floor", least=1, most=FLOATING)
_CEIL = elementwise("ceil", "ceil", least=1, most=FLOATING)
_TRUNC = elementwise("trunc", "trunc", least=1, most=FLOATING)
_ROUND = elementwise("round", "rint", most=FLOATING)
_CONJ = elementwise("conj", "conjugate", least=1)
_EXP = elementwise("exp", "exp", TO_FLOAT, cost=DEAR)
_EXPM1 = elementwise("expm1", "expm1", TO_FLOAT, cost=DEAR)
_LOG = elementwise("log", "log", TO_FLOAT, cost=DEAR)
_LOG2 = elementwise("log2", "log2", TO_FLOAT, cost=DEAR)
_LOG10 = elementwise("log10", "log10", TO_FLOAT, cost=DEAR)
_LOG1P = elementwise("log1p", "log1p", TO_FLOAT, cost=DEAR)
_SQRT = elementwise("sqrt", "sqrt", TO_FLOAT)
_RECIPROCAL = elementwise("reciprocal", "reciprocal", TO_FLOAT)
_SIN = elementwise("sin", "sin", TO_FLOAT, cost=DEAR)
_COS = elementwise("cos", "cos", TO_FLOAT, cost=DEAR)
_TAN = elementwise("tan", "tan", TO_FLOAT, cost=DEAR)
_RSQRT = elementwise("rsqrt", lambda xp: lambda x, out: xp.reciprocal(xp.sqrt(x), out), TO_FLOAT)


def neg(input: Tensor) -> Tensor:
    """``-input``."""
    return _interpreter.dispatch(_NEG, (input,))


def abs(input: Tensor) -> Tensor:
    """The absolute value; of complex elements the modulus, a real dtype."""
    return _interpreter.dispatch(_ABS, (input,))


def sign(input: Tensor) -> Tensor:
    """-1, 0 or 1 as the element is negative, zero or positive."""
    return _interpreter.dispatch(_SIGN, (input,))


def square(input: Tensor) -> Tensor:
    """``input * input``."""
    return _interpreter.dispatch(_SQUARE, (input,))


def floor(input: Tensor) -> Tensor:
    """The largest integer not above, in the input's dtype."""
    return _interpreter.dispatch(_FLOOR, (input,))


def ceil(input: Tensor) -> Tensor:
    """The smallest integer not below, in the input's dtype."""
    return _interpreter.dispatch(_CEIL, (input,))


def trunc(input: Tensor) -> Tensor:
    """The integer part, in the input's dtype."""
    return _interpreter.dispatch(_TRUNC, (input,))


def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """The nearest value with `decimals` decimals; ties go to even."""
    if decimals:
        scale = 10.0**decimals
        return _interpreter.dispatch(_ROUND, (input * scale,)) / scale
    return _interpreter.dispatch(_ROUND, (input,))


def conj(input: Tensor) -> Tensor:
    """The complex conjugate."""
    return _interpreter.dispatch(_CONJ, (input,)) if input.dtype.is_complex else input


def exp(input: Tensor) -> Tensor:
    """e to the power of each element."""
    return _interpreter.dispatch(_EXP, (input,))


def expm1(input: Tensor) -> Tensor:
    """``exp(input) - 1``, accurate near zero."""
    return _interpreter.dispatch(_EXPM1, (input,))


def log(input: Tensor) -> Tensor:
    """The natural logarithm; nan below zero, -inf at zero."""
    return _interpreter.dispatch(_LOG, (input,))


def log2(input: Tensor) -> Tensor:
    """The logarithm to base 2."""
    return _interpreter.dispatch(_LOG2, (input,))


def log10(input: Tensor) -> Tensor:
    """The logarithm to base 10."""
    return _interpreter.dispatch(_LOG10, (input,))


def log1p(input: Tensor) -> Tensor:
    """``log(1 + input)``, accurate near zero."""
    return _interpreter.dispatch(_LOG1P, (input,))


def sqrt(input: Tensor) -> Tensor:
    """The square root; nan below zero."""
    return _interpreter.dispatch(_SQRT, (input,))


def rsqrt(input: Tensor) -> Tensor:
    """``1 / sqrt(input)``."""
    return _interpreter.dispatch(_RSQRT, (input,))


def reciprocal(input: Tensor) -> Tensor:
    """``1 / input``."""
    return _interpreter.dispatch(_RECIPROCAL, (input,))


def sin(input: Tensor) -> Tensor:
    """The sine, of radians."""
    return _interpreter.dispatch(_SIN, (input,))


def cos(input: Tensor) -> Tensor:
    """The cosine, of radians."""
    return _interpreter.dispatch(_COS, (input,))


def tan(input: Tensor) -> Tensor:
    """The tangent, of radians."""
    return _interpreter.dispatch(_TAN, (input,))


@_NEG.gradient()
def _neg_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (-gradient,)


@_ABS.gradient(inputs=(0,))
def _abs_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient * sign(node.input(0)),)


@_SQUARE.gradient(inputs=(0,))
def _square_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient * (conj_if_complex(node.input(0)) * 2),)


def _zero_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient * 0.0,)


for _flat in (_SIGN, _FLOOR, _CEIL, _TRUNC, _ROUND):
    _flat.gradient()(_zero_gradient)


@_CONJ.gradient()
def _conj_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (conj(gradient),)


@_EXP.gradient(outputs=(0,))
def _exp_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient * conj_if_complex(node.output(0)),)


@_EXPM1.gradient(outputs=(0,))
def _expm1_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient * (node.output(0) + 1),)


@_LOG.gradient(inputs=(0,))
def _log_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient / conj_if_complex(node.input(0)),)


@_LOG2.gradient(inputs=(0,))
def _log2_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient / (node.input(0) * 0.6931471805599453),)


@_LOG10.gradient(inputs=(0,))
def _log10_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient / (node.input(0) * 2.302585092994046),)


@_LOG1P.gradient(inputs=(0,))
def _log1p_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient / (node.input(0) + 1),)


@_SQRT.gradient(outputs=(0,))
def _sqrt_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient / (conj_if_complex(node.output(0)) * 2),)


@_RSQRT.gradient(outputs=(0,))
def _rsqrt_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    root = conj_if_complex(node.output(0))
    return (gradient * (root * root * root * -0.5),)


@_RECIPROCAL.gradient(outputs=(0,))
def _reciprocal_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    inverse = conj_if_complex(node.output(0))
    return (-gradient * (inverse * inverse),)


@_SIN.gradient(inputs=(0,))
def _sin_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient * cos(conj_if_complex(node.input(0))),)


@_COS.gradient(inputs=(0,))
def _cos_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (-gradient * sin(conj_if_complex(node.input(0))),)


@_TAN.gradient(outputs=(0,))
def _tan_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    tangent = conj_if_complex(node.output(0))
    return (gradient * (tangent * tangent + 1),)


# Comparison and logic

_EQ = Binary("eq", "equal", TO_BOOL)
_NE = Binary("ne", "not_equal", TO_BOOL)
_LT = Binary("lt", "less", TO_BOOL, most=FLOATING)
_LE = Binary("le", "less_equal", TO_BOOL, most=FLOATING)
_GT = Binary("gt", "greater", TO_BOOL, most=FLOATING)
_GE = Binary("ge", "greater_equal", TO_BOOL, most=FLOATING)
_LOGICAL_AND = Binary("logical_and", "logical_and", TO_BOOL)
_LOGICAL_OR = Binary("logical_or", "logical_or", TO_BOOL)
_LOGICAL_XOR = Binary("logical_xor", "logical_xor", TO_BOOL)
_LOGICAL_NOT = elementwise("logical_not", "logical_not", TO_BOOL)
_BITWISE_AND = Binary("bitwise_and", "bitwise_and", most=dtypes.INTEGER)
_BITWISE_OR = Binary("bitwise_or", "bitwise_or", most=dtypes.INTEGER)
_BITWISE_XOR = Binary("bitwise_xor", "bitwise_xor", most=dtypes.INTEGER)
_BITWISE_NOT = elementwise("bitwise_not", "bitwise_not", most=dtypes.INTEGER)
_ISNAN = elementwise("isnan", "isnan", TO_BOOL)
_ISINF = elementwise("isinf", "isinf", TO_BOOL)
_ISFINITE = elementwise("isfinite", "isfinite", TO_BOOL)


def eq(input: Tensor, other: Tensor | Scalar) -> Tensor:
    """Whether equal, element by element; a bool tensor."""
    return _EQ(input, other)


def ne(input: Tensor, other: Tensor | Scalar) -> Tensor:
    """Whether not equal."""
    return _NE(input, other)


def lt(input: Tensor, other: Tensor | Scalar) -> Tensor:
    """Whether less."""
    return _LT(input, other)


def le(input: Tensor, other: Tensor | Scalar) -> Tensor:
    """Whether less or equal."""
    return _LE(input, other)


def gt(input: Tensor, other: Tensor | Scalar) -> Tensor:
    """Whether greater."""
    return _GT(input, other)


def ge(input: Tensor, other: Tensor | Scalar) -> Tensor:
    """Whether greater or equal."""
    return _GE(input, other)


def logical_and(input: Tensor, other: Tensor | Scalar) -> Tensor:
    """Whether both are non-zero."""
    return _LOGICAL_AND(input, other)


def logical_or(input: Tensor, other: Tensor | Scalar) -> Tensor:
    """Whether one is non-zero."""
    return _LOGICAL_OR(input, other)


def logical_xor(input: Tensor, other: Tensor | Scalar) -> Tensor:
    """Whether exactly one is non-zero."""
    return _LOGICAL_XOR(input, other)


def logical_not(input: Tensor) -> Tensor:
    """Whether zero."""
    return _interpreter.dispatch(_LOGICAL_NOT, (input,))


def bitwise_and(input: Tensor, other: Tensor | Scalar) -> Tensor:
    """The bits set in both; integers and bools."""
    return _BITWISE_AND(input, other)


def bitwise_or(input: Tensor, other: Tensor | Scalar) -> Tensor:
    """The bits set in one; integers and bools."""
    return _BITWISE_OR(input, other)


def bitwise_xor(input: Tensor, other: Tensor | Scalar) -> Tensor:
    """The bits set in exactly one; integers and bools."""
    return _BITWISE_XOR(input, other)


def bitwise_not(input: Tensor) -> Tensor:
    """The bits inverted; integers and bools."""
    return _interpreter.dispatch(_BITWISE_NOT, (input,))


def isnan(input: Tensor) -> Tensor:
    """Whether nan."""
    return _interpreter.dispatch(_ISNAN, (input,))


def isinf(input: Tensor) -> Tensor:
    """Whether infinite."""
    return _interpreter.dispatch(_ISINF, (input,))


def isfinite(input: Tensor) -> Tensor:
    """Whether neither infinite nor nan."""
    return _interpreter.dispatch(_ISFINITE, (input,))


# Selection and limits


def _infer_where(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    device = common_device("where", metas)
    if metas[0].dtype is not dtypes.bool_:
        raise TypeError(f"where: the condition must be a bool tensor, not {metas[0].dtype.name}")
    shape = broadcast_shapes("where", *[it.shape for it in metas])
    output = meta(shape, result_dtype(metas[1:], kinds), device)
    xp = array_module(device)
    to = output.dtype.numpy
    order = attributes

    def kernel(condition: Array, *operands: Any) -> Array:
        *values, out = operands
        values = [constant(it, to) if not isinstance(it, np.ndarray) else it.astype(to, copy=False) for it in values]
        if order == REVERSED:
            values.reverse()
        result = xp.where(condition, values[0], values[1])
        return result if out is None and result.flags.c_contiguous else xp.ascontiguousarray(result).reshape(shape)

    return Inferred(output, kernel, output.numel * CHEAP * 4)


_WHERE = OpExpr("where", _infer_where)


@_WHERE.gradient(inputs=(0,))
def _where_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, ...]:
    condition = node.input(0)
    if node.scalars:
        chosen = logical_not(condition) if node.attributes == REVERSED else condition
        return None, where(chosen, gradient, 0.0)
    _, first, second = node.needs
    return (
        None,
        where(condition, gradient, 0.0) if first else None,
        where(condition, 0.0, gradient) if second else None,
    )


def where(condition: Tensor, input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """`input` where the bool `condition` holds, else `other`; all three broadcast."""
    if isinstance(input, _tensor.Tensor):
        if isinstance(other, _tensor.Tensor):
            return _interpreter.dispatch(_WHERE, (condition, input, other))
        return _interpreter.dispatch(_WHERE, (condition, input), (), (number("where", other),))
    if isinstance(other, _tensor.Tensor):
        return _interpreter.dispatch(_WHERE, (condition, other), REVERSED, (number("where", input),))
    return _interpreter.dispatch(_WHERE, (condition,), (), (number("where", input), number("where", other)))


def masked_fill(input: Tensor, mask: Tensor, value: Tensor | Scalar) -> Tensor:
    """A copy of `input` with `value` where the bool `mask`, which broadcasts to it, holds."""
    filled = where(mask, value, input)
    if filled.shape != input.shape:
        raise ValueError(
            f"masked_fill: a mask of shape {list(mask.shape)} does not broadcast to the tensor's {list(input.shape)}"
        )
    return filled.to(input.dtype)


def clamp(input: Tensor, min: Tensor | Scalar | None = None, max: Tensor | Scalar | None = None) -> Tensor:
    """Each element limited to [min, max]; None is no limit.

    Raises:
        ValueError: if both limits are None.
    """
    if min is None and max is None:
        raise ValueError("clamp: give min, max or both")
    if min is not None:
        input = (
            maximum(input, min)
            if isinstance(min, _tensor.Tensor)
            else _interpreter.dispatch(_CLAMP_MIN, (input,), (), (number("clamp", min),))
        )
    if max is not None:
        input = (
            minimum(input, max)
            if isinstance(max, _tensor.Tensor)
            else _interpreter.dispatch(_CLAMP_MAX, (input,), (), (number("clamp", max),))
        )
    return input


_CLAMP_MIN = elementwise("clamp_min", lambda xp: _by_keyword(xp.maximum), least=1, most=FLOATING)
_CLAMP_MAX = elementwise("clamp_max", lambda xp: _by_keyword(xp.minimum), least=1, most=FLOATING)


@_CLAMP_MIN.gradient(inputs=(0,))
def _clamp_min_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (where(node.input(0) >= node.scalars[0], gradient, 0.0),)


@_CLAMP_MAX.gradient(inputs=(0,))
def _clamp_max_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (where(node.input(0) <= node.scalars[0], gradient, 0.0),)


def lerp(input: Tensor, end: Tensor, weight: Tensor | Scalar) -> Tensor:
    """``input + weight * (end - input)``."""
    return input + weight * (end - input)


# Copies and casts


def _infer_cast(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (target,) = attributes
    source = metas[0]
    assert isinstance(target, DType)
    output = meta(source.shape, target, source.device)
    xp = array_module(source.device)
    to = target.numpy

    def kernel(array: Array, out: Array | None) -> Array:
        if out is None:
            return array.astype(to, order="C")
        xp.copyto(out, array, casting="unsafe")
        return out

    return Inferred(output, kernel, output.numel * CHEAP)


_CAST = OpExpr("cast", _infer_cast)


@_CAST.gradient()
def _cast_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient,)  # cast back to the input's dtype by the caller


def cast(input: Tensor, dtype: DType) -> Tensor:
    """A copy of another dtype.  Floating point to integer rounds towards zero; complex to real drops the imaginary part."""
    return _interpreter.dispatch(_CAST, (input,), (dtype,))


def clone(input: Tensor) -> Tensor:
    """A contiguous copy; gradients flow through."""
    return _interpreter.dispatch(_CAST, (input,), (input.dtype,))


def contiguous(input: Tensor) -> Tensor:
    """`input` itself if its elements lie in order without gaps, else a copy."""
    return input if input.is_contiguous() else clone(input)


def _infer_copy(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (target,) = attributes
    (source,) = metas
    assert isinstance(target, TensorMeta)
    common_device("copy_", (target, source))
    if broadcast_shapes("copy_", target.shape, source.shape) != target.shape:
        raise ValueError(
            f"copy_: a tensor of shape {list(source.shape)} does not broadcast to the target's {list(target.shape)}"
        )
    xp = array_module(target.device)

    def kernel(array: Array, out: Array | None) -> Array:
        if out is None:
            return xp.broadcast_to(array, target.shape).astype(target.dtype.numpy, order="C")
        xp.copyto(out, array, casting="unsafe")
        return out

    return Inferred(target, kernel, target.numel * CHEAP)


_COPY = OpExpr("copy_", _infer_copy)


@_COPY.gradient()
def _copy_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient,)


def copy_(input: Tensor, src: Tensor) -> Tensor:
    """Copy the elements of `src`, which broadcasts, into `input`, in `input`'s dtype."""
    return _interpreter.dispatch_into(_COPY, input, (src,), (input._blob.meta,))


def _infer_fill(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (output,) = attributes
    assert isinstance(output, TensorMeta)
    xp = array_module(output.device)
    to = output.dtype.numpy

    def kernel(value: Any, out: Array | None) -> Array:
        if out is None:
            return xp.full(output.shape, np.array(value).astype(to), to)
        out[...] = np.array(value).astype(to)
        return out

    return Inferred(output, kernel, output.numel * CHEAP)


_FILL = OpExpr("fill", _infer_fill)


def full_of(output: TensorMeta, value: Scalar) -> Tensor:
    """A tensor with this meta, filled with `value`."""
    return _interpreter.dispatch(_FILL, (), (output,), (number("fill", value),))


def zeros_of(output: TensorMeta) -> Tensor:
    """A tensor with this meta, filled with zeros."""
    return full_of(output, 0)


def fill_(input: Tensor, value: Tensor | Scalar) -> Tensor:
    """Set every element to `value`, a number or a 0-d tensor."""
    if isinstance(value, _tensor.Tensor):
        if value.shape:
            raise ValueError(f"fill_: the value must be a number or a 0-d tensor, not of shape {list(value.shape)}")
        return copy_(input, value)
    return _interpreter.dispatch_into(_FILL, input, (), (input._blob.meta,), (number("fill_", value),))


def zero_(input: Tensor) -> Tensor:
    """Set every element to zero."""
    return fill_(input, 0)


def conform(gradient: Tensor, wanted: TensorMeta) -> Tensor:
    """`gradient` summed over the dimensions along which `wanted` was broadcast, and cast to its dtype."""
    if gradient._blob.meta.shape != wanted.shape:
        extra = len(gradient.shape) - len(wanted.shape)
        dims = [*range(extra)]
        dims += [
            axis + extra for axis, size in enumerate(wanted.shape) if size == 1 and gradient.shape[axis + extra] != 1
        ]
        if dims:
            gradient = gradient.sum(dims, keepdim=True)
        gradient = gradient.reshape(wanted.shape) if extra else gradient
    if gradient.dtype is not wanted.dtype:
        if gradient.dtype.is_complex and not wanted.dtype.is_complex:
            gradient = cast(gradient, gradient.dtype.to_real())
        gradient = cast(gradient, wanted.dtype) if gradient.dtype is not wanted.dtype else gradient
    return gradient
