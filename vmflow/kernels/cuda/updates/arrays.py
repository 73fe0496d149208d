"""Updates beside the steps of optimizers: of gradients, of a loss's scale, of running averages; and straight moves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from vmflow.kernels.cuda.arrays import PACKAGE
from vmflow.kernels.cuda.bits import widened
from vmflow.kernels.problems.updates import (
    AdaptScale,
    Along,
    Averages,
    Clip,
    RunningStatistics,
    ScaleToNorm,
    TotalNorm,
    Unless,
)
from vmflow.kernels.updates import declares_rule
from vmflow.streams.cuda.arrays import DeviceArray

from .declaring import as_factor, changes_by_arrays, exactly, in_reals

_Arrays: TypeAlias = Sequence[Any]
_Changed: TypeAlias = Iterable[tuple[Any, Any]]

# Gradients


@changes_by_arrays("zero")
def _set_to_zero(xp: Any, inputs: _Arrays, outputs: _Arrays) -> _Changed:
    for array in outputs:
        yield array, 0


@changes_by_arrays("clip")
def _clip(xp: Any, settings: Clip, inputs: _Arrays, outputs: _Arrays) -> _Changed:
    for array in outputs:
        yield array, xp.minimum(xp.maximum(widened(array), -settings.limit), settings.limit)


@changes_by_arrays("total_norm")
def _measure(xp: Any, settings: TotalNorm, inputs: _Arrays, outputs: _Arrays) -> _Changed:
    each = [_norm(xp, widened(array), settings.order) for array in inputs]
    yield outputs[0], _norm(xp, xp.stack(each), settings.order)


def _norm(xp: Any, array: Any, order: float) -> Any:
    """The p-norm of all elements, in float64."""
    sizes = xp.abs(array)
    if math.isinf(order):
        # With a zero in front, the largest of no elements is 0.
        return xp.max(xp.concatenate([xp.zeros(1, sizes.dtype), sizes.reshape(-1)])).astype(np.float64)
    return xp.sum(sizes**order, dtype=np.float64) ** (1 / order)


@changes_by_arrays("scale_to_norm")
def _scale_down(xp: Any, settings: ScaleToNorm, inputs: _Arrays, outputs: _Arrays) -> _Changed:
    factor = settings.limit / (exactly(inputs[0]) + 1e-6)
    # A factor that is no number reaches the gradients, as plain arithmetic would have it.
    factor = xp.where(factor >= 1, 1.0, factor)
    for array in outputs:
        wide = widened(in_reals(xp, array))
        yield in_reals(xp, array), wide * as_factor(factor, wide)


# The scale of a loss: gradients divided by it, and how it adapts


@changes_by_arrays("unscale")
def _divide(xp: Any, inputs: _Arrays, outputs: _Arrays) -> _Changed:
    found, *gradients = outputs
    inverse = 1 / exactly(inputs[0])
    finite = xp.ones((), bool)
    for gradient in gradients:
        reals = in_reals(xp, gradient)
        wide = widened(reals)
        scaled = (wide * as_factor(inverse, wide)).astype(reals.dtype)
        finite = finite & xp.all(xp.isfinite(widened(scaled)))
        yield reals, scaled
    yield found, xp.logical_not(finite)


@changes_by_arrays("set_scale")
def _set(xp: Any, inputs: _Arrays, outputs: _Arrays) -> _Changed:
    yield outputs[0], inputs[0]


@changes_by_arrays("adapt_scale")
def _adapt(xp: Any, settings: AdaptScale, inputs: _Arrays, outputs: _Arrays) -> _Changed:
    scale, tracker = outputs
    bad = xp.zeros((), bool)
    for found in inputs:
        bad = bad | (found != 0)
    row = tracker + 1
    due = row >= settings.interval
    grown = exactly(scale) * settings.growth
    grows = due & xp.isfinite(grown.astype(np.float32))
    adapted = xp.where(bad, scale * settings.backoff, xp.where(grows, grown, scale))
    in_row = xp.where(bad | due, 0, row)
    yield scale, adapted
    yield tracker, in_row


# Running averages: of the statistics of batches, and of weights


@changes_by_arrays("running_statistics")
def _advance(xp: Any, settings: RunningStatistics, inputs: _Arrays, outputs: _Arrays) -> _Changed:
    count = outputs[-1] + 1
    share: Any = 1 / exactly(count) if settings.momentum is None else settings.momentum
    for old, new, factor in zip(outputs, inputs, settings.factors, strict=False):
        value = widened(new)
        rest = old.astype(value.dtype) * as_factor(1 - share, value)
        yield old, rest + value * as_factor(share * factor, value)
    if settings.counts:
        yield outputs[-1], count


@changes_by_arrays("average")
def _average(xp: Any, settings: Averages, inputs: _Arrays, outputs: _Arrays) -> _Changed:
    *arrays, number = outputs
    averaged = settings.averaged
    taken = exactly(number)
    weight = xp.where(taken == 0, 1.0, settings.weight_of(xp.maximum(taken, 1)))
    for old, new in zip(arrays[:averaged], inputs[:averaged], strict=True):
        mine, theirs = [widened(in_reals(xp, array)) for array in (old, new)]
        moved = mine + (theirs - mine) * as_factor(weight, mine)
        yield in_reals(xp, old), xp.where(weight == 1, theirs, moved)
    yield from zip(arrays[averaged:], inputs[averaged:], strict=True)
    yield number, number + 1


# Moves of L-BFGS, and updates that are skipped


@changes_by_arrays("move_along")
def _move_along(xp: Any, settings: Along, inputs: _Arrays, outputs: _Arrays) -> _Changed:
    way, *origins = inputs
    begin = 0
    for array in outputs:
        end = begin + array.size
        base = origins[0][begin:end].reshape(array.shape) if settings.from_origin else array
        yield array, widened(base) + widened((way[begin:end] * settings.distance).reshape(array.shape))
        begin = end


@declares_rule("unless", package=PACKAGE)
def _unless(settings: Unless, inputs: list[DeviceArray], outputs: list[DeviceArray]) -> None:
    skip, *others = inputs
    settings.kernel(others, outputs, skip=skip)
