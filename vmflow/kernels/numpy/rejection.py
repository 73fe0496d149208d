"""Random numbers by rejection sampling: counts of Poisson's distribution (small rates by inversion), gamma numbers.

Attempt number t for element number i has lanes of its own of block number i; an element has at most `ATTEMPTS`.  So
no element depends on the attempts for others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.kernels.choosing import Function, Problem, builds

from . import philox
from .box_muller import wide_logarithm, wide_normals
from .special import lgamma

# An attempt is accepted with a probability of 0.75 or more, so that about one element in 2**64, or fewer, is left
# without an accepted number.
ATTEMPTS: Final = 32

# Below this rate, Poisson's distribution is inverted step by step, in at most `STEPS` steps: larger numbers have a
# probability of less than 2**-53.
STEPWISE_BELOW: Final = 10.0
STEPS: Final = 64


def uniform(words: Array) -> Array:
    """Return uniform float64 numbers in (0, 1], each from the first two words of a row."""
    return words[..., 1] * 2.0**-32 + (words[..., 0] >> np.uint32(11)) * 2.0**-53 + 2.0**-54


def _tried(count: int, attempt: Callable[[Array, int], tuple[Array, Array]], otherwise: Array) -> Array:
    """Return the first accepted number of each element.

    Args:
        attempt: takes positions of elements and the attempt's number, returns whether each is accepted, and numbers.
        otherwise: the numbers for elements without an accepted number.
    """
    found = otherwise.copy()
    left = np.arange(count)
    for number in range(ATTEMPTS):
        if not left.size:
            break
        accepted, numbers = attempt(left, number)
        found[left[accepted]] = numbers[accepted]
        left = left[~accepted]
    return found


@builds("poisson")
def _poisson(problem: Problem) -> Function:
    (output,) = problem.attributes

    def kernel(rates: Array, seed: int, offset: int, out: Array | None) -> Array:
        wide = rates.astype(np.float64).reshape(-1)
        if not ((wide >= 0) & np.isfinite(wide)).all():
            raise ValueError("poisson: the rates must be finite, and not negative")
        found = np.empty(wide.size)
        few = wide < STEPWISE_BELOW
        for places, method in ((np.flatnonzero(few), _few_events), (np.flatnonzero(~few), _many_events)):
            if places.size:
                found[places] = method(wide[places], seed, offset, places)
        return found.reshape(output.shape).astype(output.dtype.numpy)

    return kernel


def _few_events(rates: Array, seed: int, offset: int, places: Array) -> Array:
    """Draw Poisson counts of small rates: invert the distribution function, step by step."""
    drawn = uniform(philox.blocks(seed, offset, places))
    probability = np.exp(-rates)
    below = probability.copy()
    found = np.zeros(rates.size)
    for count in range(1, STEPS):
        more = drawn >= below
        if not more.any():
            break
        found += more
        probability *= rates / count
        below += probability
    return found


def _many_events(rates: Array, seed: int, offset: int, places: Array) -> Array:
    """Draw Poisson counts of large rates by the algorithm PTRS.

    W. Hoermann, The transformed rejection method for generating Poisson random variables, 1993.
    """
    b = 0.931 + 2.53 * np.sqrt(rates)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    squeeze = 0.9277 - 3.6224 / (b - 2)
    logarithm = np.log(rates)

    def attempt(left: Array, number: int) -> tuple[Array, Array]:
        words = philox.blocks(seed, offset, places[left], number + 1)
        u, v = uniform(words[:, :2]) - 0.5, uniform(words[:, 2:])
        size = 0.5 - np.abs(u)
        counts = np.floor((2 * a[left] / size + b[left]) * u + rates[left] + 0.43)
        clear = (size >= 0.07) & (v <= squeeze[left])
        possible = (counts >= 0) & ((size >= 0.013) | (v <= size))
        weight = np.log(v * inverse_alpha[left] / (a[left] / (size * size) + b[left]))
        events = np.maximum(counts, 0)
        density = events * logarithm[left] - rates[left] - lgamma(events + 1, None)
        return clear | (possible & (weight <= density)), counts

    return _tried(rates.size, attempt, np.floor(rates))


@builds("standard_gamma")
def _gamma(problem: Problem) -> Function:
    """Build the kernel.  G. Marsaglia and W. Tsang, A simple method for generating gamma variables, 2000."""
    (output,) = problem.attributes
    least: Any = np.finfo(np.float64).tiny if output.dtype.itemsize == 8 else np.finfo(np.float32).tiny

    def kernel(shapes: Array, seed: int, offset: int, out: Array | None) -> Array:
        wide = shapes.astype(np.float64).reshape(-1)
        if not ((wide > 0) & np.isfinite(wide)).all():
            raise ValueError("gamma: the concentrations must be finite and positive")
        small = wide < 1
        d = wide + small - 1 / 3
        c = 1 / np.sqrt(9 * d)

        def attempt(left: Array, number: int) -> tuple[Array, Array]:
            x = wide_normals(philox.blocks(seed, offset, left, 2 * number + 1).reshape(-1))[0::2]
            u = uniform(philox.blocks(seed, offset, left, 2 * number + 2))
            cubed = (1 + c[left] * x) ** 3
            positive = cubed > 0
            v = np.where(positive, cubed, 1.0)
            return positive & (np.log(u) < 0.5 * x * x + d[left] * (1 - v + np.log(v))), d[left] * v

        found = _tried(wide.size, attempt, d)
        # A gamma number for a concentration below 1 is one for a concentration greater by 1, times a power of a uniform
        # number.
        power = wide_logarithm(uniform(philox.blocks(seed, offset, np.arange(wide.size)))) / wide
        found = np.maximum(found * np.where(small, np.exp(power), 1.0), least)
        return found.reshape(output.shape).astype(output.dtype.numpy)

    return kernel
