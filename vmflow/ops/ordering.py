"""Ops that put elements in order: sorting, the largest few, the middle one.

Each finds indices first; the values are then gathered, which is where their gradients come from.  nan counts as larger
than any number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from vmflow import dtypes
from vmflow import interpreter as _interpreter
from vmflow.dtypes import FLOATING
from vmflow.instructions.blob import Array, meta

from .destination import delivered, delivered_all
from .elementwise import CHEAP
from .extrema import ValuesIndices
from .gathering import gather
from .table import Attributes, Dim, Form, Inferred, Kinds, Metas, OpExpr, Size, array_module, computed_by, normalize_dim

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


def comparable(xp: Any, array: Array) -> Array:
    """The array in a dtype that numpy sorts."""
    return array.astype(xp.float32) if array.dtype == dtypes.bfloat16.numpy else array


def _order(xp: Any, array: Array, dim: int, descending: bool) -> Array:
    """The indices that sort `array`; equal elements keep their order."""
    if not descending:
        return xp.argsort(array, axis=dim, kind="stable")
    backwards = xp.argsort(xp.flip(array, dim), axis=dim, kind="stable")
    return array.shape[dim] - 1 - xp.flip(backwards, dim)


def _infer_argsort(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    dim, descending = cast("tuple[int, bool]", attributes)
    (source,) = metas
    if source.dtype.category > FLOATING:
        raise TypeError(f"sort is not defined for {source.dtype.name} tensors")
    xp = array_module(source.device)

    def kernel(array: Array, out: Array | None) -> Array:
        if array.ndim == 0:
            return xp.zeros((), xp.int64)
        return xp.ascontiguousarray(_order(xp, comparable(xp, array), dim, descending))

    return computed_by(meta(source.shape, dtypes.int64, source.device), kernel, source.numel * CHEAP * 100)


_ARGSORT = OpExpr("argsort", _infer_argsort, Form(1, tuple[Dim, bool]))


def argsort(input: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = False) -> Tensor:
    """The indices, int64, that put the elements along `dim` in order.

    Args:
        input: of any real dtype.
        dim: the dimension to sort along.
        descending: whether the largest comes first.
        stable: accepted for PyTorch's sake; equal elements always keep their order.
    """
    axis = normalize_dim("argsort", dim, input.ndim)
    return _interpreter.dispatch(_ARGSORT, (input,), (axis, bool(descending)))


def sort(
    input: Tensor,
    dim: int = -1,
    descending: bool = False,
    *,
    stable: bool = False,
    out: tuple[Tensor, ...] | None = None,
) -> ValuesIndices:
    """The elements along `dim` in order, and where they were; see `argsort`."""
    if out is not None:
        return delivered_all("sort", out, (input,), lambda: sort(input, dim, descending, stable=stable))
    indices = argsort(input, dim, descending, stable=stable)
    return ValuesIndices(gather(input, dim, indices), indices)


def msort(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The elements along the first dimension in ascending order."""
    if out is not None:
        return delivered("msort", out, (input,), lambda: msort(input))
    return sort(input, 0).values


