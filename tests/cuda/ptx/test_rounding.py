"""Sums, products and fused products are rounded once: compared with fractions."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.cuda.ptx.support import Array, load, run, written
from vmflow.streams.cuda.ptx import rounding

pytestmark = pytest.mark.emulated

MODES = ["rn", "rz", "rm", "rp"]

KERNEL = """
extern "C" __global__ void kernel(const TYPE* a, const TYPE* b, const TYPE* c, TYPE* d, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        asm("INSTRUCTION" : "=REG"(d[i]) : "REG"(a[i]), "REG"(b[i]), "REG"(c[i]));
}
"""


def computed(instruction: str, a: Array, b: Array, c: Array) -> Array:
    single = a.dtype == np.float32
    source = KERNEL.replace("TYPE", "float" if single else "double").replace("REG", "f" if single else "d")
    d = np.zeros_like(a)
    run(load(source.replace("INSTRUCTION", instruction)).kernels["kernel"], 1, 256, a, b, c, d, len(a))
    return d


def adversarial(dtype: str) -> tuple[Array, Array, Array]:
    """Operands whose results lie half way between two floats or very near to it, cancel, overflow or are subnormal."""
    generator = np.random.default_rng(0)
    digits, lowest = np.finfo(dtype).nmant, int(np.finfo(dtype).minexp)
    unsigned = np.dtype(dtype).str.replace("f", "u")
    count = 400
    bounds = np.iinfo(unsigned)
    random = generator.integers(0, bounds.max, (3, count), dtype=np.dtype(unsigned), endpoint=True).view(dtype)
    one = 1 + generator.integers(0, 1 << 12, (2, count)) * 2.0**-digits
    tiny = generator.choice([-1, 1], count) * 2.0 ** generator.integers(-2 * digits - 4, 4, count)
    near = generator.standard_normal((2, count))
    huge = generator.uniform(-1, 1, (3, count)) * float(np.finfo(dtype).max)
    huge[0, :2], huge[2, :2] = float(np.finfo(dtype).max), [float(np.finfo(dtype).max), 1]
    with np.errstate(all="ignore"):
        cancelling = -(near[0].astype(dtype) * near[1].astype(dtype)) * (
            1 + generator.integers(-4, 5, count) * 2.0**-digits
        )
        scale = 2.0 ** generator.integers(lowest // 2 - digits, lowest // 2 + 3, (2, count))
        columns = [
            (random[0], random[1], random[2]),
            (one[0], one[1], tiny),
            (near[0], near[1], cancelling),
            (
                one[0] * scale[0],
                one[1] * scale[1],
                generator.integers(-4, 5, count) * float(np.finfo(dtype).smallest_subnormal),
            ),
            (huge[0], huge[1], huge[2]),
        ]
        a, b, c = (np.concatenate([np.asarray(column[part]).astype(dtype) for column in columns]) for part in range(3))
    return a, b, c


def expected(exact: Fraction, dtype: np.dtype[Any], mode: str) -> float:
    """A fraction rounded by integers alone."""
    digits, lowest = np.finfo(dtype).nmant, int(np.finfo(dtype).minexp)
    size = abs(exact)
    exponent = max(size.numerator.bit_length() - size.denominator.bit_length() - 1, lowest)
    while Fraction(2) ** (exponent + 1) <= size:
        exponent += 1
    while exponent > lowest and Fraction(2) ** exponent > size:
        exponent -= 1
    unit = Fraction(2) ** (exponent - digits)
    whole, rest = divmod(size, unit)
    whole = int(whole)
    away = {"rz": False, "rm": exact < 0, "rp": exact > 0}.get(
        mode, rest * 2 > unit or (rest * 2 == unit and whole % 2 == 1)
    )
    if rest and away:
        whole += 1
    value = whole * unit
    largest = Fraction(float(np.finfo(dtype).max))
    sign = 1.0 if exact > 0 else -1.0
    if value > largest:
        towards_zero = mode == "rz" or mode == ("rm" if exact > 0 else "rp")
        return sign * (float(largest) if towards_zero else np.inf)
    return sign * float(value)


FORMULAS: dict[str, tuple[str, Callable[[Fraction, Fraction, Fraction], Fraction]]] = {
    "fma": ("fma.{mode}.{type} %0, %1, %2, %3;", lambda a, b, c: a * b + c),
    "add": ("add.{mode}.{type} %0, %1, %3;", lambda a, b, c: a + c),
    "sub": ("sub.{mode}.{type} %0, %1, %3;", lambda a, b, c: a - c),
    "mul": ("mul.{mode}.{type} %0, %1, %2;", lambda a, b, c: a * b),
    "div": ("div.{mode}.{type} %0, %1, %2;", lambda a, b, c: a / b),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", list(FORMULAS))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_results_are_exact_ones_rounded_once(dtype: str, name: str, mode: str) -> None:
    text, formula = FORMULAS[name]
    a, b, c = adversarial(dtype)
    found = computed(text.format(mode=mode, type="f32" if dtype == "float32" else "f64"), a, b, c)
    checked = 0
    for row in zip(a.tolist(), b.tolist(), c.tolist(), found.tolist(), strict=True):
        if not np.isfinite(row[:3]).all() or (name == "div" and row[1] == 0):
            continue
        exact = formula(*map(Fraction, row[:3]))
        if exact != 0:
            assert row[3] == expected(exact, np.dtype(dtype), mode), row
            checked += 1
        else:
            assert row[3] == 0
    assert checked > 1200


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_of_infinity_are_not_rounded(dtype: str, mode: str) -> None:
    a = np.array([np.inf, -np.inf, np.inf, 1, np.inf, np.nan], dtype)
    c = np.array([1, -1, np.inf, -np.inf, -np.inf, np.inf], dtype)
    found = computed(f"add.{mode}.{'f32' if dtype == 'float32' else 'f64'} %0, %1, %3;", a, a, c)
    np.testing.assert_array_equal(found, [np.inf, -np.inf, np.inf, -np.inf, np.nan, np.nan])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["fma", "add"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_of_zero_have_the_sign_that_the_rounding_mode_gives_them(dtype: str, name: str, mode: str) -> None:
    tiny = float(np.finfo(dtype).smallest_subnormal)
    b = np.ones(8, dtype)
    a = np.array([1, -1, tiny, -tiny, 0, -0.0, 0, -0.0], dtype)
    c = np.array([-1, 1, -tiny, tiny, -0.0, 0, 0, -0.0], dtype)
    found = computed(FORMULAS[name][0].format(mode=mode, type="f32" if dtype == "float32" else "f64"), a, b, c)
    assert (found == 0).all()
    of_opposite_signs = mode == "rm"
    assert np.signbit(found).tolist() == [of_opposite_signs] * 6 + [False, True]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_fused_product_that_underflows_is_no_sum_of_zero(dtype: str) -> None:
    tiny = np.array([np.finfo(dtype).smallest_subnormal], dtype)
    zero = np.zeros(1, dtype)
    instruction = f"fma.rm.{'f32' if dtype == 'float32' else 'f64'} %0, %1, %2, %3;"
    assert not np.signbit(computed(instruction, tiny, tiny, -zero))
    assert computed(instruction, tiny, -tiny, zero) == -tiny


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_roots_are_rounded_once(dtype: str, mode: str) -> None:
    a = np.abs(adversarial(dtype)[0])
    subnormal = np.random.default_rng(1).random(100) * float(np.finfo(dtype).smallest_normal)
    smallest = np.arange(20) * float(np.finfo(dtype).smallest_subnormal)
    a = np.concatenate([a[np.isfinite(a)], subnormal.astype(dtype), smallest.astype(dtype)])
    found = computed(f"sqrt.{mode}.{'f32' if dtype == 'float32' else 'f64'} %0, %1;", a, a, a)
    with np.errstate(all="ignore"):
        below = np.nextafter(found, found.dtype.type(-np.inf)).tolist()
    for value, root, less in zip(a.tolist(), found.tolist(), below, strict=True):
        more = float(np.nextafter(found.dtype.type(root), found.dtype.type(np.inf)))
        exact = Fraction(value)
        if mode in ("rz", "rm"):
            assert Fraction(root) ** 2 <= exact < Fraction(more) ** 2
        elif mode == "rp":
            assert (value == 0 and root == 0) or Fraction(less) ** 2 < exact <= Fraction(root) ** 2
        else:
            assert ((Fraction(root) + Fraction(less)) / 2) ** 2 <= exact <= (
                (Fraction(root) + Fraction(more)) / 2
            ) ** 2 or value == 0


def test_a_product_that_is_rounded_before_the_sum_would_be_wrong() -> None:
    """The classic: a double that is half way between two singles, although the exact value is not."""
    a = np.array([1 + 2.0**-12], np.float32)
    c = np.array([2.0**-80], np.float32)
    b = np.array([1 + 2.0**-12], np.float32)
    exact = Fraction(float(a[0])) * Fraction(float(b[0])) + Fraction(float(c[0]))
    found = rounding.fma(a, b, c)
    assert float(found[0]) == expected(exact, np.dtype(np.float32), "rn")
    twice = (a.astype(np.float64) * b + c).astype(np.float32)
    assert float(twice[0]) != float(found[0])


def test_subnormals_are_flushed_where_the_instruction_says_so() -> None:
    a = np.array([1e-40, 2.0**-100, -(2.0**-100), 1.0], np.float32)
    b = np.array([1.0, 2.0**-30, 2.0**-30, 1e-45], np.float32)
    c = np.zeros_like(a)
    assert computed("mul.f32 %0, %1, %2;", a, b, c).tolist() == (a * b).tolist()
    flushed = computed("mul.ftz.f32 %0, %1, %2;", a, b, c)
    assert flushed.tolist() == [0.0, 0.0, 0.0, 0.0]
    assert np.signbit(flushed).tolist() == [False, False, True, False]


@pytest.mark.parametrize(
    ("instruction", "flushed"),
    [
        ("add.ftz.f16 %h1, %h1, %h2;", 0),
        ("sub.f16 %h1, %h1, %h2;", 0x8001),
        ("sub.ftz.f16 %h1, %h1, %h2;", 0x8000),
        ("fma.rn.ftz.f16 %h1, %h3, %h3, %h2;", 0),  # the product is subnormal, too
        ("neg.ftz.f16 %h1, %h1;", 0),
        ("min.ftz.f16 %h1, %h1, %h2;", 0x8000),
        ("setp.eq.ftz.f16 %p1, %h1, %h2; selp.b16 %h1, 7, 8, %p1;", 7),
        ("set.eq.ftz.f16.f16 %h1, %h1, %h2;", 0x3C00),
        ("mov.b32 %r1, {%h1, %h3}; mul.ftz.f16x2 %r1, %r1, %r1; mov.b32 {%h1, %h2}, %r1;", 0),
        ("ex2.approx.ftz.bf16 %h1, %h4;", 0),
        ("mov.b32 %r1, {%h4, %h1}; ex2.approx.ftz.bf16x2 %r1, %r1; mov.b32 {%h1, %h2}, %r1;", 0),
    ],
)
def test_subnormals_of_16_bits_are_flushed(instruction: str, flushed: int) -> None:
    out = np.zeros(1, np.uint16)
    body = f"""
      mov.b16 %h1, 0x8001; mov.b16 %h2, 0; mov.b16 %h3, 0x0C00; mov.b16 %h4, 0xC300;
      {instruction} st.global.b16 [%rd1], %h1;
    """
    run(written(body), 1, 1, out)
    assert out[0] == flushed


def test_the_operand_that_selects_is_flushed() -> None:
    out = np.zeros(2, np.float32)
    body = """
      .reg .f32 %a, %b; mov.f32 %a, 0f80000001; slct.f32.f32 %b, 0f3F800000, 0f40000000, %a; st.global.f32 [%rd1], %b;
      slct.ftz.f32.f32 %b, 0f3F800000, 0f40000000, %a; st.global.f32 [%rd1+4], %b;
    """
    run(written(body), 1, 1, out)
    assert out.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("opcode", "value", "expected"),
    [
        ("rcp", 2.0**-1023, np.inf),
        ("rcp", -(2.0**-1023), -np.inf),
        ("rcp", 2.0**1023, 0.0),
        ("rsqrt", 2.0**-1023, np.inf),
        ("rsqrt", -(2.0**-1023), -np.inf),
    ],
)
def test_coarse_approximations_flush_subnormal_doubles(opcode: str, value: float, expected: float) -> None:
    x = np.array([value])
    assert computed(f"{opcode}.approx.ftz.f64 %0, %1;", x, x, x).tolist() == [expected]


def test_zeros_count_as_normal_numbers() -> None:
    """As the manual says of ``testp``."""
    x = np.array([0.0, -0.0, 2.0**-127, 2.0**-126, np.inf, np.nan], np.float32)
    for test, expected in (("normal", [1, 1, 0, 1, 0, 0]), ("subnormal", [0, 0, 1, 0, 0, 0])):
        found = computed(f"{{.reg .pred p; testp.{test}.f32 p, %1; selp.f32 %0, 0f3F800000, 0f00000000, p;}}", x, x, x)
        assert found.tolist() == expected


def test_extremes_have_an_order_of_zeros_and_prefer_numbers() -> None:
    a = np.array([0.0, -0.0, np.nan, 1.0], np.float32)
    b = np.array([-0.0, 0.0, 2.0, np.nan], np.float32)
    least, most = computed("min.f32 %0, %1, %2;", a, b, a), computed("max.f32 %0, %1, %2;", a, b, a)
    assert np.signbit(least[:2]).all()
    assert not np.signbit(most[:2]).any()
    assert least[2:].tolist() == most[2:].tolist() == [2.0, 1.0]
    assert np.isnan(computed("min.NaN.f32 %0, %1, %2;", a, b, a)[2:]).all()
