"""Ops that draw random numbers from a range of a generator's blocks; see `philox`.

A block has 128 random bits.  Each drawn number is made of bits at a place that its index gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from vmflow import dtypes
from vmflow.instructions.blob import Array, TensorMeta
from vmflow.kernels import intra_op
from vmflow.kernels.choosing import Function, Problem, builds
from vmflow.kernels.native.random import DTYPES, drawing, fill, sort_keys

from . import philox
from .box_muller import logarithm, normals, wide_logarithm, wide_normals
from .normal_quantile import normal_quantile

# The most numbers that numpy computes together, so that intermediate results fit into a core's cache.
_TOGETHER: Final = 1 << 14

_HALF: Final = np.uint64(32)
_LOW: Final = np.uint64(0xFFFFFFFF)


class _Kind(NamedTuple):
    """The computation by numpy of one of the kinds of numbers in `DTYPES`.

    Attributes:
        function: (seed, offset, first, count, *parameters) -> the numbers.
        work: the work for one number, see `intra_op.LEAST`.
    """

    function: Callable[..., Array]
    work: float


def _words(seed: int, offset: int, first: int, count: int, lane: int) -> Array:
    return philox.words(seed, offset, first, count, lane)


def _uniform_floats(seed: int, offset: int, first: int, count: int, lane: int) -> Array:
    """Draw uniform float32 numbers in [0, 1), multiples of 2**-24."""
    return (philox.words(seed, offset, first, count, lane) >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def _uniform_doubles(seed: int, offset: int, first: int, count: int, lane: int) -> Array:
    """Draw uniform float64 numbers in [0, 1), multiples of 2**-53."""
    words = philox.words(seed, offset, 2 * first, 2 * count, lane)
    return words[1::2] * 2.0**-32 + (words[0::2] >> np.uint32(11)) * 2.0**-53


def _normal_floats(seed: int, offset: int, first: int, count: int, lane: int) -> Array:
    skipped = first % 2
    words = philox.words(seed, offset, first - skipped, skipped + count + (skipped + count) % 2, lane)
    return normals(words)[skipped : skipped + count]


def _normal_doubles(seed: int, offset: int, first: int, count: int, lane: int) -> Array:
    skipped = first % 2
    words = philox.words(seed, offset, 2 * (first - skipped), 2 * (skipped + count + (skipped + count) % 2), lane)
    return wide_normals(words)[skipped : skipped + count]


def _kept(seed: int, offset: int, first: int, count: int, limit: int, rest: float) -> Array:
    """Draw whether dropout keeps elements; see `kept_elements`, and `random_kept` in random.c."""
    skipped = first % 2
    words = philox.words(seed, offset, first // 2, (skipped + count + 1) // 2)
    bits = words.view(np.uint16)[skipped : skipped + count]
    kept = bits > limit
    for place in np.flatnonzero(bits == limit).tolist():
        kept[place] = philox.words(seed, offset, first + place, 1, 1)[0] * 2.0**-32 >= rest
    return kept


def _integers(seed: int, offset: int, first: int, count: int, below: int, low: int) -> Array:
    """Draw integers from `low` to before ``low + below``, where a `below` of 0 stands for 2**64."""
    words = philox.words(seed, offset, 2 * first, 2 * count).view(np.uint64)
    return (scaled(words, below or philox.WHOLE + 1) + np.uint64(low & philox.WHOLE)).view(np.int64)


_KINDS: Final = {
    "words": _Kind(_words, 2),
    "uniform_floats": _Kind(_uniform_floats, 2),
    "uniform_doubles": _Kind(_uniform_doubles, 4),
    "normal_floats": _Kind(_normal_floats, 4),
    "normal_doubles": _Kind(_normal_doubles, 8),
    "kept": _Kind(_kept, 1),
    "integers": _Kind(_integers, 4),
}


class Numbers:
    """Random numbers of one kind, each a function of seed, offset, index and parameters.

    Args:
        kind: one of `DTYPES`.
        elements: how many numbers are drawn together; decides between C and numpy.

    Attributes:
        in_c: whether C draws them.
    """

    def __init__(self, kind: str, elements: int) -> None:
        self._dtype = DTYPES[kind]
        self._function, self._work = _KINDS[kind]
        self._drawing = drawing(f"random_{kind}", elements)
        self.in_c = self._drawing is not None

    def fill(self, to: Array, first: int, seed: int, offset: int, *parameters: Any) -> None:
        """Fill a contiguous array of one dimension with the numbers from number `first` on.

        Args:
            to: the array.
            first: the index of its first number.
            seed, offset: the generator's seed, and the number of the range's first block.
            parameters: the lane, 0 by default, or those of `_kept` and `_integers`.
        """
        if self._drawing is not None:
            fill(self._drawing, to, first, seed, offset, parameters or (0,))
            return
        for start in range(0, to.size, _TOGETHER):
            part = to[start : start + _TOGETHER]
            part[:] = self._function(seed, offset, first + start, part.size, *(parameters or (0,)))

    def drawn(self, count: int, seed: int, offset: int, *parameters: Any, out: Array | None = None) -> Array:
        """Return the first `count` numbers of the range as a vector, drawn by several threads if they are many.

        Args:
            seed, offset, parameters: see `fill`.
            out: memory for them, or None.
        """
        to = np.empty(count, self._dtype) if out is None else out

        def part(start: int, stop: int) -> None:
            self.fill(to[start:stop], start, seed, offset, *parameters)

        intra_op.over(count, count * self._work, part, _TOGETHER)
        return to


def _flat(out: Array | None, dtype: np.dtype[Any]) -> Array | None:
    """Return `out` as a vector if it is a contiguous numpy array, of no subclass, and of this dtype; else None."""
    if out is None or out.dtype != dtype or not out.flags.c_contiguous or type(out) is not np.ndarray:
        return None
    return out.reshape(-1)


# Uniform, normal and exponential numbers

# The most random bits of a half-precision number in [0, 1); a number of more bits could be rounded to 1.
BITS: Final = {dtypes.float16: 11, dtypes.bfloat16: 8}


@builds("rand")
def _uniform(problem: Problem) -> Function:
    (output,) = problem.attributes
    bits = BITS.get(output.dtype)
    return _reals("uniform", output, lambda drawn: drawn if bits is None else np.floor(drawn * 2.0**bits) * 2.0**-bits)


@builds("randn")
def _normal(problem: Problem) -> Function:
    (output,) = problem.attributes
    # A complex number has variance 1, so that its real and imaginary parts have 1/2 each.
    scale = output.dtype.to_real().numpy.type(math.sqrt(0.5)) if output.dtype.is_complex else None
    return _reals("normal", output, lambda drawn: drawn if scale is None else drawn * scale)


def _reals(name: str, output: TensorMeta, finish: Callable[[Array], Array]) -> Function:
    """Build the kernel that draws numbers of a floating-point dtype, or two for each element of a complex one.

    Args:
        name: the beginning of the kinds' names, "uniform" or "normal".
        finish: turns the drawn numbers into the wanted ones; must not change those of float32 and float64.
    """
    kind = f"{name}_doubles" if output.dtype.to_real() is dtypes.float64 else f"{name}_floats"
    count = output.numel * (2 if output.dtype.is_complex else 1)
    numbers = Numbers(kind, count)

    def kernel(seed: int, offset: int, out: Array | None) -> Array:
        to = _flat(out, DTYPES[kind])
        drawn = numbers.drawn(count, seed, offset, out=to)
        if to is not None:
            return out
        found = finish(drawn)
        return _as(found.view(output.dtype.numpy) if output.dtype.is_complex else found, output)

    return kernel


def _as(numbers: Array, output: TensorMeta) -> Array:
    return numbers.reshape(output.shape).astype(output.dtype.numpy, copy=False)


@builds("exponential")
def _exponential(problem: Problem) -> Function:
    (output,) = problem.attributes
    wide = output.dtype is dtypes.float64
    numbers = Numbers("uniform_doubles" if wide else "words", output.numel)

    def kernel(seed: int, offset: int, out: Array | None) -> Array:
        drawn = numbers.drawn(output.numel, seed, offset)
        if wide:
            return _as(exponentials(drawn), output)
        return _as(-logarithm(drawn.astype(np.float32) * np.float32(2.0**-32) + np.float32(2.0**-33)), output)

    return kernel


def exponentials(uniform: Array) -> Array:
    """Turn uniform float64 numbers, multiples of 2**-53, into exponential numbers."""
    found: Array = -wide_logarithm(uniform + 2.0**-54)
    return found


# Integers


@builds("randint")
def _randint(problem: Problem) -> Function:
    output, low, high = problem.attributes
    numbers = Numbers("integers", output.numel)
    below = high - low & philox.WHOLE

    def kernel(seed: int, offset: int, out: Array | None) -> Array:
        to = _flat(out, DTYPES["integers"])
        found = numbers.drawn(output.numel, seed, offset, below, low, out=to)
        return out if to is not None else _as(found, output)

    return kernel


def scaled(words: Array, count: int) -> Array:
    """Turn 64-bit words into integers below `count`: the upper halves of the 128-bit products with `count`.

    The probabilities of two integers differ by 2**-64 at most.
    """
    if count == philox.WHOLE + 1:
        return words
    low, high = np.uint64(count & 0xFFFFFFFF), np.uint64(count >> 32)
    upper, lower = words >> _HALF, words & _LOW
    middle = upper * low + (lower * low >> _HALF)
    if not high:
        return middle >> _HALF
    return upper * high + (middle >> _HALF) + ((lower * high + (middle & _LOW)) >> _HALF)


@builds("randperm")
def _permutation(problem: Problem) -> Function:
    (output,) = problem.attributes
    numbers = Numbers("words", 2 * output.numel)

    def kernel(seed: int, offset: int, out: Array | None) -> Array:
        return _as(permuted(numbers.drawn(2 * output.numel, seed, offset).view(np.uint64)), output)

    return kernel


def permuted(words: Array) -> Array:
    """Return the positions of 64-bit words in ascending order of the words' upper bits."""
    # A key ends in its position: so no two are equal, and the sorted keys hold the positions.
    size = max(words.size - 1, 0).bit_length()
    bits = np.uint64((1 << size) - 1)
    keys = words & ~bits | np.arange(words.size, dtype=np.uint64)
    sort_keys(keys, size)
    return (keys & bits).view(np.int64)


