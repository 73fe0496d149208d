"""More losses, and distances, as layers; the commonest are in `function_layers`.

`reduction` is "mean", "sum" or "none".
"""

from __future__ import annotations

from collections.abc import Callable

from vmflow.tensors import Tensor

from . import functional as F
from .function_layers import LossLayer, PlainLoss


class PoissonNLLLoss(LossLayer):
    """The negative log likelihood of counts under a Poisson distribution; see `functional.poisson_nll_loss`."""

    function = staticmethod(F.poisson_nll_loss)

    def __init__(
        self, log_input: bool = True, full: bool = False, *, eps: float = 1e-8, reduction: str = "mean"
    ) -> None:
        super().__init__(log_input=log_input, full=full, eps=eps, reduction=reduction)


class GaussianNLLLoss(LossLayer):
    """The negative log likelihood of values under normal distributions; see `functional.gaussian_nll_loss`.

    Called with the expected values, the values and the variances.
    """

    function = staticmethod(F.gaussian_nll_loss)

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(full=full, eps=eps, reduction=reduction)


class _MarginLoss(LossLayer):
    """A loss with a margin, by default 0."""

    def __init__(self, margin: float = 0.0, *, reduction: str = "mean") -> None:
        super().__init__(margin=margin, reduction=reduction)


class CosineEmbeddingLoss(_MarginLoss):
    """``1 - cos`` of two vectors for a target of 1, ``max(0, cos - margin)`` for one of -1."""

    function = staticmethod(F.cosine_embedding_loss)


class MarginRankingLoss(_MarginLoss):
    """``max(0, -target * (input1 - input2) + margin)``: which of two should be larger."""

    function = staticmethod(F.margin_ranking_loss)


class HingeEmbeddingLoss(LossLayer):
    """The input for a target of 1, ``max(0, margin - input)`` for one of -1."""

    function = staticmethod(F.hinge_embedding_loss)

    def __init__(self, margin: float = 1.0, *, reduction: str = "mean") -> None:
        super().__init__(margin=margin, reduction=reduction)


class SoftMarginLoss(PlainLoss):
    """``log(1 + exp(-target * input))`` for targets 1 and -1."""

    function = staticmethod(F.soft_margin_loss)


class TripletMarginLoss(LossLayer):
    """``max(0, d(anchor, positive) - d(anchor, negative) + margin)``; see `functional.triplet_margin_loss`."""

    function = staticmethod(F.triplet_margin_loss)

    def __init__(
        self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, *, reduction: str = "mean"
    ) -> None:
        if not margin > 0:
            raise ValueError(f"TripletMarginLoss: the margin must be positive, got {margin}")
        super().__init__(margin=margin, p=p, eps=eps, swap=swap, reduction=reduction)


class TripletMarginWithDistanceLoss(LossLayer):
    """`TripletMarginLoss` with a distance of one's own, from two tensors to their distances."""

    function = staticmethod(F.triplet_margin_with_distance_loss)

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


class MultiMarginLoss(LossLayer):
    """The mean over the wrong classes of ``max(0, margin - right score + score)**p``.

    Args:
        p: 1 or 2.
        margin: by how much the right score should be larger.
        weight: of each class, (C,).
        reduction: "mean", "sum" or "none".

    Raises:
        ValueError: for another `p`.
    """

    function = staticmethod(F.multi_margin_loss)
    tensors = ("weight",)

    def __init__(
        self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, *, reduction: str = "mean"
    ) -> None:
        if p not in (1, 2):
            raise ValueError(f"MultiMarginLoss: p must be 1 or 2, not {p!r}")
        super().__init__(p=p, margin=margin, weight=weight, reduction=reduction)


class MultiLabelMarginLoss(PlainLoss):
    """The sum over right and wrong classes of ``max(0, 1 - right score + wrong score)``, over the number of classes."""

    function = staticmethod(F.multilabel_margin_loss)


class MultiLabelSoftMarginLoss(LossLayer):
    """The binary cross-entropy of each class, meaned over the classes.

    Args:
        weight: of each class, broadcast.
        reduction: "mean", "sum" or "none".
    """

    function = staticmethod(F.multilabel_soft_margin_loss)
    tensors = ("weight",)

    def __init__(self, weight: Tensor | None = None, *, reduction: str = "mean") -> None:
        super().__init__(weight=weight, reduction=reduction)


class CTCLoss(LossLayer):
    """The negative log likelihood of target sequences, whatever their alignment in time; see `functional.ctc_loss`.

    Args:
        blank: the class that stands for nothing.
        reduction: "mean" (of the losses divided by the target lengths), "sum" or "none".
        zero_infinity: count targets that are too long for their input as 0.
    """

    function = staticmethod(F.ctc_loss)

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(blank=blank, reduction=reduction, zero_infinity=zero_infinity)


class CombinedMarginLoss(LossLayer):
    """Cosines with that of the right class made ``cos(m1 * angle + m2) - m3``, to be followed by a cross entropy.

    OneFlow's name and default.
    """

    function = staticmethod(F.combined_margin)

    def __init__(self, m1: float = 1.0, m2: float = 0.0, m3: float = 0.0) -> None:
        super().__init__(m1=m1, m2=m2, m3=m3)


class CosineSimilarity(LossLayer):
    """The cosine of the angle between vectors along `dim`; lengths below `eps` count as this."""

    function = staticmethod(F.cosine_similarity)

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__(dim=dim, eps=eps)


class PairwiseDistance(LossLayer):
    """The p-norm of ``x1 - x2 + eps`` along the last dimension."""

    function = staticmethod(F.pairwise_distance)

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__(p=p, eps=eps, keepdim=keepdim)
