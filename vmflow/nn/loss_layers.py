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
    """A loss; its repr has no settings, as in PyTorch.

    Raises:
        TypeError: when called with anything else than tensors, or for dtypes that do not fit.
        ValueError: when called, for shapes that do not fit, or another reduction.
    """

    shown = ()


class _PlainLoss(_Loss):
    """A loss whose only setting is the reduction.

    Shape: input (*), target (*), the same shape; output a scalar, or (*) with the reduction "none".

    Args:
        size_average, reduce: older names of the reduction, which warn.
        reduction: "mean", "sum" or "none".

    Raises:
        TypeError: when called with anything else than tensors, or for dtypes that do not fit.
        ValueError: when called, for shapes that do not fit, or another reduction.
    """

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> None:
        super().__init__(reduction=chosen_reduction(reduction, size_average, reduce))


class CrossEntropyLoss(_Loss, function=F.cross_entropy):
    """Cross entropy of logits and class indices, or class probabilities.

    Shape: input (N, C, *) or (C,), target (N, *) or a scalar, or probabilities of the input's shape; output a scalar,
    or the indices' shape with the reduction "none".

    Args:
        weight: of each class, (C,).
        size_average, reduce: older names of the reduction, which warn.
        ignore_index: a class index whose targets do not count.
        reduction: "mean", "sum" or "none".
        label_smoothing: the part of each target that is spread evenly over all classes.

    Raises:
        TypeError: when called with integers as logits.
        ValueError: when called, for shapes that do not fit, another reduction, or a smoothing outside [0, 1].
        IndexError: when the result is read, for a class index out of range.

    Example:
        >>> flow.nn.CrossEntropyLoss()(flow.zeros(1, 2), flow.tensor([0]))
        tensor(0.6931)
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
    """Negative log likelihood of log-probabilities and class indices.

    Shape: input (N, C, *) or (C,), target (N, *) or a scalar; output a scalar, or the target's shape with the reduction
    "none".

    Args:
        weight: of each class, (C,).
        size_average, reduce: older names of the reduction, which warn.
        ignore_index: a class index whose targets do not count.
        reduction: "mean", "sum" or "none".

    Raises:
        TypeError: when called with class indices that are no integers.
        ValueError: when called, for shapes that do not fit, or another reduction.
        IndexError: when the result is read, for a class index out of range.

    Example:
        >>> flow.nn.NLLLoss()(flow.tensor([[-1.0, -2.0], [-3.0, -4.0]]), flow.tensor([0, 1]))
        tensor(2.5000)
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
    """`NLLLoss` by an older name of PyTorch's, which warns.

    Shape: input (N, C, H, W), target (N, H, W); output a scalar, or (N, H, W) with the reduction "none".

    Args:
        weight, size_average, ignore_index, reduce, reduction: as for `NLLLoss`.

    Raises:
        TypeError: when called with class indices that are no integers.
        ValueError: when called, for shapes that do not fit, or another reduction.
        IndexError: when the result is read, for a class index out of range.

    Example:
        >>> issubclass(flow.nn.NLLLoss2d, flow.nn.NLLLoss)
        True
    """

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
    """The squared difference.

    Example:
        >>> flow.nn.MSELoss()(flow.tensor([1.0, 2.0]), flow.tensor([1.0, 4.0]))
        tensor(2.)
    """


class L1Loss(_PlainLoss, function=F.l1_loss):
    """The absolute difference.

    Example:
        >>> flow.nn.L1Loss()(flow.tensor([1.0, 2.0]), flow.tensor([1.0, 4.0]))
        tensor(1.)
    """


class SmoothL1Loss(_Loss, function=F.smooth_l1_loss):
    """The absolute difference, less ``beta / 2``; below `beta`, the squared one over ``2 * beta``.

    Shape: input (*), target (*), the same shape; output a scalar, or (*) with the reduction "none".

    Args:
        size_average, reduce: older names of the reduction, which warn.
        reduction: "mean", "sum" or "none".
        beta: the difference from which on the loss is linear.

    Raises:
        TypeError: when called with anything else than tensors.
        ValueError: when called, for shapes that differ, another reduction, or a negative `beta`.

    Example:
        >>> flow.nn.SmoothL1Loss(reduction="none")(flow.tensor([0.5, 3.0]), flow.zeros(2))
        tensor([0.1250, 2.5000])
    """

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        beta: float = 1.0,
    ) -> None:
        super().__init__(reduction=chosen_reduction(reduction, size_average, reduce), beta=beta)


