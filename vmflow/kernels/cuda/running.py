"""Running sums, products, extrema and logarithms of sums of exponentials; the recurrence in gradients of products."""

from __future__ import annotations

from typing import Any

import numpy as np

from vmflow import dtypes
from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.kernels.numpy.reduction import accumulated
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, into_outs
from .pointwise import copy_array, fill_array
from .scans import Scan, scan
from .sources import COMPUTED, STORED
from .walks import separate


def running(op: str, source: dtypes.dtype, output: dtypes.dtype) -> Scan:
    """Return the scan of running sums (`op` "cumsum") or products ("cumprod")."""
    kept = accumulated(source, output)
    # float32 is accumulated in float64: rounding errors in float32 would add up along the dimension.
    wide = dtypes.float64.numpy if kept == dtypes.float32.numpy else kept
    value = COMPUTED[wide.name]
    sign = "+" if op == "cumsum" else "*"
    store = f"converted<{STORED[kept.name]}>(v)"
    return Scan(op, f"typedef {value} value;", wide.itemsize, "converted<value>(x0[at])", f"(value)(p {sign} q)", store)


@builds("cumsum", "cumprod", package=PACKAGE)
def _build_running(problem: Problem) -> Kernel:
    dim, reverses = problem.attributes
    steps = running(problem.op, problem.inputs[0].dtype, problem.outputs[0].dtype)

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (array,), (out,) = operands, outs
        if array.ndim:
            scan(launcher, steps, (array,), dim, out, reverses)
        else:
            copy_array(launcher, array, out)

    return Kernel(into_outs(launch, problem), casts=True)


@builds("recurrence", package=PACKAGE)
def _build_recurrence(problem: Problem) -> Kernel:
    """Build the kernel of ``y[i] = term[i] + factor[i + 1] * y[i + 1]``: a scan, from the end, that composes linear
    maps.
    """
    (dim,) = problem.attributes
    (output,) = problem.outputs
    wide = accumulated(output.dtype, output.dtype)
    number = COMPUTED[wide.name]
    steps = Scan(
        "recurrence",
        f"struct value {{ {number} factor, term; }};",
        2 * wide.itemsize,
        f"value{{i + 1 < size ? converted<{number}>(x0[at + inner]) : converted<{number}>(0), "
        f"converted<{number}>(x1[at])}}",
        "value{p.factor * q.factor, q.term + q.factor * p.term}",
        "v.term",
    )

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (out,) = outs
        operands = tuple([separate(launcher, operand, out) for operand in operands])
        scan(launcher, steps, operands, dim, out, reverses=True)

    return Kernel(into_outs(launch, problem), casts=True)


@builds("cummax", "cummin", package=PACKAGE)
def _build_places(problem: Problem) -> Kernel:
    """Build the kernel of ``cummax`` or ``cummin``: the index of the extremum up to each element; the last one of equal
    extrema, or of nans.
    """
    (dim,) = problem.attributes
    dtype = problem.inputs[0].dtype
    number = COMPUTED[dtype.name]
    sign = ">=" if problem.op == "cummax" else "<="
    steps = Scan(
        problem.op,
        f"struct value {{ int64 place; {number} number; }};",
        16,
        f"value{{i, converted<{number}>(x0[at])}}",
        f"q.number != q.number || (p.number == p.number && q.number {sign} p.number) ? q : p",
        "v.place",
    )

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (array,), (out,) = operands, outs
        if array.ndim:
            scan(launcher, steps, (separate(launcher, array, out),), dim, out)
        else:
            fill_array(launcher, out, 0)

    return Kernel(into_outs(launch, problem), casts=True)


@builds("logcumsumexp", package=PACKAGE)
def _build_logcumsumexp(problem: Problem) -> Kernel:
    number = COMPUTED[problem.inputs[0].dtype.name]
    steps = Scan(
        "logcumsumexp",
        f"""typedef {number} value;
__device__ value log_of_sum(value p, value q) {{
    const value apart = p - q, larger = p > q ? p : q;
    if (p == q) return p + (value)0.69314718055994530942;
    return apart == apart ? larger + log1p(exp(-fabs(apart))) : apart;
}}""",
        np.dtype(number if number == "double" else np.float32).itemsize,
        "converted<value>(x0[at])",
        "log_of_sum(p, q)",
        "v",
    )

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (array,), (out,) = operands, outs
        if array.ndim:
            scan(launcher, steps, (array,), problem.attributes[0], out)
        else:
            copy_array(launcher, array, out)

    return Kernel(into_outs(launch, problem), casts=True)
