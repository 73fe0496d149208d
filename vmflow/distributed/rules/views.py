"""Sharding rules of views; partial sums stay, since views are linear."""

from __future__ import annotations

from math import prod
from typing import cast

from vmflow.distributed.sbp import partial_sum, split
from vmflow.distributed.signatures import Signature
from vmflow.ops.table import Attributes, ViewExpr

Shape = tuple[int, ...]


def view_signatures(op: ViewExpr, attributes: Attributes, old: Shape, new: Shape, ranks: int) -> list[Signature]:
    """The signatures of a view from shape `old` to `new` on an axis of `ranks` ranks."""
    pairs: list[tuple[int, int]] = []
    if op.name == "permute":
        (order,) = cast("tuple[tuple[int, ...]]", attributes)
        pairs = [(dim, place) for place, dim in enumerate(order)]
    elif op.name == "reshape":
        pairs = _kept_by_reshape(old, new, ranks)
    elif op.name == "expand":
        extra = len(new) - len(old)
        pairs = [(dim, dim + extra) for dim, size in enumerate(old) if new[dim + extra] == size]
    elif op.name in ("slice", "unfold"):
        along = attributes[0]
        pairs = [(dim, dim) for dim in range(len(old)) if dim != along]
    elif op.name == "diagonal":
        _, first, second = cast("tuple[int, int, int]", attributes)
        pairs = [(dim, place) for place, dim in enumerate([d for d in range(len(old)) if d not in (first, second)])]
    elif op.name in ("view_as_real", "view_as_complex"):
        pairs = [(dim, dim) for dim in range(min(len(old), len(new)))]
    found = [Signature((partial_sum,), (partial_sum,))]
    return found + [Signature((split(dim),), (split(place),)) for dim, place in pairs]


def _kept_by_reshape(old: Shape, new: Shape, ranks: int) -> list[tuple[int, int]]:
    """Pairs of dimensions, before and after a reshape, whose splits give each of `ranks` ranks the same elements."""
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
