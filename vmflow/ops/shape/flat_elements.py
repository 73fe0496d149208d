"""Elements of a tensor seen as one row: `take`, `put`, `masked_scatter` and `unravel_index`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from vmflow import dtypes
from vmflow.dtypes import INTEGER
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.copying import copy_
from vmflow.ops.creation.creation import tensor as new_tensor
from vmflow.ops.declaration import function, method, public
from vmflow.ops.destination import out_by_copy
from vmflow.ops.elementwise.pointwise import check_tensors
from vmflow.ops.elementwise.selection import where
from vmflow.ops.in_place import copied_in_place
from vmflow.ops.indexing.gathering import gather
from vmflow.ops.indexing.indexing import getitem, index_put
from vmflow.ops.table import broadcast_shapes

from .joining import cat
from .view import expand, ravel, reshape, sizes

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


@function()
def unravel_index(indices: Tensor, shape: int | Sequence[int]) -> tuple[Tensor, ...]:
    """The indices by dimension of elements that are counted through a tensor of that shape, its last dimension first.

    Args:
        indices: integers of any shape, not negative; those beyond the tensor are not looked for.
        shape: of the tensor.

    Returns:
        A tensor of the shape and dtype of `indices` for each dimension.

    Raises:
        TypeError: if the indices are no integers.
        ValueError: for negative sizes.

    >>> flow.unravel_index(flow.tensor([4, 5]), (3, 2))
    (tensor([2, 2]), tensor([0, 1]))
    """
    check_tensors("unravel_index", indices)
    if indices.dtype.category != INTEGER:
        raise TypeError(f"unravel_index: the indices must be integers, not {indices.dtype.name}")
    lengths = sizes("unravel_index", (shape,))
    if any([size < 0 for size in lengths]):
        raise ValueError(f"unravel_index: sizes cannot be negative, got {list(lengths)}")
    found: list[Tensor] = []
    for size in reversed(lengths):
        found.append(indices % max(size, 1))
        indices = indices // max(size, 1)
    return tuple(reversed(found))


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


# By Python functions


@method()
def apply_(self: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Replace each element by what a Python function makes of it; waits for the values, and is slow.

    Raises:
        TypeError: unless the tensor is on the CPU.
    """
    return _replaced_by("apply_", callable, self)


@method()
def map_(self: Tensor, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """As `apply_`, with a function of two elements: that of `tensor`, which broadcasts, is the second.

    Raises:
        TypeError: unless the tensors are on the CPU.
        ValueError: if `tensor` does not broadcast to this one.
    """
    return _replaced_by("map_", callable, self, tensor)


@method()
def map2_(self: Tensor, x: Tensor, y: Tensor, callable: Callable[[Any, Any, Any], Any]) -> Tensor:
    """As `map_`, with two further tensors."""
    return _replaced_by("map2_", callable, self, x, y)


def _replaced_by(name: str, function: Callable[..., Any], target: Tensor, *others: Tensor) -> Tensor:
    if any([other.device.type != "cpu" for other in (target, *others)]):
        raise TypeError(f"{name}: Python functions are called for tensors on the CPU alone; move them with cpu()")
    given = [other.detach().expand(target.shape).reshape(-1).tolist() for other in (target, *others)]
    values = [function(*each) for each in zip(*given, strict=True)]
    return copy_(target, new_tensor(values, dtype=target.dtype).reshape(target.shape))