class HuberLoss(_Loss, function=F.huber_loss):
    """Half the squared difference; above `delta`, ``delta * (|difference| - delta / 2)``.

    Shape: input (*), target (*), the same shape; output a scalar, or (*) with the reduction "none".

    Args:
        reduction: "mean", "sum" or "none".
        delta: the difference from which on the loss is linear.

    Raises:
        TypeError: when called with anything else than tensors.
        ValueError: when called, for shapes that differ, another reduction, or a `delta` that is not positive.

    Example:
        >>> flow.nn.HuberLoss("none", delta=2.0)(flow.tensor([1.0, 3.0]), flow.zeros(2))
        tensor([0.5000, 4.0000])
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction, delta=delta)


class BCELoss(_Loss, function=F.binary_cross_entropy):
    """Binary cross entropy of probabilities and targets, both within [0, 1].

    Shape: input (*), target (*), the same shape; output a scalar, or (*) with the reduction "none".

    Args:
        weight: of each element, broadcast to the shape.
        size_average, reduce: older names of the reduction, which warn.
        reduction: "mean", "sum" or "none".

    Raises:
        TypeError: when called with anything else than floating-point tensors of one dtype.
        ValueError: when called, for shapes that differ, or another reduction.
        RuntimeError: when the result is read, for a probability outside [0, 1].

    Example:
        >>> flow.nn.BCELoss()(flow.tensor([0.5, 1.0]), flow.tensor([1.0, 1.0]))
        tensor(0.3466)
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
    """Binary cross entropy of logits and targets, computed without overflow.

    Shape: input (*), target (*), the same shape; output a scalar, or (*) with the reduction "none".

    Args:
        weight: of each element, broadcast to the shape.
        size_average, reduce: older names of the reduction, which warn.
        reduction: "mean", "sum" or "none".
        pos_weight: of the positive targets, broadcast to the shape.

    Raises:
        TypeError: when called with anything else than floating-point tensors of one dtype.
        ValueError: when called, for shapes that do not fit, or another reduction.

    Example:
        >>> flow.nn.BCEWithLogitsLoss(reduction="none")(flow.tensor([0.0, 1000.0]), flow.tensor([1.0, 1.0]))
        tensor([0.6931, 0.0000])
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

    Shape: input (*), target (*), the same shape; output a scalar, or (*) with the reduction "none".

    Args:
        size_average, reduce: older names of the reduction, which warn.
        reduction: "mean", "sum", "none" or "batchmean" (the sum over the batch size, the true divergence).
        log_target: whether the target holds log-probabilities too.

    Raises:
        TypeError: when called with anything else than floating-point tensors.
        ValueError: when called, for shapes that differ, or another reduction.

    Example:
        >>> flow.nn.KLDivLoss(reduction="batchmean")(flow.tensor([[0.5, 0.5]]).log(), flow.tensor([[1.0, 0.0]]))
        tensor(0.6931)
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
    """The negative log likelihood of counts under Poisson distributions.

    Shape: input (*), target (*), the same shape; output a scalar, or (*) with the reduction "none".

    Args:
        log_input: whether the input is the logarithm of the expected counts: ``exp(input) - target * input``; otherwise
            ``input - target * log(input + eps)``.
        full: whether to add Stirling's approximation of the target's factorial.
        size_average, reduce: older names of the reduction, which warn.
        eps: see above.
        reduction: "mean", "sum" or "none".

    Raises:
        TypeError: when called with anything else than tensors.
        ValueError: when called, for shapes that differ, or another reduction.

    Example:
        >>> flow.nn.PoissonNLLLoss()(flow.tensor([0.0, 0.0]), flow.tensor([1.0, 3.0]))
        tensor(1.)
    """

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
    """The negative log likelihood of values under normal distributions.

    Called with the expected values, the values and the variances.

    Shape: input (*), target (*), variance (*), or with a last dimension that is 1 or left out; output a scalar, or (*)
    with the reduction "none".

    Args:
        full: whether to add the constant term ``log(2 * pi) / 2``.
        eps: the least variance.
        reduction: "mean", "sum" or "none".

    Raises:
        TypeError: when called with anything else than tensors; the variance may be a number.
        ValueError: when called, for shapes that do not fit, or another reduction.

    Example:
        >>> flow.nn.GaussianNLLLoss()(flow.tensor([1.0, 2.0]), flow.tensor([1.0, 4.0]), flow.ones(2))
        tensor(1.)
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(full=full, eps=eps, reduction=reduction)


