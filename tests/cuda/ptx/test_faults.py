"""Planted bugs are found, and said clearly; each has a twin without the bug, which runs."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.cuda.ptx.support import APART, TYPES, load, run
from tests.cuda.ptx.test_blocks import REDUCTION, TRANSPOSE
from vmflow.streams.cuda import ptx

pytestmark = pytest.mark.emulated


def kernel(source: str) -> ptx.Kernel:
    return load(source, "compute_80", "-lineinfo").kernels["kernel"]


def line_of(source: str, part: str) -> int:
    """The line of the compiled source, which begins with the types."""
    return (TYPES + source)[: (TYPES + source).index(part)].count("\n") + 1


# Races in shared memory


def test_a_reduction_without_its_barrier() -> None:
    x, out = np.ones(1000, np.float32), np.zeros(2, np.float32)
    run(kernel(REDUCTION), 2, 256, x, out, 1000)
    assert out.sum() == 1000
    broken = REDUCTION.replace("s[threadIdx.x] = sum;\n    __syncthreads();", "s[threadIdx.x] = sum;")
    with pytest.raises(
        ptx.DataRace, match=r"reads byte 512 of shared memory, which thread \(128, 0, 0\) of block"
    ) as caught:
        run(kernel(broken), 2, 256, x, out, 1000)
    assert caught.value.threads[0].thread == (0, 0, 0)
    assert f"kernel.cu:{line_of(broken, 's[threadIdx.x] +=')}" in str(caught.value)


def test_a_reduction_without_the_barrier_of_its_loop() -> None:
    broken = REDUCTION.replace("        __syncthreads();\n    }", "    }")
    assert broken != REDUCTION
    with pytest.raises(ptx.DataRace, match="no barrier comes in between"):
        run(kernel(broken), 2, 256, np.ones(1000, np.float32), np.zeros(2, np.float32), 1000)


def test_a_transpose_without_its_barrier() -> None:
    x, y = np.arange(64 * 64, dtype=np.float32).reshape(64, 64), np.zeros((64, 64), np.float32)
    run(kernel(TRANSPOSE), (2, 2), (32, 8), x, y, 64, 64)
    np.testing.assert_array_equal(y, x.T)
    with pytest.raises(ptx.DataRace, match="shared memory"):
        run(kernel(TRANSPOSE.replace("__syncthreads();", "")), (2, 2), (32, 8), x, y, 64, 64)


WARP_ORDER = """
extern "C" __global__ void kernel(int* out) {
    __shared__ volatile int s[64];
    int t = threadIdx.x;
    s[t] = t;
    ORDER
    out[t] = s[t ^ 1];
}
"""


@pytest.mark.parametrize(
    "order",
    [
        "__syncwarp();",
        "__ballot_sync(~0u, 1);",
        "s[t] = s[t] + 0 * __shfl_sync(~0u, t, 0); __syncwarp();",
        "__syncthreads();",
    ],
)
def test_threads_of_a_warp_are_ordered_by_common_instructions(order: str) -> None:
    out = np.zeros(64, np.int32)
    run(kernel(WARP_ORDER.replace("ORDER", order)), 1, 64, out)
    assert out.tolist() == [thread ^ 1 for thread in range(64)]


@pytest.mark.parametrize(
    ("order", "partner"),
    [
        ("", "t ^ 1"),
        ("__syncwarp();", "t ^ 32"),
        ("__threadfence_block();", "t ^ 1"),
        ("if (t < 32) __syncwarp();", "t ^ 32"),
    ],
)
def test_threads_are_not_ordered_by_less(order: str, partner: str) -> None:
    source = WARP_ORDER.replace("ORDER", order).replace("t ^ 1", partner)
    with pytest.raises(ptx.DataRace, match="shared memory"):
        run(kernel(source), 1, 64, np.zeros(64, np.int32))


def test_two_threads_write_the_same_byte_at_once() -> None:
    source = """
    extern "C" __global__ void kernel(int* out) {
        __shared__ int s[32]; int i = threadIdx.x / WIDTH;
        s[i] = threadIdx.x; __syncthreads(); out[threadIdx.x] = s[i];
    }
    """
    out = np.zeros(32, np.int32)
    run(kernel(source.replace("WIDTH", "1")), 1, 32, out)
    with pytest.raises(ptx.DataRace, match=r"writes byte 0 of shared memory, which thread \(1, 0, 0\)"):
        run(kernel(source.replace("WIDTH", "2")), 1, 32, out)


def test_an_atomic_access_and_a_plain_one() -> None:
    source = """
    extern "C" __global__ void kernel(int* out) {
        __shared__ int s;
        if (threadIdx.x == 0) s = 0;
        FIRST
        atomicAdd(&s, 1);
        SECOND
        out[threadIdx.x] = s;
    }
    """
    out = np.zeros(64, np.int32)
    run(kernel(source.replace("FIRST", "__syncthreads();").replace("SECOND", "__syncthreads();")), 1, 64, out)
    assert set(out.tolist()) == {64}
    for first, second in (("", "__syncthreads();"), ("__syncthreads();", "")):
        with pytest.raises(ptx.DataRace):
            run(kernel(source.replace("FIRST", first).replace("SECOND", second)), 1, 64, out)


# Races in global memory

NEIGHBOURS = """
extern "C" __global__ void kernel(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = x[i];
    ORDER
    x[INDEX] = v + 1;
}
"""


def neighbours(index: str, order: str = "") -> ptx.Kernel:
    return kernel(NEIGHBOURS.replace("INDEX", index).replace("ORDER", order))


def test_blocks_that_write_the_input_of_others() -> None:
    x = np.arange(256, dtype=np.float32)
    run(neighbours("i"), 4, 64, x, 256)
    assert x.tolist() == list(range(1, 257))
    with pytest.raises(ptx.DataRace, match=r"writes byte \d+ of argument 0 .*, which thread .* has read"):
        run(neighbours("(i + 64) % n"), 4, 64, x, 256)
    run(neighbours("(i + 64) % n"), 4, 64, x, 256, check_global_races=False)


def test_threads_of_a_block_are_ordered_by_a_barrier_in_global_memory_too() -> None:
    x = np.arange(256, dtype=np.float32)
    index = "i / 64 * 64 + (i + 1) % 64"
    run(neighbours(index, "__syncthreads();"), 4, 64, x, 256)
    with pytest.raises(ptx.DataRace, match="nothing orders them within the launch"):
        run(neighbours(index), 4, 64, x, 256)


@pytest.mark.parametrize("order", ["__syncthreads();", ""])
def test_reads_before_a_barrier_do_not_matter_behind_it(order: str) -> None:
    """The first thread reads again, and writes, bytes that all have read before the barrier."""
    source = """
    extern "C" __global__ void kernel(float* x, float* y) {
        float* row = x + blockIdx.x * 64;
        y[blockIdx.x * 64 + threadIdx.x] = row[threadIdx.x] + row[63 - threadIdx.x];
        ORDER
        if (threadIdx.x == 0) for (int i = 0; i < 64; i++) row[i] = row[i] + 1;
    }
    """.replace("ORDER", order)
    x = np.arange(128, dtype=np.float32)
    if order:
        run(kernel(source), 2, 64, x, np.zeros(128, np.float32))
        assert x.tolist() == list(range(1, 129))
        return
    with pytest.raises(ptx.DataRace, match="nothing orders them within the launch"):
        run(kernel(source), 2, 64, x, np.zeros(128, np.float32))


# Block 0 writes a number and raises a flag; block 1 waits for the flag, and reads the number after block 0 has gone on.
FLAG = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p)
{
 .reg .b64 %rd<4>; .reg .b32 %r<9>; .reg .pred %p<4>;
 ld.param.u64 %rd1,[p];
 mov.u32 %r1,%ctaid.x;
 setp.ne.u32 %p1,%r1,0;
 @%p1 bra READER;
 st.global.u32 [%rd1],7;
 FIRST
 atom.global.exch.b32 %r2,[%rd1+64],1;
AGAIN:
 atom.global.add.u32 %r3,[%rd1+128],0;
 setp.eq.u32 %p2,%r3,0;
 @%p2 bra AGAIN;
 SECOND
 ret;
READER:
WAIT:
 atom.global.add.u32 %r3,[%rd1+64],0;
 setp.eq.u32 %p2,%r3,0;
 @%p2 bra WAIT;
 membar.gl;
 atom.global.exch.b32 %r2,[%rd1+128],1;
 mov.u32 %r5,0;
SPIN:
 add.u32 %r5,%r5,1;
 setp.lt.u32 %p3,%r5,500;
 @%p3 bra SPIN;
 ld.global.u32 %r4,[%rd1];
 st.global.u32 [%rd1+256],%r4;
 ret;
}
"""


