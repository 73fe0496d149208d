"""Gradient descent, with momentum.

The first gradient makes a running sum what it is, without dampening.  Which step of a parameter is its first is known
when a step is handed to the device, unless one before may have been skipped: then the device keeps a flag.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from vmflow.kernels.cuda.arrays import PACKAGE
from vmflow.kernels.cuda.bits import widened
from vmflow.kernels.problems.updates import SGD
from vmflow.kernels.updates import declares_rule
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import current

from .declaring import as_factor, decayed, in_reals, issue, rate_and_gradients

# The flags on the device, by the identity of those on the host, which are kept so that it stays theirs.
_Flags: TypeAlias = "dict[int, tuple[list[bool], DeviceArray]]"


@declares_rule("sgd", memory=dict, package=PACKAGE)
def _sgd(
    flags: _Flags,
    settings: SGD,
    inputs: list[DeviceArray],
    outputs: list[DeviceArray],
    *,
    skip: DeviceArray | None = None,
) -> None:
    filled = [_is_filled(flags, flag, skip is not None) for flag in settings.filled]
    unknown = [flag for flag in filled if isinstance(flag, DeviceArray)]
    known = [None if isinstance(flag, DeviceArray) else flag for flag in filled]
    issue("sgd", partial(_changes, known), [settings], inputs, [*outputs, *unknown], skip)


def _is_filled(flags: _Flags, flag: list[bool], may_skip: bool) -> bool | DeviceArray:
    """Whether a running sum holds anything before this step, as the host knows or the device; note that it will."""
    if not may_skip:
        before, flag[0] = flag[0], True
        return flags.pop(id(flag))[1] if id(flag) in flags else before
    if flag[0]:
        return True
    if id(flag) not in flags:
        array = current().scratch((), np.dtype(np.bool_))
        current().fill(array, 0)
        flags[id(flag)] = flag, array
    return flags[id(flag)][1]


def _changes(
    known: Sequence[bool | None], xp: Any, settings: SGD, inputs: Sequence[Any], outputs: Sequence[Any]
) -> Iterable[tuple[Any, Any]]:
    lr, gradients = rate_and_gradients(settings, inputs)
    count = len(gradients)
    shaped = outputs[: count * (2 if settings.momentum else 1)]
    unknown = iter(outputs[len(shaped) :])
    for position, gradient in enumerate(gradients):
        arrays = [in_reals(xp, array) for array in shaped[position::count]]
        parameter, *running = [widened(array) for array in arrays]
        direction = decayed(settings, widened(in_reals(xp, gradient)), parameter)
        if settings.momentum:
            filled = known[position]
            flag = next(unknown) if filled is None else None
            total = _total(xp, settings, running[0], direction, filled if flag is None else flag)
            direction = direction + total * settings.momentum if settings.nesterov else total
            yield arrays[1], total
            if flag is not None:
                yield flag, True
        yield arrays[0], parameter - direction * as_factor(lr, direction)


def _total(xp: Any, settings: SGD, running: Any, direction: Any, filled: Any) -> Any:
    """The running sum with a direction added to it; one that is not filled holds zeros."""
    taken = direction * (1 - settings.dampening) if settings.dampening else direction
    total = running * settings.momentum + taken
    return xp.where(filled, total, direction) if settings.dampening else total
