"""The layers of losses; those with margins are in `margin_loss_layers`.

A loss is called with the prediction and the target, unless its docstring says otherwise.  `size_average` and `reduce`
are PyTorch's old arguments for `reduction`; giving one of them warns.
"""

from __future__ import annotations

import warnings

from vmflow.ops.loss.loss import chosen_reduction
from vmflow.tensors import Tensor

from . import functional as F
from .function_layers import FunctionLayer


class _Loss(FunctionLayer):
    """The base of loss layers; their repr shows no settings.

    Raises:
        TypeError: when called with anything else than tensors, unless the layer's docstring allows it, or for dtypes
            that do not fit.
        ValueError: when called, for shapes that do not fit, or another reduction.
    """

    shown = ()


class _PlainLoss(_Loss):
    """The base of loss layers whose only setting is the reduction.

    Shape: input (*), target (*), the same shape; output a scalar, or (*) with the reduction "none".

    Args:
        size_average, reduce: older forms of `reduction`, which warn.
        reduction: "mean", "sum" or "none".

    Raises:
        TypeError: when called with anything else than tensors, or for dtypes that do not fit.
        ValueError: when called, for shapes that do not fit, or another reduction.
    """

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> None:
        super().__init__(reduction=chosen_reduction(reduction, size_average, reduce))


