"""How an op that treats each element alone is declared, and what its operands make together.

Two tensors broadcast as in numpy.  dtypes promote as in PyTorch: the higher category (bool, integer, floating, complex)
wins without widening; Python numbers and 0-d tensors raise the category but do not widen.

The ops themselves are in arithmetic, comparison, copying, rounding, selection and transcendental.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from numbers import Number
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

import vmflow.tensors as _tensors
from vmflow import dtypes
from vmflow import interpreter as _interpreter
from vmflow.context import MODE
from vmflow.dtypes import BOOL, COMPLEX, FLOATING
from vmflow.dtypes import dtype as DType
from vmflow.instructions.blob import Array, TensorMeta, meta
from vmflow.instructions.op_call import Kernel
from vmflow.kernels import intra_op
from vmflow.kernels.native.arrays import Single, single_calls
from vmflow.kernels.native.expressions import RULES
from vmflow.kernels.native.functions import SINGLE
from vmflow.kernels.native.processor import has_quick_wide_vectors
from vmflow.operands import no_number, not_tensors

from .destination import written
from .table import (
    Attributes,
    Bound,
    Form,
    Inferred,
    Kinds,
    Metas,
    OpExpr,
    array_module,
    broadcast_shapes,
    common_device,
)

if TYPE_CHECKING:
    from typing import TypeAlias

    from vmflow.kernels.native.call_site import CallSite
    from vmflow.kernels.native.single_loop import LoneLoop
    from vmflow.tensors import Tensor

    Scalar: TypeAlias = bool | int | float | complex | np.generic

    # From the operands and where the result should go, or None, to the result, or None if it cannot be had so.
    InC: TypeAlias = Callable[[list[Any], Array | None], Array | None]

# Nanoseconds per element on one core, for deciding inline or worker: memory-bound, and transcendental functions.
CHEAP: Final = 0.5
DEAR: Final = 5.0

# Work, see `intra_op.LEAST`, of which it pays to look whether it can be shared: as an addition of 256 x 256.
_IN_C_FROM: Final = 1 << 16

# What the dtype of the result is, given the promoted dtype of the operands.
SAME: Final = "same"
TO_FLOAT: Final = "to float"
TO_BOOL: Final = "to bool"
TO_REAL: Final = "to real"
REVERSED: Final = ("reversed",)


# The ops that are declared here.  Their kernels may be given, as the destination, the array of an operand that has the
# shape and dtype of the result.
ELEMENTWISE: set[str] = set()


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
    operands: int = 1,
    scalars: int = 0,
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
        operands: how many tensors.
        scalars: how many Python numbers behind them.
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
        reversed_ = attributes == REVERSED
        given = [it.dtype.name for it in metas] + [compute.name] * len(kinds)
        if reversed_:
            given.reverse()
        out = meta(shape, output, device)
        found = _in_c(name.removesuffix("_scalar"), given, compute, out, cost) if len(kinds) < 2 else None
        in_c, site = (None, None) if found is None else (found.call, found.site)
        kernel = _kernel(ufunc, compute, metas, operand if kinds else None, reversed_)
        return Inferred(
            out,
            spread(kernel, out, cost, _of_number(in_c, operand, compute.numpy, reversed_))
            if kinds
            else spread(kernel, out, cost, in_c, site),
            out.numel * cost,
            _bound(spread(ufunc, out, cost, in_c, site), compute.numpy, operand, reversed_)
            if kinds and metas[0].dtype is compute
            else None,
            functools.partial(single_calls, name, work(out, cost)) if name in SINGLE and not kinds else None,
        )

    ELEMENTWISE.add(name)
    return OpExpr(name, infer, Form(operands, tuple[Literal["reversed"], ...] if scalars else None, scalars))


def work(output: TensorMeta, cost: float) -> float:
    """What several threads may do of an op, as `intra_op.LEAST` counts it; on the simulated device nothing.

    Args:
        output: the meta of the result.
        cost: nanoseconds per element, as they are estimated for ops.
    """
    return output.numel * max(1.0, _dear_in_additions() * cost / DEAR) if output.device.type == "cpu" else 0


@functools.cache
def _dear_in_additions() -> float:
    """As how many additions from memory what costs `DEAR` counts, measured with vectors of 256 and of 512 bits."""
    return 2.0 if has_quick_wide_vectors() else 4.0


def spread(
    kernel: Kernel, output: TensorMeta, cost: float, in_c: InC | None = None, site: CallSite | None = None
) -> Kernel:
    """A kernel that treats each element alone, of several threads where that is worth it.

    Args:
        kernel: to call for each piece.
        output, cost: see `work`.
        in_c: the same in C, which shares the work out by itself.
        site: where that remembers its calls, if it is called with just what the kernel is.
    """
    whole = work(output, cost)
    if whole < (2 * intra_op.LEAST if in_c is None else _IN_C_FROM):
        return kernel
    to, each = output.dtype.numpy, whole / output.numel

    # Most calls are like an earlier one.  What is no array is not taken for one.
    again = None if site is None else site.again

    def in_pieces(*arguments: Any) -> Array:
        if again is not None and again(arguments):
            return arguments[-1]
        *operands, out = arguments
        if in_c is not None and (found := in_c(operands, out)) is not None:
            return found
        if out is None and all([it.flags.c_contiguous for it in operands if isinstance(it, np.ndarray)]):
            out = np.empty(output.shape, to)
        if out is None or out.dtype != to or not intra_op.over_elements(kernel, operands, out, out.size * each):
            return kernel(*arguments)
        return out

    return in_pieces


def _in_c(name: str, given: list[str], compute: DType, output: TensorMeta, cost: float) -> Single | LoneLoop | None:
    """An op in C, for arrays that are worth sharing; see `spread`.

    Args:
        name: in the table of rules.
        given: the dtypes of the operands.
        compute: the dtype that it is computed in.
        output, cost: see `work`.
    """
    whole = work(output, cost)
    if whole < _IN_C_FROM:
        return None
    if name in SINGLE and (len(given) == 1 or not RULES[name].exact):
        return Single(name)
    if name not in RULES or not RULES[name].exact or name in _EITHER_ZERO:
        return None
    # Not with this module: not all have large arrays.
    from vmflow.kernels.native.elementwise import Operation
    from vmflow.kernels.native.single_loop import LoneLoop

    operation = Operation(name, tuple(range(len(given))), (), False, compute.name, output.dtype.name)
    return LoneLoop(operation, given, output, whole)


def _of_number(
    in_c: InC | None, operand: Callable[[Any, np.dtype[Any]], Any], to: np.dtype[Any], reversed_: bool
) -> InC | None:
    """The same for an array and a Python number behind it, of which the number may be the first operand."""
    if in_c is None:
        return None

    def with_number(operands: list[Any], out: Array | None) -> Array | None:
        array, value = operands
        number = operand(value, to)
        return in_c([number, array] if reversed_ else [array, number], out)

    return with_number


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


def _bound(ufunc: Kernel, to: np.dtype[Any], operand: Callable[[Any, np.dtype[Any]], Any], reversed_: bool) -> Bound:
    """The kernel for a number, with the number converted beforehand."""

    def bound(value: Any) -> tuple[Kernel, tuple[Any, ...], tuple[Any, ...]]:
        given = (operand(value, to),)
        return (ufunc, given, ()) if reversed_ else (ufunc, (), given)

    return bound


BINARIES: dict[str, Binary] = {}


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
        BINARIES[name] = self
        self.name = name
        self.tensors = elementwise(name, function, result, operands=2, **options)
        self.scalar = elementwise(f"{name}_scalar", scalar_function or function, result, scalars=1, **options)

    def of(self, input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
        """The op; a method with a name, for Python takes three times as long to call an object."""
        if isinstance(other, _tensors.Tensor):
            if isinstance(input, _tensors.Tensor):
                return _interpreter.dispatch(self.tensors, (input, other))
            return _interpreter.dispatch(self.scalar, (other,), REVERSED, (number(self.name, input),))
        if isinstance(input, _tensors.Tensor):
            return _interpreter.dispatch(self.scalar, (input,), (), (number(self.name, other),))
        raise TypeError(f"{self.name}: expected a tensor, got {type(input).__name__} and {type(other).__name__}")

    def written(self, out: Tensor, input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
        """The op with its result in `out`; see `vmflow.ops.destination`."""
        if isinstance(other, _tensors.Tensor):
            if isinstance(input, _tensors.Tensor):
                return written(self.tensors, out, (input, other))
            return written(self.scalar, out, (other,), REVERSED, (number(self.name, input),))
        if isinstance(input, _tensors.Tensor):
            return written(self.scalar, out, (input,), (), (number(self.name, other),))
        raise TypeError(f"{self.name}: expected a tensor, got {type(input).__name__} and {type(other).__name__}")

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
        from .copying import clone, copy_

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
        raise no_number(name, value)
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise OverflowError(f"{name}: {value} does not fit into int64")
    return value


def check_tensors(name: str, *given: Any) -> None:
    """Before anything is asked of them.

    Raises:
        TypeError: if one is no tensor.
    """
    for each in given:
        if not isinstance(each, _tensors.Tensor):
            raise not_tensors(name, given)


def in_order(function: str) -> Callable[[Any], Kernel]:
    """For `elementwise`: a ufunc of one operand that is given no destination with gaps.

    numpy 2.4 computes wrong elements there: `negative` in place where neighbours are 16 bytes apart (64 for elements of
    8), and `signbit` into 17 or more bools that are not next to each other.
    """

    def of_module(xp: Any) -> Kernel:
        ufunc = getattr(xp, function)

        def kernel(array: Array, out: Array | None = None) -> Array:
            if out is None or out.flags.c_contiguous:
                return ufunc(array, out)
            out[...] = ufunc(array)
            return out

        return kernel

    return of_module


def by_keyword(ufunc: Any) -> Kernel:
    """maximum and minimum are about to give a third positional operand another meaning."""
    return lambda first, second, out: ufunc(first, second, out=out)


def single_or(name: str, otherwise: str | Callable[[Any], Kernel]) -> Callable[[Any], Kernel]:
    """For `elementwise`: the C kernel of this name for what it is written for, else what this would be without it."""

    def of_module(xp: Any) -> Kernel:
        single = Single(name)
        other: Kernel = getattr(xp, otherwise) if isinstance(otherwise, str) else otherwise(xp)

        def kernel(*arguments: Any) -> Array:
            *arrays, out = arguments
            found = single.call(arrays, out)
            return other(*arguments) if found is None else found

        return kernel

    return of_module


# Of 0.0 and -0.0 numpy takes the one or the other, by where in its loops it meets them.
_EITHER_ZERO: Final = frozenset(["maximum", "minimum", "clamp_min", "clamp_max"])

# From how many elements on `clip`, in Python at its beginning, is faster than a ufunc.
_MANY: Final = 8192


def limiting(name: str) -> Callable[[Any], Kernel]:
    """maximum or minimum with a number: numpy's ufuncs have no vector loop for one, and `clip` has.

    Args:
        name: "maximum" or "minimum".
    """

    def kernel_of(xp: Any) -> Kernel:
        ufunc, least = getattr(xp, name), name == "maximum"

        def kernel(first: Array, second: Array, out: Array | None) -> Array:
            array, limit = (second, first) if first.ndim < second.ndim else (first, second)
            if limit.ndim or array.size < _MANY or array.dtype.char not in "fd":
                return ufunc(first, second, out=out)
            return xp.clip(array, limit, _INFINITY, out) if least else xp.clip(array, -_INFINITY, limit, out)

        return kernel

    return kernel_of


_INFINITY: Final = np.float32(np.inf)


@functools.cache
def _largest(dtype: DType) -> float:
    return dtypes.finfo(dtype).max


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
    largest = _largest(dtype.to_real())
    if math.isfinite(value) and not -largest <= value <= largest:
        raise ValueError(f"{name}: {value} does not fit into {dtype.name}, which holds up to {largest}")
    return value
