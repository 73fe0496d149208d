"""Dropout of whole channels, and dropout for self-normalizing networks."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from vmflow import random
from vmflow.arguments import flag
from vmflow.instructions import origin
from vmflow.operands import check_tensors
from vmflow.ops.elementwise.piecewise import SELU_ALPHA, SELU_SCALE
from vmflow.ops.elementwise.selection import where

from .dropout import all_dropped, check_probability, dropout
from .layer_operands import check_floating

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Set each channel of (N, C, L), or (C, L), to zero with probability `p`, else divide it by ``1 - p``.

    Infinities and nan in a dropped channel become nan.

    Args:
        input: of the dtypes of `dropout`.
        p: probability, within [0, 1].
        training: whether to drop channels; if not, `input` is returned.
        inplace: whether to write the result into `input` and return `input`.

    Raises:
        TypeError: as `dropout`.
        ValueError: if the probability is not within [0, 1], or for another number of dimensions.

    Example:
        >>> flow.nn.functional.dropout1d(flow.ones(2, 3), 1.0)
        tensor([[0., 0., 0.],
                [0., 0., 0.]])
    """
    check_tensors("dropout1d", input)
    if input.ndim not in (2, 3):
        raise ValueError(f"dropout1d: expected 2 or 3 dimensions, got shape {list(input.shape)}")
    return _by_channel("dropout1d", input, p, training, inplace, input.ndim - 1)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Set each channel of (N, C, H, W) to zero with probability `p`, else divide it by ``1 - p``; see `dropout1d`.

    Input of three dimensions is taken as (N, C, L), as in PyTorch; input of two, or of five or more, is taken as
    (N, C, ...), with a warning.

    Raises:
        TypeError: as `dropout1d`.
        ValueError: if the probability is not within [0, 1], or for fewer than two dimensions.

    Example:
        >>> flow.nn.functional.dropout2d(flow.ones(1, 1, 1, 2), 1.0)
        tensor([[[[0., 0.]]]])
    """
    check_tensors("dropout2d", input)
    if input.ndim < 2:
        raise ValueError(f"dropout2d: expected at least two dimensions, got shape {list(input.shape)}")
    _warn_unless("dropout2d", input, (3, 4))
    return _by_channel("dropout2d", input, p, training, inplace, 2)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Set each channel of (N, C, D, H, W), or without N, to zero with probability `p`; see `dropout1d`.

    Input of other numbers of dimensions is taken as (C, ...), with a warning.

    Raises:
        TypeError: as `dropout1d`.
        ValueError: if the probability is not within [0, 1], or, in training with `p` above 0, for a 0-d input.

    Example:
        >>> flow.nn.functional.dropout3d(flow.ones(1, 1, 1, 2), 1.0)
        tensor([[[[0., 0.]]]])
    """
    _warn_unless("dropout3d", input, (4, 5))
    return _by_channel("dropout3d", input, p, training, inplace, 2 if input.ndim == 5 else 1)


def _warn_unless(name: str, input: Tensor, expected: tuple[int, int]) -> None:
    check_tensors(name, input)
    if input.ndim not in expected:
        warnings.warn(
            f"{name}: expected {expected[0]} or {expected[1]} dimensions, got shape {list(input.shape)}; use "
            "dropout for zeros of single elements",
            stacklevel=origin.depth(),
        )


def _by_channel(name: str, input: Tensor, p: float, training: bool, inplace: bool, leading: int) -> Tensor:
    """Drop whole channels of `input`, whose first `leading` dimensions enumerate the channels of all samples."""
    check_probability(name, p)
    if not flag(name, "training", training) or p == 0:
        return input
    if input.ndim < leading:
        raise ValueError(f"{name}: expected at least {leading} dimensions, got shape {list(input.shape)}")
    kept = _one_per_channel(input, leading)
    result = input * dropout(kept, p)
    return input.copy_(result) if inplace else result


def _one_per_channel(input: Tensor, leading: int) -> Tensor:
    shape = tuple(input.shape[:leading]) + (1,) * (input.ndim - leading)
    return input.new_ones(shape)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout that keeps the mean and variance of the results of `selu` (G. Klambauer et al., 2017).

    Dropped elements become the lowest value of `selu`; then all elements are scaled and shifted.  If `p` is 1,
    finite elements become 0, others nan.

    Args:
        input: floating-point, of any shape.
        p: probability, within [0, 1].
        training: whether to drop elements; if not, `input` is returned.
        inplace: whether to write the result into `input` and return `input`.

    Raises:
        TypeError: if the dtype is not floating-point, `p` is no number, or `training` no bool.
        ValueError: if the probability is not within [0, 1].

    Example:
        >>> flow.nn.functional.alpha_dropout(flow.tensor([1.0, 2.0]), 0.5, training=False)
        tensor([1., 2.])
    """
    check_tensors("alpha_dropout", input)
    return _alpha("alpha_dropout", input, p, training, inplace, input.ndim)


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """`alpha_dropout` of whole channels of (N, C, ...).

    Raises:
        TypeError: as `alpha_dropout`.
        ValueError: if the probability is not within [0, 1], or for fewer than two dimensions.

    Example:
        >>> flow.nn.functional.feature_alpha_dropout(flow.tensor([[1.0, 2.0]]), 0.5, training=False)
        tensor([[1., 2.]])
    """
    check_tensors("feature_alpha_dropout", input)
    if input.ndim < 2:
        raise ValueError(f"feature_alpha_dropout: expected (N, C, ...), got shape {list(input.shape)}")
    return _alpha("feature_alpha_dropout", input, p, training, inplace, 2)


def _alpha(name: str, input: Tensor, p: float, training: bool, inplace: bool, leading: int) -> Tensor:
    check_probability(name, p)
    check_floating(name, input._blob.meta)
    if not flag(name, "training", training) or p == 0:
        return input
    if p == 1:
        result = all_dropped(input)
    else:
        lowest = -SELU_ALPHA * SELU_SCALE
        scale = ((1 - p) * (1 + p * lowest**2)) ** -0.5
        shift = -scale * lowest * p
        kept = random.bernoulli(_one_per_channel(input, leading), 1 - p) != 0
        result = where(kept, input * scale + shift, lowest * scale + shift)
    return input.copy_(result) if inplace else result
