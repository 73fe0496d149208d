"""The layers of losses, and of the distances that some of them use.

A loss takes the prediction and the target, unless it says otherwise; `reduction` is "mean", "sum" or "none".
"""

from __future__ import annotations

from collections.abc import Callable

from vmflow.tensors import Tensor

from . import functional as F
from .function_layers import FunctionLayer


class _Loss(FunctionLayer):
    """A loss; its repr has no settings, as in PyTorch."""

    shown = ()


class _PlainLoss(_Loss):
    """A loss whose only setting is the reduction."""

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)


class CrossEntropyLoss(_Loss):
    """Cross entropy of logits (N, C, ...) and class indices (N, ...), or class probabilities (N, C, ...).

    Args:
        weight: of each class, (C,).
        ignore_index: the class index that counts for nothing.
        reduction: "mean", "sum" or "none".
        label_smoothing: how much of each target is spread evenly over all classes.
    """

    function = staticmethod(F.cross_entropy)
    tensors = ("weight",)

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight=weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing)


class NLLLoss(_Loss):
    """Negative log likelihood of log-probabilities (N, C, ...) and class indices (N, ...).

    Args:
        weight: of each class, (C,).
        ignore_index: the class index that counts for nothing.
        reduction: "mean", "sum" or "none".
    """

    function = staticmethod(F.nll_loss)
    tensors = ("weight",)

    def __init__(self, weight: Tensor | None = None, *, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__(weight=weight, ignore_index=ignore_index, reduction=reduction)


class MSELoss(_PlainLoss):
    """The squared difference."""

    function = staticmethod(F.mse_loss)


class L1Loss(_PlainLoss):
    """The absolute difference."""

    function = staticmethod(F.l1_loss)


class SmoothL1Loss(_Loss):
    """The absolute difference, less ``beta / 2``; below `beta`, the squared one over ``2 * beta``."""

    function = staticmethod(F.smooth_l1_loss)

    def __init__(self, *, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction=reduction, beta=beta)


class HuberLoss(_Loss):
    """Half the squared difference; above `delta`, ``delta * (|difference| - delta / 2)``."""

    function = staticmethod(F.huber_loss)

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction, delta=delta)


class BCELoss(_Loss):
    """Binary cross entropy of probabilities and targets of the same shape, both within [0, 1].

    Args:
        weight: of each element, broadcast to the shape.
        reduction: "mean", "sum" or "none".
    """

    function = staticmethod(F.binary_cross_entropy)
    tensors = ("weight",)

    def __init__(self, weight: Tensor | None = None, *, reduction: str = "mean") -> None:
        super().__init__(weight=weight, reduction=reduction)


class BCEWithLogitsLoss(_Loss):
    """Binary cross entropy of logits and targets of the same shape, computed without overflow.

    Args:
        weight: of each element, broadcast to the shape.
        reduction: "mean", "sum" or "none".
        pos_weight: of the positive targets, broadcast to the shape.
    """

    function = staticmethod(F.binary_cross_entropy_with_logits)
    tensors = ("weight", "pos_weight")

    def __init__(
        self, weight: Tensor | None = None, *, reduction: str = "mean", pos_weight: Tensor | None = None
    ) -> None:
        super().__init__(weight=weight, reduction=reduction, pos_weight=pos_weight)


class KLDivLoss(_Loss):
    """``target * (log(target) - input)`` for log-probabilities `input`.

    Args:
        reduction: "mean", "sum", "none" or "batchmean" (the sum over the batch size, the true divergence).
        log_target: whether the target holds log-probabilities too.
    """

    function = staticmethod(F.kl_div)

    def __init__(self, *, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction=reduction, log_target=log_target)


class PoissonNLLLoss(_Loss):
    """The negative log likelihood of counts under a Poisson distribution; see `functional.poisson_nll_loss`."""

    function = staticmethod(F.poisson_nll_loss)

    def __init__(
        self, log_input: bool = True, full: bool = False, *, eps: float = 1e-8, reduction: str = "mean"
    ) -> None:
        super().__init__(log_input=log_input, full=full, eps=eps, reduction=reduction)


