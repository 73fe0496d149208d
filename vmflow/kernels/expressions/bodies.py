"""Writes chains of elementwise ops as C or CUDA C++ statements that compute one element of each op's result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from vmflow.kernels.problems.elementwise import REVERSED

from .rules import HALVES, INTEGERS, RULES, Rule, clamped, converted, held_in, rounded_to

if TYPE_CHECKING:
    from vmflow.kernels.problems.fused import FusedStep

# Exponents for which `pow` is written as another op.
_POWERS: Final = {2: "square", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}


class Operation(NamedTuple):
    """One op of a chain of elementwise ops.

    Attributes:
        name: the op's name in the op table.
        operands: the numbers of the operands that are arrays: the chain's inputs are numbered first, then its ops.
        scalars: the operands that are Python numbers.
        reversed: whether the scalar is the first operand.
        compute: the name of the dtype that the op is computed in.
        result: the name of the dtype of its result.
    """

    name: str
    operands: tuple[int, ...]
    scalars: tuple[bool | int | float, ...]
    reversed: bool
    compute: str
    result: str


def operation_of(step: FusedStep) -> Operation:
    """Return the `Operation` for one step of a fused op."""
    reversed_ = step.attributes == REVERSED
    return Operation(step.name, step.operands, step.scalars, reversed_, step.compute.name, step.output.dtype.name)


class Number(NamedTuple):
    """A Python number among the operands of a chain; a variable holds it, so the source does not contain its value.

    Attributes:
        value: the number; within the range of `dtype` if that is an integer dtype.
        dtype: the dtype of the variable that holds the number.
    """

    value: bool | int | float
    dtype: str


class Body(NamedTuple):
    """The statements that compute one element of each result of a chain of elementwise ops.

    Attributes:
        lines: the statements.  They read x0, x1, ... (an element of each input) and s0, s1, ... (the numbers), and
            declare t0, t1, ...: the result of each operation.
        numbers: the Python numbers s0, s1, ....
        inexact: the names of the chain's ops whose results can differ from numpy's.
        wrong: a condition, in C, under which an element's operands are an error; "" if there is none.
    """

    lines: tuple[str, ...]
    numbers: tuple[Number, ...]
    inexact: frozenset[str]
    wrong: str


def write_body(
    inputs: Sequence[str], operations: Sequence[Operation], types: Mapping[str, str], rules: Mapping[str, Rule] = RULES
) -> Body | None:
    """Return the statements of a chain of elementwise ops; None if one of its ops, dtypes or numbers cannot be written.

    Args:
        inputs: the names of the input arrays' dtypes.
        operations: the ops, in order.
        types: by dtype, the language's type of variables; half precision, if the language has it, is held in float32.
        rules: by op, how the language writes it.
    """
    if not all([operand in types for operand in inputs]):
        return None
    writer = _Writer(inputs, types, rules)
    for operation in operations:
        if not writer.add(operation):
            return None
    wrong = " || ".join(writer.wrong)
    return Body(tuple(writer.lines), tuple(writer.numbers), frozenset(writer.inexact), wrong)


class _Writer:
    """Writes the statements of a chain, one operation after the other.

    Args:
        inputs, types, rules: see `write_body`.

    Attributes:
        lines, numbers, inexact: see `Body`.
        wrong: conditions, in C, under which an operation's operands are an error.
    """

    def __init__(self, inputs: Sequence[str], types: Mapping[str, str], rules: Mapping[str, Rule]) -> None:
        self._types = types
        self._rules = rules
        self._known = [(f"x{number}", dtype) for number, dtype in enumerate(inputs)]
        self.lines: list[str] = []
        self.numbers: list[Number] = []
        self.inexact: set[str] = set()
        self.wrong: list[str] = []

    def add(self, operation: Operation) -> bool:
        """Append the statement of an operation to `lines`; return False if it cannot be written."""
        result = operation.result
        written = self._written(operation)
        if written is None or result not in self._types:
            return False
        name, kind = f"t{len(self.lines)}", self._types[result]
        rounded = rounded_to(result, written) if result in HALVES else f"({kind})({written})"
        self.lines.append(f"const {kind} {name} = {rounded};")
        self._known.append((name, result))
        return True

    def _written(self, operation: Operation) -> str | None:
        if operation.compute not in self._types:
            return None
        name, compute = operation.name.removesuffix("_scalar"), held_in(operation.compute)
        if name == "where":
            condition, *values = operation.operands
            chosen = self._values(operation, values)
            return None if chosen is None else f"{self._known[condition][0]} ? {chosen[0]} : {chosen[1]}"
        values_ = self._values(operation, operation.operands)
        if values_ is None:
            return None
        if name == "cast":
            return values_[0]
        if name == "clamp":
            return clamped(compute, *values_) if compute != "bool" else None
        if operation.name == "pow_scalar" and not operation.reversed:
            name = operation.name if operation.name in self._rules else _POWERS.get(operation.scalars[0], name)
        # An op may have a rule of its own for half precision; most are written as for float32.
        rule = self._rules.get(f"{name}_{operation.compute}") or self._rules.get(name)
        if rule is None or compute not in rule.dtypes:
            return None
        if not rule.exact:
            self.inexact.add(name)
        if rule.wrong is not None and (wrong := rule.wrong(compute, *values_)):
            self.wrong.append(wrong)
        return rule.write(compute, *values_)

    def _values(self, operation: Operation, operands: Sequence[int]) -> list[str] | None:
        """Return expressions of an operation's operands in its dtype `compute`; None if one cannot be converted."""
        arrays = [converted(*self._known[operand], operation.compute) for operand in operands]
        numbers = [self._number(scalar, operation.compute) for scalar in operation.scalars]
        values = [*numbers, *arrays] if operation.reversed else [*arrays, *numbers]
        found = [value for value in values if value is not None]
        return found if len(found) == len(values) else None

    def _number(self, value: bool | int | float, dtype: str) -> str | None:
        if not isinstance(value, (bool, int, float)):
            return None
        if dtype in INTEGERS and not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
            return None
        self.numbers.append(Number(value, dtype))
        return f"s{len(self.numbers) - 1}"
