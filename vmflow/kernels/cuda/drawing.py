"""Kernels that draw random numbers: each number depends on its index, the seed and the offset, as on the CPU.

A thread computes Philox blocks of four random words, and turns each block into one or several elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.device import Explain
from vmflow.streams.cuda.driver import Argument
from vmflow.streams.cuda.launching import Launcher

from .philox import PHILOX, PLACE, READ_PLACE, place_of
from .pointwise import copy_array
from .sources import STORED, CudaKernel

_KERNELS: Final = 256

# The operations are those of random.c, in the same order, so that results are rounded as on the CPU.
NUMBERS: Final = """
__device__ __forceinline__ float uniform_float(uint32_t word) { return (float)(int)(word >> 8) * 0x1p-24f; }

__device__ __forceinline__ double uniform_double(uint32_t low, uint32_t high) {
    return (double)high * 0x1p-32 + (double)(low >> 11) * 0x1p-53;
}

// For x from 2**-33 to 1.
__device__ __forceinline__ float logarithm(float x) {
    const int bits = __float_as_int(x) - 0x3F3504F3;
    const float exponent = (float)(bits >> 23), f = __int_as_float((bits & 0x7FFFFF) + 0x3F3504F3) - 1.0f;
    const float square = f * f;
    float power = f * 7.0376836292e-2f + -1.1514610310e-1f;
    power = power * f + 1.1676998740e-1f;
    power = power * f + -1.2420140846e-1f;
    power = power * f + 1.4249322787e-1f;
    power = power * f + -1.6668057665e-1f;
    power = power * f + 2.0000714765e-1f;
    power = power * f + -2.4999993993e-1f;
    power = power * f + 3.3333331174e-1f;
    power = power * f * square;
    power = power + exponent * -2.12194440e-4f;
    power = power - square * 0.5f;
    return (f + power) + exponent * 0.693359375f;
}

// For x from 2**-54 to 1.
__device__ __forceinline__ double wide_logarithm(double x) {
    const int64 bits = __double_as_longlong(x) - 0x3FE6A09E667F3BCDLL;
    const double exponent = (double)(int)(bits >> 52);
    const double f = __longlong_as_double((bits & 0xFFFFFFFFFFFFFLL) + 0x3FE6A09E667F3BCDLL) - 1.0;
    const double ratio = f / (f + 2.0), square = ratio * ratio, half = f * f * 0.5;
    double rest = square * 1.479819860511658591e-01 + 1.531383769920937332e-01;
    rest = rest * square + 1.818357216161805012e-01;
    rest = rest * square + 2.222219843214978396e-01;
    rest = rest * square + 2.857142874366239149e-01;
    rest = rest * square + 3.999999999940941908e-01;
    rest = rest * square + 6.666666666666735130e-01;
    rest = rest * square;
    const double small = ratio * (half + rest) + exponent * 1.90821492927058770002e-10;
    return exponent * 6.93147180369123816490e-01 - ((half - small) - f);
}

__device__ __forceinline__ void normal_pair(uint32_t one, uint32_t other, float* x, float* y) {
    const float radius = sqrtf(-2.0f * logarithm((float)one * 0x1p-32f + 0x1p-33f));
    const uint32_t turned = other + (1u << 29), quarters = turned >> 30;
    const float angle = (float)((int)(turned & ((1u << 30) - 1)) - (1 << 29)) * 1.4629180792671596e-09f;
    const float square = angle * angle;
    float sine = square * -1.9515295891e-4f + 8.3321608736e-3f;
    sine = sine * square + -1.6666654611e-1f;
    sine = sine * square * angle + angle;
    float cosine = square * 2.443315711809948e-5f + -1.388731625493765e-3f;
    cosine = cosine * square + 4.166664568298827e-2f;
    cosine = cosine * (square * square) - square * 0.5f + 1.0f;
    const float across = quarters & 1 ? sine : cosine, up = quarters & 1 ? cosine : sine;
    *x = radius * ((quarters + 1) & 2 ? -across : across);
    *y = radius * (quarters & 2 ? -up : up);
}

__device__ __forceinline__ void wide_normal_pair(words w, double* x, double* y) {
    const double radius = sqrt(-2.0 * wide_logarithm(uniform_double(w.of[0], w.of[1]) + 0x1p-54));
    const uint64_t turned = (((uint64_t)w.of[3] << 32) | w.of[2]) + (1ULL << 61), quarters = turned >> 62;
    const double angle = (double)((int64)(turned & ((1ULL << 62) - 1)) - (1LL << 61)) * 3.4061215800865545e-19;
    const double square = angle * angle;
    double sine = square * 1.58969099521155010221e-10 + -2.50507602534068634195e-08;
    sine = sine * square + 2.75573137070700676789e-06;
    sine = sine * square + -1.98412698298579493134e-04;
    sine = sine * square + 8.33333333332248946124e-03;
    sine = sine * square + -1.66666666666666324348e-01;
    sine = sine * square * angle + angle;
    double cosine = square * -1.13596475577881948265e-11 + 2.08757232129817482790e-09;
    cosine = cosine * square + -2.75573143513906633035e-07;
    cosine = cosine * square + 2.48015872894767294178e-05;
    cosine = cosine * square + -1.38888888888741095749e-03;
    cosine = cosine * square + 4.16666666666666019037e-02;
    cosine = cosine * (square * square) - square * 0.5 + 1.0;
    const double across = quarters & 1 ? sine : cosine, up = quarters & 1 ? cosine : sine;
    *x = radius * ((quarters + 1) & 2 ? -across : across);
    *y = radius * (quarters & 2 ? -up : up);
}

// `count` elements that are loaded or stored together if their address allows it.
template <typename T, int count> struct alignas(sizeof(T) * count > 16 ? 16 : sizeof(T) * count) several {
    T of[count];
};

