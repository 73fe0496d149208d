"""Functions of layers that PyTorch has in `torch`, too, but with other arguments or results than in `nn.functional`.

`vmflow` has them as PyTorch does: ``vmflow.batch_norm`` takes the weight and the bias first.  Functions that are alike
in both places are those of `nn.functional`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import functional as _functional

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


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
