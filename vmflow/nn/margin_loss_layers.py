"""The layers of margin losses, for classes, rankings and embeddings."""

from __future__ import annotations

from collections.abc import Callable

from vmflow.ops.loss.loss import chosen_reduction
from vmflow.tensors import Tensor

from . import functional as F
from .distance_layers import PairwiseDistance
from .loss_layers import _Loss, _PlainLoss


class _MarginLoss(_Loss):
    """The base of loss layers with a margin, by default 0.

    Args:
        margin: the margin in the loss's formula.
        size_average, reduce: older forms of `reduction`, which warn.
        reduction: "mean", "sum" or "none".

    Raises:
        TypeError: when called with anything else than tensors, or for dtypes that do not fit.
        ValueError: when called, for shapes that do not fit, or another reduction.
    """

    def __init__(
        self,
        margin: float = 0.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(margin=margin, reduction=chosen_reduction(reduction, size_average, reduce))


class CosineEmbeddingLoss(_MarginLoss, function=F.cosine_embedding_loss):
    """``1 - cos`` for a target of 1, ``max(0, cos - margin)`` for -1; cos is the cosine similarity of two vectors.

    Shape: inputs (N, D) or (D,), target (N,) or a scalar; output a scalar, or the target's shape with the reduction
    "none".

    Example:
        >>> vectors = flow.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> flow.nn.CosineEmbeddingLoss(reduction="none")(vectors, vectors, flow.tensor([1, -1]))
        tensor([0., 1.])
    """


class MarginRankingLoss(_MarginLoss, function=F.margin_ranking_loss):
    """``max(0, -target * (input1 - input2) + margin)``: a target of 1 says that `input1` should be larger, -1 `input2`.

    Shape: inputs and target (*), of equally many dimensions, broadcast together; output a scalar, or (*) with the
    reduction "none".

    Example:
        >>> flow.nn.MarginRankingLoss()(flow.tensor([1.0, 2.0]), flow.tensor([3.0, 1.0]), flow.tensor([1, 1]))
        tensor(1.)
    """


class HingeEmbeddingLoss(_Loss, function=F.hinge_embedding_loss):
    """``input`` for a target of 1, ``max(0, margin - input)`` for a target of -1.

    Shape: input (*), target (*), the same shape; output a scalar, or (*) with the reduction "none".

    Args:
        margin: the margin in the formula above.
        size_average, reduce: older forms of `reduction`, which warn.
        reduction: "mean", "sum" or "none".

    Example:
        >>> flow.nn.HingeEmbeddingLoss(reduction="none")(flow.tensor([0.25, 0.25]), flow.tensor([1, -1]))
        tensor([0.2500, 0.7500])
    """

    def __init__(
        self,
        margin: float = 1.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(margin=margin, reduction=chosen_reduction(reduction, size_average, reduce))


class SoftMarginLoss(_PlainLoss, function=F.soft_margin_loss):
    """``log(1 + exp(-target * input))`` for targets 1 and -1.

    Example:
        >>> flow.nn.SoftMarginLoss()(flow.tensor([0.0, 0.0]), flow.tensor([1.0, -1.0]))
        tensor(0.6931)
    """


class TripletMarginLoss(_Loss, function=F.triplet_margin_loss):
    """``max(0, d(anchor, positive) - d(anchor, negative) + margin)`` with the distance ``d`` of `PairwiseDistance`.

    Shape: anchor, positive and negative (*, D), of equally many dimensions, broadcast together; output a scalar, or (*)
    with the reduction "none".

    Args:
        margin: the margin in the formula above.
        p, eps: the settings of `PairwiseDistance`.
        swap: whether to replace ``d(anchor, negative)`` by ``d(positive, negative)`` where the latter is smaller
            (Balntas et al., 2016).
        size_average, reduce: older forms of `reduction`, which warn.
        reduction: "mean", "sum" or "none".

    Raises:
        ValueError: if the margin is not positive; when called, for shapes that do not fit, or another reduction.
        TypeError: when called with anything else than tensors.

    Example:
        >>> anchor, positive, negative = flow.zeros(1, 2), flow.tensor([[3.0, 4.0]]), flow.tensor([[0.0, 2.0]])
        >>> flow.nn.TripletMarginLoss(eps=0.0)(anchor, positive, negative)
        tensor(4.)
    """

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        if not margin > 0:
            raise ValueError(f"TripletMarginLoss: the margin must be positive, got {margin}")
        super().__init__(
            margin=margin, p=p, eps=eps, swap=swap, reduction=chosen_reduction(reduction, size_average, reduce)
        )


class TripletMarginWithDistanceLoss(_Loss, function=F.triplet_margin_with_distance_loss):
    """`TripletMarginLoss` with a distance function of the user's.

    Shape: anchor, positive and negative of equally many dimensions; output a scalar, or the shape of the distances with
    the reduction "none".

    Args:
        distance_function: a function of two tensors that returns their distances; by default `PairwiseDistance`.
        margin, swap: as for `TripletMarginLoss`.
        reduction: "mean", "sum" or "none".

    Raises:
        ValueError: if the margin is not positive; when called, for shapes that do not fit, or another reduction.
        TypeError: when called with anything else than tensors.

    Example:
        >>> loss = flow.nn.TripletMarginWithDistanceLoss(distance_function=lambda a, b: (a - b).abs().sum(1))
        >>> loss(flow.zeros(1, 2), flow.tensor([[3.0, 4.0]]), flow.tensor([[0.0, 2.0]]))
        tensor(6.)
    """

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        if not margin > 0:
            raise ValueError(f"TripletMarginWithDistanceLoss: the margin must be positive, got {margin}")
        distance = PairwiseDistance() if distance_function is None else distance_function
        super().__init__(distance_function=distance, margin=margin, swap=swap, reduction=reduction)


class MultiMarginLoss(_Loss, function=F.multi_margin_loss):
    """The sum over wrong classes of ``max(0, margin - right score + score)**p``, divided by the number of all classes.

    Shape: input (N, C) or (C,), target (N,) or a scalar; output a scalar, or the target's shape with the reduction
    "none".

    Args:
        p: the exponent, 1 or 2.
        margin: the margin by which the right score should exceed the others.
        weight: (C,), the factor of the loss for each target class.
        size_average, reduce: older forms of `reduction`, which warn.
        reduction: "mean", "sum" or "none".

    Raises:
        ValueError: for another `p`; when called, for shapes that do not fit, or another reduction.
        TypeError: when called with anything else than a floating-point tensor and a tensor of integers.
        IndexError: when the result is read, for a class index out of range.

    Example:
        >>> flow.nn.MultiMarginLoss()(flow.tensor([[0.5, 1.0, 0.0, 0.0]]), flow.tensor([1]))
        tensor(0.1250)
    """

    tensors = ("weight",)

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        if p not in (1, 2):
            raise ValueError(f"MultiMarginLoss: p must be 1 or 2, not {p!r}")
        super().__init__(p=p, margin=margin, weight=weight, reduction=chosen_reduction(reduction, size_average, reduce))


class MultiLabelMarginLoss(_PlainLoss, function=F.multilabel_margin_loss):
    """The sum over right and wrong classes of ``max(0, 1 - right score + wrong score)``, divided by C.

    Shape: input (N, C) or (C,), target the same: the indices of the right classes, then -1; output a scalar, or (N,)
    for an input (N, C) with the reduction "none".

    Raises:
        TypeError: when called with anything else than a floating-point tensor and a tensor of integers.
        ValueError: when called, for shapes that differ, or another reduction.
        IndexError: when the result is read, for an index of C or more before the first negative one.

    Example:
        >>> flow.nn.MultiLabelMarginLoss()(flow.tensor([[0.5, 1.0, 0.0, 0.0]]), flow.tensor([[1, -1, -1, -1]]))
        tensor(0.1250)
    """


class MultiLabelSoftMarginLoss(_Loss, function=F.multilabel_soft_margin_loss):
    """The binary cross-entropy of each class, averaged over the classes.

    Shape: input and target (*, C); output a scalar, or (*) with the reduction "none".

    Args:
        weight: (C,), the weight of each class.
        size_average, reduce: older forms of `reduction`, which warn.
        reduction: "mean", "sum" or "none".

    Raises:
        TypeError: when called with logits that are not floating-point, bools as target, or anything else than tensors.
        ValueError: when called, for shapes that differ, or another reduction.

    Example:
        >>> flow.nn.MultiLabelSoftMarginLoss()(flow.zeros(1, 3), flow.tensor([[1.0, 0.0, 1.0]]))
        tensor(0.6931)
    """

    tensors = ("weight",)

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight=weight, reduction=chosen_reduction(reduction, size_average, reduce))


class CombinedMarginLoss(_Loss, function=F.combined_margin):
    """Changes the cosine of the right class to ``cos(m1 * angle + m2) - m3``, as the input of a cross entropy.

    Shape: input (N, C), target (N,), output (N, C).

    Args:
        m1: the factor of the angle (Liu et al., 2017).
        m2: the number added to the angle (Deng et al., 2019).
        m3: the number subtracted from the cosine (Wang et al., 2018).

    Raises:
        TypeError: when called with anything else than a floating-point tensor and a tensor of integers.
        ValueError: when called, for shapes that do not fit.
        IndexError: when the result is read, for a class index out of range.

    Example:
        >>> flow.nn.CombinedMarginLoss(m3=0.25)(flow.tensor([[0.5, 0.75]]), flow.tensor([1]))
        tensor([[0.5000, 0.5000]])
    """

    def __init__(self, m1: float = 1.0, m2: float = 0.0, m3: float = 0.0) -> None:
        super().__init__(m1=m1, m2=m2, m3=m3)
