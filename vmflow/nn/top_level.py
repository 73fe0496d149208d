"""Functions of `nn.functional` that PyTorch has in `torch`, too, but with other arguments or results.

`vmflow` has them as PyTorch does: ``vmflow.batch_norm`` takes the weight and the bias before the running statistics.
Functions that are the same in `torch` and `nn.functional` are not in this module.

The losses take the reduction as a number, 0 for none, 1 for the mean, 2 for the sum, or by its name.  The default is 0,
but `poisson_nll_loss` requires the argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from vmflow.arguments import whole_number

from . import functional as _functional

if TYPE_CHECKING:
    from vmflow.tensors import Tensor

_REDUCTIONS: Final = ("none", "mean", "sum")


def _reduction(name: str, reduction: int | str) -> str:
    if isinstance(reduction, str):
        if reduction in _REDUCTIONS:
            return reduction
    else:
        number = whole_number(name, "the reduction", reduction)
        if 0 <= number < len(_REDUCTIONS):
            return _REDUCTIONS[number]
    raise ValueError(f"{name}: the reduction is 0 for none, 1 for the mean or 2 for the sum, not {reduction!r}")


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
    """`nn.functional.batch_norm`, with the weight and the bias before the running statistics.

    Args:
        input: (N, C, *); the result has the same shape.
        weight, bias, running_mean, running_var: (C,), or None.
        training, momentum, eps: as for `nn.functional.batch_norm`.
        cudnn_enabled: has no effect.

    Raises:
        TypeError: for anything else than floating-point tensors.
        ValueError: for shapes that do not fit; without running statistics unless `training`; with at most one value in
            each channel if `training`.

    Example:
        >>> flow.batch_norm(flow.tensor([[1.0], [3.0]]), None, None, None, None, True, 0.1, 1e-5, False)
        tensor([[-1.0000],
                [ 1.0000]])
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
    """`nn.functional.instance_norm`, with the weight and the bias before the running statistics.

    Args:
        input: (N, C, L, *); the result has the same shape.
        weight, bias, running_mean, running_var: (C,), or None.
        use_input_stats, momentum, eps: as for `nn.functional.instance_norm`.
        cudnn_enabled: has no effect.

    Raises:
        TypeError: for anything else than floating-point tensors.
        ValueError: for shapes that do not fit; without running statistics unless `use_input_stats`; with at most one
            element in each image if `use_input_stats`.

    Example:
        >>> flow.instance_norm(flow.tensor([[[1.0, 3.0]]]), None, None, None, None, True, 0.1, 1e-5, False)
        tensor([[[-1.0000,  1.0000]]])
    """
    return _functional.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


def embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    """`nn.functional.embedding`, with the table as the first argument.

    Args:
        weight: (rows, features).
        indices: integers of any shape (*); the result is (*, features).
        padding_idx: the row that gets no gradient; a negative number stands for no row, not for one from the end.
        scale_grad_by_freq, sparse: as in `nn.functional.embedding`.

    Raises:
        TypeError: for indices that are no integers.
        ValueError: if the table is no matrix, or has no row `padding_idx`; for sparse gradients.
        IndexError: when the result is read, for an index that names no row.

    Example:
        >>> flow.embedding(flow.tensor([[1.0, 2.0], [3.0, 4.0]]), flow.tensor([1, 0]))
        tensor([[3., 4.],
                [1., 2.]])
    """
    padding = None if padding_idx < 0 else padding_idx
    return _functional.embedding(
        indices, weight, padding_idx=padding, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse
    )


def dropout(input: Tensor, p: float = 0.5, train: bool = True) -> Tensor:
    """`nn.functional.dropout` of a tensor of any shape.

    Raises:
        TypeError: for a `p` that is no number, or anything else than a tensor; with `train`, for integers and bools, if
            `p` is neither 0 nor 1.
        ValueError: if `p` is outside [0, 1].

    Example:
        >>> flow.dropout(flow.ones(3), 0.5, train=False)
        tensor([1., 1., 1.])
    """
    return _functional.dropout(input, p, train)


