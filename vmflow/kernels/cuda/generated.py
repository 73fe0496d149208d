"""Kernels that are generated: chains of elementwise ops as one kernel, written by the rules that the C kernels have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from vmflow import dtypes
from vmflow.kernels.expressions.bodies import Number, Operation, write_body
from vmflow.kernels.expressions.rules import HALVES
from vmflow.kernels.problems.elementwise import REVERSED
from vmflow.kernels.problems.fused import FusedStep
from vmflow.streams.cuda.driver import Argument

from .pointwise import Pointwise
from .sources import VARIABLES

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
    """The kernel of several ops; None if there is an op or a dtype in it that cannot be written.

    Args:
        inputs: dtypes.
        steps: in order.
        outputs: the steps whose results are wanted.
    """
    operations = [
        Operation(
            step.name,
            step.operands,
            step.scalars,
            step.attributes == REVERSED,
            step.compute.name,
            step.output.dtype.name,
        )
        for step in steps
    ]
    body = write_body(inputs, operations, _TYPES)
    if body is None:
        return None
    results = tuple([(f"t{place}", steps[place].output.dtype.name) for place in outputs])
    kinds = tuple([number.dtype for number in body.numbers])
    name = "_".join([step.name for step in steps[:_NAMED]])
    function = Pointwise(name, tuple(inputs), kinds, body.lines, results)
    return Generated(function, tuple(map(_argument, body.numbers)))


# So many ops of a chain are in the name of its kernel.
_NAMED: Final = 4


def single(op: str, inputs: Sequence[str], compute: str, output: str, number: bool, first: bool) -> Pointwise | None:
    """The kernel of one op; None if it cannot be written.

    Args:
        op: its name in the op table.
        inputs: the dtypes of arrays.
        compute, output: the dtypes that it is computed in and that it makes.
        number: whether there is a number of the dtype `compute`, given at each launch.
        first: whether that comes before the array.
    """
    given = [*inputs, *[compute] * number]
    operands = tuple(reversed(range(len(given)))) if first else tuple(range(len(given)))
    operation = Operation(op.removesuffix("_scalar"), operands, (), False, compute, output)
    body = write_body(given, [operation], _TYPES)
    if body is None:
        return None
    place = len(inputs)
    lines = (f"const {_TYPES[compute]} x{place} = s0;", *body.lines) if number else body.lines
    return Pointwise(op, tuple(inputs), (compute,) * number, lines, (("t0", output),))


def _argument(number: Number) -> Argument:
    value, dtype = number
    if dtype in HALVES:
        return float(np.array(value).astype(dtypes.by_name(dtype).numpy))
    return float(value) if np.dtype(dtype).kind == "f" else int(value)
