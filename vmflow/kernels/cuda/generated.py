"""Kernels that are generated: chains of elementwise ops as one kernel, written by the rules that the C kernels have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from vmflow import dtypes
from vmflow.kernels.expressions.bodies import Number, Operation, operation_of, write_body
from vmflow.kernels.expressions.rules import HALVES
from vmflow.kernels.problems.fused import FusedStep
from vmflow.streams.cuda.driver import Argument

from .pointwise import Pointwise
from .rules import RULES
from .sources import VARIABLES

# So many ops of a chain are in the name of its kernel.
_NAMED: Final = 4

# The parameters of a kernel take up to 4 KB: of each array, 8 bytes, and 8 more for each of its strides.
_MOST_ARRAYS: Final = 64

# Rules know nothing of complex numbers.
_TYPES: Final = {name: kind for name, kind in VARIABLES.items() if not name.startswith("complex")}


class Generated(NamedTuple):
    """A chain as a kernel.

    Attributes:
        function: see `launch_pointwise`.
        numbers: its arguments behind the arrays.
    """

    function: Pointwise
    numbers: tuple[Argument, ...]


def chain(inputs: Sequence[str], steps: Sequence[FusedStep], outputs: Sequence[int]) -> Generated | None:
    """The kernel of several ops; None for too many arrays, or an op or a dtype that cannot be written.

    Args:
        inputs: dtypes.
        steps: in order.
        outputs: the steps whose results are wanted.
    """
    if len(inputs) + len(outputs) > _MOST_ARRAYS:
        return None
    body = write_body(inputs, list(map(operation_of, steps)), _TYPES, RULES)
    if body is None:
        return None
    results = tuple([(f"t{place}", steps[place].output.dtype.name) for place in outputs])
    kinds = tuple([number.dtype for number in body.numbers])
    name = "_".join([step.name for step in steps[:_NAMED]])
    function = Pointwise(name, tuple(inputs), kinds, body.lines, results)
    return Generated(function, tuple(map(_argument, body.numbers)))


def single(
    op: str, inputs: Sequence[str], numbers: int, order: Sequence[int], compute: dtypes.dtype, output: dtypes.dtype
) -> Pointwise | None:
    """The kernel of one op; None if it cannot be written.

    Args:
        op: its name in the op table.
        inputs: the dtypes of arrays.
        numbers: how many numbers of the dtype `compute` are given at each launch; see `numbers_as`.
        order: of the operands: arrays are numbered first, and behind them the numbers.
        compute, output: the dtypes that it is computed in and that it makes.
    """
    given = [*inputs, *[compute.name] * numbers]
    operation = Operation(op.removesuffix("_scalar"), tuple(order), (), False, compute.name, output.name)
    body = write_body(given, [operation], _TYPES, RULES)
    if body is None:
        return None
    names = [f"const {_TYPES[compute.name]} x{len(inputs) + place} = s{place};" for place in range(numbers)]
    return Pointwise(op, tuple(inputs), (compute.name,) * numbers, (*names, *body.lines), (("t0", output.name),))


def numbers_as(compute: dtypes.dtype, numbers: Iterable[Any]) -> tuple[Argument, ...]:
    """Numbers of a dtype, arrays without dimensions among them, as arguments of a kernel."""
    kind = float if compute.category >= dtypes.FLOATING else int
    return tuple([kind(number) for number in numbers])


def _argument(number: Number) -> Argument:
    value, dtype = number
    if dtype in HALVES:
        return float(np.array(value).astype(dtypes.by_name(dtype).numpy))
    return float(value) if np.dtype(dtype).kind == "f" else int(value)
