"""What tests of the array API standard share: arrays at random, and comparison with numpy, which follows it too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import settings, strategies as st
from numpy.typing import NDArray

import vmflow as flow

Array = NDArray[Any]

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = (*SIGNED, *UNSIGNED)
FLOATS = ("float32", "float64")
COMPLEX = ("complex64", "complex128")
REAL = (*INTEGERS, *FLOATS)
NUMERIC = (*REAL, *COMPLEX)
FLOATING = (*FLOATS, *COMPLEX)
ALL = ("bool", *NUMERIC)

# The same examples in each run, so that new failures come from the change under test.
few: Callable[[Any], Any] = settings(max_examples=12, derandomize=True, database=None)
some: Callable[[Any], Any] = settings(max_examples=25, derandomize=True, database=None)

_SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 1e-40, -1e-40, 3e38, 1e-3)
_TOLERANCE = {"float32": 1e-5, "complex64": 1e-5, "float64": 1e-11, "complex128": 1e-11}

seeds = st.integers(0, 2**32 - 1)
shapes = st.lists(st.integers(0, 3), max_size=4).map(tuple)
full_shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


def made(
    shape: tuple[int, ...], dtype: str, seed: int, special: bool = False, low: float = -9, high: float = 9
) -> Array:
    """An array of numbers between two limits, or, if `special`, of special numbers and any that the dtype holds."""
    generator = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return generator.random(shape) < 0.5
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        if special:
            return generator.integers(limits.min, limits.max, shape, kind, endpoint=True)
        lowest = max(int(low), int(limits.min))
        return generator.integers(lowest, max(int(high), lowest), shape, endpoint=True).astype(kind)
    if kind.kind == "c":
        real, imag = (made(shape, "float64", seed + place, special, low, high) for place in range(2))
        with np.errstate(all="ignore"):
            return np.asarray(np.stack([real, imag], -1).astype(f"f{kind.itemsize // 2}")).view(kind)[..., 0]
    numbers = generator.uniform(low, high, shape)
    if special:
        chosen = generator.choice(np.array(_SPECIAL), shape)
        numbers = np.where(generator.random(shape) < 0.5, chosen, numbers)
    return np.asarray(numbers).astype(kind)


@st.composite
def broadcasting(draw: Any, count: int = 2) -> list[tuple[int, ...]]:
    """Shapes that broadcast with each other."""
    whole = draw(shapes)
    found = []
    for _ in range(count):
        part = whole[draw(st.integers(0, len(whole))) :]
        found.append(tuple([1 if draw(st.booleans()) and draw(st.booleans()) else size for size in part]))
    return found


@st.composite
def kinds(draw: Any, dtypes: tuple[str, ...], count: int = 2) -> tuple[str, ...]:
    """Dtypes of one kind, among those that the standard mixes."""
    first = draw(st.sampled_from(dtypes))
    kind = np.dtype(first).kind
    others = [dtype for dtype in dtypes if np.dtype(dtype).kind == kind or {kind, np.dtype(dtype).kind} <= {"i", "u"}]
    if "uint64" in others and kind in "iu":  # the standard mixes uint64 only with unsigned integers
        others = [other for other in others if other in UNSIGNED or first != "uint64"]
        others = [other for other in others if first in UNSIGNED or other != "uint64"]
    chosen = [first]
    while len(chosen) < count:
        chosen.append(draw(st.sampled_from(others)))
        if "uint64" in chosen:
            others = [other for other in others if other in UNSIGNED]
        if set(chosen) & set(SIGNED):
            others = [other for other in others if other != "uint64"]
    return tuple(chosen)


def tensor(array: Any) -> flow.Tensor:
    """A tensor of these values."""
    return flow.tensor(np.asarray(array))


def quiet(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The result of numpy, without its warnings."""
    with np.errstate(all="ignore"):
        return function(*arguments, **options)


def same(ours: Any, theirs: Any, *, signs: bool = False, tolerance: float = 1.0) -> None:
    """Assert equal values, shapes and dtypes, also inside tuples and lists.

    Args:
        ours, theirs: the results of vmflow and of numpy.
        signs: whether zeros must have the same sign.
        tolerance: a factor for the default tolerance.
    """
    if isinstance(theirs, (tuple, list)):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            same(one, other, signs=signs, tolerance=tolerance)
        return
    assert isinstance(ours, flow.Tensor)
    expected, found = np.asarray(theirs), ours.numpy()
    assert tuple(ours.shape) == expected.shape
    assert ours.dtype.numpy == expected.dtype, f"{ours.dtype} is not {expected.dtype}"
    limit = _TOLERANCE.get(ours.dtype.name, 0.0) * tolerance
    if not limit:
        np.testing.assert_array_equal(found, expected)
        return
    if expected.dtype.kind == "c":
        for part in ("real", "imag"):
            _assert_close(getattr(found, part), getattr(expected, part), limit, limit * np.abs(expected), signs)
        return
    _assert_close(found, expected, limit, 0.0, signs)


def _assert_close(found: Array, expected: Array, limit: float, size: Any, signs: bool) -> None:
    """`size` is an additional tolerance: rounding errors of a complex number's other part affect this one as well."""
    with np.errstate(all="ignore"):
        size = np.where(np.isfinite(size), size, 0)
        near = np.abs(found - expected) <= limit * np.abs(expected) + size + np.finfo(expected.dtype).tiny
        equal = near | (found == expected) | (np.isnan(found) & np.isnan(expected))
        if signs:
            zeros = (found == 0) & (expected == 0) & (np.signbit(found) != np.signbit(expected))
            equal &= ~zeros
    assert equal.all(), f"{found[~equal][:5]} where numpy has {expected[~equal][:5]}"
