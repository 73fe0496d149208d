"""Reductions along dimensions: sums, products, means, norms, extrema, all and any, and the indices of extrema."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np

from vmflow import dtypes
from vmflow.dtypes import dtype as DType
from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.driver import Argument
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, into_outs
from .rows import (
    BLOCK,
    DTYPES,
    RowReduction,
    as_rows,
    into_order,
    part_of_row,
    reduce_rows,
    threads_for,
)
from .sources import COMPUTED, STORED, THREADS, CudaKernel


def _limit(compute: str, lowest: bool) -> str:
    """Return the lowest or the highest value of a 64-bit integer type in C++; of float or double, an infinity."""
    if compute in ("float", "double"):
        infinity = "__int_as_float(0x7f800000)"
        return f"-{infinity}" if lowest else infinity
    if compute == STORED["uint64"]:
        return "0" if lowest else "0xffffffffffffffffULL"
    return "(-0x7fffffffffffffffLL - 1)" if lowest else "0x7fffffffffffffffLL"


def _reduction(op: str, compute: str) -> RowReduction:
    if op in ("amax", "amin"):
        sign = ">" if op == "amax" else "<"
        return RowReduction(op, _limit(compute, op == "amax"), "v", f"p != p || p {sign} q ? p : q", "total", compute)
    start, take, combine, finish = _RULES[op]
    return RowReduction(op, start, take, combine, finish, compute)


def sum_of(compute: str) -> RowReduction:
    """Return the reduction that adds up rows in the C++ type `compute`."""
    return _reduction("sum", compute)


# By op, the fields start, take, combine and finish of the op's `RowReduction`.
_RULES: Final = {
    "sum": ("0", "v", "p + q", "total"),
    "mean": ("0", "v", "p + q", "total / length"),
    "prod": ("1", "v", "p * q", "total"),
    "norm": ("0", "v * v", "p + q", "sqrt(total)"),
    "all": ("true", "v", "p && q", "total"),
    "any": ("false", "v", "p || q", "total"),
}


_SQUARE_OF_SIZE: Final = "(value)x.real * (value)x.real + (value)x.imag * (value)x.imag"


@builds("sum", "mean", "prod", "norm", "amax", "amin", "all", "any", package=PACKAGE)
def _build(problem: Problem) -> Kernel:
    reduction = _reduction(problem.op, _compute(problem))
    if problem.op == "norm" and problem.inputs[0].is_complex:
        reduction = reduction._replace(name="norm_of_complex", take=_SQUARE_OF_SIZE)
    dims, _ = problem.attributes

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        into_order(launcher, outs, lambda out: reduce_rows(launcher, reduction, operands[0], dims, out))

    return Kernel(into_outs(launch, problem), casts=True)


def _compute(problem: Problem) -> str:
    """Return the C++ type to compute in.  It is float for half precision, since sums of ones in float16 would stop
    growing at 2048, and double for products of float32.
    """
    source, output = problem.inputs[0].dtype, problem.outputs[0].dtype
    if problem.op in ("all", "any"):
        return "bool"
    if problem.op == "prod" and output is dtypes.float32:
        return "double"
    if output.is_complex:
        return COMPUTED[output.name]
    if output.is_floating_point or source.is_floating_point:
        return COMPUTED[output.name if output.is_floating_point else source.name]
    return _whole(source)


def _whole(source: DType) -> str:
    """Return a C++ integer type that holds all values of an integer dtype; sums wrap around."""
    return STORED["uint64"] if source is dtypes.uint64 else "int64"


# Indices of extrema

# An element and its place, which is below 0 if there is no element.  The first of equal elements is better, and the
# first nan is better than all other elements.
_FOUND: Final = """
struct Found {
    value best;
    int64 place;
};
__device__ __forceinline__ bool is_better(const Found& p, const Found& q) {
    if (p.place < 0 || q.place < 0) return q.place < 0;
    if (p.best != p.best) return q.best == q.best || p.place < q.place;
    if (q.best != q.best) return false;
    return BETTER(p.best, q.best) || (p.best == q.best && p.place < q.place);
}
"""


@builds("argmax", "argmin", package=PACKAGE)
def _build_place(problem: Problem) -> Kernel:
    dim, _ = problem.attributes
    rank = len(problem.inputs[0].shape)
    dims = tuple(range(rank)) if dim is None else (dim,) if rank else ()
    better = ">" if problem.op == "argmax" else "<"

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        if outs[0].size:
            matrix = as_rows(launcher, operands[0], dims)
            into_order(launcher, outs, lambda out: _find_places(launcher, matrix, better, out))

    return Kernel(into_outs(launch, problem), casts=True)


def _find_places(launcher: Launcher, matrix: DeviceArray, better: str, out: DeviceArray) -> None:
    rows, columns = matrix.shape
    each = part_of_row(rows, columns)
    places: Argument = 0
    given = matrix.dtype.name
    source = dtypes.by_name(given)
    compute = COMPUTED[given] if source.is_floating_point else _whole(source)
    if each < columns:
        parts = -(-columns // each)
        bests = launcher.scratch((rows, parts), np.dtype(DTYPES[compute]))
        places = launcher.scratch((rows, parts), np.dtype(np.int64))
        kernel = _places(given, compute, better, True)
        kernel.launch(launcher, rows * parts, (places, bests, matrix, 0, columns, each, parts), threads_for(each))
        matrix, columns, each = bests, parts, parts
    kernel = _places(matrix.dtype.name, compute, better, False)
    kernel.launch(launcher, rows, (out, 0, matrix, places, columns, each, 1), threads_for(each))


@lru_cache(None)
def _places(given: str, compute: str, better: str, of_parts: bool) -> CudaKernel:
    """Build the kernel that finds the position of the best element of each row; or of each part of a row, with the
    element itself.
    """
    name = f"place_of_{'largest' if better == '>' else 'smallest'}_{given}{'_of_parts' if of_parts else ''}"
    source = f"""
typedef {compute} value;
#define BETTER(p, q) ((p) {better} (q))
{_FOUND}{BLOCK}
extern "C" __global__ void {name}(int64* out, value* bests, const {STORED[given]}* in, const int64* places,
                                  int64 columns, int64 each, int64 parts) {{
    __shared__ Found shared[{THREADS}];
    const int64 row = blockIdx.x / parts, begin = blockIdx.x % parts * each;
    const int64 end = begin + each < columns ? begin + each : columns;
    Found found = {{0, -1}};
    for (int64 i = begin + threadIdx.x; i < end; i += blockDim.x) {{
        const Found other = {{converted<value>(in[row * columns + i]), places ? places[row * columns + i] : i}};
        if (is_better(other, found)) found = other;
    }}
    found = of_block(found, shared, [](const Found& p, const Found& q) {{ return is_better(p, q) ? p : q; }});
    if (threadIdx.x == 0) {{
        out[blockIdx.x] = found.place;
        {"bests[blockIdx.x] = found.best;" if of_parts else ""}
    }}
}}
"""
    return CudaKernel(name, source, range(1 + of_parts))
