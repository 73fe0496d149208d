"""Ops that draw random numbers, from the same random bits as on the CPU, given by index, seed and offset.

So uniform numbers, integers and permutations equal the CPU's exactly.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final

import numpy as np

from vmflow import dtypes
from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.kernels.numpy.random import BITS
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher

from . import philox
from .arrays import PACKAGE, Computation, into_outs
from .drawing import (
    LONG_WORDS,
    NORMAL_DOUBLES,
    NORMAL_FLOATS,
    UNIFORM_DOUBLES,
    UNIFORM_FLOATS,
    WORDS,
    Drawing,
    contiguous,
    draw,
)
from .ordering import write_order
from .quantiles import NORMAL_QUANTILE
from .sources import STORED, THREADS, CudaKernel

_DOUBLE: Final = np.dtype(np.float64)


def _drawn(problem: Problem, drawing: Drawing, *given: int | float) -> Kernel:
    """Build the kernel of a random op whose only operands are seed and offset; `given` are arguments of the drawing."""

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        seed, offset = operands
        draw(launcher, drawing, outs[0], seed, offset, given)

    return Kernel(into_outs(launch, problem), casts=True)


# Uniform, normal and exponential numbers


@builds("rand", package=PACKAGE)
def _uniform(problem: Problem) -> Kernel:
    (output,) = problem.attributes
    kind = UNIFORM_DOUBLES if output.dtype.to_real() is dtypes.float64 else UNIFORM_FLOATS
    bits = BITS.get(output.dtype)
    finish = "v" if bits is None else f"floorf(v * 0x1p{bits}f) * 0x1p-{bits}f"
    return _drawn(problem, Drawing("uniform", kind, finish))


@builds("randn", package=PACKAGE)
def _normal(problem: Problem) -> Kernel:
    (output,) = problem.attributes
    kind = NORMAL_DOUBLES if output.dtype.to_real() is dtypes.float64 else NORMAL_FLOATS
    if not output.dtype.is_complex:
        return _drawn(problem, Drawing("normal", kind))
    # A complex number has variance 1, so that its real and imaginary parts have 1/2 each.
    drawing = Drawing("normal_parts", kind, f"v * ({kind.type})scale", (("double", "scale"),))
    return _drawn(problem, drawing, math.sqrt(0.5))


@builds("exponential", package=PACKAGE)
def _exponential(problem: Problem) -> Kernel:
    (output,) = problem.attributes
    if output.dtype is dtypes.float64:
        return _drawn(problem, Drawing("exponential", UNIFORM_DOUBLES, "-wide_logarithm(v + 0x1p-54)"))
    return _drawn(problem, Drawing("exponential", WORDS, "-logarithm((float)v * 0x1p-32f + 0x1p-33f)"))


# Integers


@builds("randint", package=PACKAGE)
def _integers(problem: Problem) -> Kernel:
    _, low, high = problem.attributes
    finish = "(int64)((below ? __umul64hi(v, (uint64_t)below) : v) + (uint64_t)low)"
    drawing = Drawing("integers", LONG_WORDS, finish, (("int64", "below"), ("int64", "low")))
    return _drawn(problem, drawing, philox.signed(high - low), philox.signed(low))


@builds("randperm", package=PACKAGE)
def _permutation(problem: Problem) -> Kernel:
    (output,) = problem.attributes
    bits = max(output.numel - 1, 0).bit_length()
    # Random keys are sorted.  On the CPU, the last bits of a key are its position; here equal keys keep their order, to
    # the same effect.  Keys are compared as signed integers.
    drawing = Drawing("keys", LONG_WORDS, "(int64)(v >> bits << bits ^ 1ULL << 63)", (("int64", "bits"),))

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        seed, offset = operands
        if output.numel:
            keys = launcher.scratch((output.numel,), np.dtype(np.int64))
            draw(launcher, drawing, keys, seed, offset, (bits,))
            write_order(launcher, keys, 0, False, outs[0])

    return Kernel(into_outs(launch, problem), casts=True)


# Choices


@builds("bernoulli", package=PACKAGE)
def _bernoulli(problem: Problem) -> Kernel:
    given = STORED[problem.inputs[0].dtype.name]
    before = "const double p = converted<double>(probabilities[i]); if (!(p >= 0 && p <= 1)) wrong();"
    drawing = Drawing(
        "bernoulli", UNIFORM_DOUBLES, "v < p", ((f"const {given}*", "probabilities"),), before=before, checks=True
    )

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        probabilities, seed, offset = operands
        draw(launcher, drawing, outs[0], seed, offset, [contiguous(launcher, probabilities)], _no_probability)

    return Kernel(into_outs(launch, problem), casts=True)


def _no_probability(position: int, value: int) -> Exception:
    return ValueError("bernoulli: a probability is not within [0, 1]")


@builds("multinomial", package=PACKAGE)
def _categories(problem: Problem) -> Kernel:
    output, replacement = problem.attributes
    dtype, shape = problem.inputs[0].dtype.name, problem.inputs[0].shape
    columns = shape[-1]

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        weights, seed, offset = operands
        weights = contiguous(launcher, weights)
        rows = weights.size // columns if columns else 0
        sums = launcher.scratch((rows, columns), _DOUBLE)
        report = launcher.error_report(_no_weights)
        _sums_of_rows(dtype).launch(launcher, rows, (sums, report, weights, columns))
        if replacement:
            draw(launcher, _CHOICE, outs[0], seed, offset, (sums, columns, output.shape[-1]))
            return
        # Each category gets an exponential time, with its weight as rate: the earliest category is a draw with the
        # right probability, and later ones are draws from the remaining categories.
        if outs[0].size:
            times = launcher.scratch(weights.shape, _DOUBLE)
            draw(launcher, _times(dtype), times, seed, offset, (weights,))
            write_order(launcher, times, weights.ndim - 1, False, outs[0])

    return Kernel(into_outs(launch, problem), casts=True)


def _no_weights(position: int, value: int) -> Exception:
    return ValueError("multinomial: the weights of each row must be finite, not negative, and not all zero")


@lru_cache(None)
def _times(dtype: str) -> Drawing:
    finish = "-wide_logarithm(v + 0x1p-54) / converted<double>(weights[i])"
    return Drawing("times", UNIFORM_DOUBLES, finish, ((f"const {STORED[dtype]}*", "weights"),))


# Draws a category: the first one at which a row's running sum exceeds a random part of the row's whole sum.
_CHOICE: Final = Drawing(
    "choice",
    UNIFORM_DOUBLES,
    "place_in_row(sums + i / samples * columns, columns, v)",
    (("const double*", "sums"), ("int64", "columns"), ("int64", "samples")),
    """
