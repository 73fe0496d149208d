"""Ops that treat each element alone: arithmetic, comparison, logic, rounding, casts.

Two tensors broadcast as in numpy.  dtypes promote as in PyTorch: the higher category (bool, integer, floating, complex)
wins without widening; Python numbers and 0-d tensors raise the category but do not widen.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from numbers import Number
from typing import TYPE_CHECKING, Any, Final, overload

import numpy as np

import vmflow.tensors as _tensors
from vmflow import dtypes
from vmflow import interpreter as _interpreter
from vmflow.context import MODE
from vmflow.dtypes import BOOL, COMPLEX, FLOATING
from vmflow.dtypes import dtype as DType
from vmflow.instructions.blob import Array, TensorMeta, meta
from vmflow.instructions.op_call import Kernel

from .table import Attributes, Inferred, Kinds, Metas, OpExpr, array_module, broadcast_shapes, common_device

if TYPE_CHECKING:
    from typing import TypeAlias

    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

    Scalar: TypeAlias = bool | int | float | complex | np.generic

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
            ranked = dtypes.promote_unsized(ranked, scalar)
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
    """`value` as a 0-d array, which a ufunc takes faster than a Python number.  Integers wrap around, as in PyTorch."""
    if not value or type(value) is complex:
        return np.array(value).astype(numpy_dtype)  # 0.0 and -0.0 are equal, and must not be confused
    key = (value, numpy_dtype)
    found = _constants.get(key)
    if found is None:
        if len(_constants) >= 4096:
            _constants.clear()
        found = _constants[key] = np.array(value).astype(numpy_dtype)
    return found


def saturated(value: Any, numpy_dtype: np.dtype[Any]) -> Array:
    """As `constant`, but an integer that does not fit becomes the nearest that does: for limits and truth values."""
    if numpy_dtype.kind in "iu":
        limits = np.iinfo(numpy_dtype)
        value = min(max(value, limits.min), limits.max)
    return constant(value, numpy_dtype)


def comparable(value: Any, numpy_dtype: np.dtype[Any]) -> Any:
    """As `constant`, but an integer that does not fit is left to numpy, whose comparisons know what to do with it."""
    if numpy_dtype.kind in "iu" and not np.iinfo(numpy_dtype).min <= value <= np.iinfo(numpy_dtype).max:
        return value
    return constant(value, numpy_dtype)


def elementwise(
    name: str,
    function: str | Callable[[Any], Kernel],
    result: str = SAME,
    *,
    cost: float = CHEAP,
    least: int = BOOL,
    most: int = COMPLEX,
    operand: Callable[[Any, np.dtype[Any]], Any] = constant,
    bools: str | None = None,
) -> OpExpr:
    """Declare an op that applies a ufunc to broadcast operands.

    Args:
        name: of the op.
        function: name of the array module's ufunc, or a function from the module to ``kernel(*arrays, out)``.
        result: SAME, TO_FLOAT (integers become the default dtype), TO_BOOL or TO_REAL.
        cost: nanoseconds per element.
        least, most: the categories accepted.
        operand: what a Python number becomes: `constant`, `saturated` or `comparable`.
        bools: if given, no operand may be bool, and this says what to use instead.
    """

    def infer(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
        device = common_device(name, metas)
        shape = metas[0].shape if len(metas) == 1 else broadcast_shapes(name, *[it.shape for it in metas])
        compute = result_dtype(metas, kinds)
        if not least <= compute.category <= most:
            raise TypeError(f"{name.removesuffix('_scalar')} is not defined for {compute.name} tensors")
        if bools is not None and (bool in kinds or dtypes.bool_ in [it.dtype for it in metas]):
            raise TypeError(f"{name.removesuffix('_scalar')} is not defined for bools; {bools}")
        if result == TO_FLOAT and compute.category < FLOATING:
            compute = dtypes.get_default_dtype()
        output = dtypes.bool_ if result == TO_BOOL else compute.to_real() if result == TO_REAL else compute
        xp = array_module(device)
        ufunc = getattr(xp, function) if isinstance(function, str) else function(xp)
        return Inferred(
            (out := meta(shape, output, device)),
            _kernel(ufunc, compute, metas, operand if kinds else None, attributes == REVERSED),
            out.numel * cost,
        )

    return OpExpr(name, infer)


def _kernel(
    ufunc: Kernel, compute: DType, metas: Metas, operand: Callable[[Any, np.dtype[Any]], Any] | None, reversed_: bool
) -> Kernel:
    """`ufunc`, with the operands cast to `compute` where they are not."""
    to = compute.numpy
    if operand is not None:
        cast = metas[0].dtype is not compute

        def with_scalar(array: Array, value: Any, out: Array | None) -> Array:
            if cast:
                array = array.astype(to)
            if reversed_:
                return ufunc(operand(value, to), array, out)
            return ufunc(array, operand(value, to), out)

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

    def __init__(
        self,
        name: str,
        function: str | Callable[[Any], Kernel],
        result: str = SAME,
        *,
        scalar_function: str | Callable[[Any], Kernel] | None = None,
        **options: Any,
    ) -> None:
        self.name = name
        self.tensors = elementwise(name, function, result, **options)
        self.scalar = elementwise(f"{name}_scalar", scalar_function or function, result, **options)

    def __call__(self, input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
        if isinstance(other, _tensors.Tensor):
            if isinstance(input, _tensors.Tensor):
                return _interpreter.dispatch(self.tensors, (input, other))
            return _interpreter.dispatch(self.scalar, (other,), REVERSED, (number(self.name, input),))
        if isinstance(input, _tensors.Tensor):
            return _interpreter.dispatch(self.scalar, (input,), (), (number(self.name, other),))
        raise TypeError(f"{self.name}: expected a tensor, got {type(input).__name__} and {type(other).__name__}")

    def operator(self) -> Callable[[Tensor, Tensor | Scalar], Tensor]:
        """The op as a method for an operator, one call shorter on the commonest path."""
        tensors = self.tensors
        either = self.__call__

        def operate(self: Tensor, other: Tensor | Scalar) -> Tensor:
            if isinstance(other, _tensors.Tensor):
                return _interpreter.dispatch(tensors, (self, other))
            return either(self, other)

        return operate

    def into(self, input: Tensor, other: Tensor | Scalar) -> Tensor:
        """``input = input op other``, in place."""
        if isinstance(other, _tensors.Tensor):
            return into(self.tensors, input, (input, other))
        return into(self.scalar, input, (input,), (), (number(self.name, other),))


def into(
    op: OpExpr,
    target: Tensor,
    inputs: tuple[Tensor, ...],
    attributes: Attributes = (),
    scalars: tuple[Any, ...] = (),
) -> Tensor:
    """Write the result of an op into `target`, which may be among the inputs, and return it.

    As `dispatch_into`, but what the gradient needs of the target is kept as it was.
    """
    looks_back = op.saves_inputs or op.rule is None
    if looks_back and MODE.get().grad and any([it.requires_grad for it in (target, *inputs)]):
        if op.rule is None:
            return copy_(target, _interpreter.dispatch(op, inputs, attributes, scalars))
        inputs = tuple(
            [clone(it) if it is target and place in op.saves_inputs else it for place, it in enumerate(inputs)]
        )
    return _interpreter.dispatch_into(op, target, inputs, attributes, scalars)


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
_SUB = Binary("sub", "subtract", bools="use logical_xor, or ~ to invert a mask")
_MUL = Binary("mul", "multiply")
_DIV = Binary("div", "true_divide", TO_FLOAT)
_POW = Binary(
    "pow", lambda xp: _power(xp), scalar_function=lambda xp: _scalar_power(xp), cost=DEAR, least=dtypes.INTEGER
)
_FLOOR_DIVIDE = Binary(
    "floor_divide", lambda xp: _divided(xp.floor_divide), least=dtypes.INTEGER, most=FLOATING, cost=DEAR
)
_TRUNC_DIVIDE = Binary(
    "trunc_divide", lambda xp: _divided(_trunc_divide(xp)), least=dtypes.INTEGER, most=FLOATING, cost=DEAR
)
_REMAINDER = Binary("remainder", lambda xp: _divided(xp.remainder), least=dtypes.INTEGER, most=FLOATING, cost=DEAR)
_FMOD = Binary("fmod", lambda xp: _divided(xp.fmod), least=dtypes.INTEGER, most=FLOATING, cost=DEAR)
_MAXIMUM = Binary("maximum", lambda xp: _by_keyword(xp.maximum), most=FLOATING, operand=saturated)
_MINIMUM = Binary("minimum", lambda xp: _by_keyword(xp.minimum), most=FLOATING, operand=saturated)
_ATAN2 = Binary("atan2", "arctan2", TO_FLOAT, cost=DEAR, most=FLOATING)


def _by_keyword(ufunc: Any) -> Kernel:
    """maximum and minimum are about to give a third positional operand another meaning."""
    return lambda first, second, out: ufunc(first, second, out=out)


def _power(xp: Any) -> Kernel:
    def power(base: Array, exponent: Array, out: Array | None) -> Array:
        if exponent.dtype.kind == "i" and (exponent < 0).any():
            # numpy refuses.  What is left of a fraction when rounded towards zero is 0, except for 1 and -1.
            unit = xp.where(base == -1, 1 - 2 * (exponent & 1), base == 1)
            result = xp.where(exponent < 0, unit, xp.power(base, xp.maximum(exponent, 0)))
            return result.astype(base.dtype, copy=False)
        if exponent.dtype.kind in "biuc":
            return xp.power(base, exponent, out)
        # numpy takes the square root where an exponent of 0.5 is broadcast, which is not the power of -inf and -0.0.
        roots = exponent == 0.5
        odd = roots & ((base == -math.inf) | (base == 0)) if roots.any() else roots
        exact = xp.abs(base) if odd.any() else None
        result = xp.power(base, exponent, out)
        return result if exact is None else xp.where(odd, exact, result)

    return power


def _scalar_power(xp: Any) -> Kernel:
    power = _power(xp)

    def scalar_power(base: Array, exponent: Array, out: Array | None) -> Array:
        # numpy's float power is ten times slower than these two, which are also the common ones.
        if exponent.ndim == 0:
            if exponent == 2:
                return xp.multiply(base, base, out)
            if exponent == 0.5:
                return xp.sqrt(base, out)
        return power(base, exponent, out)

    return scalar_power


def _divided(divide: Kernel) -> Kernel:
    """A division of some kind; where it is of integers, numpy's would give 0 for a divisor of 0."""

    def divided(dividend: Array, divisor: Array, out: Array | None) -> Array:
        if divisor.dtype.kind in "iu" and not divisor.all():
            raise ZeroDivisionError("integer division by zero")
        return divide(dividend, divisor, out)

    return divided


