"""Reductions and cumulative functions by the array API standard, version 2024.12.

Reductions raise ValueError if `axis` names a dimension twice.  With `axis` () they reduce each element alone, where
`vmflow.amax`, `vmflow.sum` and others reduce all dimensions.
"""

from __future__ import annotations

from functools import partial

import vmflow as flow
from vmflow.dtypes import dtype as DType
from vmflow.operands import check_tensors
from vmflow.tensors import Tensor
from vmflow.transfers import beside

from .data_types import isdtype
from .searching import Axes, along, only_axis


def summed(x: Tensor, dtype: DType | None) -> DType | None:
    """The `dtype` for sums of `x`; if None, uint64 for unsigned integers, which `vmflow` sums as int64, else None."""
    return flow.uint64 if dtype is None and isdtype(x.dtype, "unsigned integer") else dtype


def all(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Whether all elements along the dimensions `axis` (None: all) are non-zero.

    Raises:
        IndexError: if a dimension does not exist.

    Example:
        >>> flow.array_api.all(flow.tensor([True, False]))
        tensor(False)
    """
    check_tensors("all", x)
    return flow.all(x, axis, keepdims)


def any(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Whether some element along the dimensions `axis` (None: all) is non-zero.

    Raises:
        IndexError: if a dimension does not exist.

    Example:
        >>> flow.array_api.any(flow.tensor([True, False]))
        tensor(True)
    """
    check_tensors("any", x)
    return flow.any(x, axis, keepdims)


def max(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The largest element along the dimensions `axis` (None: all).

    Raises:
        TypeError: if `x` is complex.
        IndexError: if a dimension does not exist, or has no element.

    Example:
        >>> flow.array_api.max(flow.tensor([[1, 5], [7, 2]]), axis=1)
        tensor([5, 7])
    """
    check_tensors("max", x)
    return along(flow.amax, x, axis, keepdims)


def mean(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The arithmetic mean of the elements along the dimensions `axis` (None: all).

    Raises:
        TypeError: if `x` is integer or bool.
        IndexError: if a dimension does not exist.

    Example:
        >>> flow.array_api.mean(flow.tensor([1.0, 2.0]))
        tensor(1.5000)
    """
    check_tensors("mean", x)
    return along(flow.mean, x, axis, keepdims)


def min(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The smallest element along the dimensions `axis` (None: all).

    Raises:
        TypeError: if `x` is complex.
        IndexError: if a dimension does not exist, or has no element.

    Example:
        >>> flow.array_api.min(flow.tensor([[1, 5], [7, 2]]), axis=1)
        tensor([1, 2])
    """
    check_tensors("min", x)
    return along(flow.amin, x, axis, keepdims)


def prod(x: Tensor, /, *, axis: Axes = None, dtype: DType | None = None, keepdims: bool = False) -> Tensor:
    """The product of the elements along the dimensions `axis` (None: all).

    Without a `dtype`, unsigned integers give uint64, unlike in `vmflow.prod`; signed ones and bools give int64.

    Raises:
        TypeError: if `dtype` is no dtype.
        IndexError: if a dimension does not exist.

    Example:
        >>> flow.array_api.prod(flow.tensor([2, 3, 4]))
        tensor(24)
    """
    check_tensors("prod", x)
    return along(partial(flow.prod, dtype=summed(x, dtype)), x, axis, keepdims)


def std(x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The standard deviation of the elements along the dimensions `axis` (None: all).

    The divisor is the number of elements minus `correction` (by default 1 in `vmflow.std`), but at least 0.

    Raises:
        TypeError: if `x` is integer or bool.
        IndexError: if a dimension does not exist.

    Example:
        >>> flow.array_api.std(flow.tensor([1.0, 3.0]))
        tensor(1.)
    """
    check_tensors("std", x)
    return along(partial(flow.std, correction=correction), x, axis, keepdims)


def sum(x: Tensor, /, *, axis: Axes = None, dtype: DType | None = None, keepdims: bool = False) -> Tensor:
    """The sum of the elements along the dimensions `axis` (None: all).

    Without a `dtype`, unsigned integers give uint64, unlike in `vmflow.sum`; signed ones and bools give int64.

    Raises:
        TypeError: if `dtype` is no dtype.
        IndexError: if a dimension does not exist.

    Example:
        >>> flow.array_api.sum(flow.tensor([2, 3, 4]))
        tensor(9)
    """
    check_tensors("sum", x)
    return along(partial(flow.sum, dtype=summed(x, dtype)), x, axis, keepdims)


def var(x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The variance of the elements along the dimensions `axis` (None: all).

    The divisor is the number of elements minus `correction` (by default 1 in `vmflow.var`), but at least 0.

    Raises:
        TypeError: if `x` is integer or bool.
        IndexError: if a dimension does not exist.

    Example:
        >>> flow.array_api.var(flow.tensor([1.0, 3.0]))
        tensor(1.)
    """
    check_tensors("var", x)
    return along(partial(flow.var, correction=correction), x, axis, keepdims)


def _after(name: str, initial: float, x: Tensor, totals: Tensor, axis: int) -> Tensor:
    """`totals` along `axis`, behind one more element, `initial`; `name` is the function's name, `x` its argument."""
    if totals.ndim == 0:
        raise ValueError(f"{name}: include_initial needs at least one dimension, got a 0-d tensor")
    shape = list(totals.shape)
    shape[axis] = 1
    begin = flow.full(tuple(shape), initial, dtype=totals.dtype, device=x.device)
    return flow.cat([beside(begin, x), totals], axis)


def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Tensor:
    """The cumulative sums of the elements along the dimension `axis`.

    `include_initial` puts a 0 in front.  Without a `dtype`, unsigned integers give uint64, signed ones and bools int64.

    Raises:
        ValueError: if `axis` is missing and `x` is no vector, or `include_initial` is True and `x` 0-d.
        IndexError: if there is no dimension `axis`.

    Example:
        >>> flow.array_api.cumulative_sum(flow.tensor([1, 2, 3]), include_initial=True)
        tensor([0, 1, 3, 6])
    """
    check_tensors("cumulative_sum", x)
    axis = only_axis("cumulative_sum", x, axis)
    totals = flow.cumsum(x, axis, dtype=summed(x, dtype))
    return _after("cumulative_sum", 0, x, totals, axis) if include_initial else totals


def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Tensor:
    """The cumulative products of the elements along the dimension `axis`.

    `include_initial` puts a 1 in front.  Without a `dtype`, unsigned integers give uint64, signed ones and bools int64.

    Raises:
        ValueError: if `axis` is missing and `x` is no vector, or `include_initial` is True and `x` 0-d.
        IndexError: if there is no dimension `axis`.

    Example:
        >>> flow.array_api.cumulative_prod(flow.tensor([1, 2, 3]), include_initial=True)
        tensor([1, 1, 2, 6])
    """
    check_tensors("cumulative_prod", x)
    axis = only_axis("cumulative_prod", x, axis)
    totals = flow.cumprod(x, axis, dtype=summed(x, dtype))
    return _after("cumulative_prod", 1, x, totals, axis) if include_initial else totals


def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """The differences of neighbouring elements along `axis`, taken `n` times; for bools, whether neighbours differ.

    Unless `n` is 0, `prepend` and `append` are joined to `x` first.

    Raises:
        ValueError: if `n` is negative, `x` is 0-d, or the shapes cannot be joined.
        IndexError: if one of the tensors has no dimension `axis`.

    Example:
        >>> flow.array_api.diff(flow.tensor([1, 4, 9]))
        tensor([3, 5])
    """
    if n < 0:
        raise ValueError(f"diff: n cannot be negative, got {n}")
    return flow.diff(x, n, axis, prepend, append)
