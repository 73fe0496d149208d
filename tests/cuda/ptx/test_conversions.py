"""Conversions between all formats, to the bit."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.cuda.ptx.support import Array, bits, load, run, written
from vmflow.streams.cuda import ptx
from vmflow.streams.cuda.ptx import rounding

pytestmark = pytest.mark.emulated

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
ALL_PATTERNS = np.arange(65536, dtype=np.uint32).astype(np.uint16)
NAMES = {"f16": np.dtype(np.float16), "bf16": BFLOAT16, "f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}
REGISTER = {"f16": ("h", "uint16"), "bf16": ("h", "uint16"), "f32": ("f", "float"), "f64": ("d", "double")}
REGISTER |= {
    f"{kind}{size}": ({16: "h", 32: "r", 64: "l"}[size], f"{name}{size}")
    for kind, name in (("s", "int"), ("u", "uint"))
    for size in (16, 32, 64)
}


def converted(values: Array, instruction: str, result: str, given: str, architecture: str = "compute_90") -> Array:
    """The results of one instruction of PTX."""
    out, (to, to_name), (of, of_name) = np.zeros(len(values), f"u{_size(result)}"), REGISTER[result], REGISTER[given]
    source = f"""
    extern "C" __global__ void kernel(const {of_name}* x, {to_name}* y, int n) {{
        for (int i = threadIdx.x + blockIdx.x * blockDim.x; i < n; i += blockDim.x * gridDim.x)
            asm("{instruction} %0, %1;" : "={to}"(y[i]) : "{of}"(x[i]));
    }}
    """
    run(load(source, architecture).kernels["kernel"], 8, 256, np.ascontiguousarray(values), out, len(values))
    return out


def _size(name: str) -> int:
    return int("".join([letter for letter in name if letter.isdigit()])) // 8


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_all_short_floats_become_singles(name: str) -> None:
    short = ALL_PATTERNS.view(NAMES[name])
    found = converted(ALL_PATTERNS, f"cvt.f32.{name}", "f32", name).view(np.float32)
    np.testing.assert_array_equal(bits(found), bits(short.astype(np.float32)))


def all_finite(name: str) -> Array:
    """All finite short floats, as doubles."""
    short = ALL_PATTERNS.view(NAMES[name]).astype(np.float32)
    return np.unique(short[np.isfinite(short)]).astype(np.float64)


def near_short_floats(name: str) -> Array:
    """All short floats as singles, the points half way between them, and the singles next to these."""
    finite = all_finite(name)
    half_way = (finite[1:] + finite[:-1]) / 2
    singles = np.concatenate([finite, half_way, [np.inf, -np.inf, np.nan, -0.0, 65519.9, 65520, 3.4e38]]).astype(
        np.float32
    )
    up, down = np.nextafter(singles, np.float32(np.inf)), np.nextafter(singles, np.float32(-np.inf))
    return np.concatenate([singles, up, down])


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_singles_are_rounded_to_the_nearest_short_float(name: str) -> None:
    singles = near_short_floats(name)
    found = converted(singles, f"cvt.rn.{name}.f32", name, "f32").view(NAMES[name])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(bits(found), bits(singles.astype(NAMES[name])))


@pytest.mark.parametrize(("name", "mode"), [("f16", "rz"), ("f16", "rm"), ("f16", "rp"), ("bf16", "rz")])
def test_singles_are_rounded_in_a_direction(name: str, mode: str) -> None:
    """The short float on that side that is nearest, found by search."""
    singles = near_short_floats(name)
    found = converted(singles, f"cvt.{mode}.{name}.f32", name, "f32").view(NAMES[name]).astype(np.float64)
    finite = all_finite(name)
    wide = singles.astype(np.float64)
    below = finite[np.maximum(np.searchsorted(finite, wide, side="right") - 1, 0)]
    above = finite[np.minimum(np.searchsorted(finite, wide, side="left"), len(finite) - 1)]
    downwards = mode == "rm" or (mode == "rz" and wide >= 0)
    chosen = np.where(wide >= 0, below, above) if mode == "rz" else below if downwards else above
    inside = (wide >= finite[0]) & (wide <= finite[-1])
    np.testing.assert_array_equal(found[inside], chosen[inside])
    beyond = (wide > finite[-1]) & np.isfinite(wide)
    assert (found[beyond] == (np.inf if mode == "rp" else finite[-1])).all()
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wide))


@pytest.mark.parametrize(("result", "given"), [("bf16", "f16"), ("f16", "bf16")])
@pytest.mark.parametrize("mode", ["rn", "rz"])
def test_short_floats_of_one_format_are_rounded_to_the_other(result: str, given: str, mode: str) -> None:
    out, values = np.zeros(1, np.uint16), [1 + 2.0**-8 + 2.0**-9, -1 - 2.0**-8 - 2.0**-9, 3 * 2.0**-25, 65504.0]
    for value in np.array(values).astype(NAMES[given]).astype(np.float32):
        pattern = int(np.array(value).astype(NAMES[given]).view(np.uint16))
        run(
            written(f"mov.b16 %h1, {pattern}; cvt.{mode}.{result}.{given} %h1, %h1; st.global.u16 [%rd1], %h1;"),
            1,
            1,
            out,
        )
        with np.errstate(over="ignore"):
            expected = rounding.narrow(np.array([value]), NAMES[result], "rz" if mode == "rz" else "rn")
        assert out.tolist() == expected.view(np.uint16).tolist()


def test_doubles_become_bfloat16_without_being_rounded_twice() -> None:
    """A double just above half way between two of them is half way when it is a single."""
    double = np.array([1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-8 - 2.0**-40, 1 + 2.0**-8])
    found = rounding.narrow(double, BFLOAT16).astype(np.float64)
    assert found.tolist() == [1 + 2.0**-7, 1.0, 1.0]


INTEGER_CASES = [
    ("cvt.rni.s32.f32", "s32", "f32", np.rint),
    ("cvt.rzi.s32.f32", "s32", "f32", np.trunc),
    ("cvt.rmi.s32.f32", "s32", "f32", np.floor),
    ("cvt.rpi.u32.f32", "u32", "f32", np.ceil),
    ("cvt.rzi.u64.f32", "u64", "f32", np.trunc),
    ("cvt.rni.s64.f64", "s64", "f64", np.rint),
    ("cvt.rzi.u64.f64", "u64", "f64", np.trunc),
    ("cvt.rzi.s32.f64", "s32", "f64", np.trunc),
    ("cvt.rni.s16.f32", "s16", "f32", np.rint),
    ("cvt.rzi.s32.f16", "s32", "f16", np.trunc),
]


@pytest.mark.parametrize(
    ("instruction", "result", "given", "integral"), INTEGER_CASES, ids=[row[0] for row in INTEGER_CASES]
)
def test_floats_become_the_nearest_integers_that_there_are(
    instruction: str, result: str, given: str, integral: np.ufunc
) -> None:
    generator = np.random.default_rng(0)
    values = np.concatenate(
        [
            generator.uniform(-1, 1, 400) * 2.0 ** generator.integers(0, 70, 400),
            [0.5, 1.5, -0.5, -2.5, np.inf, -np.inf, 2.0**31, 2.0**63, 2.0**64, -(2.0**63), 0.0],
        ]
    )
    with np.errstate(all="ignore"):
        floats = values.astype(NAMES[given])
    held = floats.view(np.uint16) if given == "f16" else floats
    dtype = np.dtype(("i" if result[0] == "s" else "u") + str(_size(result)))
    bounds = np.iinfo(dtype)
    found = converted(held, instruction, result, given).view(dtype).tolist()
    for value, integer in zip(floats.astype(np.float64).tolist(), found, strict=True):
        exact = value if np.isinf(value) else int(integral(value))
        assert integer == min(max(exact, bounds.min), bounds.max), value


@pytest.mark.parametrize(
    ("result", "given", "expected"),
    [("s32", "f32", 0), ("u32", "f32", 0), ("s64", "f32", 1 << 63), ("s32", "f64", 1 << 31), ("u64", "f64", 1 << 63)],
)
def test_nan_becomes_the_integer_that_the_manual_names(result: str, given: str, expected: int) -> None:
    assert converted(np.array([np.nan], NAMES[given]), f"cvt.rzi.{result}.{given}", result, given).tolist() == [
        expected
    ]


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("given", ["s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("result", ["f32", "f64", "f16"])
def test_integers_are_rounded_once(result: str, given: str, mode: str) -> None:
    dtype = np.dtype(("i" if given[0] == "s" else "u") + str(_size(given)))
    bounds = np.iinfo(dtype)
    generator = np.random.default_rng(0)
    values = generator.integers(bounds.min, bounds.max, 300, dtype=dtype, endpoint=True)
    half_way = [(1 << 24) + 1, (1 << 24) + 3, (1 << 30) + 65, 2049, 2051, 65519, 65520, 0, 1, bounds.max, bounds.min]
    values = np.concatenate([values, np.array(half_way, dtype), values >> dtype.type(20)])
    found = converted(values, f"cvt.{mode}.{result}.{given}", result, given).view(NAMES[result])
    for value, got in zip(values.tolist(), found.astype(np.float64).tolist(), strict=True):
        _check_rounding(Fraction(value), got, NAMES[result], mode)


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("given", ["s64", "u64"])
@pytest.mark.parametrize("result", ["f32", "f64", "f16"])
def test_integers_are_rounded_once_where_a_long_double_is_a_double(
    monkeypatch: pytest.MonkeyPatch, result: str, given: str, mode: rounding.Mode
) -> None:
    monkeypatch.setattr(np, "longdouble", np.float64)
    dtype = np.dtype("i8" if given == "s64" else "u8")
    bounds = np.iinfo(dtype)
    generator = np.random.default_rng(0)
    powers = [1 << exponent for exponent in range(9, 63)]
    # Just beside the points half way between two doubles, singles and short floats.
    values = [power + (power >> digits) + step for power in powers for digits in (8, 11, 24, 53) for step in (-1, 0, 1)]
    values += [*powers, 0, bounds.max, bounds.max - 1, bounds.min]
    values += generator.integers(bounds.min, bounds.max, 300, dtype=dtype, endpoint=True).tolist()
    with np.errstate(all="ignore"):
        found = rounding.integer_to_float(np.array(values, dtype), NAMES[result], mode)
    for value, got in zip(values, found.astype(np.float64).tolist(), strict=True):
        _check_rounding(Fraction(value), got, NAMES[result], mode)


def _check_rounding(exact: Fraction, got: float, dtype: np.dtype[Any], mode: str) -> None:
    """Whether a float is the right one for the mode, by its two neighbours."""
    largest = float(np.finfo(dtype).max)
    if np.isinf(got):
        step = Fraction(2) ** (int(np.finfo(dtype).maxexp) - np.finfo(dtype).nmant - 1)
        beyond = abs(exact) > Fraction(largest) if mode in ("rp", "rm") else abs(exact) >= Fraction(largest) + step / 2
        assert beyond
        assert (exact > 0) == (got > 0)
        assert mode != "rz"
        return
    kept = dtype.type(got)
    error = exact - Fraction(got)
    if error == 0:
        return
    other = (
        Fraction(float(np.nextafter(kept, dtype.type(np.inf if error > 0 else -np.inf))))
        if abs(got) != largest
        else exact + error
    )
    assert abs(exact - Fraction(got)) < abs(other - Fraction(got)) or abs(got) == largest
    if mode == "rn":
        assert abs(error) <= abs(other - exact)
    else:
        assert (error > 0) == {"rm": True, "rp": False, "rz": exact > 0}[mode]


@pytest.mark.parametrize(
    ("instruction", "result", "given", "values", "expected"),
    [
        ("cvt.sat.s16.s32", "s16", "s32", [40000, -40000, 5], [32767, -32768, 5]),
        ("cvt.sat.u16.s32", "u16", "s32", [70000, -1, 5], [65535, 0, 5]),
        ("cvt.sat.s32.u64", "s32", "u64", [1 << 40, 7, 0], [(1 << 31) - 1, 7, 0]),
        ("cvt.u16.u64", "u16", "u64", [0x12345, 65535, 65536], [0x2345, 65535, 0]),
        ("cvt.s64.s16", "s64", "s16", [-5, 32767, 0], [-5, 32767, 0]),
        ("cvt.u64.s32", "u64", "s32", [-5, 3, 0], [(1 << 64) - 5, 3, 0]),
        ("cvt.s32.s8", "s32", "s32", [0x1FF, 0x7F, 0x80], [-1, 127, -128]),
    ],
)
def test_integers_between_sizes(
    instruction: str, result: str, given: str, values: list[int], expected: list[int]
) -> None:
    of, to = (np.dtype(("i" if name[0] == "s" else "u") + str(_size(name))) for name in (given, result))
    assert converted(np.array(values, of), instruction, result, given).view(to).tolist() == expected


@pytest.mark.parametrize(
    ("instruction", "values", "expected"),
    [
        ("cvt.rni.f32.f32", [0.5, 1.5, -2.5, 1e20], [0.0, 2.0, -2.0, 1e20]),
        ("cvt.rzi.f32.f32", [0.9, -1.9, 2.0], [0.0, -1.0, 2.0]),
        ("cvt.rmi.f32.f32", [0.9, -1.1], [0.0, -2.0]),
        ("cvt.rpi.f32.f32", [0.1, -1.9], [1.0, -1.0]),
        ("cvt.sat.f32.f32", [-1.0, 0.25, 7.0, np.nan], [0.0, 0.25, 1.0, 0.0]),
        ("cvt.ftz.f32.f32", [1e-40, -1e-40, 1e-37], [0.0, -0.0, 1e-37]),
        ("neg.f32", [1.0, -0.0], [-1.0, 0.0]),
        ("abs.ftz.f32", [-1e-40, -3.0], [0.0, 3.0]),
        ("rcp.rn.f32", [3.0, 0.0], [np.float32(1) / np.float32(3), np.inf]),
        ("sqrt.rn.f32", [2.0, -1.0], [np.sqrt(np.float32(2)), np.nan]),
        ("ex2.approx.f32", [3.0, -200.0, np.inf], [8.0, 0.0, np.inf]),
        ("ex2.approx.ftz.f32", [-130.0], [0.0]),
        ("lg2.approx.f32", [8.0, 0.0], [3.0, -np.inf]),
        ("tanh.approx.f32", [0.0, 20.0], [0.0, 1.0]),
        ("rsqrt.approx.f32", [4.0, 0.0], [0.5, np.inf]),
    ],
)
def test_floats_of_one_format(instruction: str, values: list[float], expected: list[float]) -> None:
    found = converted(np.array(values, np.float32), instruction, "f32", "f32").view(np.float32)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(bits(found), bits(np.array(expected, np.float32)))


HALVES = """
extern "C" __global__ void kernel(const uint16* a, const uint16* b, uint16* out, int n) {
    for (int i = threadIdx.x + blockIdx.x * blockDim.x; i < n; i += blockDim.x * gridDim.x) {
        uint16 x = a[i], y = b[i]; uint16* o = out + i * 6;
        asm("add.rn.TYPE %0, %1, %2;" : "=h"(o[0]) : "h"(x), "h"(y));
        asm("mul.rn.TYPE %0, %1, %2;" : "=h"(o[1]) : "h"(x), "h"(y));
        asm("fma.rn.TYPE %0, %1, %2, %1;" : "=h"(o[2]) : "h"(x), "h"(y));
        asm("min.TYPE %0, %1, %2;" : "=h"(o[3]) : "h"(x), "h"(y));
        asm("max.NaN.TYPE %0, %1, %2;" : "=h"(o[4]) : "h"(x), "h"(y));
        asm("neg.TYPE %0, %1;" : "=h"(o[5]) : "h"(x));
    }
}
"""


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_arithmetic_of_short_floats(name: str) -> None:
    """Sums and products are exact in doubles or nearly so; a fused one is compared with fractions."""
    generator = np.random.default_rng(0)
    a, b = (generator.integers(0, 65536, 3000).astype(np.uint16) for _ in range(2))
    out = np.zeros((3000, 6), np.uint16)
    run(load(HALVES.replace("TYPE", name), "compute_90").kernels["kernel"], 4, 128, a, b, out, 3000)
    dtype = NAMES[name]
    x, y = a.view(dtype), b.view(dtype)
    got = [np.ascontiguousarray(out[:, column]).view(dtype) for column in range(6)]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(bits(got[0]), bits((x.astype("f4") + y.astype("f4")).astype(dtype)))
        product = x.astype("f8") * y.astype("f8")
        single = product.astype("f4")
        normal = np.abs(product) > 1e-30
        np.testing.assert_array_equal(bits(got[1])[normal], bits(single.astype(dtype))[normal])
        smaller = np.where(np.isnan(x), y, np.where(np.isnan(y), x, np.minimum(x, y)))
        np.testing.assert_array_equal(bits(got[3]), bits(smaller))
        np.testing.assert_array_equal(bits(got[4]), bits(np.maximum(x, y)))
        np.testing.assert_array_equal(got[5].view(np.uint16), a ^ 0x8000)
    columns = [array.astype("f4").tolist() for array in (x, y, got[2])]
    for p, q, fused in zip(*columns, strict=True):
        if np.isfinite([p, q]).all():
            exact = Fraction(p) * Fraction(q) + Fraction(p)
            largest = {BFLOAT16: 3.3895313892515355e38}.get(dtype, 65504.0)
            if abs(exact) <= Fraction(largest):
                step = _neighbours_are_no_nearer(exact, fused, dtype)
                assert step, (p, q, fused)


def _neighbours_are_no_nearer(exact: Fraction, got: float, dtype: np.dtype[Any]) -> bool:
    pattern = np.array([got]).astype(dtype).view(np.int16)
    others = np.concatenate([pattern - 1, pattern + 1]).view(dtype).astype(np.float64)
    distances = [abs(exact - Fraction(other)) for other in others.tolist() if np.isfinite(other)]
    return all(abs(exact - Fraction(got)) <= distance for distance in distances)


PAIRS = """
extern "C" __global__ void kernel(const float2* a, const float2* b, uint32* out) {
    int i = threadIdx.x; uint32 x, y;
    asm("cvt.rn.TYPE.f32 %0, %1, %2;" : "=r"(x) : "f"(a[i].y), "f"(a[i].x));
    asm("cvt.rn.TYPE.f32 %0, %1, %2;" : "=r"(y) : "f"(b[i].y), "f"(b[i].x));
    asm("fma.rn.TYPE %0, %1, %2, %1;" : "=r"(out[i]) : "r"(x), "r"(y));
}
"""


@pytest.mark.parametrize(("name", "dtype"), [("f16x2", np.dtype(np.float16)), ("bf16x2", BFLOAT16)])
def test_two_short_floats_in_a_word(name: str, dtype: np.dtype[Any]) -> None:
    generator = np.random.default_rng(0)
    a, b = generator.integers(-8, 8, (2, 64, 2)).astype(np.float32)
    out = np.zeros((64, 2), np.uint16)
    run(load(PAIRS.replace("TYPE", name)).kernels["kernel"], 1, 64, a, b, out)
    np.testing.assert_array_equal(out.view(dtype).astype(np.float32), a * b + a)


@pytest.mark.parametrize("name", ["f16x2", "bf16x2"])
def test_a_register_of_two_short_floats_holds_a_word(name: str) -> None:
    body = f"""
      .reg .{name} %a, %b; mov.b32 %a, 0x3c004000;
      st.global.b32 [%rd1], %a; neg.{name} %b, %a; st.global.b32 [%rd1+4], %b;
      mov.b32 {{%h1, %h2}}, %b; mov.b32 %a, {{%h2, %h1}}; st.global.b32 [%rd1+8], %a;
      mov.b32 %r1, %a; st.global.u32 [%rd1+12], %r1; ld.global.b32 %b, [%rd1]; st.global.b32 [%rd1+16], %b;
    """
    out = np.zeros(5, np.uint32)
    run(written(body), 1, 1, out)
    assert out.tolist() == [0x3C004000, 0xBC00C000, 0xC000BC00, 0xC000BC00, 0x3C004000]


@pytest.mark.parametrize(
    "body",
    [
        "ld.global.f16x2 %r1, [%rd1];",
        "selp.bf16x2 %r1, %r1, %r1, %p1;",
        "mov.f16x2 %r1, 5;",
    ],
)
def test_types_of_two_short_floats_are_refused_where_ptx_has_none(body: str) -> None:
    with pytest.raises(ptx.UnsupportedInstruction, match=r"this instruction is not known for the type b?f16x2: line"):
        run(written(body), 1, 1, np.zeros(4, np.uint32))