def _trunc_divide(xp: Any) -> Kernel:
    def trunc_divide(dividend: Array, divisor: Array, out: Array | None) -> Array:
        if dividend.dtype.kind in "iu":
            # Through floating point, large integers would lose digits.
            down = xp.floor_divide(dividend, divisor)
            inexact = (dividend < 0) != (divisor < 0)
            inexact &= down * divisor != dividend
            return xp.add(down, inexact, out)
        return xp.trunc(xp.true_divide(dividend, divisor), out)

    return trunc_divide


def add(input: Tensor | Scalar, other: Tensor | Scalar, *, alpha: Scalar = 1) -> Tensor:
    """``input + alpha * other``; of bools the logical or.

    Raises:
        TypeError: for a floating-point `alpha` and integer tensors.
    """
    return _ADD(input, other if alpha == 1 else _scaled("add", input, other, alpha))


def sub(input: Tensor | Scalar, other: Tensor | Scalar, *, alpha: Scalar = 1) -> Tensor:
    """``input - alpha * other``.

    Raises:
        TypeError: for bools, whose difference is not defined.
    """
    return _SUB(input, other if alpha == 1 else _scaled("sub", input, other, alpha))


def mul(input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """``input * other``."""
    return _MUL(input, other)


def div(input: Tensor | Scalar, other: Tensor | Scalar, *, rounding_mode: str | None = None) -> Tensor:
    """``input / other``; integers divide to the default floating-point dtype.

    Args:
        rounding_mode: None, "trunc" (towards zero) or "floor"; with either, integers stay integers.

    Raises:
        ValueError: for another `rounding_mode`.
        ZeroDivisionError: for an integer divided by zero in a rounding mode.
    """
    if rounding_mode is None:
        return _DIV(input, other)
    if rounding_mode == "floor":
        return floor_divide(input, other)
    if rounding_mode != "trunc":
        raise ValueError(f"div: rounding_mode must be None, 'trunc' or 'floor', not {rounding_mode!r}")
    check_divisor("div", input, other)
    return _TRUNC_DIVIDE(input, other)


def pow(input: Tensor | Scalar, exponent: Tensor | Scalar) -> Tensor:
    """``input ** exponent``; an integer to a negative power from a tensor is rounded towards zero.

    Raises:
        ValueError: for an integer tensor and an exponent that is a negative number, or does not fit its dtype.
    """
    _check_exponent("pow", input, exponent)
    return _POW(input, exponent)


def floor_divide(input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """The quotient rounded down.

    Raises:
        ZeroDivisionError: for an integer divided by zero; at the call if the divisor is a number.
    """
    check_divisor("floor_divide", input, other)
    return _FLOOR_DIVIDE(input, other)


def remainder(input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """The remainder of `floor_divide`; it has the divisor's sign.

    Raises:
        ZeroDivisionError: for an integer divided by zero; at the call if the divisor is a number.
    """
    check_divisor("remainder", input, other)
    return _REMAINDER(input, other)


def fmod(input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """The remainder of division rounded towards zero; it has the dividend's sign.

    Raises:
        ZeroDivisionError: for an integer divided by zero; at the call if the divisor is a number.
    """
    check_divisor("fmod", input, other)
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
    return _ADD.into(input, other if alpha == 1 else _scaled("add_", input, other, alpha))


def sub_(input: Tensor, other: Tensor | Scalar, *, alpha: Scalar = 1) -> Tensor:
    """In-place `sub`."""
    return _SUB.into(input, other if alpha == 1 else _scaled("sub_", input, other, alpha))


def mul_(input: Tensor, other: Tensor | Scalar) -> Tensor:
    """In-place `mul`."""
    return _MUL.into(input, other)


def div_(input: Tensor, other: Tensor | Scalar, *, rounding_mode: str | None = None) -> Tensor:
    """In-place `div`."""
    if rounding_mode is None:
        return _DIV.into(input, other)
    if rounding_mode not in ("trunc", "floor"):
        raise ValueError(f"div_: rounding_mode must be None, 'trunc' or 'floor', not {rounding_mode!r}")
    check_divisor("div_", input, other)
    return (_FLOOR_DIVIDE if rounding_mode == "floor" else _TRUNC_DIVIDE).into(input, other)


def pow_(input: Tensor, exponent: Tensor | Scalar) -> Tensor:
    """In-place `pow`."""
    _check_exponent("pow_", input, exponent)
    return _POW.into(input, exponent)


def _check_exponent(name: str, input: Tensor | Scalar, exponent: Tensor | Scalar) -> None:
    if isinstance(exponent, (int, np.integer)) and isinstance(input, _tensors.Tensor):
        if input.dtype.category < FLOATING and exponent < 0:
            raise ValueError(
                f"{name}: integers to a negative integer power are not integers; convert with .float() first"
            )
        if input.dtype.category == dtypes.INTEGER and exponent > dtypes.iinfo(input.dtype).max:
            raise ValueError(f"{name}: the exponent {exponent} does not fit into {input.dtype.name}")


def _scaled(name: str, input: Tensor | Scalar, other: Tensor | Scalar, alpha: Scalar) -> Tensor | Scalar:
    if not isinstance(alpha, (int, np.integer)) and _common_dtype(input, other).category < FLOATING:
        raise TypeError(f"{name}: alpha must be an integer for integer tensors, not {alpha!r}")
    factor = number(name, alpha)
    scaled: Tensor | Scalar = other * factor
    return scaled


def check_divisor(name: str, input: Tensor | Scalar, other: Tensor | Scalar) -> None:
    """Raise ZeroDivisionError if integers are to be divided by the number 0."""
    if isinstance(other, Number) and other == 0 and _common_dtype(input, other).category < FLOATING:
        raise ZeroDivisionError(f"{name}: integer division by zero")


def _common_dtype(*operands: Any) -> DType:
    return result_dtype(
        tuple([it._blob.meta for it in operands if isinstance(it, _tensors.Tensor)]),
        tuple([type(number("dtype", it)) for it in operands if not isinstance(it, _tensors.Tensor)]),
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
    if exponent.dtype.category < FLOATING:
        exponent = cast(exponent, gradient.dtype)
    if base.dtype.category < FLOATING:
        base = cast(base, gradient.dtype)
    first, second = node.needs
    # Where these hold, 0 * 0**-1 and 0 * log(0) would be nan and the derivative is 0.
    flat = exponent == 0
    flat_in_exponent = base == 0 if exponent.dtype.is_complex else (base == 0) & (exponent >= 0)
    return (
        gradient * conj_if_complex(where(flat, 0.0, exponent * base ** (exponent - 1))) if first else None,
        gradient * conj_if_complex(where(flat_in_exponent, 0.0, node.output(0) * log(base))) if second else None,
    )


@_POW.scalar.gradient(inputs=(0,), outputs=(0,))
def _pow_scalar_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    value = node.scalars[0]
    operand = node.input(0)
    if node.attributes == REVERSED:
        if value == 0:
            return (gradient * 0.0,)
        if isinstance(value, complex) or operand.dtype.is_complex:
            return (gradient * conj_if_complex(node.output(0) * cmath.log(value)),)
        return (gradient * node.output(0) * (math.log(value) if value > 0 else math.nan),)
    if value == 0:
        return (gradient * 0.0,)
    return (gradient * conj_if_complex(operand ** (value - 1) * value),)


@_REMAINDER.tensors.gradient(inputs=(0, 1))
def _remainder_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    second = -gradient * floor_divide(node.input(0), node.input(1)) if node.needs[1] else None
    return gradient, second


@_REMAINDER.scalar.gradient(inputs=(0,))
def _remainder_scalar_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    if node.attributes == REVERSED:
        return (-gradient * floor_divide(node.scalars[0], node.input(0)),)
    return (gradient,)


@_FMOD.tensors.gradient(inputs=(0, 1))
def _fmod_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    second = -gradient * _TRUNC_DIVIDE(node.input(0), node.input(1)) if node.needs[1] else None
    return gradient, second


@_FMOD.scalar.gradient(inputs=(0,))
def _fmod_scalar_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    if node.attributes == REVERSED:
        return (-gradient * _TRUNC_DIVIDE(node.scalars[0], node.input(0)),)
    return (gradient,)


def _zero_gradients(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, ...]:
    zero = gradient * 0.0
    return tuple([zero if needed else None for needed in node.needs])


for _steps in (_FLOOR_DIVIDE, _TRUNC_DIVIDE):
    _steps.tensors.gradient()(_zero_gradients)
    _steps.scalar.gradient()(_zero_gradients)


@_MAXIMUM.tensors.gradient(inputs=(0, 1))
def _maximum_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    first, second = node.input(0), node.input(1)
    return _shared_gradient(node, gradient, first < second, second < first)


@_MINIMUM.tensors.gradient(inputs=(0, 1))
def _minimum_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    first, second = node.input(0), node.input(1)
    return _shared_gradient(node, gradient, second < first, first < second)


def _shared_gradient(
    node: OpNode, gradient: Tensor, second_wins: Tensor, first_wins: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """Of two equal elements each gets half, as in PyTorch."""
    shared = where(node.input(0) == node.input(1), gradient * 0.5, gradient)
    needs_first, needs_second = node.needs
    return (
        where(second_wins, 0.0, shared) if needs_first else None,
        where(first_wins, 0.0, shared) if needs_second else None,
    )


@_MAXIMUM.scalar.gradient(inputs=(0,))
def _maximum_scalar_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    operand, value = node.input(0), node.scalars[0]
    return (where(operand < value, 0.0, where(operand == value, gradient * 0.5, gradient)),)


@_MINIMUM.scalar.gradient(inputs=(0,))
def _minimum_scalar_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    operand, value = node.input(0), node.scalars[0]
    return (where(operand > value, 0.0, where(operand == value, gradient * 0.5, gradient)),)


@_ATAN2.tensors.gradient(inputs=(0, 1))
def _atan2_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    y, x = node.input(0), node.input(1)
    scaled = gradient / (x * x + y * y)
    return scaled * x if node.needs[0] else None, -scaled * y if node.needs[1] else None


@_ATAN2.scalar.gradient(inputs=(0,))
def _atan2_scalar_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    operand, value = node.input(0), node.scalars[0]
    scaled = gradient * value / (operand * operand + value * value)
    return (-scaled if node.attributes == REVERSED else scaled,)


# Functions of one operand

_NEG = elementwise("neg", "negative", least=1)
_ABS = elementwise("abs", "absolute", TO_REAL, least=1)
_SIGN = elementwise("sign", lambda xp: _sign(xp), most=FLOATING)
_SQUARE = elementwise("square", "square", least=1)
_FLOOR = elementwise("floor", "floor", least=1, most=FLOATING)
_CEIL = elementwise("ceil", "ceil", least=1, most=FLOATING)
_TRUNC = elementwise("trunc", "trunc", least=1, most=FLOATING)
_ROUND = elementwise("round", lambda xp: _round(xp), least=1, most=FLOATING)
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


def _sign(xp: Any) -> Kernel:
    def sign(array: Array, out: Array | None) -> Array:
        if array.dtype.kind == "b":
            return array.copy()
        # numpy's sign of nan is nan, and of -0.0 depends on the dtype.
        above = xp.greater(array, 0).astype(array.dtype)
        return xp.subtract(above, xp.less(array, 0).astype(array.dtype), out)

    return sign


def _round(xp: Any) -> Kernel:
    # numpy would turn integers into floats.
    return lambda array, out: array.copy() if array.dtype.kind in "iu" else xp.rint(array, out)


def neg(input: Tensor) -> Tensor:
    """``-input``."""
    return _interpreter.dispatch(_NEG, (input,))


def abs(input: Tensor) -> Tensor:
    """The absolute value; of complex elements the modulus, a real dtype."""
    return _interpreter.dispatch(_ABS, (input,))


def sign(input: Tensor) -> Tensor:
    """-1, 0 or 1 as the element is negative, zero or positive; 0 for nan."""
    return _interpreter.dispatch(_SIGN, (input,))


def square(input: Tensor) -> Tensor:
    """``input * input``; bools become int64."""
    return _interpreter.dispatch(_SQUARE, (input,)) if input.dtype is not dtypes.bool_ else pow(input, 2)


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
    """The nearest value with `decimals` decimals, or with -`decimals` zeros before the point; ties go to even.

    Raises:
        TypeError: for an integer tensor and `decimals`.
    """
    if not decimals:
        return _interpreter.dispatch(_ROUND, (input,))
    if input.dtype.category < FLOATING:
        raise TypeError(f"round: decimals need a floating-point tensor, not {input.dtype.name}")
    if decimals > 0:
        scale = 10.0**decimals
        return _interpreter.dispatch(_ROUND, (input * scale,)) / scale
    scale = 10.0**-decimals  # a power of ten is exact, its reciprocal is not
    return _interpreter.dispatch(_ROUND, (input / scale,)) * scale


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
    operand = node.input(0)
    if operand.dtype.is_complex:
        modulus = abs(operand)
        return (gradient * where(modulus == 0, 0.0, operand / modulus),)
    return (gradient * sign(operand),)


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
    return (gradient * (conj_if_complex(node.output(0)) + 1),)


@_LOG.gradient(inputs=(0,))
def _log_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient / conj_if_complex(node.input(0)),)


@_LOG2.gradient(inputs=(0,))
def _log2_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient / (conj_if_complex(node.input(0)) * math.log(2)),)


@_LOG10.gradient(inputs=(0,))
def _log10_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient / (conj_if_complex(node.input(0)) * math.log(10)),)


@_LOG1P.gradient(inputs=(0,))
def _log1p_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient / (conj_if_complex(node.input(0)) + 1),)


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

_EQ = Binary("eq", "equal", TO_BOOL, operand=comparable)
_NE = Binary("ne", "not_equal", TO_BOOL, operand=comparable)
_LT = Binary("lt", "less", TO_BOOL, operand=comparable, most=FLOATING)
_LE = Binary("le", "less_equal", TO_BOOL, operand=comparable, most=FLOATING)
_GT = Binary("gt", "greater", TO_BOOL, operand=comparable, most=FLOATING)
_GE = Binary("ge", "greater_equal", TO_BOOL, operand=comparable, most=FLOATING)
_LOGICAL_AND = Binary("logical_and", "logical_and", TO_BOOL, operand=saturated)
_LOGICAL_OR = Binary("logical_or", "logical_or", TO_BOOL, operand=saturated)
_LOGICAL_XOR = Binary("logical_xor", "logical_xor", TO_BOOL, operand=saturated)
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
    arrays = len(metas) - 1
    reversed_ = attributes == REVERSED

    def kernel(condition: Array, *operands: Any) -> Array:
        values = [it.astype(to, copy=False) for it in operands[:arrays]]
        values += [constant(it, to) for it in operands[arrays:-1]]
        if reversed_:
            values.reverse()
        # np.where keeps the layout of its operands, which need not be C.
        return xp.ascontiguousarray(xp.where(condition, values[0], values[1])).reshape(shape)

    return Inferred(output, kernel, output.numel * CHEAP * 4)


_WHERE = OpExpr("where", _infer_where)


@_WHERE.gradient(inputs=(0,))
def _where_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, ...]:
    condition = node.input(0)
    if len(node.metas) == 2:
        chosen = logical_not(condition) if node.attributes == REVERSED else condition
        return None, where(chosen, gradient, 0.0)
    _, first, second = node.needs
    return (
        None,
        where(condition, gradient, 0.0) if first else None,
        where(condition, 0.0, gradient) if second else None,
    )


@overload
def where(condition: Tensor) -> tuple[Tensor, ...]: ...


@overload
def where(condition: Tensor, input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor: ...


def where(condition: Tensor, input: Tensor | Scalar | None = None, other: Tensor | Scalar | None = None) -> Any:
    """`input` where the bool `condition` holds, else `other`; all three broadcast.

    With `condition` alone, the indices of its non-zero elements: ``nonzero(condition, as_tuple=True)``.
    """
    if input is None or other is None:
        if input is not other:
            raise TypeError("where: give both values to choose from, or neither")
        from .indexing import nonzero

        return nonzero(condition, as_tuple=True)
    if isinstance(input, _tensors.Tensor):
        if isinstance(other, _tensors.Tensor):
            return _interpreter.dispatch(_WHERE, (condition, input, other))
        return _interpreter.dispatch(_WHERE, (condition, input), (), (number("where", other),))
    if isinstance(other, _tensors.Tensor):
        return _interpreter.dispatch(_WHERE, (condition, other), REVERSED, (number("where", input),))
    return _interpreter.dispatch(_WHERE, (condition,), (), (number("where", input), number("where", other)))


def masked_fill(input: Tensor, mask: Tensor, value: Tensor | Scalar) -> Tensor:
    """A copy of `input` with `value`, a number or a 0-d tensor, where the bool `mask` holds; the two broadcast.

    Raises:
        TypeError: if the mask is no bool tensor.
        ValueError: if the value is no single number, or not one that the dtype holds.
    """
    filling, order, scalars = _filling("masked_fill", input, value)
    return _interpreter.dispatch(_WHERE, (mask, *filling, input), order, scalars)


def masked_fill_(input: Tensor, mask: Tensor, value: Tensor | Scalar) -> Tensor:
    """In-place `masked_fill`; the mask must broadcast to the tensor."""
    filling, order, scalars = _filling("masked_fill_", input, value)
    return into(_WHERE, input, (mask, *filling, input), order, scalars)


def _filling(
    name: str, input: Tensor, value: Tensor | Scalar
) -> tuple[tuple[Tensor, ...], Attributes, tuple[Any, ...]]:
    """What `where` needs to choose between `value`, in the dtype of `input`, and `input`."""
    if not isinstance(value, _tensors.Tensor):
        return (), REVERSED, (fitting(name, value, input.dtype),)
    if value.shape:
        raise ValueError(f"{name}: the value must be a number or a 0-d tensor, not of shape {list(value.shape)}")
    return (value.to(input.dtype),), (), ()


_LARGEST: Final = {it: dtypes.finfo(it).max for it in dtypes.ALL if it.is_floating_point}


def fitting(name: str, value: Any, dtype: DType) -> Any:
    """`value` as a Python number of the kind that `dtype` holds; fractions are cut off for integers.

    Raises:
        TypeError: if it is no number, or complex and the dtype is not.
        ValueError: if it is out of the dtype's range.
    """
    value = number(name, value)
    if isinstance(value, complex):
        if dtype.category < COMPLEX:
            raise TypeError(f"{name}: the complex number {value} cannot become {dtype.name}")
        return value
    if dtype.category == BOOL:
        return bool(value)
    if dtype.category == dtypes.INTEGER:
        limits = dtypes.iinfo(dtype)
        # A nan is not less or equal to anything.
        if not limits.min <= value <= limits.max:
            raise ValueError(
                f"{name}: {value} does not fit into {dtype.name}, which holds {limits.min} to {limits.max}"
            )
        return int(value)
    largest = _LARGEST[dtype.to_real()]
    if math.isfinite(value) and not -largest <= value <= largest:
        raise ValueError(f"{name}: {value} does not fit into {dtype.name}, which holds up to {largest}")
    return value


_CLAMP_MIN = Binary("clamp_min", lambda xp: _by_keyword(xp.maximum), least=1, most=FLOATING, operand=saturated)
_CLAMP_MAX = Binary("clamp_max", lambda xp: _by_keyword(xp.minimum), least=1, most=FLOATING, operand=saturated)


@_CLAMP_MIN.tensors.gradient(inputs=(0, 1))
def _clamp_min_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    return _limited_gradient(node, gradient, node.input(0) < node.input(1))


@_CLAMP_MAX.tensors.gradient(inputs=(0, 1))
def _clamp_max_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    return _limited_gradient(node, gradient, node.input(0) > node.input(1))


def _limited_gradient(node: OpNode, gradient: Tensor, beyond: Tensor) -> tuple[Tensor | None, Tensor | None]:
    needs_input, needs_limit = node.needs
    return (
        where(beyond, 0.0, gradient) if needs_input else None,
        where(beyond, gradient, 0.0) if needs_limit else None,
    )


@_CLAMP_MIN.scalar.gradient(inputs=(0,))
def _clamp_min_scalar_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (where(node.input(0) < node.scalars[0], 0.0, gradient),)


@_CLAMP_MAX.scalar.gradient(inputs=(0,))
def _clamp_max_scalar_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (where(node.input(0) > node.scalars[0], 0.0, gradient),)


def clamp(input: Tensor, min: Tensor | Scalar | None = None, max: Tensor | Scalar | None = None) -> Tensor:
    """Each element limited to [min, max]; None is no limit.

    A limit takes no part of the gradient where an element equals it; where `min` is above `max`, the result is `max`.

    Raises:
        ValueError: if both limits are None.
    """
    if min is None and max is None:
        raise ValueError("clamp: give min, max or both")
    if min is not None:
        input = _CLAMP_MIN(input, min)
    return input if max is None else _CLAMP_MAX(input, max)


def clamp_(input: Tensor, min: Tensor | Scalar | None = None, max: Tensor | Scalar | None = None) -> Tensor:
    """In-place `clamp`."""
    if min is None and max is None:
        raise ValueError("clamp_: give min, max or both")
    if min is not None:
        _CLAMP_MIN.into(input, min)
    return input if max is None else _CLAMP_MAX.into(input, max)


def clamp_min(input: Tensor, min: Tensor | Scalar) -> Tensor:
    """Each element, or `min` if that is larger."""
    return _CLAMP_MIN(input, min)


def clamp_max(input: Tensor, max: Tensor | Scalar) -> Tensor:
    """Each element, or `max` if that is smaller."""
    return _CLAMP_MAX(input, max)


def lerp(input: Tensor, end: Tensor, weight: Tensor | Scalar) -> Tensor:
    """``input + weight * (end - input)``.

    Raises:
        TypeError: if `input` and `end` differ in dtype.
    """
    if input.dtype is not end.dtype:
        raise TypeError(f"lerp: expected one dtype, got {input.dtype.name} and {end.dtype.name}")
    return input + weight * (end - input)


def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Scalar = 1) -> Tensor:
    """``input + value * tensor1 * tensor2``."""
    return add(input, tensor1 * tensor2, alpha=value)


def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Scalar = 1) -> Tensor:
    """``input + value * tensor1 / tensor2``, of floating-point tensors.

    Raises:
        TypeError: for two integer tensors, whose quotient would not be of their dtype.
    """
    if tensor1.dtype.category < FLOATING and tensor2.dtype.category < FLOATING:
        raise TypeError("addcdiv: integer division is not supported; convert with .float() first")
    return add(input, tensor1 / tensor2, alpha=value)


