"""Elements of a tensor seen as one row: `take`, `put` and `masked_scatter`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmflow import dtypes
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.declaration import public
from vmflow.ops.destination import out_by_copy
from vmflow.ops.elementwise.selection import where
from vmflow.ops.in_place import copied_in_place
from vmflow.ops.indexing.gathering import gather
from vmflow.ops.indexing.indexing import getitem, index_put
from vmflow.ops.table import broadcast_shapes

from .joining import cat
from .view import expand, ravel, reshape

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


def _check_index(name: str, index: Tensor) -> None:
    if index.dtype.category != dtypes.INTEGER:
        raise TypeError(f"{name}: the index must be an integer tensor, not {index.dtype.name}")


@public()
@out_by_copy()
def take(input: Tensor, index: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The elements at these places of the flattened tensor, in the shape of `index`; negative ones count from the end.

    Raises:
        TypeError: if the index is not of integers.
        IndexError: if one of its elements is out of range, when the result is looked at.
    """
    _check_index("take", index)
    return getitem(ravel(input), index)


@public()
@copied_in_place()
@autocast_as_op
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of `input` with the elements of `source` at these places of the flattened tensor.

    Args:
        input: of any shape.
        index: integers; negative ones count from the end.  Of several elements for one place any may win.
        source: as many elements, of the dtype of `input`.
        accumulate: whether to add to what is there; each repetition of a place counts then.

    Raises:
        TypeError: if the index is not of integers, or dtypes differ.
        ValueError: if there are not as many elements as places.
        IndexError: if a place is out of range, when the result is looked at.
    """
    _check_index("put", index)
    if source.dtype is not input.dtype:
        raise TypeError(f"put: expected one dtype, got {input.dtype.name} and {source.dtype.name}")
    if source.numel() != index.numel():
        raise ValueError(f"put: {index.numel()} places need as many elements, got {source.numel()}")
    return reshape(index_put(ravel(input), (ravel(index),), ravel(source), accumulate), tuple(input.shape))


@public()
@copied_in_place()
@autocast_as_op
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy of `input` with the elements of `source`, in order, where the bool `mask` holds; the two broadcast.

    Args:
        input: any tensor.
        mask: of bools.
        source: of the dtype of `input`, with at least as many elements as the mask has true ones.

    Raises:
        TypeError: if the mask is no bool tensor, or dtypes differ.
        IndexError: if there are too few elements, when the result is looked at.
    """
    if mask.dtype is not dtypes.bool_:
        raise TypeError(f"masked_scatter: the mask must be a bool tensor, not {mask.dtype.name}")
    if source.dtype is not input.dtype:
        raise TypeError(f"masked_scatter: expected one dtype, got {input.dtype.name} and {source.dtype.name}")
    shape = broadcast_shapes("masked_scatter", tuple(input.shape), tuple(mask.shape))
    if 0 in shape:
        return expand(input, shape).clone()
    chosen = ravel(expand(mask, shape))
    # An element in front is what places read that are not chosen, so that there always is one.
    elements = cat([source.new_zeros((1,)), ravel(source)])
    places = chosen.cumsum(0) * chosen
    return where(expand(mask, shape), reshape(gather(elements, 0, places), shape), input)
