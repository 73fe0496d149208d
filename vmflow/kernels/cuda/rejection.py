"""Random numbers that are drawn and tried until one is accepted: counts of Poisson's distribution, and gamma numbers.

They are those of `vmflow.kernels.numpy.rejection`.  All attempts are made for every element, since only the device
knows which ones are accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from vmflow.kernels.choosing import Problem
from vmflow.kernels.numpy.box_muller import wide_logarithm, wide_normals
from vmflow.kernels.numpy.rejection import ATTEMPTS, STEPS, STEPWISE_BELOW, uniform

from . import philox
from .arrays import by_arrays
from .checks import note
from .special import lgamma


def _tried(xp: Any, attempt: Callable[[int], tuple[Any, Any]], otherwise: Any) -> Any:
    """The first number of each element that is accepted.

    Args:
        xp: the array module.
        attempt: from the number of the attempt to whether each element is accepted, and to numbers.
        otherwise: the numbers of elements of which none is.
    """
    found, left = otherwise, xp.ones(otherwise.shape, "bool")
    for number in range(ATTEMPTS):
        accepted, numbers = attempt(number)
        accepted = xp.logical_and(accepted, left)
        found = xp.where(accepted, numbers, found)
        left = xp.logical_and(left, xp.logical_not(accepted))
    return found


def _no_rate(problem: Problem, number: int) -> Exception:
    return ValueError("poisson: the rates must be finite, and not negative")


@by_arrays("poisson", verify=_no_rate)
def _poisson(xp: Any, problem: Problem, rates: Any, seed: int, offset: int, out: Any, number: Any) -> None:
    wide = rates.astype("float64").reshape(-1)
    note(xp, number, xp.logical_not(xp.logical_and(wide >= 0, xp.isfinite(wide))))
    few = wide < STEPWISE_BELOW
    seldom = _few_events(xp, xp.where(few, wide, 0.0), seed, offset)
    often = _many_events(xp, xp.where(few, STEPWISE_BELOW, wide), seed, offset)
    xp.copyto(out, xp.where(few, seldom, often).reshape(out.shape), casting="unsafe")


def _few_events(xp: Any, rates: Any, seed: int, offset: int) -> Any:
    """The inverse of the distribution function, step by step."""
    drawn = uniform(philox.blocks(xp, seed, offset, xp.arange(rates.size)))
    probability = xp.exp(-rates)
    below, found = probability, xp.zeros(rates.shape)
    for count in range(1, STEPS):
        found = found + (drawn >= below)
        probability = probability * (rates / count)
        below = below + probability
    return found


def _many_events(xp: Any, rates: Any, seed: int, offset: int) -> Any:
    """Hoermann's transformed rejection."""
    places = xp.arange(rates.size)
    b = 0.931 + 2.53 * xp.sqrt(rates)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    squeeze = 0.9277 - 3.6224 / (b - 2)
    logarithm = xp.log(rates)

    def attempt(number: int) -> tuple[Any, Any]:
        words = philox.blocks(xp, seed, offset, places, number + 1)
        u, v = uniform(words[:, :2]) - 0.5, uniform(words[:, 2:])
        size = 0.5 - xp.absolute(u)
        counts = xp.floor((2 * a / size + b) * u + rates + 0.43)
        clear = xp.logical_and(size >= 0.07, v <= squeeze)
        possible = xp.logical_and(counts >= 0, xp.logical_or(size >= 0.013, v <= size))
        weight = xp.log(v * inverse_alpha / (a / (size * size) + b))
        events = xp.maximum(counts, 0)
        density = events * logarithm - rates - lgamma(xp, events + 1)
        return xp.logical_or(clear, xp.logical_and(possible, weight <= density)), counts

    return _tried(xp, attempt, xp.floor(rates))


def _no_concentration(problem: Problem, number: int) -> Exception:
    return ValueError("gamma: the concentrations must be finite and positive")


@by_arrays("standard_gamma", verify=_no_concentration)
def _gamma(xp: Any, problem: Problem, shapes: Any, seed: int, offset: int, out: Any, number: Any) -> None:
    """By Marsaglia and Tsang's method."""
    note(xp, number, xp.logical_not(xp.logical_and(shapes > 0, xp.isfinite(shapes))))
    least = float(np.finfo("float64" if out.dtype.itemsize == 8 else "float32").tiny)
    wide = shapes.astype("float64").reshape(-1)
    small, places = wide < 1, xp.arange(wide.size)
    d = wide + small - 1 / 3
    c = 1 / xp.sqrt(9 * d)

    def attempt(number: int) -> tuple[Any, Any]:
        x = wide_normals(philox.blocks(xp, seed, offset, places, 2 * number + 1).reshape(-1), xp)[0::2]
        u = uniform(philox.blocks(xp, seed, offset, places, 2 * number + 2))
        cubed = (1 + c * x) ** 3
        positive = cubed > 0
        v = xp.where(positive, cubed, 1.0)
        return xp.logical_and(positive, xp.log(u) < 0.5 * x * x + d * (1 - v + xp.log(v))), d * v

    found = _tried(xp, attempt, d)
    # A number for a concentration below 1 is one for a concentration greater by 1, times a power of a uniform one.
    power = wide_logarithm(uniform(philox.blocks(xp, seed, offset, places))) / wide
    found = xp.maximum(found * xp.where(small, xp.exp(power), 1.0), least)
    xp.copyto(out, found.reshape(out.shape), casting="unsafe")
