"""Elementwise kernels against numpy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.cuda.ptx.support import Array, bits, load, run, written

pytestmark = pytest.mark.emulated

GRID_STRIDE = """
template <typename T> __device__ T mixed(T a, T b) {{ return {expression}; }}
extern "C" __global__ void kernel(const T* a, const T* b, T* c, int64 n) {{
    for (int64 i = blockIdx.x * (int64)blockDim.x + threadIdx.x; i < n; i += (int64)gridDim.x * blockDim.x)
        c[i] = mixed<T>(a[i], b[i]);
}}
"""

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


def elementwise(dtype: str, expression: str, architecture: str = "compute_80") -> Any:
    name = {"float32": "float", "float64": "double"}.get(dtype, dtype)
    source = GRID_STRIDE.format(expression=expression).replace("const T*", f"const {name}*")
    source = source.replace(", T* c", f", {name}* c").replace("mixed<T>", f"mixed<{name}>")
    return load(source, architecture, "--fmad=false").kernels["kernel"]


def integers(dtype: str, count: int, seed: int) -> Array:
    generator = np.random.default_rng(seed)
    bounds = np.iinfo(dtype)
    values = generator.integers(bounds.min, bounds.max, count, dtype=dtype, endpoint=True)
    values[:6] = [bounds.min, bounds.max, 0, 1, bounds.max - 1, bounds.min + 1]
    return values


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize(
    ("expression", "reference"),
    [
        ("a + b", lambda a, b: a + b),
        ("a - b * 3", lambda a, b: a - b * a.dtype.type(3)),
        ("(a & b) ^ (a | ~b)", lambda a, b: (a & b) ^ (a | ~b)),
        ("a < b ? a : b", np.minimum),
        ("a > b ? a : b", np.maximum),
        ("b == 0 ? a : a / b", lambda a, b: truncated_quotient(a, b)),
        ("b == 0 ? a : a % b", lambda a, b: np.where(b == 0, a, np.fmod(a, b))),
        ("a << (b & 7)", lambda a, b: a << (b & a.dtype.type(7))),
        ("a >> (b & 7)", lambda a, b: a >> (b & a.dtype.type(7))),
    ],
)
def test_integers(dtype: str, expression: str, reference: Callable[..., Array]) -> None:
    count = 3000
    a, b = integers(dtype, count, 1), np.roll(integers(dtype, count, 2), 7)
    b[1000:1400] = a[1000:1400]
    a[0] += 1  # the smallest by -1 is not defined
    c = np.zeros_like(a)
    run(elementwise(dtype, expression), 4, 256, a, b, c, count)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(c, reference(a, b))


def truncated_quotient(a: Array, b: Array) -> Array:
    """Python's quotients are rounded down, those of C to zero."""
    quotients = np.empty_like(a)
    for position, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        size = abs(x) // abs(y) if y else 0
        quotients[position] = x if y == 0 else size if (x < 0) == (y < 0) else -size
    return quotients


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("architecture", ["compute_80", "compute_90"])
@pytest.mark.parametrize(
    ("expression", "reference"),
    [
        ("a + b", lambda a, b: a + b),
        ("a * b - a", lambda a, b: a * b - a),
        ("a / b", lambda a, b: a / b),
        ("a < b ? a : b * 2", lambda a, b: np.where(a < b, a, b * 2)),
        ("!(a < b) ? a : b * 2", lambda a, b: np.where(a < b, b * 2, a)),
        ("a != b ? a : 3", lambda a, b: np.where(a != b, a, a.dtype.type(3))),
    ],
)
def test_floats_equal_to_the_bit(
    dtype: str, architecture: str, expression: str, reference: Callable[..., Array]
) -> None:
    count = 4000
    unsigned = np.dtype(dtype).str.replace("f", "u")
    a, b = (integers(np.dtype(unsigned).name, count, seed).view(dtype).copy() for seed in (1, 2))
    a[:8] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-44, -1e-40, 3.0]
    b[:8] = [-0.0, 0.0, -np.inf, np.inf, 1.0, 1e-45, 1e-40, 3.0]
    c = np.zeros_like(a)
    run(elementwise(dtype, expression, architecture), 4, 256, a, b, c, count)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(bits(c), bits(reference(a, b)))