def dropout_(input: Tensor, p: float = 0.5, train: bool = True) -> Tensor:
    """In-place `dropout`."""
    return _functional.dropout(input, p, train, inplace=True)


def alpha_dropout(input: Tensor, p: float = 0.5, train: bool = False) -> Tensor:
    """`nn.functional.alpha_dropout` of a tensor of any shape.

    Raises:
        TypeError: for a `p` that is no number, or anything else than a floating-point tensor.
        ValueError: if `p` is outside [0, 1].

    Example:
        >>> flow.alpha_dropout(flow.ones(3), 0.5, train=False)
        tensor([1., 1., 1.])
    """
    return _functional.alpha_dropout(input, p, train)


def alpha_dropout_(input: Tensor, p: float = 0.5, train: bool = False) -> Tensor:
    """In-place `alpha_dropout`."""
    return _functional.alpha_dropout(input, p, train, inplace=True)


def feature_alpha_dropout(input: Tensor, p: float = 0.5, train: bool = False) -> Tensor:
    """`nn.functional.feature_alpha_dropout` of whole channels of a tensor (N, C, *).

    Raises:
        TypeError: for a `p` that is no number, or anything else than a floating-point tensor.
        ValueError: if `p` is outside [0, 1], or for fewer than two dimensions.

    Example:
        >>> flow.feature_alpha_dropout(flow.ones(2, 2), 0.5, train=False)
        tensor([[1., 1.],
                [1., 1.]])
    """
    return _functional.feature_alpha_dropout(input, p, train)


def feature_alpha_dropout_(input: Tensor, p: float = 0.5, train: bool = False) -> Tensor:
    """In-place `feature_alpha_dropout`."""
    return _functional.feature_alpha_dropout(input, p, train, inplace=True)


def adaptive_max_pool1d(input: Tensor, output_size: int | tuple[int]) -> tuple[Tensor, Tensor]:
    """`nn.functional.adaptive_max_pool1d` with indices: (N, C, L) to two tensors (N, C, output_size), or without N.

    Raises:
        TypeError: for a size that is no integer, or anything else than a tensor of real numbers.
        ValueError: for a size below 1, another number of dimensions, or empty samples.

    Example:
        >>> flow.adaptive_max_pool1d(flow.tensor([[1.0, 3.0, 5.0, 4.0]]), 2)
        (tensor([[3., 5.]]), tensor([[1, 2]]))
    """
    pooled: tuple[Tensor, Tensor] = _functional.adaptive_max_pool1d(input, output_size, return_indices=True)
    return pooled


def affine_grid_generator(theta: Tensor, size: tuple[int, ...], align_corners: bool) -> Tensor:
    """`nn.functional.affine_grid`: maps matrices (N, 2, 3) to a grid (N, H, W, 2), or (N, 3, 4) to (N, D, H, W, 3).

    Raises:
        TypeError: for a size that is no integer, or anything else than a floating-point tensor.
        ValueError: if `theta` and `size` do not fit together, or a size is below 1.

    Example:
        >>> flow.affine_grid_generator(flow.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]), (1, 1, 1, 2), True)[0, 0]
        tensor([[-1.,  0.],
                [ 1.,  0.]])
    """
    return _functional.affine_grid(theta, size, align_corners)


# Losses


def kl_div(input: Tensor, target: Tensor, reduction: int | str = 0, *, log_target: bool = False) -> Tensor:
    """`nn.functional.kl_div` of two tensors of one shape.

    Raises:
        TypeError: for a reduction of another type, or anything else than floating-point tensors.
        ValueError: for shapes that differ, or another reduction.

    Example:
        >>> flow.kl_div(flow.tensor([0.5, 0.5]).log(), flow.tensor([1.0, 0.0]))
        tensor([0.6931, 0.0000])
    """
    chosen = _reduction("kl_div", reduction)
    return _functional.kl_div(input, target, reduction=chosen, log_target=log_target)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int | str = 0,
) -> Tensor:
    """`nn.functional.binary_cross_entropy_with_logits` of two tensors of one shape, to which the weights are broadcast.

    Raises:
        TypeError: for a reduction of another type, or anything else than floating-point tensors.
        ValueError: for shapes that do not fit, or another reduction.

    Example:
        >>> flow.binary_cross_entropy_with_logits(flow.tensor([0.0, 1000.0]), flow.tensor([1.0, 1.0]))
        tensor([0.6931, 0.0000])
    """
    chosen = _reduction("binary_cross_entropy_with_logits", reduction)
    return _functional.binary_cross_entropy_with_logits(input, target, weight, pos_weight=pos_weight, reduction=chosen)