def _infer_topk(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    k, dim, largest = cast("tuple[int, int, bool]", attributes)
    (source,) = metas
    if source.dtype.category > FLOATING:
        raise TypeError(f"topk is not defined for {source.dtype.name} tensors")
    size = source.shape[dim] if source.shape else 1
    if not 0 <= k <= size:
        raise ValueError(f"topk: k must be from 0 to the size {size} of the dimension, not {k}")
    xp = array_module(source.device)
    shape = (*source.shape[:dim], k, *source.shape[dim + 1 :]) if source.shape else ()

    def kernel(array: Array, out: Array | None) -> Array:
        if array.ndim == 0:
            return xp.zeros((), xp.int64)
        array = xp.moveaxis(comparable(xp, array), dim, -1)
        if 0 < k < size // 4:
            # Sorting a few of many is cheaper when the many are only parted first.
            parted = xp.argpartition(array, size - k if largest else k - 1, axis=-1)
            chosen = xp.sort(parted[..., size - k :] if largest else parted[..., :k], axis=-1)
            order = _order(xp, xp.take_along_axis(array, chosen, -1), -1, largest)
            indices = xp.take_along_axis(chosen, order, -1)
        else:
            indices = _order(xp, array, -1, largest)[..., :k]
        return xp.ascontiguousarray(xp.moveaxis(indices, -1, dim))

    return computed_by(meta(shape, dtypes.int64, source.device), kernel, source.numel * CHEAP * 40)


_TOPK = OpExpr("topk", _infer_topk, Form(1, tuple[Size, Dim, bool]))


def topk(
    input: Tensor,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
    *,
    out: tuple[Tensor, ...] | None = None,
) -> ValuesIndices:
    """The `k` largest elements along `dim` (or the smallest), and where they were.

    Args:
        input: of any real dtype.
        k: how many.
        dim: the dimension to look along.
        largest: whether the largest or the smallest.
        sorted: accepted for PyTorch's sake; they always come in order, the most extreme first.

    Raises:
        ValueError: if there are not so many.
    """
    if out is not None:
        return delivered_all("topk", out, (input,), lambda: topk(input, k, dim, largest, sorted))
    axis = normalize_dim("topk", dim, input.ndim)
    indices = _interpreter.dispatch(_TOPK, (input,), (k, axis, bool(largest)))
    return ValuesIndices(gather(input, axis, indices), indices)


def _infer_rank(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    name, place, dim, nan_wins = cast("tuple[str, int, int, bool]", attributes)
    (source,) = metas
    if source.dtype.category > FLOATING:
        raise TypeError(f"{name} is not defined for {source.dtype.name} tensors")
    shape = (*source.shape[:dim], 1, *source.shape[dim + 1 :]) if source.shape else ()
    xp = array_module(source.device)

    def kernel(array: Array, out: Array | None) -> Array:
        if array.ndim == 0:
            return xp.zeros((), xp.int64)
        array = comparable(xp, array)
        chosen = xp.take(_order(xp, array, dim, False), [place], axis=dim)
        if nan_wins and array.dtype.kind == "f":
            nans = xp.isnan(array)
            first = xp.argmax(nans, axis=dim, keepdims=True)
            chosen = xp.where(nans.any(axis=dim, keepdims=True), first, chosen)
        return xp.ascontiguousarray(chosen)

    return computed_by(meta(shape, dtypes.int64, source.device), kernel, source.numel * CHEAP * 100)


_RANK = OpExpr("element_of_rank", _infer_rank, Form(1, tuple[str, Size, Dim, bool]))


def _of_rank(name: str, input: Tensor, place: int, dim: int, keepdim: bool, nan_wins: bool) -> ValuesIndices:
    indices = _interpreter.dispatch(_RANK, (input,), (name, place, dim, nan_wins))
    values = gather(input, dim, indices)
    if keepdim or input.ndim == 0:
        return ValuesIndices(values, indices)
    return ValuesIndices(values.squeeze(dim), indices.squeeze(dim))


def kthvalue(
    input: Tensor, k: int, dim: int = -1, keepdim: bool = False, *, out: tuple[Tensor, ...] | None = None
) -> ValuesIndices:
    """The `k`-th smallest element along `dim`, counted from 1, and where it was.

    Raises:
        ValueError: if there are not so many.
    """
    if out is not None:
        return delivered_all("kthvalue", out, (input,), lambda: kthvalue(input, k, dim, keepdim))
    axis = normalize_dim("kthvalue", dim, input.ndim)
    size = input.shape[axis] if input.ndim else 1
    if not 1 <= k <= size:
        raise ValueError(f"kthvalue: k must be from 1 to the size {size} of the dimension, not {k}")
    return _of_rank("kthvalue", input, k - 1, axis, keepdim, False)


def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The median; with `dim` a pair (values, indices).  Of an even number of elements the lower of the middle two.

    nan if any element is.

    Raises:
        IndexError: if a dimension has no element to choose.
    """
    if dim is None:
        return median(input.flatten(), 0).values
    axis = normalize_dim("median", dim, input.ndim)
    size = input.shape[axis] if input.ndim else 1
    if size == 0:
        raise IndexError(f"median: dimension {dim} of shape {list(input.shape)} has no elements to choose from")
    return _of_rank("median", input, (size - 1) // 2, axis, keepdim, True)
