"""Ops that treat each element alone: from the function of each op to its kernel.

A kernel casts the operands to the dtype in which the op computes, makes arrays of Python numbers, and shares out large
arrays among threads, or leaves them to C, which does the same to the bit.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vmflow.instructions.blob import Array, TensorMeta
from vmflow.kernels.choosing import Bound, Function, Kernel, Problem, builds
from vmflow.kernels.native.arrays import Single
from vmflow.kernels.native.expressions import RULES
from vmflow.kernels.native.functions import SINGLE
from vmflow.kernels.problems.elementwise import REVERSED, Elementwise

# The first three say which functions compute the ops.
from . import activation as activation
from . import arithmetic as arithmetic
from . import special as special
from . import spreading
from .spreading import InC, spread, work
from .ufuncs import Number, function_of, number_of

if TYPE_CHECKING:
    from vmflow.dtypes import dtype as DType
    from vmflow.kernels.native.loops import SingleLoop


def _single_or(single: Single, otherwise: Function) -> Function:
    """The function in C, and what computes the operands that it does not take."""

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
    metas, kinds = problem.inputs, problem.scalars
    base = problem.op.removesuffix("_scalar")
    function = function_of(problem.op)
    single = Single.of(base, compute.numpy, output.numel) if base in SINGLE else None
    if single is not None:
        function = _single_or(single, function)
    number = number_of(problem.op)
    reversed_ = problem.attributes == REVERSED
    given = [it.dtype.name for it in metas] + [compute.name] * len(kinds)
    if reversed_:
        given.reverse()
    found = _in_c(base, single, given, compute, output, cost) if len(kinds) < 2 else None
    in_c, site = (None, None) if found is None else (found.call, found.site)
    sharing = [(operand, 0) for operand in range(len(metas))]
    if not kinds:
        kernel = spread(_with_casts(function, compute, metas), output, cost, in_c, site)
        placed = None if single is None else functools.partial(_placed_single, single)
        return Kernel(kernel, placed=placed, sharing=sharing)
    to = compute.numpy
    with_number = _with_number(function, to, metas[0].dtype is not compute, number, reversed_)
    kernel = spread(with_number, output, cost, _of_number(in_c, number, to, reversed_))
    bound = None
    if metas[0].dtype is compute:
        bound = _bound(spread(function, output, cost, in_c, site), to, number, reversed_)
    return Kernel(kernel, bound=bound, sharing=sharing)


def _placed_single(single: Single, inputs: Any, outputs: Any, scratch: Any) -> list[Any] | None:
    return single.calls(inputs, outputs)


def _in_c(
    name: str, single: Single | None, given: list[str], compute: DType, output: TensorMeta, cost: float
) -> Single | SingleLoop | None:
    """An op in C, for arrays that are worth sharing; see `spread`.

    Args:
        name: in the table of rules.
        single: the op's function in C for float32, if it has one.
        given: the dtypes of the operands.
        compute: the dtype that it is computed in.
        output, cost: see `work`.
    """
    whole = work(output, cost)
    if whole < spreading.IN_C_FROM:
        return None
    if name in SINGLE and (len(given) == 1 or not RULES[name].exact):
        return single if set(given) == {compute.name} else None
    if name not in RULES or not RULES[name].exact or name in _EITHER_ZERO:
        return None
    # Not with this module: not all have large arrays.
    from vmflow.kernels.native.elementwise import Operation
    from vmflow.kernels.native.loops import SingleLoop

    operation = Operation(name, tuple(range(len(given))), (), False, compute.name, output.dtype.name)
    return SingleLoop(operation, given, output, whole)


def _of_number(in_c: InC | None, number: Number, to: np.dtype[Any], reversed_: bool) -> InC | None:
    """The same for an array and a Python number behind it, of which the number may be the first operand."""
    if in_c is None:
        return None

    def with_number(operands: list[Any], out: Array | None) -> Array | None:
        array, value = operands
        given = number(value, to)
        return in_c([given, array] if reversed_ else [array, given], out)

    return with_number


def _with_number(function: Function, to: np.dtype[Any], casts: bool, number: Number, reversed_: bool) -> Function:
    """The function of an array and a Python number."""

    def with_number(array: Array, value: Any, out: Array | None) -> Array:
        if casts:
            array = array.astype(to)
        if reversed_:
            return function(number(value, to), array, out)
        return function(array, number(value, to), out)

    return with_number


def _with_casts(function: Function, compute: DType, metas: tuple[TensorMeta, ...]) -> Function:
    """The function, with the operands cast to `compute` where they are not."""
    if all([it.dtype is compute for it in metas]):
        return function
    to = compute.numpy

    def with_casts(*arguments: Any) -> Array:
        return function(*[array.astype(to, copy=False) for array in arguments[:-1]], arguments[-1])

    return with_casts


def _bound(function: Function, to: np.dtype[Any], number: Number, reversed_: bool) -> Bound:
    """The kernel for a number, with the number converted beforehand."""

    def bound(value: Any) -> tuple[Function, tuple[Any, ...], tuple[Any, ...]]:
        given = (number(value, to),)
        return (function, given, ()) if reversed_ else (function, (), given)

    return bound


# Of 0.0 and -0.0 numpy takes the one or the other, by where in its loops it meets them.
_EITHER_ZERO: Final = frozenset(["maximum", "minimum", "clamp_min", "clamp_max"])
