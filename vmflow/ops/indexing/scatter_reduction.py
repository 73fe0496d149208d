"""`scatter_reduce` and `index_reduce`, which combine elements of one tensor with elements of another, by an index."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from vmflow import dtypes, interpreter as _interpreter
from vmflow.arguments import flag
from vmflow.dtypes import FLOATING
from vmflow.operands import check_tensors
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.declaration import public
from vmflow.ops.destination import out_by_copy
from vmflow.ops.elementwise.inference import CHEAP
from vmflow.ops.elementwise.selection import masked_fill, where
from vmflow.ops.in_place import copied_in_place
from vmflow.ops.shape.view import expand, reshape, sliced
from vmflow.ops.table import Attributes, Dim, Form, Inferred, Kinds, Metas, OpExpr, common_device, normalize_dim

from .gathering import check_gather, gather, scatter, scatter_add
from .indexing import index_vector

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

_REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


def _infer_scatter_reduce(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    dim, how, _ = cast("tuple[Dim, str, bool]", attributes)
    name = "scatter_reduce"
    target, index, source = metas
    common_device(name, metas)
    if source.dtype is not target.dtype:
        raise TypeError(f"{name}: expected one dtype, got {target.dtype.name} and {source.dtype.name}")
    if how in ("amax", "amin") and target.dtype.category > FLOATING:
        raise TypeError(f"{name}: {how} is not defined for {target.dtype.name} tensors")
    if target.dtype is dtypes.bool_ and how == "mean":
        raise TypeError(f"{name}: the mean is not defined for bools; convert them with .int()")
    check_gather(name, target.shape, dim, index)
    return Inferred(target, target.numel * CHEAP * 4 + index.numel * 40)


_SCATTER_REDUCE = OpExpr("scatter_reduce", _infer_scatter_reduce, Form(3, tuple[Dim, str, bool]), "gathering")


@_SCATTER_REDUCE.gradient(inputs=(0, 1, 2), outputs=(0,))
def _scatter_reduce_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor, None, Tensor]:
    dim, how, include_self = cast("tuple[Dim, str, bool]", node.attributes)
    index = node.input(1)
    if how == "sum":
        target, source = gradient, gather(gradient, dim, index)
    elif how == "mean":
        counts = gradient.new_full(tuple(gradient.shape), 1 if include_self else 0)
        counts = scatter_add(counts, dim, index, gradient.new_ones(tuple(index.shape))).clamp(min=1)
        target = gradient / counts
        source = gather(target, dim, index)
    elif how == "prod":
        target, source = _product_gradient(node, gradient, dim, include_self)
    else:
        target, source = _extremum_gradient(node, gradient, dim, include_self)
    if not include_self:
        target = scatter(target, dim, index, value=0)
    return target, None, source


def _product_gradient(node: OpNode, gradient: Tensor, dim: int, include_self: bool) -> tuple[Tensor, Tensor]:
    """Compute the gradients of scatter_reduce with "prod" by input and source: products of all other elements.

    The gradients are right also for elements that are zero, by which the product cannot be divided."""
    given, index, values = node.input(0), node.input(1), node.input(2)
    others = masked_fill(given, given == 0, 1)
    target = gradient * scatter_reduce(others, dim, index, values, "prod", include_self=include_self) / others
    empty = values == 0
    zeros = scatter_add(given.new_zeros(tuple(given.shape)), dim, index, empty.to(given.dtype))
    alone = empty & (gather(zeros, dim, index) == 1)
    without = scatter_reduce(given, dim, index, masked_fill(values, alone, 1), "prod", include_self=include_self)
    whole = gather(gradient * node.output(0), dim, index) / masked_fill(values, empty, 1)
    return target, where(alone, gather(gradient * without, dim, index), whole)


def _extremum_gradient(node: OpNode, gradient: Tensor, dim: int, include_self: bool) -> tuple[Tensor, Tensor]:
    """Compute the gradients of scatter_reduce with "amax" or "amin" by input and source.

    Elements that equal the result share its gradient evenly."""
    given, index, values, result = node.input(0), node.input(1), node.input(2), node.output(0)
    chosen = (given == result).to(gradient.dtype)
    if not include_self:
        chosen = scatter(chosen, dim, index, value=0)
    chosen_values = (values == gather(result, dim, index)).to(gradient.dtype)
    share = gradient / scatter_add(chosen, dim, index, chosen_values).clamp(min=1)
    return chosen * share, chosen_values * gather(share, dim, index)


@public()
@copied_in_place()
@out_by_copy()
def scatter_reduce(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
    out: Tensor | None = None,
) -> Tensor:
    """Copy `input` and combine the elements of `src` with the elements that `index` names along `dim`.

    Args:
        dim, index: as of `scatter`.
        src: of the dtype of `input`, and at least as large as `index`.
        reduce: "sum", "prod", "mean", "amax" or "amin".
        include_self: whether elements of `input` are combined too; elements that no index names stay anyway.

    Raises:
        TypeError: if an operand is no tensor, the index no integer tensor, the other two dtypes differ, or `reduce` is
            not defined for them.
        ValueError: if the shape of index or source does not fit, or for another `reduce`.
        IndexError: if there is no dimension `dim`; when the result is read, if an index is negative or too large.

    Example:
        >>> flow.scatter_reduce(flow.tensor([1.0, 2.0]), 0, flow.tensor([0, 0]), flow.tensor([5.0, 3.0]), "amax")
        tensor([5., 2.])
    """
    if reduce not in _REDUCTIONS:
        raise ValueError(f"scatter_reduce: reduce must be one of {', '.join(map(repr, _REDUCTIONS))}, not {reduce!r}")
    check_tensors("scatter_reduce", input, index, src)
    axis = normalize_dim("scatter_reduce", dim, input.ndim)
    if src.ndim != index.ndim or any([size > limit for size, limit in zip(index.shape, src.shape, strict=True)]):
        raise ValueError(
            f"scatter_reduce: an index of shape {list(index.shape)} needs a source at least as large, "
            f"got {list(src.shape)}"
        )
    for place, (size, have) in enumerate(zip(index.shape, src.shape, strict=True)):
        src = src if size == have else sliced(src, place, 0, size)
    return _interpreter.dispatch(
        _SCATTER_REDUCE, (input, index, src), (axis, reduce, flag("scatter_reduce", "include_self", include_self))
    )


@public()
@copied_in_place()
@out_by_copy()
@autocast_as_op
def index_reduce(
    input: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
    out: Tensor | None = None,
) -> Tensor:
    """Copy `input` and combine the slices of `source` with the slices that the vector `index` names.

    Args:
        input: not 0-d.
        dim: the dimension of the slices.
        index: a vector of integers, one for each slice of `source`.
        source: of the dtype of `input`, and of its shape except along `dim`.
        reduce: "prod", "mean", "amax" or "amin"; for sums there is `index_add`.
        include_self: see `scatter_reduce`.

    Raises:
        TypeError, IndexError: as `scatter_reduce`.
        ValueError: if the shape of index or source does not fit, or for another `reduce`.

    Example:
        >>> flow.index_reduce(flow.tensor([1.0, 2.0]), 0, flow.tensor([0, 0]), flow.tensor([5.0, 3.0]), "prod")
        tensor([15.,  2.])
    """
    if reduce not in _REDUCTIONS[1:]:
        raise ValueError(f"index_reduce: reduce must be one of {', '.join(map(repr, _REDUCTIONS[1:]))}, not {reduce!r}")
    check_tensors("index_reduce", input, index, source)
    axis = index_vector("index_reduce", input, dim, index, source)
    shape = (1,) * axis + (index.numel(),) + (1,) * (input.ndim - axis - 1)
    places = expand(reshape(index, shape), tuple(source.shape))
    return scatter_reduce(input, axis, places, source, reduce, include_self=include_self)
