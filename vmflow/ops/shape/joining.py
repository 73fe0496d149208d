"""Ops that join, repeat, flip and roll tensors, and cut triangles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from vmflow import interpreter as _interpreter, tensors as _tensors
from vmflow.arguments import whole_number
from vmflow.dtypes import INTEGER, int64
from vmflow.instructions.blob import meta
from vmflow.operands import check_tensors, listed_tensors
from vmflow.ops.declaration import function, method, public
from vmflow.ops.destination import delivered, out_by_copy
from vmflow.ops.elementwise.inference import CHEAP, result_dtype
from vmflow.ops.in_place import copied_in_place
from vmflow.ops.indexing.gathering import scatter_diagonal
from vmflow.ops.indexing.indexing import index_select
from vmflow.ops.table import (
    Attributes,
    Dim,
    Form,
    Inferred,
    Kinds,
    Metas,
    OpExpr,
    Size,
    as_tuple,
    common_device,
    normalize_dim,
    normalize_dims,
)
from vmflow.ops.value_shapes import from_values

from .view import sizes, sliced, unsqueeze

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor


def _infer_cat(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (axis,) = cast("tuple[int]", attributes)
    device = common_device("cat", metas)
    first = metas[0].shape
    for other in metas:
        if len(other.shape) != len(first) or any(
            size != expected
            for value, (size, expected) in enumerate(zip(other.shape, first, strict=False))
            if value != axis
        ):
            raise ValueError(
                f"cat: shapes {list(first)} and {list(other.shape)} must agree in all dimensions except {axis}"
            )
    total = sum([meta.shape[axis] for meta in metas])
    output = meta(first[:axis] + (total,) + first[axis + 1 :], result_dtype(metas), device)
    return Inferred(output, output.numel * CHEAP)


_CAT = OpExpr("cat", _infer_cat, Form((1, None), tuple[Dim]), "joining")


@_CAT.gradient()
def _cat_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, ...]:
    (axis,) = cast("tuple[int]", node.attributes)
    start = 0
    pieces: list[Tensor | None] = []
    for source, needed in zip(node.metas, node.needs, strict=True):
        length = source.shape[axis]
        pieces.append(sliced(gradient, axis, start, length) if needed else None)
        start += length
    return tuple(pieces)


@function("concat", "concatenate", numpy_names=True)
def cat(tensors: Sequence[Tensor], dim: int = 0, *, out: Tensor | None = None) -> Tensor:
    """Join tensors one after the other along `dim`; the tensors' other sizes must agree.

    Dtypes promote.  An empty vector fits any shape and adds only its dtype, as in PyTorch.

    Raises:
        ValueError: if there is no tensor, a tensor has no dimension, or shapes do not agree.
        IndexError: if the dimension does not exist.

    Example:
        >>> flow.cat([flow.tensor([1, 2]), flow.tensor([3])])
        tensor([1, 2, 3])
    """
    listed = listed_tensors("cat", tensors)
    if out is not None:
        return delivered("cat", out, listed, lambda: cat(listed, dim))
    if not listed:
        raise ValueError("cat: expected at least one tensor")
    if any([tensor.ndim == 0 for tensor in listed]):
        raise ValueError("cat: 0-d tensors cannot be concatenated; use stack()")
    counted = tuple([tensor for tensor in listed if tensor.shape != (0,)])
    if len(counted) in (0, len(listed)):
        return _interpreter.dispatch(_CAT, listed, (normalize_dim("cat", dim, listed[0].ndim),))
    dtype = result_dtype(tuple([tensor._blob.meta for tensor in listed]))
    return _interpreter.dispatch(_CAT, counted, (normalize_dim("cat", dim, counted[0].ndim),)).to(dtype)


@function(numpy_names=True)
def stack(tensors: Sequence[Tensor], dim: int = 0, *, out: Tensor | None = None) -> Tensor:
    """Join tensors of one shape along a new dimension.

    Raises:
        ValueError: if there is no tensor, or shapes differ.
        IndexError: if the new dimension is out of range.

    Example:
        >>> flow.stack([flow.tensor([1, 2]), flow.tensor([3, 4])])
        tensor([[1, 2],
                [3, 4]])
    """
    listed = listed_tensors("stack", tensors)
    if out is not None:
        return delivered("stack", out, listed, lambda: stack(listed, dim))
    if not listed:
        raise ValueError("stack: expected at least one tensor")
    for other in listed:
        if other.shape != listed[0].shape:
            raise ValueError(f"stack: shapes {list(listed[0].shape)} and {list(other.shape)} differ")
    axis = normalize_dim("stack", dim, listed[0].ndim + 1)
    return _interpreter.dispatch(_CAT, tuple([unsqueeze(tensor, axis) for tensor in listed]), (axis,))


@function()
@out_by_copy()
def hstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Join tensors along the second dimension, vectors along the first.

    Raises:
        ValueError: if there is no tensor, or sizes of other dimensions differ.

    Example:
        >>> flow.hstack([flow.tensor([[1], [2]]), flow.tensor([[3], [4]])])
        tensor([[1, 3],
                [2, 4]])
    """
    listed = [tensor.reshape(1) if tensor.ndim == 0 else tensor for tensor in listed_tensors("hstack", tensors)]
    return cat(listed, 0 if listed and listed[0].ndim == 1 else 1)


