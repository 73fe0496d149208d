"""Differences, integrals, distances and covariances, composed of other ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vmflow import dtypes, tensors as _tensors
from vmflow.arguments import whole_number
from vmflow.dtypes import FLOATING
from vmflow.operands import check_tensors
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.declaration import function, public
from vmflow.ops.destination import out_by_copy
from vmflow.ops.elementwise.arithmetic import conj_if_complex
from vmflow.ops.elementwise.selection import where
from vmflow.ops.linalg.linear_algebra import matmul
from vmflow.ops.shape.joining import cat
from vmflow.ops.shape.view import diagonal
from vmflow.ops.table import as_tuple, broadcast_shapes, normalize_dim

from .composed_reduction import norm

if TYPE_CHECKING:
    from vmflow.ops.elementwise.inference import Scalar
    from vmflow.tensors import Tensor


@public(numpy_names=True)
@out_by_copy()
def diff(
    input: Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The differences of neighbouring elements along `dim`, taken `n` times; for bools, whether neighbours differ.

    Args:
        input: of at least one dimension.
        n: how many times differences are taken, 0 or more; each time leaves one element less, down to none.
        dim: the dimension of the neighbours.
        prepend, append: tensors that are joined to `input` along `dim` first, unless `n` is 0.

    Raises:
        ValueError: for a 0-d tensor, a negative `n`, or shapes that cannot be joined.
        IndexError: if the dimension does not exist in each tensor.

    Example:
        >>> flow.diff(flow.tensor([1, 4, 9]))
        tensor([3, 5])
    """
    check_tensors("diff", input)
    if input.ndim == 0:
        raise ValueError("diff: expected at least one dimension, got a 0-d tensor")
    if whole_number("diff", "n", n) < 0:
        raise ValueError(f"diff: n must be 0 or more, not {n}")
    axis = normalize_dim("diff", dim, input.ndim)
    if n == 0:
        return input.clone()
    parts = [part for part in (prepend, input, append) if part is not None]
    result = cat(parts, axis) if len(parts) > 1 else input
    for _ in range(min(n, result.shape[axis])):
        left = max(result.shape[axis] - 1, 0)
        later, earlier = result.narrow(axis, result.shape[axis] - left, left), result.narrow(axis, 0, left)
        result = later != earlier if input.dtype is dtypes.bool_ else later - earlier
    return result


@function("trapz")
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Scalar = 1, dim: int = -1) -> Tensor:
    """The integral along `dim` by the trapezoidal rule.

    Args:
        y: the values of the function.
        x: the points at which the values were taken, of y's shape or a vector; by default at distances of `dx`.
        dx: the distance of neighbouring points without `x`.
        dim: the dimension along which to integrate.

    Raises:
        IndexError: if the dimension does not exist.
        ValueError: if the shape of `x` does not fit.

    Example:
        >>> flow.trapezoid(flow.tensor([1.0, 5.0, 10.0]))
        tensor(10.5000)
    """
    check_tensors("trapezoid", y, optional=(x,))
    axis = _axis_of("trapezoid", y, dim)
    areas = _doubled_areas(y, x, axis)
    return areas.sum(axis) * dx / 2 if x is None else areas.sum(axis) / 2


@function()
def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Scalar = 1, dim: int = -1) -> Tensor:
    """The integrals, as of `trapezoid`, up to each point but the first: one element less than `y` along `dim`.

    Raises:
        IndexError, ValueError: as `trapezoid`.

    Example:
        >>> flow.cumulative_trapezoid(flow.tensor([1.0, 5.0, 10.0]))
        tensor([ 3.0000, 10.5000])
    """
    check_tensors("cumulative_trapezoid", y, optional=(x,))
    axis = _axis_of("cumulative_trapezoid", y, dim)
    areas = _doubled_areas(y, x, axis)
    return areas.cumsum(axis) * dx / 2 if x is None else areas.cumsum(axis) / 2


def _axis_of(name: str, y: Tensor, dim: int) -> int:
    if y.ndim == 0:
        raise IndexError(f"{name}: a 0-d tensor has no dimension to integrate along")
    return normalize_dim(name, dim, y.ndim)


def _doubled_areas(y: Tensor, x: Tensor | None, axis: int) -> Tensor:
    """Return twice the area of each trapezoid between neighbouring points: ``(y[i] + y[i + 1]) * (x[i + 1] - x[i])``.

    For `x` None the distance of points is 1."""
    left = max(y.shape[axis] - 1, 0)
    pairs = y.narrow(axis, y.shape[axis] - left, left) + y.narrow(axis, 0, left)
    if x is None:
        return pairs
    steps = diff(x, dim=-1 if x.ndim == 1 else axis)
    if x.ndim == 1:
        steps = steps.reshape([-1 if place == axis else 1 for place in range(y.ndim)])
    return pairs * steps


