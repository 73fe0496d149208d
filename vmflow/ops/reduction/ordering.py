"""Sorting, the largest elements, and medians.

Each op computes indices; the values are then gathered by them, so that the gradient is that of `gather`.  nan counts
as larger than any number, but a median is nan if any element is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from vmflow import dtypes, interpreter as _interpreter
from vmflow.arguments import flag, whole_number
from vmflow.dtypes import FLOATING
from vmflow.instructions.blob import meta
from vmflow.operands import check_tensors
from vmflow.ops.declaration import public
from vmflow.ops.destination import out_by_copy, outs_by_copy
from vmflow.ops.elementwise.inference import CHEAP
from vmflow.ops.indexing.gathering import gather
from vmflow.ops.table import Attributes, Dim, Form, Inferred, Kinds, Metas, OpExpr, Size, normalize_dim

from .extrema import ValuesIndices

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


def _infer_argsort(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (source,) = metas
    if source.dtype.category > FLOATING:
        raise TypeError(f"sort is not defined for {source.dtype.name} tensors")
    return Inferred(meta(source.shape, dtypes.int64, source.device), source.numel * CHEAP * 100)


_ARGSORT = OpExpr("argsort", _infer_argsort, Form(1, tuple[Dim, bool]), "ordering")


@public(numpy_names=True)
@out_by_copy()
def argsort(
    input: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = False, out: Tensor | None = None
) -> Tensor:
    """The indices, int64, that sort the elements along `dim`.

    Args:
        input: of any real dtype.
        dim: the dimension to sort along.
        descending: whether the largest comes first.
        stable: accepted for PyTorch's sake; equal elements always keep their order.

    Raises:
        TypeError: for complex tensors.
        IndexError: if the dimension does not exist.

    Example:
        >>> flow.argsort(flow.tensor([3, 1, 2]))
        tensor([1, 2, 0])
    """
    check_tensors("argsort", input)
    axis = normalize_dim("argsort", dim, input.ndim)
    return _interpreter.dispatch(_ARGSORT, (input,), (axis, flag("argsort", "descending", descending)))


@public(numpy_names=True)
@outs_by_copy()
def sort(
    input: Tensor,
    dim: int = -1,
    descending: bool = False,
    *,
    stable: bool = False,
    out: tuple[Tensor, ...] | None = None,
) -> ValuesIndices:
    """Sort the elements along `dim`; returns a pair (values, indices), the latter as of `argsort`.

    Raises:
        TypeError, IndexError: as `argsort`.

    Example:
        >>> flow.sort(flow.tensor([3, 1, 2]))
        ValuesIndices(values=tensor([1, 2, 3]), indices=tensor([1, 2, 0]))
    """
    check_tensors("sort", input)
    indices = argsort(input, dim, descending, stable=stable)
    return ValuesIndices(gather(input, dim, indices), indices)


@public()
@out_by_copy()
def msort(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Sort the elements along the first dimension in ascending order.

    Raises:
        TypeError: for complex tensors.

    Example:
        >>> flow.msort(flow.tensor([[3, 1], [0, 2]]))
        tensor([[0, 1],
                [3, 2]])
    """
    check_tensors("msort", input)
    return sort(input, 0).values


