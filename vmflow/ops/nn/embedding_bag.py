"""`embedding_bag`: sums, means and maxima of groups of table rows; indices name the rows of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from vmflow import dtypes, interpreter as _interpreter
from vmflow.dtypes import FLOATING, INTEGER
from vmflow.instructions.blob import meta
from vmflow.operands import check_tensors
from vmflow.ops.autocasting import promotes_here
from vmflow.ops.creation import creation
from vmflow.ops.elementwise.inference import CHEAP
from vmflow.ops.elementwise.selection import where
from vmflow.ops.reduction.searching import searchsorted
from vmflow.ops.table import Attributes, Form, Inferred, Kinds, Metas, OpExpr, Size, common_device
from vmflow.transfers import beside

from .embedding import embedding

if TYPE_CHECKING:
    from vmflow.tensors import Tensor

MODES = ("sum", "mean", "max")


def _infer_largest_of_bag(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (bags,) = cast("tuple[int]", attributes)
    rows, bag = metas
    if bag.dtype.category != dtypes.INTEGER or len(rows.shape) != 2 or bag.shape != rows.shape[:1]:
        raise ValueError(f"embedding_bag: {rows} and {bag} are not rows and the bag of each")
    output = meta((bags, rows.shape[1]), dtypes.int64, common_device("embedding_bag", metas))
    return Inferred(output, rows.numel * CHEAP * 4 + bags * 3000)


def _infer_checked_offsets(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (offsets,) = metas
    if offsets.dtype.category != INTEGER or len(offsets.shape) != 1:
        raise ValueError(f"embedding_bag: {offsets} are no vector of offsets")
    return Inferred(meta(offsets.shape, dtypes.int64, offsets.device), offsets.numel * CHEAP * 4)


# Returns the offsets as int64; fails unless the first is 0, and none is below the one before it, or above the number of
# indices, which is the attribute.
_CHECKED_OFFSETS = OpExpr("checked_offsets", _infer_checked_offsets, Form(1, tuple[Size]), "embedding")
_LARGEST_OF_BAG = OpExpr("largest_of_bag", _infer_largest_of_bag, Form(2, tuple[Size]), "embedding")


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """The sum, mean or maximum of the rows of `weight` that each bag names; 0 for an empty bag.

    Args:
        input: indices of rows, (bags, rows per bag), or one bag after the other in one dimension.
        weight: the table, (rows, width).
        offsets: for a one-dimensional `input`, the place in it at which each bag begins; the first is 0, and none is
            less than the one before or above the number of indices.
        max_norm, norm_type, sparse: as of `embedding`.
        scale_grad_by_freq: as of `embedding`; not for "max".
        mode: "sum", "mean" or "max".
        per_sample_weights: the factor of each row, in the shape of `input` and the dtype of `weight` (under autocast
            another dtype promotes); for sums only.
        include_last_offset: whether `offsets` has the end of the last bag too; indices behind it are in no bag.
        padding_idx: a row that bags leave out and that gets no gradient; may count from the end.

    Returns:
        (bags, width).

    Raises:
        TypeError: for dtypes that do not fit, or a `padding_idx` that is no integer.
        ValueError: for shapes and options that do not fit.
        IndexError: if a row does not exist or offsets are wrong, when the result is read.

    Example:
        >>> flow.nn.functional.embedding_bag(flow.tensor([[0, 1]]), flow.tensor([[1.0, 2.0], [3.0, 4.0]]), mode="sum")
        tensor([[4., 6.]])
    """
    _check(input, weight, offsets, mode, per_sample_weights, scale_grad_by_freq, include_last_offset)
    rows = embedding(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    counted = None if padding_idx is None else input != padding_idx % weight.shape[0]
    if input.ndim == 2:
        bags, size = input.shape
        bag = (
            beside(creation.arange(bags, device=input.device), input)
            .reshape((bags, 1))
            .expand((bags, size))
            .reshape((-1,))
        )
        rows = rows.reshape((bags * size, weight.shape[1]))
        counted = None if counted is None else counted.reshape((-1,))
    else:
        assert offsets is not None
        bags = offsets.shape[0]
        bag = _bag_of_each(input.shape[0], offsets)
    result = _largest(rows, bag, counted, bags) if mode == "max" else _summed(rows, bag, counted, bags, mode == "mean")
    # With `include_last_offset` the last offset began one more bag, of the indices behind the last bag.
    return result[:-1] if include_last_offset else result


def _bag_of_each(count: int, offsets: Tensor) -> Tensor:
    """Return the bag number of each of `count` places in the input, where bag i begins at place ``offsets[i]``."""
    offsets = _interpreter.dispatch(_CHECKED_OFFSETS, (offsets,), (count,))
    places = beside(creation.arange(count, device=offsets.device), offsets)
    return searchsorted(offsets, places, right=True) - 1


def _summed(rows: Tensor, bag: Tensor, counted: Tensor | None, bags: int, mean: bool) -> Tensor:
    if counted is not None:
        rows = where(counted.unsqueeze(-1), rows, 0.0)
    shape = (bags, rows.shape[1])
    sums = rows.new_zeros(shape).index_add(0, bag, rows)
    if not mean:
        return sums
    factors = creation.ones_like(bag, dtype=rows.dtype) if counted is None else counted.to(rows.dtype)
    sizes = rows.new_zeros(bags).index_add(0, bag, factors)
    return sums / sizes.clamp(min=1).unsqueeze(-1)


def _largest(rows: Tensor, bag: Tensor, counted: Tensor | None, bags: int) -> Tensor:
    if not rows.shape[0]:
        return rows.new_zeros((bags, rows.shape[1]))
    if counted is not None:
        bag = where(counted, bag, -1)
    chosen = _interpreter.dispatch(_LARGEST_OF_BAG, (rows.detach(), bag), (bags,))
    return where(chosen >= 0, rows.gather(0, chosen.clamp(min=0)), 0.0)


def _check(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None,
    mode: str,
    per_sample_weights: Tensor | None,
    by_frequency: bool,
    include_last: bool,
) -> None:
    name = "embedding_bag"
    if mode not in MODES:
        raise ValueError(f"{name}: mode must be one of {', '.join(MODES)}, not {mode!r}")
    check_tensors(name, input, weight, optional=(offsets, per_sample_weights))
    if weight.dtype.category != FLOATING:
        raise TypeError(f"{name}: the table must be floating-point, not {weight.dtype.name}")
    if input.ndim == 2 and offsets is not None:
        raise ValueError(f"{name}: an input of two dimensions has one bag in each row, and takes no offsets")
    if input.ndim == 1 and (offsets is None or offsets.ndim != 1):
        given = "none" if offsets is None else f"shape {list(offsets.shape)}"
        raise ValueError(f"{name}: an input of one dimension needs a vector of offsets, got {given}")
    if input.ndim not in (1, 2):
        raise ValueError(f"{name}: the input must have one or two dimensions, got shape {list(input.shape)}")
    if offsets is not None and offsets.dtype.category != INTEGER:
        raise TypeError(f"{name}: the offsets must be integers, not {offsets.dtype.name}")
    if include_last and (offsets is None or not offsets.shape[0]):
        raise ValueError(f"{name}: include_last_offset needs offsets with at least the end of the last bag")
    if offsets is not None and input.shape[0] and not offsets.shape[0]:
        raise ValueError(f"{name}: {input.shape[0]} indices need at least one offset, got none")
    if per_sample_weights is not None:
        if mode != "sum":
            raise ValueError(f"{name}: per_sample_weights are for mode 'sum' only, not {mode!r}")
        if per_sample_weights.shape != input.shape:
            raise ValueError(
                f"{name}: per_sample_weights of shape {list(per_sample_weights.shape)} must have the input's, "
                f"{list(input.shape)}"
            )
        if per_sample_weights.dtype is not weight.dtype and not promotes_here():
            raise TypeError(
                f"{name}: per_sample_weights must have the table's dtype {weight.dtype.name}, not "
                f"{per_sample_weights.dtype.name}"
            )
    if by_frequency and mode == "max":
        raise ValueError(f"{name}: scale_grad_by_freq is not for mode 'max'")
