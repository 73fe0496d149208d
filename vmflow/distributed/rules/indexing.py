"""Sharding rules of ops that read or write elements at indices."""

from __future__ import annotations

from typing import Any, cast

from vmflow.distributed.sbp import Sbp, broadcast, partial_sum, split
from vmflow.distributed.signatures import Call, Signature, rule_of
from vmflow.dtypes import FLOATING
from vmflow.instructions.blob import TensorMeta

from .elementwise import aligned


def _is_floating(meta: TensorMeta) -> bool:
    return meta.dtype.category >= FLOATING


# Along one dimension


@rule_of("gather")
def _gather(call: Call) -> list[Signature]:
    """Signatures of `gather` with operands (source, indices along `dim`)."""
    (dim,) = cast("tuple[int]", call.attributes)
    source, index = call.inputs
    found = [
        Signature((split(axis), split(axis)), (split(axis),))
        for axis, size in enumerate(index.shape)
        if axis != dim and source.shape[axis] == size
    ]
    if index.shape:
        found.append(Signature((broadcast, split(dim)), (split(dim),)))
    return [*found, Signature((partial_sum, broadcast), (partial_sum,))] if _is_floating(source) else found


@rule_of("scatter", "scatter_reduce")
def _scatter(call: Call) -> list[Signature]:
    """Signatures of scattering with operands (target, indices along `dim`, values)."""
    dim, how = cast("tuple[int, str | None]", call.attributes[:2])
    target, index, source = call.inputs
    found = [
        Signature((split(axis),) * 3, (split(axis),))
        for axis, size in enumerate(index.shape)
        if axis != dim and target.shape[axis] == source.shape[axis] == size
    ]
    if how in ("multiply", "prod") and call.attributes[-1] and _is_floating(target):
        found.append(Signature((partial_sum, broadcast, broadcast), (partial_sum,)))
    if how in ("add", "sum") and _is_floating(target):
        found.append(Signature((partial_sum, broadcast, partial_sum), (partial_sum,)))
        replaces = how == "sum" and not call.attributes[2]
        if not replaces and index.shape and index.shape[dim] == source.shape[dim]:
            found.append(Signature((partial_sum, split(dim), split(dim)), (partial_sum,)))
    return found


@rule_of("one_hot")
def _one_hot(call: Call) -> list[Signature]:
    return [Signature((split(dim),), (split(dim),)) for dim in range(len(call.inputs[0].shape))]


# x[indices]


class _Places:
    """The dimensions of an indexed result that come from dimensions of the tensor and of its indices.

    Args:
        shape: of the tensor.
        dims: the dimensions that have indices.
        indices: the metas of the indices.

    Attributes:
        kept: pairs of a dimension of the tensor without indices, and its place in the result.
        joint: pairs of the sbps of the indices, and the place in the result of the dimension that these sbps split.
    """

    def __init__(self, shape: tuple[int, ...], dims: tuple[int, ...], indices: tuple[TensorMeta, ...]) -> None:
        rank = max([len(index.shape) for index in indices])
        removed = [dim for dim, index in zip(dims, indices, strict=True) if not index.shape]
        left = [axis for axis in range(len(shape)) if axis not in removed]
        replaced = [place for place, axis in enumerate(left) if axis in dims]
        # Dimensions with 0-d indices are removed.  The broadcast shape of the indices replaces the other indexed
        # dimensions if these are adjacent then; else that shape comes first.
        adjacent = bool(replaced) and replaced == list(range(replaced[0], replaced[0] + len(replaced)))
        at = replaced[0] if adjacent else 0
        rest = [axis for axis in left if axis not in dims]
        self.kept = [(axis, place if place < at else place + rank) for place, axis in enumerate(rest)]
        sizes = [
            max([index.shape[axis - rank] for index in indices if len(index.shape) >= rank - axis])
            for axis in range(rank)
        ]
        self.joint = [
            (tuple([aligned(axis, rank, tuple(index.shape), size) for index in indices]), at + axis)
            for axis, size in enumerate(sizes)
        ]


