"""Views: ops whose results share the input's memory with another shape, strides or offset, and issue no instruction.

Where no view is possible (some reshapes of strided tensors), `view` and `view_as` raise; other functions copy.  Some
views of global tensors exchange parts, and share no memory with the tensor.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, cast

from vmflow import interpreter as _interpreter
from vmflow.arguments import is_integer, whole_number
from vmflow.instructions.blob import contiguous_strides, meta
from vmflow.operands import check_tensors
from vmflow.ops.copying import clone, conform
from vmflow.ops.declaration import attribute, function, method, public
from vmflow.ops.in_place import viewed_in_place
from vmflow.ops.table import Attributes, ViewExpr, as_tuple, broadcast_shapes, normalize_dim, normalize_dims

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

Shape = tuple[int, ...]
Viewed = tuple[Shape, Shape, int]


def sizes(name: str, arguments: tuple[Any, ...], named: dict[str, Any] | None = None, called: str = "size") -> Shape:
    """Return sizes, or dimensions, that a caller gave as ``f(2, 3)``, ``f((2, 3))`` or by name as ``f(size=(2, 3))``.

    Args:
        name: of the called function, for errors.
        arguments: its positional arguments.
        named: its keyword arguments.
        called: the name of the allowed keyword.

    Raises:
        TypeError: if sizes are not integers, for another keyword, or for sizes given twice.
    """
    if named:
        if arguments or set(named) != {called}:
            raise TypeError(f"{name}: unexpected arguments {', '.join(named)}; expected {called}, once")
        arguments = (named[called],)
    if len(arguments) == 1 and isinstance(arguments[0], (tuple, list)):
        arguments = tuple(arguments[0])
    for size in arguments:
        if not is_integer(size):
            raise TypeError(f"{name}: sizes are integers, not {size!r}")
    return tuple([operator.index(size) for size in arguments])


def lengths(name: str, arguments: tuple[Any, ...], named: dict[str, Any] | None = None) -> Shape:
    """Return the sizes, none negative, that a caller gave for a new tensor; see `sizes`.

    Raises:
        TypeError: as `sizes`.
        ValueError: if a size is negative.
    """
    shape = sizes(name, arguments, named)
    if any([length < 0 for length in shape]):
        raise ValueError(f"{name}: sizes cannot be negative, got {list(shape)}")
    return shape


# Reshaping


def _resolve_shape(name: str, shape: Shape, numel: int) -> Shape:
    """Return `shape` with the size that `numel` elements require in place of -1.

    Raises:
        ValueError: if `shape` cannot hold exactly `numel` elements, has more than one -1, a size below -1, or a size of
            0 beside -1.
    """
    if shape.count(-1) > 1:
        raise ValueError(f"{name}: only one size can be -1, got {list(shape)}")
    if any(size < -1 for size in shape):
        raise ValueError(f"{name}: sizes cannot be negative, got {list(shape)}")
    if -1 in shape:
        known = prod(size for size in shape if size != -1)
        if known == 0 or numel % known:
            raise ValueError(f"{name}: {numel} elements do not fit into the shape {list(shape)}")
        shape = tuple([numel // known if size == -1 else size for size in shape])
    if prod(shape) != numel:
        raise ValueError(f"{name}: {numel} elements do not fit into the shape {list(shape)}")
    return shape


def reshaped_strides(old: Shape, strides: Shape, new: Shape) -> Shape | None:
    """Return strides by which a tensor of shape `old` can be viewed in the shape `new`; None if there are none.

    Dimensions that are contiguous with each other are merged into runs, which are then cut into the new sizes.
    """
    if prod(new) == 0:
        return contiguous_strides(new)
    runs: list[list[int]] = []  # [number of elements, stride between them] of each run
    for size, stride in zip(old, strides, strict=True):
        if size == 1:
            continue
        if runs and runs[-1][1] == size * stride:
            runs[-1][0] *= size
            runs[-1][1] = stride
        else:
            runs.append([size, stride])
    result = [0] * len(new)
    left, stride = runs.pop() if runs else (1, 1)
    for axis in range(len(new) - 1, -1, -1):
        size = new[axis]
        if left == 1 and size != 1 and runs:
            left, stride = runs.pop()
        if left % size:
            return None
        result[axis] = stride
        stride *= size
        left //= size
    return tuple(result)


def _view_reshape(attributes: Attributes, shape: Shape, strides: Shape, offset: int) -> Viewed:
    (new,) = cast("tuple[Shape]", attributes)
    new_strides = reshaped_strides(shape, strides, new)
    assert new_strides is not None
    return new, new_strides, offset


_RESHAPE = ViewExpr("reshape", _view_reshape)


@_RESHAPE.gradient()
def _reshape_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (reshape(gradient, node.meta(0).shape),)


@public()
def reshape(input: Tensor, *shape: Any, **named: Any) -> Tensor:
    """Give the elements, in order, another shape; one size may be -1.

    The result is `input` itself if it has that shape, else a view if the strides allow one, else a copy.

    Raises:
        TypeError: if a size is no integer.
        ValueError: if the elements do not fill the shape.

    Example:
        >>> flow.arange(6).reshape(2, -1)
        tensor([[0, 1, 2],
                [3, 4, 5]])
    """
    check_tensors("reshape", input)
    new = _resolve_shape("reshape", sizes("reshape", shape, named, "shape"), input.numel())
    if new == input.shape:
        return input
    if reshaped_strides(input.shape, input.stride(), new) is None:
        input = clone(input)
    return _interpreter.dispatch_view(_RESHAPE, input, (new,))


@method()
def view(input: Tensor, *size: Any, **named: Any) -> Tensor:
    """Give the elements, in order, another shape, without a copy; one size may be -1.

    Raises:
        TypeError: if a size is no integer.
        ValueError: if the elements do not fill the shape.
        RuntimeError: if the strides do not allow a view.

    Example:
        >>> flow.arange(6).view(2, 3)
        tensor([[0, 1, 2],
                [3, 4, 5]])
    """
    new = _resolve_shape("view", sizes("view", size, named), input.numel())
    if reshaped_strides(input.shape, input.stride(), new) is None:
        raise RuntimeError(
            f"view: a tensor of shape {list(input.shape)} and strides {list(input.stride())} cannot be viewed as "
            f"{list(new)} without copying; use reshape()"
        )
    return _interpreter.dispatch_view(_RESHAPE, input, (new,))


@method()
def view_as(input: Tensor, other: Tensor) -> Tensor:
    """View `input` in the shape of `other`; see `view`.

    Raises:
        ValueError: if the numbers of elements differ.
        RuntimeError: if the strides do not allow a view.

    Example:
        >>> flow.arange(4).view_as(flow.zeros(2, 2))
        tensor([[0, 1],
                [2, 3]])
    """
    return view(input, other.shape)


@method()
def reshape_as(input: Tensor, other: Tensor) -> Tensor:
    """Give `input` the shape of `other`; see `reshape`.

    Raises:
        ValueError: if the numbers of elements differ.

    Example:
        >>> flow.arange(4).reshape_as(flow.zeros(2, 2))
        tensor([[0, 1],
                [2, 3]])
    """
    return reshape(input, other.shape)


@public()
def ravel(input: Tensor) -> Tensor:
    """Reshape the tensor to a vector of its elements, in order.

    Raises:
        TypeError: if `input` is no tensor.

    Example:
        >>> flow.ravel(flow.tensor([[1, 2], [3, 4]]))
        tensor([1, 2, 3, 4])
    """
    check_tensors("ravel", input)
    return reshape(input, (-1,)) if input.numel() else reshape(input, (0,))


@public()
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Merge the dimensions from `start_dim` to `end_dim`, by `reshape`; a 0-d tensor becomes a vector.

    Raises:
        IndexError: if a dimension does not exist.
        ValueError: if `start_dim` comes after `end_dim`.

    Example:
        >>> flow.zeros(2, 3, 4).flatten(1).shape
        vmflow.Size([2, 12])
    """
    check_tensors("flatten", input)
    first = normalize_dim("flatten", start_dim, input.ndim)
    last = normalize_dim("flatten", end_dim, input.ndim)
    if first > last:
        raise ValueError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim}")
    shape = tuple(input.shape)
    return reshape(input, shape[:first] + (prod(shape[first : last + 1]),) + shape[last + 1 :])


