"""Threads that work together: shared memory, barriers, warps, atomics."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cuda.ptx.support import load, run

pytestmark = pytest.mark.emulated

ARCHITECTURES = ["compute_80", "compute_90"]

REDUCTION = """
extern "C" __global__ void kernel(const float* x, float* out, int n) {
    __shared__ float s[256];
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i];
    s[threadIdx.x] = sum;
    __syncthreads();
    for (int step = blockDim.x / 2; step; step /= 2) {
        if (threadIdx.x < step) s[threadIdx.x] += s[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = s[0];
}
"""

SOFTMAX = """
__device__ float warp_max(float v) { for (int k = 16; k; k /= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, k)); return v; }
__device__ float warp_sum(float v) { for (int k = 16; k; k /= 2) v += __shfl_down_sync(~0u, v, k); return v; }
extern "C" __global__ void kernel(const float* x, float* y, int n) {
    __shared__ float s[32];
    const float* row = x + (int64)blockIdx.x * n; float* out = y + (int64)blockIdx.x * n;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    float m = -3e38f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) m = fmaxf(m, row[i]);
    m = warp_max(m);
    if (lane == 0) s[warp] = m;
    __syncthreads();
    m = s[0];
    for (int i = 1; i < warps; i++) m = fmaxf(m, s[i]);
    __syncthreads();
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += expf(row[i] - m);
    sum = warp_sum(sum);
    if (lane == 0) s[warp] = sum;
    __syncthreads();
    sum = 0;
    for (int i = 0; i < warps; i++) sum += s[i];
    for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = expf(row[i] - m) / sum;
}
"""

TRANSPOSE = """
extern "C" __global__ void kernel(const float* x, float* y, int rows, int columns) {
    __shared__ float tile[32][33];
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8)
        if (column < columns && row + k < rows) tile[threadIdx.y + k][threadIdx.x] = x[(row + k) * columns + column];
    __syncthreads();
    column = blockIdx.y * 32 + threadIdx.x, row = blockIdx.x * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8)
        if (column < rows && row + k < columns) y[(row + k) * rows + column] = tile[threadIdx.x][threadIdx.y + k];
}
"""


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("block", [64, 256])
def test_a_reduction_through_shared_memory(architecture: str, block: int) -> None:
    x = np.random.default_rng(0).integers(-100, 100, 10000).astype(np.float32)
    out = np.zeros(7, np.float32)
    run(load(REDUCTION, architecture).kernels["kernel"], 7, block, x, out, len(x))
    assert out.sum() == x.sum()
    assert (out != 0).all()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("columns", [1, 33, 512, 1000])
def test_softmax_of_rows(architecture: str, columns: int) -> None:
    x = np.random.default_rng(0).standard_normal((50, columns)).astype(np.float32)
    y = np.zeros_like(x)
    run(load(SOFTMAX, architecture).kernels["kernel"], 50, 128, x, y, columns)
    powers = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, powers / powers.sum(1, keepdims=True), rtol=2e-6)


@pytest.mark.parametrize("shape", [(64, 96), (45, 70), (1, 200)])
def test_a_transpose_through_shared_memory(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    y = np.zeros(shape[::-1], np.float32)
    grid = (-(-shape[1] // 32), -(-shape[0] // 32))
    run(load(TRANSPOSE).kernels["kernel"], grid, (32, 8), x, y, *shape)
    np.testing.assert_array_equal(y, x.T)


def test_memory_that_the_launch_adds() -> None:
    source = """
    extern __shared__ int words[];
    extern "C" __global__ void kernel(const int* x, int* y, int n) {
        __shared__ int fixed[4];
        if (threadIdx.x < 4) fixed[threadIdx.x] = 100 * threadIdx.x;
        words[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
        y[threadIdx.x] = words[n - 1 - threadIdx.x] + fixed[threadIdx.x % 4];
    }
    """
    x, y = np.arange(96, dtype=np.int32), np.zeros(96, np.int32)
    run(load(source).kernels["kernel"], 1, 96, x, y, 96, shared_bytes=96 * 4)
    np.testing.assert_array_equal(y, x[::-1] + 100 * (np.arange(96) % 4))


def test_shared_memory_that_nobody_has_written_to_is_nan() -> None:
    source = """
    extern "C" __global__ void kernel(float* y) {
        __shared__ float s[32]; volatile float* p = s;
        y[threadIdx.x] = p[threadIdx.x];
    }
    """
    y = np.zeros(32, np.float32)
    run(load(source).kernels["kernel"], 1, 32, y)
    assert np.isnan(y).all()


# Atomics

HISTOGRAM = """
extern "C" __global__ void kernel(const uint8* x, uint32* bins, int n) {
    __shared__ uint32 local[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[x[i]], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&bins[i], local[i]);
}
"""


def test_a_histogram() -> None:
    x = (np.random.default_rng(0).standard_normal(20000) * 30 + 128).clip(0, 255).astype(np.uint8)
    bins = np.zeros(256, np.uint32)
    run(load(HISTOGRAM).kernels["kernel"], 12, 128, x, bins, len(x))
    np.testing.assert_array_equal(bins, np.bincount(x, minlength=256))


ATOMICS = """
extern "C" __global__ void kernel(const int* x, int* i, uint32* u, uint64* l, float* f, double* d, int* order) {
    int t = blockIdx.x * blockDim.x + threadIdx.x, v = x[t];
    atomicAdd(i, v); atomicMin(i + 1, v); atomicMax(i + 2, v); atomicSub(i + 3, v); atomicExch(i + 4, v);
    atomicAnd(u, v); atomicOr(u + 1, v); atomicXor(u + 2, v); atomicInc(u + 3, 9u); atomicDec(u + 4, 6u);
    atomicMin(u + 5, (uint32)v); atomicMax(u + 6, (uint32)v);
    atomicAdd(l, (uint64)v); atomicMax(l + 1, (uint64)v);
    atomicAdd(f, 0.5f * v); atomicAdd(d, 0.25 * v);
    order[atomicAdd(i + 5, 1)] = t;
    float old, wanted; int* p = (int*)(f + 1);
    do { old = *(volatile float*)p; wanted = old + 1.0f; }
    while (atomicCAS(p, __float_as_int(old), __float_as_int(wanted)) != __float_as_int(old));
}
"""


def test_atomics() -> None:
    x = np.random.default_rng(0).integers(-(1 << 20), 1 << 20, 300).astype(np.int32)
    i, u = (
        np.array([0, 1 << 30, -(1 << 30), 0, 0, 0], np.int32),
        np.array([~0, 0, 0, 0, 0, ~0 & 0xFFFFFFFF, 0], np.int64).astype(np.uint32),
    )
    longs, f, d = np.zeros(2, np.uint64), np.zeros(2, np.float32), np.zeros(1)
    order = np.full(300, -1, np.int32)
    kernel = load(ATOMICS).kernels["kernel"]
    # Threads read values that others swap: the loop is meant to, so races are not sought.
    run(kernel, 3, 100, x, i, u, longs, f, d, order, check_global_races=False)
    wide, unsigned = x.astype(np.int64), x.view(np.uint32)
    assert i.tolist() == [wide.sum(), x.min(), x.max(), -wide.sum(), i[4], 300]
    assert i[4] in x
    expected = [np.bitwise_and.reduce(unsigned), np.bitwise_or.reduce(unsigned), np.bitwise_xor.reduce(unsigned)]
    assert u.tolist() == [*expected, 300 % 10, (0 - 300) % 7, unsigned.min(), unsigned.max()]
    sign_extended = wide.view(np.uint64)
    assert longs.tolist() == [int(sign_extended.sum(dtype=np.uint64)), int(sign_extended.max())]
    assert f.tolist() == [0.5 * wide.sum(), 300.0]
    assert d.tolist() == [0.25 * wide.sum()]
    assert sorted(order.tolist()) == list(range(300))


def test_the_last_block_sees_writes_of_others_before_their_fence() -> None:
    source = """
    __device__ uint32 done = 0;
    extern "C" __global__ void kernel(const float* x, float* parts, float* out) {
        __shared__ bool last;
        if (threadIdx.x == 0) {
            parts[blockIdx.x] = x[blockIdx.x];
            __threadfence();
            last = atomicInc(&done, gridDim.x - 1) == gridDim.x - 1;
        }
        __syncthreads();
        if (last && threadIdx.x == 0) {
            float sum = 0;
            for (int i = 0; i < gridDim.x; i++) sum += parts[i];
            *out = sum;
        }
    }
    """
    x = np.arange(1, 41, dtype=np.float32)
    module = load(source)
    for _ in range(2):  # the counter is a variable of the module, and back at zero
        parts, out = np.zeros_like(x), np.zeros(1, np.float32)
        run(module.kernels["kernel"], 40, 64, x, parts, out)
        assert out[0] == x.sum()
    assert module.variable("done").view(np.uint32)[0] == 0


def test_a_lock_that_threads_spin_on() -> None:
    """The threads that wait are earlier in the text than the one that has the lock."""
    source = """
    extern "C" __global__ void kernel(int* lock, int* count) {
        bool done = false;
        while (atomicCAS(lock, 0, 1) != 0) {}
        *(volatile int*)count = *(volatile int*)count + 1;
        __threadfence();
        atomicExch(lock, 0);
    }
    """
    lock, count = np.zeros(1, np.int32), np.zeros(1, np.int32)
    run(load(source).kernels["kernel"], 3, 8, lock, count, check_global_races=False)
    assert count[0] == 24


def test_atomics_of_short_floats() -> None:
    source = """
    extern "C" __global__ void kernel(uint32* x) {
        uint16 one = 0x3C00; uint32 old, pair = 0x3C004000;
        asm volatile("atom.global.add.noftz.f16 %0, [%1], %2;" : "=h"(one) : "l"(x), "h"(one) : "memory");
        asm volatile("atom.global.add.noftz.f16x2 %0, [%1], %2;" : "=r"(old) : "l"(x + 1), "r"(pair) : "memory");
    }
    """
    x = np.zeros(4, np.float16)
    run(load(source).kernels["kernel"], 2, 32, x.view(np.uint32))
    assert x.tolist() == [64.0, 0.0, 128.0, 64.0]


# Warps

WARPS = """
extern "C" __global__ void kernel(const int* x, int* out) {
    int t = threadIdx.x, v = x[t]; int* o = out + t * 16;
    o[0] = __shfl_up_sync(~0u, v, 3); o[1] = __shfl_down_sync(~0u, v, 5); o[2] = __shfl_xor_sync(~0u, v, 9);
    o[3] = __shfl_sync(~0u, v, t + 7); o[4] = __shfl_sync(~0u, v, 3, 8); o[5] = __shfl_down_sync(~0u, v, 2, 4);
    o[6] = __ballot_sync(~0u, v > 0); o[7] = __all_sync(~0u, v > -1000); o[8] = __any_sync(~0u, v > 90);
    o[9] = __match_any_sync(~0u, v & 3); o[10] = __activemask();
    int same; o[11] = __match_all_sync(~0u, t / 32, &same); o[12] = same;
    o[13] = __reduce_add_sync(~0u, v); o[14] = __reduce_max_sync(~0u, v); o[15] = __reduce_xor_sync(~0u, (uint32)v);
}
"""


def test_instructions_of_warps() -> None:
    x = np.random.default_rng(0).integers(-100, 100, 64).astype(np.int32)
    out = np.zeros((64, 16), np.int32)
    run(load(WARPS).kernels["kernel"], 1, 64, x, out)
    lane = np.arange(32)
    for warp in range(2):
        v, o = x[32 * warp : 32 * warp + 32], out[32 * warp : 32 * warp + 32].T

        def mask(holds: np.ndarray) -> int:
            return int(
                np.array([(holds.astype(np.uint64) << lane.astype(np.uint64)).sum()], np.uint64)
                .astype(np.uint32)
                .view(np.int32)[0]
            )

        np.testing.assert_array_equal(o[0], v[np.where(lane < 3, lane, lane - 3)])
        np.testing.assert_array_equal(o[1], v[np.where(lane + 5 > 31, lane, lane + 5)])
        np.testing.assert_array_equal(o[2], v[lane ^ 9])
        np.testing.assert_array_equal(o[3], v[(lane + 7) % 32])
        np.testing.assert_array_equal(o[4], v[lane // 8 * 8 + 3])
        np.testing.assert_array_equal(o[5], v[np.where(lane % 4 + 2 > 3, lane, lane + 2)])
        assert set(o[6].tolist()) == {mask(v > 0)}
        assert set(o[7].tolist()) == {1}
        assert set(o[8].tolist()) == {int((v > 90).any())}
        assert o[9].tolist() == [mask(v & 3 == one & 3) for one in v]
        assert set(o[10].tolist()) == set(o[11].tolist()) == {-1}
        assert set(o[12].tolist()) == {1}
        assert set(o[13].tolist()) == {v.sum()}
        assert set(o[14].tolist()) == {v.max()}
        assert set(o[15].tolist()) == {np.bitwise_xor.reduce(v)}


def test_parts_of_a_warp_meet_apart() -> None:
    source = """
    extern "C" __global__ void kernel(const int* x, int* out) {
        int t = threadIdx.x, v = x[t];
        if (t % 32 < 8) out[t] = __shfl_xor_sync(0x000000FFu, v, 1) + __popc(__ballot_sync(0x000000FFu, v & 1));
        else out[t] = __reduce_add_sync(0xFFFFFF00u, v);
    }
    """
    x = np.arange(64, dtype=np.int32) * 3
    out = np.zeros_like(x)
    run(load(source).kernels["kernel"], 1, 64, x, out)
    for warp, got in zip(x.reshape(2, 32), out.reshape(2, 32), strict=True):
        odd = int((warp[:8] & 1).sum())
        assert got[:8].tolist() == [int(warp[lane ^ 1]) + odd for lane in range(8)]
        assert set(got[8:].tolist()) == {int(warp[8:].sum())}


def test_threads_that_come_to_a_shuffle_at_different_times_wait() -> None:
    source = """
    extern "C" __global__ void kernel(const int* x, int* out) {
        int t = threadIdx.x, v = 0;
        for (int i = 0; i < x[t]; i++) v += i;
        out[t] = __shfl_xor_sync(~0u, v, 31);
    }
    """
    x = np.random.default_rng(0).integers(0, 20, 50).astype(np.int32)
    out = np.zeros_like(x)
    sums = x * (x - 1) // 2
    run(load(source).kernels["kernel"], 1, 50, x, out)
    np.testing.assert_array_equal(out[:32], sums[:32][::-1])


@pytest.mark.parametrize(("name", "reference"), [("count", np.sum), ("and", np.all), ("or", np.any)])
def test_barriers_that_reduce(name: str, reference: np.ufunc) -> None:
    source = f"""
    extern "C" __global__ void kernel(const int* x, int* out) {{
        int t = blockIdx.x * blockDim.x + threadIdx.x;
        out[t] = __syncthreads_{name}(x[t]);
    }}
    """
    x = (np.random.default_rng(0).random(4 * 96) < 0.9).astype(np.int32)
    x[:96], x[96:192] = 1, 0
    out = np.zeros_like(x)
    run(load(source).kernels["kernel"], 4, 96, x, out)
    assert out.reshape(4, 96)[:, 0].tolist() == [int(reference(row)) for row in x.reshape(4, 96)]
    assert (out.reshape(4, 96) == out.reshape(4, 96)[:, :1]).all()
