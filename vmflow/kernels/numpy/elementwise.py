"""Builds the kernels of elementwise ops, from the function of each op.

A kernel casts the operands to the dtype in which the op computes, makes an operand of a Python number, and shares large
arrays among threads, or leaves them to C, which computes the same to the bit, but for the sign of the extremum of two
zeros.  Some float32 functions, such as exp, are computed in C for all sizes, if C is loaded, and may differ from
numpy's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vmflow.instructions.blob import Array, TensorMeta
from vmflow.kernels.choosing import Function, Kernel, Placed, Problem, builds
from vmflow.kernels.expressions.rules import RULES
from vmflow.kernels.native.arrays import Single
from vmflow.kernels.native.functions import SINGLE
from vmflow.kernels.problems.elementwise import REVERSED, Elementwise

# Imported since they declare the functions that compute the ops.
from . import (
    activation as activation,
    arithmetic as arithmetic,
    bessel_functions as bessel_functions,
    gamma_functions as gamma_functions,
    special as special,
    spreading,
)
from .spreading import spread, work
from .ufuncs import function_of, number_of

if TYPE_CHECKING:
    from vmflow.dtypes import dtype as DType
    from vmflow.kernels.native.loops import SingleLoop


def _single_or(single: Single, otherwise: Function) -> Function:
    """Return a function that calls C, or `otherwise` for operands that C does not take."""

    def function(*arguments: Any) -> Array:
        *arrays, out = arguments
        found = single.call(arrays, out)
        return otherwise(*arguments) if found is None else found

    return function


@builds("elementwise")
def _elementwise(problem: Problem) -> Kernel:
    details: Elementwise = problem.details
    compute, cost = details
    (output,) = problem.outputs
    metas, has_number = problem.inputs, bool(problem.scalars)
    base = problem.op.removesuffix("_scalar")
    function, number, to = function_of(problem.op), number_of(problem.op), compute.numpy
    single = Single.of(base, to, output.numel) if base in SINGLE else None
    if single is not None:
        function = _single_or(single, function)
    reversed_ = problem.attributes == REVERSED
    given = [meta.dtype.name for meta in metas] + [compute.name] * has_number
    if reversed_:
        given.reverse()
    found = _in_c(base, single, given, compute, output, cost)
    in_c, site = (None, None) if found is None else (found.call, found.site)
    kernel = spread(_with_casts(function, compute, metas), output, cost, in_c, site)
    sharing = [(operand, 0) for operand in range(len(metas))]
    if not has_number:
        return Kernel(kernel, placed=None if single is None else _placed(single), sharing=sharing)

    def bound(value: Any) -> tuple[Function, tuple[Any, ...], tuple[Any, ...]]:
        as_operand = (number(value, to),)
        return (kernel, as_operand, ()) if reversed_ else (kernel, (), as_operand)

    def with_number(array: Array, value: Any, out: Array | None) -> Array:
        as_operand = number(value, to)
        return kernel(as_operand, array, out) if reversed_ else kernel(array, as_operand, out)

    return Kernel(with_number, bound=bound, sharing=sharing)


def _placed(single: Single) -> Placed:
    return lambda inputs, outputs, scratch: single.calls(inputs, outputs)


def _in_c(
    name: str, single: Single | None, given: list[str], compute: DType, output: TensorMeta, cost: float
) -> Single | SingleLoop | None:
    """Return an op's C function for `spread`; None if there is none, or the work is less than `spreading.IN_C_FROM`.

    Args:
        name: the op's name in the table of rules.
        single: the op's function in C of `functions.SINGLE`; None if there is none, or it is not loaded.
        given: the dtypes of the operands.
        compute: the dtype that the op is computed in.
        output, cost: see `work`.
    """
    whole = work(output, cost)
    if whole < spreading.IN_C_FROM:
        return None
    if name in SINGLE and (len(given) == 1 or not RULES[name].exact):
        return single if set(given) == {compute.name} else None
    if name not in RULES or not RULES[name].exact or name in _EITHER_ZERO:
        return None
    # Imported on first use, since not all programs have large arrays.
    from vmflow.kernels.expressions.bodies import Operation
    from vmflow.kernels.native.loops import SingleLoop

    operation = Operation(name, tuple(range(len(given))), (), False, compute.name, output.dtype.name)
    return SingleLoop(operation, given, output, whole)


def _with_casts(function: Function, compute: DType, metas: tuple[TensorMeta, ...]) -> Function:
    """Wrap a function to cast its operands to `compute` where necessary."""
    if all([meta.dtype is compute for meta in metas]):
        return function
    to = compute.numpy

    def with_casts(*arguments: Any) -> Array:
        *operands, out = arguments
        # An integer that `compute` does not hold is left as it is; see `ufuncs.comparable`.
        wide = [array.astype(to, copy=False) if isinstance(array, np.ndarray) else array for array in operands]
        return function(*wide, out)

    return with_casts


# Left to numpy: of 0.0 and -0.0 it returns either, depending on their position in an array; C could not agree.
_EITHER_ZERO: Final = frozenset(["maximum", "minimum", "fmax", "fmin", "clamp_min", "clamp_max"])