@public(numpy_names=True)
def unflatten(input: Tensor, dim: int, sizes: tuple[int, ...]) -> Tensor:
    """Split a dimension into several dimensions of these sizes; one size may be -1.

    Raises:
        IndexError: if the dimension does not exist.
        TypeError: if a size is no integer.
        ValueError: if the product of the sizes is not the dimension's size.

    Example:
        >>> flow.arange(4).unflatten(0, (2, 2))
        tensor([[0, 1],
                [2, 3]])
    """
    check_tensors("unflatten", input)
    if not input.ndim:
        raise IndexError("unflatten: a 0-d tensor has no dimension to split")
    axis = normalize_dim("unflatten", dim, input.ndim)
    shape = tuple(input.shape)
    if not isinstance(sizes, Iterable):
        raise TypeError(f"unflatten: sizes must be a tuple of integers, not {sizes!r}")
    listed = tuple([whole_number("unflatten", "a size", size) for size in sizes])
    parts = _resolve_shape("unflatten", listed, shape[axis])
    return reshape(input, shape[:axis] + parts + shape[axis + 1 :])


@public(numpy_names=True)
@viewed_in_place()
def squeeze(input: Tensor, dim: int | tuple[int, ...] | None = None) -> Tensor:
    """Remove all dimensions of size 1, or only those of the dimensions `dim` that have size 1.

    Raises:
        IndexError: if a dimension does not exist.
        ValueError: if a dimension is named twice.

    Example:
        >>> flow.zeros(1, 2, 1).squeeze(0).shape
        vmflow.Size([2, 1])
    """
    check_tensors("squeeze", input)
    chosen = normalize_dims("squeeze", dim, input.ndim)
    return reshape(input, tuple([size for axis, size in enumerate(input.shape) if axis not in chosen or size != 1]))


