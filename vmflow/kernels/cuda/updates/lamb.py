"""LAMB: Adam's direction, with a step in the proportion of each parameter's norm to the norm of its direction."""

from __future__ import annotations

from typing import Final

import numpy as np

from vmflow.kernels.cuda.arrays import PACKAGE
from vmflow.kernels.problems.updates import LAMB
from vmflow.kernels.updates import declares_rule
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import current

from .steps import AVERAGES, RATE, columns_of, rated, slope
from .together import Change, Given, Plan, Row, change_rows, parts_of, plan_rows

_PART: Final = 1 << 14

# The bias corrections: `first` for the mean, `second` for the root of the average square.
_CORRECTED: Final = """
steps = steps + 1;
first = 1 - pow(beta1, (double)steps);
second = sqrt(1 - pow(beta2, (double)steps));
"""
_UNCORRECTED: Final = "steps = steps + 1; first = second = 1;"

_DIRECTION: Final = "mean / (sqrt(square) / real(second) + real(eps)) / real(first)"

# A block's sums of squares: of its part of a parameter, and of the parameter's direction.
_SUMS: Final = """
double added[2];
added[0] = of_block(of_parameter, [](double x, double y) { return x + y; });
added[1] = of_block(of_direction, [](double x, double y) { return x + y; });
if (threadIdx.x == 0) {
    partial[0] = added[0];
    partial[1] = added[1];
}
"""

_RATIO: Final = """
double of_parameter = 0, of_direction = 0;
for (int64 i = begin; i < begin + count; i++) {
    of_parameter += partial[2 * i];
    of_direction += partial[2 * i + 1];
}
size = lr * (of_parameter > 0 && of_direction > 0 ? sqrt(of_parameter / of_direction) : 1);
"""


@declares_rule("lamb", package=PACKAGE)
def _lamb(
    settings: LAMB, inputs: list[DeviceArray], outputs: list[DeviceArray], *, skip: DeviceArray | None = None
) -> None:
    launcher = current()
    common, numbers, gradients = rated(settings, inputs)
    parameters, means, squares, counts = columns_of(outputs, len(gradients))
    plan = Plan("lamb", ("steps",), ("first", "second"), _CORRECTED if settings.corrected else _UNCORRECTED, (), common)
    corrections = plan_rows(launcher, plan, [(count,) for count in counts], (), numbers, skip)
    # The norms of a parameter and of its direction must be known before the parameter changes.
    rows = [Row(arrays) for arrays in zip(means, squares, parameters, gradients, strict=True)]
    measure = _measure(settings, common)
    parts = parts_of(measure, rows)
    partial = launcher.scratch((max(sum(parts), 1), 2), np.dtype(np.float64))
    change_rows(launcher, measure, rows, numbers, corrections, partial, skip)
    ends = np.cumsum([0, *parts]).tolist()
    ratio = Plan("lamb_ratio", (), ("size",), RATE + _RATIO, ("begin", "count"), (*common, _PARTIAL))
    own = [(float(begin), float(count)) for begin, count in zip(ends, parts, strict=False)]
    sizes = plan_rows(launcher, ratio, [()] * len(rows), own, [*numbers, partial], skip)
    assert corrections is not None
    assert sizes is not None
    moved = [Row(arrays) for arrays in zip(parameters, means, squares, strict=True)]
    change_rows(launcher, _move(settings, common), moved, [*numbers, corrections], sizes, None, skip)


_PARTIAL: Final = Given("const double*", "partial")


def _measure(settings: LAMB, common: tuple[Given, ...]) -> Change:
    body = f"""{slope(settings)}{AVERAGES}
const double x = p, way = {_DIRECTION};
of_parameter += x * x;
of_direction += way * way;
"""
    head = "double of_parameter = 0, of_direction = 0;"
    written = ("mean", "square")
    numbers = ("first", "second")
    return Change("lamb", written, (*written, "p", "g"), body, head, numbers, (), common, _SUMS, 2, _PART)


def _move(settings: LAMB, common: tuple[Given, ...]) -> Change:
    apart = "way = way + p * real(weight_decay);" if settings.decoupled and settings.weight_decay else ""
    body = f"""
real way = {_DIRECTION};
{apart}
p = p - way * real(size);
"""
    head = "const double first = corrections[2 * row], second = corrections[2 * row + 1];"
    given = (*common, Given("const double*", "corrections"))
    return Change("lamb_move", ("p",), ("p", "mean", "square"), body, head, ("size",), (), given)