__device__ __forceinline__ int64 place_in_row(const double* row, int64 columns, double part) {
    const double wanted = part * row[columns - 1];
    int64 low = 0, high = columns - 1;
    while (low < high) {
        const int64 middle = (low + high) / 2;
        if (row[middle] <= wanted) low = middle + 1;
        else high = middle;
    }
    return low;
}
""",
)


@lru_cache(None)
def _sums_of_rows(dtype: str) -> CudaKernel:
    """Build the kernel that checks rows of weights and computes their running sums, a block for each row: each thread
    sums up a stretch, and adds the stretches before it.
    """
    name = f"sums_of_rows_{dtype}"
    source = f"""
extern "C" __global__ void {name}(double* out, unsigned long long* report, const {STORED[dtype]}* in, int64 columns) {{
    __shared__ double sums[{THREADS}];
    const int64 each = (columns + {THREADS} - 1) / {THREADS};
    const {STORED[dtype]}* row = in + blockIdx.x * columns;
    const int64 begin = threadIdx.x * each, end = begin + each < columns ? begin + each : columns;
    double sum = 0;
    bool wrong = false;
    for (int64 i = begin; i < end; i++) {{
        const double weight = converted<double>(row[i]);
        wrong |= !(weight >= 0 && weight - weight == 0);
        sum += weight;
    }}
    sums[threadIdx.x] = sum;
    __syncthreads();
    double before = 0;
    for (int other = 0; other < threadIdx.x; other++) before += sums[other];
    if (threadIdx.x == {THREADS} - 1) wrong |= !(before + sum > 0);
    if (wrong) atomicCAS(report, 0ULL, 1ULL);
    for (int64 i = begin; i < end; i++) {{
        before += converted<double>(row[i]);
        out[blockIdx.x * columns + i] = before;
    }}
}}
"""
    return CudaKernel(name, source, (0, 1))


# Initial values

_TRUNCATED: Final = Drawing(
    "truncated_normal",
    UNIFORM_DOUBLES,
    "x < a ? a : x > b ? b : x",
    tuple([("double", name) for name in ("first", "share", "scale", "mean", "a", "b")]),
    NORMAL_QUANTILE,
    "const double x = normal_quantile(first + share * v) * scale + mean;",
)


@builds("trunc_normal_", package=PACKAGE)
def _truncated(problem: Problem) -> Kernel:
    _, mean, std, a, b = problem.attributes
    low, high = (a - mean) / std, (b - mean) / std
    # An interval above the mean is mirrored: far above the mean, probabilities are too close to 1 to be told apart.
    sign = -1.0 if low > 0 else 1.0
    low, high = sorted((sign * low, sign * high))
    first, last = (0.5 * math.erfc(-limit / math.sqrt(2.0)) for limit in (low, high))
    return _drawn(problem, _TRUNCATED, first, last - first, sign * std, float(mean), float(a), float(b))


@builds("orthogonal_", package=PACKAGE)
def _orthogonal(problem: Problem) -> Kernel:
    output, _ = problem.attributes
    rows = output.shape[0]
    columns = output.numel // rows
    computation = Computation(_orthogonal_of, problem)

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        seed, offset = operands
        numbers = launcher.scratch((max(rows, columns), min(rows, columns)), _DOUBLE)
        draw(launcher, Drawing("normal", NORMAL_DOUBLES), numbers, seed, offset)
        launcher.call(problem.op, computation, (numbers,), outs)

    return Kernel(into_outs(launch, problem), casts=True)


def _orthogonal_of(xp: Any, problem: Problem, numbers: Any, out: Any) -> None:
    """Compute a (semi-)orthogonal matrix, times the gain, by the QR decomposition of normal random `numbers`."""
    output, gain = problem.attributes
    q, r = xp.linalg.qr(numbers)
    # The signs that QR leaves open must be fixed, or the matrix is not uniformly distributed (Mezzadri, 2007).
    q = q * xp.where(xp.diagonal(r) < 0, -1.0, 1.0) * gain
    rows = output.shape[0]
    wide = xp.ascontiguousarray(q if rows >= output.numel // rows else q.T)
    xp.copyto(out, wide.reshape(out.shape), casting="unsafe")
