"""Functions that find non-zero or distinct elements, and count elements by value.

All but `histc` and `histogram` wait for their input, whose values decide the shapes of their results.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from vmflow import dtypes, interpreter as _interpreter, tensors as _tensors
from vmflow.arguments import flag, whole_number
from vmflow.dtypes import FLOATING
from vmflow.instructions.blob import meta
from vmflow.operands import check_tensors
from vmflow.ops.declaration import public
from vmflow.ops.destination import out_by_copy, outs_by_copy
from vmflow.ops.elementwise.inference import CHEAP
from vmflow.ops.indexing.index_expression import nonzero
from vmflow.ops.shape.view import sliced
from vmflow.ops.table import (
    Attributes,
    Count,
    Dim,
    Form,
    Inferred,
    Kinds,
    Metas,
    OpExpr,
    Size,
    common_device,
    normalize_dim,
)
from vmflow.ops.value_shapes import from_values

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


@public()
def argwhere(input: Tensor) -> Tensor:
    """The indices of the non-zero elements, one row for each; see `nonzero`.  Waits for the tensor.

    Raises:
        TypeError: if `input` is no tensor.

    Example:
        >>> flow.argwhere(flow.tensor([[0, 1], [2, 0]]))
        tensor([[0, 1],
                [1, 0]])
    """
    return cast("Tensor", nonzero(input))


# Distinct elements

# The attributes of the op: (whether only neighbours are compared, the dimension whose slices are compared, or None to
# compare elements)
_Compared: TypeAlias = tuple[bool, Dim | None]


def _infer_distinct(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    """Infer the op of distinct elements.

    Results: the distinct elements, in a tensor that would hold all elements; for each element the index among them; the
    number of occurrences of each; and the number of distinct elements, 0-d."""
    consecutive, dim = cast("tuple[bool, int | None]", attributes)
    (source,) = metas
    if source.dtype.category > FLOATING:
        raise TypeError(f"unique{'_consecutive' if consecutive else ''} is not defined for {source.dtype.name} tensors")
    length = source.numel if dim is None else source.shape[dim]
    values = meta((length,) if dim is None else source.shape, source.dtype, source.device)
    inverse = source.shape if dim is None else (length,)
    numbers = [meta(shape, dtypes.int64, source.device) for shape in (inverse, (length,), ())]
    return Inferred((values, *numbers), source.numel * CHEAP * 100)


_DISTINCT = OpExpr("distinct", _infer_distinct, Form(1, _Compared), "searching")


def _distinct(name: str, input: Tensor, dim: int | None, consecutive: bool, inverse: bool, counts: bool) -> Any:
    """Compute `unique`, or `unique_consecutive` if `consecutive`; return the result of that function."""
    axis = None if dim is None else _slices(name, input, dim)
    inverse, counts = flag(name, "return_inverse", inverse), flag(name, "return_counts", counts)

    def compute(source: Tensor) -> tuple[Tensor, ...]:
        values, places, numbers, count = _interpreter.dispatch_several(_DISTINCT, (source,), (consecutive, axis))
        length = count.item()
        chosen = [sliced(values, axis or 0, 0, length).clone()]
        chosen += [places] if inverse else []
        chosen += [sliced(numbers, 0, 0, length).clone()] if counts else []
        return tuple(chosen)

    results = from_values(compute, input)
    return results if len(results) > 1 else results[0]


@public()
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The distinct elements in ascending order; each nan counts as distinct.  Waits for the tensor.

    Args:
        input: of any real dtype.
        sorted: has no effect; the result is always sorted.
        return_inverse: whether to return also, in the shape of `input`, the index of each element in the result; with
            `dim` a vector, the index of each slice.
        return_counts: whether to return also the number of occurrences of each distinct element.
        dim: the dimension whose slices are compared in place of elements.

    Returns:
        The distinct elements; if `return_inverse` or `return_counts` is true, a tuple ``(elements, inverse, counts)``
        of the results that were asked for.

    Raises:
        TypeError: for complex numbers, or if a flag is no bool.
        ValueError: if slices have no elements.
        IndexError: if there is no dimension `dim`.

    Example:
        >>> flow.unique(flow.tensor([3, 1, 3]), return_counts=True)
        (tensor([1, 3]), tensor([1, 2]))
    """
    check_tensors("unique", input)
    return _distinct("unique", input, dim, False, return_inverse, return_counts)