FUNCTIONS: list[tuple[str, Callable[..., Any], float, float]] = [
    ("exp", np.exp, -80, 80),
    ("log", np.log, 1e-30, 1e30),
    ("sin", np.sin, -1e7, 1e7),
    ("cos", np.cos, -1e7, 1e7),
    ("tanh", np.tanh, -10, 10),
    ("erf", np.vectorize(math.erf), -4, 4),
    ("sqrt", np.sqrt, 0, 1e20),
    ("rsqrt", lambda x: 1 / np.sqrt(x), 1e-20, 1e20),
    ("log1p", np.log1p, -0.9, 1e5),
    ("expm1", np.expm1, -1, 20),
    ("cbrt", np.cbrt, -1e9, 1e9),
    ("floor", np.floor, -1e6, 1e6),
    ("rint", np.rint, -1e3, 1e3),
]


@pytest.mark.parametrize(("name", "reference", "low", "high"), FUNCTIONS, ids=[row[0] for row in FUNCTIONS])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions(dtype: str, name: str, reference: Any, low: float, high: float) -> None:
    """NVIDIA's functions are a few units of the last place off, of which numpy's doubles are ignorant."""
    if dtype == "float64" and name in ("sin", "cos"):
        low, high = -1e15, 1e15  # the slow way of argument reduction
    called = name + ("f" if dtype == "float32" else "")
    x = np.random.default_rng(0).uniform(low, high, 2000).astype(dtype)
    x[:4] = [low, high, 0.5 * (low + high), 1.0]
    y = np.zeros_like(x)
    run(elementwise(dtype, f"{called}(a) + 0 * b"), 2, 256, x, np.zeros_like(x), y, len(x))
    wanted = reference(x.astype(np.float64))
    rtol, atol = (2e-6, 1e-7) if dtype == "float32" else (1e-14, 1e-15)
    np.testing.assert_allclose(y, wanted, rtol=rtol, atol=atol)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_powers(dtype: str) -> None:
    generator = np.random.default_rng(0)
    x, y = generator.uniform(1e-3, 50, 2000).astype(dtype), generator.uniform(-8, 8, 2000).astype(dtype)
    x[:3], y[:3] = [0, -2, 1], [2, 3, 1e9]
    z = np.zeros_like(x)
    run(elementwise(dtype, "powf(a, b)" if dtype == "float32" else "pow(a, b)"), 2, 256, x, y, z, len(x))
    np.testing.assert_allclose(z, np.power(x.astype(np.float64), y), rtol=2e-6 if dtype == "float32" else 1e-13)


def test_sine_of_infinity_is_nan() -> None:
    x = np.array([np.inf, -np.inf, np.nan, 3e38, 1e30], np.float32)
    y = np.zeros_like(x)
    run(elementwise("float32", "sinf(a)"), 1, 32, x, x, y, len(x))
    assert np.isnan(y[:3]).all()
    np.testing.assert_allclose(y[3:], np.sin(x[3:].astype(np.float64)), rtol=1e-6)


def test_vectors_of_four() -> None:
    source = """
    extern "C" __global__ void kernel(
        const float4* a, float4* b, const double2* c, double2* d, const uchar4* e, uchar4* f) {
        int i = threadIdx.x + blockIdx.x * blockDim.x;
        float4 v = a[i]; b[i] = make_float4(v.w, v.z, v.y, v.x + 1);
        double2 w = c[i]; d[i] = make_double2(w.y, w.x);
        uchar4 u = e[i]; f[i] = make_uchar4(u.y, u.x, u.w, u.z);
    }
    """
    generator = np.random.default_rng(0)
    a, c = generator.standard_normal((64, 4)).astype("f4"), generator.standard_normal((64, 2))
    e = generator.integers(0, 255, (64, 4), dtype=np.uint8)
    b, d, f = np.zeros_like(a), np.zeros_like(c), np.zeros_like(e)
    run(load(source).kernels["kernel"], 2, 32, a, b, c, d, e, f)
    np.testing.assert_array_equal(b, a[:, ::-1] + np.array([0, 0, 0, 1], np.float32))
    np.testing.assert_array_equal(d, c[:, ::-1])
    np.testing.assert_array_equal(f, e[:, [1, 0, 3, 2]])