@rule_of("index")
def _index(call: Call) -> list[Signature]:
    """Signatures of indexing with operands (source, indices of some dimensions...)."""
    source, *indices = call.inputs
    places = _Places(tuple(source.shape), cast("tuple[int, ...]", call.attributes[0]), tuple(indices))
    none: tuple[Sbp, ...] = (broadcast,) * len(indices)
    found = [Signature((split(axis), *none), (split(place),)) for axis, place in places.kept]
    found += [Signature((broadcast, *sbps), (split(place),)) for sbps, place in places.joint]
    return [*found, Signature((partial_sum, *none), (partial_sum,))] if _is_floating(source) else found


@rule_of("index_add_to_zeros")
def _index_gradient(call: Call) -> list[Signature]:
    """Signatures of indexing's gradient with operands (gradient of the result, indices...)."""
    _, *indices = call.inputs
    shape = tuple(call.outputs[0].shape)
    places = _Places(shape, cast("tuple[int, ...]", call.attributes[1]), tuple(indices))
    none: tuple[Sbp, ...] = (broadcast,) * len(indices)
    found = [Signature((split(place), *none), (split(axis),)) for axis, place in places.kept]
    found += [Signature((split(place), *sbps), (partial_sum,)) for sbps, place in places.joint]
    return [*found, Signature((partial_sum, *none), (partial_sum,))]


@rule_of("index_put")
def _index_put(call: Call) -> list[Signature]:
    """Signatures of `index_put` with operands (target, values that broadcast to the indexed places, indices...)."""
    dims, adds, part = cast("tuple[tuple[int, ...], bool, Any]", call.attributes)
    target, value, *indices = call.inputs
    if part is not None:
        return []
    places = _Places(tuple(target.shape), dims, tuple(indices))
    rank = len(places.kept) + len(places.joint)
    none: tuple[Sbp, ...] = (broadcast,) * len(indices)
    found = []
    if len(value.shape) <= rank:
        for axis, place in places.kept:
            own = aligned(place, rank, tuple(value.shape), target.shape[axis])
            found.append(Signature((split(axis), own, *none), (split(axis),)))
    return [*found, Signature((partial_sum, partial_sum, *none), (partial_sum,))] if adds else found


# Searching


@rule_of("searchsorted")
def _searchsorted(call: Call) -> list[Signature]:
    """Signatures of `searchsorted` with operands (sorted sequences, values to search)."""
    sequence, values = call.inputs
    # The place of a value in a sequence is the sum of its places in the parts of the sequence.
    found = [Signature((split(len(sequence.shape) - 1), broadcast), (partial_sum,))]
    if len(sequence.shape) == 1:
        return found + [Signature((broadcast, split(dim)), (split(dim),)) for dim in range(len(values.shape))]
    last = len(values.shape) - 1
    found += [Signature((split(dim), split(dim)), (split(dim),)) for dim in range(last)]
    return [*found, Signature((broadcast, split(last)), (split(last),))]


@rule_of("isin")
def _isin(call: Call) -> list[Signature]:
    return [Signature((split(dim), broadcast), (split(dim),)) for dim in range(len(call.inputs[0].shape))]


# Tables


@rule_of("embedding")
def _embedding(call: Call) -> list[Signature]:
    """Signatures of `embedding` with operands (indices, table of rows)."""
    index, _ = call.inputs
    rank = len(index.shape)
    found = [Signature((split(dim), broadcast), (split(dim),)) for dim in range(rank)]
    found.append(Signature((broadcast, split(1)), (split(rank),)))
    return [*found, Signature((broadcast, partial_sum), (partial_sum,))]


@rule_of("embedding_gradient")
def _embedding_gradient(call: Call) -> list[Signature]:
    """Signatures of the gradient of `embedding` with operands (gradient of the result, indices)."""
    _, by_frequency, _ = cast("tuple[int, bool, int]", call.attributes)
    rank = len(call.inputs[1].shape)
    found = [Signature((split(rank), broadcast), (split(1),)), Signature((partial_sum, broadcast), (partial_sum,))]
    if not by_frequency:  # frequencies count all indices
        found += [Signature((split(dim), split(dim)), (partial_sum,)) for dim in range(rank)]
    return found