@public(numpy_names=True)
@viewed_in_place()
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """Insert a dimension of size 1, which becomes the dimension `dim` of the result.

    Raises:
        IndexError: if `dim` is out of range.

    Example:
        >>> flow.tensor([1, 2]).unsqueeze(1)
        tensor([[1],
                [2]])
    """
    check_tensors("unsqueeze", input)
    axis = normalize_dim("unsqueeze", dim, input.ndim + 1)
    shape = tuple(input.shape)
    return _interpreter.dispatch_view(_RESHAPE, input, (shape[:axis] + (1,) + shape[axis:],))


# Reordering


def _view_permute(attributes: Attributes, shape: Shape, strides: Shape, offset: int) -> Viewed:
    (order,) = cast("tuple[Shape]", attributes)
    return tuple([shape[axis] for axis in order]), tuple([strides[axis] for axis in order]), offset


_PERMUTE = ViewExpr("permute", _view_permute)


@_PERMUTE.gradient()
def _permute_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    (order,) = cast("tuple[Shape]", node.attributes)
    return (permute(gradient, sorted(range(len(order)), key=order.__getitem__)),)


@public()
def permute(input: Tensor, *dims: Any, **named: Any) -> Tensor:
    """Reorder the dimensions.

    Raises:
        ValueError: if `dims` does not name each dimension once.
        IndexError: if a dimension does not exist.

    Example:
        >>> flow.zeros(2, 3, 4).permute(2, 0, 1).shape
        vmflow.Size([4, 2, 3])
    """
    check_tensors("permute", input)
    listed = sizes("permute", dims, named, "dims")
    if len(listed) != input.ndim:
        raise ValueError(f"permute: a {input.ndim}-d tensor needs {input.ndim} dims, got {list(listed)}")
    order = tuple([normalize_dim("permute", dim, input.ndim) for dim in listed])
    if len(set(order)) != len(order):
        raise ValueError(f"permute: dims {list(listed)} name one dimension twice")
    return _interpreter.dispatch_view(_PERMUTE, input, (order,))


