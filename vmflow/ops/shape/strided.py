"""Views by sizes and strides (`as_strided`, `unfold`), copies with a part replaced, `resize_` and `set_`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, cast

from vmflow import interpreter as _interpreter
from vmflow.arguments import whole_number
from vmflow.instructions.blob import contiguous_strides
from vmflow.kernels.problems.indexing import Geometry
from vmflow.memory_formats import contiguous_format, preserve_format
from vmflow.operands import check_tensors
from vmflow.ops.creation.creation import arange
from vmflow.ops.declaration import method, public
from vmflow.ops.destination import out_by_copy
from vmflow.ops.in_place import viewed_in_place
from vmflow.ops.indexing.indexing import AS_STRIDED, end_of, index_add, put_part
from vmflow.ops.table import Attributes, ViewExpr, normalize_dim
from vmflow.transfers import beside

from .joining import cat
from .view import flatten, movedim, place_in, reshape, sizes, sliced, unsqueeze, view_diagonal, view_slice

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

Shape = tuple[int, ...]


# as_strided


@public()
@viewed_in_place()
def as_strided(input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """A view with these sizes and strides instead of the input's.

    The view must stay within the memory that `input` itself spans, from its first to its last element; PyTorch allows
    the whole memory of the tensor that `input` is a view of.  Where several elements of the view share memory, the
    result of writing is undefined.  The elements of a global tensor count as if they were in C order from 0 on.

    Args:
        input: any tensor.
        size: of the view.
        stride: in elements, for each dimension.
        storage_offset: the offset of the view's first element in the storage, in elements; by default that of `input`.

    Raises:
        TypeError: if `size` or `stride` is no sequence of integers.
        ValueError: if a size, a stride or the offset is negative, or there are not as many strides as sizes.
        RuntimeError: if the view would reach beyond the memory of `input`.

    Example:
        >>> flow.as_strided(flow.arange(4), (3, 2), (1, 1))
        tensor([[0, 1],
                [1, 2],
                [2, 3]])
    """
    check_tensors("as_strided", input)
    return _interpreter.dispatch_view(AS_STRIDED, input, _geometries(input, size, stride, storage_offset))


def _geometries(
    input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None
) -> tuple[Geometry, Geometry]:
    """Check the arguments of `as_strided`; return the geometries of the view and of `input`."""
    shape, strides = sizes("as_strided", (tuple(size),)), sizes("as_strided", (tuple(stride),))
    offset = (
        input.storage_offset()
        if storage_offset is None
        else whole_number("as_strided", "storage_offset", storage_offset)
    )
    if len(shape) != len(strides):
        raise ValueError(f"as_strided: {len(shape)} sizes {list(shape)} need as many strides, got {list(strides)}")
    if any([number < 0 for number in (*shape, *strides, offset)]):
        raise ValueError(
            f"as_strided: sizes, strides and offset cannot be negative, got {list(shape)}, {list(strides)} and {offset}"
        )
    viewed: Geometry = (shape, strides, offset)
    own: Geometry = (tuple(input.shape), tuple(input.stride()), input.storage_offset())
    if 0 not in shape and not own[2] <= offset < end_of(viewed) <= end_of(own):
        raise RuntimeError(
            f"as_strided: sizes {list(shape)} and strides {list(strides)} from {offset} reach up to element "
            f"{end_of(viewed)}, beyond the tensor's memory, which is from {own[2]} to {end_of(own)}"
        )
    return viewed, own


# Windows


def _view_unfold(attributes: Attributes, shape: Shape, strides: Shape, offset: int) -> Geometry:
    axis, size, step = cast("tuple[int, int, int]", attributes)
    count = (shape[axis] - size) // step + 1
    return (
        (*shape[:axis], count, *shape[axis + 1 :], size),
        (*strides[:axis], strides[axis] * step, *strides[axis + 1 :], strides[axis]),
        offset,
    )


_UNFOLD = ViewExpr("unfold", _view_unfold)


@_UNFOLD.gradient()
def _unfold_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    axis, size, step = cast("tuple[int, int, int]", node.attributes)
    starts, within = [beside(arange(count, device=gradient.device), gradient) for count in (gradient.shape[axis], size)]
    places = flatten(unsqueeze(starts * step, 1) + within)
    windows = flatten(movedim(gradient, -1, axis + 1), axis, axis + 1)
    zeros = gradient.new_zeros(tuple(node.meta(0).shape))
    return (index_add(zeros, axis, places, windows),)


@method()
def unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """View all windows along a dimension, which becomes that of the windows; a new last dimension has their elements.

    Args:
        input: any tensor.
        dimension: the dimension along which the windows lie.
        size: of a window, in elements.
        step: the distance between the starts of neighbouring windows, in elements.

    Raises:
        TypeError: if `size` or `step` is no integer.
        IndexError: if the dimension does not exist.
        ValueError: if a window does not fit into the dimension, or the step is not positive.

    Example:
        >>> flow.arange(4).unfold(0, 2, 1)
        tensor([[0, 1],
                [1, 2],
                [2, 3]])
    """
    axis = normalize_dim("unfold", dimension, input.ndim)
    size, step = whole_number("unfold", "the size", size), whole_number("unfold", "the step", step)
    length = input.shape[axis] if input.ndim else 1
    if not 0 <= size <= length:
        raise ValueError(f"unfold: a window of {size} does not fit into dimension {dimension} of size {length}")
    if step <= 0:
        raise ValueError(f"unfold: the step must be positive, not {step}")
    if input.ndim == 0:
        return sliced(reshape(input, (1,)), 0, 0, size)
    return _interpreter.dispatch_view(_UNFOLD, input, (axis, size, step))


# Copies with a part replaced


def _replaced(name: str, input: Tensor, src: Tensor, part: Geometry) -> Tensor:
    if tuple(src.shape) != part[0]:
        raise ValueError(f"{name}: expected a source of shape {list(part[0])}, got {list(src.shape)}")
    return put_part(input, src, part)


@public()
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """Copy `input` with `src` in place of ``input.select(dim, index)``.

    Raises:
        IndexError: if the dimension or the index does not exist.
        ValueError: if the shape of `src` is not that of ``input.select(dim, index)``.

    Example:
        >>> flow.select_scatter(flow.zeros(2, 2), flow.ones(2), 0, 1)
        tensor([[0., 0.],
                [1., 1.]])
    """
    check_tensors("select_scatter", input, src)
    axis, place = place_in("select_scatter", input, dim, index)
    shape = tuple(input.shape)
    size, strides, offset = view_slice((axis, place, 1, 1), shape, contiguous_strides(shape), 0)
    without = (size[:axis] + size[axis + 1 :], strides[:axis] + strides[axis + 1 :], offset)
    return _replaced("select_scatter", input, src, without)


@public()
@out_by_copy()
def slice_scatter(
    input: Tensor,
    src: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Copy `input` with `src` in place of ``input[start:end:step]`` of dimension `dim`.

    Raises:
        IndexError: if the dimension does not exist.
        ValueError: if the shape of `src` is not that of the slice, or the step is not positive.

    Example:
        >>> flow.slice_scatter(flow.zeros(4), flow.ones(2), start=1, end=3)
        tensor([0., 1., 1., 0.])
    """
    check_tensors("slice_scatter", input, src)
    axis = normalize_dim("slice_scatter", dim, input.ndim)
    if input.ndim == 0:
        raise IndexError("slice_scatter: a 0-d tensor has no dimension to take a part of")
    start, end = [None if limit is None else whole_number("slice_scatter", "a limit", limit) for limit in (start, end)]
    step = whole_number("slice_scatter", "the step", step)
    if step <= 0:
        raise ValueError(f"slice_scatter: the step must be positive, not {step}")
    shape = tuple(input.shape)
    chosen = range(*slice(start, end, step).indices(shape[axis]))
    attributes = (axis, chosen.start if chosen else 0, len(chosen), step)
    part = view_slice(attributes, shape, contiguous_strides(shape), 0)
    return _replaced("slice_scatter", input, src, part)


