"""Elements by an index for each: gather and scatter, and zeros with parts filled in, the gradient of views.

Bounds of index tensors are checked when the op runs, since their values are not known before.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from vmflow import dtypes
from vmflow import interpreter as _interpreter
from vmflow import tensors as _tensors
from vmflow.dtypes import FLOATING
from vmflow.instructions.blob import Array, TensorMeta, meta
from vmflow.kernels.native.indexing import Gather, Scatter

from .copying import full_of
from .elementwise import CHEAP
from .table import (
    Attributes,
    Dim,
    Form,
    Inferred,
    Kinds,
    Metas,
    OpExpr,
    Size,
    array_module,
    broadcast_shapes,
    common_device,
    computed_by,
    normalize_dim,
)
from .view import sliced

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

# Gradients of views: a tensor of zeros with parts filled in


def _infer_scatter_slices(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    output, axis, *places = cast("tuple[Any, ...]", attributes)
    _check_slices(output, axis, places, metas)
    xp = array_module(output.device)
    every = (slice(None),) * axis
    filled: list[Any] = []
    empty: list[Any] = []
    so_far = 0
    for start, length, step in places:
        end = _end(start, length, step)
        filled.append((*every, slice(start, end, step)))
        gap = start if step == 1 else end
        if so_far < gap:
            empty.append((*every, slice(so_far, gap)))
        so_far = end
    if so_far < output.shape[axis]:
        empty.append((*every, slice(so_far, None)))
    has_signs = output.dtype.category >= FLOATING and all([it.dtype is output.dtype for it in metas])

    def kernel(*arguments: Any) -> Array:
        *parts, out = arguments
        whole = xp.empty(output.shape, output.dtype.numpy) if out is None else out
        # Nothing is written twice that need not be: these gradients are often those of parts of one large tensor.
        for place in empty:
            whole[place] = 0
        for part, place in zip(parts, filled, strict=True):
            if has_signs:
                # Which makes of -0.0 what it becomes where it is added to zeros, as with parts that overlap.
                xp.add(part, 0, whole[place])
            else:
                whole[place] = part
        return whole

    return computed_by(output, kernel, output.numel * CHEAP)


def _check_slices(output: TensorMeta, axis: int, places: Sequence[tuple[int, int, int]], parts: Metas) -> None:
    """Raise unless these parts fill these slices, which are in order and within the output."""
    expected = [(*output.shape[:axis], length, *output.shape[axis + 1 :]) for _, length, _ in places]
    if [tuple(it.shape) for it in parts] != expected:
        raise ValueError(
            f"scatter_slices: parts of shapes {[list(it.shape) for it in parts]} do not fit {list(output.shape)} in "
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
    """Behind the last element of a slice."""
    return start + (length - 1) * step + 1 if length else start


# Where sequences are cut differently each time, an inference of their hundreds of parts is not met again.
_SCATTER_SLICES = OpExpr(
    "scatter_slices",
    _infer_scatter_slices,
    Form((1, None), tuple[TensorMeta, int], rest=tuple[int, int, int]),
    remembers=128,
)


@_SCATTER_SLICES.gradient()
def _scatter_slices_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, ...]:
    _, axis, *places = cast("tuple[Any, ...]", node.attributes)
    return tuple(
        [sliced(gradient, axis, *place) if needed else None for place, needed in zip(places, node.needs, strict=True)]
    )


def scatter_slice(part: Tensor, like: TensorMeta, attributes: Attributes) -> Tensor:
    """Zeros of the shape of `like`, with `part` in the slice ``(axis, start, length, step)``."""
    axis, *place = cast("tuple[int, int, int, int]", attributes)
    output = meta(tuple(like.shape), part.dtype, like.device)
    return _interpreter.dispatch(_SCATTER_SLICES, (part,), (output, axis, tuple(place)))


class DisjointSlices:
    """Parts of one tensor, which are slices along one dimension: none begins before the one before it has ended.

    Args:
        like: the tensor's.
        axis: that dimension.
    """

    __slots__ = ("_axis", "_like", "_parts", "_places")

    def __init__(self, like: TensorMeta, axis: int) -> None:
        self._like = like
        self._axis = axis
        self._parts: list[Tensor] = []
        self._places: list[tuple[int, int, int]] = []

    def add(self, part: Tensor, attributes: Attributes) -> bool:
        """Add the slice ``(axis, start, length, step)``; whether it can be one of them.

        What is cut in one go comes in order, or in the reverse of it: hence it is looked for from both ends.
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
        """The tensor, which is zero elsewhere."""
        return _interpreter.dispatch(_SCATTER_SLICES, tuple(self._parts), (self._like, self._axis, *self._places))