@function("row_stack")
@out_by_copy()
def vstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Join tensors along the first dimension; vectors become rows.

    Raises:
        ValueError: as `hstack`.

    Example:
        >>> flow.vstack([flow.tensor([1, 2]), flow.tensor([3, 4])])
        tensor([[1, 2],
                [3, 4]])
    """
    return cat(
        [tensor.reshape(1, -1) if tensor.ndim < 2 else tensor for tensor in listed_tensors("vstack", tensors)], 0
    )


def _infer_repeat(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (repeats,) = cast("tuple[tuple[int, ...]]", attributes)
    (source,) = metas
    padded = (1,) * (len(repeats) - len(source.shape)) + tuple(source.shape)
    shape = tuple([size * times for size, times in zip(padded, repeats, strict=True)])
    output = meta(shape, source.dtype, source.device)
    return Inferred(output, output.numel * CHEAP)


_REPEAT = OpExpr("repeat", _infer_repeat, Form(1, tuple[tuple[Size, ...]]), "joining")


@_REPEAT.gradient()
def _repeat_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    (repeats,) = cast("tuple[tuple[int, ...]]", node.attributes)
    shape = tuple(node.meta(0).shape)
    padded = (1,) * (len(repeats) - len(shape)) + shape
    split = [part for pair in zip(repeats, padded, strict=True) for part in pair]
    summed = gradient.reshape(split).sum(tuple(range(0, len(split), 2))) if split else gradient
    return (summed.reshape(shape),)


@method()
def repeat(input: Tensor, *repeats: Any, **named: Any) -> Tensor:
    """Repeat the tensor along each dimension the given number of times; additional numbers add dimensions in front.

    Raises:
        TypeError: if a number is no integer.
        ValueError: if there are fewer numbers than dimensions, or one is negative.

    Example:
        >>> flow.tensor([1, 2]).repeat(2, 2)
        tensor([[1, 2, 1, 2],
                [1, 2, 1, 2]])
    """
    times = sizes("repeat", repeats, named, "repeats")
    if len(times) < input.ndim:
        raise ValueError(f"repeat: {list(times)} has fewer numbers than the tensor's {input.ndim} dimensions")
    if any(time_ < 0 for time_ in times):
        raise ValueError(f"repeat: numbers of repetitions cannot be negative, got {list(times)}")
    return _interpreter.dispatch(_REPEAT, (input,), (times,))


@public()
def tile(input: Tensor, *dims: Any, **named: Any) -> Tensor:
    """Repeat the tensor along each dimension a number of times; fewer numbers than dimensions apply to the last ones.

    Raises:
        TypeError: if a number is no integer.
        ValueError: if a number is negative.

    Example:
        >>> flow.tile(flow.tensor([[1], [2]]), (2,))
        tensor([[1, 1],
                [2, 2]])
    """
    check_tensors("tile", input)
    times = sizes("tile", dims, named, "dims")
    return repeat(input, (1,) * (input.ndim - len(times)) + times)


@public()
def repeat_interleave(
    input: Tensor, repeats: int | Tensor, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Repeat each element, or each slice along `dim`, `repeats` times in a row.

    Args:
        input: flattened if `dim` is None.
        repeats: one number, or a vector with a number for each element or slice, for whose values the function waits.
        dim: the dimension.
        output_size: without effect; PyTorch saves a wait by it.

    Raises:
        TypeError: if `repeats` is neither an integer nor a tensor of integers.
        ValueError: if a number is negative, or a vector has neither one number for each slice nor one for all.
        IndexError: if there is no dimension `dim`.

    Example:
        >>> flow.repeat_interleave(flow.tensor([5, 6]), flow.tensor([1, 2]))
        tensor([5, 6, 6])
    """
    check_tensors("repeat_interleave", input)
    if dim is None:
        input, dim = input.reshape(input.numel()), 0
    axis = normalize_dim("repeat_interleave", dim, input.ndim)
    if not isinstance(repeats, _tensors.Tensor):
        repeats = whole_number("repeat_interleave", "repeats", repeats)
        if repeats < 0:
            raise ValueError(f"repeat_interleave: numbers of repetitions cannot be negative, got {repeats}")
        shape = tuple(input.shape)
        spread = unsqueeze(input, axis + 1).expand(shape[: axis + 1] + (repeats,) + shape[axis + 1 :])
        return spread.reshape(shape[:axis] + (shape[axis] * repeats,) + shape[axis + 1 :])
    if repeats.dtype.category != INTEGER:
        raise TypeError(f"repeat_interleave: numbers of repetitions must be integers, not {repeats.dtype.name}")
    (places,) = from_values(lambda numbers: _repeated_places(numbers, input.shape[axis]), repeats)
    return index_select(input, axis, places)


