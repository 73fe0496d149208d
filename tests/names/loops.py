"""Oracles that sample images pixel by pixel, for functions that neither PyTorch nor numpy has."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np

Array = Any


def _between(image: Array, y: float, x: float) -> Array:
    """The value of each channel in between four pixels; outside of the image they are 0."""
    total = np.zeros(image.shape[0])
    low_y, low_x = math.floor(y), math.floor(x)
    for row, column in product((low_y, low_y + 1), (low_x, low_x + 1)):
        if 0 <= row < image.shape[1] and 0 <= column < image.shape[2]:
            total += image[:, row, column] * (1 - abs(y - row)) * (1 - abs(x - column))
    return total


def roi_align(
    images: Array, regions: Array, scale: float, rows: int, columns: int, ratio: int = -1, aligned: bool = False
) -> Array:
    """The mean of the samples of each part of each region, one by one."""
    height, width = images.shape[2:]
    result = np.zeros((len(regions), images.shape[1], rows, columns))
    for number, (sample, *corners) in enumerate(regions):
        left, top, right, bottom = [corner * scale - (0.5 if aligned else 0) for corner in corners]
        tall, wide = bottom - top, right - left
        if not aligned:
            tall, wide = max(tall, 1), max(wide, 1)
        down = ratio if ratio > 0 else math.ceil(tall / rows)
        across = ratio if ratio > 0 else math.ceil(wide / columns)
        for row, column in product(range(rows), range(columns)):
            for one, other in product(range(down), range(across)):
                y = top + (row + (one + 0.5) / down) * tall / rows
                x = left + (column + (other + 0.5) / across) * wide / columns
                if -1 <= y <= height and -1 <= x <= width:
                    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
                    result[number, :, row, column] += _between(images[int(sample)], y, x) / (down * across)
    return result


def deform_conv2d(
    images: Array,
    offset: Array,
    weight: Array,
    bias: Array | None = None,
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (0, 0),
    dilation: tuple[int, int] = (1, 1),
    mask: Array | None = None,
) -> Array:
    """The sum over all taps and channels of a window, one by one."""
    samples, channels, _, _ = images.shape
    filters, depth, tall, wide = weight.shape
    rows, columns = offset.shape[2:]
    moved = offset.reshape(samples, -1, tall, wide, 2, rows, columns)
    own = moved.shape[1]
    weights = (
        np.ones_like(moved[:, :, :, :, 0]) if mask is None else mask.reshape(samples, own, tall, wide, rows, columns)
    )
    result = np.zeros((samples, filters, rows, columns))
    for sample, row, column, one, other, group in product(
        range(samples), range(rows), range(columns), range(tall), range(wide), range(own)
    ):
        down, across = moved[sample, group, one, other, :, row, column]
        y = row * stride[0] - padding[0] + one * dilation[0] + down
        x = column * stride[1] - padding[1] + other * dilation[1] + across
        first = group * channels // own
        values = _between(images[sample, first : first + channels // own], y, x)
        for place, value in enumerate(values * weights[sample, group, one, other, row, column], first):
            of_weight = place // depth
            share = filters // (channels // depth)
            chosen = slice(of_weight * share, (of_weight + 1) * share)
            result[sample, chosen, row, column] += weight[chosen, place % depth, one, other] * value
    return result if bias is None else result + bias.reshape(-1, 1, 1)