@function()
def gradient(
    input: Tensor, *, spacing: Any = 1, dim: int | Sequence[int] | None = None, edge_order: int = 1
) -> tuple[Tensor, ...]:
    """Estimate the derivatives of a function along dimensions from its values at neighbouring points.

    At inner points the estimates are accurate to second order, also where the distances of neighbours differ.

    Args:
        input: the values.
        spacing: the distance of neighbours, a number, or the places of the points, a vector; a tuple or list gives one
            for each of `dim`, anything else holds for all.
        dim: the dimensions, by default all.
        edge_order: 1 or 2, the order of accuracy at the ends.

    Returns:
        A tensor of the input's shape for each dimension.

    Raises:
        ValueError: for another `edge_order`, for a number of spacings that differs from that of the dimensions, and for
            dimensions that are named twice or have too few points.
        IndexError: if a dimension does not exist.

    Example:
        >>> flow.gradient(flow.tensor([1.0, 4.0, 9.0]))
        (tensor([3., 4., 5.]),)
    """
    check_tensors("gradient", input)
    if edge_order not in (1, 2):
        raise ValueError(f"gradient: edge_order must be 1 or 2, not {edge_order!r}")
    axes = range(input.ndim) if dim is None else as_tuple(dim)
    dims = [normalize_dim("gradient", number, input.ndim) for number in axes]
    if len(set(dims)) != len(dims):
        raise ValueError(f"gradient: dim {tuple(axes)} names one dimension twice")
    steps = list(spacing) if isinstance(spacing, (tuple, list)) else [spacing] * len(dims)
    if len(steps) != len(dims):
        raise ValueError(f"gradient: {len(dims)} dimensions need as many spacings, got {len(steps)}")
    for axis, step in zip(dims, steps, strict=True):
        size = input.shape[axis]
        if size <= edge_order:
            raise ValueError(f"gradient: dimension {axis} has {size} points, but needs at least {edge_order + 1}")
        if isinstance(step, _tensors.Tensor) and step.ndim and step.shape != (size,):
            raise ValueError(
                f"gradient: the places along dimension {axis} must be a vector of {size}, not of shape "
                f"{list(step.shape)}"
            )
    wide = input if input.dtype.category >= FLOATING else input.to(dtypes.get_default_dtype())
    return tuple([_derivative(wide, axis, step, edge_order) for axis, step in zip(dims, steps, strict=True)])


def _derivative(input: Tensor, axis: int, step: Any, edge_order: int) -> Tensor:
    size = input.shape[axis]
    slopes = diff(input, dim=axis)
    if isinstance(step, _tensors.Tensor) and step.ndim:
        widths = diff(step).reshape([-1 if place == axis else 1 for place in range(input.ndim)])
    else:
        widths = input.new_ones([size - 1 if place == axis else 1 for place in range(input.ndim)]) * step
    slopes = slopes / widths

    def between(first: Tensor, second: Tensor, h: Tensor, k: Tensor) -> Tensor:
        # Weight the slopes on both sides, over distances h and k: the slope over the shorter one counts more.
        return (first * k + second * h) / (h + k)

    def beyond(near: Tensor, far: Tensor, h: Tensor, k: Tensor) -> Tensor:
        return near + (near - far) * h / (h + k)

    first, last = slopes.narrow(axis, 0, 1), slopes.narrow(axis, size - 2, 1)
    if edge_order == 2:
        ends = [widths.narrow(axis, place, 1) for place in (0, 1, size - 3, size - 2)]
        first = beyond(first, slopes.narrow(axis, 1, 1), ends[0], ends[1])
        last = beyond(last, slopes.narrow(axis, size - 3, 1), ends[3], ends[2])
    inner = between(*[tensor.narrow(axis, place, size - 2) for tensor in (slopes, widths) for place in (0, 1)])
    return cat([first, inner, last], axis)


