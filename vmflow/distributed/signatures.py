"""Signatures: for which spreads of its operands an op can be computed part by part, and how results are spread then.

A signature is about one axis of a mesh; a mesh of several axes has a signature for each.  That everything is broadcast
is right for every op and is not listed.  Families of ops share a rule.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Final, NamedTuple, TypeAlias, cast

from vmflow.dtypes import FLOATING
from vmflow.instructions.blob import TensorMeta
from vmflow.ops.table import Attributes, Metas, OpExpr

from .sbp import Sbp, broadcast, partial_sum, split


class Signature(NamedTuple):
    """Spreads along one axis.

    Attributes:
        inputs, outputs: of each operand and result.
    """

    inputs: tuple[Sbp, ...]
    outputs: tuple[Sbp, ...]


# rule(op, attributes, metas of operands, metas of results) -> signatures; the metas are of whole tensors
Rule: TypeAlias = "Callable[[OpExpr, Attributes, Metas, Metas], list[Signature]]"


def has_rule(op: OpExpr) -> bool:
    """Whether anything is known of the signatures of an op."""
    return op.name in _RULES or op.family in _FAMILIES


def signatures_of(op: OpExpr, attributes: Attributes, metas: Metas, outputs: Metas) -> list[Signature]:
    """The signatures of a call, without the one that has everything broadcast."""
    rule = _RULES.get(op.name) or _FAMILIES.get(op.family)
    return [] if rule is None else rule(op, attributes, metas, outputs)


# Element by element


def _elementwise(op: OpExpr, attributes: Attributes, metas: Metas, outputs: Metas) -> list[Signature]:
    shape = outputs[0].shape
    if any([output.shape != shape for output in outputs]):
        return []
    found = []
    for dim, size in enumerate(shape):
        inputs = []
        for each in metas:
            own = dim - (len(shape) - len(each.shape))
            inputs.append(split(own) if own >= 0 and (each.shape[own] != 1 or size == 1) else broadcast)
        found.append(Signature(tuple(inputs), (split(dim),) * len(outputs)))
    if outputs[0].dtype.category >= FLOATING:
        for places in _LINEAR_IN.get(op.name, ()):
            if max(places) < len(metas) and all([metas[place].dtype is outputs[0].dtype for place in places]):
                inputs = [partial_sum if place in places else broadcast for place in range(len(metas))]
                found.append(Signature(tuple(inputs), (partial_sum,)))
    return found


# By op, sets of operands in which it is linear: if these are partial sums, the result is.
_LINEAR_IN: Final[dict[str, tuple[tuple[int, ...], ...]]] = {
    "add": ((0, 1),),
    "sub": ((0, 1),),
    "mul": ((0,), (1,)),
    "div": ((0,),),
    "neg": ((0,),),
    "mul_scalar": ((0,),),
    "where": ((1, 2),),
}


# Along dimensions


def _reduction(op: OpExpr, attributes: Attributes, metas: Metas, outputs: Metas) -> list[Signature]:
    (source,) = metas
    dims, keepdim = cast("tuple[Any, bool]", attributes)
    if dims is None:
        dims = tuple(range(len(source.shape)))
    elif isinstance(dims, int):
        dims = (dims,)
    found = []
    for dim in range(len(source.shape)):
        if dim not in dims:
            own = dim if keepdim else dim - sum([other < dim for other in dims])
            found.append(Signature((split(dim),), (split(own),)))
        elif op.name == "sum" and source.dtype is outputs[0].dtype:
            found.append(Signature((split(dim),), (partial_sum,)))
    if op.name in ("sum", "mean") and source.dtype is outputs[0].dtype and source.dtype.category >= FLOATING:
        found.append(Signature((partial_sum,), (partial_sum,)))
    return found


def _along(op: OpExpr, attributes: Attributes, metas: Metas, outputs: Metas) -> list[Signature]:
    """All other dimensions than the one that the op works along may be split."""
    along = cast(int, attributes[0])
    found = [
        Signature((split(dim),) * len(metas), (split(dim),) * len(outputs))
        for dim in range(len(metas[0].shape))
        if dim != along
    ]
    if op.name == "cumsum" and metas[0].dtype is outputs[0].dtype:
        found.append(Signature((partial_sum,), (partial_sum,)))
    return found


# Products


def _matmul(op: OpExpr, attributes: Attributes, metas: Metas, outputs: Metas) -> list[Signature]:
    left, right = metas
    out = len(outputs[0].shape)
    rows, columns = len(left.shape) > 1, len(right.shape) > 1
    batch = out - rows - columns
    found = []
    if rows:
        found.append(Signature((split(len(left.shape) - 2), broadcast), (split(batch),)))
    if columns:
        found.append(Signature((broadcast, split(len(right.shape) - 1)), (split(out - 1),)))
    inner = split(len(left.shape) - 1), split(len(right.shape) - 2 if columns else 0)
    found.append(Signature(inner, (partial_sum,)))
    for dim in range(batch):
        inputs = []
        for each in metas:
            own = dim - (batch - max(len(each.shape) - 2, 0))
            inputs.append(split(own) if own >= 0 and len(each.shape) > 2 and each.shape[own] != 1 else broadcast)
        if any([sbp.is_split for sbp in inputs]):
            found.append(Signature(tuple(inputs), (split(dim),)))
    if outputs[0].dtype.category >= FLOATING:
        found += [
            Signature((partial_sum, broadcast), (partial_sum,)),
            Signature((broadcast, partial_sum), (partial_sum,)),
        ]
    return found


def _linear(op: OpExpr, attributes: Attributes, metas: Metas, outputs: Metas) -> list[Signature]:
    source, _, *bias = metas
    last = len(source.shape) - 1
    none, by_sum = (broadcast,) * len(bias), (partial_sum,) * len(bias)
    found = [Signature((split(dim), broadcast, *none), (split(dim),)) for dim in range(last)]
    found.append(Signature((broadcast, split(0), *(split(0),) * len(bias)), (split(last),)))
    found.append(Signature((split(last), split(1), *by_sum), (partial_sum,)))
    found.append(Signature((partial_sum, broadcast, *by_sum), (partial_sum,)))
    found.append(Signature((broadcast, partial_sum, *by_sum), (partial_sum,)))
    return found


def _linear_gradient(op: OpExpr, attributes: Attributes, metas: Metas, outputs: Metas) -> list[Signature]:
    _, source, _ = metas
    wanted = cast("tuple[bool, bool, bool]", attributes)
    last = len(source.shape) - 1

    def outs(by_input: Sbp, by_weight: Sbp, by_bias: Sbp) -> tuple[Sbp, ...]:
        return tuple([sbp for sbp, want in zip((by_input, by_weight, by_bias), wanted, strict=True) if want])

    found = [
        Signature((split(dim), split(dim), broadcast), outs(split(dim), partial_sum, partial_sum))
        for dim in range(last)
    ]
    found.append(Signature((split(last), broadcast, split(0)), outs(partial_sum, split(0), split(0))))
    found.append(Signature((broadcast, split(last), split(1)), outs(split(last), split(1), broadcast)))
    return found


# Layout


def _cat(op: OpExpr, attributes: Attributes, metas: Metas, outputs: Metas) -> list[Signature]:
    found = _along(op, attributes, metas, outputs)
    return [*found, Signature((partial_sum,) * len(metas), (partial_sum,))]


# Views: from the shape of the operand and of the result


def view_signatures(
    op: OpExpr, attributes: Attributes, source: TensorMeta, shape: tuple[int, ...], ranks: int
) -> list[Signature]:
    """The signatures of a view, which is linear: a partial sum stays one."""
    found = [Signature((partial_sum,), (partial_sum,))]
    pairs: list[tuple[int, int]] = []
    if op.name == "permute":
        (order,) = cast("tuple[tuple[int, ...]]", attributes)
        pairs = [(old, new) for new, old in enumerate(order)]
    elif op.name == "reshape":
        pairs = _kept_by_reshape(tuple(source.shape), shape, ranks)
    elif op.name == "expand":
        extra = len(shape) - len(source.shape)
        pairs = [(dim, dim + extra) for dim, size in enumerate(source.shape) if shape[dim + extra] == size]
    elif op.name == "slice":
        along = attributes[0]
        pairs = [(dim, dim) for dim in range(len(shape)) if dim != along]
    return found + [Signature((split(old),), (split(new),)) for old, new in pairs]


def _kept_by_reshape(old: tuple[int, ...], new: tuple[int, ...], ranks: int) -> list[tuple[int, int]]:
    """Dimensions of which equal shares have the same elements, before and after."""
    if not prod(old):
        return []
    pairs = []
    for one, size in enumerate(old):
        for other, length in enumerate(new):
            if prod(old[:one]) == prod(new[:other]) and (
                size == length or (size > 1 and length > 1 and size % ranks == 0 and length % ranks == 0)
            ):
                pairs.append((one, other))
                break
    return pairs


_FAMILIES: Final[dict[str, Rule]] = {
    "elementwise": _elementwise,
    "selection": _elementwise,
    "fused": _elementwise,
    "special": _elementwise,
    "loss": _elementwise,
    "softmax": _along,
    "running": _along,
    "reduction": _reduction,
}
_RULES: Final[dict[str, Rule]] = {
    "matmul": _matmul,
    "linear": _linear,
    "linear_gradient": _linear_gradient,
    "cat": _cat,
    "fill": _elementwise,
    "empty": _elementwise,
    "cast": _elementwise,
}
