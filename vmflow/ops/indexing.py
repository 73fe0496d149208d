"""Reading and writing parts of a tensor: ``x[...]``, ``x[...] = v``, gather and scatter.

Integers, slices, None and ``...`` make views.  Index tensors and masks copy.  Bounds of index tensors are checked when
the op runs, since their values are not known before.
"""

from __future__ import annotations

from numbers import Number
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from vmflow import dtypes
from vmflow import interpreter as _interpreter
from vmflow import tensors as _tensors
from vmflow.context import MODE
from vmflow.instructions.blob import Array, TensorMeta, meta

from .copying import copy_, full_of
from .elementwise import CHEAP
from .selection import masked_fill_
from .table import (
    Attributes,
    Inferred,
    Kinds,
    Metas,
    OpExpr,
    array_module,
    broadcast_shapes,
    common_device,
    normalize_dim,
)
from .view import select, sliced, unsqueeze

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

# Gradients of views: a tensor of zeros with a part filled in


def _infer_scatter_slice(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    output, axis, start, length, step = cast("tuple[TensorMeta, int, int, int, int]", attributes)
    xp = array_module(output.device)
    place = (slice(None),) * axis + (slice(start, start + (length - 1) * step + 1 if length else start, step),)

    def kernel(part: Array, out: Array | None) -> Array:
        whole = xp.zeros(output.shape, output.dtype.numpy)
        whole[place] = part
        return whole

    return Inferred(output, kernel, output.numel * CHEAP)


_SCATTER_SLICE = OpExpr("scatter_slice", _infer_scatter_slice)


@_SCATTER_SLICE.gradient()
def _scatter_slice_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    axis, start, length, step = cast("tuple[int, int, int, int]", node.attributes[1:])
    return (sliced(gradient, axis, start, length, step),)


def scatter_slice(part: Tensor, like: TensorMeta, attributes: Attributes) -> Tensor:
    """Zeros of the shape of `like`, with `part` in the slice ``(axis, start, length, step)``."""
    output = meta(tuple(like.shape), part.dtype, like.device)
    return _interpreter.dispatch(_SCATTER_SLICE, (part,), (output, *attributes))


def _infer_scatter_diagonal(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    output, offset, first, second = cast("tuple[TensorMeta, int, int, int]", attributes)
    xp = array_module(output.device)

    def kernel(part: Array, out: Array | None) -> Array:
        whole = xp.zeros(output.shape, output.dtype.numpy)
        count = part.shape[-1]
        rows = xp.arange(count) + (-offset if offset < 0 else 0)
        columns = xp.arange(count) + (offset if offset > 0 else 0)
        xp.moveaxis(whole, (first, second), (0, 1))[rows, columns] = xp.moveaxis(part, -1, 0)
        return whole

    return Inferred(output, kernel, output.numel * CHEAP)


_SCATTER_DIAGONAL = OpExpr("scatter_diagonal", _infer_scatter_diagonal)


@_SCATTER_DIAGONAL.gradient()
def _scatter_diagonal_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    offset, first, second = cast("tuple[int, int, int]", node.attributes[1:])
    return (gradient.diagonal(offset, first, second),)


def scatter_diagonal(part: Tensor, like: TensorMeta, attributes: Attributes) -> Tensor:
    """Zeros of the shape of `like`, with `part` on the diagonal ``(offset, dim1, dim2)``."""
    output = meta(tuple(like.shape), part.dtype, like.device)
    return _interpreter.dispatch(_SCATTER_DIAGONAL, (part,), (output, *attributes))


# x[index]


def _basic(input: Tensor, index: tuple[Any, ...]) -> tuple[Tensor, list[tuple[int, Tensor]]]:
    """Apply integers, slices and None as views; return what index tensors remain, with the dimension each is for."""
    given = sum([_consumes(item) for item in index])
    if given > input.ndim:
        raise IndexError(f"too many indices: the tensor has {input.ndim} dimensions and {given} were indexed")
    if sum([item is Ellipsis for item in index]) > 1:
        raise IndexError("an index can contain '...' only once")
    tensors: list[tuple[int, Tensor]] = []
    dim = 0
    for position, item in enumerate(index):
        if item is Ellipsis:
            dim = input.ndim - sum([_consumes(later) for later in index[position + 1 :]])
        elif item is None:
            input = unsqueeze(input, dim)
            dim += 1
        elif isinstance(item, slice):
            input = _apply_slice(input, dim, item)
            dim += 1
        elif isinstance(item, _tensors.Tensor):
            if item.dtype is dtypes.bool_:
                _check_mask(input, dim, item)
                if item.ndim == 0:
                    input = unsqueeze(input, dim)  # of which it chooses the one element or none
            tensors.append((dim, item))
            dim += max(_consumes(item), 1)
        else:
            input = select(input, dim, item)
    return input, tensors


def _consumes(item: Any) -> int:
    """How many of the tensor's dimensions an item of the index is for."""
    if item is None or item is Ellipsis:
        return 0
    if isinstance(item, _tensors.Tensor) and item.dtype is dtypes.bool_:
        return item.ndim
    return 1


def _check_mask(input: Tensor, dim: int, mask: Tensor) -> None:
    if tuple(mask.shape) != tuple(input.shape[dim : dim + mask.ndim]):
        raise IndexError(
            f"the mask's shape {list(mask.shape)} does not match the indexed dimensions "
            f"{list(input.shape[dim : dim + mask.ndim])}"
        )


def _apply_slice(input: Tensor, dim: int, item: slice) -> Tensor:
    if item.step is not None and item.step <= 0:
        raise ValueError(f"the step of a slice must be positive, got {item.step}; use flip() to reverse")
    start, stop, step = item.indices(input.shape[dim])
    length = max(0, -(-(stop - start) // step))
    if length == input.shape[dim]:
        return input
    return sliced(input, dim, start if length else 0, length, step)


def _normal_index(index: Any) -> tuple[Any, ...]:
    items = index if isinstance(index, tuple) else (index,)
    return tuple([_normal_item(item) for item in items])


def _normal_item(item: Any) -> Any:
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if isinstance(item, (bool, np.bool_)):
        return _tensor_of(np.asarray(item))
    if isinstance(item, (list, np.ndarray, range)):
        array = np.asarray(item)
        return _tensor_of(array.astype(np.int64) if array.size == 0 and array.dtype.kind == "f" else array)
    if isinstance(item, _tensors.Tensor):
        if item.dtype.category > dtypes.INTEGER:
            raise IndexError(f"tensors used as indices must be integers or bools, not {item.dtype.name}")
        return item
    if hasattr(item, "__index__"):
        return item
    raise IndexError(
        f"only integers, slices, '...', None, and integer or bool tensors are valid indices, not {type(item).__name__}"
    )


def _tensor_of(array: Array) -> Tensor:
    from .creation import tensor

    if array.dtype.kind not in "biu":
        raise IndexError(f"arrays used as indices must be integers or bools, not {array.dtype}")
    return tensor(array if array.dtype.kind == "b" else array.astype(np.int64))


def _flat_masks(tensors: list[tuple[int, Tensor]]) -> list[tuple[int, Tensor]]:
    """Masks replaced by the indices of their true elements.

    How many there are is known only from the values, so this waits for the mask.
    """
    result: list[tuple[int, Tensor]] = []
    for dim, item in tensors:
        if item.dtype is dtypes.bool_:
            result += [(dim + axis, part) for axis, part in enumerate(nonzero(item, as_tuple=True))]
        else:
            result.append((dim, item))
    return result


def getitem(input: Tensor, index: Any) -> Tensor:
    """``input[index]``.

    Integers, slices with positive steps, None and ``...`` give a view.  Integer tensors, masks, lists and arrays give a
    copy, by numpy's rules: they broadcast with each other, and where they are not adjacent their dimensions come first.
    An integer is applied before them and so does not count as one of them, as in PyTorch; a mask is waited for, since
    the shape of the result depends on its values.

    Raises:
        IndexError: if there are too many indices, or an integer or a mask does not fit; if the elements of an index
            tensor are out of range, when the result is looked at.
        ValueError: for a slice with a step that is not positive.
    """
    part, tensors = _basic(input, _normal_index(index))
    if tensors:
        tensors = _flat_masks(tensors)
        dims = tuple([dim for dim, _ in tensors])
        return _interpreter.dispatch(_INDEX, (part, *[item for _, item in tensors]), (dims, True))
    return part.view(part.shape) if part is input else part


def _placed(array: Array, dims: tuple[int, ...], indices: tuple[Array, ...]) -> tuple[Array, tuple[Any, ...]]:
    """`array` with the 0-d indices applied, as integers are: before the others; and the index made of the others."""
    before: list[Any] = [slice(None)] * array.ndim
    behind: list[Any] = [slice(None)] * array.ndim
    for dim, index in zip(dims, indices, strict=True):
        if index.ndim:
            behind[dim] = index
        else:
            before[dim], behind[dim] = int(index), None
    # With the ellipsis it is a view even if nothing is left of the shape.
    return array[(*before, Ellipsis)], tuple([it for it in behind if it is not None])


def _indexed_shape(
    name: str, shape: tuple[int, ...], dims: tuple[int, ...], indices: tuple[TensorMeta, ...]
) -> tuple[int, ...]:
    """numpy's rule: adjacent index dimensions are replaced in place, separated ones go to the front."""
    for index in indices:
        if index.dtype.category != dtypes.INTEGER:
            raise TypeError(f"{name}: indices must be integers, not {index.dtype.name}")
    joint = broadcast_shapes(name, *[it.shape for it in indices])
    removed = [dim for dim, index in zip(dims, indices, strict=True) if not index.shape]
    left = [axis for axis in range(len(shape)) if axis not in removed]
    replaced = [place for place, axis in enumerate(left) if axis in dims]
    rest = [shape[axis] for axis in left if axis not in dims]
    adjacent = bool(replaced) and replaced == list(range(replaced[0], replaced[0] + len(replaced)))
    at = replaced[0] if adjacent else 0
    return (*rest[:at], *joint, *rest[at:])


def _infer_index(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    dims, from_the_end = cast("tuple[tuple[int, ...], bool]", attributes)
    source, *indices = metas
    device = common_device("index", metas)
    shape = _indexed_shape("index", source.shape, dims, tuple(indices))
    output = meta(shape, source.dtype, device)
    xp = array_module(device)
    copies = any([it.shape for it in indices])

    def kernel(array: Array, *rest: Any) -> Array:
        if not from_the_end:
            for dim, places in zip(dims, rest, strict=False):
                _check_places("index_select", places, array.shape, dim)
        seen, place = _placed(array, dims, rest[:-1])
        return xp.ascontiguousarray(seen[place]) if copies else seen.copy(order="C")

    return Inferred(output, kernel, output.numel * CHEAP * 10)


_INDEX = OpExpr("index", _infer_index)


@_INDEX.gradient(inputs=tuple(range(1, 33)))
def _index_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, ...]:
    indices = tuple([node.input(position) for position in range(1, len(node.metas))])
    source = node.meta(0)
    output = meta(tuple(source.shape), gradient.dtype, source.device)
    return (_interpreter.dispatch(_INDEX_ADD_TO_ZEROS, (gradient, *indices), (output, node.attributes[0])),) + (
        None,
    ) * len(indices)


def _infer_index_add_to_zeros(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    output, dims = cast("tuple[TensorMeta, tuple[int, ...]]", attributes)
    xp = array_module(output.device)

    def kernel(part: Array, *rest: Any) -> Array:
        whole = xp.zeros(output.shape, output.dtype.numpy)
        _add_at(xp, *_placed(whole, dims, rest[:-1]), part)
        return whole

    return Inferred(output, kernel, output.numel * CHEAP + metas[0].numel * 20)


def _add_at(xp: Any, array: Array, place: tuple[Any, ...], part: Array) -> None:
    """``array[place] += part``, where each repetition of an index counts."""
    if array.dtype.itemsize == 2 and array.dtype.kind not in "iu":
        wide = array.astype(xp.float32)  # half precision would soon stop growing
        xp.add.at(wide, place, part.astype(xp.float32))
        array[...] = wide.astype(array.dtype)
    else:
        xp.add.at(array, place, part)


_INDEX_ADD_TO_ZEROS = OpExpr("index_add_to_zeros", _infer_index_add_to_zeros)


@_INDEX_ADD_TO_ZEROS.gradient(inputs=tuple(range(1, 33)))
def _index_add_to_zeros_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, ...]:
    indices = tuple([node.input(position) for position in range(1, len(node.metas))])
    return (_interpreter.dispatch(_INDEX, (gradient, *indices), (node.attributes[1], True)),) + (None,) * len(indices)


# x[index] = value

# The part of a contiguous tensor that is written or read: shape, strides and offset, in elements; None is the whole.
Part = tuple[tuple[int, ...], tuple[int, ...], int] | None


def _part_of(tensor: Tensor) -> Part:
    return tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset()


def _seen(xp: Any, whole: Array, part: Part) -> Array:
    """The part of a C-contiguous array, sharing its memory."""
    if part is None:
        return whole
    shape, strides, offset = part
    flat = whole.reshape(-1)
    if 0 in shape:
        return flat[:0].reshape(shape)
    return xp.lib.stride_tricks.as_strided(flat[offset:], shape, [it * whole.itemsize for it in strides])


def _destination(xp: Any, array: Array, out: Array | None) -> Array:
    """Where to change a few elements of `array`: in its own memory if that is the destination, else in a copy."""
    if out is None:
        return array.copy(order="C")
    if not xp.may_share_memory(out, array):
        out[...] = array
    return out


def _leading_ones_dropped(value: Array, rank: int) -> Array:
    return value.reshape(value.shape[value.ndim - rank :]) if value.ndim > rank else value


def _check_value(name: str, value: TensorMeta, shape: tuple[int, ...]) -> None:
    """Raise unless `value`, perhaps without leading dimensions of size 1, broadcasts to `shape`."""
    extra = max(len(value.shape) - len(shape), 0)
    if value.shape[:extra] != (1,) * extra or broadcast_shapes(name, shape, value.shape[extra:]) != shape:
        raise ValueError(f"{name}: a value of shape {list(value.shape)} does not fit the indexed shape {list(shape)}")


def _infer_index_put(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    dims, accumulate, part = cast("tuple[tuple[int, ...], bool, Part]", attributes)
    target, value, *indices = metas
    common_device("index_put", metas)
    whole = target.shape if part is None else part[0]
    shape = _indexed_shape("index_put", whole, dims, tuple(indices))
    _check_value("index_put", value, shape)
    xp = array_module(target.device)
    to = target.dtype.numpy
    loses_imaginary = value.dtype.is_complex and not target.dtype.is_complex

    def kernel(array: Array, new: Array, *rest: Any) -> Array:
        *places, out = rest
        # A copy of the value, since it may be a part of what is changed.
        new = _leading_ones_dropped(new.real if loses_imaginary else new, len(shape)).astype(to)
        out = _destination(xp, array, out)
        seen, place = _placed(_seen(xp, out, part), dims, tuple(places))
        if accumulate:
            _add_at(xp, seen, place, new)
        else:
            seen[place] = new
        return out

    return Inferred(target, kernel, target.numel * CHEAP + value.numel * 20)


_INDEX_PUT = OpExpr("index_put", _infer_index_put)


@_INDEX_PUT.gradient(inputs=tuple(range(2, 34)))
def _index_put_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, ...]:
    dims, accumulate, part = cast("tuple[tuple[int, ...], bool, Part]", node.attributes)
    indices = tuple([node.input(position) for position in range(2, len(node.metas))])
    old = new = None
    if node.needs[0]:
        old = gradient if accumulate else _put(gradient, indices, gradient.new_zeros(()), (dims, False, part))
    if node.needs[1]:
        seen = gradient if part is None else _interpreter.dispatch(_STRIDED_GET, (gradient,), (part,))
        new = _interpreter.dispatch(_INDEX, (seen, *indices), (dims, True))
    return (old, new) + (None,) * len(indices)


def _put(input: Tensor, indices: tuple[Tensor, ...], value: Tensor, attributes: Attributes) -> Tensor:
    return _interpreter.dispatch(_INDEX_PUT, (input, value, *indices), attributes)


def index_put(input: Tensor, indices: tuple[Tensor | None, ...], values: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of `input` with ``copy[indices] = values``, or ``+= values`` where every repetition counts.

    Args:
        input: of any shape.
        indices: an integer tensor or a mask for each dimension from the first on; None takes all of a dimension.
        values: broadcast to what is indexed.
        accumulate: whether to add.
    """
    tensors, attributes = _put_indices("index_put", input, indices, accumulate)
    return _put(input, tensors, values, attributes)


def index_put_(input: Tensor, indices: tuple[Tensor | None, ...], values: Tensor, accumulate: bool = False) -> Tensor:
    """In-place `index_put`."""
    tensors, attributes = _put_indices("index_put_", input, indices, accumulate)
    return _interpreter.dispatch_into(_INDEX_PUT, input, (input, values, *tensors), attributes)


def _put_indices(
    name: str, input: Tensor, indices: tuple[Tensor | None, ...], accumulate: bool
) -> tuple[tuple[Tensor, ...], Attributes]:
    if not isinstance(indices, (tuple, list)):
        raise TypeError(f"{name}: the indices must be a tuple of tensors, not {type(indices).__name__}")
    items = _normal_index(tuple([slice(None) if it is None else it for it in indices]))
    _, tensors = _basic(input.detach(), items)
    if not tensors:
        raise ValueError(f"{name}: expected at least one index tensor")
    tensors = _flat_masks(tensors)
    return tuple([item for _, item in tensors]), (tuple([dim for dim, _ in tensors]), bool(accumulate), None)


def setitem(input: Tensor, index: Any, value: Any) -> None:
    """``input[index] = value``; the value, a number or a tensor, is cast and broadcasts to what is indexed.

    Raises:
        IndexError, ValueError: as `getitem`; ValueError if the value does not fit.
        RuntimeError: if autograd would have to record it and cannot: for a leaf that requires a gradient, and a view.
    """
    is_number = isinstance(value, Number)
    if not is_number and not isinstance(value, _tensors.Tensor):
        value = _like(value, input)
    part, tensors = _basic(input.detach(), _normal_index(index))
    whole = part._blob is input._blob
    target = input if whole else part
    # A part is written through a view, except that autograd must see it as a change of the whole.
    tracked = input.requires_grad or (not is_number and value.requires_grad)
    through_whole = not whole and tracked and MODE.get().grad
    if not tensors and not through_whole:
        copy_(target, value if is_number else _fitting(value, part))
    elif not tensors:
        value = _like(value, input) if is_number else _fitting(value, part)
        _interpreter.dispatch_into(_STRIDED_PUT, input, (input, value), (_part_of(part),))
    elif not through_whole and _is_one_mask(tensors) and (is_number or value.ndim == 0):
        # The common x[mask] = number need not wait for the mask.
        ((dim, mask),) = tensors
        masked_fill_(target, mask.reshape(tuple(mask.shape) + (1,) * (part.ndim - dim - max(mask.ndim, 1))), value)
    else:
        tensors = _flat_masks(tensors)
        value = _like(value, input) if is_number else value
        dims = tuple([dim for dim, _ in tensors])
        written = (dims, False, _part_of(part)) if through_whole else (dims, False, None)
        target = input if through_whole else target
        _interpreter.dispatch_into(_INDEX_PUT, target, (target, value, *[item for _, item in tensors]), written)


def _like(value: Any, tensor: Tensor) -> Tensor:
    from .creation import tensor as new_tensor

    return new_tensor(value, dtype=tensor.dtype, device=tensor.device)


def _fitting(value: Tensor, part: Tensor) -> Tensor:
    """`value` without leading dimensions of size 1 that `part` does not have."""
    _check_value("setitem", value._blob.meta, tuple(part.shape))
    return value if value.ndim <= part.ndim else value.reshape(value.shape[value.ndim - part.ndim :])


def _is_one_mask(tensors: list[tuple[int, Tensor]]) -> bool:
    return len(tensors) == 1 and tensors[0][1].dtype is dtypes.bool_


def _infer_strided_put(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (part,) = cast("tuple[Part]", attributes)
    target, _ = metas
    common_device("setitem", metas)
    xp = array_module(target.device)
    loses_imaginary = metas[1].dtype.is_complex and not target.dtype.is_complex

    def kernel(array: Array, new: Array, out: Array | None) -> Array:
        out = _destination(xp, array, out)
        xp.copyto(_seen(xp, out, part), new.real if loses_imaginary else new, casting="unsafe")
        return out

    return Inferred(target, kernel, target.numel * CHEAP)


_STRIDED_PUT = OpExpr("strided_put", _infer_strided_put)


@_STRIDED_PUT.gradient()
def _strided_put_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    zero = gradient.new_zeros(())
    old = _interpreter.dispatch(_STRIDED_PUT, (gradient, zero), node.attributes) if node.needs[0] else None
    new = _interpreter.dispatch(_STRIDED_GET, (gradient,), node.attributes) if node.needs[1] else None
    return old, new


def _infer_strided_get(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (part,) = cast("tuple[Part]", attributes)
    assert part is not None
    (source,) = metas
    xp = array_module(source.device)

    def kernel(array: Array, out: Array | None) -> Array:
        return _seen(xp, xp.ascontiguousarray(array), part).copy(order="C")

    return Inferred(meta(part[0], source.dtype, source.device), kernel, source.numel * CHEAP)


_STRIDED_GET = OpExpr("strided_get", _infer_strided_get)


@_STRIDED_GET.gradient()
def _strided_get_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    source = node.meta(0)
    zeros = gradient.new_zeros(tuple(source.shape))
    return (_interpreter.dispatch(_STRIDED_PUT, (zeros, gradient), node.attributes),)


# gather, scatter and their kin


def _check_gather(name: str, shape: tuple[int, ...], dim: int, index: TensorMeta) -> None:
    if index.dtype.category != dtypes.INTEGER:
        raise TypeError(f"{name}: the index must be an integer tensor, not {index.dtype.name}")
    if len(index.shape) != len(shape) or any(
        size > limit for axis, (size, limit) in enumerate(zip(index.shape, shape, strict=False)) if axis != dim
    ):
        raise ValueError(
            f"{name}: an index of shape {list(index.shape)} does not fit {list(shape)}; it needs as many dimensions, "
            f"and except in dimension {dim} no larger sizes"
        )


def _check_places(name: str, places: Array, shape: tuple[int, ...], dim: int) -> None:
    """Raise unless all indices are from 0 up to the dimension's size; numpy alone would let negative ones through."""
    size = shape[dim] if shape else 1
    if places.size and not (places.min() >= 0 and places.max() < size):
        wrong = places[(places < 0) | (places >= size)].flat[0]
        raise IndexError(f"{name}: index {wrong} is out of range for dimension {dim} of size {size}")


def _along_axis(index: Array, dim: int) -> tuple[Array, ...]:
    """`index` for one dimension, and its own coordinates for the others."""
    place = list(np.ogrid[tuple([slice(size) for size in index.shape])]) if index.ndim else []
    place[dim : dim + 1] = [index]
    return tuple(place)


def _infer_gather(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (dim,) = cast("tuple[int]", attributes)
    source, index = metas
    device = common_device("gather", metas)
    _check_gather("gather", source.shape, dim, index)
    output = meta(index.shape, source.dtype, device)
    xp = array_module(device)

    def kernel(array: Array, places: Array, out: Array | None) -> Array:
        _check_places("gather", places, array.shape, dim)
        if places.ndim == 0:
            return array.copy()
        return xp.ascontiguousarray(array[_along_axis(places, dim)])

    return Inferred(output, kernel, output.numel * CHEAP * 10)


_GATHER = OpExpr("gather", _infer_gather)


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
    _check_gather(name, target.shape, dim, index)
    if len(source.shape) != len(index.shape) or any(
        size > limit for size, limit in zip(index.shape, source.shape, strict=False)
    ):
        raise ValueError(
            f"{name}: an index of shape {list(index.shape)} needs a source at least as large, got {list(source.shape)}"
        )
    xp = array_module(target.device)

    def kernel(array: Array, places: Array, values: Array, out: Array | None) -> Array:
        _check_places(name, places, array.shape, dim)
        result = array.copy(order="C")
        if places.ndim == 0:
            seen, place, part = result.reshape(1), (places.reshape(1),), values.reshape(1)
        else:
            seen, place, part = result, _along_axis(places, dim), values[tuple([slice(size) for size in places.shape])]
        if how is None:
            seen[place] = part
        elif how == "multiply":
            xp.multiply.at(seen, place, part)
        else:
            _add_at(xp, seen, place, part)
        return result

    return Inferred(target, kernel, target.numel * CHEAP + index.numel * 20)


_SCATTER = OpExpr("scatter", _infer_scatter)


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


def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices along `dim` that the vector `index` names, in that order.

    Raises:
        IndexError: if an element of the index is out of range, negative ones included, when the result is looked at.
    """
    axis = _index_vector("index_select", input, dim, index)
    if input.ndim == 0:
        return gather(input, 0, index.reshape(()))
    return _interpreter.dispatch(_INDEX, (input, index.reshape(index.numel())), ((axis,), False))


def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """A copy of `input` with the slices of `source` added to those that the vector `index` names; each counts."""
    axis = _index_vector("index_add", input, dim, index, source)
    return _put(input, (index,), source if alpha == 1 else source * alpha, ((axis,), True, None))


def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy of `input` with the slices of `source` in place of those that the vector `index` names."""
    axis = _index_vector("index_copy", input, dim, index, source)
    return _put(input, (index,), source, ((axis,), False, None))


def index_fill(input: Tensor, dim: int, index: Tensor, value: Tensor | float) -> Tensor:
    """A copy of `input` with `value`, a number or a 0-d tensor, in the slices that the vector `index` names."""
    axis = _index_vector("index_fill", input, dim, index)
    if not isinstance(value, _tensors.Tensor):
        value = full_of(meta((), input.dtype, input.device), value)
    elif value.ndim:
        raise ValueError(f"index_fill: the value must be a number or a 0-d tensor, not of shape {list(value.shape)}")
    return _put(input, (index,), value, ((axis,), False, None))


def _index_vector(name: str, input: Tensor, dim: int, index: Tensor, source: Tensor | None = None) -> int:
    """The dimension, once index and source are known to fit it."""
    axis = normalize_dim(name, dim, input.ndim)
    if index.ndim > 1:
        raise ValueError(f"{name}: the index must be a vector, got shape {list(index.shape)}")
    if index.dtype.category != dtypes.INTEGER:
        raise TypeError(f"{name}: the index must be an integer tensor, not {index.dtype.name}")
    if source is not None:
        if input.ndim == 0:
            raise ValueError(f"{name}: a 0-d tensor has no dimension to index")
        wanted = (*input.shape[:axis], *index.shape, *input.shape[axis + 1 :])
        if source.shape != wanted:
            raise ValueError(f"{name}: expected a source of shape {list(wanted)}, got {list(source.shape)}")
        if source.dtype is not input.dtype:
            raise TypeError(f"{name}: expected one dtype, got {input.dtype.name} and {source.dtype.name}")
    return axis


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


def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where the bool `mask` holds, as a vector; the two broadcast.  Waits for the mask.

    Raises:
        TypeError: if the mask is no bool tensor.
    """
    if mask.dtype is not dtypes.bool_:
        raise TypeError(f"masked_select: the mask must be a bool tensor, not {mask.dtype.name}")
    shape = broadcast_shapes("masked_select", input.shape, mask.shape)
    return getitem(input.expand(shape), mask.expand(shape)).reshape(-1)


def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """The indices of the non-zero elements: an (n, ndim) int64 tensor, or with `as_tuple` one vector per dimension.

    How many there are is known only from the values, so this waits for the tensor.
    """
    from .creation import from_array

    found = np.nonzero(np.atleast_1d(input.detach().numpy()))
    if as_tuple:
        return tuple([from_array(np.ascontiguousarray(it), input.device) for it in found])
    if input.ndim == 0:
        return from_array(np.empty((len(found[0]), 0), np.int64), input.device)
    return from_array(np.ascontiguousarray(np.stack(found, -1)), input.device)


def _infer_one_hot(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (classes,) = cast("tuple[int]", attributes)
    (source,) = metas
    xp = array_module(source.device)

    def kernel(array: Array, out: Array | None) -> Array:
        if array.size and not (array.min() >= 0 and array.max() < classes):
            raise ValueError(f"one_hot: {array.min()} to {array.max()} are not all classes from 0 to {classes - 1}")
        return (array[..., None] == xp.arange(classes)).astype(xp.int64)

    return Inferred(meta((*source.shape, classes), dtypes.int64, source.device), kernel, source.numel * classes * CHEAP)


_ONE_HOT = OpExpr("one_hot", _infer_one_hot)


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
