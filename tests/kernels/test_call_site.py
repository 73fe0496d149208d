"""Remembered calls: which are repeated, and which are not."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.kernels.support import hard_numbers, same_bits
from tests.support import run_program
from vmflow.instructions.blob import Array
from vmflow.kernels.generation import GENERATION
from vmflow.kernels.native import call_site
from vmflow.kernels.native.arrays import Single
from vmflow.kernels.native.call_site import CallSite
from vmflow.kernels.native.functions import function
from vmflow.kernels.native.products import MatrixProduct

pytestmark = pytest.mark.host


def by_words(name: str) -> int:
    """The address of a function of an array of words."""
    found = function(name, 1 << 20)
    assert found is not None
    return found.by_words


def noted(
    *arrays: Array, name: str = "single_exp", at: tuple[int, ...] = (0, 1), written: int = 1, in_place: bool = False
) -> CallSite:
    """A site that has seen one call of a function of arrays and a number of elements."""
    site = CallSite()
    words = [0] * len(arrays) + [arrays[0].size]
    site.note(by_words(name), words, at, arrays, 0, written=written, in_place=in_place)
    return site


def exp_in_c() -> Single:
    found = Single.of("exp", np.dtype(np.float32), 1 << 12)
    assert found is not None
    return found


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.fixture(autouse=True)
def _compiled(compiled: None) -> None:
    """C is there, and the extension module."""
    if call_site._extension is None:
        pytest.skip("vmflow was installed where there was no C compiler: its extension module was not built")


class TestAgain:
    def test_with_other_arrays(self) -> None:
        site = noted(numbers(30, 4), numbers(30, 4))
        for seed in range(5):
            x, out = numbers(30, 4, seed=seed), np.zeros((30, 4), np.float32)
            assert site.again((x, out))
            np.testing.assert_allclose(out, np.exp(x), rtol=1e-6)

    def test_a_result_is_made_where_none_is_given(self) -> None:
        site = noted(numbers(30, 4), numbers(30, 4))
        x = numbers(30, 4, seed=3)
        found = site.result((x,), None)
        assert found is not None
        assert found.shape == (30, 4)
        np.testing.assert_allclose(found, np.exp(x), rtol=1e-6)
        out = np.empty((30, 4), np.float32)
        assert site.result([x], out) is out
        assert same_bits(out, found)

    def test_nothing_was_noted(self) -> None:
        assert not CallSite().again((numbers(3), numbers(3)))
        assert CallSite().result((numbers(3),), None) is None

    def test_where_arrays_are_counts_and_not_where_they_were(self) -> None:
        whole = numbers(60, 4)
        site = noted(whole[:30], numbers(30, 4))
        out = np.zeros((30, 4), np.float32)
        assert site.again((whole[30:], out))
        np.testing.assert_allclose(out, np.exp(whole[30:]), rtol=1e-6)

    def test_several_kinds_of_calls_are_kept(self) -> None:
        site = CallSite()
        for size in (10, 20, 30, 40):
            x = numbers(size)
            site.note(by_words("single_exp"), [0, 0, size], (0, 1), (x, x.copy()), 0)
        for size in (10, 20, 30, 40, 20):
            x, out = numbers(size, seed=1), np.zeros(size, np.float32)
            assert site.again((x, out))
            np.testing.assert_allclose(out, np.exp(x), rtol=1e-6)
        x = numbers(50)
        site.note(by_words("single_exp"), [0, 0, 50], (0, 1), (x, x.copy()), 0)
        assert site.again((x, x.copy()))
        assert not site.again((numbers(10), numbers(10)))  # the oldest has made room

    def test_a_site_of_ever_different_calls_stops_noting_them(self) -> None:
        site = CallSite()
        for size in range(1, 100):
            x = numbers(size)
            site.note(by_words("single_exp"), [0, 0, size], (0, 1), (x, x.copy()), 0)
        assert not site.again((numbers(99), numbers(99)))

    def test_calls_are_remembered_again_after_an_arrival(self) -> None:
        single, x = exp_in_c(), numbers(100)
        for _ in range(100):
            GENERATION.advance()
            assert single.call([x], None) is not None
            assert single.site.again((x, np.empty_like(x)))

    def test_threads_of_the_program_share_a_site(self) -> None:
        single, wrong = exp_in_c(), []
        given = [hard_numbers((500 + number % 7,), seed=number) for number in range(21)]
        expected: list[Any] = [exp_in_c().call([value], None) for value in given]

        def work(start: int) -> None:
            for number in range(2000):
                place = (start + number) % len(given)
                found = single.call([given[place]], None)
                if found is None or not same_bits(found, expected[place]):
                    wrong.append(place)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
        assert not wrong


class _Subclass(np.ndarray[Any, Any]):
    """An array of another type."""


OTHERS: dict[str, Any] = {
    "shape": numbers(4, 30),
    "rank": numbers(120),
    "fewer": numbers(29, 4),
    "dtype": np.zeros((30, 4)),
    "dtype of the same size": np.zeros((30, 4), np.int32),
    "byte order": np.zeros((30, 4), ">f4"),
    "by columns": np.asfortranarray(numbers(30, 4)),
    "with gaps": numbers(30, 8)[:, ::2],
    "backwards": numbers(30, 4)[::-1],
    "subclass": numbers(30, 4).view(_Subclass),
    "none": None,
    "a number": 1.0,
    "a list": [1.0],
    "a tensor": flow.ones(30, 4),
}


class TestNotAgain:
    @pytest.mark.parametrize("kind", OTHERS)
    @pytest.mark.parametrize("place", [0, 1])
    def test_for_another_kind_of_array(self, kind: str, place: int) -> None:
        site = noted(numbers(30, 4), numbers(30, 4))
        x, out = numbers(30, 4), np.full((30, 4), 7, np.float32)
        given = [x, out]
        given[place] = OTHERS[kind]
        assert not site.again(tuple(given))
        assert (out == 7).all()
        assert site.again((x, out))

    def test_where_nothing_may_be_written(self) -> None:
        site = noted(numbers(30, 4), numbers(30, 4))
        x, out = numbers(30, 4), np.zeros((30, 4), np.float32)
        x.flags.writeable = out.flags.writeable = False
        assert not site.again((x, out))
        assert not out.any()
        out.flags.writeable = True
        assert site.again((x, out))

    @pytest.mark.parametrize("count", [0, 1, 3])
    def test_for_another_number_of_arrays(self, count: int) -> None:
        site = noted(numbers(30, 4), numbers(30, 4))
        assert not site.again(tuple([numbers(30, 4) for _ in range(count)]))

    @pytest.mark.parametrize("in_place", [False, True])
    def test_where_something_would_be_overwritten(self, in_place: bool) -> None:
        site = noted(numbers(30, 4), numbers(30, 4), in_place=in_place)
        memory = numbers(40, 4)
        before = memory.copy()
        for start in (0, 1, 10, 19):
            assert not site.again((memory[10:], memory[start : start + 30])) or start == 10
            assert not site.again((memory[start : start + 30], memory[10:])) or start == 10
        if in_place:
            assert site.again((before[:30], before[:30]))
        else:
            assert same_bits(memory, before)
            assert not site.again((memory[:30], memory[:30]))

    def test_behind_each_other_is_not_in_the_way(self) -> None:
        site = noted(numbers(30, 4), numbers(30, 4))
        memory = numbers(60, 4)
        assert site.again((memory[:30], memory[30:]))
        assert site.again((memory[30:], memory[:30]))

    @pytest.mark.usefixtures("panels")
    def test_two_results_must_not_be_in_one_place(self) -> None:
        product = MatrixProduct.of()
        assert product is not None
        of, right, sums = numbers(8, 8), numbers(8, 8), numbers(8)
        out = numbers(8, 8)
        product.with_sums(of.T, right, out, sums)
        expected = out.copy(), sums.copy()
        for inside in (out[3], out.reshape(-1)[5:13], of[7], right[0]):
            assert not product._with_sums.again((of.T, right, inside, out))
        assert product._with_sums.again((of.T, right, sums, out))
        again, _ = product.with_sums(of.T, right, None, sums)
        assert same_bits(again, expected[0])
        assert same_bits(sums, expected[1])

    def test_after_more_has_arrived_or_something_was_switched_off(self, threads: None) -> None:
        flow.set_num_threads(2)
        site = noted(numbers(30, 4), numbers(30, 4))
        given = numbers(30, 4), numbers(30, 4)
        assert site.again(given)
        flow.set_num_threads(3)
        assert not site.again(given)
        site = noted(*given)
        assert site.again(given)
        GENERATION.advance()
        assert not site.again(given)
        site = noted(*given)
        at = by_words("single_exp")
        before = flow.backends.codegen.mode
        flow.backends.codegen.mode = "off"
        try:
            assert not site.again(given)
            site.note(at, [0, 0, 120], (0, 1), given, 0)  # of a call that was under way
            assert not site.again(given)
        finally:
            flow.backends.codegen.mode = before


@pytest.mark.usefixtures("panels")
def test_without_the_extension_module_nothing_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_site, "_extension", None)
    site = noted(numbers(30, 4), numbers(30, 4))
    assert not site.again((numbers(30, 4), numbers(30, 4)))
    x = hard_numbers((100,))
    single = exp_in_c()
    for _ in range(2):
        assert single.call([x], None) is not None
    assert not single.site.again((x, np.empty_like(x)))
    product = MatrixProduct.of()
    assert product is not None
    assert product(numbers(20, 20), numbers(20, 20), None) is not None


def test_a_call_is_described_by_bytes() -> None:
    with pytest.raises(TypeError, match="described by bytes, not by <class 'list'>"):
        call_site._extension.remember([1])


@pytest.mark.parametrize("given", [[], (), (1, 2), ("x",), (None, None), ([], [])])
def test_only_tuples_of_arrays_are_computed(given: Any) -> None:
    again = noted(numbers(30, 4), numbers(30, 4))._calls[0].again
    assert again(given) is False


def test_a_call_reads_no_memory_that_is_gone() -> None:
    """Checks a site whose calls are replaced while other threads make them."""
    program = """
    from concurrent.futures import ThreadPoolExecutor
    import numpy as np
    from vmflow.kernels.native.arrays import Single

    single, wrong = Single.of("exp", np.dtype(np.float32), 1 << 12), []
    single.call([np.zeros(5, np.float32)], None)

    def work(start):
        random = np.random.default_rng(start)
        for _ in range(3000):
            single.site._noted = 0
            x = random.standard_normal(random.integers(1, 12)).astype(np.float32)
            found = single.call([x], None)
            if not np.allclose(found, np.exp(x), rtol=1e-5):
                wrong.append(x)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    print(len(wrong))
    """
    assert run_program(program, VMFLOW_JIT="1", PYTHONMALLOC="debug") == "0"


def test_the_bytes_of_a_call_outlive_it() -> None:
    program = """
    import sys
    import numpy as np
    from vmflow.kernels.native.arrays import Single

    single = Single.of("exp", np.dtype(np.float32), 1 << 12)
    x = np.ones(100, np.float32)
    single.call([x], None)
    again = single.site._calls[0].again
    assert again((x, np.empty_like(x))) is True
    assert again((x,)) is False
    sys.modules["kept until all else is gone"] = [again]
    sys.modules["vmflow.kernels.native.call_site"].__dict__.clear()
    print("ends")
    """
    assert run_program(program, VMFLOW_JIT="1", PYTHONMALLOC="debug") == "ends"
