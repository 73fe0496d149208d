"""Updates of gradients (setting them to zero, limiting them or their norm), and moves of parameters along a line."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from vmflow.kernels.cuda.arrays import PACKAGE
from vmflow.kernels.cuda.pointwise import Pointwise, copy_array, launch_pointwise
from vmflow.kernels.cuda.sources import STORED
from vmflow.kernels.problems.updates import Along, Clip, ScaleToNorm, TotalNorm
from vmflow.kernels.updates import declares_rule
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher, current

from .folding import ADDED, LARGEST, Fold, fold
from .steps import LARGER
from .together import Change, Given, Row, change_rows, parts_of

_ZERO: Final = Change("zero", ("array",), (), "array = 0;")


@declares_rule("zero", package=PACKAGE)
def _set_to_zero(inputs: list[DeviceArray], outputs: list[DeviceArray], *, skip: DeviceArray | None = None) -> None:
    change_rows(current(), _ZERO, [Row((array,)) for array in outputs], skip=skip)


_CLIP: Final = Change(
    "clip",
    ("array",),
    ("array",),
    f"array = ({LARGER})(array, least); array = array != array || array <= most ? array : most;",
    "const real least = kept_array(-limit), most = kept_array(limit);",
    common=(Given("double", "limit"),),
)


@declares_rule("clip", package=PACKAGE)
def _clip(
    settings: Clip, inputs: list[DeviceArray], outputs: list[DeviceArray], *, skip: DeviceArray | None = None
) -> None:
    change_rows(current(), _CLIP, [Row((array,)) for array in outputs], [float(settings.limit)], skip=skip)


# Norms


@declares_rule("total_norm", package=PACKAGE)
def _measure(
    settings: TotalNorm, inputs: list[DeviceArray], outputs: list[DeviceArray], *, skip: DeviceArray | None = None
) -> None:
    launcher, order = current(), float(settings.order)
    measure, finish = _norm(order)
    rows = [Row((_sizes(launcher, array),)) for array in inputs]
    partial = launcher.scratch((sum(parts_of(measure, rows)),), np.dtype(np.float64))
    change_rows(launcher, measure, rows, [order], None, partial, skip)
    fold(launcher, finish, partial, outputs[0], [order], skip)


def _norm(order: float) -> tuple[Change, Fold]:
    """Return the `Change` that reduces each block's elements, and the `Fold` that computes the norm of all elements."""
    take = {1.0: "size", 2.0: "size * size", math.inf: "size"}.get(order, "pow(size, order)")
    finish = {1.0: "total", 2.0: "sqrt(total)", math.inf: "total"}.get(order, "pow(total, 1 / order)")
    combine = LARGEST if math.isinf(order) else ADDED
    kind = {1.0: "1", 2.0: "2", math.inf: "largest"}.get(order, "any")
    body = f"const double size = array < 0 ? -array : array; total = combine(total, {take});"
    return combine.of_rows(f"norm_{kind}", ("array",), body, (_ORDER,)), Fold(
        f"norm_{kind}", combine, finish, (_ORDER,)
    )


_ORDER: Final = Given("double", "order")


def _sizes(launcher: Launcher, array: DeviceArray) -> DeviceArray:
    """Return the absolute values of an array of complex numbers; other arrays as they are."""
    if array.dtype.kind != "c":
        return array
    dtype = np.dtype(np.float32 if array.itemsize == 8 else np.float64)
    sizes = launcher.scratch(array.shape, dtype)
    size = f"({STORED[dtype.name]})hypot((double)x0.real, (double)x0.imag)"
    launch_pointwise(
        launcher, Pointwise("sizes", (array.dtype.name,), (), (), ((size, dtype.name),)), [array], [], [sizes]
    )
    return sizes


# If the norm is nan, the factor is nan, and the gradients become nan.
_LIMIT: Final = """
const double wanted = limit / (converted<double>(*norm) + 1e-6);
if (wanted >= 1) return;
const real factor = kept_array(wanted);
"""


@declares_rule("scale_to_norm", package=PACKAGE)
def _scale_down(
    settings: ScaleToNorm, inputs: list[DeviceArray], outputs: list[DeviceArray], *, skip: DeviceArray | None = None
) -> None:
    (norm,) = inputs
    common = Given("double", "limit"), Given(f"const {STORED[norm.dtype.name]}*", "norm")
    change = Change("scale_to_norm", ("array",), ("array",), "array = array * factor;", _LIMIT, common=common)
    change_rows(current(), change, [Row((array,)) for array in outputs], [float(settings.limit), norm], skip=skip)


# Moves of L-BFGS


@declares_rule("move_along", package=PACKAGE)
def _move_along(
    settings: Along, inputs: list[DeviceArray], outputs: list[DeviceArray], *, skip: DeviceArray | None = None
) -> None:
    launcher = current()
    vectors = [_contiguous(launcher, vector) for vector in inputs[: 2 if settings.from_origin else 1]]
    rows, begin = [], 0
    for array in outputs:
        pieces = [vector.strided(array.shape, vector.dtype, begin * vector.itemsize) for vector in vectors]
        rows.append(Row((array, *pieces)))
        begin += array.size
    start = "origin" if settings.from_origin else "p"
    # As on the CPU, distance and move are rounded to the vectors' dtype, except to bfloat16, which numpy lacks.
    wide = vectors[0].dtype.name == "bfloat16"
    move = "(double)way * distance" if wide else "kept_way(way * kept_way(distance))"
    body = f"p = {start} + kept_p({move});"
    reads = ("way", "origin") if settings.from_origin else ("way", "p")
    change = Change("move_along", ("p",), reads, body, common=(Given("double", "distance"),))
    change_rows(launcher, change, rows, [float(settings.distance)], skip=skip)


def _contiguous(launcher: Launcher, vector: DeviceArray) -> DeviceArray:
    if vector.contiguous:
        return vector
    copied = launcher.scratch(vector.shape, vector.dtype)
    copy_array(launcher, vector, copied)
    return copied
