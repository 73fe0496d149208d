"""Random numbers by index: the words of Philox, C against numpy, and parts that are computed alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow.instructions.blob import meta
from vmflow.kernels.native.random import DTYPES
from vmflow.kernels.numpy import philox
from vmflow.kernels.numpy.box_muller import logarithm, normals, wide_normals
from vmflow.kernels.numpy.random import Numbers, exponentials, kept_elements, permuted, scaled
from vmflow.random import Generator, standard_gamma

from .support import Array, same_bits

KINDS = tuple(DTYPES)
SEED, OFFSET = 0xDEADBEEF12345678, (1 << 64) - 1000  # so that offsets wrap around within the range
COUNT = 20_011


def _parameters(kind: str) -> tuple[Any, ...]:
    return {"kept": (13107, 0.2), "integers": (1005, -5)}.get(kind, (0,))


def _drawn(kind: str, count: int = COUNT) -> Array:
    found: Array = Numbers(kind, count).drawn(count, SEED, OFFSET, *_parameters(kind))
    return found


# Counter, key and result: the known answers of the authors' library, Random123.
ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), ANSWERS)
def test_known_answers_of_philox(counter: tuple[int, ...], key: tuple[int, ...], expected: tuple[int, ...]) -> None:
    seed, position, lane = [low | high << 32 for low, high in (key, counter[:2], counter[2:])]
    assert philox.words(seed, position, 0, 4, lane).tolist() == list(expected)


@pytest.mark.parametrize(("counter", "key", "expected"), ANSWERS)
def test_known_answers_of_philox_in_c(
    counter: tuple[int, ...], key: tuple[int, ...], expected: tuple[int, ...], compiled: None
) -> None:
    seed, position, lane = [low | high << 32 for low, high in (key, counter[:2], counter[2:])]
    numbers = Numbers("words", 1 << 20)
    assert numbers.in_c
    assert numbers.drawn(4, seed, position, lane).tolist() == list(expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_is_the_same_alone(kind: str) -> None:
    whole = _drawn(kind)
    for first, count in ((0, 1), (1, 1), (2, 5), (3, 130), (4099, 8200), (COUNT - 7, 7), (5, 0)):
        part = np.empty(count, DTYPES[kind])
        Numbers(kind, count).fill(part, first, SEED, OFFSET, *_parameters(kind))
        assert same_bits(part, whole[first : first + count])


@pytest.mark.parametrize("kind", KINDS)
def test_c_draws_the_same_as_numpy(kind: str, compiled: None) -> None:
    in_c = Numbers(kind, 1 << 20)
    assert in_c.in_c
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vmflow.kernels.numpy.random.drawing", lambda kind, elements: None)
        in_numpy = Numbers(kind, COUNT)
    assert not in_numpy.in_c
    for first, count in ((0, COUNT), (1, 4), (7, 3001), (3, 0)):
        found, expected = np.empty(count, DTYPES[kind]), np.empty(count, DTYPES[kind])
        in_c.fill(found, first, SEED, OFFSET, *_parameters(kind))
        in_numpy.fill(expected, first, SEED, OFFSET, *_parameters(kind))
        assert same_bits(found, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_any_number_of_threads_draws_the_same(kind: str, threads: None) -> None:
    found = []
    for number in (1, 2, 3):
        flow.set_num_threads(number)
        found.append(_drawn(kind, (1 << 20) + 3))
    assert same_bits(found[0], found[1])
    assert same_bits(found[0], found[2])


def test_normal_numbers_are_right_to_their_last_places() -> None:
    words = philox.words(5, 0, 0, 400_000)
    uniform = words[0::2].astype(np.float32) * np.float32(2.0**-32) + np.float32(2.0**-33)
    radius = np.sqrt(-2 * np.log(uniform.astype(np.float64)))
    angle = words[1::2] * (2 * math.pi / 2**32)
    _check_normals(normals(words), radius, angle, 4)
    # Numbers of 80 bits where there are any: otherwise the expected ones are wrong by more.
    long = np.longdouble
    uniform = words[1::4] * 2.0**-32 + (words[0::4] >> np.uint32(11)) * 2.0**-53 + 2.0**-54
    radius = np.sqrt(-2 * np.log(uniform.astype(long)))
    angle = (words[3::4].astype(long) * 2.0**-32 + words[2::4].astype(long) * 2.0**-64) * 8 * np.arctan(long(1))
    _check_normals(wide_normals(words), radius, angle, 4 if np.finfo(long).eps < 1e-18 else 300)


def _check_normals(found: Array, radius: Array, angle: Array, most: float) -> None:
    expected = np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=1).reshape(-1)
    large = np.abs(expected) > 0.1
    wrong = np.abs(found - expected)[large] / np.spacing(np.abs(expected[large]).astype(found.dtype))
    assert float(wrong.max()) < most


@pytest.mark.parametrize("word", [0, 1, 0xFFFFFFFF, 1 << 31, (1 << 31) - 1, 1 << 29, 3 << 29])
def test_normal_numbers_of_extreme_words_are_finite(word: int) -> None:
    words = np.full(4, word, np.uint32)
    for found in (normals(words), wide_normals(words)):
        assert np.isfinite(found).all()
    largest = normals(np.array([0, 0], np.uint32))[0]
    assert 6.7 < largest < 6.8


@pytest.mark.parametrize(
    "count", [1, 2, 3, 1000, (1 << 32) - 1, 1 << 32, (1 << 32) + 1, 3 << 61, (1 << 64) - 1, 1 << 64]
)
def test_scaled_words_are_the_upper_half_of_the_product(count: int) -> None:
    words = np.concatenate((philox.words(1, 0, 0, 400).view(np.uint64), np.array([0, 1, (1 << 64) - 1], np.uint64)))
    assert scaled(words, count).tolist() == [word * count >> 64 for word in words.tolist()]


def test_elements_between_two_probabilities_are_decided_by_a_further_word() -> None:
    mask = meta((1 << 20,), flow.bool, flow.device("cpu"))
    bits = philox.words(3, 9, 0, 1 << 19).view(np.uint16)
    places = np.flatnonzero(bits == 13107)
    assert len(places) > 5
    fraction = 0.2 * 65536 - 13107
    further = [philox.words(3, 9, place, 1, 1)[0] * 2.0**-32 >= fraction for place in places.tolist()]
    assert set(further) == {True, False}
    assert kept_elements(mask, 0.2)(3, 9)[places].tolist() == further


# The ops, by the numbers that they draw


def test_ops_draw_their_elements_by_index() -> None:
    """A part of each op's result is computed alone from its part of the numbers."""
    source = Generator().manual_seed(SEED)
    state = source.get_state()
    part, count = slice(301, 777), 1000

    def numbers(kind: str, each: int = 1) -> Array:
        found = np.empty((part.stop - part.start) * each, DTYPES[kind])
        Numbers(kind, found.size).fill(found, part.start * each, SEED, 0)
        return found

    def drawn(function: Any, *arguments: Any, **options: Any) -> Array:
        return np.asarray(function(*arguments, **options, generator=source.set_state(state)).numpy()[part])

    assert same_bits(drawn(flow.rand, count), numbers("uniform_floats"))
    assert same_bits(drawn(flow.rand, count, dtype=flow.float64), numbers("uniform_doubles"))
    assert same_bits(drawn(flow.randn, count), numbers("normal_floats"))
    assert same_bits(drawn(flow.randn, count, dtype=flow.float64), numbers("normal_doubles"))
    both = drawn(flow.rand, count, dtype=flow.complex64)
    assert same_bits(both.view(np.float32), numbers("uniform_floats", 2))
    integers = drawn(flow.randint, -5, 1000, (count,))
    assert (integers == scaled(numbers("words", 2).view(np.uint64), 1005).astype(np.int64) - 5).all()
    chosen = drawn(flow.bernoulli, flow.full((count,), 0.3))
    assert (chosen == (numbers("uniform_doubles") < np.float32(0.3))).all()
    weights = flow.tensor([1.0, 2.0, 5.0])
    categories = drawn(flow.multinomial, weights, count, True)
    assert (categories == np.searchsorted([1.0, 3.0, 8.0], numbers("uniform_doubles") * 8.0, side="right")).all()