def _infer_topk(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    k, dim, _ = cast("tuple[int, int, bool]", attributes)
    (source,) = metas
    if source.dtype.category > FLOATING:
        raise TypeError(f"topk is not defined for {source.dtype.name} tensors")
    size = source.shape[dim] if source.shape else 1
    if not 0 <= k <= size:
        raise ValueError(f"topk: k must be from 0 to the size {size} of the dimension, not {k}")
    shape = (*source.shape[:dim], k, *source.shape[dim + 1 :]) if source.shape else ()
    return Inferred(meta(shape, dtypes.int64, source.device), source.numel * CHEAP * 40)


_TOPK = OpExpr("topk", _infer_topk, Form(1, tuple[Size, Dim, bool]), "ordering")


@public(numpy_names=True)
@outs_by_copy()
def topk(
    input: Tensor,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
    *,
    out: tuple[Tensor, ...] | None = None,
) -> ValuesIndices:
    """The `k` largest elements along `dim` (or the smallest), and their indices, as a pair (values, indices).

    Args:
        input: of any real dtype.
        k: the number of elements.
        dim: the dimension of the elements that are compared.
        largest: False for the smallest elements.
        sorted: accepted for PyTorch's sake; the elements always come in order, the most extreme first.

    Raises:
        TypeError: for complex tensors, or if `k` is no integer.
        ValueError: if the dimension has less than `k` elements, or `k` is negative.
        IndexError: if the dimension does not exist.

    Example:
        >>> flow.topk(flow.tensor([3, 1, 2]), 2)
        ValuesIndices(values=tensor([3, 2]), indices=tensor([0, 2]))
    """
    check_tensors("topk", input)
    axis = normalize_dim("topk", dim, input.ndim)
    flag("topk", "sorted", sorted)
    settings = whole_number("topk", "k", k), axis, flag("topk", "largest", largest)
    indices = _interpreter.dispatch(_TOPK, (input,), settings)
    return ValuesIndices(gather(input, axis, indices), indices)


def _infer_rank(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    name, _, dim, _ = cast("tuple[str, int, int, bool]", attributes)
    (source,) = metas
    if source.dtype.category > FLOATING:
        raise TypeError(f"{name} is not defined for {source.dtype.name} tensors")
    shape = (*source.shape[:dim], 1, *source.shape[dim + 1 :]) if source.shape else ()
    return Inferred(meta(shape, dtypes.int64, source.device), source.numel * CHEAP * 100)


_RANK = OpExpr("element_of_rank", _infer_rank, Form(1, tuple[str, Size, Dim, bool]), "ordering")


def _of_rank(name: str, input: Tensor, place: int, dim: int, keepdim: bool, nan_wins: bool) -> ValuesIndices:
    keepdim = flag(name, "keepdim", keepdim)
    indices = _interpreter.dispatch(_RANK, (input,), (name, place, dim, nan_wins))
    values = gather(input, dim, indices)
    if keepdim or input.ndim == 0:
        return ValuesIndices(values, indices)
    return ValuesIndices(values.squeeze(dim), indices.squeeze(dim))


@public(numpy_names=True)
@outs_by_copy()
def kthvalue(
    input: Tensor, k: int, dim: int = -1, keepdim: bool = False, *, out: tuple[Tensor, ...] | None = None
) -> ValuesIndices:
    """The `k`-th smallest element along `dim`, counted from 1, and its index, as a pair (values, indices).

    Raises:
        TypeError: for complex tensors, or if `k` is no integer.
        ValueError: if the dimension has less than `k` elements, or `k` is below 1.
        IndexError: if the dimension does not exist.

    Example:
        >>> flow.kthvalue(flow.tensor([3, 1, 2]), 2)
        ValuesIndices(values=tensor(2), indices=tensor(2))
    """
    check_tensors("kthvalue", input)
    axis = normalize_dim("kthvalue", dim, input.ndim)
    size = input.shape[axis] if input.ndim else 1
    k = whole_number("kthvalue", "k", k)
    if not 1 <= k <= size:
        raise ValueError(f"kthvalue: k must be from 1 to the size {size} of the dimension, not {k}")
    return _of_rank("kthvalue", input, k - 1, axis, keepdim, False)


@public(numpy_names=True)
@outs_by_copy()
def median(input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """The median, of an even number of elements the lower of the middle two; with `dim` a pair (values, indices).

    nan if an element is nan.

    Raises:
        TypeError: for complex tensors.
        IndexError: if the dimension does not exist or has no elements.

    Example:
        >>> flow.median(flow.tensor([4, 1, 3, 2]))
        tensor(2)
    """
    check_tensors("median", input)
    keepdim = flag("median", "keepdim", keepdim)
    if dim is None:
        return median(input.flatten(), 0).values
    axis = normalize_dim("median", dim, input.ndim)
    size = input.shape[axis] if input.ndim else 1
    if size == 0:
        raise IndexError(f"median: dimension {dim} of shape {list(input.shape)} has no elements to choose from")
    return _of_rank("median", input, (size - 1) // 2, axis, keepdim, True)
