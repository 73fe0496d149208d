"""Reductions along dimensions: sums, products, means, norms and extrema, and where extrema are."""

from __future__ import annotations

from typing import Any, Final

from vmflow import dtypes
from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, array_kernel, by_arrays, into_outs
from .half import widened
from .pointwise import copy_array
from .rows import RowReduction, reduce_rows
from .sources import COMPUTED


def _limit(compute: str, lowest: bool) -> str:
    """The lowest or the highest value of a type, in C++."""
    if compute in ("float", "double"):
        infinity = "__int_as_float(0x7f800000)"
        return f"-{infinity}" if lowest else infinity
    return "(-0x7fffffffffffffffLL - 1)" if lowest else "0x7fffffffffffffffLL"


def _reduction(op: str, compute: str) -> RowReduction:
    if op in ("amax", "amin"):
        sign = ">" if op == "amax" else "<"
        return RowReduction(op, _limit(compute, op == "amax"), "v", f"p != p || p {sign} q ? p : q", "total", compute)
    start, take, combine, finish = _RULES[op]
    return RowReduction(op, start, take, combine, finish, compute)


def sum_of(compute: str) -> RowReduction:
    """The sums of rows, in a type of C++."""
    return _reduction("sum", compute)


# By op: start, take, combine and finish, see `RowReduction`.
_RULES: Final = {
    "sum": ("0", "v", "p + q", "total"),
    "mean": ("0", "v", "p + q", "total / length"),
    "prod": ("1", "v", "p * q", "total"),
    "norm": ("0", "v * v", "p + q", "sqrt(total)"),
    "all": ("true", "v", "p && q", "total"),
    "any": ("false", "v", "p || q", "total"),
}


@builds("sum", "mean", "prod", "norm", "amax", "amin", "all", "any", package=PACKAGE)
def _build(problem: Problem) -> Kernel:
    (source,), (output,) = problem.inputs, problem.outputs
    if source.is_complex:
        return array_kernel(_complex, problem)
    reduction = _reduction(problem.op, _compute(problem))
    dims, _ = problem.attributes

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (array,), (out,) = operands, outs
        target = out if out.contiguous else launcher.scratch(out.shape, out.dtype)
        reduce_rows(launcher, reduction, array, dims, target)
        if target is not out:
            copy_array(launcher, target, out)

    del output
    return Kernel(into_outs(launch, problem), casts=True)


def _compute(problem: Problem) -> str:
    """The type to compute in: sums of half precision would lose everything past 2048 ones, products overflow."""
    source, output = problem.inputs[0].dtype, problem.outputs[0].dtype
    if problem.op in ("all", "any"):
        return "bool"
    if problem.op == "prod" and output is dtypes.float32:
        return "double"
    if output.is_floating_point or source.is_floating_point:
        return COMPUTED[output.name if output.is_floating_point else source.name]
    return "int64"


def _complex(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    dims, keepdim = problem.attributes
    if problem.op == "norm":
        found = xp.sqrt(xp.sum(xp.square(xp.abs(array)), axis=dims, keepdims=keepdim))
    else:
        found = getattr(xp, problem.op)(array, axis=dims, keepdims=keepdim)
    xp.copyto(out, found, casting="unsafe")


@by_arrays("argmax", "argmin")
def _place(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    dim, keepdim = problem.attributes
    if not out.size:
        return
    if not array.ndim:
        out.fill(0)
        return
    array = widened(array, problem.inputs[0].dtype)
    if dim is None:
        array, keepdim = array.reshape(-1), False
    found = getattr(xp, problem.op)(array, axis=dim or 0, keepdims=keepdim)
    xp.copyto(out, found.reshape(out.shape), casting="unsafe")
