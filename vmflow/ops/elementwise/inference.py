"""The function `elementwise`, with which other modules declare elementwise ops, and the inference of their results.

Shapes broadcast as in numpy.  As in PyTorch, the highest category of the operands' dtypes (bool, integer, floating,
complex) is the category of the promoted dtype.  Python numbers, and 0-d tensors beside others, may raise the category,
but not widen a dtype of their category.

The module `pointwise` has functions that declare ops and the functions of `vmflow` that call them.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from vmflow import dtypes
from vmflow.dtypes import BOOL, COMPLEX, FLOATING, dtype as DType
from vmflow.instructions.blob import meta
from vmflow.kernels.problems.elementwise import (
    CHEAP as CHEAP,
    EXPENSIVE as EXPENSIVE,
    REVERSED as REVERSED,
    Elementwise,
)
from vmflow.operands import no_number
from vmflow.ops.table import (
    Attributes,
    Form,
    Inferred,
    Kinds,
    Metas,
    OpExpr,
    broadcast_shapes,
    common_device,
)

if TYPE_CHECKING:
    from typing import TypeAlias

    Scalar: TypeAlias = bool | int | float | complex | np.generic


# Rules for the dtype of an elementwise op's result: the promoted dtype of the operands, the default dtype in place of
# integers and bools, bool, or the real dtype in place of a complex one.
SAME: Final = "same"
TO_FLOAT: Final = "to float"
TO_BOOL: Final = "to bool"
TO_REAL: Final = "to real"

# Names of the ops declared by `elementwise`, and of `clamp`.  Their kernels may write the result over an operand of the
# same shape and dtype, since the kernels read each element before they write it.
ELEMENTWISE: set[str] = set()


def result_dtype(metas: Metas, kinds: Kinds = ()) -> DType:
    """Return the dtype to which tensors of these metas and numbers of the types `kinds` promote; see the module."""
    if len(metas) == 1 and not kinds:
        return metas[0].dtype
    with_dims = [meta.dtype for meta in metas if meta.shape]
    without = [meta.dtype for meta in metas if not meta.shape]
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


def _promote_all(operands: list[DType]) -> DType | None:
    if not operands:
        return None
    result = operands[0]
    for other in operands[1:]:
        result = dtypes.promote_types(result, other)
    return result


def elementwise(
    name: str,
    result: str = SAME,
    *,
    cost: float = CHEAP,
    least: int = BOOL,
    most: int = COMPLEX,
    bools: str | None = None,
    operands: int = 1,
    scalars: int = 0,
) -> OpExpr:
    """Declare an op that computes each element of its result from one element of each operand; operands broadcast.

    Args:
        name: of the op, and of numpy's function unless `vmflow.kernels.numpy` has another function for the op.
        result: SAME, TO_FLOAT (integers and bools become the default dtype), TO_BOOL or TO_REAL.
        cost: nanoseconds per element.
        least, most: the lowest and the highest category of dtypes (`BOOL` to `COMPLEX`) that the op takes.
        bools: if given, bool operands raise a TypeError whose message ends with this advice.
        operands: the number of tensors.
        scalars: the number of Python numbers, which follow the tensors.
    """

    def infer(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
        device = common_device(name, metas)
        shape = metas[0].shape if len(metas) == 1 else broadcast_shapes(name, *[operand.shape for operand in metas])
        compute = result_dtype(metas, kinds)
        if not least <= compute.category <= most:
            raise TypeError(f"{name.removesuffix('_scalar')} is not defined for {compute.name} tensors")
        if bools is not None and (bool in kinds or dtypes.bool_ in [operand.dtype for operand in metas]):
            raise TypeError(f"{name.removesuffix('_scalar')} is not defined for bools; {bools}")
        if result == TO_FLOAT and compute.category < FLOATING:
            compute = dtypes.get_default_dtype()
        output = dtypes.bool_ if result == TO_BOOL else compute.to_real() if result == TO_REAL else compute
        out = meta(shape, output, device)
        return Inferred(out, out.numel * cost, Elementwise(compute, cost))

    ELEMENTWISE.add(name)
    form = Form(operands, tuple[Literal["reversed"], ...] if scalars else None, scalars)
    return OpExpr(name, infer, form, "elementwise")


# The types of scalar operands.
_PLAIN: Final = (bool, int, float, complex)


def number(name: str, value: Any) -> Any:
    """Convert a scalar operand of the op `name`, which may be a numpy scalar, to a Python number of a type of `_PLAIN`.

    Raises:
        TypeError: if `value` is no number.
        OverflowError: if `value` is an integer outside of the ranges of int64 and uint64.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) not in _PLAIN:
        # A number of a derived type, such as a member of an `IntEnum`, becomes one of the type that it is derived from.
        plain = [kind for kind in _PLAIN if isinstance(value, kind)]
        if not plain:
            raise no_number(name, value)
        value = plain[0](value)
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        raise OverflowError(f"{name}: {value} fits neither into int64 nor into uint64")
    return value


@functools.cache
def _largest(dtype: DType) -> float:
    return dtypes.finfo(dtype).max


def fitting(name: str, value: Any, dtype: DType) -> Any:
    """Convert a number to a bool or, without its fraction, an int, if `dtype` is bool or integer; else return it.

    Raises:
        TypeError: if `value` is no number, or complex while the dtype is not.
        ValueError: if `value` is real and out of the dtype's range; inf and nan are out of the range of integers only.
        OverflowError: if `value` is an integer that neither int64 nor uint64 holds.

    Example:
        >>> flow.random.fitting("uniform", 2.5, flow.int64)
        2
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
        # Also false for nan.
        if not limits.min <= value <= limits.max:
            raise ValueError(
                f"{name}: {value} does not fit into {dtype.name}, which holds {limits.min} to {limits.max}"
            )
        return int(value)
    largest = _largest(dtype.to_real())
    if math.isfinite(value) and not -largest <= value <= largest:
        raise ValueError(f"{name}: {value} does not fit into {dtype.name}, which holds up to {largest}")
    return value
