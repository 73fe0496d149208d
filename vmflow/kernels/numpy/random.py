"""Ops that draw random numbers, each from a place of its own in the sequence of a seed.

The sequence is numpy's of Philox, of which any place can be reached at once.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeAlias

import numpy as np

from vmflow import dtypes
from vmflow.instructions.blob import Array, TensorMeta
from vmflow.kernels.choosing import Problem, kernel_of

from .normal_quantile import normal_quantile

_WORD: Final = (1 << 64) - 1

# draw(numpy's generator, meta of the result, *parameters, *input arrays) -> the numbers
Draw: TypeAlias = Callable[..., Array]

_local = threading.local()


def generator_at(seed: int, position: int) -> np.random.Generator:
    """numpy's generator of this thread, set to a place in a sequence; making a new one takes ten times as long."""
    found: tuple[Any, np.random.Generator, dict[str, Any]] | None = getattr(_local, "found", None)
    if found is None:
        new: Any = np.random.Philox(key=0)
        found = _local.found = (new, np.random.Generator(new), new.state)
    bits, generator, state = found
    state["state"]["key"][0] = seed
    counter = state["state"]["counter"]
    counter[0] = position & _WORD
    counter[1] = position >> 64
    state["buffer_pos"] = 4  # nothing buffered
    state["has_uint32"] = 0
    bits.state = state
    return generator


def _draws(name: str) -> Callable[[Draw], Draw]:
    """Declare the decorated function to be what draws for this op."""

    def declare(draw: Draw) -> Draw:
        @kernel_of(name)
        @wraps(draw)
        def kernel(problem: Problem, *arguments: Any) -> Array:
            *arrays, seed, position, _ = arguments
            return draw(generator_at(seed, position), *problem.attributes, *arrays)

        return draw

    return declare


@_draws("randn")
def _draw_normal(generator: np.random.Generator, output: TensorMeta) -> Array:
    if output.dtype.is_complex:
        # Real and imaginary part share the variance of 1.
        part = output.dtype.to_real().numpy
        parts = generator.standard_normal((*output.shape, 2), part) * np.sqrt(0.5, dtype=part)
        return np.ascontiguousarray(parts).view(output.dtype.numpy).reshape(output.shape)
    native: Any = np.float64 if output.dtype is dtypes.float64 else np.float32
    return np.asarray(generator.standard_normal(output.shape, native)).astype(output.dtype.numpy, copy=False)


# How many bits of a number below 1 the half precisions hold; rounding more of them could give 1.
_BITS: Final = {dtypes.float16: 11, dtypes.bfloat16: 8}


@_draws("rand")
def _draw_uniform(generator: np.random.Generator, output: TensorMeta) -> Array:
    if output.dtype.is_complex:
        part = output.dtype.to_real().numpy
        return generator.random((*output.shape, 2), part).view(output.dtype.numpy).reshape(output.shape)
    native: Any = np.float64 if output.dtype is dtypes.float64 else np.float32
    numbers: Array = np.asarray(generator.random(output.shape, native))
    bits = _BITS.get(output.dtype)
    if bits is not None:
        numbers = np.floor(numbers * 2.0**bits) * 2.0**-bits
    return np.asarray(numbers).astype(output.dtype.numpy, copy=False)


@_draws("randint")
def _draw_integers(generator: np.random.Generator, output: TensorMeta, low: int, high: int) -> Array:
    return np.asarray(generator.integers(low, high, output.shape)).astype(output.dtype.numpy)


@_draws("randperm")
def _draw_permutation(generator: np.random.Generator, output: TensorMeta) -> Array:
    return generator.permutation(output.numel).astype(output.dtype.numpy)


@_draws("bernoulli")
def _draw_bernoulli(generator: np.random.Generator, output: TensorMeta, probabilities: Array) -> Array:
    if not ((probabilities >= 0) & (probabilities <= 1)).all():
        raise ValueError("bernoulli: a probability is not within [0, 1]")
    return np.asarray(generator.random(output.shape) < probabilities).astype(output.dtype.numpy)


@_draws("multinomial")
def _draw_categories(generator: np.random.Generator, output: TensorMeta, replacement: bool, weights: Array) -> Array:
    weights = weights.astype(np.float64)
    if not (np.isfinite(weights).all() and (weights >= 0).all() and (weights.sum(-1) > 0).all()):
        raise ValueError("multinomial: the weights of each row must be finite, not negative, and not all zero")
    if not replacement:
        # The first of independent exponential times, each with its weight as rate, falls on a category with the right
        # probability; those that come later are the draws from what is left.
        with np.errstate(divide="ignore"):
            times = generator.standard_exponential(weights.shape) / weights
        return np.argsort(times, axis=-1)[..., : output.shape[-1]].astype(np.int64)
    rows = np.cumsum(weights, -1).reshape(-1, weights.shape[-1])
    numbers = generator.random((len(rows), output.shape[-1])) * rows[:, -1:]
    chosen = [np.searchsorted(row, wanted, side="right") for row, wanted in zip(rows, numbers, strict=True)]
    return np.asarray(chosen, np.int64).reshape(output.shape)


@_draws("trunc_normal_")
def _draw_truncated(
    generator: np.random.Generator, output: TensorMeta, mean: float, std: float, a: float, b: float
) -> Array:
    low, high = (a - mean) / std, (b - mean) / std
    # Far above the mean, probabilities are too close to 1 to tell apart; below it they are not.
    sign = -1.0 if low > 0 else 1.0
    low, high = sorted((sign * low, sign * high))
    first, last = (0.5 * math.erfc(-limit / math.sqrt(2.0)) for limit in (low, high))
    values = normal_quantile(first + (last - first) * generator.random(output.shape))
    return np.asarray(np.clip(values * (sign * std) + mean, a, b)).astype(output.dtype.numpy)


@_draws("orthogonal_")
def _draw_orthogonal(generator: np.random.Generator, output: TensorMeta, gain: float) -> Array:
    rows = output.shape[0]
    columns = output.numel // rows
    q, r = np.linalg.qr(generator.standard_normal((max(rows, columns), min(rows, columns))))
    # The signs that QR leaves open must be fixed, or the result is not evenly distributed (Mezzadri, 2007).
    q = q * np.where(np.diagonal(r) < 0, -1.0, 1.0) * gain
    return np.ascontiguousarray(q if rows >= columns else q.T).reshape(output.shape).astype(output.dtype.numpy)
