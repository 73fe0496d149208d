"""Threads that go different ways, functions, variables, and the geometry of launches."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

from tests.cuda.ptx.support import load, run, written
from vmflow.streams.cuda import ptx

pytestmark = pytest.mark.emulated


def collatz(value: int) -> int:
    steps = 0
    while value != 1:
        value = value // 2 if value % 2 == 0 else 3 * value + 1
        steps += 1
    return steps


def test_loops_of_different_lengths() -> None:
    source = """
    extern "C" __global__ void kernel(int* steps, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= n) return;
        uint64 x = i + 1; int count = 0;
        while (x != 1) { if (x & 1) x = 3 * x + 1; else x >>= 1; count++; }
        steps[i] = count;
    }
    """
    steps = np.zeros(1000, np.int32)
    run(load(source).kernels["kernel"], 8, 128, steps, 1000)
    assert steps.tolist() == [collatz(start + 1) for start in range(1000)]


def test_breaks_and_continues_in_nested_loops() -> None:
    source = """
    extern "C" __global__ void kernel(const int* x, int* out) {
        int t = threadIdx.x, total = 0;
        for (int i = 0; i < x[t]; i++) {
            if (i % 3 == 1) continue;
            for (int j = 0; ; j++) {
                if (j * j > i) break;
                if ((i + j) % 7 == 6) goto out;
                total += j ^ i;
            }
        }
        out: out[t] = total;
    }
    """
    x = np.random.default_rng(0).integers(0, 40, 64).astype(np.int32)
    out = np.zeros_like(x)
    run(load(source).kernels["kernel"], 1, 64, x, out)

    def reference(limit: int) -> int:
        total = 0
        for i in range(limit):
            if i % 3 == 1:
                continue
            j = 0
            while j * j <= i:
                if (i + j) % 7 == 6:
                    return total
                total += j ^ i
                j += 1
        return total

    assert out.tolist() == [reference(limit) for limit in x.tolist()]


def test_a_switch_with_many_cases() -> None:
    cases = "".join([f"case {case}: v = v * {case + 2} + {case * case}; break;\n" for case in range(20)])
    source = f"""
    extern "C" __global__ void kernel(const int* x, int* out) {{
        int t = threadIdx.x, v = t;
        switch (x[t]) {{ {cases} default: v = -1; }}
        out[t] = v;
    }}
    """
    x = np.random.default_rng(0).integers(-2, 23, 128).astype(np.int32)
    out = np.zeros_like(x)
    run(load(source).kernels["kernel"], 1, 128, x, out)
    assert out.tolist() == [t * (k + 2) + k * k if 0 <= k < 20 else -1 for t, k in enumerate(x.tolist())]


def test_a_jump_by_a_table() -> None:
    source = """
    extern "C" __global__ void kernel(const int* x, int* out) {
        int r;
        asm("{ .reg .u32 i; mov.u32 i, %1;\\n ts: .branchtargets A, B, C;\\n brx.idx i, ts;\\n"
            "A: mov.u32 %0, 10; bra.uni D;\\n B: mov.u32 %0, 20; bra.uni D;\\n C: mov.u32 %0, 30;\\n D: }"
            : "=r"(r) : "r"(x[threadIdx.x]));
        out[threadIdx.x] = r;
    }
    """
    x = np.array([0, 1, 2, 2, 1, 0, 0, 1], np.int32)
    out = np.zeros_like(x)
    run(load(source).kernels["kernel"], 1, 8, x, out)
    assert out.tolist() == [10 * (number + 1) for number in x.tolist()]


def test_labels_belong_to_their_scopes() -> None:
    """As where a function with a loop in assembly is inlined twice."""
    loop = "{ LOOP: add.u32 %rA, %rA, 1; setp.ge.u32 %p1, %rA, B; @%p1 bra END; bra LOOP; END: }"
    loops = "".join([loop.replace("A", str(number)).replace("B", str(2 * number + 1)) for number in (1, 2)])
    body = f"mov.b64 {{%r1, %r2}}, 0; bra LOOP; {loops} ret; LOOP: {loops} st.global.v2.u32 [%rd1], {{%r1, %r2}};"
    out = np.zeros(2, np.int32)
    run(written(body), 1, 1, out)
    assert out.tolist() == [3, 5]


def test_shared_memory_belongs_to_the_function_that_declares_it() -> None:
    declared = ".shared .b32 s[4]; mov.u32 %r1, VALUE; st.shared.u32 [s], %r1;"
    other = ".func other() { .reg .b32 %r<2>; " + declared.replace("VALUE", "7") + " ret; }"
    out = np.zeros(1, np.uint32)
    run(
        written(
            declared.replace("VALUE", "3") + "call other; ld.shared.u32 %r2, [s]; st.global.u32 [%rd1], %r2;", other
        ),
        1,
        1,
        out,
    )
    assert out[0] == 3


def test_tables_of_labels_belong_to_their_scopes() -> None:
    labels = "T: .branchtargets A, B; A: mov.u32 %rN, 1; B: add.u32 %rN, %rN, N;"
    jump = f"{{ .reg .u32 i; mov.u32 i, 1; brx.idx i, T; {labels} }}"
    jumps = "".join([jump.replace("N", str(number)) for number in (1, 2)])
    out = np.zeros(2, np.int32)
    run(written(f"mov.b64 {{%r1, %r2}}, 0; {jumps} st.global.v2.u32 [%rd1], {{%r1, %r2}};"), 1, 1, out)
    assert out.tolist() == [1, 2]


def test_functions_that_are_not_inlined() -> None:
    source = """
    struct Pair { double a; int b; char c; };
    __device__ __noinline__ int gcd(int a, int b) { while (b) { int t = a % b; a = b; b = t; } return a; }
    __device__ __noinline__ Pair make(float x, signed char y, int n) {
        Pair p; p.a = x * 0.5; p.b = gcd(n, 12); p.c = y - 1; return p;
    }
    __device__ __noinline__ double use(Pair p, const double* table) { return p.a + p.b + p.c + table[p.b & 3]; }
    extern "C" __global__ void kernel(const float* x, const int* n, double* out) {
        double table[4] = {x[0], 1, 2, 3};
        int t = threadIdx.x;
        if (n[t] > 5) out[t] = use(make(x[t], -3, n[t]), table);
        else out[t] = -use(make(x[t], 7, n[t] + 1), table);
    }
    """
    x, n = np.random.default_rng(0).standard_normal(64).astype(np.float32), np.arange(64, dtype=np.int32)
    out = np.zeros(64)
    run(load(source).kernels["kernel"], 1, 64, x, n, out)

    def use(value: float, c: int, count: int) -> float:
        divisor = math.gcd(count, 12)
        return value * 0.5 + divisor + (c - 1) + [float(x[0]), 1, 2, 3][divisor & 3]

    wanted = [use(v, -3, k) if k > 5 else -use(v, 7, k + 1) for v, k in zip(x.tolist(), n.tolist(), strict=True)]
    np.testing.assert_allclose(out, wanted, rtol=1e-15)


def test_templates_and_arrays_in_local_memory() -> None:
    source = """
    template <typename T, int N> __device__ T sorted(const T* x, int which) {
        T copy[N];
        for (int i = 0; i < N; i++) copy[i] = x[i];
        for (int i = 0; i < N; i++)
            for (int j = i + 1; j < N; j++)
                if (copy[j] < copy[i]) { T t = copy[i]; copy[i] = copy[j]; copy[j] = t; }
        return copy[which];
    }
    extern "C" __global__ void kernel(const float* x, float* out, const short* y, short* out2, const int* which) {
        int t = threadIdx.x;
        out[t] = sorted<float, 9>(x + 9 * t, which[t]); out2[t] = sorted<short, 5>(y + 5 * t, which[t] % 5);
    }
    """
    generator = np.random.default_rng(0)
    x, y = (
        generator.standard_normal((40, 9)).astype(np.float32),
        generator.integers(-999, 999, (40, 5)).astype(np.int16),
    )
    which = generator.integers(0, 9, 40).astype(np.int32)
    out, out2 = np.zeros(40, np.float32), np.zeros(40, np.int16)
    run(load(source).kernels["kernel"], 1, 40, x, out, y, out2, which)
    np.testing.assert_array_equal(out, np.sort(x, 1)[np.arange(40), which])
    np.testing.assert_array_equal(out2, np.sort(y, 1)[np.arange(40), which % 5])


def test_constants_and_variables_of_a_module() -> None:
    source = """
    __constant__ float weights[4] = {0.5f, 1.5f, 2.5f, 3.5f};
    __constant__ int unset[3];
    __device__ double total = 7.5;
    __device__ int* pointer = 0;
    __device__ int cell = 5;
    __device__ int* to_cell = &cell;
    extern "C" __global__ void kernel(float* out) {
        int t = threadIdx.x;
        out[t] = weights[t & 3] + unset[t % 3];
        if (t == 0) { total += 1; *to_cell += 2; }
    }
    """
    module = load(source)
    module.variable("unset").view(np.int32)[:] = [10, 20, 30]
    out = np.zeros(32, np.float32)
    run(module.kernels["kernel"], 1, 32, out)
    run(module.kernels["kernel"], 1, 32, out)
    t = np.arange(32)
    np.testing.assert_array_equal(out, 0.5 + (t & 3) + np.array([10, 20, 30])[t % 3])
    assert module.variable("total").view(np.float64)[0] == 9.5
    assert module.variable("cell").view(np.int32)[0] == 9
    with pytest.raises(KeyError, match=r"no variable 'nothing'; it has .*cell.*weights"):
        module.variable("nothing")


@pytest.mark.parametrize("space", ["global", "const", "shared", "local"])
@pytest.mark.parametrize(
    ("declaration", "alignment", "length"),
    [
        (".v4 .f32 x", 16, 16),
        (".v2 .f32 x", 8, 8),
        (".v4 .u8 x", 4, 4),
        (".v2 .u16 x[3]", 4, 12),
        (".align 4 .v4 .f32 x", 4, 16),
        (".f32 x[4]", 4, 16),
    ],
)
def test_variables_of_vectors_are_aligned_to_the_whole_vector(
    space: str, declaration: str, alignment: int, length: int
) -> None:
    inner, outer = (f".{space} .b8 first[3]; .{space} {declaration}; .{space} .b8 last;", "")
    if space in ("global", "const"):
        inner, outer = outer, inner
    names = "mov.u64 %rd2, first; mov.u64 %rd3, x; mov.u64 %rd4, last;"
    stores = "".join([f"st.global.u64 [%rd1+{8 * number}], %rd{number + 2};" for number in range(3)])
    found = np.zeros(3, np.int64)
    run(written(inner + names + stores, outer), 1, 1, found)
    first, x, last = found.tolist()
    assert x - first == alignment
    assert last - x == length


@pytest.mark.parametrize(
    ("declaration", "expected"),
    [
        # As ptxas understands them.
        (".f32 x[4] = {0.1, -1.0, 1e5, -.5E-1}", np.array([0.1, -1, 1e5, -0.05], np.float32)),
        (".f32 x[3] = {1., -0.0, 1.e2}", np.array([1, -0.0, 100], np.float32)),
        (".f32 x[3] = {1.0e300, 1.4e-45, 16777217.0}", np.array([np.inf, 1.4e-45, 1 << 24], np.float32)),
        (".f32 x[2] = {0f7FFFFFFF, 0d3FF0000000000001}", np.array([0x7FFFFFFF, 0x3F800000], np.uint32)),
        (".f64 x[2] = {0.1, 0d3FF0000000000001}", np.array([0.1, 1 + 2**-52])),
        (".b32 x[3] = {0.1, 0f3F800000, 0x1e5}", np.array([0x3DCCCCCD, 0x3F800000, 0x1E5], np.uint32)),
        (".b64 x[2] = {-1.0, -1}", np.array([0xBFF << 52, (1 << 64) - 1], np.uint64)),
        (".u32 x[2] = {-1, 5U}", np.array([(1 << 32) - 1, 5], np.uint32)),
    ],
)
def test_initial_values(declaration: str, expected: Any) -> None:
    module = ptx.parse(f".global {declaration};")
    assert module.variable("x").tobytes() == expected.tobytes()


def test_the_sign_of_a_number_may_stand_apart() -> None:
    found = np.zeros(3)
    stores = "st.global.f64 [%rd1], - 0.5; st.global.f64 [%rd1+8], -0.5; st.global.f32 [%rd1+16], - 1e300;"
    run(written(stores), 1, 1, found)
    assert found[:2].tolist() == [-0.5, -0.5]
    assert found.view(np.float32)[4] == -np.inf


def test_parameters_of_vectors_are_aligned_to_the_whole_vector() -> None:
    text = ".visible .entry kernel(.param .u8 a, .param .v4 .f32 b, .param .u8 c, .param .align 4 .v2 .f32 d) { ret; }"
    offsets = [parameter.offset for parameter in ptx.parse(text).kernels["kernel"].parameters]
    assert offsets == [0, 16, 32, 36]


def test_shared_memory_that_the_launch_adds_is_aligned_as_its_variable_says() -> None:
    declared = ".shared .b8 fixed[20]; .extern .shared .align 128 .b8 added[];"
    body = "mov.u64 %rd2, fixed; mov.u64 %rd3, added; st.global.v2.u64 [%rd1], {%rd2, %rd3};"
    found = np.zeros(2, np.int64)
    run(written(body, declared), 1, 1, found, shared_bytes=64)
    assert found.tolist() == [0, 128]


def test_directives_may_follow_each_other_without_a_space() -> None:
    """As in ``cuda_fp16.h``, whose assembly the compiler copies into the PTX."""
    source = """
    __device__ int three = 3;
    extern "C" __global__ void kernel(uint32* out) {
        asm("{.reg.b32 a; .reg.b16 l, h; .shared.align 16.v2.u32 s;\\n"
            "mov.b32 a, 0x00050007; mov.b32 {l, h}, a; mov.b32 %0, {h, l};}" : "=r"(out[0]));
    }
    """
    out = np.zeros(1, np.uint32)
    run(load(source).kernels["kernel"], 1, 1, out)
    assert out[0] == 0x00070005


def test_two_slashes_in_the_name_of_a_file_begin_no_comment() -> None:
    text = '.file 1 "/a//b.cu" // "c\n.entry k() { .loc 1 3 0\n trap; } /* " */ .file 2 "d"'
    with pytest.raises(ptx.Trap, match=r"line 3 of the PTX, from /a//b.cu:3: trap"):
        ptx.parse(text).kernels["k"].run((1,), (1,), [], [])


def test_managed_variables_are_variables_in_global_memory() -> None:
    module = ptx.parse(".visible .global .attribute(.managed) .align 8 .u32 x = 7;")
    assert module.variable("x").view(np.uint32).tolist() == [7]


def test_modules_of_the_same_text_have_variables_of_their_own() -> None:
    source = '__device__ int count; extern "C" __global__ void kernel() { count += 1; }'
    first, second = load(source), load(source)
    run(first.kernels["kernel"], 1, 1)
    run(first.kernels["kernel"], 1, 1)
    run(second.kernels["kernel"], 1, 1)
    assert [module.variable("count").view(np.int32)[0] for module in (first, second)] == [2, 1]


def test_addresses_in_several_state_spaces_at_once() -> None:
    source = """
    __device__ __noinline__ int twice(int* p) { *p *= 2; return *p; }
    extern "C" __global__ void kernel(int* x, int* out, int n) {
        __shared__ int shared[64]; int local[4];
        int t = threadIdx.x; shared[t] = t; for (int i = 0; i < 4; i++) local[i] = 100 + t + i;
        int* p = t % 3 == 0 ? &shared[t] : t % 3 == 1 ? &x[t] : &local[n];
        out[t] = twice(p);
    }
    """
    x, out = np.arange(1000, 1064, dtype=np.int32), np.zeros(64, np.int32)
    before = x.copy()
    run(load(source).kernels["kernel"], 1, 64, x, out, 2)
    t = np.arange(64)
    np.testing.assert_array_equal(out, 2 * np.choose(t % 3, [t, before, 102 + t]))
    np.testing.assert_array_equal(x, np.where(t % 3 == 1, 2 * before, before))


def test_each_address_is_in_its_state_space() -> None:
    source = """
    __device__ int variable; __constant__ int constant;
    extern "C" __global__ void kernel(int* out, const __grid_constant__ int parameter) {
        __shared__ int shared; volatile int local = 1;
        const void* given[6] = {out, &variable, &constant, &shared, (const void*)&local, &parameter};
        for (int i = 0; i < 6; i++) {
            const void* p = given[(i + out[0]) % 6];
            int* o = out + 1 + (i + out[0]) % 6 * 5;
            o[0] = __isGlobal(p); o[1] = __isConstant(p); o[2] = __isShared(p); o[3] = __isLocal(p);
            o[4] = __isGridConstant(p);
        }
    }
    """
    out = np.zeros(31, np.int32)
    run(load(source).kernels["kernel"], 1, 1, out, bytes(4))
    names = ["global", "const", "shared", "local", "param"]
    found = [[name for name, holds in zip(names, row, strict=True) if holds] for row in out[1:].reshape(6, 5).tolist()]
    # The window of kernels' parameters is a part of global memory.
    assert found == [["global"], ["global"], ["const"], ["shared"], ["local"], ["global", "param"]]


@pytest.mark.parametrize(("space", "holds"), [("global", 1), ("const", 0), ("shared::cta", 0), ("param::entry", 0)])
def test_an_address_of_no_memory_is_global(space: str, holds: int) -> None:
    out = np.full(1, 7, np.int32)
    run(written(f"isspacep.{space} %p1, 4096; selp.u32 %r1, 1, 0, %p1; st.global.u32 [%rd1], %r1;"), 1, 1, out)
    assert out[0] == holds


def test_structures_as_arguments() -> None:
    source = """
    struct Shape { int64 extents[4]; int rank; float scale; };
    extern "C" __global__ void kernel(Shape s, uint8 flag, float* out, double d) {
        int64 product = 1;
        for (int i = 0; i < s.rank; i++) product *= s.extents[i];
        out[threadIdx.x] = product * s.scale + flag + d;
    }
    """
    kernel = load(source).kernels["kernel"]
    shape = np.zeros(1, np.dtype([("extents", "i8", 4), ("rank", "i4"), ("scale", "f4")]))
    shape["extents"], shape["rank"], shape["scale"] = [2, 3, 5, 7], 3, 0.5
    out = np.zeros(4, np.float32)
    run(kernel, 1, 4, shape.tobytes(), 200, out, 0.25)
    assert out.tolist() == [215.25] * 4
    assert [(parameter.type, parameter.size, parameter.offset) for parameter in kernel.parameters] == [
        ("b8", 40, 0),
        ("u8", 1, 40),
        ("u64", 8, 48),
        ("f64", 8, 56),
    ]


def test_the_geometry_of_a_launch() -> None:
    source = """
    extern "C" __global__ void kernel(int* out) {
        int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
        int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
        int i = block * (blockDim.x * blockDim.y * blockDim.z) + thread;
        uint32 lane; asm("mov.u32 %0, %%laneid;" : "=r"(lane));
        out[2 * i] = ((threadIdx.z * 10 + threadIdx.y) * 10 + threadIdx.x) * 1000
            + (blockIdx.z * 10 + blockIdx.y) * 10 + blockIdx.x;
        out[2 * i + 1] = lane;
    }
    """
    out = np.zeros((2 * 3 * 4, 4 * 3 * 5, 2), np.int32)
    run(load(source).kernels["kernel"], (2, 3, 4), (4, 3, 5), out)
    for block in range(24):
        for thread in range(60):
            x, y, z = thread % 4, thread // 4 % 3, thread // 12
            bx, by, bz = block % 2, block // 2 % 3, block // 6
            assert out[block, thread].tolist() == [(z * 100 + y * 10 + x) * 1000 + bz * 100 + by * 10 + bx, thread % 32]


def test_a_thread_may_end_before_a_barrier() -> None:
    source = """
    extern "C" __global__ void kernel(int* out, int n) {
        __shared__ int s[64];
        int t = threadIdx.x;
        s[t] = t;
        if (t >= n) return;
        __syncthreads();
        out[t] = s[63 - t];
    }
    """
    out = np.zeros(64, np.int32)
    run(load(source).kernels["kernel"], 1, 64, out, 40)
    assert out.tolist() == [63 - thread for thread in range(40)] + [0] * 24


def test_the_clock_runs() -> None:
    source = """
    extern "C" __global__ void kernel(int64* out) {
        int64 a = clock64(); __syncthreads(); int64 b = clock64(); out[threadIdx.x] = b - a;
    }
    """
    out = np.zeros(32, np.int64)
    run(load(source).kernels["kernel"], 1, 32, out)
    assert (out > 0).all()


def test_executed_instructions_and_accessed_bytes_are_counted() -> None:
    source = 'extern "C" __global__ void kernel(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }'
    x, y = np.zeros(64, np.float32), np.zeros(64, np.float32)
    counters = run(load(source).kernels["kernel"], 1, 64, x, y)
    assert counters.instructions % 64 == 0
    assert counters.instructions >= 64 * 5
    traffic = {name: (value.read, value.written) for name, value in counters.traffic.items()}
    assert traffic == {"shared": (0, 0), "local": (0, 0), "argument 0": (256, 0), "argument 1": (0, 256)}


def test_bytes_of_regions_of_one_name_are_counted_together() -> None:
    kernel = written("st.global.u32 [%rd1], 5; st.global.u32 [%rd1+4096], 6; st.global.u32 [%rd1+8192], 7;")
    regions = [ptx.Region(start, np.zeros(64, np.uint8)) for start in (4096, 8192)]
    regions.append(ptx.Region(12288, np.zeros(64, np.uint8), True, "shared"))
    for _ in range(2):
        counters = kernel.run((1,), (1,), [4096], regions)
        assert [counters.traffic[name].written for name in ("memory", "shared")] == [8, 4]


# Calls that make no sense


def kernel_of(body: str) -> ptx.Kernel:
    return load(f'extern "C" __global__ void kernel(float* x, int n, float f) {{ {body} }}').kernels["kernel"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "3 parameters, but 0 arguments"),
        ((1, 2.0, 3.0), "must be an integer, not 2.0"),
        ((1, 1 << 40, 3.0), "cannot be 1099511627776"),
        ((1, None, 3.0), "must be a number or bytes, not None"),
        ((b"123", 1, 3.0), "has 3 bytes"),
        ((1, 2, 10**400), "cannot be 10+: no double is as great"),
    ],
)
def test_arguments_that_do_not_fit(arguments: tuple[object, ...], problem: str) -> None:
    with pytest.raises((TypeError, ValueError), match=problem):
        kernel_of("x[0] = n * f;").run((1,), (1,), arguments, [])  # type: ignore[arg-type]


FLOATS: list[tuple[str, object, int]] = [
    ("f32", 1.5, 0x3FC00000),
    ("f32", 1e39, 0x7F800000),
    ("f32", -1e300, 0xFF800000),
    ("f32", 10**39, 0x7F800000),
    # A double rounds these to the point half way between two singles.
    ("f32", (1 << 60) + (1 << 36) + 1, 0x5D800001),
    ("f32", np.int64(-((1 << 60) + 3 * (1 << 36) - 1)), 0xDD800001),
    ("f32", 3.4028235677973366e38, 0x7F800000),
    ("f32", 3.4028235677973362e38, 0x7F7FFFFF),
    ("f32", 1e-46, 0),
    ("f32", math.inf, 0x7F800000),
    ("f32", math.nan, 0x7FC00000),
    ("f32", -math.nan, 0xFFC00000),
    ("f64", np.float32(0.5), 0x3FE0000000000000),
    ("f64", 1e308, 0x7FE1CCF385EBC8A0),
    ("f16", 65519.0, 0x7BFF),
    ("f16", 65520.0, 0x7C00),
    ("bf16", 1.0, 0x3F80),
    ("bf16", -3, 0xC040),
    ("bf16", 1 + 2.0**-8 + 2.0**-40, 0x3F81),
    ("bf16", 1e39, 0x7F80),
    ("bf16", -math.inf, 0xFF80),
]


@pytest.mark.parametrize(("type_", "number", "bits"), FLOATS)
def test_numbers_become_the_floats_that_a_launch_from_c_would_pass(type_: str, number: float, bits: int) -> None:
    kernel = ptx.parse(f".visible .entry kernel(.param .u8 first, .param .{type_} number) {{ ret; }}").kernels["kernel"]
    size = kernel.parameters[1].size
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kernel.pack([1, number]) == bytes([1]).ljust(size, b"\0") + bits.to_bytes(size, "little")


def test_two_short_floats_are_given_by_their_bytes() -> None:
    kernel = ptx.parse(".visible .entry kernel(.param .f16x2 pair) { ret; }").kernels["kernel"]
    assert kernel.pack([b"\0\x3c\0\x40"]) == b"\0\x3c\0\x40"
    for number in (1.0, 1):
        with pytest.raises(TypeError, match=f"must be given by its bytes, not as {number}"):
            kernel.pack([number])


@pytest.mark.parametrize(
    ("grid", "block", "shared", "problem"),
    [
        ((1,), (1025,), 0, "a block has one to three extents"),
        ((1,), (64, 32), 0, "at most 1024 threads, not 2048"),
        ((0,), (1,), 0, "a grid has one to three extents"),
        ((1.5,), (1,), 0, r"a grid has one to three extents, integers from 1 to .*, not \(1.5,\)"),
        ((1,), (1,), 1 << 20, "at most 232448 bytes of shared memory"),
    ],
)
def test_launches_that_cannot_be(grid: tuple[Any, ...], block: tuple[int, ...], shared: int, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        kernel_of("x[0] = n * f;").run(grid, block, [1, 2, 3.0], [], shared)


@pytest.mark.parametrize(
    ("regions", "problem"),
    [
        ([(4096, 64), (4100, 64)], "b overlaps a"),
        ([(0, 64), (4100, 64)], "no address of a device"),
    ],
)
def test_regions_that_cannot_be(regions: list[tuple[int, int]], problem: str) -> None:
    given = [
        ptx.Region(start, np.zeros(size, np.uint8), True, name)
        for (start, size), name in zip(regions, "ab", strict=True)
    ]
    with pytest.raises(ValueError, match=problem):
        kernel_of("x[0] = n * f;").run((1,), (1,), [4096, 2, 3.0], given)
