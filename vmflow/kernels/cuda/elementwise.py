"""Ops that treat each element alone.

Operands are cast to the dtype in which the op computes, and numbers are taken as on the CPU.
Half precision is computed in float32 and rounded once, unless one ufunc with next to nothing to compute does it all.
"""

from __future__ import annotations

import operator
from typing import Any, Final

from vmflow import dtypes
from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.kernels.numpy import arithmetic as _how_numbers_are_taken  # noqa: F401 (which it declares)
from vmflow.kernels.numpy.ufuncs import number_of
from vmflow.kernels.problems.elementwise import CHEAP, REVERSED, Elementwise
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher

# The first three say which functions compute the ops.
from . import activation as activation, arithmetic as arithmetic, special as special
from .arrays import PACKAGE, array_kernel, into_outs
from .checks import note
from .functions import function_of, ufunc_of
from .generated import numbers_as, single
from .pointwise import fill_array, launch_pointwise

_COMPARISONS: Final = {
    "eq_scalar": operator.eq,
    "ne_scalar": operator.ne,
    "lt_scalar": operator.lt,
    "le_scalar": operator.le,
    "gt_scalar": operator.gt,
    "ge_scalar": operator.ge,
}


_DIVISIONS: Final = ("floor_divide", "trunc_divide", "remainder", "fmod")


@builds("elementwise", package=PACKAGE)
def _build(problem: Problem) -> Kernel:
    details: Elementwise = problem.details
    compute, (output,) = details.compute, problem.outputs
    inputs = [meta.dtype.name for meta in problem.inputs]
    numbers = len(problem.scalars)
    order = list(range(len(inputs) + numbers))
    if problem.attributes == REVERSED:
        order.reverse()
    function = single(problem.op, inputs, numbers, order, compute, output.dtype)
    if function is None:
        return array_kernel(_elementwise, problem)

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        arrays, given = operands[: len(inputs)], operands[len(inputs) :]
        held = [number_of(problem.op)(number, compute.numpy) for number in given]
        if held and isinstance(held[0], int):
            fill_array(launcher, outs[0], _beside_all(problem, held[0]))
        else:
            launch_pointwise(launcher, function, arrays, numbers_as(compute, held), outs)

    return Kernel(into_outs(launch, problem), casts=True)


def _elementwise(xp: Any, problem: Problem, *arguments: Any) -> None:
    *operands, out = arguments
    details: Elementwise = problem.details
    number = None
    if problem.scalars:
        number = number_of(problem.op)(operands.pop(), details.compute.numpy)
        if isinstance(number, int):
            out.fill(_beside_all(problem, number))
            return
    function = function_of(problem.op)
    given = _cast(problem, operands, number, directly=function is None and number is None and details.cost <= CHEAP)
    if function is not None:
        xp.copyto(out, function(xp, *given), casting="unsafe")
    elif _makes(problem, given):
        ufunc_of(xp, problem.op)(*given, out=out)
    else:
        xp.copyto(out, ufunc_of(xp, problem.op)(*given), casting="unsafe")


@builds(*[name + suffix for name in _DIVISIONS for suffix in ("", "_scalar")], package=PACKAGE)
def _division(problem: Problem) -> Kernel:
    whole = problem.details.compute.category < dtypes.FLOATING
    return array_kernel(_divide_whole, problem, verify=_zero) if whole else array_kernel(_elementwise, problem)


def _divide_whole(xp: Any, problem: Problem, *arguments: Any) -> None:
    """A division of integers, of which a divisor of 0 is an error."""
    *rest, number = arguments
    divisor = rest[0] if problem.attributes == REVERSED else rest[1]
    note(xp, number, xp.equal(divisor, 0))
    _elementwise(xp, problem, *rest)


def _zero(problem: Problem, number: int) -> Exception:
    return ZeroDivisionError("integer division by zero")


def _beside_all(problem: Problem, number: int) -> bool:
    """The result of a comparison with an integer that the dtype does not hold: the same for every element as for 0."""
    compare = _COMPARISONS[problem.op]
    return bool(compare(number, 0) if problem.attributes == REVERSED else compare(0, number))


def _cast(problem: Problem, operands: list[Any], number: Any, directly: bool) -> list[Any]:
    """The operands in the dtype to compute in; a number as a scalar of it.

    Args:
        problem: the op.
        operands: arrays.
        number: behind or, by the attributes, before them; None if there is none.
        directly: whether half precision is computed as it is.
    """
    compute = problem.details.compute
    given = [array.astype(compute.numpy, copy=False) for array in operands]
    if number is not None:
        given.append(number[()])
    if dtypes.is_half(compute) and not directly:
        given = [operand.astype(dtypes.float32.numpy) for operand in given]
    return given[::-1] if problem.attributes == REVERSED else given


def _makes(problem: Problem, given: list[Any]) -> bool:
    """Whether a ufunc makes the dtype of the result, so that it may write to where that is wanted.

    Not all ufuncs make bools of bools, and half precision may be computed in float32.
    """
    (output,) = problem.outputs
    if output.dtype is dtypes.bool_:
        return True
    return given[0].dtype == problem.details.compute.numpy and problem.details.compute is not dtypes.bool_
