"""Details of ops that treat each element alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from vmflow.dtypes import dtype as DType

# Nanoseconds per element on one core, by which a call runs inline or on a worker: ops that memory bounds, and
# transcendental functions.
CHEAP: Final = 0.5
EXPENSIVE: Final = 5.0

# The attributes of an op on a tensor and a number if the number is the first operand.
REVERSED: Final = ("reversed",)


class Elementwise(NamedTuple):
    """An op on one or two operands that broadcast.

    Attributes:
        compute: the dtype to which the operands are cast.
        cost: nanoseconds per element.
    """

    compute: DType
    cost: float