@pytest.mark.parametrize(("first", "second"), [("membar.gl;", ""), ("membar.gl;", "membar.gl;"), ("", "membar.gl;")])
def test_a_fence_before_the_flag_orders_blocks_whatever_fences_follow(first: str, second: str) -> None:
    program = ptx.parse(FLAG.replace("FIRST", first).replace("SECOND", second)).kernels["k"]
    memory = np.zeros(512, np.uint8)
    if first:
        program.run((2,), (1,), [0x10000], [ptx.Region(0x10000, memory)])
        assert memory.view(np.uint32)[64] == 7
        return
    with pytest.raises(ptx.DataRace, match="nothing orders them within the launch"):
        program.run((2,), (1,), [0x10000], [ptx.Region(0x10000, memory)])


def test_a_read_of_what_several_threads_have_accessed_atomically() -> None:
    program = ptx.parse(
        """.version 8.0
        .target sm_80
        .address_size 64
        .visible .entry k(.param .u64 p) {
            .reg .b32 %r<2>;
            .reg .b64 %rd<2>;
            ld.param.u64 %rd1, [p];
            atom.global.add.u32 %r1, [%rd1], 1;
            ld.global.u32 %r1, [%rd1];
            ret;
        }"""
    ).kernels["k"]
    with pytest.raises(ptx.DataRace, match="which one of several threads has accessed atomically: nothing orders them"):
        program.run((1,), (32,), [0x10000], [ptx.Region(0x10000, np.zeros(4, np.uint8))])


