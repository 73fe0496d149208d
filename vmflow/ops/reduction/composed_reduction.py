"""Reductions composed of other ops, such as variances, norms, `logsumexp`, and sums over elements that are not nan."""

from __future__ import annotations

import builtins
import math
from typing import TYPE_CHECKING

from vmflow import dtypes
from vmflow.arguments import flag
from vmflow.dtypes import FLOATING, dtype as DType
from vmflow.operands import check_tensors
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.declaration import function, public
from vmflow.ops.destination import out_by_copy
from vmflow.ops.elementwise.arithmetic import abs, sign, square
from vmflow.ops.elementwise.selection import where
from vmflow.ops.elementwise.transcendental import exp, log
from vmflow.ops.in_place import copied_in_place
from vmflow.ops.indexing.index_expression import number_of_nonzero
from vmflow.ops.table import normalize_dim

from .reduction import Dims, amax, amin, euclidean_norm, half_widened, mean, reduced_dims, reduced_shape, sum

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


@public(numpy_names=True)
@out_by_copy()
def var(
    input: Tensor,
    dim: Dims | bool = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The variance along `dim` (None: all): the sum of squared deviations, divided by the number of elements
    less `correction`.

    A negative divisor counts as 0, which gives inf or nan.

    Args:
        input: floating-point or complex; the variance of complex numbers is real.
        dim: the dimensions to reduce; a bool stands for `unbiased`, as in PyTorch.
        unbiased: PyTorch's older argument: True is a correction of 1, False of 0.
        keepdim: whether the reduced dimensions stay, with size 1.
        correction: 1 by default.

    Raises:
        TypeError: for bools and integers.
        ValueError: if both `unbiased` and `correction` are given, or a dimension is named twice.
        IndexError: if a dimension does not exist.

    Example:
        >>> flow.var(flow.tensor([1.0, 2.0, 3.0]))
        tensor(1.)
    """
    check_tensors("var", input)
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None:
        if correction is not None:
            raise ValueError("var: give unbiased or correction, not both")
        correction = 1 if unbiased else 0
    if input.dtype.category < FLOATING:
        raise TypeError(f"var is not defined for {input.dtype.name} tensors; convert with .float() first")
    dims = reduced_dims("var", dim, input.ndim)
    freedom = math.prod([input.shape[axis] for axis in dims]) - (1 if correction is None else correction)
    wide = half_widened(input)
    centred = wide - mean(wide, dims, keepdim=True)
    squares = square(abs(centred) if wide.dtype.is_complex else centred)
    return (sum(squares, dims, keepdim) / builtins.max(freedom, 0)).to(input.dtype.to_real())


@public(numpy_names=True)
@out_by_copy()
def std(
    input: Tensor,
    dim: Dims | bool = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The standard deviation: the square root of `var`, with the same arguments.  A deviation of 0 has the gradient 0.

    Raises:
        TypeError, ValueError, IndexError: as `var`.

    Example:
        >>> flow.std(flow.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]), dim=1)
        tensor([1., 0.])
    """
    check_tensors("std", input)
    spread = var(half_widened(input), dim, unbiased, keepdim, correction=correction)
    return _root(spread, 2).to(input.dtype.to_real())


def _powers(size: Tensor, p: float) -> Tensor:
    """Compute ``size**p`` of numbers that are not negative, for `p < 1` with a gradient of 0 where `size` is 0.

    There the derivative is infinite: times 0, as from `abs`, it would give nan.
    """
    if p > 1:
        return size**p
    nothing = size == 0
    return where(nothing, 0.0 if p > 0 else math.inf, where(nothing, 1.0, size) ** p)


def _root(total: Tensor, p: float) -> Tensor:
    """Compute the `p`-th root of `total`, a sum of `p`-th powers, with a gradient of 0 where `total` is 0.

    For ``p > 1`` the root's derivative at 0 is infinite: times the derivative of the sum, 0, it would give nan.
    """
    nothing = total == 0
    return where(nothing, 0.0 if p > 0 else math.inf, where(nothing, 1.0, total) ** (1.0 / p))


@function(numpy_names=True)
def var_mean(
    input: Tensor,
    dim: Dims | bool = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The pair (`var`, `mean`) along `dim`; the arguments are those of `var`.

    Raises:
        TypeError, ValueError, IndexError: as `var`.

    Example:
        >>> flow.var_mean(flow.tensor([1.0, 2.0, 3.0]))
        (tensor(1.), tensor(2.))
    """
    check_tensors("var_mean", input)
    average = mean(input, None if isinstance(dim, bool) else dim, keepdim)
    return var(input, dim, unbiased, keepdim, correction=correction), average


@function(numpy_names=True)
def std_mean(
    input: Tensor,
    dim: Dims | bool = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The pair (`std`, `mean`) along `dim`; the arguments are those of `var`.

    Raises:
        TypeError, ValueError, IndexError: as `var`.

    Example:
        >>> flow.std_mean(flow.tensor([1.0, 2.0, 3.0]))
        (tensor(1.), tensor(2.))
    """
    check_tensors("std_mean", input)
    average = mean(input, None if isinstance(dim, bool) else dim, keepdim)
    return std(input, dim, unbiased, keepdim, correction=correction), average


@public(numpy_names=True)
@autocast_as_op
@out_by_copy()
def norm(
    input: Tensor,
    p: float | str | None = "fro",
    dim: Dims = None,
    keepdim: bool = False,
    dtype: DType | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The vector norm along `dim`: ``sum(|x|**p) ** (1/p)``; `p` may be inf, -inf, 0, or "fro" or None for 2.

    The elements are first converted to `dtype`, if that is given.  Where the norm is 0 its gradient is taken as 0, and
    for ``p < 1`` so is the gradient by an element that is 0.  For ``p = 0`` all gradients are 0.

    Raises:
        TypeError: for bools and integers.
        ValueError: if `p` is another string, or a dimension is named twice.
        IndexError: if a dimension does not exist, or has no elements and `p` is infinite.

    Example:
        >>> flow.norm(flow.tensor([3.0, 4.0]))
        tensor(5.)
    """
    check_tensors("norm", input)
    if dtype is not None:
        input = input.to(dtype)
    if p is None or p == "fro":
        p = 2.0
    if isinstance(p, str):
        raise ValueError(f"norm: p must be a number or 'fro', not {p!r}")
    if input.dtype.category < FLOATING:
        raise TypeError(f"norm is not defined for {input.dtype.name} tensors; convert with .float() first")
    size = half_widened(input)
    if p != 2 or input.dtype.is_complex:
        size = size.abs()
    if p == 2:
        result = euclidean_norm(size, dim, keepdim)
    elif p == math.inf:
        result = amax(size, dim, keepdim)
    elif p == -math.inf:
        result = amin(size, dim, keepdim)
    elif p == 0:
        result = sum(sign(where(size.isnan(), 1.0, size)), dim, keepdim)
    elif p == 1:
        result = sum(size, dim, keepdim)
    else:
        result = _root(sum(_powers(size, p), dim, keepdim), p)
    return result.to(input.dtype.to_real())


@public()
@copied_in_place()
@out_by_copy()
def renorm(input: Tensor, p: float, dim: int, maxnorm: float, *, out: Tensor | None = None) -> Tensor:
    """Scale each slice of `input` at an index of `dim` down to the p-norm `maxnorm` if the slice's own norm is larger.

    Args:
        input: floating-point or complex, of at least two dimensions.
        p: the exponent of the norm, positive.
        dim: the dimension whose indices give the slices.
        maxnorm: the largest norm, not negative.

    Raises:
        TypeError: for bools and integers.
        ValueError: for fewer than two dimensions, or a `p` or `maxnorm` out of range.
        IndexError: if the dimension does not exist.

    Example:
        >>> flow.tensor([[3.0, 4.0], [0.3, 0.4]]).renorm(2, 0, 1)
        tensor([[0.6000, 0.8000],
                [0.3000, 0.4000]])
    """
    check_tensors("renorm", input)
    if input.ndim < 2:
        raise ValueError(f"renorm: expected at least two dimensions, got shape {list(input.shape)}")
    if not p > 0:
        raise ValueError(f"renorm: p must be positive, got {p}")
    if not maxnorm >= 0:
        raise ValueError(f"renorm: maxnorm cannot be negative, got {maxnorm}")
    axis = normalize_dim("renorm", dim, input.ndim)
    norms = norm(input, p, [place for place in range(input.ndim) if place != axis], keepdim=True)
    # As in PyTorch, a small number keeps the quotient finite for a norm of 0.
    return input * where(norms > maxnorm, maxnorm / (norms + 1e-7), 1.0).to(input.dtype)


@public(numpy_names=True)
def count_nonzero(input: Tensor, dim: Dims = None) -> Tensor:
    """The number of elements along `dim` (None: all) that are not zero, int64.

    Raises:
        IndexError, ValueError: as `sum`.

    Example:
        >>> flow.count_nonzero(flow.tensor([[0, 1], [2, 3]]), dim=0)
        tensor([1, 2])
    """
    return number_of_nonzero(input) if dim is None else sum(input != 0, dim)


@public(numpy_names=True)
@out_by_copy()
def nansum(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None, out: Tensor | None = None
) -> Tensor:
    """The sum along `dim` (None: all) of the elements that are not nan; `dtype` is as of `sum`.

    Raises:
        IndexError, ValueError: as `sum`.

    Example:
        >>> flow.nansum(flow.tensor([1.0, flow.nan, 2.0]))
        tensor(3.)
    """
    check_tensors("nansum", input)
    return sum(where(input.isnan(), 0, input), dim, keepdim, dtype=dtype)


@public(numpy_names=True)
@out_by_copy()
def nanmean(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None, out: Tensor | None = None
) -> Tensor:
    """The mean along `dim` (None: all) of the elements that are not nan; `dtype` is that of their sum.

    Raises:
        IndexError, ValueError: as `sum`.

    Example:
        >>> flow.nanmean(flow.tensor([1.0, flow.nan, 2.0]))
        tensor(1.5000)
    """
    check_tensors("nanmean", input)
    return nansum(input, dim, keepdim, dtype=dtype) / sum(~input.isnan(), dim, keepdim)


@public(numpy_names=True)
@out_by_copy()
def logsumexp(
    input: Tensor, dim: int | tuple[int, ...] | list[int], keepdim: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """``log(sum(exp(input)))`` along `dim`, without overflow; -inf where there are no elements.

    Raises:
        TypeError: for complex tensors.
        IndexError, ValueError: as `sum`.

    Example:
        >>> flow.logsumexp(flow.tensor([1000.0, 1000.0]), 0)
        tensor(1000.6932)
    """
    check_tensors("logsumexp", input)
    if input.dtype.is_complex:
        raise TypeError(f"logsumexp is not defined for {input.dtype.name} tensors")
    keepdim = flag("logsumexp", "keepdim", keepdim)
    dims = reduced_dims("logsumexp", dim, input.ndim)
    wide = input if input.dtype.category == FLOATING else input.to(dtypes.get_default_dtype())
    wide = half_widened(wide)
    if 0 in [input.shape[axis] for axis in dims]:
        result = log(sum(exp(wide), dims, keepdim=True))
    else:
        largest = amax(wide.detach(), dims, keepdim=True)
        # An infinite maximum is replaced by 0, since inf - inf would be nan: then exp and log give the infinity.
        largest = where(largest.isfinite(), largest, 0.0)
        result = log(sum(exp(wide - largest), dims, keepdim=True)) + largest
    if not keepdim:
        result = result.reshape(reduced_shape(input.shape, dims, False))
    return result.to(input.dtype) if input.dtype.category == FLOATING else result