@public()
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The p-norm of ``input - other`` over all elements; the tensors broadcast.

    Raises:
        TypeError: if an operand is no tensor, one is of bools, or both are of integers.
        ValueError: if the shapes do not broadcast.

    Example:
        >>> flow.dist(flow.tensor([0.0, 0.0]), flow.tensor([3.0, 4.0]))
        tensor(5.)
    """
    check_tensors("dist", input, other)
    return norm(input - other, p)


@public()
def cov(
    input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None
) -> Tensor:
    """The covariance matrix of variables: each row of `input` is a variable, and each column an observation.

    Args:
        input: of at most two dimensions; a vector is one variable, and the result for one variable is 0-d.
        correction: subtracted from the number of observations.
        fweights: the number of times that each observation was made, integers.
        aweights: the importance of each observation, floating-point.  No weights are checked for negative numbers.

    Raises:
        ValueError: for more than two dimensions, or weights of another shape.
        TypeError: for bools, weights of another dtype, or a `correction` that is no integer.

    Example:
        >>> flow.cov(flow.tensor([[0.0, 2.0], [4.0, 0.0]]))
        tensor([[ 2., -4.],
                [-4.,  8.]])
    """
    check_tensors("cov", input, optional=(fweights, aweights))
    correction = whole_number("cov", "correction", correction)
    if input.ndim > 2:
        raise ValueError(f"cov: expected at most two dimensions, got shape {list(input.shape)}")
    if input.dtype is dtypes.bool_:
        raise TypeError("cov is not defined for bool tensors")
    if input.dtype.category < FLOATING:
        input = input.to(dtypes.get_default_dtype())
    rows = input.reshape(1, -1) if input.ndim < 2 else input
    count = rows.shape[1]
    weights: Tensor | None = None
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        if given is None:
            continue
        if tuple(given.shape) != (count,):
            raise ValueError(f"cov: {name} of shape {list(given.shape)} for {count} observations")
        if given.dtype.category != (dtypes.INTEGER if name == "fweights" else FLOATING):
            raise TypeError(f"cov: {name} cannot be {given.dtype.name}")
        weights = given if weights is None else weights * given
    if weights is None:
        centred = rows - rows.mean(1, keepdim=True)
        product = matmul(centred, conj_if_complex(centred).mT)
        return (product / max(count - correction, 0)).squeeze()
    weights = weights.to(rows.dtype)
    total = weights.sum()
    centred = rows - (rows * weights).sum(1, keepdim=True) / total
    freedom = total - correction
    if aweights is not None and correction:
        freedom = total - correction * (weights * aweights.to(rows.dtype)).sum() / total
    product = matmul(centred * weights, conj_if_complex(centred).mT)
    # Clamp the degrees of freedom at 0, since a negative number would change the sign of covariances.
    return (product / where(freedom < 0, 0.0, freedom)).squeeze()


@public()
def corrcoef(input: Tensor) -> Tensor:
    """The matrix of correlation coefficients of variables; each row of `input` is a variable.  See `cov`.

    Raises:
        ValueError: for more than two dimensions.
        TypeError: for bools.

    Example:
        >>> flow.corrcoef(flow.tensor([[0.0, 2.0], [4.0, 0.0]]))
        tensor([[ 1., -1.],
                [-1.,  1.]])
    """
    check_tensors("corrcoef", input)
    covariance = cov(input)
    if covariance.ndim == 0:
        return covariance / covariance
    spread = diagonal(covariance).sqrt()
    ratio = covariance / spread.unsqueeze(1) / spread
    return ratio if ratio.dtype.is_complex else ratio.clamp(-1, 1)


@function()
@autocast_as_op
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary") -> Tensor:
    """The distances between the rows of `x1` and those of `x2`: (..., n, k) and (..., m, k) give (..., n, m).

    Args:
        x1, x2: floating-point; the dimensions in front broadcast.
        p: the exponent of the norm; may be 0 and inf.
        compute_mode: for p of 2, whether a matrix product computes the squared distances, which is faster and needs
            less memory but loses digits where points are close: "use_mm_for_euclid_dist" (always),
            "donot_use_mm_for_euclid_dist" (never) or "use_mm_for_euclid_dist_if_necessary" (if `x1` or `x2` has more
            than 25 rows).

    Raises:
        ValueError: for shapes that do not fit, a negative `p`, and another `compute_mode`.
        TypeError: if dtypes are not one floating-point dtype.

    Example:
        >>> flow.cdist(flow.tensor([[0.0, 0.0]]), flow.tensor([[3.0, 4.0], [0.0, 1.0]]))
        tensor([[5., 1.]])
    """
    check_tensors("cdist", x1, x2)
    if x1.ndim < 2 or x2.ndim < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ValueError(
            f"cdist: expected matrices of rows of one length, got shapes {list(x1.shape)} and {list(x2.shape)}"
        )
    if x1.dtype is not x2.dtype or x1.dtype.category != FLOATING:
        raise TypeError(f"cdist: expected one floating-point dtype, got {x1.dtype.name} and {x2.dtype.name}")
    if not p >= 0:
        raise ValueError(f"cdist: p must be 0 or more, not {p}")
    broadcast_shapes("cdist", x1.shape[:-2], x2.shape[:-2])
    modes = {
        "use_mm_for_euclid_dist": True,
        "donot_use_mm_for_euclid_dist": False,
        "use_mm_for_euclid_dist_if_necessary": x1.shape[-2] > 25 or x2.shape[-2] > 25,
    }
    if compute_mode not in modes:
        raise ValueError(f"cdist: compute_mode must be one of {', '.join(modes)}, not {compute_mode!r}")
    if p == 2 and modes[compute_mode]:
        lengths = (x1 * x1).sum(-1, keepdim=True) + (x2 * x2).sum(-1).unsqueeze(-2)
        squares = lengths - matmul(x1, x2.mT) * 2
        apart = squares > 0
        return where(apart, where(apart, squares, 1.0).sqrt(), 0.0)
    if not x1.shape[-1]:
        return matmul(x1, x2.mT)
    return norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p, -1)