class _MarginLoss(_Loss):
    """A loss with a margin, by default 0.

    Args:
        margin: see above.
        size_average, reduce: older names of the reduction, which warn.
        reduction: "mean", "sum" or "none".

    Raises:
        TypeError: when called with anything else than tensors.
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
    """``1 - cos`` of two vectors for a target of 1, ``max(0, cos - margin)`` for one of -1.

    Shape: inputs (N, D) or (D,), target (N,) or a scalar; output a scalar, or the target's shape with the reduction
    "none".

    Example:
        >>> vectors = flow.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> flow.nn.CosineEmbeddingLoss(reduction="none")(vectors, vectors, flow.tensor([1, -1]))
        tensor([0., 1.])
    """


class MarginRankingLoss(_MarginLoss, function=F.margin_ranking_loss):
    """``max(0, -target * (input1 - input2) + margin)``: a target of 1 says that `input1` should be larger, -1 `input2`.

    Shape: inputs and target (*), broadcast together; output a scalar, or (*) with the reduction "none".

    Example:
        >>> flow.nn.MarginRankingLoss()(flow.tensor([1.0, 2.0]), flow.tensor([3.0, 1.0]), flow.tensor([1, 1]))
        tensor(1.)
    """


class HingeEmbeddingLoss(_Loss, function=F.hinge_embedding_loss):
    """The input for a target of 1, ``max(0, margin - input)`` for one of -1.

    Shape: input (*), target (*), the same shape; output a scalar, or (*) with the reduction "none".

    Args:
        margin: see above.
        size_average, reduce: older names of the reduction, which warn.
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

    Shape: anchor, positive and negative (N, D) or (D,); output a scalar, or (N,) with the reduction "none".

    Args:
        margin: see above.
        p, eps: of the distance.
        swap: whether to take the negative's distance from the positive where that is smaller (Balntas et al., 2016).
        size_average, reduce: older names of the reduction, which warn.
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
    """`TripletMarginLoss` with another distance.

    Shape: anchor, positive and negative (N, *), the same shape; output a scalar, or the shape of the distances with the
    reduction "none".

    Args:
        distance_function: called with two tensors, returns their distances; by default `PairwiseDistance`.
        margin: see `TripletMarginLoss`.
        swap: whether to take the negative's distance from the positive where that is smaller.
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
    """The mean over the wrong classes of ``max(0, margin - right score + score)**p``.

    Shape: input (N, C) or (C,), target (N,) or a scalar; output a scalar, or (N,) with the reduction "none".

    Args:
        p: 1 or 2.
        margin: by how much the right score should be larger.
        weight: of each class, (C,).
        size_average, reduce: older names of the reduction, which warn.
        reduction: "mean", "sum" or "none".

    Raises:
        ValueError: for another `p`; when called, for shapes that do not fit, or another reduction.
        TypeError: when called with integers as scores, or class indices that are none.
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
    """The sum over right and wrong classes of ``max(0, 1 - right score + wrong score)``, over the number of classes.

    Shape: input (N, C) or (C,), target the same: the indices of the right classes, and then -1; output a scalar, or
    (N,) with the reduction "none".

    Raises:
        TypeError: when called with integers as scores, or class indices that are none.
        ValueError: when called, for shapes that differ, or another reduction.
        IndexError: when the result is read, for a class index out of range.

    Example:
        >>> flow.nn.MultiLabelMarginLoss()(flow.tensor([[0.5, 1.0, 0.0, 0.0]]), flow.tensor([[1, -1, -1, -1]]))
        tensor(0.1250)
    """


