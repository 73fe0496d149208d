"""Sharding rules of elementwise ops: any dimension may be split; operands that broadcast along it are whole."""

from __future__ import annotations

from typing import Final

from vmflow.distributed.sbp import Sbp, broadcast, partial_sum, split
from vmflow.distributed.signatures import Call, Signature, rule_of, rule_of_family
from vmflow.dtypes import FLOATING

# For each op, sets of operands in which it is linear: if all operands of a set are partial sums of the result's
# dtype, floating-point or complex, and the sbp of the others is `broadcast`, the result is a partial sum, too; but not
# if a scalar is the left operand ("reversed").
_LINEAR_IN: Final[dict[str, tuple[tuple[int, ...], ...]]] = {
    "add": ((0, 1),),
    "sub": ((0, 1),),
    "mul": ((0,), (1,)),
    "div": ((0,),),
    "neg": ((0,),),
    "mul_scalar": ((0,),),
    "div_scalar": ((0,),),
    "where": ((1, 2),),
    "cast": ((0,),),
    "copy_": ((0,),),
    "conj": ((0,),),
    "xlogy": ((0,),),
    "xlogy_scalar": ((0,),),
    "dropout_gradient": ((0,),),
    "relu_gradient": ((1,),),
    "gelu_gradient": ((0,),),
    "silu_gradient": ((0,),),
}


def aligned(dim: int, rank: int, shape: tuple[int, ...], size: int) -> Sbp:
    """The sbp of an operand if dimension `dim` of a result of `rank` dimensions is split.

    It is `broadcast` if the operand is expanded along that dimension.

    Args:
        shape: of the operand.
        size: of dimension `dim` of the result.
    """
    own = dim - (rank - len(shape))
    return split(own) if own >= 0 and (shape[own] != 1 or size == 1) else broadcast


@rule_of("cast", "copy_", "fill", "empty", "dropout_gradient")
@rule_of_family("elementwise", "selection", "fused", "special", "loss")
def _elementwise(call: Call) -> list[Signature]:
    first = call.outputs[0]
    shape = tuple(first.shape)
    if any([output.shape != shape for output in call.outputs]):
        return []
    found = [
        Signature(
            tuple([aligned(dim, len(shape), tuple(operand.shape), size) for operand in call.inputs]),
            (split(dim),) * len(call.outputs),
        )
        for dim, size in enumerate(shape)
    ]
    if first.dtype.category >= FLOATING and "reversed" not in call.attributes:
        for places in _LINEAR_IN.get(call.op.name, ()):
            if max(places) < len(call.inputs) and all([call.inputs[place].dtype is first.dtype for place in places]):
                inputs = [partial_sum if place in places else broadcast for place in range(len(call.inputs))]
                found.append(Signature(tuple(inputs), (partial_sum,)))
    return found