def _check_diagonal(output: TensorMeta, offset: int, first: int, second: int, part: TensorMeta) -> None:
    """Raise ValueError unless `part` is a diagonal of a tensor of the meta `output`."""
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
    xp = array_module(output.device)

    def kernel(part: Array, out: Array | None) -> Array:
        whole = xp.zeros(output.shape, output.dtype.numpy)
        count = part.shape[-1]
        rows = xp.arange(count) + (-offset if offset < 0 else 0)
        columns = xp.arange(count) + (offset if offset > 0 else 0)
        xp.moveaxis(whole, (first, second), (0, 1))[rows, columns] = xp.moveaxis(part, -1, 0)
        return whole

    return computed_by(output, kernel, output.numel * CHEAP)


_SCATTER_DIAGONAL = OpExpr("scatter_diagonal", _infer_scatter_diagonal, Form(1, tuple[TensorMeta, int, int, int]))


@_SCATTER_DIAGONAL.gradient()
def _scatter_diagonal_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    offset, first, second = cast("tuple[int, int, int]", node.attributes[1:])
    return (gradient.diagonal(offset, first, second),)


def scatter_diagonal(part: Tensor, like: TensorMeta, attributes: Attributes) -> Tensor:
    """Zeros of the shape of `like`, with `part` on the diagonal ``(offset, dim1, dim2)``."""
    output = meta(tuple(like.shape), part.dtype, like.device)
    return _interpreter.dispatch(_SCATTER_DIAGONAL, (part,), (output, *attributes))


def add_at(xp: Any, array: Array, place: tuple[Any, ...], part: Array) -> None:
    """``array[place] += part``, where each repetition of an index counts."""
    if array.dtype.itemsize == 2 and array.dtype.kind not in "iu":
        wide = array.astype(xp.float32)  # half precision would soon stop growing
        xp.add.at(wide, place, part.astype(xp.float32))
        array[...] = wide.astype(array.dtype)
    else:
        xp.add.at(array, place, part)


# gather, scatter and their kin


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


def check_places(name: str, places: Array, shape: tuple[int, ...], dim: int) -> None:
    """Raise unless all indices are from 0 up to the dimension's size; numpy alone would let negative ones through."""
    size = shape[dim] if shape else 1
    if places.size and not (places.min() >= 0 and places.max() < size):
        wrong = places[(places < 0) | (places >= size)].flat[0]
        raise IndexError(f"{name}: index {wrong} is out of range for dimension {dim} of size {size}")


def along_axis(index: Array, dim: int) -> tuple[Array, ...]:
    """`index` for one dimension, and its own coordinates for the others."""
    place = list(np.ogrid[tuple([slice(size) for size in index.shape])]) if index.ndim else []
    place[dim : dim + 1] = [index]
    return tuple(place)


def _infer_gather(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (dim,) = cast("tuple[int]", attributes)
    source, index = metas
    device = common_device("gather", metas)
    check_gather("gather", source.shape, dim, index)
    output = meta(index.shape, source.dtype, device)
    xp = array_module(device)
    in_c = Gather(dim) if index.shape and device.type == "cpu" else None

    def kernel(array: Array, places: Array, out: Array | None) -> Array:
        if in_c is not None:
            found = in_c.call(array, places)
            if found is not None:
                return found
        check_places("gather", places, array.shape, dim)
        if places.ndim == 0:
            return array.copy()
        return xp.ascontiguousarray(array[along_axis(places, dim)])

    return computed_by(output, kernel, output.numel * CHEAP * 10)


_GATHER = OpExpr("gather", _infer_gather, Form(2, tuple[Dim]))


@_GATHER.gradient(inputs=(1,))
def _gather_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor, None]:
    zeros = gradient.new_zeros(tuple(node.meta(0).shape))
    return scatter_add(zeros, cast(int, node.attributes[0]), node.input(1), gradient), None


