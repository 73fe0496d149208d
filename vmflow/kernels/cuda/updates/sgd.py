"""Gradient descent, with momentum.

The running sum of gradients begins with the first gradient, without dampening.  If steps may be skipped, only the
device knows whether a step is a parameter's first: so the device has a flag, until a step was certainly taken.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np

from vmflow.kernels.cuda.arrays import PACKAGE
from vmflow.kernels.problems.updates import SGD
from vmflow.kernels.updates import declares_rule
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import current

from .steps import RATE, columns_of, rated, slope
from .together import Change, Given, Plan, Row, change_rows, plan_rows

# The device's flags, by the `id` of the host's flags, which are kept alive so that their ids stay unique.
_Flags: TypeAlias = "dict[int, tuple[list[bool], DeviceArray]]"

# Tells whether a running sum is empty before this step, and notes that it is not empty any more.
_FLAG: Final = Plan("sgd", ("flag",), ("empty",), "empty = !flag; flag = true;")


@declares_rule("sgd", memory=dict, package=PACKAGE)
def _sgd(
    flags: _Flags,
    settings: SGD,
    inputs: list[DeviceArray],
    outputs: list[DeviceArray],
    *,
    skip: DeviceArray | None = None,
) -> None:
    launcher = current()
    common, numbers, gradients = rated(settings, inputs)
    rows = [Row(arrays) for arrays in zip(*columns_of(outputs, len(gradients)), gradients, strict=True)]
    empty = [_emptiness(flags, flag, skip is not None, bool(settings.dampening)) for flag in settings.filled]
    unknown = [number for number, flag in enumerate(empty) if flag is not None]
    if unknown:
        found = [(flag,) for flag in empty if flag is not None]
        planned = plan_rows(launcher, _FLAG, found, (), (), skip)
        first = [rows[number] for number in unknown]
        change_rows(launcher, _change(settings, common, True), first, numbers, planned, None, skip)
        rows = [row for number, row in enumerate(rows) if number not in set(unknown)]
    change_rows(launcher, _change(settings, common, False), rows, numbers, None, None, skip)


def _emptiness(flags: _Flags, flag: list[bool], may_skip: bool, matters: bool) -> DeviceArray | None:
    """Return the device's flag; None if the host's `flag` tells that the running sum is not empty before this step, or
    if that does not matter.  Set the host's `flag`, unless the step may be skipped.

    A step that is captured in a graph is repeated: so the device has a flag for a step known to be the first, too.
    """
    filled = flag[0]
    if not may_skip:
        flag[0] = True
    if filled or not matters:
        return None
    if id(flag) not in flags:
        array = current().scratch((), np.dtype(np.bool_))
        current().fill(array, 0)
        flags[id(flag)] = flag, array
    return flags[id(flag)][1]


def _change(settings: SGD, common: tuple[Given, ...], unknown: bool) -> Change:
    lines, step = [slope(settings)], "slope"
    written: tuple[str, ...] = ("p",)
    if settings.momentum:
        written, step = ("p", "running"), "running"
        taken = "slope * real(1 - dampening)" if settings.dampening else "slope"
        lines.append(f"running = {'empty != 0 ? slope : ' if unknown else ''}running * real(momentum) + {taken};")
        if settings.nesterov:
            step = "(slope + running * real(momentum))"
    lines.append(f"p = p - {step} * real(lr);")
    numbers = ("empty",) if unknown else ()
    return Change("sgd", written, (*written, "g"), "\n".join(lines), RATE, numbers, (), common)