def _repeated_places(repeats: Tensor, count: int) -> tuple[Tensor]:
    """Return the indices of slices as `repeat_interleave` repeats them: index i, of `count`, ``repeats[i]`` times.

    A single number holds for all indices.
    """
    numbers = repeats.expand(count) if repeats.numel() == 1 and repeats.ndim < 2 else repeats
    if numbers.shape != (count,):
        raise ValueError(f"repeat_interleave: expected {count} numbers of repetitions, got {numbers.tolist()}")
    total = _interpreter.dispatch(_REPETITIONS, (numbers,)).item()
    return (_interpreter.dispatch(_REPEATED_PLACES, (numbers,), (total,)),)


def _infer_repetitions(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    """Infer two ops: the total of the repetitions, 0-d; or, with this total as attribute, the repeated indices."""
    (repeats,) = metas
    if repeats.dtype.category > INTEGER:
        raise TypeError(f"repeat_interleave: numbers of repetitions must be integers, not {repeats.dtype.name}")
    if len(repeats.shape) != 1:
        raise ValueError(f"repeat_interleave: expected a vector of repetitions, got shape {list(repeats.shape)}")
    shape = cast("tuple[int, ...]", attributes)
    return Inferred(meta(shape, int64, repeats.device), (repeats.numel + sum(shape)) * CHEAP)


_REPETITIONS = OpExpr("repetitions", _infer_repetitions, Form(1), "joining")
_REPEATED_PLACES = OpExpr("repeated_places", _infer_repetitions, Form(1, tuple[Size]), "joining", remembers=256)


def _infer_moved(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    """Infer an op that only rearranges elements: the result has the input's shape and dtype."""
    (source,) = metas
    return Inferred(source, source.numel * CHEAP)


_FLIP = OpExpr("flip", _infer_moved, Form(1, tuple[tuple[Dim, ...]]), "joining")


@_FLIP.gradient()
def _flip_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (_interpreter.dispatch(_FLIP, (gradient,), node.attributes),)


@public()
def flip(input: Tensor, *dims: Any, **named: Any) -> Tensor:
    """Copy the tensor with the order of elements reversed along some dimensions: ``flip(0, 1)`` or ``flip((0, 1))``.

    Raises:
        IndexError: if a dimension does not exist.
        ValueError: if a dimension is named twice.

    Example:
        >>> flow.flip(flow.tensor([1, 2, 3]), (0,))
        tensor([3, 2, 1])
    """
    check_tensors("flip", input)
    return _interpreter.dispatch(
        _FLIP, (input,), (normalize_dims("flip", sizes("flip", dims, named, "dims"), input.ndim),)
    )


@public()
def fliplr(input: Tensor) -> Tensor:
    """Copy the tensor with the order of elements reversed along the second dimension.

    Raises:
        IndexError: if there are less than two dimensions.

    Example:
        >>> flow.fliplr(flow.tensor([[1, 2], [3, 4]]))
        tensor([[2, 1],
                [4, 3]])
    """
    check_tensors("fliplr", input)
    return flip(input, 1)


@public()
def flipud(input: Tensor) -> Tensor:
    """Copy the tensor with the order of elements reversed along the first dimension.

    Raises:
        ValueError: for a 0-d tensor.

    Example:
        >>> flow.flipud(flow.tensor([[1, 2], [3, 4]]))
        tensor([[3, 4],
                [1, 2]])
    """
    check_tensors("flipud", input)
    if input.ndim == 0:
        raise ValueError("flipud: a 0-d tensor has no dimension to flip")
    return flip(input, 0)


_ROLL = OpExpr("roll", _infer_moved, Form(1, tuple[tuple[int, ...], tuple[Dim, ...]]), "joining")


@_ROLL.gradient()
def _roll_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    shifts, dims = cast("tuple[tuple[int, ...], tuple[int, ...]]", node.attributes)
    return (_interpreter.dispatch(_ROLL, (gradient,), (tuple([-shift for shift in shifts]), dims)),)


@public()
def roll(input: Tensor, shifts: int | tuple[int, ...], dims: int | tuple[int, ...] | None = None) -> Tensor:
    """Move the elements by `shifts` along `dims`; elements that leave at one end come in at the other.

    With `dims` None the flattened tensor is rolled, and gets its shape back.

    Raises:
        IndexError: if a dimension does not exist.
        ValueError: if there are not as many shifts as dimensions.

    Example:
        >>> flow.roll(flow.tensor([1, 2, 3]), 1)
        tensor([3, 1, 2])
    """
    check_tensors("roll", input)
    amounts = tuple([whole_number("roll", "a shift", amount) for amount in as_tuple(shifts)])
    if dims is None:
        if len(amounts) != 1:
            raise ValueError(f"roll: {len(amounts)} shifts need as many dims")
        return roll(input.flatten(), amounts, (0,)).reshape(input.shape)
    if input.ndim == 0:
        raise IndexError("roll: a 0-d tensor has no dimension to roll along")
    listed = as_tuple(dims)
    if len(listed) != len(amounts):
        raise ValueError(f"roll: {len(amounts)} shifts and {len(listed)} dims")
    axes = tuple([normalize_dim("roll", dim, input.ndim) for dim in listed])
    return _interpreter.dispatch(_ROLL, (input,), (amounts, axes))


@public()
@out_by_copy()
def diag(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """Make a matrix with a vector on a diagonal, or copy the diagonal of a matrix: `diagonal` is as for `tril`.

    Raises:
        ValueError: for other than one or two dimensions.

    Example:
        >>> flow.diag(flow.tensor([[1, 2], [3, 4]]))
        tensor([1, 4])
    """
    check_tensors("diag", input)
    diagonal = whole_number("diag", "diagonal", diagonal)
    if input.ndim == 2:
        return input.diagonal(diagonal).clone()
    if input.ndim != 1:
        raise ValueError(f"diag: expected a vector or a matrix, got shape {list(input.shape)}")
    size = input.shape[0] + abs(diagonal)
    return scatter_diagonal(input, meta((size, size), input.dtype, input.device), (diagonal, 0, 1))


def _infer_triangle(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    lower, _ = cast("tuple[bool, int]", attributes)
    (source,) = metas
    if len(source.shape) < 2:
        raise ValueError(f"{'tril' if lower else 'triu'}: expected at least 2 dimensions, got {list(source.shape)}")
    return Inferred(source, source.numel * CHEAP * 2)


_TRIANGLE = OpExpr("triangle", _infer_triangle, Form(1, tuple[bool, int]), "joining")


@_TRIANGLE.gradient()
def _triangle_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (_interpreter.dispatch(_TRIANGLE, (gradient,), node.attributes),)


@public()
@copied_in_place()
@out_by_copy()
def tril(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """The lower triangles of matrices: zero above `diagonal` (0 is the main diagonal, 1 the diagonal above it).

    Raises:
        ValueError: if there are less than two dimensions.

    Example:
        >>> flow.tril(flow.tensor([[1, 2], [3, 4]]))
        tensor([[1, 0],
                [3, 4]])
    """
    return _interpreter.dispatch(_TRIANGLE, (input,), (True, whole_number("tril", "diagonal", diagonal)))


@public()
@copied_in_place()
@out_by_copy()
def triu(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """The upper triangles of matrices: zero below `diagonal` (0 is the main diagonal, 1 the diagonal above it).

    Raises:
        ValueError: as `tril`.

    Example:
        >>> flow.triu(flow.tensor([[1, 2], [3, 4]]))
        tensor([[1, 2],
                [0, 4]])
    """
    return _interpreter.dispatch(_TRIANGLE, (input,), (False, whole_number("triu", "diagonal", diagonal)))