def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """For each place of `index`, the element of `input` there, but at that index along `dim`.

    out[i][j] = input[index[i][j]][j] for dim 0 of two.  The result has the shape of `index`.

    Args:
        input: of any shape.
        dim: the dimension along which to look up.
        index: integers, of as many dimensions, and no larger than `input` in the others.
        sparse_grad: accepted for PyTorch's sake; gradients here are always dense.

    Raises:
        TypeError, ValueError: if the index does not fit.
        IndexError: if one of its elements is out of range, when the result is looked at.
    """
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
    xp = array_module(target.device)
    is_for_c = how != "multiply" and index.shape and target.device.type == "cpu"
    in_c = Scatter(dim, how == "add") if is_for_c else None

    def kernel(array: Array, places: Array, values: Array, out: Array | None) -> Array:
        values = values[tuple([slice(size) for size in places.shape])]
        result = array.copy(order="C")
        done = in_c.call(result, places, values) if in_c is not None else None
        if done:
            return result
        check_places(name, places, array.shape, dim)
        assert done is None, "an index is out of range, which has been told of"
        if places.ndim == 0:
            seen, place, part = result.reshape(1), (places.reshape(1),), values.reshape(1)
        else:
            seen, place, part = result, along_axis(places, dim), values
        if how is None:
            seen[place] = part
        elif how == "multiply":
            xp.multiply.at(seen, place, part)
        else:
            add_at(xp, seen, place, part)
        return result

    return computed_by(target, kernel, target.numel * CHEAP + index.numel * 20)


_SCATTER = OpExpr("scatter", _infer_scatter, Form(3, tuple[Dim, str | None]))


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


def scatter(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor | float | None = None,
    *,
    value: float | None = None,
    reduce: str | None = None,
) -> Tensor:
    """A copy of `input` with the elements of `src` put at `index` along `dim`; `gather` backwards.

    out[index[i][j]][j] = src[i][j] for dim 0 of two.  Of several elements for one place any may win.

    Args:
        input: of any shape.
        dim: the dimension along which to place.
        index: integers, of as many dimensions, and no larger than `input` in the others.
        src: of the same dtype and at least as large as `index`, or one number for all.
        value: the number, by its PyTorch name.
        reduce: None, "add" or "multiply": what to do with the element that is there.

    Raises:
        TypeError, ValueError: if index or source do not fit.
        IndexError: if an element of the index is out of range, when the result is looked at.
    """
    if (src is None) == (value is None):
        raise TypeError("scatter: give either src or value")
    if reduce not in _REDUCTIONS:
        raise ValueError(f"scatter: reduce must be one of {', '.join(map(repr, _REDUCTIONS))}, not {reduce!r}")
    given = value if src is None else src
    if not isinstance(given, _tensors.Tensor):
        output = meta(index.shape, input.dtype, input.device)
        given = full_of(output, cast("float", given))
    axis = normalize_dim("scatter", dim, input.ndim)
    return _interpreter.dispatch(_SCATTER, (input, index, given), (axis, reduce))


def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """As `scatter`, but added; indices may repeat, and each counts."""
    axis = normalize_dim("scatter_add", dim, input.ndim)
    return _interpreter.dispatch(_SCATTER, (input, index, src), (axis, "add"))


def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """As `gather`, but the two broadcast in the other dimensions; with `dim` None both are flattened."""
    if dim is None:
        return gather(input.flatten(), 0, indices.flatten())
    axis = normalize_dim("take_along_dim", dim, input.ndim)
    if indices.ndim != input.ndim:
        raise ValueError(
            f"take_along_dim: expected indices of {input.ndim} dimensions, got shape {list(indices.shape)}"
        )
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
    xp = array_module(source.device)

    def kernel(array: Array, out: Array | None) -> Array:
        if array.size and not (array.min() >= 0 and array.max() < classes):
            raise ValueError(f"one_hot: {array.min()} to {array.max()} are not all classes from 0 to {classes - 1}")
        result = xp.zeros((array.size, classes), xp.int64)
        result[xp.arange(array.size), array.reshape(-1)] = 1
        return result.reshape(*array.shape, classes)

    return computed_by(
        meta((*source.shape, classes), dtypes.int64, source.device), kernel, source.numel * classes * CHEAP
    )


_ONE_HOT = OpExpr("one_hot", _infer_one_hot, Form(1, tuple[Size]))


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """int64 ones where the last, new dimension equals the element, zeros elsewhere.

    Args:
        tensor: of integers.
        num_classes: the new dimension's size; -1 takes the largest element plus one, for which it waits.

    Raises:
        TypeError: if the tensor is not of integers.
        ValueError: if there is no element to take the number of classes from; if an element is not a class, when the
            result is looked at.
    """
    if tensor.dtype.category != dtypes.INTEGER:
        raise TypeError(f"one_hot: expected an integer tensor, got {tensor.dtype.name}")
    if num_classes == -1:
        if not tensor.numel():
            raise ValueError("one_hot: an empty tensor does not tell the number of classes; give num_classes")
        num_classes = int(tensor.max().item()) + 1
    elif num_classes < 1:
        raise ValueError(f"one_hot: num_classes must be positive, or -1, not {num_classes}")
    return _interpreter.dispatch(_ONE_HOT, (tensor,), (num_classes,))
