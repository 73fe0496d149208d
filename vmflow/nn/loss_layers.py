"""The layers of losses, and of the distances that some of them use.

A loss takes the prediction and the target, unless it says otherwise; `reduction` is "mean", "sum" or "none".
`size_average` and `reduce` are older names for that, which warn.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

from vmflow.ops.loss.loss import chosen_reduction
from vmflow.tensors import Tensor

from . import functional as F
from .function_layers import FunctionLayer


class _Loss(FunctionLayer):
    """A loss; its repr has no settings, as in PyTorch."""

    shown = ()


class _PlainLoss(_Loss):
    """A loss whose only setting is the reduction."""

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> None:
        super().__init__(reduction=chosen_reduction(reduction, size_average, reduce))


class CrossEntropyLoss(_Loss, function=F.cross_entropy):
    """Cross entropy of logits (N, C, ...) and class indices (N, ...), or class probabilities (N, C, ...).

    Args:
        weight: of each class, (C,).
        ignore_index: the class index that counts for nothing.
        reduction: "mean", "sum" or "none".
        label_smoothing: how much of each target is spread evenly over all classes.
    """

    tensors = ("weight",)

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(
            weight=weight,
            ignore_index=ignore_index,
            reduction=chosen_reduction(reduction, size_average, reduce),
            label_smoothing=label_smoothing,
        )


class NLLLoss(_Loss, function=F.nll_loss):
    """Negative log likelihood of log-probabilities (N, C, ...) and class indices (N, ...).

    Args:
        weight: of each class, (C,).
        ignore_index: the class index that counts for nothing.
        reduction: "mean", "sum" or "none".
    """

    tensors = ("weight",)

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(
            weight=weight, ignore_index=ignore_index, reduction=chosen_reduction(reduction, size_average, reduce)
        )


class NLLLoss2d(NLLLoss):
    """`NLLLoss` by an older name of PyTorch's, which warns."""

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        warnings.warn("NLLLoss2d is deprecated; use NLLLoss instead", FutureWarning, stacklevel=2)
        super().__init__(weight, size_average, ignore_index, reduce, reduction)


class MSELoss(_PlainLoss, function=F.mse_loss):
    """The squared difference."""


class L1Loss(_PlainLoss, function=F.l1_loss):
    """The absolute difference."""


class SmoothL1Loss(_Loss, function=F.smooth_l1_loss):
    """The absolute difference, less ``beta / 2``; below `beta`, the squared one over ``2 * beta``."""

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        beta: float = 1.0,
    ) -> None:
        super().__init__(reduction=chosen_reduction(reduction, size_average, reduce), beta=beta)


class HuberLoss(_Loss, function=F.huber_loss):
    """Half the squared difference; above `delta`, ``delta * (|difference| - delta / 2)``."""

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction, delta=delta)


class BCELoss(_Loss, function=F.binary_cross_entropy):
    """Binary cross entropy of probabilities and targets of the same shape, both within [0, 1].

    Args:
        weight: of each element, broadcast to the shape.
        reduction: "mean", "sum" or "none".
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


class BCEWithLogitsLoss(_Loss, function=F.binary_cross_entropy_with_logits):
    """Binary cross entropy of logits and targets of the same shape, computed without overflow.

    Args:
        weight: of each element, broadcast to the shape.
        reduction: "mean", "sum" or "none".
        pos_weight: of the positive targets, broadcast to the shape.
    """

    tensors = ("weight", "pos_weight")

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(
            weight=weight, reduction=chosen_reduction(reduction, size_average, reduce), pos_weight=pos_weight
        )


class KLDivLoss(_Loss, function=F.kl_div):
    """``target * (log(target) - input)`` for log-probabilities `input`.

    Args:
        reduction: "mean", "sum", "none" or "batchmean" (the sum over the batch size, the true divergence).
        log_target: whether the target holds log-probabilities too.
    """

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        log_target: bool = False,
    ) -> None:
        super().__init__(reduction=chosen_reduction(reduction, size_average, reduce), log_target=log_target)


class PoissonNLLLoss(_Loss, function=F.poisson_nll_loss):
    """The negative log likelihood of counts under a Poisson distribution; see `functional.poisson_nll_loss`."""

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        size_average: bool | None = None,
        eps: float = 1e-8,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(
            log_input=log_input, full=full, eps=eps, reduction=chosen_reduction(reduction, size_average, reduce)
        )


class GaussianNLLLoss(_Loss, function=F.gaussian_nll_loss):
    """The negative log likelihood of values under normal distributions; see `functional.gaussian_nll_loss`.

    Called with the expected values, the values and the variances.
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(full=full, eps=eps, reduction=reduction)