def test_blocks_far_apart_that_write_the_same_byte() -> None:
    """They are not even run at the same time."""
    x = np.zeros(1 << 17, np.float32)
    with pytest.raises(ptx.DataRace, match=r"has written") as caught:
        run(
            kernel(
                'extern "C" __global__ void kernel(float* x) { int i = blockIdx.x * 256 + threadIdx.x; '
                "x[i % 100000] = i; }"
            ),
            512,
            256,
            x,
        )
    assert caught.value.threads[0].block[0] > 300


@pytest.mark.parametrize("blocks", [1, 300])
def test_the_same_value_is_written_by_several_threads(blocks: int) -> None:
    """As flags are; that is a race only where one wishes so."""
    flags = kernel(
        'extern "C" __global__ void kernel(int* x, int v) { '
        "x[threadIdx.x / 2] = v + (int)(threadIdx.x & 1) * (v - 7); }"
    )
    x = np.zeros(64, np.int32)
    run(flags, blocks, 64, x, 7)
    assert x.tolist() == [7] * 32 + [0] * 32
    with pytest.raises(ptx.DataRace):
        run(flags, blocks, 64, x, 7, strict=True)
    with pytest.raises(ptx.DataRace):
        run(flags, blocks, 64, x, 8)


def test_the_values_of_a_store_to_two_regions_are_compared_in_each() -> None:
    """Half of the threads write to another region, two of them to each address; some values are there already."""
    body = """.reg .pred %p<2>; .reg .b32 %s<2>; .reg .b64 %a<3>; mov.u32 %r0, %tid.x; setp.lt.u32 %p1, %r0, 16;
      mul.wide.u32 %a0, %r0, 4; sub.u32 %s0, %r0, 16; shr.u32 %s1, %s0, 1; mul.wide.u32 %a1, %s1, 4;
      add.u64 %a1, %a1, 4096; selp.b64 %a2, %a0, %a1, %p1; add.u64 %a2, %a2, %rd1; st.global.u32 [%a2], VALUE;"""
    near, far = np.zeros(16, np.int32), np.zeros(8, np.int32)
    memory = [ptx.Region(4096, near.view(np.uint8), True, "near"), ptx.Region(8192, far.view(np.uint8), True, "far")]

    def stores(value: str) -> None:
        ptx.parse(ENTRY.replace("BODY", body.replace("VALUE", value))).kernels["first"].run((1,), (32,), [4096], memory)

    stores("%s1")
    assert far.tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    with pytest.raises(ptx.DataRace, match=r"writes byte 0 of far .*, which thread \(17, 0, 0\) "):
        stores("%r0")