# Choices


@builds("bernoulli")
def _bernoulli(problem: Problem) -> Function:
    (output,) = problem.attributes
    numbers = Numbers("uniform_doubles", output.numel)

    def kernel(probabilities: Array, seed: int, offset: int, out: Array | None) -> Array:
        if not ((probabilities >= 0) & (probabilities <= 1)).all():
            raise ValueError("bernoulli: a probability is not within [0, 1]")
        found = numbers.drawn(output.numel, seed, offset).reshape(output.shape)
        return np.asarray(found < probabilities).astype(output.dtype.numpy)

    return kernel


def kept_elements(mask: TensorMeta, p: float) -> Callable[[int, int], Array]:
    """Return a function of seed and offset that draws a mask, true with probability ``1 - p``.

    Sixteen random bits nearly always decide.  If they equal the first sixteen of p, a further word is compared with the
    rest of p, so that the probability is right to 2**-48.
    """
    numbers = Numbers("kept", mask.numel)
    limit = int(p * 65536)
    rest = p * 65536 - limit
    return lambda seed, offset: numbers.drawn(mask.numel, seed, offset, limit, rest).reshape(mask.shape)


@builds("multinomial")
def _categories(problem: Problem) -> Function:
    output, replacement = problem.attributes
    source = problem.inputs[0]
    count = output.numel if replacement else source.numel
    numbers = Numbers("uniform_doubles", count)

    def kernel(weights: Array, seed: int, offset: int, out: Array | None) -> Array:
        weights = weights.astype(np.float64)
        if not (np.isfinite(weights).all() and (weights >= 0).all() and (weights.sum(-1) > 0).all()):
            raise ValueError("multinomial: the weights of each row must be finite, not negative, and not all zero")
        drawn = numbers.drawn(count, seed, offset)
        if not replacement:
            # Each category gets an exponential time, with its weight as rate: the earliest category is a draw with the
            # right probability, and later ones are draws from the remaining categories.
            with np.errstate(divide="ignore"):
                times = exponentials(drawn).reshape(weights.shape) / weights
            return np.argsort(times, axis=-1, kind="stable")[..., : output.shape[-1]].astype(np.int64)
        rows = np.cumsum(weights, -1).reshape(-1, weights.shape[-1])
        wanted = drawn.reshape(len(rows), output.shape[-1]) * rows[:, -1:]
        chosen = [np.searchsorted(row, numbers, side="right") for row, numbers in zip(rows, wanted, strict=True)]
        return np.asarray(chosen, np.int64).reshape(output.shape)

    return kernel