class _MarginLoss(_Loss):
    """A loss with a margin, by default 0."""

    def __init__(
        self,
        margin: float = 0.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(margin=margin, reduction=chosen_reduction(reduction, size_average, reduce))


class CosineEmbeddingLoss(_MarginLoss, function=F.cosine_embedding_loss):
    """``1 - cos`` of two vectors for a target of 1, ``max(0, cos - margin)`` for one of -1."""


class MarginRankingLoss(_MarginLoss, function=F.margin_ranking_loss):
    """``max(0, -target * (input1 - input2) + margin)``: which of two should be larger."""


class HingeEmbeddingLoss(_Loss, function=F.hinge_embedding_loss):
    """The input for a target of 1, ``max(0, margin - input)`` for one of -1."""

    def __init__(
        self,
        margin: float = 1.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(margin=margin, reduction=chosen_reduction(reduction, size_average, reduce))


class SoftMarginLoss(_PlainLoss, function=F.soft_margin_loss):
    """``log(1 + exp(-target * input))`` for targets 1 and -1."""


class TripletMarginLoss(_Loss, function=F.triplet_margin_loss):
    """``max(0, d(anchor, positive) - d(anchor, negative) + margin)``; see `functional.triplet_margin_loss`."""

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
    """`TripletMarginLoss` with a distance of one's own, from two tensors to their distances."""

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
    """The mean over the wrong classes of ``max(0, margin - right score + score)**p``.

    Args:
        p: 1 or 2.
        margin: by how much the right score should be larger.
        weight: of each class, (C,).
        reduction: "mean", "sum" or "none".

    Raises:
        ValueError: for another `p`.
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
    """The sum over right and wrong classes of ``max(0, 1 - right score + wrong score)``, over the number of classes."""


class MultiLabelSoftMarginLoss(_Loss, function=F.multilabel_soft_margin_loss):
    """The binary cross-entropy of each class, meaned over the classes.

    Args:
        weight: of each class, broadcast.
        reduction: "mean", "sum" or "none".
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


class CTCLoss(_Loss, function=F.ctc_loss):
    """The negative log likelihood of target sequences, whatever their alignment in time; see `functional.ctc_loss`.

    Args:
        blank: the class that stands for nothing.
        reduction: "mean" (of the losses divided by the target lengths), "sum" or "none".
        zero_infinity: count targets that are too long for their input as 0.
    """

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(blank=blank, reduction=reduction, zero_infinity=zero_infinity)


class CombinedMarginLoss(_Loss, function=F.combined_margin):
    """Cosines with that of the right class made ``cos(m1 * angle + m2) - m3``, to be followed by a cross entropy.

    OneFlow's name and default.
    """

    def __init__(self, m1: float = 1.0, m2: float = 0.0, m3: float = 0.0) -> None:
        super().__init__(m1=m1, m2=m2, m3=m3)


class CosineSimilarity(_Loss, function=F.cosine_similarity):
    """The cosine of the angle between vectors along `dim`; lengths below `eps` count as this."""

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__(dim=dim, eps=eps)


class PairwiseDistance(_Loss, function=F.pairwise_distance):
    """The p-norm of ``x1 - x2 + eps`` along the last dimension."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__(p=p, eps=eps, keepdim=keepdim)
