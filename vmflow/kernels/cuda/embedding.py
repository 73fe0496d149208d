"""Embeddings: rows of a table by index, limits of the rows' norms, and the largest elements of each bag of rows."""

from __future__ import annotations

from functools import lru_cache
from math import inf
from typing import Any, Final

import numpy as np

from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.kernels.problems.embedding import wrong_offset
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, into_outs
from .checks import check_range
from .indexing import read_at
from .pointwise import copy_array, fill_array
from .rows import BLOCK
from .scattering import (
    ADD_TO_ZERO,
    Chosen,
    Combination,
    Places,
    Slices,
    combine_at,
    known_keys,
    last_of_each,
    places_of,
)
from .sorting import sort_keys
from .sources import COMPUTED, STORED, THREADS, CudaKernel
from .walks import Walk, Walked, changing, in_order, separate, standing, steps_of, walk

_INT64: Final = np.dtype(np.int64)


def _check_rows(launcher: Launcher, places: DeviceArray, rows: int) -> None:
    """Launch a kernel that reports an index outside of 0 to `rows` - 1; negative ones do not count from the end."""

    def explain(position: int, value: int) -> Exception:
        return IndexError(f"embedding: index {value} is out of range for a table of {rows} rows")

    check_range(launcher, places, 0, rows, explain)


@builds("embedding", package=PACKAGE)
def _build_embedding(problem: Problem) -> Kernel:
    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (places, table), (out,) = operands, outs
        _check_rows(launcher, places, table.shape[0])
        if table.size:
            places, table = separate(launcher, places, out), separate(launcher, table, out)
            read_at(launcher, table, (0,), (places,), out)

    return Kernel(into_outs(launch, problem), casts=True)


def _add_share(dtype: str) -> Combination:
    """Return the sum of gradients scaled by frequency: a row's gradients are divided by their number before they are
    added, as on the CPU.
    """
    number = {"complex128": "double", "float64": "double"}.get(dtype, "float")
    return ADD_TO_ZERO._replace(name="add_share", take=f"v / ({number})count")


@builds("embedding_gradient", package=PACKAGE)
def _build_gradient(problem: Problem) -> Kernel:
    padding, by_frequency, rows = problem.attributes
    how = _add_share(problem.outputs[0].dtype.name) if by_frequency else ADD_TO_ZERO

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        gradient, indices = operands
        _check_rows(launcher, indices, rows)
        with in_order(launcher, outs[0]) as table:
            if not table.size:
                return
            launcher.fill(table, 0)
            width = table.shape[1]
            chosen = Chosen.by(2, (0,), [indices.shape])
            places = places_of(launcher, chosen, (0,), [indices], table.shape, (width, 1), 0)
            *joint, step = steps_of(gradient)
            slices = Slices((width,), (1,), (step,))
            combine_at(launcher, how, table, places, gradient, tuple(joint), indices.shape, slices, skipped=padding)

    return Kernel(into_outs(launch, problem), casts=True)


@builds("embedding_limit_norms", package=PACKAGE)
def _build_limit_norms(problem: Problem) -> Kernel:
    """Build the kernel that multiplies indexed rows whose norm exceeds `limit` by ``limit / (norm + 1e-7)``.  Indices
    out of range are left to the look-up, which reports them without losing the table's values.
    """
    limit, order = problem.attributes

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        table, indices = operands
        rows, width = table.shape
        indices = separate(launcher, indices, outs[0])
        with changing(launcher, table, outs[0]) as target:
            if not (indices.size and target.size):
                return
            # Only the last index that names a row changes the row, which must be scaled only once.
            places = Places(known_keys(launcher, indices, rows), rows + 1, 0)
            last = last_of_each(launcher, places)
            kernel = _limit(target.dtype.name, order if order in _RULES else None, last.by_key)
            arguments = (target, places.keys, last.array, rows, width, float(limit), float(order))
            kernel.launch(launcher, places.keys.size, arguments)

    return Kernel(into_outs(launch, problem), casts=True)


# By the order of a norm, or None for any other order, its parts in C++: the initial total, the value of an element, the
# combination of two values, and the norm from the total.
_RULES: Final[dict[float | None, tuple[str, str, str, str]]] = {
    inf: ("0", "fabs(v)", "p != p || p > q ? p : q", "total"),
    -inf: ("__longlong_as_double(0x7ff0000000000000LL)", "fabs(v)", "p != p || p < q ? p : q", "total"),
    0.0: ("0", "v != 0", "p + q", "total"),
    1.0: ("0", "fabs(v)", "p + q", "total"),
    2.0: ("0", "v * v", "p + q", "sqrt(total)"),
    None: ("0", "pow(fabs(v), order)", "p + q", "pow(total, 1 / order)"),
}


