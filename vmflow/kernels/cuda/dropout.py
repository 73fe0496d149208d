"""Dropout: random elements are multiplied by 0, and the others by ``1 / (1 - p)``.

Sixteen random bits nearly always decide whether an element is kept.  If they equal the probability's first sixteen, a
random word of the next lane is compared with the rest of the probability.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.driver import Argument
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, into_outs
from .drawing import NUMBERS, contiguous
from .philox import PHILOX, PLACE, READ_PLACE, place_of
from .pointwise import Pointwise, copy_array, launch_pointwise
from .sources import COMPUTED, STORED, CudaKernel


@builds("dropout", package=PACKAGE)
def _dropout(problem: Problem) -> Kernel:
    (p,) = problem.attributes
    scale = _scale(problem)
    limit = int(p * 65536)
    rest = float(p * 65536 - limit)

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        array, seed, offset = operands
        flat = [out if out.contiguous else launcher.scratch(out.shape, out.dtype) for out in outs]
        array = contiguous(launcher, array)
        arguments: list[Argument] = [*flat, array, *place_of(seed, offset), array.size, limit, rest, scale]
        _kernel(array.dtype.name, flat[0].dtype.name).launch_over(launcher, -(-array.size // 8), arguments)
        for made, out in zip(flat, outs, strict=True):
            if made is not out:
                copy_array(launcher, made, out)

    return Kernel(into_outs(launch, problem), casts=True)


def _scale(problem: Problem) -> float:
    """Return the factor of kept elements, ``1 / (1 - p)``, rounded to the result's dtype."""
    (p,) = problem.attributes
    return float(problem.outputs[0].dtype.numpy.type(1 / (1 - p)).real)


@lru_cache(64)
def _kernel(given: str, wanted: str) -> CudaKernel:
    """Build the kernel of dropout: a thread computes four random words at a time, which nearly always decide for eight
    elements.
    """
    name = f"dropout_{given}_{wanted}"
    stored, source_type, value = STORED[wanted], STORED[given], COMPUTED[wanted]
    source = f"""{PHILOX}{NUMBERS}{_SCALED}
extern "C" __global__ void {name}({stored}* out, bool* kept, const {source_type}* in, {PLACE}, int64 count,
                                  int64 limit, double rest, double scale) {{
    typedef several<{stored}, 8> pack;
    typedef several<{source_type}, 8> given;
    typedef several<bool, 8> flags;
    {READ_PLACE}
    const int64 threads = (int64)gridDim.x * blockDim.x;
    const bool aligned = is_aligned<pack>(out) && is_aligned<given>(in) && is_aligned<flags>(kept);
    for (int64 block = (int64)blockIdx.x * blockDim.x + threadIdx.x; block * 8 < count; block += threads) {{
        const words w = philox(seed, offset + block, 0);
        unsigned int keep = 0, undecided = 0;
        #pragma unroll
        for (int k = 0; k < 8; k++) {{
            const unsigned int bits = w.of[k / 2] >> k % 2 * 16 & 0xFFFF;
            keep |= (bits > limit) << k;
            undecided |= (bits == limit) << k;
        }}
        for (int k = 0; undecided >> k; k++) {{
            if (!(undecided >> k & 1)) continue;
            const int64 i = block * 8 + k;
            const words further = philox(seed, offset + i / 4, 1);
            const uint32_t word = k & 2 ? (k & 1 ? further.of[3] : further.of[2])
                                        : (k & 1 ? further.of[1] : further.of[0]);
            keep |= (word * 0x1p-32 >= rest) << k;
        }}
        if (aligned && block * 8 + 8 <= count) {{
            const given x = *(const given*)(in + block * 8);
            pack made;
            flags found;
            #pragma unroll
            for (int k = 0; k < 8; k++) {{
                found.of[k] = keep >> k & 1;
                made.of[k] = scaled<{stored}, {value}>(x.of[k], found.of[k], scale);
            }}
            *(pack*)(out + block * 8) = made;
            *(flags*)(kept + block * 8) = found;
            continue;
        }}
        for (int k = 0; k < 8; k++) {{
            const int64 i = block * 8 + k;
            if (i >= count) break;
            kept[i] = keep >> k & 1;
            out[i] = scaled<{stored}, {value}>(in[i], keep >> k & 1, scale);
        }}
    }}
}}
"""
    return CudaKernel(name, source, (0, 1))


_SCALED = """
template <typename T, typename Value, typename From>
__device__ __forceinline__ T scaled(From x, bool keep, double scale) {
    const Value v = converted<Value>(x);
    if constexpr (is_complex<Value>) {
        typedef decltype(v.real + v.real) part;
        const part factor = keep ? (part)scale : 0;
        return {v.real * factor, v.imag * factor};
    } else {
        return converted<T>(v * (keep ? (Value)scale : 0));
    }
}
"""


@builds("dropout_gradient", package=PACKAGE)
def _dropout_gradient(problem: Problem) -> Kernel:
    given, kept = [meta.dtype.name for meta in problem.inputs]
    (wanted,) = [meta.dtype.name for meta in problem.outputs]
    scale = _scale(problem)
    line = f"const {COMPUTED[wanted]} factor = x1 ? ({COMPUTED[wanted]})s0 : 0;"
    result = "x0 * factor"
    if wanted.startswith("complex"):
        line = "const decltype(x0.real + x0.real) factor = x1 ? s0 : 0;"
        result = f"{wanted}{{x0.real * factor, x0.imag * factor}}"
    function = Pointwise("dropout_gradient", (given, kept), ("float64",), (line,), ((result, wanted),))

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        launch_pointwise(launcher, function, operands, (scale,), outs)

    return Kernel(into_outs(launch, problem), casts=True)
