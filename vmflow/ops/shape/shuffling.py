"""Elements moved between channels and pixels, and channels between groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


def _check_factor(name: str, word: str, factor: int) -> None:
    if isinstance(factor, bool) or not isinstance(factor, int):
        raise TypeError(f"{name}: {word} must be an integer, not {factor!r}")
    if factor < 1:
        raise ValueError(f"{name}: {word} must be at least 1, got {factor}")


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Channels spread over pixels (W. Shi et al., Real-Time Single Image and Video Super-Resolution, 2016).

    Args:
        input: (..., channels * upscale_factor ** 2, height, width).
        upscale_factor: how many times as high and wide the image becomes.

    Returns:
        (..., channels, height * upscale_factor, width * upscale_factor).

    Raises:
        TypeError, ValueError: if the factor is no positive integer, or its square does not divide the channels.
    """
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
    """Pixels gathered in channels; undoes `pixel_shuffle`.

    Args:
        input: (..., channels, height * downscale_factor, width * downscale_factor).
        downscale_factor: how many times as low and narrow the image becomes.

    Returns:
        (..., channels * downscale_factor ** 2, height, width).

    Raises:
        TypeError, ValueError: if the factor is no positive integer, or does not divide height and width.
    """
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
    """The channels dealt out so that each group gets some of every group (X. Zhang et al., ShuffleNet, 2018).

    Args:
        input: (samples, channels, ...).
        groups: into how many the channels are divided.

    Raises:
        TypeError, ValueError: if `groups` is no positive integer, or does not divide the channels.
    """
    _check_factor("channel_shuffle", "groups", groups)
    if input.ndim < 3 or input.shape[1] % groups:
        raise ValueError(
            f"channel_shuffle: expected an input (samples, channels, length, ...) whose channels {groups} divides, got "
            f"{list(input.shape)}"
        )
    samples, channels, *size = input.shape
    return input.reshape(samples, groups, channels // groups, *size).transpose(1, 2).reshape(input.shape)