def test_more_ops_draw_their_elements_by_index() -> None:
    part, count = slice(301, 777), 1000
    mean, deviation, low, high = 1.0, 2.0, -1.0, 2.5

    def numbers(kind: str, *parameters: Any) -> Array:
        found = np.empty(part.stop - part.start, DTYPES[kind])
        Numbers(kind, found.size).fill(found, part.start, SEED, 0, *parameters)
        return found

    def drawn(function: Callable[[], flow.Tensor]) -> Array:
        flow.manual_seed(SEED)
        return np.asarray(function().numpy()[part])

    assert same_bits(
        drawn(lambda: flow.empty(count, dtype=flow.float64).exponential_()), exponentials(numbers("uniform_doubles"))
    )
    found = numbers("words").astype(np.float32) * np.float32(2.0**-32) + np.float32(2.0**-33)
    assert same_bits(drawn(lambda: flow.empty(count).exponential_()), -logarithm(found))
    kept = drawn(lambda: flow.nn.functional.dropout(flow.ones(count), 0.3)) > 0
    assert (kept == numbers("kept", int(0.3 * 65536), 0.3 * 65536 - int(0.3 * 65536))).all()
    truncated = drawn(lambda: flow.nn.init.trunc_normal_(flow.empty(count), mean, deviation, low, high))
    # The numbers are in the order of the uniform ones that they come of.
    assert (np.argsort(truncated, kind="stable") == np.argsort(numbers("uniform_doubles"), kind="stable")).all()