def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: int | str = 0) -> Tensor:
    """`nn.functional.hinge_embedding_loss` of two tensors of one shape.

    Raises:
        TypeError: for a reduction of another type, or anything else than tensors.
        ValueError: for shapes that differ, or another reduction.

    Example:
        >>> flow.hinge_embedding_loss(flow.tensor([0.25, 0.25]), flow.tensor([1, -1]))
        tensor([0.2500, 0.7500])
    """
    chosen = _reduction("hinge_embedding_loss", reduction)
    return _functional.hinge_embedding_loss(input, target, margin, reduction=chosen)


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int | str = 0
) -> Tensor:
    """`nn.functional.margin_ranking_loss` of three tensors of equally many dimensions, broadcast together.

    Raises:
        TypeError: for a reduction of another type, or anything else than tensors.
        ValueError: for shapes that do not fit, or another reduction.

    Example:
        >>> flow.margin_ranking_loss(flow.tensor([1.0, 2.0]), flow.tensor([3.0, 1.0]), flow.tensor([1, 1]))
        tensor([2., 0.])
    """
    chosen = _reduction("margin_ranking_loss", reduction)
    return _functional.margin_ranking_loss(input1, input2, target, margin, reduction=chosen)


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int | str = 0
) -> Tensor:
    """`nn.functional.cosine_embedding_loss` of inputs (N, D) and targets (N,), or (D,) and a scalar.

    Raises:
        TypeError: for a reduction of another type, or anything else than tensors.
        ValueError: for other shapes, or another reduction.

    Example:
        >>> vectors = flow.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> flow.cosine_embedding_loss(vectors, vectors, flow.tensor([1, -1]))
        tensor([0., 1.])
    """
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
    """`nn.functional.triplet_margin_loss` of three tensors (N, D), or (D,).

    Raises:
        TypeError: for a reduction of another type, or anything else than tensors.
        ValueError: for shapes that do not fit, a margin that is not positive, or another reduction.

    Example:
        >>> anchor, positive, negative = flow.zeros(1, 2), flow.tensor([[3.0, 4.0]]), flow.tensor([[0.0, 2.0]])
        >>> flow.triplet_margin_loss(anchor, positive, negative, eps=0.0)
        tensor([4.])
    """
    chosen = _reduction("triplet_margin_loss", reduction)
    return _functional.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction=chosen)


def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int | str
) -> Tensor:
    """`nn.functional.poisson_nll_loss` of two tensors of one shape.

    Raises:
        TypeError: for a reduction of another type, or anything else than tensors.
        ValueError: for shapes that differ, or another reduction.

    Example:
        >>> flow.poisson_nll_loss(flow.tensor([0.0, 0.0]), flow.tensor([1.0, 3.0]), True, False, 1e-8, 0)
        tensor([1., 1.])
    """
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
    """`nn.functional.ctc_loss` of log-probabilities (T, N, C) or (T, C), targets (N, S) or joined, and lengths (N,).

    Raises:
        TypeError: for targets that are no integers, other log-probabilities than floating-point, or a reduction of
            another type.
        ValueError: for shapes that do not fit, a blank that is no class, or another reduction; when the result is read,
            for lengths out of range.
        IndexError: when the result is read, for a class index out of range.

    Example:
        >>> flow.ctc_loss(flow.full((3, 1, 2), 0.5).log(), flow.tensor([[1]]), [3], [1])
        tensor([0.2877])
    """
    chosen = _reduction("ctc_loss", reduction)
    return _functional.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, chosen, zero_infinity)
