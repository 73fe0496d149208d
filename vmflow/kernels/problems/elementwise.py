"""The details of elementwise ops for their kernels, and their costs per element."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from vmflow.dtypes import dtype as DType

# Estimated nanoseconds per element on one core: of ops that memory limits, and of transcendental functions.
CHEAP: Final = 0.5
EXPENSIVE: Final = 5.0

# The attributes of an op on a tensor and a Python number if the number is the first operand.
REVERSED: Final = ("reversed",)


class Elementwise(NamedTuple):
    """The details of an elementwise op, whose operands broadcast.

    Attributes:
        compute: the dtype to which the operands are cast.
        cost: estimated nanoseconds per element.
    """

    compute: DType
    cost: float