# Copies and casts


def _infer_cast(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (target,) = attributes
    source = metas[0]
    assert isinstance(target, DType)
    output = meta(source.shape, target, source.device)
    xp = array_module(source.device)
    to = target.numpy
    loses_imaginary = _loses_imaginary(source.dtype, target)

    def kernel(array: Array, out: Array | None) -> Array:
        if loses_imaginary:
            array = array.real  # numpy would warn
        if out is None:
            return array.astype(to, order="C")
        xp.copyto(out, array, casting="unsafe")
        return out

    return Inferred(output, kernel, output.numel * CHEAP)


def _loses_imaginary(source: DType, target: DType) -> bool:
    return source.is_complex and not target.is_complex and target is not dtypes.bool_


_CAST = OpExpr("cast", _infer_cast)


@_CAST.gradient()
def _cast_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient,)  # cast back to the input's dtype by the caller


def cast(input: Tensor, dtype: DType) -> Tensor:
    """A copy of another dtype.

    Floating point to integer rounds towards zero; complex to real drops the imaginary part; to bool is "not zero".
    """
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
    loses_imaginary = _loses_imaginary(source.dtype, target.dtype)

    def kernel(array: Array, out: Array | None) -> Array:
        if loses_imaginary:
            array = array.real
        if out is None:
            return xp.broadcast_to(array, target.shape).astype(target.dtype.numpy, order="C")
        xp.copyto(out, array, casting="unsafe")
        return out

    return Inferred(target, kernel, target.numel * CHEAP)