PHILOX = """
__device__ uint4 round(uint4 c, uint2 k) {
    uint32 high0 = __umulhi(0xD2511F53u, c.x), low0 = 0xD2511F53u * c.x;
    uint32 high1 = __umulhi(0xCD9E8D57u, c.z), low1 = 0xCD9E8D57u * c.z;
    return make_uint4(high1 ^ c.y ^ k.x, low1, high0 ^ c.w ^ k.y, low0);
}
extern "C" __global__ void philox(const uint4* counters, const uint2* keys, uint4* out) {
    uint4 c = counters[threadIdx.x]; uint2 k = keys[threadIdx.x];
    for (int i = 0; i < 10; i++) { c = round(c, k); k.x += 0x9E3779B9u; k.y += 0xBB67AE85u; }
    out[threadIdx.x] = c;
}
"""


def test_philox_gives_the_known_answers() -> None:
    """The test vectors of Random123."""
    ones = 0xFFFFFFFF
    counters = np.array([[0] * 4, [ones] * 4, [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]], np.uint32)
    keys = np.array([[0, 0], [ones, ones], [0xA4093822, 0x299F31D0]], np.uint32)
    out = np.zeros_like(counters)
    run(load(PHILOX).kernels["philox"], 1, 3, counters, keys, out)
    assert [[f"{word:08x}" for word in row] for row in out.tolist()] == [
        ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"],
        ["408f276d", "41c83b0e", "a20bc7c6", "6d5451fd"],
        ["d16cfe09", "94fdcceb", "5001e420", "24126ea1"],
    ]


BITS = """
extern "C" __global__ void kernel(const uint32* a, const uint64* b, uint64* out, int n) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i >= n) return;
    uint32 x = a[i]; uint64 y = b[i];
    uint64* o = out + i * 12;
    o[0] = __popc(x); o[1] = __popcll(y); o[2] = __clz(x); o[3] = __clzll(y); o[4] = __brev(x); o[5] = __brevll(y);
    o[6] = __ffs(x);
    o[7] = __umul64hi(y, y ^ x); o[8] = (uint64)__mul64hi((int64)y, (int64)(y * 3));
    o[9] = __funnelshift_l(x, (uint32)y, x & 63); o[10] = __byte_perm(x, (uint32)y, 0x2641);
    o[11] = (y >> (x & 63)) | (y << (64 - (x & 63) & 63));
}
"""


def test_bits() -> None:
    a, b = integers("uint32", 500, 1), integers("uint64", 500, 2)
    out = np.zeros((500, 12), np.uint64)
    run(load(BITS).kernels["kernel"], 2, 256, a, b, out, 500)

    def signed(value: int) -> int:
        return value - (1 << 64) if value >> 63 else value

    mask = (1 << 64) - 1
    for x, y, row in zip(a.tolist(), b.tolist(), out.tolist(), strict=True):
        words = [(y << 32 | x) >> 8 * position & 255 for position in range(8)]
        turn = x & 63
        assert row == [
            x.bit_count(),
            y.bit_count(),
            32 - x.bit_length(),
            64 - y.bit_length(),
            int(f"{x:032b}"[::-1], 2),
            int(f"{y:064b}"[::-1], 2),
            (x & -x).bit_length(),
            y * (y ^ x) >> 64,
            signed(y) * signed(y * 3 & mask) >> 64 & mask,
            (((y & 0xFFFFFFFF) << 32 | x) << (x & 31)) >> 32 & 0xFFFFFFFF,
            words[1] | words[4] << 8 | words[6] << 16 | words[2] << 24,
            ((y >> turn) | (y << (64 - turn & 63))) & mask,
        ]


def test_integers_are_divided_by_zero_without_a_fault() -> None:
    a, b = np.arange(32, dtype=np.int32), np.zeros(32, np.int32)
    c = np.zeros_like(a)
    run(elementwise("int32", "a / b"), 1, 32, a, b, c, 32)


# Single instructions


def stored(body: str, dtype: str) -> int:
    """The number that a thread stores, which runs these instructions of PTX."""
    out = np.zeros(1, dtype)
    run(written(body), 1, 1, out)
    return int(out[0])


