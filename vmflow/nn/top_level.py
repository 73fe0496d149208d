"""Functions of layers that PyTorch has in `torch`, too, but with other arguments or results than in `nn.functional`.

`vmflow` has them as PyTorch does: ``vmflow.batch_norm`` takes the weight and the bias first.  Functions that are alike
in both places are those of `nn.functional`.

The losses take the reduction as a number, which by default is 0: there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from . import functional as _functional

if TYPE_CHECKING:
    from vmflow.tensors import Tensor

_REDUCTIONS: Final = ("none", "mean", "sum")


def _reduction(name: str, given: int | str) -> str:
    if given in _REDUCTIONS:
        return str(given)
    if isinstance(given, str) or not 0 <= given < len(_REDUCTIONS):
        raise ValueError(f"{name}: the reduction is 0 for none, 1 for the mean or 2 for the sum, not {given!r}")
    return _REDUCTIONS[given]


def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Tensor:
    """`nn.functional.batch_norm`, with the weight and the bias first.

    Args:
        input, weight, bias, running_mean, running_var, training, momentum, eps: as there.
        cudnn_enabled: makes no difference; for programs that give it.
    """
    return _functional.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Tensor:
    """`nn.functional.instance_norm`, with the weight and the bias first.

    Args:
        input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps: as there.
        cudnn_enabled: makes no difference; for programs that give it.
    """
    return _functional.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


def embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    """`nn.functional.embedding`, with the table first.

    Args:
        weight: (rows, features).
        indices: integers of any shape.
        padding_idx: the row that gets no gradient; a negative number, which does not count from the end here, for none.
        scale_grad_by_freq, sparse: as in `nn.functional.embedding`.
    """
    padding = None if padding_idx < 0 else padding_idx
    return _functional.embedding(
        indices, weight, padding_idx=padding, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse
    )


def dropout(input: Tensor, p: float = 0.5, train: bool = True) -> Tensor:
    """`nn.functional.dropout`."""
    return _functional.dropout(input, p, train)


def dropout_(input: Tensor, p: float = 0.5, train: bool = True) -> Tensor:
    """In-place `dropout`."""
    return _functional.dropout(input, p, train, inplace=True)


def alpha_dropout(input: Tensor, p: float = 0.5, train: bool = False) -> Tensor:
    """`nn.functional.alpha_dropout`."""
    return _functional.alpha_dropout(input, p, train)


def alpha_dropout_(input: Tensor, p: float = 0.5, train: bool = False) -> Tensor:
    """In-place `alpha_dropout`."""
    return _functional.alpha_dropout(input, p, train, inplace=True)


def feature_alpha_dropout(input: Tensor, p: float = 0.5, train: bool = False) -> Tensor:
    """`nn.functional.feature_alpha_dropout`."""
    return _functional.feature_alpha_dropout(input, p, train)


def feature_alpha_dropout_(input: Tensor, p: float = 0.5, train: bool = False) -> Tensor:
    """In-place `feature_alpha_dropout`."""
    return _functional.feature_alpha_dropout(input, p, train, inplace=True)


def adaptive_max_pool1d(input: Tensor, output_size: int | tuple[int]) -> tuple[Tensor, Tensor]:
    """`nn.functional.adaptive_max_pool1d`, always with the indices."""
    pooled: tuple[Tensor, Tensor] = _functional.adaptive_max_pool1d(input, output_size, return_indices=True)
    return pooled


def affine_grid_generator(theta: Tensor, size: tuple[int, ...], align_corners: bool) -> Tensor:
    """`nn.functional.affine_grid`."""
    return _functional.affine_grid(theta, size, align_corners)


# Losses


def kl_div(input: Tensor, target: Tensor, reduction: int | str = 0, *, log_target: bool = False) -> Tensor:
    """`nn.functional.kl_div`."""
    chosen = _reduction("kl_div", reduction)
    return _functional.kl_div(input, target, reduction=chosen, log_target=log_target)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int | str = 0,
) -> Tensor:
    """`nn.functional.binary_cross_entropy_with_logits`."""
    chosen = _reduction("binary_cross_entropy_with_logits", reduction)
    return _functional.binary_cross_entropy_with_logits(input, target, weight, pos_weight=pos_weight, reduction=chosen)


def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: int | str = 0) -> Tensor:
    """`nn.functional.hinge_embedding_loss`."""
    chosen = _reduction("hinge_embedding_loss", reduction)
    return _functional.hinge_embedding_loss(input, target, margin, reduction=chosen)


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int | str = 0
) -> Tensor:
    """`nn.functional.margin_ranking_loss`."""
    chosen = _reduction("margin_ranking_loss", reduction)
    return _functional.margin_ranking_loss(input1, input2, target, margin, reduction=chosen)


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int | str = 0
) -> Tensor:
    """`nn.functional.cosine_embedding_loss`."""
    chosen = _reduction("cosine_embedding_loss", reduction)
    return _functional.cosine_embedding_loss(input1, input2, target, margin, reduction=chosen)


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int | str = 0,
) -> Tensor:
    """`nn.functional.triplet_margin_loss`."""
    chosen = _reduction("triplet_margin_loss", reduction)
    return _functional.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction=chosen)


def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int | str
) -> Tensor:
    """`nn.functional.poisson_nll_loss`."""
    chosen = _reduction("poisson_nll_loss", reduction)
    return _functional.poisson_nll_loss(input, target, log_input, full, eps=eps, reduction=chosen)


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | tuple[int, ...],
    target_lengths: Tensor | tuple[int, ...],
    blank: int = 0,
    reduction: int | str = 0,
    zero_infinity: bool = False,
) -> Tensor:
    """`nn.functional.ctc_loss`."""
    chosen = _reduction("ctc_loss", reduction)
    return _functional.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, chosen, zero_infinity)