@public("swapaxes", "swapdims")
@viewed_in_place("swapaxes", "swapdims")
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Exchange two dimensions.

    Raises:
        IndexError: if a dimension does not exist.

    Example:
        >>> flow.transpose(flow.tensor([[1, 2], [3, 4]]), 0, 1)
        tensor([[1, 3],
                [2, 4]])
    """
    check_tensors("transpose", input)
    if input.ndim == 0:
        normalize_dim("transpose", dim0, 0), normalize_dim("transpose", dim1, 0)
        return input
    first = normalize_dim("transpose", dim0, input.ndim)
    second = normalize_dim("transpose", dim1, input.ndim)
    order = list(range(input.ndim))
    order[first], order[second] = second, first
    return _interpreter.dispatch_view(_PERMUTE, input, (tuple(order),))


@public()
@viewed_in_place()
def t(input: Tensor) -> Tensor:
    """Transpose a matrix; a vector or a scalar stays as it is.

    Raises:
        ValueError: if there are more than two dimensions.

    Example:
        >>> flow.tensor([[1, 2], [3, 4]]).t()
        tensor([[1, 3],
                [2, 4]])
    """
    check_tensors("t", input)
    if input.ndim > 2:
        raise ValueError(f"t: expected at most 2 dimensions, got {input.ndim}; use transpose() or permute()")
    return transpose(input, 0, 1) if input.ndim == 2 else input


@attribute("T")
def reversed_dims(input: Tensor) -> Tensor:
    """The tensor with all dimensions in reverse order.

    Example:
        >>> flow.tensor([[1, 2], [3, 4]]).T
        tensor([[1, 3],
                [2, 4]])
    """
    return _interpreter.dispatch_view(_PERMUTE, input, (tuple(range(input.ndim - 1, -1, -1)),))


@public("moveaxis")
def movedim(input: Tensor, source: int | tuple[int, ...], destination: int | tuple[int, ...]) -> Tensor:
    """Move dimensions to other positions; all other dimensions keep their order.

    Raises:
        IndexError: if a dimension does not exist.
        ValueError: if a dimension is named twice, or there are not as many sources as destinations.

    Example:
        >>> flow.zeros(2, 3, 4).movedim(0, 2).shape
        vmflow.Size([3, 4, 2])
    """
    check_tensors("movedim", input)
    sources, targets = as_tuple(source), as_tuple(destination)
    if len(sources) != len(targets):
        raise ValueError(f"movedim: {len(sources)} sources and {len(targets)} destinations")
    rank = input.ndim
    sources = tuple([normalize_dim("movedim", dim, rank) for dim in sources])
    targets = tuple([normalize_dim("movedim", dim, rank) for dim in targets])
    if len(set(sources)) != len(sources) or len(set(targets)) != len(targets):
        raise ValueError(f"movedim: a dimension is named twice in {source} or {destination}")
    rest = iter([axis for axis in range(rank) if axis not in sources])
    placed = dict(zip(targets, sources, strict=True))
    return permute(input, [placed[axis] if axis in placed else next(rest) for axis in range(rank)])


# Broadcasting


def _view_expand(attributes: Attributes, shape: Shape, strides: Shape, offset: int) -> Viewed:
    (new,) = cast("tuple[Shape]", attributes)
    extra = len(new) - len(shape)
    kept = [stride if size == wanted else 0 for size, stride, wanted in zip(shape, strides, new[extra:], strict=True)]
    return new, (0,) * extra + tuple(kept), offset


_EXPAND = ViewExpr("expand", _view_expand)


@_EXPAND.gradient()
def _expand_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient,)  # autograd, the caller, sums a gradient over the expanded dimensions


@method()
def expand(input: Tensor, *size: Any, **named: Any) -> Tensor:
    """Repeat dimensions of size 1 without copying, and add dimensions in front; -1 keeps a size.

    Raises:
        TypeError: if a size is no integer.
        ValueError: if the tensor does not broadcast to these sizes.

    Example:
        >>> flow.tensor([[1], [2]]).expand(-1, 3)
        tensor([[1, 1, 1],
                [2, 2, 2]])
    """
    listed = sizes("expand", size, named)
    shape = tuple(input.shape)
    extra = len(listed) - len(shape)
    if extra < 0:
        raise ValueError(f"expand: {list(listed)} has fewer dimensions than the tensor's {list(shape)}")
    new: list[int] = []
    for axis, wanted in enumerate(listed):
        have = shape[axis - extra] if axis >= extra else 1
        if wanted == -1 and axis >= extra:
            wanted = have
        if wanted < 0 or have not in (1, wanted):
            raise ValueError(f"expand: a tensor of shape {list(shape)} does not expand to {list(listed)}")
        new.append(wanted)
    return _interpreter.dispatch_view(_EXPAND, input, (tuple(new),))


@method()
def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """Expand `input` to the shape of `other`; see `expand`.

    Raises:
        ValueError: as `expand`.

    Example:
        >>> flow.tensor([1, 2]).expand_as(flow.zeros(2, 2))
        tensor([[1, 2],
                [1, 2]])
    """
    return expand(input, other.shape)


@public()
def broadcast_to(input: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Expand `input` to `shape`; see `Tensor.expand`.

    Raises:
        ValueError: as `Tensor.expand`.

    Example:
        >>> flow.broadcast_to(flow.tensor([1, 2]), (2, 2))
        tensor([[1, 2],
                [1, 2]])
    """
    check_tensors("broadcast_to", input)
    return expand(input, shape)


