"""Reductions and running totals by the array API standard."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import vmflow as flow
from vmflow.dtypes import dtype as DType
from vmflow.tensors import Tensor

from .data_types import isdtype
from .searching import only_axis

Axes = int | tuple[int, ...] | None


def summed(x: Tensor, dtype: DType | None) -> DType | None:
    """The dtype of sums and products, None to leave it to vmflow, which makes int64 of unsigned integers."""
    return flow.uint64 if dtype is None and isdtype(x.dtype, "unsigned integer") else dtype


def all(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Whether no element is zero."""
    return flow.all(x, axis, keepdims)


def any(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Whether some element is not zero."""
    return flow.any(x, axis, keepdims)


def _along(reduce: Callable[..., Tensor], x: Tensor, axis: Axes, keepdims: bool) -> Tensor:
    """Along these dimensions; each element alone if there are none, which vmflow takes for all of them."""
    return reduce(x.unsqueeze(-1), -1) if axis == () else reduce(x, axis, keepdim=keepdims)


def max(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The largest element."""
    return _along(flow.amax, x, axis, keepdims)


def mean(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The arithmetic mean."""
    return _along(flow.mean, x, axis, keepdims)


def min(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The smallest element."""
    return _along(flow.amin, x, axis, keepdims)


def prod(x: Tensor, /, *, axis: Axes = None, dtype: DType | None = None, keepdims: bool = False) -> Tensor:
    """The product; without a `dtype`, of unsigned integers uint64, and of signed ones and bools int64."""
    return flow.prod(x, axis, keepdims, dtype=summed(x, dtype))


def std(x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The standard deviation, with the number of elements less `correction` as the divisor."""
    return _along(partial(flow.std, correction=correction), x, axis, keepdims)


def sum(x: Tensor, /, *, axis: Axes = None, dtype: DType | None = None, keepdims: bool = False) -> Tensor:
    """The sum; without a `dtype`, of unsigned integers uint64, and of signed ones and bools int64."""
    return flow.sum(x, axis, keepdims, dtype=summed(x, dtype))


def var(x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The variance, with the number of elements less `correction` as the divisor."""
    return _along(partial(flow.var, correction=correction), x, axis, keepdims)


def _after(initial: float, x: Tensor, found: Tensor, axis: int) -> Tensor:
    shape = list(found.shape)
    shape[axis] = 1
    return flow.cat([flow.full(tuple(shape), initial, dtype=found.dtype, device=x.device), found], axis)


def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Tensor:
    """The sums up to each element; with a 0 before them if `include_initial`."""
    axis = only_axis("cumulative_sum", x, axis)
    found = flow.cumsum(x, axis, dtype=summed(x, dtype))
    return _after(0, x, found, axis) if include_initial else found


def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Tensor:
    """The products up to each element; with a 1 before them if `include_initial`."""
    axis = only_axis("cumulative_prod", x, axis)
    found = flow.cumprod(x, axis, dtype=summed(x, dtype))
    return _after(1, x, found, axis) if include_initial else found


def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """The differences of neighbours, `n` times.

    Raises:
        ValueError: if `n` is negative.
    """
    if n < 0:
        raise ValueError(f"diff: n cannot be negative, got {n}")
    return flow.diff(x, n, axis, prepend, append)
