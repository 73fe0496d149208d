"""Our own kernels: CUDA C++ that NVRTC compiles, at the first launch or in the background before."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final, final

from vmflow.kernels.expressions.rules import C_TYPES
from vmflow.streams.cuda.device import CudaDevice
from vmflow.streams.cuda.driver import Argument, CompileTarget, Handle
from vmflow.streams.cuda.launching import Launcher

from . import nvrtc

# --fmad=false: a product and a sum are rounded one after the other, as on the host.
_OPTIONS: Final = ("--std=c++17", "--fmad=false")

# The usual number of threads of a block, and the most blocks of `launch_over`: enough to fill any GPU, and few enough
# that each thread has several elements of a large array.
THREADS: Final = 256
_MOST_BLOCKS: Final = 4096


@final
class CudaKernel:
    """One kernel, whose parameters are pointers, 64-bit integers and doubles.

    Args:
        name: of the function in the source, which is ``extern "C"``.
        source: in CUDA C++; see `PRELUDE` for the types.
        writes: the positions of the pointers that it writes to, among its parameters.
    """

    def __init__(self, name: str, source: str, writes: Sequence[int] = (0,)) -> None:
        self.name = name
        self.source = source
        self._writes = tuple(writes)
        self._code: dict[CompileTarget, bytes] = {}
        # A thread holds this lock while it compiles or loads.  A child that is forked meanwhile cannot use the devices,
        # and so compiles nothing.
        self._compiling = threading.Lock()

    def launch(
        self,
        launcher: Launcher,
        blocks: int,
        arguments: Sequence[Argument],
        threads: int = THREADS,
        shared: int = 0,
    ) -> None:
        """Launch the kernel behind all earlier work of the launcher's stream; for no blocks, nothing is launched.

        A block has `threads` threads, and `shared` bytes of dynamic shared memory.
        """
        if blocks:
            launcher.launch(launcher.function(self), (blocks, 1, 1), (threads, 1, 1), arguments, self._writes, shared)

    def launch_over(self, launcher: Launcher, count: int, arguments: Sequence[Argument]) -> None:
        """Launch the kernel with a thread for each of `count` elements, or with fewer threads that go on to further
        elements.
        """
        self.launch(launcher, min(-(-count // THREADS), _MOST_BLOCKS), arguments)

    def is_there(self, device: CudaDevice) -> bool:
        """Return whether the kernel is loaded on the device, or its code in memory: then a launch need not compile."""
        return self in device.functions or device.driver.target in self._code

    def compile(self, target: CompileTarget) -> bytes:
        """Return the kernel's code for a target, compiled unless it is in memory or cached on disk; other threads
        that need the code wait meanwhile.
        """
        with self._compiling:
            code = self._code.get(target)
            if code is None:
                options = compile_options(target.architecture)
                made = nvrtc.library().compile(full_source(self), self.name, options, to=target.kind)
                code = self._code[target] = made.code
        return code

    def load(self, device: CudaDevice) -> Handle:
        """Return the kernel's function on a device, which the first call loads."""
        driver = device.driver
        code = self.compile(driver.target)
        with self._compiling:
            if self not in device.functions:
                device.functions[self] = driver.function(driver.load(code), self.name)
                # The code need not stay in memory: for another device it is read from the cache on disk, or made again.
                self._code.pop(driver.target, None)
        return device.functions[self]


def full_source(kernel: CudaKernel) -> str:
    """The translation unit of a kernel."""
    return PRELUDE + kernel.source


def compile_options(architecture: str) -> tuple[str, ...]:
    """Return the compiler's options for an architecture such as "compute_80" or "sm_90"."""
    return (*_OPTIONS, f"--gpu-architecture={architecture}")


# Half precision is kept as bits and computed in float; a conversion from or to float is one instruction.
PRELUDE: Final = """
typedef long long int64;
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
struct half { unsigned short bits; };
struct bfloat16 { unsigned short bits; };
struct complex64 { float real, imag; };
struct complex128 { double real, imag; };

template <typename T, typename U> constexpr bool same = false;
template <typename T> constexpr bool same<T, T> = true;
template <typename T> constexpr bool is_complex = same<T, complex64> || same<T, complex128>;

__device__ __forceinline__ float widened(half value) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
    return wide;
}
__device__ __forceinline__ float widened(bfloat16 value) {
    return __int_as_float((int)value.bits << 16);
}

template <typename To, typename From> __device__ __forceinline__ To converted(From value) {
    if constexpr (same<To, From>) {
        return value;
    } else if constexpr (same<From, half> || same<From, bfloat16>) {
        return converted<To>(widened(value));
    } else if constexpr (is_complex<From>) {
        if constexpr (same<To, bool>) {
            return value.real != 0 || value.imag != 0;
        } else if constexpr (is_complex<To>) {
            return {(decltype(To::real))value.real, (decltype(To::imag))value.imag};
        } else {
            return converted<To>(value.real);
        }
    } else if constexpr (is_complex<To>) {
        return {(decltype(To::real))value, 0};
    } else if constexpr (same<To, half>) {
        half result;
        if constexpr (same<From, double>) {
            asm("cvt.rn.f16.f64 %0, %1;" : "=h"(result.bits) : "d"(value));
        } else {
            asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"((float)value));
        }
        return result;
    } else if constexpr (same<To, bfloat16>) {
        bfloat16 result;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"((float)value));
        return result;
    } else {
        return (To)value;
    }
}

template <typename T> __device__ __forceinline__ float rounded_float16(T value) {
    return widened(converted<half>(value));
}
template <typename T> __device__ __forceinline__ float rounded_bfloat16(T value) {
    return widened(converted<bfloat16>(value));
}
"""

# The definitions that must stand in front of the source from `expressions.sources.elements`.
ELEMENTS_PRELUDE: Final = """
#define INLINED static __device__ __forceinline__
#define FMA(a, b, c) __fmaf_rn(a, b, c)
#define INF __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fc00000)
INLINED float of_bits(int32_t bits) { return __int_as_float(bits); }
INLINED int32_t bits_of(float value) { return __float_as_int(value); }
"""

# By dtype, the C++ type of an element in memory; in `COMPUTED`, the type that it is computed in.
STORED: Final = {
    "bool": "bool",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "unsigned long long",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "int64",
    "float16": "half",
    "bfloat16": "bfloat16",
    "float32": "float",
    "float64": "double",
    "complex64": "complex64",
    "complex128": "complex128",
}
COMPUTED: Final = {**STORED, "float16": "float", "bfloat16": "float"}

# By dtype, the C++ type of a variable in statements that `expressions` has written.
VARIABLES: Final = {**COMPUTED, **C_TYPES}
