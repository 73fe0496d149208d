"""`pixel_shuffle` and `pixel_unshuffle` move elements between channels and pixels; `channel_shuffle` mixes groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmflow.arguments import whole_number
from vmflow.operands import check_tensors

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


def _check_factor(name: str, word: str, factor: int) -> None:
    if whole_number(name, word, factor) < 1:
        raise ValueError(f"{name}: {word} must be at least 1, got {factor}")


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Rearrange channels as pixels (W. Shi et al., Real-Time Single Image and Video Super-Resolution, 2016).

    Args:
        input: (..., channels * upscale_factor ** 2, height, width).
        upscale_factor: the factor by which height and width grow.

    Returns:
        (..., channels, height * upscale_factor, width * upscale_factor).

    Raises:
        TypeError: if the factor is no integer.
        ValueError: if the factor is not positive, its square does not divide the channels, or dimensions are missing.

    Example:
        >>> flow.pixel_shuffle(flow.arange(4).reshape(4, 1, 1), 2)
        tensor([[[0, 1],
                 [2, 3]]])
    """
    check_tensors("pixel_shuffle", input)
    _check_factor("pixel_shuffle", "upscale_factor", upscale_factor)
    factor = upscale_factor
    if input.ndim < 3 or input.shape[-3] % factor**2:
        raise ValueError(
            f"pixel_shuffle: expected an input (..., channels, height, width) whose channels {factor**2} divides, got "
            f"{list(input.shape)}"
        )
    *lead, channels, height, width = input.shape
    rank, kept = len(lead), channels // factor**2
    split = input.reshape(*lead, kept, factor, factor, height, width)
    moved = split.permute(*range(rank + 1), rank + 3, rank + 1, rank + 4, rank + 2)
    return moved.reshape(*lead, kept, height * factor, width * factor)


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """Rearrange pixels as channels; the inverse of `pixel_shuffle`.

    Args:
        input: (..., channels, height * downscale_factor, width * downscale_factor).
        downscale_factor: the factor by which height and width shrink.

    Returns:
        (..., channels * downscale_factor ** 2, height, width).

    Raises:
        TypeError: if the factor is no integer.
        ValueError: if the factor is not positive, does not divide height and width, or dimensions are missing.

    Example:
        >>> flow.pixel_unshuffle(flow.arange(4).reshape(1, 2, 2), 2).flatten()
        tensor([0, 1, 2, 3])
    """
    check_tensors("pixel_unshuffle", input)
    _check_factor("pixel_unshuffle", "downscale_factor", downscale_factor)
    factor = downscale_factor
    if input.ndim < 3 or input.shape[-2] % factor or input.shape[-1] % factor:
        raise ValueError(
            f"pixel_unshuffle: expected an input (..., channels, height, width) whose height and width {factor} "
            f"divides, got {list(input.shape)}"
        )
    *lead, channels, height, width = input.shape
    rank = len(lead)
    split = input.reshape(*lead, channels, height // factor, factor, width // factor, factor)
    moved = split.permute(*range(rank + 1), rank + 2, rank + 4, rank + 1, rank + 3)
    return moved.reshape(*lead, channels * factor**2, height // factor, width // factor)


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Reorder channels: the first of each group, then the second of each, ... (X. Zhang et al., ShuffleNet, 2018).

    Args:
        input: a tensor of shape (samples, channels, length, ...).
        groups: the number of groups into which the channels are divided.

    Raises:
        TypeError: if `groups` is no integer.
        ValueError: if `groups` is not positive or does not divide the channels, or `input` has less than 3 dimensions.

    Example:
        >>> flow.channel_shuffle(flow.arange(4).reshape(1, 4, 1), 2).flatten()
        tensor([0, 2, 1, 3])
    """
    check_tensors("channel_shuffle", input)
    _check_factor("channel_shuffle", "groups", groups)
    if input.ndim < 3 or input.shape[1] % groups:
        raise ValueError(
            f"channel_shuffle: expected an input (samples, channels, length, ...) whose channels {groups} divides, got "
            f"{list(input.shape)}"
        )
    samples, channels, *size = input.shape
    return input.reshape(samples, groups, channels // groups, *size).transpose(1, 2).reshape(input.shape)