class CrossEntropyLoss(_Loss, function=F.cross_entropy):
    """Cross entropy of logits (the input) and class indices or class probabilities (the target).

    Shape: input (N, C, *) or (C,), target (N, *) or a scalar, or probabilities of the input's shape; output a scalar,
    or the input's shape without C with the reduction "none".

    Args:
        weight: (C,), the weight of each class.
        size_average, reduce: older forms of `reduction`, which warn.
        ignore_index: class indices equal to this number add nothing to the loss, nor to the divisor of a mean.
        reduction: "mean" (the sum divided by the sum of the class indices' weights, or by the number of probability
            distributions), "sum" or "none".
        label_smoothing: the fraction of each target's probability that is spread evenly over all classes.

    Raises:
        TypeError: when called with logits that are not floating-point, bools as target, or anything else than tensors.
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
    """The negative log likelihood: minus the input's log-probability of each target class, times the class's weight.

    Shape: input (N, C, *) or (C,), target (N, *) or a scalar; output a scalar, or the target's shape with the reduction
    "none".

    Args:
        weight, size_average, ignore_index, reduce, reduction: as for `CrossEntropyLoss` with class indices.

    Raises:
        TypeError: when called with anything else than a floating-point tensor and a tensor of integers.
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
    """`NLLLoss` by an old name of PyTorch's; the constructor warns.

    Shape: input (N, C, H, W), target (N, H, W); output a scalar, or (N, H, W) with the reduction "none".

    Args:
        weight, size_average, ignore_index, reduce, reduction: as for `NLLLoss`.

    Raises:
        TypeError, ValueError, IndexError: as `NLLLoss`.

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
    """The squared difference of prediction and target.

    Example:
        >>> flow.nn.MSELoss()(flow.tensor([1.0, 2.0]), flow.tensor([1.0, 4.0]))
        tensor(2.)
    """


class L1Loss(_PlainLoss, function=F.l1_loss):
    """The absolute difference of prediction and target.

    Example:
        >>> flow.nn.L1Loss()(flow.tensor([1.0, 2.0]), flow.tensor([1.0, 4.0]))
        tensor(1.)
    """


class SmoothL1Loss(_Loss, function=F.smooth_l1_loss):
    """``|difference| - beta / 2``; where ``|difference| < beta``, ``difference**2 / (2 * beta)``.

    Shape: input (*), target (*), the same shape; output a scalar, or (*) with the reduction "none".

    Args:
        size_average, reduce: older forms of `reduction`, which warn.
        reduction: "mean", "sum" or "none".
        beta: the difference from which on the loss is linear.

    Raises:
        TypeError: when called with anything else than tensors, with complex tensors, or with two bool tensors.
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
    """``difference**2 / 2``; where ``|difference| > delta``, ``delta * (|difference| - delta / 2)``.

    Shape: input (*), target (*), the same shape; output a scalar, or (*) with the reduction "none".

    Args:
        reduction: "mean", "sum" or "none".
        delta: the difference from which on the loss is linear.

    Raises:
        TypeError: when called with anything else than tensors, with complex tensors, or with two bool tensors.
        ValueError: when called, for shapes that differ, another reduction, or a `delta` that is not positive.

    Example:
        >>> flow.nn.HuberLoss("none", delta=2.0)(flow.tensor([1.0, 3.0]), flow.zeros(2))
        tensor([0.5000, 4.0000])
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction, delta=delta)


class BCELoss(_Loss, function=F.binary_cross_entropy):
    """Binary cross entropy of probabilities and targets, both within [0, 1]; logarithms below -100 count as -100.

    Shape: input (*), target (*), the same shape; output a scalar, or (*) with the reduction "none".

    Args:
        weight: the weight of each element, broadcast to the input's shape.
        size_average, reduce: older forms of `reduction`, which warn.
        reduction: "mean", "sum" or "none".

    Raises:
        TypeError: when called with anything else than floating-point tensors of one dtype.
        ValueError: when called, for shapes that do not fit, or another reduction.
        RuntimeError: when the result is read, for an input outside [0, 1] or nan; targets are not checked.

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
        weight, size_average, reduce, reduction: as for `BCELoss`.
        pos_weight: the weight of the loss's term for positive targets, broadcast to the input's shape.

    Raises:
        TypeError: when called with anything else than floating-point tensors.
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
        size_average, reduce: older forms of `reduction`, which warn.
        reduction: "mean", "sum", "none" or "batchmean" (the sum divided by the batch size, the true divergence).
        log_target: whether the target is given as log-probabilities, too.

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
        full: whether to add Stirling's approximation of ``log(target!)``, for targets above 1.
        size_average, reduce: older forms of `reduction`, which warn.
        eps: the number in the formula without `log_input`.
        reduction: "mean", "sum" or "none".

    Raises:
        TypeError: when called with anything else than tensors, or with two bool tensors.
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

    Shape: input (*), target of as many dimensions, broadcast with the input, variance (*) with the last dimension
    possibly 1 or left out; output a scalar, or (*) with the reduction "none".

    Args:
        full: whether to add the constant term ``log(2 * pi) / 2``.
        eps: the lower bound of the variance.
        reduction: "mean", "sum" or "none".

    Raises:
        TypeError: when called with bools, or anything else than tensors; only the variance may be a number.
        ValueError: when called, for shapes that do not fit, another reduction, an `eps` that is not positive, or a
            negative number as the variance.

    Example:
        >>> flow.nn.GaussianNLLLoss()(flow.tensor([1.0, 2.0]), flow.tensor([1.0, 4.0]), flow.ones(2))
        tensor(1.)
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(full=full, eps=eps, reduction=reduction)


class CTCLoss(_Loss, function=F.ctc_loss):
    """Minus the log of a target sequence's probability, summed over its alignments in time (Graves et al., 2006).

    Called with log-probabilities, targets, and the lengths of both; see `functional.ctc_loss`.

    Shape: log-probabilities (T, N, C) or (T, C), targets (N, S) or joined in one vector, lengths (N,) or scalars;
    output a scalar, or the lengths' shape with the reduction "none".

    Args:
        blank: the class of the blank, which stands for no label.
        reduction: "mean" (of the losses divided by the target lengths, at least 1), "sum" or "none".
        zero_infinity: whether to set infinite losses, of targets too long for their input, to 0.

    Raises:
        TypeError: when called with targets that are no integers, or log-probabilities that are not floating-point.
        ValueError: when called, for shapes that do not fit, a blank that is no class, or another reduction; when the
            result is read, for lengths that do not fit.
        IndexError: when the result is read, for a class index out of range.

    Example:
        >>> log_probs = flow.full((3, 1, 2), 0.5).log()
        >>> flow.nn.CTCLoss(reduction="sum")(log_probs, flow.tensor([[1]]), [3], [1])
        tensor(0.2877)
    """

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(blank=blank, reduction=reduction, zero_infinity=zero_infinity)