@pytest.mark.parametrize("amount", [15, 16, 31, 32, 63, 64, 65535, 65536, 65537, 1 << 31, (1 << 32) - 1])
@pytest.mark.parametrize("size", [16, 32, 64])
def test_shifts_by_more_than_the_width_leave_no_bits_of_the_value(size: int, amount: int) -> None:
    register = {16: "%h1", 32: "%r1", 64: "%rd2"}[size]
    start, top = (1 << (size - 1)) + 5, (1 << size) - 1
    code = f"mov.u32 %r2, {amount}; mov.b{size} {register}, {start}; OPCODE {register}, {register}, %r2;"
    code += f"st.global.b{size} [%rd1], {register};"
    assert stored(code.replace("OPCODE", f"shl.b{size}"), f"u{size // 8}") == (start << min(amount, 64)) & top
    assert stored(code.replace("OPCODE", f"shr.u{size}"), f"u{size // 8}") == start >> amount
    assert stored(code.replace("OPCODE", f"shr.s{size}"), f"u{size // 8}") == ((start - (1 << size)) >> amount) & top


FACTORS = [0, 1, 5, 1 << 16, (1 << 23) - 1, 1 << 23, (1 << 24) - 1, 1 << 24, (1 << 31) - 1, 1 << 31, (1 << 32) - 1]


def wrapped(number: int, size: int, signed: bool) -> int:
    """The number whose lowest bits, as many as `size`, are those of `number`."""
    number &= (1 << size) - 1
    return number - (1 << size) if signed and number >> (size - 1) else number


@pytest.mark.parametrize(
    ("half", "type_", "saturates"),
    [("lo", "u32", False), ("lo", "s32", False), ("hi", "u32", False), ("hi", "s32", False), ("hi", "s32", True)],
)
@pytest.mark.parametrize("size", [24, 32])
def test_products_of_24_and_32_bits_with_and_without_a_sum(size: int, half: str, type_: str, saturates: bool) -> None:
    signed, suffix = type_ == "s32", "24" if size == 24 else ""
    # Of a product of 24 bits the upper half are the highest 32 of 48 bits.
    skipped = 0 if half == "lo" else 16 if size == 24 else 32
    pairs = [(a, b) for a in FACTORS for b in FACTORS]
    body = "".join(
        [
            f"mov.u32 %r1, {a}; mov.u32 %r2, {b}; mul{suffix}.{half}.{type_} %r3, %r1, %r2;"
            f"st.global.u32 [%rd1+{8 * number}], %r3;"
            f"mad{suffix}.{half}{'.sat' * saturates}.{type_} %r3, %r1, %r2, %r2;"
            f"st.global.u32 [%rd1+{8 * number + 4}], %r3;"
            for number, (a, b) in enumerate(pairs)
        ]
    )
    out = np.zeros((len(pairs), 2), "i4" if signed else "u4")
    run(written(body), 1, 1, out)
    for (a, b), found in zip(pairs, out.tolist(), strict=True):
        product = wrapped(a, size, signed) * wrapped(b, size, signed) >> skipped
        total = product + wrapped(b, 32, signed)
        limited = min(max(total, -(1 << 31)), (1 << 31) - 1) if saturates else wrapped(total, 32, signed)
        assert found == [wrapped(product, 32, signed), limited], (a, b)


OPTIONS = [("--use_fast_math",), ("--device-debug",), ("--extra-device-vectorization", "--maxrregcount=32")]


@pytest.mark.parametrize("options", OPTIONS, ids=[options[0] for options in OPTIONS])
def test_code_of_other_options_of_the_compiler(options: tuple[str, ...]) -> None:
    """Approximations, code that was not optimised, and other choices give nearly the same."""
    source = """
    extern "C" __global__ void kernel(const float* x, float* y, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= n) return;
        float v = x[i];
        y[i] = expf(v) * sinf(v) + logf(fabsf(v) + 1) / (1 + v * v) + rsqrtf(v * v + 1);
        y[i] += powf(fabsf(v), 1.5f) + tanhf(v);
    }
    """
    x = np.linspace(-3, 3, 500).astype(np.float32)
    y = np.zeros_like(x)
    run(load(source, "compute_80", *options).kernels["kernel"], 2, 256, x, y, 500)
    v = x.astype(np.float64)
    wanted = np.exp(v) * np.sin(v) + np.log(np.abs(v) + 1) / (1 + v * v) + 1 / np.sqrt(v * v + 1)
    wanted += np.abs(v) ** 1.5 + np.tanh(v)
    np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-5)