template <typename T> __device__ __forceinline__ bool is_aligned(const void* place) {
    return (uint64_t)place % alignof(T) == 0;
}
"""


class Kind(NamedTuple):
    """The random numbers that are made from one Philox block of four words.

    Attributes:
        type: the C++ type of a number.
        each: the count of numbers that a block makes.
        body: C++ statements that fill an array of the numbers, ``found[each]``, from the words `w` of the block.
    """

    type: str
    each: int
    body: str


_EACH: Final = '_Pragma("unroll") for (int k = 0; k < {}; k++)'

WORDS: Final = Kind("uint32_t", 4, f"{_EACH.format(4)} found[k] = w.of[k];")
LONG_WORDS: Final = Kind("uint64_t", 2, f"{_EACH.format(2)} found[k] = w.of[2 * k] | (uint64_t)w.of[2 * k + 1] << 32;")
# Uniform numbers in [0, 1): floats are multiples of 2**-24, and doubles of 2**-53.
UNIFORM_FLOATS: Final = Kind("float", 4, f"{_EACH.format(4)} found[k] = uniform_float(w.of[k]);")
UNIFORM_DOUBLES: Final = Kind(
    "double", 2, f"{_EACH.format(2)} found[k] = uniform_double(w.of[2 * k], w.of[2 * k + 1]);"
)
NORMAL_FLOATS: Final = Kind(
    "float",
    4,
    "normal_pair(w.of[0], w.of[1], &found[0], &found[1]); normal_pair(w.of[2], w.of[3], &found[2], &found[3]);",
)
NORMAL_DOUBLES: Final = Kind("double", 2, "wide_normal_pair(w, &found[0], &found[1]);")


class Drawing(NamedTuple):
    """A kernel that fills an array with values computed from random numbers, described by pieces of C++.

    Attributes:
        name: for people, and a part of the kernel's name.
        kind: the random numbers that it starts from.
        finish: the expression of value number `i`, from the random number `v`.
        given: further parameters of the kernel: types and names in C++.
        functions: C++ functions, defined in front of the kernel.
        before: statements in front of `finish`; if `checks` is set, they may call ``wrong()`` to report an error.
        checks: whether the kernel may report errors, and so has a parameter for them.
    """

    name: str
    kind: Kind
    finish: str = "v"
    given: tuple[tuple[str, str], ...] = ()
    functions: str = ""
    before: str = ""
    checks: bool = False


def contiguous(launcher: Launcher, array: DeviceArray) -> DeviceArray:
    """Return the array if it is contiguous, else a copy in C order."""
    if array.contiguous:
        return array
    copied = launcher.scratch(array.shape, array.dtype)
    copy_array(launcher, array, copied)
    return copied


def draw(
    launcher: Launcher,
    drawing: Drawing,
    out: DeviceArray,
    seed: int | DeviceArray,
    offset: int | DeviceArray,
    given: Sequence[Argument] = (),
    explain: Explain | None = None,
) -> None:
    """Fill `out` with the values of a `Drawing`, in C order; a complex element gets two, its real and imaginary parts.

    Args:
        given: the arguments for the parameters `Drawing.given`.
        explain: makes the exception for an error, see `CudaDevice.error_report`; None without `Drawing.checks`.
    """
    flat = out if out.contiguous else launcher.scratch(out.shape, out.dtype)
    count, dtype = flat.size, flat.dtype.name
    if dtype.startswith("complex"):
        count, dtype = 2 * count, "float32" if dtype == "complex64" else "float64"
    report: list[Argument] = [] if explain is None else [launcher.error_report(explain)]
    blocks = -(-count // drawing.kind.each)
    _kernel(drawing, dtype).launch_over(launcher, blocks, [flat, *report, *place_of(seed, offset), count, *given])
    if flat is not out:
        copy_array(launcher, flat, out)


@lru_cache(_KERNELS)
def _kernel(drawing: Drawing, dtype: str) -> CudaKernel:
    name, each, stored = f"{drawing.name}_{dtype}", drawing.kind.each, STORED[dtype]
    report = ", unsigned long long* report" if drawing.checks else ""
    given = "".join([f", {kind} {parameter}" for kind, parameter in drawing.given])
    wrong = "auto wrong = [&]() { atomicCAS(report, 0ULL, (unsigned long long)i + 1); };" if drawing.checks else ""
    source = f"""{PHILOX}{NUMBERS}{drawing.functions}
extern "C" __global__ void {name}({stored}* out{report}, {PLACE}, int64 count{given}) {{
    typedef several<{stored}, {each}> pack;
    {READ_PLACE}
    const int64 threads = (int64)gridDim.x * blockDim.x;
    const bool aligned = is_aligned<pack>(out);
    for (int64 block = (int64)blockIdx.x * blockDim.x + threadIdx.x; block * {each} < count; block += threads) {{
        const words w = philox(seed, offset + block, 0);
        {drawing.kind.type} found[{each}];
        {drawing.kind.body}
        pack made;
        #pragma unroll
        for (int k = 0; k < {each}; k++) {{
            const int64 i = block * {each} + k;
            if (i >= count) break;
            const {drawing.kind.type} v = found[k];
            {wrong}
            {drawing.before}
            made.of[k] = converted<{stored}>({drawing.finish});
        }}
        if (aligned && block * {each} + {each} <= count) {{
            *(pack*)(out + block * {each}) = made;
        }} else {{
            #pragma unroll
            for (int k = 0; k < {each}; k++) {{
                if (block * {each} + k < count) out[block * {each} + k] = made.of[k];
            }}
        }}
    }}
}}
"""
    return CudaKernel(name, source, (0, 1) if drawing.checks else (0,))