class MultiLabelSoftMarginLoss(_Loss, function=F.multilabel_soft_margin_loss):
    """The binary cross-entropy of each class, averaged over the classes.

    Shape: input (N, C), target (N, C); output a scalar, or (N,) with the reduction "none".

    Args:
        weight: of each class, broadcast.
        size_average, reduce: older names of the reduction, which warn.
        reduction: "mean", "sum" or "none".

    Raises:
        TypeError: when called with anything else than tensors, or integers as logits.
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


class CTCLoss(_Loss, function=F.ctc_loss):
    """The negative log likelihood of target sequences, summed over all alignments in time (Graves et al., 2006).

    Called with log-probabilities, targets, and the lengths of both; see `functional.ctc_loss`.

    Shape: log-probabilities (T, N, C) or (T, C), targets (N, S) or one after the other, lengths (N,); output a scalar,
    or (N,) with the reduction "none".

    Args:
        blank: the class that stands for nothing.
        reduction: "mean" (of the losses divided by the target lengths), "sum" or "none".
        zero_infinity: count targets that are too long for their input as 0.

    Raises:
        TypeError: when called with targets that are no integers.
        ValueError: when called, for shapes that do not fit, a blank that is no class, or another reduction; when the
            result is read, for lengths out of range.

    Example:
        >>> log_probs = flow.full((3, 1, 2), 0.5).log()
        >>> flow.nn.CTCLoss(reduction="sum")(log_probs, flow.tensor([[1]]), [3], [1])
        tensor(0.2877)
    """

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(blank=blank, reduction=reduction, zero_infinity=zero_infinity)


class CombinedMarginLoss(_Loss, function=F.combined_margin):
    """Changes the cosine of the right class to ``cos(m1 * angle + m2) - m3``, before a cross entropy.

    OneFlow's name and defaults.

    Shape: input (N, C), target (N,), output (N, C).

    Args:
        m1: the factor of the angle (Liu et al., 2017).
        m2: added to the angle (Deng et al., 2019).
        m3: subtracted from the cosine (Wang et al., 2018).

    Raises:
        TypeError: when called with integers as cosines, or class indices that are none.
        ValueError: when called, for shapes that do not fit.
        IndexError: when the result is read, for a class index out of range.

    Example:
        >>> flow.nn.CombinedMarginLoss(m3=0.25)(flow.tensor([[0.5, 0.75]]), flow.tensor([1]))
        tensor([[0.5000, 0.5000]])
    """

    def __init__(self, m1: float = 1.0, m2: float = 0.0, m3: float = 0.0) -> None:
        super().__init__(m1=m1, m2=m2, m3=m3)


class CosineSimilarity(_Loss, function=F.cosine_similarity):
    """The cosine of the angle between vectors along `dim`; lengths below `eps` count as this.

    Shape: inputs (*, D, *), broadcast together, where `dim` is the dimension of D; output without it.

    Raises:
        TypeError: when called with anything else than floating-point tensors.
        ValueError: when called, for shapes that do not broadcast.
        IndexError: when the inputs have no dimension `dim`.

    Example:
        >>> flow.nn.CosineSimilarity(dim=0)(flow.tensor([2.0, 0.0]), flow.tensor([0.0, 1.0]))
        tensor(0.)
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__(dim=dim, eps=eps)


class PairwiseDistance(_Loss, function=F.pairwise_distance):
    """The p-norm of ``x1 - x2 + eps`` along the last dimension.

    Shape: inputs (N, D) or (D,), broadcast together; output (N,) or a scalar, with `keepdim` (N, 1) or (1,).

    Raises:
        TypeError: when called with anything else than tensors.
        ValueError: when called, for shapes that do not broadcast.

    Example:
        >>> flow.nn.PairwiseDistance(eps=0.0)(flow.tensor([[3.0, 0.0]]), flow.tensor([[0.0, 4.0]]))
        tensor([5.])
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__(p=p, eps=eps, keepdim=keepdim)
