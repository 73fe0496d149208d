"""Reading and writing parts of a tensor: ``x[...]``, ``x[...] = v``, gather and scatter.

Integers, slices, None and ``...`` make views.  Index tensors and masks copy.  Bounds of index tensors are checked when
the op runs, since their values are not known before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from vmflow import dtypes
from vmflow import interpreter as _interpreter
from vmflow import tensor as _tensor
from vmflow.instructions.blob import Array, TensorMeta, meta

from .elementwise import CHEAP, copy_
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
    from vmflow.tensor import Tensor

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
    if not any([item is Ellipsis for item in index]):
        index = (*index, Ellipsis)
    tensors: list[tuple[int, Tensor]] = []
    dim = 0
    for item in index:
        if item is Ellipsis:
            dim += input.ndim - dim - _left(index, item)
        elif item is None:
            input = unsqueeze(input, dim)
            dim += 1
        elif isinstance(item, slice):
            input = _apply_slice(input, dim, item)
            dim += 1
        elif isinstance(item, _tensor.Tensor):
            if item.dtype is dtypes.bool_:
                _check_mask(input, dim, item)
            tensors.append((dim, item))
            dim += _consumes(item)
        else:
            input = select(input, dim, int(item.__index__()))
    return input, tensors


def _left(index: tuple[Any, ...], marker: Any) -> int:
    """How many dimensions the items behind the ellipsis consume."""
    position = next(it for it, item in enumerate(index) if item is marker)
    return sum([_consumes(item) for item in index[position + 1 :]])


def _consumes(item: Any) -> int:
    if item is None or item is Ellipsis:
        return 0
    if isinstance(item, _tensor.Tensor) and item.dtype is dtypes.bool_:
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
    if isinstance(item, _tensor.Tensor):
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
    """``input[index]``, numpy's rules (steps must be positive)."""
    input, tensors = _basic(input, _normal_index(index))
    if not tensors:
        return input
    tensors = _flat_masks(_expand_scalar_masks(input, tensors))
    if any([item.ndim == 0 and item.dtype is dtypes.bool_ for _, item in tensors]):
        raise IndexError("a bool cannot be mixed with other index tensors")
    return _interpreter.dispatch(_INDEX, (input, *[item for _, item in tensors]), (tuple([dim for dim, _ in tensors]),))


def _expand_scalar_masks(input: Tensor, tensors: list[tuple[int, Tensor]]) -> list[tuple[int, Tensor]]:
    for _, item in tensors:
        if item.ndim == 0 and item.dtype is dtypes.bool_:
            raise IndexError("indexing with a single bool is not supported; use unsqueeze(0) and a slice")
    return tensors


def _index_tuple(rank: int, dims: tuple[int, ...], indices: tuple[Array, ...]) -> tuple[Any, ...]:
    place: list[Any] = [slice(None)] * rank
    for dim, index in zip(dims, indices, strict=True):
        place[dim] = index
    return tuple(place)


def _indexed_shape(
    shape: tuple[int, ...], dims: tuple[int, ...], indices: tuple[tuple[int, ...], ...]
) -> tuple[int, ...]:
    """numpy's rule: adjacent index dimensions are replaced in place, separated ones go to the front."""
    joint = broadcast_shapes("index", *indices)
    rest = [size for axis, size in enumerate(shape) if axis not in dims]
    adjacent = all(later == earlier + 1 for earlier, later in zip(dims, dims[1:], strict=False))
    at = dims[0] if adjacent else 0
    return (*rest[:at], *joint, *rest[at:])


def _infer_index(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (dims,) = cast("tuple[tuple[int, ...]]", attributes)
    source, *indices = metas
    device = common_device("index", metas)
    shape = _indexed_shape(tuple(source.shape), dims, tuple([tuple(it.shape) for it in indices]))
    output = meta(shape, source.dtype, device)
    rank = len(source.shape)
    xp = array_module(device)

    def kernel(array: Array, *rest: Any) -> Array:
        return xp.ascontiguousarray(array[_index_tuple(rank, dims, rest[:-1])]).reshape(shape)

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
    rank = len(output.shape)

    def kernel(part: Array, *rest: Any) -> Array:
        whole = xp.zeros(output.shape, output.dtype.numpy)
        # Indices may repeat: each occurrence counts.
        xp.add.at(whole, _index_tuple(rank, dims, rest[:-1]), part)
        return whole

    return Inferred(output, kernel, output.numel * CHEAP + metas[0].numel * 20)


_INDEX_ADD_TO_ZEROS = OpExpr("index_add_to_zeros", _infer_index_add_to_zeros)


@_INDEX_ADD_TO_ZEROS.gradient(inputs=tuple(range(1, 33)))
def _index_add_to_zeros_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, ...]:
    indices = tuple([node.input(position) for position in range(1, len(node.metas))])
    return (_interpreter.dispatch(_INDEX, (gradient, *indices), (node.attributes[1],)),) + (None,) * len(indices)


