"""Elements by their rank or frequency: quantiles, medians that ignore nan, the most frequent element."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from vmflow import dtypes, interpreter as _interpreter, tensors as _tensors
from vmflow.arguments import flag
from vmflow.dtypes import FLOATING
from vmflow.instructions.blob import meta
from vmflow.operands import check_tensors
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.copying import full_of
from vmflow.ops.declaration import public
from vmflow.ops.destination import out_by_copy, outs_by_copy
from vmflow.ops.elementwise.comparison import isnan
from vmflow.ops.elementwise.inference import CHEAP
from vmflow.ops.elementwise.selection import where
from vmflow.ops.indexing.gathering import gather
from vmflow.ops.shape.view import movedim, ravel, reshape
from vmflow.ops.table import Attributes, Dim, Form, Inferred, Kinds, Metas, OpExpr, normalize_dim
from vmflow.transfers import beside

from .extrema import ValuesIndices
from .ordering import sort

if TYPE_CHECKING:
    from vmflow.tensors import Tensor

_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


@public(numpy_names=True)
@out_by_copy()
@autocast_as_op
def quantile(
    input: Tensor,
    q: float | Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
    out: Tensor | None = None,
) -> Tensor:
    """Quantiles: the values below which the fractions `q` of the elements lie, along `dim` or of the flattened tensor.

    nan if an element is nan.

    Args:
        input: of a floating-point dtype.
        q: from 0 to 1: a number, a 0-d tensor, or a vector, whose dimension comes first in the result.
        dim: the dimension to reduce.
        keepdim: whether the reduced dimension is kept, with size 1.
        interpolation: the value of a quantile between elements: "linear", "lower", "higher", "midpoint" or "nearest".

    Raises:
        TypeError: if dtypes are not one floating-point dtype, or `q` is neither a number nor a tensor.
        ValueError: if `q` is a number out of range or has more than one dimension, there are no elements, or for
            another `interpolation`.
        IndexError: if the dimension does not exist; when the result is read, if an element of a tensor `q` is out of
            range.

    Example:
        >>> flow.quantile(flow.tensor([0.0, 1.0, 4.0]), 0.75)
        tensor(2.5000)
    """
    check_tensors("quantile", input)
    return _quantile("quantile", input, q, dim, keepdim, interpolation)


@public(numpy_names=True)
@out_by_copy()
@autocast_as_op
def nanquantile(
    input: Tensor,
    q: float | Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
    out: Tensor | None = None,
) -> Tensor:
    """As `quantile`, over the elements that are not nan; nan if all are.

    Raises:
        TypeError, ValueError, IndexError: as `quantile`.

    Example:
        >>> flow.nanquantile(flow.tensor([0.0, flow.nan, 4.0]), 0.25)
        tensor(1.)
    """
    check_tensors("nanquantile", input)
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation)


def _quantile(
    name: str, input: Tensor, q: float | Tensor, dim: int | None, keepdim: bool, interpolation: str
) -> Tensor:
    if interpolation not in _INTERPOLATIONS:
        listed = ", ".join(map(repr, _INTERPOLATIONS))
        raise ValueError(f"{name}: interpolation must be one of {listed}, not {interpolation!r}")
    if input.dtype.category != FLOATING:
        raise TypeError(f"{name}: expected a floating-point tensor, got {input.dtype.name}")
    keepdim = flag(name, "keepdim", keepdim)
    parts = _parts(name, input, q)
    axis = None if dim is None else normalize_dim(name, dim, input.ndim)
    rows = ravel(input) if axis is None or input.ndim == 0 else movedim(input, axis, -1)
    if rows.shape[-1] == 0:
        raise ValueError(f"{name}: a tensor of shape {list(input.shape)} has no elements to choose from")
    result = _interpolated(rows, parts, interpolation, name == "nanquantile", isinstance(q, _tensors.Tensor))
    result = movedim(result, -1, 0)
    if keepdim:
        kept = [1 if axis is None or other == axis else size for other, size in enumerate(input.shape)]
        result = reshape(result, (result.shape[0], *kept))
    scalar = not isinstance(q, _tensors.Tensor) or q.ndim == 0
    return result[0] if scalar else result


def _parts(name: str, input: Tensor, q: float | Tensor) -> Tensor:
    """Convert the argument `q` of `quantile` to a float64 vector of fractions."""
    if isinstance(q, _tensors.Tensor):
        if q.ndim > 1:
            raise ValueError(f"{name}: q must be a number or a vector, got shape {list(q.shape)}")
        if q.dtype is not input.dtype:
            raise TypeError(f"{name}: expected q of the dtype {input.dtype.name}, got {q.dtype.name}")
        return reshape(q.to(dtypes.float64), (q.numel(),))
    if not isinstance(q, (int, float, np.number)):
        raise TypeError(f"{name}: q must be a number from 0 to 1, a tensor, or a vector, not {q!r}")
    if not 0 <= q <= 1:
        raise ValueError(f"{name}: q must be from 0 to 1, not {q}")
    return beside(full_of(meta((1,), dtypes.float64, input.device), float(q)), input)


def _interpolated(rows: Tensor, parts: Tensor, interpolation: str, ignores_nan: bool, checks: bool) -> Tensor:
    """Compute quantiles along the last dimension of `rows`: (..., n) gives (..., k), for the k fractions in `parts`.

    With `checks`, reading the result raises IndexError if a fraction is not within [0, 1].
    """
    ordered = sort(rows, -1).values
    last = rows.shape[-1] - 1
    nans = isnan(ordered)  # which come last
    if ignores_nan:
        ranks = parts * (last - nans.sum(-1, keepdim=True)).clamp(min=0).to(dtypes.float64)
    else:
        ranks = where(nans[..., -1:], float(last), parts * float(last))
    if checks:
        ranks = where((parts >= 0) & (parts <= 1), ranks, -1.0)  # for which `gather` raises
    if interpolation == "nearest":
        ranks = ranks.round()
    below, above = ranks.floor(), ranks.ceil()
    if interpolation == "higher":
        return gather(ordered, -1, above.to(dtypes.int64))
    low = gather(ordered, -1, below.to(dtypes.int64))
    if interpolation in ("lower", "nearest"):
        return low
    high = gather(ordered, -1, above.to(dtypes.int64))
    weight = beside(full_of(meta((), rows.dtype, rows.device), 0.5), rows)
    return low.lerp(high, weight if interpolation == "midpoint" else (ranks - below).to(rows.dtype))


@public(numpy_names=True)
@outs_by_copy()
def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """As `median`, over the elements that are not nan; nan if all are.

    Raises:
        TypeError, IndexError: as `median`.

    Example:
        >>> flow.nanmedian(flow.tensor([flow.nan, 1.0, 2.0, 3.0]))
        tensor(2.)
    """
    keepdim = flag("nanmedian", "keepdim", keepdim)
    if dim is None:
        return nanmedian(ravel(input), 0).values
    axis = normalize_dim("nanmedian", dim, input.ndim)
    if input.ndim and input.shape[axis] == 0:
        raise IndexError(f"nanmedian: dimension {dim} of shape {list(input.shape)} has no elements to choose from")
    if input.ndim == 0:
        return ValuesIndices(*[result[0] for result in nanmedian(reshape(input, (1,)), 0, True)])
    values, indices = sort(input, axis)
    if input.dtype.category == FLOATING:
        numbers = input.shape[axis] - isnan(input).sum(axis, keepdim=True)
    else:
        shape = tuple([1 if other == axis else size for other, size in enumerate(input.shape)])
        numbers = beside(full_of(meta(shape, dtypes.int64, input.device), input.shape[axis]), input)
    place = ((numbers - 1) // 2).clamp(min=0)
    return _squeezed(gather(values, axis, place), gather(indices, axis, place), axis, keepdim)


def _squeezed(values: Tensor, indices: Tensor, axis: int, keepdim: bool) -> ValuesIndices:
    if keepdim:
        return ValuesIndices(values, indices)
    return ValuesIndices(values.squeeze(axis), indices.squeeze(axis))


def _infer_mode(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (dim,) = cast("tuple[int]", attributes)
    (source,) = metas
    if source.dtype.category > FLOATING:
        raise TypeError(f"mode is not defined for {source.dtype.name} tensors")
    size = source.shape[dim] if source.shape else 1
    if size == 0:
        raise IndexError(f"mode: dimension {dim} of shape {list(source.shape)} has no elements to choose from")
    shape = (*source.shape[:dim], 1, *source.shape[dim + 1 :]) if source.shape else ()
    return Inferred(meta(shape, dtypes.int64, source.device), source.numel * CHEAP * 120)


_MODE = OpExpr("mode", _infer_mode, Form(1, tuple[Dim]), "ordering")


@public(numpy_names=True)
@outs_by_copy()
def mode(
    input: Tensor, dim: int = -1, keepdim: bool = False, *, out: tuple[Tensor, Tensor] | None = None
) -> ValuesIndices:
    """The most frequent element along `dim`, the smallest of several, and its last index, as a pair (values, indices).

    A nan equals no other element.

    Raises:
        TypeError: for complex tensors.
        IndexError: if the dimension does not exist or has no elements.

    Example:
        >>> flow.mode(flow.tensor([2, 1, 2]))
        ValuesIndices(values=tensor(2), indices=tensor(2))
    """
    check_tensors("mode", input)
    axis = normalize_dim("mode", dim, input.ndim)
    keepdim = flag("mode", "keepdim", keepdim)
    indices = _interpreter.dispatch(_MODE, (input,), (axis,))
    return _squeezed(gather(input, axis, indices), indices, axis, keepdim or input.ndim == 0)
