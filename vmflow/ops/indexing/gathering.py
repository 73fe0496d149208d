"""Gather and scatter; and the gradients of slices and diagonals, which scatter a part into zeros.

The bounds of index tensors are checked when an op runs, since their values are not known earlier.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from vmflow import dtypes, interpreter as _interpreter, tensors as _tensors
from vmflow.arguments import whole_number
from vmflow.instructions.blob import TensorMeta, meta
from vmflow.kernels.problems.gathering import Slices
from vmflow.operands import check_tensors
from vmflow.ops.copying import full_of
from vmflow.ops.declaration import public
from vmflow.ops.destination import out_by_copy
from vmflow.ops.elementwise.inference import CHEAP
from vmflow.ops.in_place import copied_in_place
from vmflow.ops.shape.view import DIAGONAL, SLICE, sliced
from vmflow.ops.table import (
    Attributes,
    Dim,
    Form,
    Inferred,
    Kinds,
    Metas,
    OpExpr,
    Size,
    broadcast_shapes,
    common_device,
    normalize_dim,
)
from vmflow.transfers import beside

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

# Gradients of slices and diagonals: tensors of zeros, with parts filled in


def _infer_scatter_slices(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    output, axis, *places = cast("tuple[Any, ...]", attributes)
    _check_slices(output, axis, places, metas)
    filled: list[tuple[int, int, int]] = []
    gaps: list[tuple[int, int]] = []
    so_far = 0
    for start, length, step in places:
        end = _end(start, length, step)
        filled.append((start, end, step))
        gap = start if step == 1 else end
        if so_far < gap:
            gaps.append((so_far, gap))
        so_far = end
    if so_far < output.shape[axis]:
        gaps.append((so_far, output.shape[axis]))
    return Inferred(output, output.numel * CHEAP, Slices(tuple(filled), tuple(gaps)))


def _check_slices(output: TensorMeta, axis: int, places: Sequence[tuple[int, int, int]], parts: Metas) -> None:
    """Raise ValueError unless slices within `output` lie one behind the other, and parts have the slices' shapes.

    `places` has (start, length, step) of each slice along the dimension `axis`."""
    expected = [(*output.shape[:axis], length, *output.shape[axis + 1 :]) for _, length, _ in places]
    if [tuple(part.shape) for part in parts] != expected:
        raise ValueError(
            f"scatter_slices: shapes {[list(part.shape) for part in parts]} do not fit {list(output.shape)} in "
            f"slices of lengths {[length for _, length, _ in places]} along dimension {axis}"
        )
    so_far = 0
    for start, length, step in places:
        if start < so_far or length < 0 or step < 1:
            raise ValueError(f"scatter_slices: slices (start, length, step) {places} are not one behind the other")
        so_far = _end(start, length, step)
    if so_far > output.shape[axis]:
        raise ValueError(f"scatter_slices: slices {places} go beyond dimension {axis} of {list(output.shape)}")


def _end(start: int, length: int, step: int) -> int:
    """Return the index one past the last element of the slice (start, length, step), or `start` if it is empty."""
    return start + (length - 1) * step + 1 if length else start


# Few plans are cached: a plan may describe hundreds of slices, and may not be needed again.
_SCATTER_SLICES = OpExpr(
    "scatter_slices",
    _infer_scatter_slices,
    Form((1, None), tuple[TensorMeta, int], rest=tuple[int, int, int]),
    "gathering",
    remembers=128,
)


@_SCATTER_SLICES.gradient()
def _scatter_slices_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, ...]:
    _, axis, *places = cast("tuple[Any, ...]", node.attributes)
    return tuple(
        [sliced(gradient, axis, *place) if needed else None for place, needed in zip(places, node.needs, strict=True)]
    )


def scatter_slice(part: Tensor, like: TensorMeta, attributes: Attributes) -> Tensor:
    """Make the gradient of a slice: zeros shaped like `like`, with `part` in the slice (axis, start, length, step)."""
    axis, *place = cast("tuple[int, int, int, int]", attributes)
    output = meta(tuple(like.shape), part.dtype, like.device)
    return _interpreter.dispatch(_SCATTER_SLICES, (part,), (output, axis, tuple(place)))


@SLICE.gradient()
def _slice_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (scatter_slice(gradient, node.meta(0), node.attributes),)


class DisjointSlices:
    """Gradients of slices of one tensor along one dimension, collected so that one op joins them all.

    The ranges of the slices, from the first to the last element, do not overlap.

    Args:
        like: the meta of the tensor.
        axis: the dimension.
    """

    __slots__ = ("_axis", "_like", "_parts", "_places")

    def __init__(self, like: TensorMeta, axis: int) -> None:
        self._like = like
        self._axis = axis
        self._parts: list[Tensor] = []
        self._places: list[tuple[int, int, int]] = []

    def add(self, part: Tensor, attributes: Attributes) -> bool:
        """Add `part` as the slice `attributes`, (axis, start, length, step), and return True if it can be added.

        The result is False if the slice's range overlaps the range of an added slice, or for another dimension or
        dtype.
        """
        axis, start, length, step = cast("tuple[int, int, int, int]", attributes)
        if axis != self._axis or part.dtype is not self._like.dtype:
            return False
        places = self._places
        end = _end(start, length, step)
        if not places or _end(*places[-1]) <= start:
            at = len(places)
        elif end <= places[0][0]:
            at = 0
        else:
            at = bisect(places, (start, length, step))
            if (at and _end(*places[at - 1]) > start) or (at < len(places) and places[at][0] < end):
                return False
        places.insert(at, (start, length, step))
        self._parts.insert(at, part)
        return True

    def whole(self) -> Tensor:
        """Return a tensor that holds the added slices, and zeros elsewhere."""
        return _interpreter.dispatch(_SCATTER_SLICES, tuple(self._parts), (self._like, self._axis, *self._places))


def _check_diagonal(output: TensorMeta, offset: int, first: int, second: int, part: TensorMeta) -> None:
    """Raise ValueError unless `part` has the shape of the diagonal `offset` of `output` along two of its dimensions."""
    rank = len(output.shape)
    fits = 0 <= first < rank and 0 <= second < rank and first != second
    if fits:
        rows, columns = output.shape[first], output.shape[second]
        count = min(rows + min(offset, 0), columns - max(offset, 0))
        rest = [size for axis, size in enumerate(output.shape) if axis not in (first, second)]
        fits = part.shape == (*rest, max(count, 0))
    if not fits:
        raise ValueError(f"diagonal: {part} is not the diagonal {offset} of {output} along {first} and {second}")


def _infer_scatter_diagonal(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    output, offset, first, second = cast("tuple[TensorMeta, int, int, int]", attributes)
    _check_diagonal(output, offset, first, second, metas[0])
    return Inferred(output, output.numel * CHEAP)


_SCATTER_DIAGONAL = OpExpr(
    "scatter_diagonal", _infer_scatter_diagonal, Form(1, tuple[TensorMeta, int, int, int]), "gathering"
)


@_SCATTER_DIAGONAL.gradient()
def _scatter_diagonal_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    offset, first, second = cast("tuple[int, int, int]", node.attributes[1:])
    return (gradient.diagonal(offset, first, second),)


def scatter_diagonal(part: Tensor, like: TensorMeta, attributes: Attributes) -> Tensor:
    """Make the gradient of a diagonal: zeros shaped like `like`, with `part` on the diagonal (offset, dim1, dim2)."""
    output = meta(tuple(like.shape), part.dtype, like.device)
    return _interpreter.dispatch(_SCATTER_DIAGONAL, (part,), (output, *attributes))


@DIAGONAL.gradient()
def _diagonal_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (scatter_diagonal(gradient, node.meta(0), node.attributes),)


# gather, scatter and related ops


def check_gather(name: str, shape: tuple[int, ...], dim: int, index: TensorMeta) -> None:
    if index.dtype.category != dtypes.INTEGER:
        raise TypeError(f"{name}: the index must be an integer tensor, not {index.dtype.name}")
    if len(index.shape) != len(shape) or any(
        size > limit for axis, (size, limit) in enumerate(zip(index.shape, shape, strict=False)) if axis != dim
    ):
        raise ValueError(
            f"{name}: an index of shape {list(index.shape)} does not fit {list(shape)}; it needs as many dimensions, "
            f"and except in dimension {dim} no larger sizes"
        )


def _infer_gather(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (dim,) = cast("tuple[int]", attributes)
    source, index = metas
    device = common_device("gather", metas)
    check_gather("gather", source.shape, dim, index)
    output = meta(index.shape, source.dtype, device)
    return Inferred(output, output.numel * CHEAP * 10)


_GATHER = OpExpr("gather", _infer_gather, Form(2, tuple[Dim]), "gathering")


@_GATHER.gradient(inputs=(1,))
def _gather_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor, None]:
    zeros = gradient.new_zeros(tuple(node.meta(0).shape))
    return scatter_add(zeros, cast(int, node.attributes[0]), node.input(1), gradient), None


@public(numpy_names=True)
@out_by_copy()
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False, out: Tensor | None = None) -> Tensor:
    """Look up elements along `dim`: for two dimensions and dim 0, ``out[i][j] = input[index[i][j]][j]``.

    The result has the shape of `index`.

    Args:
        dim: the dimension along which to look up.
        index: integers, with as many dimensions as `input`, and no larger than `input` in those other than `dim`.
        sparse_grad: without effect; gradients are always dense.

    Raises:
        TypeError: if `input` is no tensor, or `index` no integer tensor.
        ValueError: if the shape of the index does not fit.
        IndexError: if there is no dimension `dim`; when the result is read, if an index is negative or too large.

    Example:
        >>> flow.gather(flow.tensor([[1, 2], [3, 4]]), 1, flow.tensor([[0, 0], [1, 0]]))
        tensor([[1, 1],
                [4, 3]])
    """
    check_tensors("gather", input)
    return _interpreter.dispatch(_GATHER, (input, index), (normalize_dim("gather", dim, input.ndim),))


_REDUCTIONS = (None, "add", "multiply")


def _infer_scatter(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    dim, how = cast("tuple[int, str | None]", attributes)
    name = "scatter" if how is None else f"scatter with reduce={how!r}"
    target, index, source = metas
    common_device(name, metas)
    if source.dtype is not target.dtype:
        raise TypeError(f"{name}: expected one dtype, got {target.dtype.name} and {source.dtype.name}")
    check_gather(name, target.shape, dim, index)
    if len(source.shape) != len(index.shape) or any(
        size > limit for size, limit in zip(index.shape, source.shape, strict=False)
    ):
        raise ValueError(
            f"{name}: an index of shape {list(index.shape)} needs a source at least as large, got {list(source.shape)}"
        )
    return Inferred(target, target.numel * CHEAP + index.numel * 20)


_SCATTER = OpExpr("scatter", _infer_scatter, Form(3, tuple[Dim, str | None]), "gathering")


@_SCATTER.gradient(inputs=(1,))
def _scatter_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, None, Tensor | None]:
    dim, how = cast("tuple[int, str | None]", node.attributes)
    if how == "multiply":
        raise RuntimeError("scatter: reduce='multiply' has no gradient, as in PyTorch")
    index = node.input(1)
    target = None
    if node.needs[0]:
        target = gradient if how == "add" else scatter(gradient, dim, index, gradient.new_zeros(tuple(index.shape)))
    source = None
    if node.needs[2]:
        source = gather(gradient, dim, index)
        for axis, size in enumerate(node.meta(2).shape):
            have = source.shape[axis]
            if have != size:
                shape = (*source.shape[:axis], size, *source.shape[axis + 1 :])
                source = scatter_slice(source, meta(shape, source.dtype, source.device), (axis, 0, have, 1))
    return target, None, source


@public(numpy_names=True)
@copied_in_place()
@out_by_copy()
def scatter(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor | float | None = None,
    *,
    value: float | None = None,
    reduce: str | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Copy `input` and put the elements of `src` at `index` along `dim`: the inverse of `gather`.

    For two dimensions and dim 0, ``out[index[i][j]][j] = src[i][j]``.  If an index occurs twice, either element wins;
    with `reduce` both count.

    Args:
        dim: the dimension along which to place.
        index: integers, with as many dimensions as `input`, and no larger than `input` in those other than `dim`.
        src: of the dtype of `input` and at least as large as `index`, or one number for all places.
        value: that number, in place of `src`.
        reduce: None to replace elements of `input`; "add", or "multiply" without a gradient, to combine them with
            those of `src`.

    Raises:
        TypeError: if `input` is no tensor, `index` no integer tensor, the other two dtypes differ, both or neither of
            `src` and `value` are given, or for a complex number in a real dtype.
        ValueError: if the shape of the index or the source does not fit, for a number out of the dtype's range, or for
            another `reduce`.
        OverflowError: for a number that is an integer beyond int64 and uint64.
        RuntimeError: in the backward pass, if `reduce` is "multiply".
        IndexError: if there is no dimension `dim`; when the result is read, if an index is negative or too large.

    Example:
        >>> flow.scatter(flow.zeros(4), 0, flow.tensor([1, 3]), flow.tensor([5.0, 6.0]))
        tensor([0., 5., 0., 6.])
    """
    if (src is None) == (value is None):
        raise TypeError("scatter: give either src or value")
    if reduce not in _REDUCTIONS:
        raise ValueError(f"scatter: reduce must be one of {', '.join(map(repr, _REDUCTIONS))}, not {reduce!r}")
    check_tensors("scatter", input, index)
    source = value if src is None else src
    if not isinstance(source, _tensors.Tensor):
        output = meta(index.shape, input.dtype, input.device)
        source = beside(full_of(output, cast("float", source)), input)
    axis = normalize_dim("scatter", dim, input.ndim)
    return _interpreter.dispatch(_SCATTER, (input, index, source), (axis, reduce))