# x[index] = value


def _infer_index_put(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    dims, accumulate = cast("tuple[tuple[int, ...], bool]", attributes)
    target, value, *indices = metas
    common_device("index_put", metas)
    shape = _indexed_shape(tuple(target.shape), dims, tuple([tuple(it.shape) for it in indices]))
    fits = len(value.shape) <= len(shape) or all(size == 1 for size in value.shape[: len(value.shape) - len(shape)])
    if not fits or broadcast_shapes("index_put", shape, tuple(value.shape[-len(shape) :] if shape else ())) != shape:
        raise ValueError(
            f"index_put: a value of shape {list(value.shape)} does not fit the indexed shape {list(shape)}"
        )
    xp = array_module(target.device)
    rank = len(target.shape)

    def kernel(array: Array, new: Array, *rest: Any) -> Array:
        *places, out = rest
        if out is None:
            out = array.copy(order="C")
        elif out is not array:
            out[...] = array
        place = _index_tuple(rank, dims, tuple(places))
        if new.ndim > len(shape):
            new = new.reshape(new.shape[new.ndim - len(shape) :])
        if accumulate:
            xp.add.at(out, place, new.astype(out.dtype, copy=False))
        else:
            out[place] = new.astype(out.dtype, copy=False)
        return out

    return Inferred(target, kernel, target.numel * CHEAP + value.numel * 20)


_INDEX_PUT = OpExpr("index_put", _infer_index_put)


@_INDEX_PUT.gradient(inputs=tuple(range(2, 34)))
def _index_put_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, ...]:
    dims, accumulate = cast("tuple[tuple[int, ...], bool]", node.attributes)
    indices = tuple([node.input(position) for position in range(2, len(node.metas))])
    old = None
    if node.needs[0]:
        old = gradient if accumulate else _put(gradient, indices, dims, gradient.new_zeros(()), False)
    new = _interpreter.dispatch(_INDEX, (gradient, *indices), (dims,)) if node.needs[1] else None
    return (old, new) + (None,) * len(indices)


def _put(input: Tensor, indices: tuple[Tensor, ...], dims: tuple[int, ...], value: Tensor, accumulate: bool) -> Tensor:
    return _interpreter.dispatch(_INDEX_PUT, (input, value, *indices), (dims, accumulate))


