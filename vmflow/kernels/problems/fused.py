"""Details of several elementwise ops that are computed as one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import attrs

if TYPE_CHECKING:
    from vmflow.dtypes import dtype as DType
    from vmflow.instructions.blob import TensorMeta
    from vmflow.kernels.choosing import Kernel


@attrs.frozen
class FusedStep:
    """One of the elementwise ops that a fused op computes.

    Attributes:
        name, attributes, scalars: of the call; the scalars are numbers.
        operands: their numbers: the fused op's inputs are numbered first, and then the steps.
        output: the meta of the result.
        compute: the dtype to which the operands are cast.
        kernel: of the op alone.
        cost: nanoseconds, estimated.
    """

    name: str
    attributes: tuple[Any, ...]
    scalars: tuple[Any, ...]
    operands: tuple[int, ...]
    output: TensorMeta
    compute: DType
    kernel: Kernel
    cost: float


class Fused(NamedTuple):
    """Several elementwise ops of one shape.

    Attributes:
        steps: in order.
        outputs: the steps whose results are wanted.
        occasional: whether the fused op may never occur again, and is worth a compiler only after several calls.
    """

    steps: tuple[FusedStep, ...]
    outputs: tuple[int, ...]
    occasional: bool = False