@public(numpy_names=True)
@copied_in_place()
@out_by_copy()
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Copy `input` and add the elements of `src` at `index` along `dim`; a repeated index counts each time.

    Args:
        index, src: tensors as `scatter` takes them.

    Raises:
        TypeError, ValueError, IndexError: as `scatter`.

    Example:
        >>> flow.scatter_add(flow.zeros(3), 0, flow.tensor([0, 0, 2]), flow.ones(3))
        tensor([2., 0., 1.])
    """
    check_tensors("scatter_add", input)
    axis = normalize_dim("scatter_add", dim, input.ndim)
    return _interpreter.dispatch(_SCATTER, (input, index, src), (axis, "add"))


@public(numpy_names=True)
@out_by_copy()
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None, *, out: Tensor | None = None) -> Tensor:
    """`gather` along `dim`; `input` and `indices` broadcast in other dimensions, and are flattened if `dim` is None.

    Raises:
        TypeError, IndexError: as `gather`.
        ValueError: if the numbers of dimensions differ, or the other sizes do not broadcast.

    Example:
        >>> flow.take_along_dim(flow.tensor([[30, 10, 20]]), flow.tensor([[1, 2, 0]]), dim=1)
        tensor([[10, 20, 30]])
    """
    check_tensors("take_along_dim", input, indices)
    if dim is None:
        return gather(input.flatten(), 0, indices.flatten())
    axis = normalize_dim("take_along_dim", dim, input.ndim)
    if indices.ndim != input.ndim:
        raise ValueError(
            f"take_along_dim: expected indices of {input.ndim} dimensions, got shape {list(indices.shape)}"
        )
    if not input.ndim:
        return gather(input, axis, indices)
    rest = broadcast_shapes(
        "take_along_dim",
        (*input.shape[:axis], 1, *input.shape[axis + 1 :]),
        (*indices.shape[:axis], 1, *indices.shape[axis + 1 :]),
    )
    source = input.expand((*rest[:axis], input.shape[axis], *rest[axis + 1 :]))
    return gather(source, axis, indices.expand((*rest[:axis], indices.shape[axis], *rest[axis + 1 :])))


def _infer_one_hot(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (classes,) = cast("tuple[int]", attributes)
    (source,) = metas
    return Inferred(meta((*source.shape, classes), dtypes.int64, source.device), source.numel * classes * CHEAP)


_ONE_HOT = OpExpr("one_hot", _infer_one_hot, Form(1, tuple[Size]), "gathering")


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Encode class indices in a new last dimension: int64, 1 at the index that equals the element, 0 elsewhere.

    Args:
        tensor: class indices, integers of any shape.
        num_classes: the new dimension's size; -1 takes the largest element plus one, for which the function waits.

    Raises:
        TypeError: if `tensor` is no integer tensor, or `num_classes` no integer.
        ValueError: if `num_classes` is neither positive nor -1, or is -1 for an empty tensor; when the result is read,
            if an element is no class.

    Example:
        >>> flow.nn.functional.one_hot(flow.tensor([0, 2]), 3)
        tensor([[1, 0, 0],
                [0, 0, 1]])
    """
    check_tensors("one_hot", tensor)
    if tensor.dtype.category != dtypes.INTEGER:
        raise TypeError(f"one_hot: expected an integer tensor, got {tensor.dtype.name}")
    num_classes = whole_number("one_hot", "num_classes", num_classes)
    if num_classes == -1:
        if not tensor.numel():
            raise ValueError("one_hot: an empty tensor does not tell the number of classes; give num_classes")
        num_classes = max(int(tensor.max().item()) + 1, 1)
    elif num_classes < 1:
        raise ValueError(f"one_hot: num_classes must be positive, or -1, not {num_classes}")
    return _interpreter.dispatch(_ONE_HOT, (tensor,), (num_classes,))