# Initial values


@builds("trunc_normal_")
def _truncated(problem: Problem) -> Function:
    output, mean, std, a, b = problem.attributes
    numbers = Numbers("uniform_doubles", output.numel)
    low, high = (a - mean) / std, (b - mean) / std
    # An interval above the mean is mirrored: far above it, probabilities are too close to 1 to be told apart.
    sign = -1.0 if low > 0 else 1.0
    low, high = sorted((sign * low, sign * high))
    first, last = (0.5 * math.erfc(-limit / math.sqrt(2.0)) for limit in (low, high))

    def kernel(seed: int, offset: int, out: Array | None) -> Array:
        values = normal_quantile(first + (last - first) * numbers.drawn(output.numel, seed, offset))
        return _as(np.clip(values * (sign * std) + mean, a, b), output)

    return kernel


@builds("orthogonal_")
def _orthogonal(problem: Problem) -> Function:
    output, gain = problem.attributes
    numbers = Numbers("normal_doubles", output.numel)
    rows = output.shape[0]
    columns = output.numel // rows

    def kernel(seed: int, offset: int, out: Array | None) -> Array:
        drawn = numbers.drawn(output.numel, seed, offset).reshape(max(rows, columns), min(rows, columns))
        q, r = np.linalg.qr(drawn)
        # The signs that QR leaves open must be fixed, or the matrix is not uniformly distributed (Mezzadri, 2007).
        q = q * np.where(np.diagonal(r) < 0, -1.0, 1.0) * gain
        return _as(np.ascontiguousarray(q if rows >= columns else q.T), output)

    return kernel
