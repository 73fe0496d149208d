"""Losses that are negative log likelihoods of counts and of real values."""

from __future__ import annotations

from math import log, pi
from typing import TYPE_CHECKING

import numpy as np

from vmflow.arguments import flag
from vmflow.operands import check_tensors
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.elementwise.selection import where

from .loss import check_reduction, check_same, chosen_reduction, reduced

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


@autocast_as_op
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
    *,
    size_average: bool | None = None,
    reduce: bool | None = None,
) -> Tensor:
    """The negative log likelihood of counts under a Poisson distribution.

    Args:
        input: the expected count, or with `log_input` its logarithm.
        target: the counts, of the same shape.
        log_input: whether `input` is the logarithm of the expected count.
        full: whether to add the term that depends on the target alone, for targets above 1, by Stirling's formula.
        eps: added to the expected count before its logarithm is taken, without `log_input`.
        reduction: "mean", "sum" or "none".
        size_average, reduce: older names for the reduction, deprecated.

    Raises:
        TypeError: if `input` or `target` is no tensor.
        ValueError: for shapes that differ, or another reduction.

    Example:
        >>> flow.nn.functional.poisson_nll_loss(flow.zeros(2), flow.tensor([1.0, 3.0]))
        tensor(1.)
    """
    reduction = chosen_reduction(reduction, size_average, reduce)
    check_reduction("poisson_nll_loss", reduction)
    full = flag("poisson_nll_loss", "full", full)
    check_same("poisson_nll_loss", input, target)
    losses = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        # Targets up to 1, whose term `where` drops, are replaced by 1: an infinite term would have a gradient of nan.
        many = where(target > 1, target, 1.0)
        stirling = where(target > 1, many * many.log() - many + (many * (2 * pi)).log() * 0.5, 0.0)
        losses = losses + stirling.to(losses.dtype)
    return reduced("poisson_nll_loss", losses, reduction)


@autocast_as_op
def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """The negative log likelihood of real values under normal distributions.

    Args:
        input: the expected values.
        target: the values, of the same shape, or of the same number of dimensions and broadcast.
        var: the variances: a number, or of the input's shape, possibly with a last dimension of 1 or without it.
            Elements below `eps`, negative ones as well, count as `eps`, with the gradient at `eps`.
        full: whether to add the constant ``log(2 * pi) / 2``.
        eps: the smallest variance.
        reduction: "mean", "sum" or "none".

    Raises:
        TypeError: if `input` or `target` is no tensor, or `var` neither a number nor a tensor.
        ValueError: for a target or variance that does not fit, a negative number as `var`, an `eps` that is not
            positive, or another reduction.

    Example:
        >>> flow.nn.functional.gaussian_nll_loss(flow.zeros(2), flow.tensor([1.0, 3.0]), flow.ones(2))
        tensor(2.5000)
    """
    check_reduction("gaussian_nll_loss", reduction)
    check_tensors("gaussian_nll_loss", input, target)
    if input.ndim != target.ndim:
        check_same("gaussian_nll_loss", input, target)
    if not eps > 0:
        raise ValueError(f"gaussian_nll_loss: eps must be positive, got {eps}")
    if isinstance(var, (int, float, np.number)):
        if var < 0:
            raise ValueError(f"gaussian_nll_loss: a variance cannot be negative, got {var}")
        number = max(float(var), eps)
        losses = ((input - target).square() / number + log(number)) * 0.5
    else:
        variance = _fitting_variance(input, var)
        # A variance below eps becomes eps, but keeps a gradient of 1: add a difference that is 0.
        variance = where(variance < eps, (variance - variance.detach()) + eps, variance)
        losses = (variance.log() + (input - target).square() / variance) * 0.5
    if full:
        losses = losses + 0.5 * log(2 * pi)
    return reduced("gaussian_nll_loss", losses, reduction)


def _fitting_variance(input: Tensor, var: Tensor) -> Tensor:
    check_tensors("gaussian_nll_loss", input, var)
    shape, own_shape = tuple(input.shape), tuple(var.shape)
    if own_shape == shape or (len(own_shape) == len(shape) and own_shape[:-1] == shape[:-1] and own_shape[-1:] == (1,)):
        return var
    if own_shape == shape[:-1]:
        return var.unsqueeze(-1)
    raise ValueError(
        f"gaussian_nll_loss: variances of shape {list(own_shape)} do not fit an input of shape {list(shape)}; give the "
        "same shape, or one whose last dimension is 1 or left out"
    )