@pytest.mark.parametrize("draw", [flow.poisson, standard_gamma])
@pytest.mark.parametrize("dtype", [flow.float32, flow.float64])
def test_ops_that_try_again_draw_each_element_from_its_own_block(
    draw: Callable[[flow.Tensor, Generator], flow.Tensor], dtype: flow.dtype
) -> None:
    parameters = flow.linspace(0.01, 30.0, 500, dtype=dtype)
    whole = draw(parameters, Generator().manual_seed(SEED)).numpy()
    for start, stop in ((0, 1), (1, 2), (77, 301), (499, 500)):
        source = Generator().manual_seed(SEED)
        source.take(start)
        assert same_bits(draw(parameters[start:stop], source).numpy(), whole[start:stop])


def test_the_range_of_an_op_is_as_long_as_the_op() -> None:
    source = Generator().manual_seed(1)
    flow.rand(10, generator=source)
    first = flow.rand(4, dtype=flow.float64, generator=source).numpy()
    alone = np.empty(4)
    Numbers("uniform_doubles", 4).fill(alone, 0, 1, 10)
    assert same_bits(first, alone)


@pytest.mark.parametrize("below", [1, 3, (1 << 32) + 1, (1 << 64) - 1, 0])
def test_integers_in_c(below: int, compiled: None) -> None:
    numbers = Numbers("integers", 1 << 20)
    assert numbers.in_c
    words = philox.words(SEED, OFFSET, 0, 2000).view(np.uint64).tolist()
    expected = [(word * (below or 1 << 64) >> 64) - (1 << 63) for word in words]
    assert numbers.drawn(1000, SEED, OFFSET, below, -1 << 63).tolist() == expected


@pytest.mark.parametrize("count", [0, 1, 2, 3, 1000, 70_000])
def test_sorting_keys_in_c(count: int, compiled: None) -> None:
    Numbers("words", 1 << 20)  # the library is there from now on
    words = philox.words(SEED, OFFSET, 0, 2 * count).view(np.uint64)
    bits = np.uint64((1 << max(count - 1, 0).bit_length()) - 1)
    places = np.argsort(words & ~bits, kind="stable")
    assert permuted(words).tolist() == places.tolist()