@function()
def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Expand tensors to the shape to which they broadcast together.

    Raises:
        ValueError: if the shapes do not broadcast.

    Example:
        >>> flow.broadcast_tensors(flow.tensor([1, 2]), flow.tensor([[3]]))
        (tensor([[1, 2]]), tensor([[3, 3]]))
    """
    if not tensors:
        return ()
    check_tensors("broadcast_tensors", *tensors)
    shape = broadcast_shapes("broadcast_tensors", *[tuple(tensor.shape) for tensor in tensors])
    return tuple([expand(tensor, shape) for tensor in tensors])


@function()
def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """The coordinates of a grid: each vector expanded along the dimensions of the others.

    Args:
        tensors: vectors or 0-d tensors; also given as one list.
        indexing: with "ij" (as with None) the first vector varies along the first dimension, with "xy" along the
            second.

    Raises:
        ValueError: if a tensor has more than one dimension, or for another `indexing`.

    Example:
        >>> flow.meshgrid(flow.tensor([1, 2]), flow.tensor([3, 4]), indexing="ij")
        (tensor([[1, 1],
                [2, 2]]), tensor([[3, 4],
                [3, 4]]))
    """
    listed: Any = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    check_tensors("meshgrid", *listed)
    if indexing not in (None, "ij", "xy"):
        raise ValueError(f"meshgrid: indexing must be 'ij' or 'xy', not {indexing!r}")
    if any([tensor.ndim > 1 for tensor in listed]):
        raise ValueError(f"meshgrid: expected vectors, got shapes {[list(tensor.shape) for tensor in listed]}")
    vectors = [reshape(tensor, (tensor.numel(),)) for tensor in listed]
    swapped = indexing == "xy" and len(vectors) > 1
    if swapped:
        vectors[:2] = vectors[1::-1]
    shape = tuple([vector.shape[0] for vector in vectors])
    grid = [
        expand(reshape(vector, (1,) * axis + (-1 if vector.numel() else 0,) + (1,) * (len(shape) - axis - 1)), shape)
        for axis, vector in enumerate(vectors)
    ]
    if swapped:
        grid[:2] = grid[1::-1]
    return tuple(grid)


# Cutting


def view_slice(attributes: Attributes, shape: Shape, strides: Shape, offset: int) -> Viewed:
    axis, start, length, step = cast("tuple[int, int, int, int]", attributes)
    return (
        shape[:axis] + (length,) + shape[axis + 1 :],
        strides[:axis] + (strides[axis] * step,) + strides[axis + 1 :],
        offset + start * strides[axis],
    )


# The gradient rules of `SLICE` and `DIAGONAL` are declared in `gathering`.
SLICE = ViewExpr("slice", view_slice, is_slice=True)


def sliced(input: Tensor, axis: int, start: int, length: int, step: int = 1) -> Tensor:
    """View `length` elements of the dimension `axis`: every `step`-th from `start` (0 or more) on."""
    return _interpreter.dispatch_view(SLICE, input, (axis, start, length, step))


@public(numpy_names=True)
def narrow(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """View `length` elements of a dimension from `start`, which may count from the end.

    Raises:
        IndexError: if the dimension or one of the elements does not exist.

    Example:
        >>> flow.narrow(flow.arange(5), 0, 1, 3)
        tensor([1, 2, 3])
    """
    check_tensors("narrow", input)
    axis = normalize_dim("narrow", dim, input.ndim)
    size = _size("narrow", input, axis)
    first, length = whole_number("narrow", "start", start), whole_number("narrow", "length", length)
    begin = first + size if first < 0 else first
    if length < 0 or not 0 <= begin <= size - length:
        raise IndexError(f"narrow: {length} elements from {first} are not within dimension {dim} of size {size}")
    return sliced(input, axis, begin, length)


@public()
def narrow_copy(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """Copy `length` elements of a dimension from `start`; see `narrow`.

    Raises:
        IndexError: as `narrow`.

    Example:
        >>> flow.narrow_copy(flow.arange(5), 0, 1, 3)
        tensor([1, 2, 3])
    """
    return clone(narrow(input, dim, start, length))


@public(numpy_names=True)
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """View the slice at one index of a dimension, without that dimension.

    Raises:
        IndexError: if the dimension or the index does not exist.

    Example:
        >>> flow.select(flow.tensor([[1, 2], [3, 4]]), 1, 0)
        tensor([1, 3])
    """
    check_tensors("select", input)
    axis, place = place_in("select", input, dim, index)
    shape = tuple(input.shape)
    part = sliced(input, axis, place, 1)
    return _interpreter.dispatch_view(_RESHAPE, part, (shape[:axis] + shape[axis + 1 :],))


def place_in(name: str, input: Tensor, dim: int, index: int) -> tuple[int, int]:
    """Return a dimension and an index in it, which may count from the end, as numbers that count from the front.

    Raises:
        IndexError: if the dimension or the index does not exist.
    """
    axis = normalize_dim(name, dim, input.ndim)
    size = _size(name, input, axis)
    place = whole_number(name, "the index", index)
    if not -size <= place < size:
        raise IndexError(f"{name}: index {place} is out of range for dimension {dim} of size {size}")
    return axis, place % size


def _size(name: str, input: Tensor, axis: int) -> int:
    if input.ndim == 0:
        raise IndexError(f"{name}: a 0-d tensor has no dimension to take a part of")
    return input._blob.meta.sizes[axis]


@public("unsafe_split", numpy_names=True)
def split(
    tensor: Tensor, split_size_or_sections: int | list[int] | tuple[int, ...], dim: int = 0
) -> tuple[Tensor, ...]:
    """Cut a dimension into pieces of one size (the last may be smaller), or of the sizes in a list.

    Raises:
        IndexError: if the dimension does not exist.
        ValueError: if sizes in a list do not add up to the dimension's or one is negative; if one size for all pieces
            is negative, or 0 for a dimension with elements.

    Example:
        >>> flow.split(flow.arange(5), 2)
        (tensor([0, 1]), tensor([2, 3]), tensor([4]))
    """
    check_tensors("split", tensor)
    axis = normalize_dim("split", dim, tensor.ndim)
    size = _size("split", tensor, axis)
    if isinstance(split_size_or_sections, (tuple, list)):
        lengths = [whole_number("split", "a size", section) for section in split_size_or_sections]
        if sum(lengths) != size or any(length < 0 for length in lengths):
            raise ValueError(f"split: sizes {lengths} do not add up to dimension {dim} of size {size}")
    else:
        piece = whole_number("split", "the size of a piece", split_size_or_sections)
        if piece < 0 or (piece == 0 and size):
            raise ValueError(f"split: the size of a piece must be positive, not {piece}")
        lengths = [min(piece, size - start) for start in range(0, size, piece or 1)] or [0]
    pieces: list[Tensor] = []
    start = 0
    for length in lengths:
        pieces.append(sliced(tensor, axis, start, length))
        start += length
    return tuple(pieces)


@public("unsafe_chunk", numpy_names=True)
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Cut a dimension into at most `chunks` pieces of equal size (the last may be smaller).

    A dimension of size 0 is cut into exactly `chunks` pieces.

    Raises:
        IndexError: if the dimension does not exist.
        ValueError: if `chunks` is not positive.

    Example:
        >>> flow.chunk(flow.arange(5), 2)
        (tensor([0, 1, 2]), tensor([3, 4]))
    """
    check_tensors("chunk", input)
    if whole_number("chunk", "the number of chunks", chunks) <= 0:
        raise ValueError(f"chunk: the number of chunks must be positive, not {chunks}")
    size = _size("chunk", input, normalize_dim("chunk", dim, input.ndim))
    return split(input, -(-size // chunks) if size else [0] * chunks, dim)


@public(numpy_names=True)
def tensor_split(
    input: Tensor, indices_or_sections: int | tuple[int, ...] | list[int], dim: int = 0
) -> tuple[Tensor, ...]:
    """Cut a dimension into ``[:i]``, ``[i:j]``, ... at the given indices, or into a number of nearly equal pieces.

    The sizes of such pieces differ by at most 1; the larger ones come first.

    Raises:
        IndexError: if the dimension does not exist.
        ValueError: if the number of pieces is not positive.

    Example:
        >>> flow.tensor_split(flow.arange(5), 2)
        (tensor([0, 1, 2]), tensor([3, 4]))
    """
    check_tensors("tensor_split", input)
    axis = normalize_dim("tensor_split", dim, input.ndim)
    size = _size("tensor_split", input, axis)
    if not isinstance(indices_or_sections, Iterable) or getattr(indices_or_sections, "ndim", 1) == 0:
        count = whole_number("tensor_split", "the number of pieces", indices_or_sections)
        if count <= 0:
            raise ValueError(f"tensor_split: the number of pieces must be positive, not {count}")
        cuts = [size // count * index + min(index, size % count) for index in range(1, count)]
    else:
        indices = [whole_number("tensor_split", "an index", section) for section in indices_or_sections]
        cuts = [slice(start, None).indices(size)[0] for start in indices]
    bounds = [0, *cuts, size]
    return tuple([sliced(input, axis, first, max(last - first, 0)) for first, last in pairwise(bounds)])


@public(numpy_names=True)
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Split a tensor into its slices along a dimension, without that dimension.

    Raises:
        IndexError: if the dimension does not exist.

    Example:
        >>> flow.unbind(flow.tensor([[1, 2], [3, 4]]))
        (tensor([1, 2]), tensor([3, 4]))
    """
    check_tensors("unbind", input)
    axis = normalize_dim("unbind", dim, input.ndim)
    return tuple([select(input, axis, index) for index in range(_size("unbind", input, axis))])


def view_diagonal(attributes: Attributes, shape: Shape, strides: Shape, offset: int) -> Viewed:
    diagonal, first, second = cast("tuple[int, int, int]", attributes)
    rows, columns = shape[first], shape[second]
    length = max(0, min(rows, columns - diagonal) if diagonal >= 0 else min(rows + diagonal, columns))
    if length:
        offset += diagonal * strides[second] if diagonal >= 0 else -diagonal * strides[first]
    rest = [axis for axis in range(len(shape)) if axis not in (first, second)]
    return (
        tuple([shape[axis] for axis in rest]) + (length,),
        tuple([strides[axis] for axis in rest]) + (strides[first] + strides[second],),
        offset,
    )


DIAGONAL = ViewExpr("diagonal", view_diagonal)


@public()
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """View the diagonal of two dimensions as the last dimension; `offset` > 0 means above the main one, < 0 below.

    Raises:
        IndexError: if a dimension does not exist.
        ValueError: if both dimensions are the same.

    Example:
        >>> flow.diagonal(flow.tensor([[1, 2], [3, 4]]))
        tensor([1, 4])
    """
    check_tensors("diagonal", input)
    first = normalize_dim("diagonal", dim1, input.ndim)
    second = normalize_dim("diagonal", dim2, input.ndim)
    if first == second:
        raise ValueError(f"diagonal: dim1 and dim2 are the same dimension ({dim1} and {dim2})")
    return _interpreter.dispatch_view(DIAGONAL, input, (whole_number("diagonal", "offset", offset), first, second))


@attribute("mT")
def mT(self: Tensor) -> Tensor:
    """The tensor with its last two dimensions exchanged.

    Raises:
        IndexError: if there are less than two dimensions.

    Example:
        >>> flow.tensor([[1, 2], [3, 4]]).mT
        tensor([[1, 3],
                [2, 4]])
    """
    return transpose(self, -1, -2)


@method()
def sum_to_size(self: Tensor, *size: Any) -> Tensor:
    """Sum the tensor to the shape `size`: over the dimensions along which `size` would broadcast to the tensor's shape.

    Raises:
        ValueError: if `size` does not broadcast to the tensor's shape.

    Example:
        >>> flow.ones(2, 3).sum_to_size(1, 3)
        tensor([[2., 2., 2.]])
    """
    wanted = sizes("sum_to_size", size)
    shape = tuple(self.shape)
    if len(wanted) > len(shape) or broadcast_shapes("sum_to_size", shape, wanted) != shape:
        raise ValueError(f"sum_to_size: a tensor of shape {list(wanted)} does not broadcast to {list(shape)}")
    return conform(self, meta(wanted, self.dtype, self.device))