class GaussianNLLLoss(_Loss):
    """The negative log likelihood of values under normal distributions; see `functional.gaussian_nll_loss`.

    Called with the expected values, the values and the variances.
    """

    function = staticmethod(F.gaussian_nll_loss)

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(full=full, eps=eps, reduction=reduction)


class _MarginLoss(_Loss):
    """A loss with a margin, by default 0."""

    def __init__(self, margin: float = 0.0, *, reduction: str = "mean") -> None:
        super().__init__(margin=margin, reduction=reduction)


class CosineEmbeddingLoss(_MarginLoss):
    """``1 - cos`` of two vectors for a target of 1, ``max(0, cos - margin)`` for one of -1."""

    function = staticmethod(F.cosine_embedding_loss)


class MarginRankingLoss(_MarginLoss):
    """``max(0, -target * (input1 - input2) + margin)``: which of two should be larger."""

    function = staticmethod(F.margin_ranking_loss)


class HingeEmbeddingLoss(_Loss):
    """The input for a target of 1, ``max(0, margin - input)`` for one of -1."""

    function = staticmethod(F.hinge_embedding_loss)

    def __init__(self, margin: float = 1.0, *, reduction: str = "mean") -> None:
        super().__init__(margin=margin, reduction=reduction)


class SoftMarginLoss(_PlainLoss):
    """``log(1 + exp(-target * input))`` for targets 1 and -1."""

    function = staticmethod(F.soft_margin_loss)


class TripletMarginLoss(_Loss):
    """``max(0, d(anchor, positive) - d(anchor, negative) + margin)``; see `functional.triplet_margin_loss`."""

    function = staticmethod(F.triplet_margin_loss)

    def __init__(
        self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, *, reduction: str = "mean"
    ) -> None:
        if not margin > 0:
            raise ValueError(f"TripletMarginLoss: the margin must be positive, got {margin}")
        super().__init__(margin=margin, p=p, eps=eps, swap=swap, reduction=reduction)


class TripletMarginWithDistanceLoss(_Loss):
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


class MultiMarginLoss(_Loss):
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


class MultiLabelMarginLoss(_PlainLoss):
    """The sum over right and wrong classes of ``max(0, 1 - right score + wrong score)``, over the number of classes."""

    function = staticmethod(F.multilabel_margin_loss)


class MultiLabelSoftMarginLoss(_Loss):
    """The binary cross-entropy of each class, meaned over the classes.

    Args:
        weight: of each class, broadcast.
        reduction: "mean", "sum" or "none".
    """

    function = staticmethod(F.multilabel_soft_margin_loss)
    tensors = ("weight",)

    def __init__(self, weight: Tensor | None = None, *, reduction: str = "mean") -> None:
        super().__init__(weight=weight, reduction=reduction)


class CTCLoss(_Loss):
    """The negative log likelihood of target sequences, whatever their alignment in time; see `functional.ctc_loss`.

    Args:
        blank: the class that stands for nothing.
        reduction: "mean" (of the losses divided by the target lengths), "sum" or "none".
        zero_infinity: count targets that are too long for their input as 0.
    """

    function = staticmethod(F.ctc_loss)

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(blank=blank, reduction=reduction, zero_infinity=zero_infinity)


class CombinedMarginLoss(_Loss):
    """Cosines with that of the right class made ``cos(m1 * angle + m2) - m3``, to be followed by a cross entropy.

    OneFlow's name and default.
    """

    function = staticmethod(F.combined_margin)

    def __init__(self, m1: float = 1.0, m2: float = 0.0, m3: float = 0.0) -> None:
        super().__init__(m1=m1, m2=m2, m3=m3)


class CosineSimilarity(_Loss):
    """The cosine of the angle between vectors along `dim`; lengths below `eps` count as this."""

    function = staticmethod(F.cosine_similarity)

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__(dim=dim, eps=eps)


class PairwiseDistance(_Loss):
    """The p-norm of ``x1 - x2 + eps`` along the last dimension."""

    function = staticmethod(F.pairwise_distance)

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__(p=p, eps=eps, keepdim=keepdim)
