"""Reading and writing parts of a tensor: ``x[...]``, ``x[...] = v``, and slices by a vector of indices.

When reading, integers, slices, None and ``...`` make views; index tensors and masks copy.
"""

from __future__ import annotations

from numbers import Number
from typing import TYPE_CHECKING, Any, Final, cast

from vmflow import dtypes, interpreter as _interpreter, tensors as _tensors
from vmflow.arguments import flag
from vmflow.autograd import node as _node
from vmflow.context import MODE
from vmflow.devices import device as Device
from vmflow.instructions.blob import TensorMeta, meta
from vmflow.kernels.problems.indexing import Geometry, Part, Reading, Span, Writing
from vmflow.operands import check_tensors
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.copying import copy_, full_of
from vmflow.ops.creation.creation import tensor as new_tensor
from vmflow.ops.declaration import method, public
from vmflow.ops.destination import out_by_copy
from vmflow.ops.elementwise.arithmetic import scaled
from vmflow.ops.elementwise.inference import CHEAP
from vmflow.ops.elementwise.selection import masked_fill_
from vmflow.ops.in_place import copied_in_place
from vmflow.ops.table import (
    Attributes,
    Dim,
    Form,
    Inferred,
    Kinds,
    Metas,
    OpExpr,
    ViewExpr,
    broadcast_shapes,
    common_device,
    normalize_dim,
)
from vmflow.transfers import beside

from .gathering import gather
from .index_expression import flat_masks, normal_index, parted

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor


@method("__getitem__", own=False)
def getitem(input: Tensor, index: Any) -> Tensor:
    """Index a tensor: ``input[index]``.

    Integers, slices with positive steps, None and ``...`` give a view.  Integer tensors, masks, bools, lists, ranges
    and arrays give a copy, by numpy's rules: they broadcast with each other, and if they are not adjacent in the index,
    their dimensions come first.  An integer is applied first, as a view; neither it nor a 0-d integer tensor counts in
    this, as in PyTorch.  The function waits for masks, since the result's shape depends on their values.

    Raises:
        IndexError: if there are too many indices, an index is of another type, or an integer or a mask does not fit;
            when the result is read, if an element of an index tensor is out of range.
        ValueError: for a slice with a step that is not positive, or index tensors that do not broadcast.
        TypeError: for a slice of anything but integers and None.
    """
    part, tensors = parted(input, normal_index(index, input))
    if tensors:
        tensors = flat_masks(tensors)
        dims = tuple([dim for dim, _ in tensors])
        return _interpreter.dispatch(_INDEX, (part, *[item for _, item in tensors]), (dims, True))
    return part.view(part.shape) if part is input else part


def _indexed_shape(
    name: str, shape: tuple[int, ...], dims: tuple[int, ...], indices: tuple[TensorMeta, ...]
) -> tuple[int, ...]:
    """Return the shape of ``x[...]`` for x of `shape` and index tensors for its dimensions `dims`, by numpy's rule.

    The indices' broadcast shape replaces adjacent dimensions in place, else comes first; 0-d indices do not count."""
    for index in indices:
        if index.dtype.category != dtypes.INTEGER:
            raise TypeError(f"{name}: indices must be integers, not {index.dtype.name}")
    if len(dims) != len(indices) or len(set(dims)) != len(dims) or not all([0 <= dim < len(shape) for dim in dims]):
        raise ValueError(f"{name}: {len(indices)} indices cannot be of the dimensions {dims} of a shape {list(shape)}")
    joint = broadcast_shapes(name, *[index.shape for index in indices])
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
    selects = not from_the_end and len(dims) == 1 and len(indices[0].shape) == 1 and len(source.shape) > 0
    cost = output.numel * CHEAP * 2 + indices[0].numel * 10 if selects else output.numel * CHEAP * 10
    return Inferred(output, cost, Reading(selects))


_INDEX = OpExpr("index", _infer_index, Form((2, None), tuple[tuple[Dim, ...], bool]), "indexing")


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
    shape = _indexed_shape("index", output.shape, dims, metas[1:])
    if metas[0].dtype is not output.dtype or metas[0].shape != shape:
        raise ValueError(f"index: {metas[0]} is no gradient of an index of {output} along {dims}")
    return Inferred(output, output.numel * CHEAP + metas[0].numel * 20)


_INDEX_ADD_TO_ZEROS = OpExpr(
    "index_add_to_zeros", _infer_index_add_to_zeros, Form((2, None), tuple[TensorMeta, tuple[Dim, ...]]), "indexing"
)


