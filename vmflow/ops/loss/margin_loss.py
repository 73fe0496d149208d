"""Losses with a margin: between classes, between two inputs, or between a score and its decision boundary."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from vmflow.arguments import flag
from vmflow.dtypes import FLOATING
from vmflow.operands import check_tensors
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.creation.creation import arange
from vmflow.ops.elementwise.activation import softplus
from vmflow.ops.elementwise.gating import logsigmoid
from vmflow.ops.elementwise.selection import where
from vmflow.ops.linalg.distance import pairwise_distance
from vmflow.ops.nn.layer_operands import check_class_indices, check_floating
from vmflow.ops.reduction.extrema import minimum
from vmflow.transfers import beside

from .loss import check_reduction, check_same, chosen_reduction, reduced

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


# Losses of two inputs


@autocast_as_op
def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    reduction: str = "mean",
    *,
    size_average: bool | None = None,
    reduce: bool | None = None,
) -> Tensor:
    """``max(0, -target * (input1 - input2) + margin)``: the loss of a wrong order of two scores.

    Args:
        input1, input2: scores.
        target: 1 where the first should be larger, -1 where the second.
        margin: the least difference of scores in the right order.
        reduction: "mean", "sum" or "none".
        size_average, reduce: older names for the reduction, deprecated.

    Raises:
        TypeError: if an operand is no tensor.
        ValueError: if the numbers of dimensions differ, the shapes do not broadcast, or for another reduction.

    Example:
        >>> flow.nn.functional.margin_ranking_loss(flow.tensor([3.0]), flow.tensor([1.0]), flow.tensor([-1.0]))
        tensor(2.)
    """
    check_tensors("margin_ranking_loss", input1, input2, target)
    reduction = chosen_reduction(reduction, size_average, reduce)
    name = "margin_ranking_loss"
    if not input1.ndim == input2.ndim == target.ndim:
        raise ValueError(
            f"{name}: both inputs and the target must have as many dimensions, got shapes {list(input1.shape)}, "
            f"{list(input2.shape)} and {list(target.shape)}"
        )
    return reduced(name, (target * (input2 - input1) + float(margin)).clamp(min=0), reduction)


@autocast_as_op
def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    reduction: str = "mean",
    *,
    size_average: bool | None = None,
    reduce: bool | None = None,
) -> Tensor:
    """``1 - cos`` of two vectors for a target of 1, ``max(0, cos - margin)`` for a target of -1.

    Args:
        input1, input2: (N, D), or (D,).
        target: (N,), or of no dimension; 1 or -1.
        margin: the largest cosine without a loss for vectors that should differ.
        reduction, size_average, reduce: as of `margin_ranking_loss`.

    Raises:
        TypeError: if an operand is no tensor.
        ValueError: for shapes that do not fit, or another reduction.

    Example:
        >>> flow.nn.functional.cosine_embedding_loss(flow.ones(1, 2), flow.tensor([[1.0, -1.0]]), flow.tensor([1]))
        tensor(1.)
    """
    check_tensors("cosine_embedding_loss", input1, input2, target)
    reduction = chosen_reduction(reduction, size_average, reduce)
    name = "cosine_embedding_loss"
    if input1.shape != input2.shape or target.ndim not in (0, 1) or input1.ndim != target.ndim + 1:
        raise ValueError(
            f"{name}: expected inputs (N, D) and targets (N,), or inputs (D,) and a 0-d target, got shapes "
            f"{list(input1.shape)}, {list(input2.shape)} and {list(target.shape)}"
        )
    # Added to the squares of lengths, as in PyTorch, so that zero vectors have a gradient.
    eps = 1e-12
    lengths = (input1.square().sum(-1) + eps) * (input2.square().sum(-1) + eps)
    cosine = (input1 * input2).sum(-1) / lengths.sqrt()
    alike = where(target == 1, 1 - cosine, 0.0)
    return reduced(name, alike + where(target == -1, (cosine - margin).clamp(min=0), 0.0), reduction)


@autocast_as_op
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
    *,
    size_average: bool | None = None,
    reduce: bool | None = None,
) -> Tensor:
    """``max(0, d(anchor, positive) - d(anchor, negative) + margin)`` with the distance of `pairwise_distance`.

    Args:
        anchor, positive, negative: (N, D), or (D,).
        margin: the distance by which the negative should be further away, positive.
        p, eps: see `pairwise_distance`.
        swap: whether to take d(positive, negative) for d(anchor, negative) where smaller (V. Balntas et al., 2016).
        reduction, size_average, reduce: as of `margin_ranking_loss`.

    Raises:
        TypeError: if an operand is no tensor.
        ValueError: for numbers of dimensions that differ, shapes that do not broadcast, a margin that is not positive,
            or another reduction.

    Example:
        >>> anchor, positive, negative = flow.zeros(1, 1), flow.ones(1, 1), flow.full((1, 1), 1.5)
        >>> flow.nn.functional.triplet_margin_loss(anchor, positive, negative)
        tensor(0.5000)
    """
    reduction = chosen_reduction(reduction, size_average, reduce)

    def distance(first: Tensor, second: Tensor) -> Tensor:
        return pairwise_distance(first, second, p, eps)

    return _triplet("triplet_margin_loss", distance, (anchor, positive, negative), margin, swap, reduction)


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """`triplet_margin_loss` with a distance function of the caller's choice.

    Args:
        anchor, positive, negative: tensors of one shape, (N, D) or (D,).
        distance_function: takes two tensors and returns their distances; by default `pairwise_distance`.
        margin, swap, reduction: as of `triplet_margin_loss`.

    Raises:
        TypeError, ValueError: as `triplet_margin_loss`; the distance function checks the sizes.

    Example:
        >>> def distance(x, y): return (x - y).abs().sum(-1)
        >>> anchor, positive, negative = flow.zeros(1, 1), flow.ones(1, 1), flow.full((1, 1), 1.5)
        >>> flow.nn.functional.triplet_margin_with_distance_loss(anchor, positive, negative, distance_function=distance)
        tensor(0.5000)
    """
    name = "triplet_margin_with_distance_loss"
    distance = pairwise_distance if distance_function is None else distance_function
    return _triplet(name, distance, (anchor, positive, negative), margin, swap, reduction)


def _triplet(
    name: str,
    distance: Callable[[Tensor, Tensor], Tensor],
    triplet: tuple[Tensor, Tensor, Tensor],
    margin: float,
    swap: bool,
    reduction: str,
) -> Tensor:
    check_tensors(name, *triplet)
    anchor, positive, negative = triplet
    check_reduction(name, reduction)
    swap = flag(name, "swap", swap)
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise ValueError(
            f"{name}: the anchor, the positive and the negative must have as many dimensions, got shapes "
            f"{list(anchor.shape)}, {list(positive.shape)} and {list(negative.shape)}"
        )
    if not margin > 0:
        raise ValueError(f"{name}: the margin must be positive, got {margin}")
    far = distance(anchor, negative)
    if swap:
        far = minimum(far, distance(positive, negative))
    return reduced(name, (distance(anchor, positive) - far + margin).clamp(min=0), reduction)


# Losses of one score


@autocast_as_op
def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    reduction: str = "mean",
    *,
    size_average: bool | None = None,
    reduce: bool | None = None,
) -> Tensor:
    """The distance `input` where `target`, of the same shape, is 1; ``max(0, margin - input)`` where it is -1.

    Raises:
        TypeError: if an operand is no tensor.
        ValueError: for shapes that differ, or another reduction.

    Example:
        >>> flow.nn.functional.hinge_embedding_loss(flow.tensor([0.5, 0.25]), flow.tensor([1, -1]), reduction="none")
        tensor([0.5000, 0.7500])
    """
    reduction = chosen_reduction(reduction, size_average, reduce)
    check_same("hinge_embedding_loss", input, target)
    apart = where(target != 1, (margin - input).clamp(min=0), 0.0)
    return reduced("hinge_embedding_loss", apart + where(target != -1, input, 0.0), reduction)


@autocast_as_op
def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    *,
    size_average: bool | None = None,
    reduce: bool | None = None,
) -> Tensor:
    """``log(1 + exp(-target * input))`` for targets 1 and -1 of the shape of `input`, without overflow.

    Raises:
        TypeError: if neither `input` nor `target` is floating-point, or one is no tensor.
        ValueError: for shapes that differ, or another reduction.

    Example:
        >>> flow.nn.functional.soft_margin_loss(flow.zeros(2), flow.tensor([1.0, -1.0]))
        tensor(0.6931)
    """
    reduction = chosen_reduction(reduction, size_average, reduce)
    check_same("soft_margin_loss", input, target)
    # The product is negated, since unsigned targets have no negatives.
    # Above 40, softplus(x) equals x to the last digit of float64.
    losses = softplus(-(target * input), threshold=40)
    if input.dtype.category == FLOATING and losses.dtype is not input.dtype:
        losses = losses.to(input.dtype)
    return reduced("soft_margin_loss", losses, reduction)


# Losses of classes


@autocast_as_op
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    reduction: str = "mean",
    *,
    size_average: bool | None = None,
    reduce: bool | None = None,
) -> Tensor:
    """The sum over wrong classes of ``max(0, margin - right score + wrong score)**p``, divided by the class count.

    Args:
        input: scores, (N, C) or (C,).
        target: class indices, (N,) or 0-d; checked when the op runs.
        p: 1 or 2.
        margin: the difference by which the right score should be larger.
        weight: of each class, (C,); a loss is multiplied by the weight of its right class.
        reduction, size_average, reduce: as of `margin_ranking_loss`.

    Raises:
        TypeError: for dtypes that do not fit.
        ValueError: for shapes that do not fit, or another `p` or reduction.
        IndexError: if a target is no class, when the result is read.

    Example:
        >>> flow.nn.functional.multi_margin_loss(flow.tensor([[1.0, 2.0]]), flow.tensor([0]))
        tensor(1.)
    """
    reduction = chosen_reduction(reduction, size_average, reduce)
    name = "multi_margin_loss"
    check_reduction(name, reduction)
    _check_indices(name, input, target)
    if p not in (1, 2):
        raise ValueError(f"{name}: p must be 1 or 2, not {p!r}")
    if target.shape != input.shape[:-1]:
        raise ValueError(
            f"{name}: an input of shape {list(input.shape)} takes targets of shape {list(input.shape[:-1])}, not "
            f"{list(target.shape)}"
        )
    classes = input.shape[-1]
    check_tensors(name, optional=(weight,))
    if weight is not None and weight.shape != (classes,):
        raise ValueError(f"{name}: {classes} classes need a weight of shape [{classes}], got {list(weight.shape)}")
    index = target.long().unsqueeze(-1)
    losses = (margin - input.gather(-1, index) + input).clamp(min=0)
    if p == 2:
        losses = losses.square()
    if weight is not None:
        losses = losses * weight[index]
    wrong = beside(arange(classes, device=input.device), index) != index
    return reduced(name, where(wrong, losses, 0.0).sum(-1) / classes, reduction)


@autocast_as_op
def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    *,
    size_average: bool | None = None,
    reduce: bool | None = None,
) -> Tensor:
    """The sum of ``max(0, 1 - right score + wrong score)`` over all pairs of a right and a wrong class.

    It is divided by the number of classes.  Memory grows with the square of the number of classes.

    Args:
        input: scores, (N, C) or (C,).
        target: of the same shape: in each row the indices before the first negative number are the right classes.
        reduction, size_average, reduce: as of `margin_ranking_loss`.

    Raises:
        TypeError: for dtypes that do not fit.
        ValueError: for shapes that differ, or another reduction.
        IndexError: if a target is no class, when the result is read.

    Example:
        >>> flow.nn.functional.multilabel_margin_loss(flow.tensor([[1.0, 2.0]]), flow.tensor([[0, -1]]))
        tensor(1.)
    """
    reduction = chosen_reduction(reduction, size_average, reduce)
    name = "multilabel_margin_loss"
    check_reduction(name, reduction)
    _check_indices(name, input, target)
    check_same(name, input, target)
    listed = (target < 0).to(target.dtype).cumsum(-1) == 0
    index = where(listed, target, 0)
    right = (listed.long() * 0).scatter_add(-1, index, listed.long()) != 0
    gaps = 1 - input.gather(-1, index).unsqueeze(-1) + input.unsqueeze(-2)
    counted = listed.unsqueeze(-1) & right.logical_not().unsqueeze(-2)
    losses = where(counted, gaps.clamp(min=0), 0.0).sum((-2, -1)) / input.shape[-1]
    return reduced(name, losses, reduction)


@autocast_as_op
def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    *,
    size_average: bool | None = None,
    reduce: bool | None = None,
) -> Tensor:
    """The mean over the classes of the binary cross-entropy of each class.

    Args:
        input: scores, (N, C) or (C,).
        target: 1 for the right classes, else 0; of the same shape.
        weight: of each class, broadcast.
        reduction, size_average, reduce: as of `margin_ranking_loss`.

    Raises:
        TypeError: if `input` is no floating-point tensor, or `target` no tensor of numbers.
        ValueError: for shapes that differ, a weight that does not broadcast, or another reduction.

    Example:
        >>> flow.nn.functional.multilabel_soft_margin_loss(flow.zeros(1, 2), flow.tensor([[1.0, 0.0]]))
        tensor(0.6931)
    """
    reduction = chosen_reduction(reduction, size_average, reduce)
    check_same("multilabel_soft_margin_loss", input, target)
    losses = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    if weight is not None:
        losses = losses * weight
    return reduced("multilabel_soft_margin_loss", losses.mean(-1), reduction)


@autocast_as_op
def combined_margin(input: Tensor, label: Tensor, m1: float = 1.0, m2: float = 0.0, m3: float = 0.0) -> Tensor:
    """Replace the cosine of each right class by ``cos(m1 * angle + m2) - m3``, for face recognition: (N, C).

    Args:
        input: cosines, within [-1, 1].
        label: class indices, (N,); checked when the op runs.
        m1, m2, m3: the factor of the angle, the summand of the angle, and the number subtracted from its cosine.

    Raises:
        TypeError: for dtypes that do not fit.
        ValueError: for shapes that do not fit.
        IndexError: if a label is no class, when the result is read.

    Example:
        >>> flow.nn.functional.combined_margin(flow.tensor([[0.5, 0.5]]), flow.tensor([0]), m3=0.25)
        tensor([[0.2500, 0.5000]])
    """
    name = "combined_margin"
    _check_indices(name, input, label)
    if input.ndim != 2 or label.shape != input.shape[:1]:
        raise ValueError(
            f"{name}: expected an input (N, C) and labels (N,), got shapes {list(input.shape)} and {list(label.shape)}"
        )
    index = label.long().unsqueeze(-1)
    right = input.gather(-1, index)
    if m1 != 1 or m2 != 0:
        right = (right.acos() * m1 + m2).cos()
    return where(beside(arange(input.shape[-1], device=input.device), index) == index, right - m3, input)


def _check_indices(name: str, input: Tensor, target: Tensor) -> None:
    check_tensors(name, input, target)
    check_floating(name, input._blob.meta)
    check_class_indices(name, target._blob.meta)
    if input.ndim not in (1, 2) or not input.shape[-1]:
        raise ValueError(f"{name}: expected scores (N, C) or (C,) of at least one class, got {list(input.shape)}")
