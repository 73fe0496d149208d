"""The details of a fused op for its kernels: several elementwise ops that are computed in one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import attrs

if TYPE_CHECKING:
    from vmflow.dtypes import dtype as DType
    from vmflow.instructions.blob import TensorMeta
    from vmflow.kernels.choosing import Kernel


@attrs.frozen
class FusedStep:
    """One elementwise op of a fused op.

    Attributes:
        name: the op's name in the op table.
        attributes: the attributes of the op's call.
        scalars: the Python numbers among the operands.
        operands: the operands' numbers: the fused op's inputs are numbered first, and then its steps.
        output: the meta of the result.
        compute: the dtype to which the operands are cast.
        kernel: the kernel that computes this op alone.
        cost: the estimated nanoseconds of computing this op alone, for all elements.
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
    """A fused op: several elementwise ops whose results have one shape.

    Attributes:
        steps: the ops, in order.
        outputs: the steps whose results are wanted, numbered from 0.
        occasional: whether the fused op may never occur again: then, except in the mode "wait", the CPU compiles it
            only after several calls, and a CUDA device in the background.
    """

    steps: tuple[FusedStep, ...]
    outputs: tuple[int, ...]
    occasional: bool = False