@_INDEX_ADD_TO_ZEROS.gradient(inputs=tuple(range(1, 33)))
def _index_add_to_zeros_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, ...]:
    indices = tuple([node.input(position) for position in range(1, len(node.metas))])
    return (_interpreter.dispatch(_INDEX, (gradient, *indices), (node.attributes[1], True)),) + (None,) * len(indices)


# x[index] = value


def _part_of(tensor: Tensor) -> Part:
    return tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset()


def check_part(name: str, whole: TensorMeta, part: Part) -> None:
    """Raise ValueError unless `part` is None, or a (shape, strides, offset) within a contiguous tensor like `whole`."""
    if part is None:
        return
    shape, strides, offset = part
    fits = len(shape) == len(strides) and min(shape, default=0) >= 0
    if fits and 0 not in shape:
        reach = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
        lowest, highest = [offset + sum([f(distance, 0) for distance in reach]) for f in (min, max)]
        fits = lowest >= 0 and highest < whole.numel
    if not fits:
        raise ValueError(f"{name}: the part {part} does not lie within {whole}")


def _check_value(name: str, value: TensorMeta, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless a value broadcasts to the indexed `shape`, apart from further leading sizes of 1."""
    extra = max(len(value.shape) - len(shape), 0)
    if value.shape[:extra] != (1,) * extra or broadcast_shapes(name, shape, value.shape[extra:]) != shape:
        raise ValueError(f"{name}: a value of shape {list(value.shape)} does not fit the indexed shape {list(shape)}")


def _infer_index_put(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    dims, _, part = cast("tuple[tuple[int, ...], bool, Part]", attributes)
    target, value, *indices = metas
    common_device("index_put", metas)
    check_part("index_put", target, part)
    whole = target.shape if part is None else part[0]
    shape = _indexed_shape("index_put", whole, dims, tuple(indices))
    _check_value("index_put", value, shape)
    return Inferred(target, target.numel * CHEAP + value.numel * 20, Writing(shape))


_INDEX_PUT = OpExpr("index_put", _infer_index_put, Form((3, None), tuple[tuple[int, ...], bool, Part]), "indexing")


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
        extra = len(node.meta(1).shape) - new.ndim
        new = new.reshape((1,) * extra + tuple(new.shape)) if extra > 0 else new
    return (old, new) + (None,) * len(indices)


def _put(input: Tensor, indices: tuple[Tensor, ...], value: Tensor, attributes: Attributes) -> Tensor:
    return _interpreter.dispatch(_INDEX_PUT, (input, value, *indices), attributes)


@public()
def index_put(input: Tensor, indices: tuple[Tensor | None, ...], values: Tensor, accumulate: bool = False) -> Tensor:
    """Copy `input` and set ``copy[indices] = values``, or with `accumulate` add, where every repetition counts.

    Waits for masks among the indices.

    Args:
        indices: from the first dimension on, an integer tensor for a dimension (negative numbers count from its end), a
            mask for as many dimensions as the mask has, or None, which takes all of a dimension.
        values: broadcast to the shape of the indexed part, and cast to the dtype of `input`.

    Raises:
        TypeError: if `input` or `values` is no tensor, or `indices` no tuple or list of tensors and None.
        IndexError: if there are too many indices, of other dtypes, or a mask does not fit; when the result is read, if
            an index is out of range.
        ValueError: if the indices or values do not broadcast, or all indices are None.

    Example:
        >>> flow.index_put(flow.zeros(3), (flow.tensor([0, 2]),), flow.tensor([5.0, 6.0]))
        tensor([5., 0., 6.])
    """
    part, tensors, attributes = _put_indices("index_put", input, indices, values, accumulate)
    # `reshape` removes the dimension of size 1 that `parted` inserts for a 0-d mask.
    return _put(part, tensors, values, attributes).reshape(input.shape)


@method()
def index_put_(input: Tensor, indices: tuple[Tensor | None, ...], values: Tensor, accumulate: bool = False) -> Tensor:
    """In-place `index_put`."""
    part, tensors, attributes = _put_indices("index_put_", input, indices, values, accumulate)
    if part.shape != input.shape:
        return copy_(input, index_put(input, indices, values, accumulate))
    return _interpreter.dispatch_into(_INDEX_PUT, input, (input, values, *tensors), attributes)


def _put_indices(
    name: str, input: Tensor, indices: tuple[Tensor | None, ...], values: Tensor, accumulate: bool
) -> tuple[Tensor, tuple[Tensor, ...], Attributes]:
    check_tensors(name, input, values)
    if not isinstance(indices, (tuple, list)):
        raise TypeError(f"{name}: the indices must be a tuple of tensors, not {type(indices).__name__}")
    check_tensors(name, optional=indices)
    items = normal_index(tuple([slice(None) if index is None else index for index in indices]), input)
    part, tensors = parted(input, items)
    if not tensors:
        raise ValueError(f"{name}: expected at least one index tensor")
    tensors = flat_masks(tensors)
    return (
        part,
        tuple([item for _, item in tensors]),
        (tuple([dim for dim, _ in tensors]), flag(name, "accumulate", accumulate), None),
    )


@method("__setitem__", own=False)
def setitem(input: Tensor, index: Any, value: Any) -> None:
    """``input[index] = value``; the value, a number, tensor, array or list, is cast and broadcast to the indexed part.

    Raises:
        IndexError, ValueError, TypeError: as `getitem`; ValueError if the value's shape does not fit.
        TypeError: if the value holds anything but numbers, or is a complex number for a real dtype.
        ValueError, OverflowError: for a number out of the dtype's range, unless it is of an array or a tensor.
        RuntimeError: for a leaf that requires a gradient, while gradients are recorded; for a global tensor, if a view
            of the part does not share its memory.
    """
    is_number = isinstance(value, Number)
    if not is_number and not isinstance(value, _tensors.Tensor):
        value = _like(value, input)
    is_view = input._blob.strides is not None
    # Without autograd, or for a view, write through a view of the part.  Else autograd records a write into the whole
    # tensor, which is cheaper than the history of a view.
    tracked = input.requires_grad or (not is_number and value.requires_grad)
    if tracked and MODE.get().grad:
        _node.OpNode.check_target("x[...] = ...", input)
    through_whole = tracked and not is_view and MODE.get().grad
    seen = input if is_view else input.detach()
    if through_whole and input.is_global:
        # The part's strides and offset are those in a local tensor of the same shape, whose values do not matter.
        seen = full_of(meta(input.shape, input.dtype, Device("meta")), 0)
    part, tensors = parted(seen, normal_index(index, input))
    whole = part._blob is seen._blob
    target = input if whole else part
    through_whole = through_whole and not whole
    if not tensors and not through_whole:
        copy_(target, value if is_number else _fitting(value, part))
    elif not tensors:
        value = _filled(value, input) if is_number else _fitting(value, part)
        _interpreter.dispatch_into(STRIDED_PUT, input, (input, value), (_part_of(part),))
    elif not through_whole and _is_one_mask(tensors) and (is_number or value.ndim == 0):
        # Here x[mask] = a number or 0-d tensor becomes masked_fill_, which, unlike the next branch, waits for no mask.
        ((dim, mask),) = tensors
        masked_fill_(target, mask.reshape(tuple(mask.shape) + (1,) * (part.ndim - dim - max(mask.ndim, 1))), value)
    else:
        tensors = flat_masks(tensors)
        value = _filled(value, input) if is_number else value
        dims = tuple([dim for dim, _ in tensors])
        written = (dims, False, _part_of(part)) if through_whole else (dims, False, None)
        target = input if through_whole else target
        _interpreter.dispatch_into(_INDEX_PUT, target, (target, value, *[item for _, item in tensors]), written)


def _like(value: Any, tensor: Tensor) -> Tensor:
    return beside(new_tensor(value, dtype=tensor.dtype, device=tensor.device), tensor)


def _filled(number: Any, tensor: Tensor) -> Tensor:
    return beside(full_of(meta((), tensor.dtype, tensor.device), number), tensor)


def _fitting(value: Tensor, part: Tensor) -> Tensor:
    """Check that `value` fits `part`, and return it without leading dimensions of size 1 that `part` does not have."""
    _check_value("setitem", value._blob.meta, tuple(part.shape))
    return value if value.ndim <= part.ndim else value.reshape(value.shape[value.ndim - part.ndim :])


def _is_one_mask(tensors: list[tuple[int, Tensor]]) -> bool:
    return len(tensors) == 1 and tensors[0][1].dtype is dtypes.bool_


def _infer_strided_put(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (part,) = cast("tuple[Part]", attributes)
    target, _ = metas
    common_device("setitem", metas)
    if part is None:
        raise ValueError("setitem: which part is written must be known")
    check_part("setitem", target, part)
    _check_value("setitem", metas[1], part[0])
    return Inferred(target, target.numel * CHEAP)


STRIDED_PUT = OpExpr("strided_put", _infer_strided_put, Form(2, tuple[Part]), "indexing")


@STRIDED_PUT.gradient()
def _strided_put_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    zero = gradient.new_zeros(())
    old = _interpreter.dispatch(STRIDED_PUT, (gradient, zero), node.attributes) if node.needs[0] else None
    new = _interpreter.dispatch(_STRIDED_GET, (gradient,), node.attributes) if node.needs[1] else None
    return old, new


def put_part(input: Tensor, value: Tensor, part: Part) -> Tensor:
    """Copy `input` in C order, and write `value` into the copy's part (shape, strides, offset), counted in elements."""
    return _interpreter.dispatch(STRIDED_PUT, (input, value), (part,))


def _infer_strided_get(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (part,) = cast("tuple[Part]", attributes)
    (source,) = metas
    if part is None:
        raise ValueError("setitem: which part is read must be known")
    check_part("setitem", source, part)
    return Inferred(meta(part[0], source.dtype, source.device), source.numel * CHEAP)


_STRIDED_GET = OpExpr("strided_get", _infer_strided_get, Form(1, tuple[Part]), "indexing")


@_STRIDED_GET.gradient()
def _strided_get_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    source = node.meta(0)
    zeros = gradient.new_zeros(tuple(source.shape))
    return (_interpreter.dispatch(STRIDED_PUT, (zeros, gradient), node.attributes),)


# The op of `as_strided` is declared here, since histories of views have it; that function is imported on first use.


def end_of(geometry: Geometry) -> int:
    """Return the offset one past the last element of a view (shape, strides >= 0, offset); if empty, its own offset."""
    shape, strides, offset = geometry
    if 0 in shape:
        return offset
    return offset + sum([(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]) + 1


def _may_overlap(geometry: Geometry) -> bool:
    """Return whether elements of a view (shape, strides, offset) may share memory; False means that none do."""
    shape, strides, _ = geometry
    covered = 0
    for stride, size in sorted([(stride, size) for size, stride in zip(shape, strides, strict=True) if size > 1]):
        if stride <= covered:
            return True
        covered += (size - 1) * stride
    return False


# No memory holds more elements than this.
_MOST_PLACES: Final = 1 << 60


def _infer_respread(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    written, read = cast("tuple[Geometry, Geometry]", attributes)
    (source,) = metas
    for shape, strides, offset in (written, read):
        if len(shape) != len(strides) or min(*shape, *strides, offset, 0) < 0:
            raise ValueError(f"respread: {(shape, strides, offset)} is no geometry")
    if source.shape != written[0] or not max(end_of(written), end_of(read)) <= _MOST_PLACES:
        raise ValueError(f"respread: {source} is not spread as {written}")
    low = min(written[2], read[2])
    count = max(end_of(written), end_of(read)) - low
    output = meta(read[0], source.dtype, source.device)
    return Inferred(output, count * CHEAP + (source.numel + output.numel) * 20, Span(low, count))


_RESPREAD = OpExpr("respread", _infer_respread, Form(1, tuple[Geometry, Geometry]), "indexing")


@_RESPREAD.gradient()
def _respread_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    written, read = cast("tuple[Geometry, Geometry]", node.attributes)
    return (respread(gradient, read, written),)


def respread(input: Tensor, written: Geometry, read: Geometry) -> Tensor:
    """Add `input` to the view `written` of a vector of zeros, and return a copy of the vector's view `read`."""
    return _interpreter.dispatch(_RESPREAD, (input,), (written, read))


def _view_as_strided(attributes: Attributes, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Geometry:
    viewed, _ = cast("tuple[Geometry, Geometry]", attributes)
    return viewed


AS_STRIDED = ViewExpr("as_strided", _view_as_strided)


@AS_STRIDED.gradient()
def _as_strided_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    viewed, own = cast("tuple[Geometry, Geometry]", node.attributes)
    result = respread(gradient, viewed, own)
    if _may_overlap(own):
        # Elements of the input that share memory share the gradient of that memory evenly.
        result = result / respread(gradient.new_ones(own[0]), own, own)
    return (result,)


@public(numpy_names=True)
@out_by_copy()
def index_select(input: Tensor, dim: int, index: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Copy the slices along `dim` that the vector `index` names, in that order.

    Raises:
        TypeError: if `input` is no tensor, or `index` no integer tensor.
        ValueError: if the index has several dimensions, or not one element for a 0-d tensor.
        IndexError: if the dimension does not exist; when the result is read, if an index is negative or too large.

    Example:
        >>> flow.index_select(flow.tensor([[1, 2], [3, 4]]), 1, flow.tensor([1, 0]))
        tensor([[2, 1],
                [4, 3]])
    """
    check_tensors("index_select", input, index)
    axis = index_vector("index_select", input, dim, index)
    if input.ndim == 0:
        if index.numel() != 1:
            raise ValueError(f"index_select: a 0-d tensor takes one index, not {index.numel()}")
        return gather(input, 0, index.reshape(()))
    return _interpreter.dispatch(_INDEX, (input, index.reshape(index.numel())), ((axis,), False))


@public(numpy_names=True)
@copied_in_place()
@out_by_copy()
@autocast_as_op
def index_add(
    input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1, out: Tensor | None = None
) -> Tensor:
    """Copy `input` and add the slices of ``alpha * source`` along `dim` to those that the vector `index` names.

    Repetitions count.

    Raises:
        TypeError: if an operand is no tensor, `index` no integer tensor, the other two dtypes differ, or `alpha` does
            not fit them.
        ValueError: if the index has several dimensions or `input` none, or the shape of `source` does not fit.
        IndexError: if the dimension does not exist; when the result is read, if an index, which may be negative, is out
            of range.
        OverflowError: for an `alpha` beyond int64 and uint64.

    Example:
        >>> flow.index_add(flow.zeros(3), 0, flow.tensor([0, 0, 2]), flow.ones(3))
        tensor([2., 0., 1.])
    """
    check_tensors("index_add", input, index, source)
    axis = index_vector("index_add", input, dim, index, source)
    if alpha != 1:
        source = scaled("index_add", "alpha", source, alpha, input.dtype)
    return _put(input, (index,), source, ((axis,), True, None))


@public(numpy_names=True)
@copied_in_place()
@out_by_copy()
@autocast_as_op
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Copy `input` with the slices of `source` in place of the slices along `dim` that the vector `index` names.

    Raises:
        TypeError, ValueError, IndexError: as `index_add`.

    Example:
        >>> flow.index_copy(flow.zeros(3), 0, flow.tensor([2, 0]), flow.tensor([5.0, 6.0]))
        tensor([6., 0., 5.])
    """
    check_tensors("index_copy", input, index, source)
    axis = index_vector("index_copy", input, dim, index, source)
    return _put(input, (index,), source, ((axis,), False, None))


@public(numpy_names=True)
@copied_in_place()
def index_fill(input: Tensor, dim: int, index: Tensor, value: Tensor | float) -> Tensor:
    """Copy `input` with `value`, a number or a 0-d tensor, in the slices along `dim` that the vector `index` names.

    Raises:
        TypeError: if `input` is no tensor, `index` no integer tensor, or `value` no number or tensor, or a complex
            number for a real dtype.
        ValueError: if the index has several dimensions, `input` none, or the value any, or a number is out of range.
        IndexError: as `index_add`.
        OverflowError: for an integer beyond int64 and uint64.

    Example:
        >>> flow.index_fill(flow.zeros(3), 0, flow.tensor([0, 2]), 7)
        tensor([7., 0., 7.])
    """
    check_tensors("index_fill", input, index)
    axis = index_vector("index_fill", input, dim, index)
    if not isinstance(value, _tensors.Tensor):
        value = _filled(value, input)
    elif value.ndim:
        raise ValueError(f"index_fill: the value must be a number or a 0-d tensor, not of shape {list(value.shape)}")
    return _put(input, (index,), value, ((axis,), False, None))


def index_vector(name: str, input: Tensor, dim: int, index: Tensor, source: Tensor | None = None) -> int:
    """Check the index vector, and the source if given, of an op such as `index_add`; return `dim`, not negative."""
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


@public()
@out_by_copy()
def masked_select(input: Tensor, mask: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Copy the elements where `mask` is True, as a vector; `input` and `mask` broadcast.  Waits for the mask.

    Raises:
        TypeError: if `input` is no tensor, or `mask` no bool tensor.
        ValueError: if the shapes do not broadcast.

    Example:
        >>> flow.masked_select(flow.tensor([1, 2, 3]), flow.tensor([True, False, True]))
        tensor([1, 3])
    """
    check_tensors("masked_select", input, mask)
    if mask.dtype is not dtypes.bool_:
        raise TypeError(f"masked_select: the mask must be a bool tensor, not {mask.dtype.name}")
    shape = broadcast_shapes("masked_select", input.shape, mask.shape)
    return getitem(input.expand(shape), mask.expand(shape)).reshape(-1)