@lru_cache(None)
def _limit(dtype: str, order: float | None, by_key: bool) -> CudaKernel:
    start, take, combine, finish = _RULES[order]
    source = f"""{BLOCK}
extern "C" __global__ void limit_norms({STORED[dtype]}* table, const int64* keys, const int64* last, int64 rows,
                                       int64 width, double limit, double order) {{
    __shared__ double shared[{THREADS}];
    const int64 key = keys[blockIdx.x];
    if (key == rows || (last && {"last[key] != blockIdx.x" if by_key else "!last[blockIdx.x]"})) return;
    {STORED[dtype]}* const row = table + key * width;
    auto combine = [](double p, double q) -> double {{ return {combine}; }};
    double total = {start};
    for (int64 i = threadIdx.x; i < width; i += blockDim.x) {{
        const double v = converted<double>(row[i]);
        total = combine(total, {take});
    }}
    total = of_block(total, shared, combine);
    const double norm = {finish};
    if (!(norm > limit)) return;
    const double scale = limit / (norm + 1e-7);
    for (int64 i = threadIdx.x; i < width; i += blockDim.x)
        row[i] = converted<{STORED[dtype]}>(converted<double>(row[i]) * scale);
}}
"""
    return CudaKernel("limit_norms", source)


@builds("checked_offsets", package=PACKAGE)
def _build_checked_offsets(problem: Problem) -> Kernel:
    (count,) = problem.attributes

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (offsets,), (out,) = operands, outs
        with in_order(launcher, out) as checked:
            if checked.size:
                copy_array(launcher, offsets, checked)
                report = launcher.error_report(lambda position, value: wrong_offset(position, value, count))
                _CHECK_OFFSETS.launch_over(launcher, checked.size, (report, checked, checked.size, count))

    return Kernel(into_outs(launch, problem), casts=True)


_CHECK_OFFSETS: Final = CudaKernel(
    "check_offsets",
    """
extern "C" __global__ void check_offsets(unsigned long long* report, const int64* in, int64 size, int64 count) {
    const int64 threads = (int64)gridDim.x * blockDim.x;
    for (int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += threads) {
        const int64 value = in[i];
        if (value < (i ? in[i - 1] : 0) || value > (i ? count : 0)) {
            if (atomicCAS(report, 0ULL, (unsigned long long)i + 1) == 0) report[1] = value;
        }
    }
}
""",
)


@builds("largest_of_bag", package=PACKAGE)
def _build_largest_of_bag(problem: Problem) -> Kernel:
    (bags,) = problem.attributes

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (values, bag), (out,) = operands, outs
        fill_array(launcher, out, -1)
        if not values.size or not out.size:
            return
        keys, order = sort_keys(launcher, known_keys(launcher, bag, bags), bags + 1)
        row, *within = steps_of(values)
        target, *along = steps_of(out)
        ndim = len(along) + 1
        arrays = [Walked(values, (0, *within)), standing(keys, ndim), standing(order, ndim)]
        numbers = (bag.size, row, target, bags)
        outs_walked = [Walked(out, (0, *along))]
        counters = [(1, *[0] * len(along))]
        walk(launcher, _largest(values.dtype.name), values.shape, outs_walked, arrays, counters, numbers)

    return Kernel(into_outs(launch, problem), casts=True)


@lru_cache(None)
def _largest(dtype: str) -> Walk:
    """Build a program that writes the row of each bag's largest element, column by column: the thread of a bag's first
    element goes through the whole bag; of nans, which are largest, or of equal elements, the first is taken.
    """
    compute = COMPUTED[dtype]
    lines = (
        "const int64 key = keys[n_place];",
        "if (key == bags || (n_place > 0 && keys[n_place - 1] == key)) continue;",
        "int64 found = -1;",
        f"{compute} best = 0;",
        "for (int64 n = n_place; n < many && keys[n] == key; n++) {",
        "const int64 at = order ? order[n] : n;",
        f"const {compute} v = converted<{compute}>(values[values_place + at * step]);",
        "if (found < 0 || (best == best && (v != v || v > best))) { best = v; found = at; }",
        "}",
        "out[out_place + key * out_stride] = found;",
    )
    arrays = (("values", dtype), ("keys", "int64"), ("order", "int64"))
    numbers = ("many", "step", "out_stride", "bags")
    return Walk("largest_of_bag", (("out", "int64"),), arrays, ("n",), numbers, lines)