def test_a_race_with_several_threads_names_one_of_them() -> None:
    body = "atom.global.add.u32 %r0, [%rd1], 1; ld.global.u32 %r0, [%rd1];"
    memory = [ptx.Region(4096, np.zeros(16, np.uint8))]
    with pytest.raises(ptx.DataRace, match="which one of several threads has accessed atomically: nothing orders"):
        ptx.parse(ENTRY.replace("BODY", body)).kernels["first"].run((1,), (64,), [4096], memory)


# Addresses

COPY = """
extern "C" __global__ void kernel(const TYPE* x, TYPE* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i + TO] = x[i + FROM];
}
"""


def copy(type_: str = "float", source: str = "0", target: str = "0") -> ptx.Kernel:
    return kernel(COPY.replace("TYPE", type_).replace("FROM", source).replace("TO", target))


@pytest.mark.parametrize(
    ("source", "count", "distance"),
    [("1", 100, "its end is 4 bytes beyond that of argument 0"), ("-1", 100, "it begins 4 bytes before argument 0")],
)
def test_a_read_out_of_bounds_by_one_element(source: str, count: int, distance: str) -> None:
    x, y = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    run(copy(), 2, 64, x, y, count)
    np.testing.assert_array_equal(x, y)
    with pytest.raises(ptx.IllegalAccess, match=re.escape(distance)) as caught:
        run(copy(source=source), 2, 64, x, y, count)
    wrong = 99 if source == "1" else 0
    assert caught.value.threads == (ptx.faults.ThreadName((wrong // 64, 0, 0), (wrong % 64, 0, 0)),)
    assert caught.value.address == APART + 4 * (wrong + int(source))
    assert "ld.global" in caught.value.place.text
    assert f"kernel.cu:{line_of(COPY, 'if (i < n)')}" in str(caught.value)


def test_a_write_out_of_bounds_by_one_element() -> None:
    x, y = np.arange(101, dtype=np.float32), np.zeros(100, np.float32)
    run(copy(), 2, 64, x, y, 100)
    with pytest.raises(
        ptx.IllegalAccess,
        match=r"thread \(36, 0, 0\) of block \(1, 0, 0\): writes 4 bytes at .*"
        r"; its end is 4 bytes beyond that of argument 1 \(400 bytes",
    ):
        run(copy(), 2, 64, x, y, 101)


def test_a_write_to_memory_that_is_read_only() -> None:
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    x.flags.writeable = False
    run(copy(), 1, 64, x, y, 64)
    y.flags.writeable = False
    with pytest.raises(ptx.IllegalAccess, match=r"in argument 1 .* which is read-only"):
        run(copy(), 1, 64, x, y, 64)


def test_a_write_to_a_parameter_of_a_kernel() -> None:
    for body in ("st.param.u32 [p], 5;", "mov.b64 %rd1, p; cvta.param.u64 %rd1, %rd1; st.u32 [%rd1], 5;"):
        with pytest.raises(ptx.IllegalAccess, match="writes 4 bytes at 0x0 of parameter memory, which is read-only"):
            ptx.parse(ENTRY.replace("BODY", body)).kernels["first"].run((1,), (1,), [4096], [])


def test_an_address_before_the_beginning_of_shared_memory() -> None:
    kernel = ptx.parse(".shared .b32 s[4];" + ENTRY.replace("BODY", "ld.shared.u32 %r1, [s+-4];")).kernels["first"]
    with pytest.raises(ptx.IllegalAccess, match="16 bytes: before its beginning"):
        kernel.run((1,), (1,), [4096], [])


def test_a_misaligned_access() -> None:
    x, y = np.arange(68, dtype=np.float32), np.zeros(68, np.float32)
    run(copy("float4"), 1, 32, x, y, 16)
    with pytest.raises(ptx.IllegalAccess, match=r"accesses 16 bytes at 0x100000004, which is not a multiple of 16"):
        copy("float4").run((1,), (32,), [APART + 4, 2 * APART, 16], regions(x, y))


def regions(*arrays: Any) -> list[ptx.Region]:
    return [
        ptx.Region((number + 1) * APART, array.view(np.uint8), True, f"argument {number}")
        for number, array in enumerate(arrays)
    ]


def test_memory_that_begins_at_any_address() -> None:
    """As a part of a greater one does."""
    x, y = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    given = [ptx.Region(4100, x.view(np.uint8), False, "x"), ptx.Region(8196, y.view(np.uint8), True, "y")]
    copy().run((1,), (32,), [4100, 8196, 16], given)
    np.testing.assert_array_equal(x, y)
    copy("float4").run((1,), (32,), [4112, 8208, 3], given)
    with pytest.raises(ptx.IllegalAccess, match="its end is 12 bytes beyond that of x"):
        copy("float4").run((1,), (32,), [4112 + 16, 8208, 3], given)


def test_an_address_of_nothing() -> None:
    with pytest.raises(
        ptx.IllegalAccess, match="reads 4 bytes at 0x0, out of all memory; it begins 4294967296 bytes before"
    ):
        copy().run((1,), (32,), [0, APART, 16], regions(np.zeros(16, np.float32)))


SHARED = """
extern "C" __global__ void kernel(int* y, int n) {
    __shared__ int s[64];
    s[threadIdx.x] = 5;
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x + n];
}
"""


def test_shared_memory_has_an_end() -> None:
    y = np.zeros(32, np.int32)
    run(kernel(SHARED), 2, 32, y, 0, check_global_races=False)
    with pytest.raises(
        ptx.IllegalAccess,
        match=r"thread \(31, 0, 0\) of block \(0, 0, 0\): accesses 4 bytes at 0x100 of shared memory, "
        r"which has 256 bytes: 4 bytes beyond its end",
    ):
        run(kernel(SHARED), 2, 32, y, 33)
    with pytest.raises(ptx.IllegalAccess, match="before its beginning"):
        run(kernel(SHARED), 2, 32, y, -1)


def test_local_memory_has_an_end() -> None:
    source = """
    extern "C" __global__ void kernel(int* y, int n) {
        int a[8];
        for (int i = 0; i < 8; i++) a[i] = i * threadIdx.x;
        a[(n + threadIdx.x) % 100] = 3;
        y[threadIdx.x] = a[y[threadIdx.x]];
    }
    """
    y = np.zeros(4, np.int32)
    run(kernel(source), 1, 4, y, 2)
    with pytest.raises(ptx.IllegalAccess, match="local memory, which has 32 bytes: 4 bytes beyond its end"):
        run(kernel(source), 1, 4, y, 5)


# Barriers

BARRIER = """
extern "C" __global__ void kernel(int* y, int n) {
    __shared__ int s[64];
    int t = threadIdx.x;
    s[t] = t;
    if (t < n) { __syncthreads(); s[t] += 1; __threadfence(); } else { ELSE }
    y[t] = s[t];
}
"""


def test_a_barrier_in_divergent_code() -> None:
    y = np.zeros(64, np.int32)
    run(kernel(BARRIER.replace("ELSE", "return;")), 2, 64, y, 64, check_global_races=False)
    run(kernel(BARRIER.replace("ELSE", "return;")), 2, 64, y, 10, check_global_races=False)
    with pytest.raises(
        ptx.BarrierError,
        match=r"waits at a barrier for thread \(10, 0, 0\) of block \(0, 0, 0\), which waits elsewhere, at line",
    ) as caught:
        run(kernel(BARRIER.replace("ELSE", "s[t] = 7; __syncthreads(); y[0] = 0;")), 2, 64, y, 10)
    assert f"kernel.cu:{line_of(BARRIER, 'if (t < n)')}" in str(caught.value)


def test_a_loop_whose_barrier_some_threads_reach_more_often() -> None:
    source = """
    extern "C" __global__ void kernel(int* y, int n) {
        int t = threadIdx.x;
        for (int i = 0; i < (t < 32 ? n : 3); i++) { y[t] += i; __syncthreads(); }
        y[t] += 1;
        __syncthreads();
    }
    """
    y = np.zeros(64, np.int32)
    run(kernel(source), 1, 64, y, 3)
    with pytest.raises(ptx.BarrierError, match="waits elsewhere"):
        run(kernel(source), 1, 64, y, 4)


def test_a_shuffle_with_a_mask_of_others() -> None:
    source = (
        'extern "C" __global__ void kernel(int* y, uint32 mask) { y[threadIdx.x] = __shfl_sync(mask, threadIdx.x, 3); }'
    )
    y = np.zeros(32, np.int32)
    run(kernel(source), 1, 32, y, 0xFFFFFFFF)
    assert set(y.tolist()) == {3}
    with pytest.raises(ptx.BarrierError, match=r"thread \(16, 0, 0\).*the mask 0x0000ffff does not include the thread"):
        run(kernel(source), 1, 32, y, 0xFFFF)


def test_a_shuffle_that_waits_for_threads_that_are_elsewhere() -> None:
    source = """
    extern "C" __global__ void kernel(int* y, int n) {
        int t = threadIdx.x;
        if (t < n) y[t] = __shfl_sync(~0u, t, 3); else { y[t] = 1; __syncthreads(); y[t] = 2; }
    }
    """
    y = np.zeros(32, np.int32)
    run(kernel(source), 1, 32, y, 32)
    with pytest.raises(
        ptx.BarrierError,
        match=r"waits at an instruction of its warp for thread \(8, 0, 0\) of block \(0, 0, 0\), which waits elsewhere",
    ):
        run(kernel(source), 1, 32, y, 8)


# The rest


def test_a_trap() -> None:
    source = 'extern "C" __global__ void kernel(int* y, int n) { if (threadIdx.x == n) __trap(); y[threadIdx.x] = 1; }'
    y = np.zeros(32, np.int32)
    run(kernel(source), 1, 32, y, 32)
    with pytest.raises(ptx.Trap, match=r"kernel kernel, thread \(7, 0, 0\) of block \(0, 0, 0\)"):
        run(kernel(source), 1, 32, y, 7)


def test_a_kernel_that_never_ends() -> None:
    source = 'extern "C" __global__ void kernel(volatile int* y) { while (y[0] == 0) {} y[threadIdx.x + 1] = 1; }'
    y = np.ones(40, np.int32)
    run(kernel(source), 1, 32, y)
    y[0] = 0
    with pytest.raises(ptx.NoProgress, match="have not ended after"):
        run(kernel(source), 1, 32, y, limit=5000)


def test_an_endless_kernel_stopped_where_a_guard_begins_a_block_names_the_guarded_instruction() -> None:
    endless = ptx.parse(ENTRY.replace("BODY", "L: @%p1 add.u32 %r1, %r1, 1; bra L; .reg .pred %p<2>;")).kernels["first"]
    for limit in (2, 3):
        with pytest.raises(ptx.NoProgress, match=r"at line 6 of the PTX: @ %p1 add\.u32"):
            endless.run((1,), (1,), [4096], [], limit=limit)


def test_an_instruction_that_is_not_known_is_named_when_its_kernel_is_used() -> None:
    first = ENTRY.replace("BODY", "frobnicate.u32 %r1, %r1;")
    module = ptx.parse(first + ENTRY.replace("first", "other").replace("BODY", "st.global.u32 [%rd1], 5;"))
    y = np.zeros(1, np.int32)
    run(module.kernels["other"], 1, 1, y)
    assert y[0] == 5
    with pytest.raises(
        ptx.UnsupportedInstruction, match=r"this instruction is not known: line 6 of the PTX: frobnicate.u32 %r1 , %r1"
    ):
        run(module.kernels["first"], 1, 1, y)


ENTRY = """
.visible .entry first(.param .u64 p) {
  .reg .b64 %rd<2>;
  .reg .b32 %r<3>;
  ld.param.u64 %rd1, [p];
  BODY
  ret;
}
"""


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("mov.u32 %r1, %r9;", "there is nothing of the name %r9"),
        ("add.u32 nowhere, %r1, 1;", "there is no register nowhere"),
        ("ld.global.u32 %r1, %rd1;", "an address is expected here"),
        ("shfl.down.b32 %r1, %r1, 1, 31;", "only shfl.sync is known"),
        ("prmt.b32.f4e %r1, %r1, %r2, 3;", "modes of prmt"),
        ("add.u32 %r1, %r1;", "this form of the instruction is not known"),
        ("bfi.b32 %r1, %r1, %r1, 1;", "this form of the instruction is not known"),
        ("bfi.b32 %r1, %r1, %r1, 1, 1, 1;", "this form of the instruction is not known"),
        ("activemask.b32 %r1, %r2;", "this form of the instruction is not known"),
        ("isspacep.u64 %r1, %rd1;", "this form of the instruction is not known"),
        ("add.sat.u32 %r1, %r1, 1;", "only results of the type s32 without a carry can be saturated"),
        ("sub.sat.s64 %rd1, %rd1, 1;", "only results of the type s32 without a carry can be saturated"),
        ("addc.sat.s32 %r1, %r1, 1;", "only results of the type s32 without a carry can be saturated"),
        ("mul.lo.sat.s32 %r1, %r1, 3;", "a product of integers cannot be saturated"),
        ("mul24.s32 %r1, %r1, 3;", "have a low or high half of the type s32 or u32"),
        ("mad24.lo.s64 %rd1, %rd1, 3, 4;", "have a low or high half of the type s32 or u32"),
        ("mad.hi.sat.u32 %r1, %r1, 3, 4;", "only results of the type s32 without a carry can be saturated"),
        ("mad.lo.sat.s32 %r1, %r1, 3, 4;", "only the upper half of a product plus an operand can be saturated"),
        ("mad.hi.sat.cc.s32 %r1, %r1, 3, 4;", "only results of the type s32 without a carry can be saturated"),
        ("bra INNER; { INNER: }", "there is no label INNER that this instruction can reach"),
        ("shfl.sync.up.b32 %r1, %r2, 1;", "this form of the instruction is not known"),
        ("bar.sync;", "this form of the instruction is not known"),
        ("ld.global.v2.u32 %r1, [%rd1];", "an access to 2 elements has 1 operands for them"),
        ("st.global.v2.u32 [%rd1], {%r1, %r1, %r1};", "an access to 2 elements has 3 operands for them"),
        ("atom.global.cas.b32 %r1, [%rd1], 0;", "this form of the instruction is not known"),
        ("setp.lt.u32 {%p1, %p2, %p3}, 1, 2; .reg .pred %p<4>;", "this comparison is not known"),
        ("{ .param .b32 x; call (x), one, (x, x); }", "the function has other results or parameters"),
        ("{ .param .b32 x; call one, (x); }", "the function has other results or parameters"),
        ("{ .param .align 16 .b8 x[16]; st.param.b128 [x], %rd1; }", "an access of this type is not known"),
        ("T: .branchtargets INNER; brx.idx %r1, T; { INNER: }", "there is no label INNER that"),
        ("brx.idx %r1, T; { T: .branchtargets OUTER; } OUTER: ", "there is no table T that"),
    ],
)
def test_forms_that_are_not_known(body: str, problem: str) -> None:
    one = ".func (.param .b32 r) one(.param .b32 a) { ret; }"
    kernel = ptx.parse(one + ENTRY.replace("BODY", body)).kernels["first"]
    with pytest.raises(ptx.UnsupportedInstruction, match=problem):
        kernel.run((1,), (1,), [4096], regions(np.zeros(4, np.int32)))


@pytest.mark.parametrize(
    ("text", "problem", "line"),
    [
        (".visible .entry f( {", "a parameter was expected, not '{'", 3),
        (".strange", "'.strange' is not known", 3),
        (ENTRY.replace("BODY", "#"), "is not understood", 8),
        (ENTRY.replace("BODY", "?"), "an instruction was expected, not", 8),
        (ENTRY.replace("BODY", "add.u32 %r1, %r1, 1"), "',' was expected, not 'ret'", 9),
        (".visible .entry f() { ret;", "the text ends within a statement", 3),
        (".visible .entry f() .maxntid 32", "the text ends within a statement", 3),
        (ENTRY.replace("BODY", "ld.global.u32 %r1, [%rd1+p];"), "a number was expected, not 'p'", 8),
        (ENTRY.replace("BODY", "mov.u64 %rd1, p+q;"), "a number was expected, not 'q'", 8),
        (ENTRY.replace("BODY", ".reg .b32 %x<n>;"), "an integer was expected, not 'n'", 8),
        (ENTRY.replace("BODY", "END: { END: } END: ret;"), "the label END is declared twice", 8),
        (ENTRY.replace("BODY", ".loc 1 x 2"), "an integer was expected, not 'x'", 8),
        (".global .u32 x[n];", "an integer was expected, not 'n'", 3),
        (".global .align x .u32 y;", "an integer was expected, not 'x'", 3),
        (".global .align 12 .u32 y;", "an alignment is a power of two, not 12", 3),
        (".global .f32 x = 1;", "1 is not of the type .f32 of the variable", 3),
        (".global .u32 x = 1.0;", "1.0 is not of the type .u32 of the variable", 3),
        (".global .f16 x = 1.0;", "1.0 is not of the type .f16 of the variable", 3),
        (".global .f64 x = 1e400;", "1e400 is too large", 3),
        (".global .f64 x[2] = {0d3FF0000000000000, 0f3F800000};", "0f3F800000 is not of the type .f64", 3),
    ],
)
def test_text_that_is_not_ptx(text: str, problem: str, line: int) -> None:
    with pytest.raises(ptx.PtxSyntaxError, match=f"^line {line} of the PTX: .*{problem}"):
        ptx.parse("\n\n" + text)


def test_predicated_instructions_of_all_kinds() -> None:
    body = """.reg .pred %p<3>; .reg .b32 %t<4>; .reg .b64 %a<3>;
      mov.u32 %t0, %tid.x; and.b32 %t1, %t0, 1; setp.eq.u32 %p1, %t1, 0; mov.u32 %t2, 1;
      @%p1 mov.u32 %t2, 2; @!%p1 add.u32 %t2, %t2, 10;
      mul.wide.u32 %a1, %t0, 4; add.u64 %a2, %rd1, %a1; setp.lt.u32 %p2, %t0, 5;
      @%p2 st.global.u32 [%a2], %t2; @!%p2 ret;
      @%p1 bra SKIP; st.global.u32 [%a2], 7; SKIP:"""
    y = np.zeros(8, np.int32)
    run(ptx.parse(ENTRY.replace("BODY", body)).kernels["first"], 1, 8, y)
    assert y.tolist() == [2, 7, 2, 7, 2, 0, 0, 0]
