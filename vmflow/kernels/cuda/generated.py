"""Generated kernels: an elementwise op, or a chain of them, as one kernel, written by `rules.RULES`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from vmflow import dtypes
from vmflow.kernels.choosing import Kernel, Problem
from vmflow.kernels.expressions.bodies import Number, Operation, operation_of, write_body
from vmflow.kernels.problems.elementwise import REVERSED
from vmflow.kernels.problems.fused import FusedStep
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.driver import Argument
from vmflow.streams.cuda.launching import Launcher

from .arrays import into_outs
from .pointwise import Pointwise, fill_array, launch_pointwise
from .rules import RULES
from .sources import VARIABLES

# The number of ops, from the beginning of a chain, whose names are part of the kernel's name.
_NAMED: Final = 4

# The most arrays of a chain's kernel: before CUDA 12.1, a kernel's parameters may take up 4 KB, and each array takes 8
# bytes, and 8 more for each stride.
_MOST_ARRAYS: Final = 64

_COMPARISONS: Final = {
    "eq_scalar": operator.eq,
    "ne_scalar": operator.ne,
    "lt_scalar": operator.lt,
    "le_scalar": operator.le,
    "gt_scalar": operator.gt,
    "ge_scalar": operator.ge,
}


class Generated(NamedTuple):
    """A chain of elementwise ops as one kernel.

    Attributes:
        function: the kernel, for `launch_pointwise`.
        numbers: the numbers among the ops' operands, as the kernel's arguments behind the arrays.
    """

    function: Pointwise
    numbers: tuple[Argument, ...]


def chain(inputs: Sequence[str], steps: Sequence[FusedStep], outputs: Sequence[int]) -> Generated | None:
    """Return the kernel of a chain of ops; None for too many arrays, or an op, dtype or number that cannot be written.

    Args:
        inputs: the dtypes of the chain's input arrays.
        steps: the ops, in order.
        outputs: the positions of the steps whose results are wanted.
    """
    if len(inputs) + len(outputs) > _MOST_ARRAYS:
        return None
    body = write_body(inputs, list(map(operation_of, steps)), VARIABLES, RULES)
    if body is None:
        return None
    results = tuple([(f"t{place}", steps[place].output.dtype.name) for place in outputs])
    kinds = tuple([number.dtype for number in body.numbers])
    name = "_".join([step.name for step in steps[:_NAMED]])
    function = Pointwise(name, tuple(inputs), kinds, body.lines, results, body.wrong)
    arguments = [argument for number in body.numbers for argument in _arguments(number)]
    return Generated(function, tuple(arguments))


def single(
    op: str, inputs: Sequence[str], numbers: int, order: Sequence[int], compute: dtypes.dtype, output: dtypes.dtype
) -> Pointwise | None:
    """Return the kernel of one op; None if there is no rule for the op and the dtypes.

    Args:
        op: its name in the op table.
        inputs: the dtypes of the operands that are arrays.
        numbers: the count of the operands that are numbers, passed in the dtype `compute`; see `_numbers_as`.
        order: the operands in the op's order, by position: arrays are counted first, and then the numbers.
        compute, output: the dtype to compute in, and the dtype of the result.
    """
    given = [*inputs, *[compute.name] * numbers]
    in_order = list(order) == sorted(order)
    operation = Operation(
        op if in_order else op.removesuffix("_scalar"), tuple(order), (), False, compute.name, output.name
    )
    body = write_body(given, [operation], VARIABLES, RULES)
    if body is None:
        return None
    names = [f"const {VARIABLES[compute.name]} x{len(inputs) + place} = s{place};" for place in range(numbers)]
    lines, results = (*names, *body.lines), (("t0", output.name),)
    return Pointwise(op, tuple(inputs), (compute.name,) * numbers, lines, results, body.wrong)


def single_kernel(
    problem: Problem,
    compute: dtypes.dtype,
    order: Sequence[int],
    number: Callable[[Any, Any], Any],
    *,
    moves: bool = False,
) -> Kernel:
    """Build the kernel of one elementwise op.

    Args:
        problem: the op; its operands are arrays, followed by numbers.
        compute, order: see `single`.
        number: turns a Python number and the dtype to compute in into the operand: an array without dimensions, or an
            integer that the dtype does not hold, with which all elements compare the same way.
        moves: whether the op only moves elements; `compute` is then a dtype that stands for their bits.

    Raises:
        NotImplementedError: if there is no rule for the op in this dtype.
    """
    output = problem.outputs[0].dtype
    inputs = [compute.name if moves and meta.dtype is output else meta.dtype.name for meta in problem.inputs]
    function = single(problem.op, inputs, len(problem.scalars), order, compute, compute if moves else output)
    if function is None:
        raise NotImplementedError(f"{problem.op} of {compute.name} has no rule for CUDA devices")

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        arrays, given = operands[: len(inputs)], operands[len(inputs) :]
        held = [number(value, compute.numpy) for value in given]
        if held and isinstance(held[0], int):
            fill_array(launcher, outs[0], _beside_all(problem, held[0]))
        else:
            launch_pointwise(launcher, function, arrays, _numbers_as(compute, held), outs, divided_by_zero)

    return Kernel(into_outs(launch, problem), casts=True)


def divided_by_zero(position: int, value: int) -> Exception:
    """Return the only error that the rules of elementwise ops report: integer division by zero."""
    return ZeroDivisionError("integer division by zero")


def _beside_all(problem: Problem, number: int) -> bool:
    """Return the result of comparing elements with an integer that their dtype does not hold: it is the same for all
    elements, and so for 0.
    """
    compare = _COMPARISONS[problem.op]
    return bool(compare(number, 0) if problem.attributes == REVERSED else compare(0, number))


def _numbers_as(compute: dtypes.dtype, numbers: Iterable[Any]) -> list[Argument]:
    """Return arrays without dimensions as a kernel's arguments of the dtype `compute`; a complex number becomes two."""
    if compute.is_complex:
        return [part for number in numbers for part in (float(number.real), float(number.imag))]
    kind = float if compute.is_floating_point else int
    return [kind(number) for number in numbers]


def _arguments(number: Number) -> list[Argument]:
    value, dtype = number
    by_name = dtypes.by_name(dtype)
    return _numbers_as(by_name, [np.array(value).astype(by_name.numpy)])
