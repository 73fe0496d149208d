"""Ops that draw random numbers: each element is the same function of its index, the seed and the offset as on the CPU.

Bits, and so uniform numbers, integers and permutations, are those of the CPU.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from vmflow import dtypes
from vmflow.kernels.choosing import Problem
from vmflow.kernels.numpy.box_muller import logarithm, normals, wide_normals
from vmflow.kernels.numpy.random import BITS, exponentials, scaled

from . import philox
from .arrays import by_arrays
from .checks import note
from .special import normal_quantile

# Kinds of numbers


def uniform_floats(xp: Any, seed: int, offset: int, count: int) -> Any:
    """Multiples of 2**-24 in [0, 1)."""
    words = philox.words(xp, seed, offset, count)
    return (words >> np.uint32(8)).astype("float32") * np.float32(2.0**-24)


def uniform_doubles(xp: Any, seed: int, offset: int, count: int) -> Any:
    """Multiples of 2**-53 in [0, 1)."""
    words = philox.words(xp, seed, offset, 2 * count)
    high, low = words[1::2].astype("float64"), (words[0::2] >> np.uint32(11)).astype("float64")
    return high * 2.0**-32 + low * 2.0**-53


def normal_floats(xp: Any, seed: int, offset: int, count: int) -> Any:
    """Normal numbers of float32."""
    return normals(philox.words(xp, seed, offset, count + count % 2), xp)[:count]


def normal_doubles(xp: Any, seed: int, offset: int, count: int) -> Any:
    """Normal numbers of float64."""
    return wide_normals(philox.words(xp, seed, offset, 2 * (count + count % 2)), xp)[:count]


def long_words(xp: Any, seed: int, offset: int, count: int) -> Any:
    """Words of 64 bits."""
    return philox.words(xp, seed, offset, 2 * count).view("uint64")


# Uniform, normal and exponential numbers


@by_arrays("rand", "randn")
def _reals(xp: Any, problem: Problem, seed: int, offset: int, out: Any) -> None:
    (output,) = problem.attributes
    real, count = output.dtype.to_real(), out.size * (2 if output.dtype.is_complex else 1)
    if problem.op == "rand":
        drawn = (uniform_doubles if real is dtypes.float64 else uniform_floats)(xp, seed, offset, count)
        bits = BITS.get(output.dtype)
        drawn = drawn if bits is None else xp.floor(drawn * 2.0**bits) * 2.0**-bits
    else:
        drawn = (normal_doubles if real is dtypes.float64 else normal_floats)(xp, seed, offset, count)
    if output.dtype.is_complex:
        if problem.op == "randn":
            drawn = drawn * real.numpy.type(math.sqrt(0.5))  # real and imaginary part share the variance of 1
        drawn = drawn.view(output.dtype.numpy)
    _put(xp, out, drawn)


def _put(xp: Any, out: Any, numbers: Any) -> None:
    xp.copyto(out, numbers.reshape(out.shape), casting="unsafe")


@by_arrays("exponential")
def _exponential(xp: Any, problem: Problem, seed: int, offset: int, out: Any) -> None:
    (output,) = problem.attributes
    if output.dtype is dtypes.float64:
        _put(xp, out, exponentials(uniform_doubles(xp, seed, offset, out.size)))
        return
    words = philox.words(xp, seed, offset, out.size).astype("float32")
    _put(xp, out, -logarithm(words * np.float32(2.0**-32) + np.float32(2.0**-33)))


# Integers


@by_arrays("randint")
def _integers(xp: Any, problem: Problem, seed: int, offset: int, out: Any) -> None:
    _, low, high = problem.attributes
    below = high - low & philox.WHOLE
    drawn = scaled(long_words(xp, seed, offset, out.size), below or philox.WHOLE + 1)
    _put(xp, out, (drawn + np.uint64(low & philox.WHOLE)).view("int64"))


@by_arrays("randperm")
def _permutation(xp: Any, problem: Problem, seed: int, offset: int, out: Any) -> None:
    count = out.size
    # A key ends in its place: so no two are equal, and the sorted keys tell the places.
    mask = np.uint64((1 << max(count - 1, 0).bit_length()) - 1)
    keys = long_words(xp, seed, offset, count) & ~mask | xp.arange(count).astype("uint64")
    _put(xp, out, (xp.sort(keys) & mask).view("int64"))


# Choices


def _no_probability(problem: Problem, number: int) -> Exception:
    return ValueError("bernoulli: a probability is not within [0, 1]")


@by_arrays("bernoulli", verify=_no_probability)
def _bernoulli(xp: Any, problem: Problem, probabilities: Any, seed: int, offset: int, out: Any, number: Any) -> None:
    note(xp, number, xp.logical_not(xp.logical_and(probabilities >= 0, probabilities <= 1)))
    drawn = uniform_doubles(xp, seed, offset, out.size).reshape(out.shape)
    xp.copyto(out, drawn < probabilities.astype("float64"), casting="unsafe")


def _no_weights(problem: Problem, number: int) -> Exception:
    return ValueError("multinomial: the weights of each row must be finite, not negative, and not all zero")


@by_arrays("multinomial", verify=_no_weights)
def _categories(xp: Any, problem: Problem, weights: Any, seed: int, offset: int, out: Any, number: Any) -> None:
    _, replacement = problem.attributes
    weights, samples = weights.astype("float64"), out.shape[-1]
    right = xp.all(xp.logical_and(xp.isfinite(weights), weights >= 0), axis=-1)
    note(xp, number, xp.logical_not(xp.logical_and(right, xp.sum(weights, axis=-1) > 0)))
    if not out.size:
        return
    if replacement:
        rows = xp.cumsum(weights, axis=-1).reshape(-1, weights.shape[-1])
        wanted = uniform_doubles(xp, seed, offset, out.size).reshape(-1, samples) * rows[:, -1:]
        _put(xp, out, _places_in_rows(xp, rows, wanted))
        return
    # The first of independent exponential times, each with its weight as rate, falls on a category with the right
    # probability; those that come later are the draws from what is left.
    drawn = exponentials(uniform_doubles(xp, seed, offset, weights.size))
    times = drawn.reshape(weights.shape) / weights
    _put(xp, out, xp.argsort(times, axis=-1, kind="stable")[..., :samples])


def _places_in_rows(xp: Any, rows: Any, wanted: Any) -> Any:
    """How many elements of each sorted row are not above each number that is wanted of it, and one less at its end."""
    length = rows.shape[1]
    found = xp.zeros(wanted.shape, "int64")
    for bit in reversed(range(length.bit_length())):
        further = found + (1 << bit)
        reached = xp.take_along_axis(rows, xp.minimum(further, length) - 1, 1)
        found = xp.where(xp.logical_and(further <= length, reached <= wanted), further, found)
    return xp.minimum(found, length - 1)


# Initial values


@by_arrays("trunc_normal_")
def _truncated(xp: Any, problem: Problem, seed: int, offset: int, out: Any) -> None:
    _, mean, std, a, b = problem.attributes
    low, high = (a - mean) / std, (b - mean) / std
    # Far above the mean, probabilities are too close to 1 to tell apart; below it they are not.
    sign = -1.0 if low > 0 else 1.0
    low, high = sorted((sign * low, sign * high))
    first, last = (0.5 * math.erfc(-limit / math.sqrt(2.0)) for limit in (low, high))
    values = normal_quantile(xp, first + (last - first) * uniform_doubles(xp, seed, offset, out.size))
    _put(xp, out, xp.clip(values * (sign * std) + mean, a, b))


@by_arrays("orthogonal_")
def _orthogonal(xp: Any, problem: Problem, seed: int, offset: int, out: Any) -> None:
    _, gain = problem.attributes
    rows = out.shape[0]
    columns = out.size // rows
    drawn = normal_doubles(xp, seed, offset, out.size).reshape(max(rows, columns), min(rows, columns))
    q, r = xp.linalg.qr(drawn)
    # The signs that QR leaves open must be fixed, or the result is not evenly distributed (Mezzadri, 2007).
    q = q * xp.where(xp.diagonal(r) < 0, -1.0, 1.0) * gain
    _put(xp, out, xp.ascontiguousarray(q if rows >= columns else q.T))
