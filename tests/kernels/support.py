"""Numbers that are hard to get right, and comparing results of C with those of numpy."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vmflow.kernels.native.functions import text_of
from vmflow.kernels.native.loading import LOADER

Array = NDArray[Any]


def helpers() -> int:
    """How many threads help C's kernels now."""
    library = LOADER.request(text_of("team.c"), apart=True)
    if library is None or library.loaded is None:
        return 0
    found = library.loaded.team_helpers
    found.restype = ctypes.c_int64
    return int(found())


HARD = (
    *(0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 2.0, -1.5, 2.5, 1e-40, -1e-40, 1e-45, 1.1754944e-38),
    *(3e38, -3e38, 88.7, 88.8, -87.4, -103.9, -104.0, 1e-4, -1e-4, 1.0940218, 17.0, -17.5, 1e10, -1e10),
)


def hard_numbers(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> Array:
    """Random ones of all sizes, and among them those of `HARD`; whole ones of the dtype's range for integers."""
    random = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return random.integers(0, 2, shape).astype(bool)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return random.integers(limits.min, limits.max, shape, kind, endpoint=True)
    values = random.standard_normal(shape) * 10.0 ** random.integers(-4, 3, shape)
    values = np.where(random.random(shape) < 0.3, random.choice(HARD, shape), values)
    with np.errstate(over="ignore"):
        return np.asarray(values.astype(kind))


def in_both_ways(compute: Callable[[], Any]) -> tuple[Any, Any]:
    """numpy's result and C's; within the fixture `compiled`."""
    LOADER.mode = "off"
    expected = compute()
    LOADER.mode = "wait"
    return expected, compute()


def same_bits(one: Array, other: Array) -> bool:
    """Whether they are equal to the bit; of numbers that are none it does not matter which bits they have.

    Nor which zero: numpy's own extrema return either, depending on where in an array they are.
    """
    return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")


# Units in the last place by which results may differ from numpy's, whose exp is wrong by two or three itself.
INEXACT = dict.fromkeys(("exp", "expm1", "gelu_gradient", "log", "log1p", "sigmoid", "silu", "tanh"), 4)

# Sums may be close to 0, for which these units mean nothing.
SUMS = frozenset({"gelu_gradient"})


def check_alike(name: str, expected: Array, found: Array) -> None:
    """Whether an op's results are numpy's, as nearly as is said of it."""
    if name in SUMS:
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6, err_msg=name)
    elif name in INEXACT:
        assert steps_apart(expected, found) <= INEXACT[name], name
    else:
        assert same_bits(expected, found), name


def steps_apart(one: Array, other: Array) -> int:
    """By how many units in the last place they differ at most, where both are numbers; the others must be equal."""
    numbers = np.isfinite(one) & np.isfinite(other)
    np.testing.assert_array_equal(one[~numbers], other[~numbers])
    word = np.dtype(f"i{one.itemsize}")
    ordered = [value[numbers].view(word).astype(np.int64) for value in (one, other)]
    ordered = [np.where(value < 0, np.iinfo(word).min - value, value) for value in ordered]
    return int(np.abs(ordered[0] - ordered[1]).max(initial=0))