def index_put(input: Tensor, indices: tuple[Tensor | None, ...], values: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of `input` with ``copy[indices] = values``, or ``+= values`` where every repetition counts."""
    return index_put_(input.clone(), indices, values, accumulate)


def index_put_(input: Tensor, indices: tuple[Tensor | None, ...], values: Tensor, accumulate: bool = False) -> Tensor:
    """In-place `index_put`."""
    given = [(dim, item) for dim, item in enumerate(_normal_index(tuple([_as_slice(it) for it in indices])))]
    tensors: list[tuple[int, Tensor]] = []
    dim = 0
    for _, item in given:
        if isinstance(item, _tensor.Tensor):
            if item.dtype is dtypes.bool_:
                _check_mask(input, dim, item)
            tensors.append((dim, item))
        dim += _consumes(item)
    if not tensors:
        raise ValueError("index_put: expected at least one index tensor")
    return _put_into(input, _flat_masks(tensors), values, accumulate)


def _as_slice(item: Any) -> Any:
    return slice(None) if item is None else item


def _put_into(input: Tensor, tensors: list[tuple[int, Tensor]], value: Tensor, accumulate: bool) -> Tensor:
    return _interpreter.dispatch_into(
        _INDEX_PUT,
        input,
        (input, value, *[item for _, item in tensors]),
        (tuple([dim for dim, _ in tensors]), accumulate),
    )


def setitem(input: Tensor, index: Any, value: Any) -> None:
    """``input[index] = value``; the value, a number or a tensor, broadcasts to what is indexed."""
    normal = _normal_index(index)
    if not isinstance(value, _tensor.Tensor):
        from .creation import tensor

        value = tensor(value, dtype=input.dtype, device=input.device)
    if input._blob.strides is None and not any([isinstance(it, _tensor.Tensor) for it in normal]):
        part, _ = _basic(input.detach(), normal)
        if part._blob.strides is None:
            copy_(input, _fitting(value, tuple(part.shape)))
            return
        if _records(input, value):
            _interpreter.dispatch_into(
                _STRIDED_PUT, input, (input, _fitting(value, tuple(part.shape))), _strided_attributes(part)
            )
            return
        copy_(part, _fitting(value, tuple(part.shape)))
        return
    part, tensors = _basic(input if _records(input, value) else input.detach(), normal)
    if not tensors:
        copy_(part, _fitting(value, tuple(part.shape)))
        return
    tensors = _flat_masks(_expand_scalar_masks(part, tensors))
    if part._blob.strides is not None and _records(input, value):
        raise RuntimeError(
            "assigning through a mixture of slices and index tensors is not recorded by autograd; use where(), "
            "index_put() on a contiguous tensor, or vmflow.no_grad()"
        )
    _put_into(part if not _records(input, value) else input, tensors, value, False)


def _records(input: Tensor, value: Tensor) -> bool:
    from vmflow.autograd.grad_mode import is_grad_enabled

    return is_grad_enabled() and (input.requires_grad or value.requires_grad)


def _fitting(value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`value` without leading dimensions of size 1 that `shape` does not have."""
    extra = value.ndim - len(shape)
    if extra > 0 and all(size == 1 for size in value.shape[:extra]):
        return value.reshape(tuple(value.shape[extra:]))
    return value


def _strided_attributes(part: Tensor) -> Attributes:
    return tuple(part.shape), tuple(part.stride()), part.storage_offset()


def _strided_part(xp: Any, whole: Array, attributes: Attributes) -> Array:
    """The part of a C-contiguous array given by (shape, strides, offset) in elements."""
    shape, strides, offset = cast("tuple[tuple[int, ...], tuple[int, ...], int]", attributes)
    flat = whole.reshape(-1)[offset:] if offset < whole.size else whole.reshape(-1)[:0]
    return xp.lib.stride_tricks.as_strided(flat, shape, [it * whole.itemsize for it in strides])


def _infer_strided_put(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    target, value = metas
    common_device("setitem", metas)
    (shape, _, _) = cast("tuple[tuple[int, ...], Any, Any]", attributes)
    if broadcast_shapes("setitem", shape, value.shape) != shape:
        raise ValueError(f"setitem: a value of shape {list(value.shape)} does not fit the indexed shape {list(shape)}")
    xp = array_module(target.device)

    def kernel(array: Array, new: Array, out: Array | None) -> Array:
        if out is None:
            out = array.copy(order="C")
        elif out is not array:
            out[...] = array
        xp.copyto(_strided_part(xp, out, attributes), new, casting="unsafe")
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
    (source,) = metas
    (shape, _, _) = cast("tuple[tuple[int, ...], Any, Any]", attributes)
    xp = array_module(source.device)

    def kernel(array: Array, out: Array | None) -> Array:
        return _strided_part(xp, xp.ascontiguousarray(array), attributes).copy(order="C")

    return Inferred(meta(shape, source.dtype, source.device), kernel, source.numel * CHEAP)


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


def _along_axis(index: Array, dim: int) -> tuple[Array, ...]:
    """`index` for one dimension, and its own coordinates for the others."""
    place = list(np.ogrid[tuple([slice(size) for size in index.shape])]) if index.ndim else []
    place[dim : dim + 1] = [index]
    return tuple(place)


def _infer_gather(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (dim,) = cast("tuple[int]", attributes)
    source, index = metas
    device = common_device("gather", metas)
    _check_gather("gather", tuple(source.shape), dim, index)
    output = meta(tuple(index.shape), source.dtype, device)
    xp = array_module(device)

    def kernel(array: Array, places: Array, out: Array | None) -> Array:
        if places.ndim == 0:
            return array.reshape(1)[places].copy()
        if places.size and places.min() < 0:
            raise IndexError(
                f"gather: index {places.min()} is out of range for dimension {dim} of size {array.shape[dim]}"
            )
        return xp.ascontiguousarray(array[_along_axis(places, dim)])

    return Inferred(output, kernel, output.numel * CHEAP * 10)


_GATHER = OpExpr("gather", _infer_gather)


@_GATHER.gradient(inputs=(1,))
def _gather_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor, None]:
    zeros = gradient.new_zeros(tuple(node.meta(0).shape))
    return scatter_add(zeros, cast(int, node.attributes[0]), node.input(1), gradient), None


def gather(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """For each place of `index`, the element of `input` there, but at that index along `dim`.

    out[i][j] = input[index[i][j]][j] for dim 0 of two.  The result has the shape of `index`.
    """
    return _interpreter.dispatch(_GATHER, (input, index), (normalize_dim("gather", dim, input.ndim),))


def _infer_scatter(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    dim, add = cast("tuple[int, bool]", attributes)
    name = "scatter_add" if add else "scatter"
    target, index, source = metas
    common_device(name, metas)
    if source.dtype is not target.dtype:
        raise TypeError(f"{name}: expected one dtype, got {target.dtype.name} and {source.dtype.name}")
    _check_gather(name, tuple(target.shape), dim, index)
    if len(source.shape) != len(index.shape) or any(
        size > limit for size, limit in zip(index.shape, source.shape, strict=False)
    ):
        raise ValueError(
            f"{name}: an index of shape {list(index.shape)} needs a source at least as large, got {list(source.shape)}"
        )
    xp = array_module(target.device)

    def kernel(array: Array, places: Array, values: Array, out: Array | None) -> Array:
        if places.size and places.min() < 0:
            raise IndexError(
                f"{name}: index {places.min()} is out of range for dimension {dim} of size {array.shape[dim]}"
            )
        result = array.copy(order="C")
        if places.ndim == 0:
            place: Any = (places,)
            flat = result.reshape(1)
            if add:
                xp.add.at(flat, place, values)
            else:
                flat[place] = values
            return result
        place = _along_axis(places, dim)
        part = values[tuple([slice(size) for size in places.shape])]
        if add:
            xp.add.at(result, place, part)
        else:
            result[place] = part
        return result

    return Inferred(target, kernel, target.numel * CHEAP + index.numel * 20)


_SCATTER = OpExpr("scatter", _infer_scatter)


@_SCATTER.gradient(inputs=(1,))
def _scatter_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, None, Tensor | None]:
    dim, add = cast("tuple[int, bool]", node.attributes)
    index = node.input(1)
    target = None
    if node.needs[0]:
        target = gradient if add else scatter(gradient, dim, index, gradient.new_zeros(tuple(index.shape)))
    source = None
    if node.needs[2]:
        source = gather(gradient, dim, index)
        shape = tuple(node.meta(2).shape)
        for axis, size in enumerate(shape):
            if source.shape[axis] != size:
                whole = meta(
                    tuple(source.shape[:axis]) + (size,) + tuple(source.shape[axis + 1 :]), source.dtype, source.device
                )
                source = scatter_slice(source, whole, (axis, 0, source.shape[axis], 1))
    return target, None, source


def scatter(input: Tensor, dim: int, index: Tensor, src: Tensor | float) -> Tensor:
    """A copy of `input` with the elements of `src` (or one number) put at `index` along `dim`; `gather` backwards."""
    if not isinstance(src, _tensor.Tensor):
        from .creation import full

        src = full(tuple(index.shape), src, dtype=input.dtype, device=input.device)
    return _interpreter.dispatch(_SCATTER, (input, index, src), (normalize_dim("scatter", dim, input.ndim), False))


def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """As `scatter`, but added; indices may repeat."""
    return _interpreter.dispatch(_SCATTER, (input, index, src), (normalize_dim("scatter_add", dim, input.ndim), True))


def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices along `dim` that the 1-d `index` names, in that order."""
    if index.ndim > 1:
        raise ValueError(f"index_select: the index must be a vector, got shape {list(index.shape)}")
    if input.ndim == 0:
        return input.clone()
    axis = normalize_dim("index_select", dim, input.ndim)
    return _interpreter.dispatch(_INDEX, (input, index.reshape(-1)), ((axis,),))


def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where the bool `mask` holds, as a vector; waits for the mask."""
    shape = broadcast_shapes("masked_select", tuple(input.shape), tuple(mask.shape))
    return getitem(input.expand(shape), mask.expand(shape))


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


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """int64 ones where the last, new dimension equals the element, zeros elsewhere.

    Args:
        tensor: of integers.
        num_classes: the new dimension's size; -1 takes the largest element plus one, for which it waits.
    """
    if tensor.dtype.category != dtypes.INTEGER:
        raise TypeError(f"one_hot: expected an integer tensor, got {tensor.dtype.name}")
    from .creation import arange

    if num_classes == -1:
        num_classes = int(tensor.max().item()) + 1
    return (tensor.unsqueeze(-1) == arange(num_classes, device=tensor.device)).to(dtypes.int64)