@public()
def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Copy `input` with `src` in place of ``input.diagonal(offset, dim1, dim2)``.

    Raises:
        IndexError: if a dimension does not exist.
        ValueError: if the shape of `src` is not that of the diagonal, or both dimensions are the same.

    Example:
        >>> flow.diagonal_scatter(flow.zeros(2, 2), flow.tensor([1.0, 2.0]))
        tensor([[1., 0.],
                [0., 2.]])
    """
    check_tensors("diagonal_scatter", input, src)
    first = normalize_dim("diagonal_scatter", dim1, input.ndim)
    second = normalize_dim("diagonal_scatter", dim2, input.ndim)
    if first == second:
        raise ValueError(f"diagonal_scatter: dim1 and dim2 are the same dimension ({dim1} and {dim2})")
    shape, offset = tuple(input.shape), whole_number("diagonal_scatter", "the offset", offset)
    part = view_diagonal((offset, first, second), shape, contiguous_strides(shape), 0)
    return _replaced("diagonal_scatter", input, src, part)


@public()
def as_strided_scatter(
    input: Tensor, src: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """Copy `input` with `src` in place of ``input.as_strided(size, stride, storage_offset)``.

    Raises:
        ValueError: if `input` is not contiguous, the shape of `src` is not `size`, or as for `as_strided`.
        RuntimeError: if the view would reach beyond the memory of `input`.

    Example:
        >>> flow.as_strided_scatter(flow.zeros(4), flow.ones(2), (2,), (2,))
        tensor([1., 0., 1., 0.])
    """
    check_tensors("as_strided_scatter", input, src)
    if not input.is_contiguous():
        raise ValueError(f"as_strided_scatter: the input's strides {list(input.stride())} leave gaps; use contiguous()")
    (shape, strides, offset), own = _geometries(input, size, stride, storage_offset)
    return _replaced("as_strided_scatter", input, src, (shape, strides, offset - own[2]))


@method()
def fill_diagonal_(input: Tensor, fill_value: float, wrap: bool = False) -> Tensor:
    """Fill the main diagonal: the elements all of whose indices are the same.

    Args:
        input: of two dimensions, or of more dimensions that all have the same size.
        fill_value: a number.
        wrap: whether the diagonal of a matrix with more rows than columns begins again, after one row without it.

    Raises:
        ValueError: for less than two dimensions, or more than two of different sizes.

    Example:
        >>> flow.zeros(2, 2).fill_diagonal_(5)
        tensor([[5., 0.],
                [0., 5.]])
    """
    if input.ndim < 2 or (input.ndim > 2 and len(set(input.shape)) > 1):
        raise ValueError(
            f"fill_diagonal_: expected a matrix, or more dimensions of one size, got shape {list(input.shape)}"
        )
    if input.ndim > 2:
        as_strided(input, (input.shape[0],), (sum(input.stride()),)).fill_(fill_value)
        return input
    rows, columns = input.shape
    for first in range(0, rows, columns + 1) if wrap else (0,):
        input[first:].diagonal().fill_(fill_value)
    return input


# Another size, or other memory


@viewed_in_place(documented=True)
def resize(input: Tensor, *shape: Any, memory_format: Any = None) -> Tensor:
    """Give the tensor another shape, with its first elements in the same order.

    Additional elements are uninitialized; for them, or if the tensor is not contiguous, it moves to new memory, always
    in C order.

    Raises:
        RuntimeError: if the tensor requires a gradient.
        TypeError: if a size is no integer.
        ValueError: if a size is negative, or `memory_format` asks for another order than C order.

    Example:
        >>> flow.arange(4).resize_(1, 3)
        tensor([[0, 1, 2]])
    """
    if input.requires_grad:
        raise RuntimeError("resize_: a tensor that requires a gradient cannot be resized; detach() it first")
    if memory_format not in (None, contiguous_format, preserve_format):
        raise ValueError(
            f"resize_: the elements stay in C order, not in {memory_format!r}; call `contiguous` afterwards"
        )
    wanted = sizes("resize_", shape)
    count = prod(wanted)
    if count <= input.numel() and input.is_contiguous():
        return as_strided(input, wanted, contiguous_strides(wanted))
    kept = flatten(input)[:count]
    return reshape(cat([kept, input.new_empty(count - kept.shape[0])]), wanted)


@viewed_in_place(documented=True)
def resize_as(input: Tensor, the_template: Tensor, memory_format: Any = None) -> Tensor:
    """Give the tensor the shape of another tensor, as `resize_` does.

    Raises:
        RuntimeError, ValueError: as `resize_`.

    Example:
        >>> flow.arange(4).resize_as_(flow.zeros(1, 3))
        tensor([[0, 1, 2]])
    """
    return resize(input, tuple(the_template.shape), memory_format=memory_format)


@method()
def set_(input: Tensor, source: Tensor) -> Tensor:
    """Let `input` share the memory, shape and strides of `source`, as ``input.data = source`` does.

    Raises:
        TypeError: if dtypes or devices differ, or `source` is no tensor.

    Example:
        >>> flow.zeros(3).set_(flow.tensor([1.0, 2.0]))
        tensor([1., 2.])
    """
    check_tensors("set_", source)
    if source.dtype is not input.dtype or source.device is not input.device:
        raise TypeError(
            f"set_: a tensor of {input.dtype.name} on {input.device} cannot share memory of {source.dtype.name} on "
            f"{source.device}"
        )
    input.data = source
    return input