_COPY = OpExpr("copy_", _infer_copy)


@_COPY.gradient()
def _copy_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient,)


def copy_(input: Tensor, src: Tensor | Scalar, non_blocking: bool = False) -> Tensor:
    """Copy the elements of `src`, which broadcasts, into `input`, in `input`'s dtype.  Nothing here ever blocks."""
    if not isinstance(src, _tensors.Tensor):
        return fill_(input, src)
    return _interpreter.dispatch_into(_COPY, input, (src,), (input._blob.meta,))


def _infer_fill(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (output,) = attributes
    assert isinstance(output, TensorMeta)
    xp = array_module(output.device)
    to = output.dtype.numpy

    def kernel(value: Any, out: Array | None) -> Array:
        if out is None:
            return xp.full(output.shape, constant(value, to), to)
        out[...] = constant(value, to)
        return out

    return Inferred(output, kernel, output.numel * CHEAP)


_FILL = OpExpr("fill", _infer_fill)


@_FILL.gradient()
def _fill_gradient(node: OpNode, gradient: Tensor) -> tuple[()]:
    return ()  # made from nothing


def full_of(output: TensorMeta, value: Scalar) -> Tensor:
    """A tensor with this meta, filled with `value`.

    Raises:
        ValueError: if the dtype does not hold the value.
    """
    return _interpreter.dispatch(_FILL, (), (output,), (fitting("full", value, output.dtype),))


def zeros_of(output: TensorMeta) -> Tensor:
    """A tensor with this meta, filled with zeros."""
    return _interpreter.dispatch(_FILL, (), (output,), (0,))


def fill_(input: Tensor, value: Tensor | Scalar) -> Tensor:
    """Set every element to `value`, a number or a 0-d tensor.

    Raises:
        ValueError: if the value is no single number, or not one that the dtype holds.
    """
    if isinstance(value, _tensors.Tensor):
        if value.shape:
            raise ValueError(f"fill_: the value must be a number or a 0-d tensor, not of shape {list(value.shape)}")
        return copy_(input, value)
    return _interpreter.dispatch_into(_FILL, input, (), (input._blob.meta,), (fitting("fill_", value, input.dtype),))


def fill(input: Tensor, value: Tensor | Scalar) -> Tensor:
    """A tensor like `input`, of `value` everywhere; `input`'s gradient is zero."""
    return masked_fill(input, full_of(meta((), dtypes.bool_, input.device), True), value)


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