def _slices(name: str, input: Tensor, dim: int) -> int | None:
    """Return `dim`, whose slices are to be compared, counted from the front; None for a 0-d tensor."""
    axis = normalize_dim(name, dim, input.ndim)
    if 0 in [size for other, size in enumerate(input.shape) if other != axis]:
        raise ValueError(f"{name}: slices of shape {list(input.shape)} along dimension {dim} have no elements")
    return axis if input.ndim else None


@public()
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """Remove each element that equals the element before it; a nan equals none.  Waits for the tensor.

    Args:
        input: of any real dtype.
        return_inverse: whether to return also, in the shape of `input`, the index in the result of each element's run;
            with `dim` a vector, the index of each slice's run.
        return_counts: whether to return also the length of each run.
        dim: the dimension whose slices are compared in place of elements.

    Returns:
        The remaining elements, or a tuple, as `unique`.

    Raises:
        TypeError, ValueError, IndexError: as `unique`.

    Example:
        >>> flow.unique_consecutive(flow.tensor([1, 1, 2, 1]))
        tensor([1, 2, 1])
    """
    check_tensors("unique_consecutive", input)
    return _distinct("unique_consecutive", input, dim, True, return_inverse, return_counts)


# Bins


def _infer_bincount(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (length,) = cast("tuple[int]", attributes)
    _check_numbers(metas)
    source, *weights = metas
    wide = dtypes.float32 if dtypes.float32 in [weight.dtype for weight in weights] else dtypes.float64
    return Inferred(meta((length,), wide if weights else dtypes.int64, source.device), source.numel * CHEAP * 10)


def _check_numbers(metas: Metas) -> None:
    """Raise TypeError or ValueError unless bincount's operands are a vector of integers, perhaps with weights."""
    source, *weights = metas
    if source.dtype.category != dtypes.INTEGER:
        raise TypeError(f"bincount: expected an integer tensor, got {source.dtype.name}")
    if weights and weights[0].is_complex:
        raise TypeError(f"bincount: expected real weights, got {weights[0].dtype.name}")
    if len(source.shape) != 1:
        raise ValueError(f"bincount: expected a vector, got shape {list(source.shape)}")
    if weights and weights[0].shape != source.shape:
        raise ValueError(
            f"bincount: weights of shape {list(weights[0].shape)} do not fit numbers of shape {list(source.shape)}"
        )


def _infer_bincount_length(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    _check_numbers(metas)
    return Inferred(meta((), dtypes.int64, metas[0].device), metas[0].numel * CHEAP)


_BINCOUNT_LENGTH = OpExpr("bincount_length", _infer_bincount_length, Form(1), "searching")
_BINCOUNT = OpExpr("bincount", _infer_bincount, Form((1, 2), tuple[Size]), "searching", remembers=256)


@public()
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """Count the occurrences of each integer from 0 to the largest element.  Waits for the tensor.

    Args:
        input: a vector of integers, none negative.
        weights: the weight of each number, of the shape of `input`; 1 by default.  The sums are float32 for float32,
            else float64.
        minlength: the least length of the result.

    Raises:
        TypeError: if the dtype of `input` is no integer dtype, the weights are complex, or `minlength` is no integer.
        ValueError: if `input` is no vector or holds a negative number, or if the weights or `minlength` do not fit.

    Example:
        >>> flow.bincount(flow.tensor([0, 2, 2]))
        tensor([1, 0, 2])
    """
    check_tensors("bincount", input, optional=(weights,))
    operands = (input,) if weights is None else (input, weights)
    _check_numbers(tuple([operand._blob.meta for operand in operands]))
    minlength = whole_number("bincount", "minlength", minlength)
    if minlength < 0:
        raise ValueError(f"bincount: minlength cannot be negative, got {minlength}")

    def compute(source: Tensor, *weights: Tensor) -> tuple[Tensor]:
        length = max(minlength, _interpreter.dispatch(_BINCOUNT_LENGTH, (source,)).item())
        return (_interpreter.dispatch(_BINCOUNT, (source, *weights), (length,)),)

    return from_values(compute, *operands)[0]


def _infer_histogram(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    name, bins, _, _, weighted, _ = cast("tuple[str, int | None, float, float, bool, bool]", attributes)
    device = common_device(name, metas)
    source = metas[0]
    for other in metas:
        if other.dtype is not source.dtype or other.dtype.category != FLOATING:
            raise TypeError(
                f"{name}: expected floating-point tensors of one dtype, got {[meta.dtype.name for meta in metas]}"
            )
    if weighted and metas[1].shape != source.shape:
        raise ValueError(
            f"{name}: weights of shape {list(metas[1].shape)} do not fit elements of shape {list(source.shape)}"
        )
    count = metas[-1].shape[0] - 1 if bins is None else bins
    outputs = meta((count,), source.dtype, device), meta((count + 1,), source.dtype, device)
    return Inferred(outputs, source.numel * CHEAP * 60)


_HISTOGRAM = OpExpr(
    "histogram",
    _infer_histogram,
    Form((1, 3), tuple[str, Count | None, float, float, bool, bool]),
    "searching",
)


@public()
@out_by_copy()
def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0, *, out: Tensor | None = None) -> Tensor:
    """Count the elements in each of `bins` bins of equal width from `min` to `max`; elements outside do not count.

    Args:
        input: of a floating-point dtype, which is also that of the result.
        bins: the number of bins.
        min, max: the range; if both are equal, that of the elements, from 1 below to 1 above if these are equal too.

    Raises:
        TypeError: if `input` is not of a floating-point dtype, or `bins` is no integer.
        ValueError: if `bins` is not positive, `max` is below `min`, or either is not finite; when the result is read,
            if the elements' own range is used and is not finite.

    Example:
        >>> flow.histc(flow.tensor([0.0, 0.5, 3.5]), bins=2, min=0, max=4)
        tensor([2., 1.])
    """
    check_tensors("histc", input)
    return _histogram("histc", (input,), bins, (min, max), False, False)[0]


def _histogram(
    name: str, operands: tuple[Tensor, ...], bins: int | None, range: tuple[float, float], weighted: bool, density: bool
) -> tuple[Tensor, ...]:
    low, high = float(range[0]), float(range[1])
    if bins is not None:
        bins = whole_number(name, "the number of bins", bins)
        if bins <= 0:
            raise ValueError(f"{name}: the number of bins must be positive, not {bins}")
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ValueError(f"{name}: the range must be finite and its end not below its start, got {low} to {high}")
    operands = tuple([operand.detach() for operand in operands])
    return _interpreter.dispatch_several(_HISTOGRAM, operands, (name, bins, low, high, weighted, bool(density)))


class Histogram(NamedTuple):
    """The result of `histogram`: the count of each bin, and the edges of the bins."""

    hist: Tensor
    bin_edges: Tensor


@public()
@outs_by_copy()
def histogram(
    input: Tensor,
    bins: int | Tensor,
    *,
    range: tuple[float, float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
    out: tuple[Tensor, Tensor] | None = None,
) -> Histogram:
    """Count the elements in each bin; returns the counts and the bins' edges.  Elements outside do not count.

    Args:
        input: of a floating-point dtype, which is also that of the results.
        bins: a number of bins of equal width, or an ascending vector of their edges.
        range: the range of the bins, only if `bins` is a number; if it is None or its ends are equal, that of the
            elements, as in `histc`.
        weight: the weight of each element, in the shape of `input`; 1 by default.
        density: whether the counts are divided so that their integral over the bins is 1.

    Raises:
        TypeError: if dtypes are not one floating-point dtype, or a number of bins is no integer.
        ValueError: if bins, range or weights do not fit; when a result is read, if edges descend, or the
            elements' own range is used and is not finite.

    Example:
        >>> flow.histogram(flow.tensor([0.0, 0.5, 3.5]), bins=2, range=(0.0, 4.0))
        Histogram(hist=tensor([2., 1.]), bin_edges=tensor([0., 2., 4.]))
    """
    check_tensors("histogram", input, optional=(weight,))
    operands = (input,) if weight is None else (input, weight)
    if isinstance(bins, _tensors.Tensor):
        if bins.ndim != 1 or bins.numel() < 2 or range is not None:
            raise ValueError("histogram: the edges of bins must be a vector of at least two, given without a range")
        results = _histogram("histogram", (*operands, bins), None, (0, 0), weight is not None, density)
    else:
        results = _histogram("histogram", operands, bins, range or (0, 0), weight is not None, density)
    return Histogram(*results)
