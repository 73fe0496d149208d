"""Access to elements of flattened tensors (`take`, `put`, `masked_scatter`), and Python functions for each element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from vmflow import dtypes
from vmflow.dtypes import INTEGER
from vmflow.operands import check_tensors
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.copying import copy_
from vmflow.ops.creation.creation import tensor as new_tensor
from vmflow.ops.declaration import function, method, public
from vmflow.ops.destination import out_by_copy
from vmflow.ops.elementwise.selection import where
from vmflow.ops.in_place import copied_in_place
from vmflow.ops.indexing.gathering import gather
from vmflow.ops.indexing.indexing import getitem, index_put
from vmflow.ops.table import broadcast_shapes
from vmflow.transfers import beside

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
    """Take the elements at the given indices of the flattened `input`; the result has the shape of `index`.

    Negative indices count from the end.

    Raises:
        TypeError: if the dtype of `index` is no integer dtype.
        IndexError: if an index is out of range, when the result is read.

    Example:
        >>> flow.take(flow.tensor([[1, 2], [3, 4]]), flow.tensor([0, -1]))
        tensor([1, 4])
    """
    check_tensors("take", index)
    _check_index("take", index)
    return getitem(ravel(input), index)


@function()
def unravel_index(indices: Tensor, shape: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Convert indices into a flattened tensor of `shape` to an index for each dimension of `shape`.

    Args:
        indices: integers of any shape, not negative; no index is checked against the shape.
        shape: of the tensor.

    Returns:
        A tensor of the shape and dtype of `indices` for each dimension.

    Raises:
        TypeError: if the indices are no integers.
        ValueError: if a size is negative.

    Example:
        >>> flow.unravel_index(flow.tensor([4, 5]), (3, 2))
        (tensor([2, 2]), tensor([0, 1]))
    """
    check_tensors("unravel_index", indices)
    if indices.dtype.category != INTEGER:
        raise TypeError(f"unravel_index: the indices must be integers, not {indices.dtype.name}")
    lengths = sizes("unravel_index", (shape,))
    if any([size < 0 for size in lengths]):
        raise ValueError(f"unravel_index: sizes cannot be negative, got {list(lengths)}")
    # A size may be too large for the dtype of the indices; an index of a dimension never is.
    rest = indices if max(lengths, default=0) <= dtypes.iinfo(indices.dtype).max else indices.to(dtypes.int64)
    results: list[Tensor] = []
    for size in reversed(lengths):
        results.append((rest % max(size, 1)).to(indices.dtype))
        rest = rest // max(size, 1)
    return tuple(reversed(results))


@public()
@copied_in_place()
@autocast_as_op
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Copy `input` with the elements of `source` at the given indices of the flattened `input`.

    Args:
        input: of any shape.
        index: integers; negative ones count from the end.  If an index occurs twice, either element may win.
        source: as many elements as indices, of the dtype of `input`.
        accumulate: whether to add to the elements of `input`; then each repetition of an index counts.

    Raises:
        TypeError: if the dtype of `index` is no integer dtype, or the other two dtypes differ.
        ValueError: if there are not as many elements as indices.
        IndexError: if an index is out of range, when the result is read.

    Example:
        >>> flow.put(flow.zeros(2, 2), flow.tensor([0, -1]), flow.tensor([5.0, 6.0]))
        tensor([[5., 0.],
                [0., 6.]])
    """
    check_tensors("put", input, index, source)
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
    """Copy `input` with the elements of `source`, in order, where `mask` is True; `input` and `mask` broadcast.

    Args:
        input: any tensor.
        mask: a tensor of bools.
        source: of the dtype of `input`, with at least as many elements as the broadcast mask has true ones.

    Raises:
        TypeError: if the mask is no bool tensor, or the other two dtypes differ.
        ValueError: if `input` and `mask` do not broadcast.
        IndexError: if `source` has too few elements, when the result is read.

    Example:
        >>> flow.masked_scatter(flow.zeros(3), flow.tensor([True, False, True]), flow.tensor([5.0, 6.0]))
        tensor([5., 0., 6.])
    """
    check_tensors("masked_scatter", input, mask, source)
    if mask.dtype is not dtypes.bool_:
        raise TypeError(f"masked_scatter: the mask must be a bool tensor, not {mask.dtype.name}")
    if source.dtype is not input.dtype:
        raise TypeError(f"masked_scatter: expected one dtype, got {input.dtype.name} and {source.dtype.name}")
    shape = broadcast_shapes("masked_scatter", tuple(input.shape), tuple(mask.shape))
    if 0 in shape:
        return expand(input, shape).clone()
    chosen = ravel(expand(mask, shape))
    # Each True element of the flattened mask takes the next source element.  The others gather the additional zero in
    # front, which exists also for an empty source, and are dropped by `where`.
    elements = cat([source.new_zeros((1,)), ravel(source)])
    places = chosen.cumsum(0) * chosen
    return where(expand(mask, shape), reshape(gather(elements, 0, places), shape), input)


# Python functions for each element


@method()
def apply_(self: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Replace each element x by ``callable(x)``, called with Python numbers.  Waits for the values, and is slow.

    Raises:
        TypeError: if the tensor is not on the CPU.

    Example:
        >>> flow.tensor([1.0, 2.0]).apply_(lambda element: element + 1)
        tensor([2., 3.])
    """
    return _replaced_by("apply_", callable, self)


@method()
def map_(self: Tensor, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Replace each element by ``callable(element, element of tensor)``; `tensor` broadcasts to this tensor's shape.

    Raises:
        TypeError: if a tensor is not on the CPU.
        ValueError: if `tensor` does not broadcast to the shape of this one.

    Example:
        >>> flow.tensor([1.0, 5.0]).map_(flow.tensor([3.0, 3.0]), max)
        tensor([3., 5.])
    """
    return _replaced_by("map_", callable, self, tensor)


@method()
def map2_(self: Tensor, x: Tensor, y: Tensor, callable: Callable[[Any, Any, Any], Any]) -> Tensor:
    """Replace each element by ``callable(element, x's element, y's element)``; both broadcast to this tensor's shape.

    Raises:
        TypeError, ValueError: as `map_`.

    Example:
        >>> flow.tensor([1.0, 5.0]).map2_(flow.tensor([3.0, 3.0]), flow.tensor(4.0), max)
        tensor([4., 5.])
    """
    return _replaced_by("map2_", callable, self, x, y)


def _replaced_by(name: str, function: Callable[..., Any], target: Tensor, *others: Tensor) -> Tensor:
    if any([other.device.type != "cpu" for other in (target, *others)]):
        raise TypeError(f"{name}: Python functions are called for tensors on the CPU alone; move them with cpu()")
    columns = [other.detach().expand(target.shape).reshape(-1).tolist() for other in (target, *others)]
    values = [function(*elements) for elements in zip(*columns, strict=True)]
    return copy_(target, beside(new_tensor(values, dtype=target.dtype), target).reshape(target.shape))
