"""Updates other than the steps of optimizers.

They assign arrays, limit and scale gradients, write their norm, adapt loss scales, and advance running averages;
"move_along" moves parameters for L-BFGS, and "unless" may skip another update.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from vmflow.instructions.blob import Array
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

from .pieces import updated, widened

# Gradients


@declares_rule("zero")
def _set_to_zero(inputs: list[Array], outputs: list[Array]) -> None:
    for array in outputs:
        array[...] = 0


@declares_rule("assign")
def _assign(inputs: list[Array], outputs: list[Array]) -> None:
    for array, new in zip(outputs, inputs, strict=True):
        array[...] = new


@declares_rule("clip")
def _clip(settings: Clip, inputs: list[Array], outputs: list[Array]) -> None:
    for array in outputs:
        np.maximum(array, np.asarray(-settings.limit, array.dtype), out=array)
        np.minimum(array, np.asarray(settings.limit, array.dtype), out=array)


@declares_rule("total_norm")
def _measure(settings: TotalNorm, inputs: list[Array], outputs: list[Array]) -> None:
    norm_of = _NORMS.get(settings.order) or _power_norm(settings.order)
    each = [norm_of(widened(array).reshape(-1)) for array in inputs]
    outputs[0][...] = norm_of(np.array(each, np.float64))


def _power_norm(order: float) -> Callable[[Array], float]:
    return lambda array: float(np.sum(np.abs(array) ** order) ** (1 / order))


_NORMS: Final[dict[float, Callable[[Array], float]]] = {
    2.0: lambda array: float(np.linalg.norm(array)),
    math.inf: lambda array: float(np.max(np.abs(array), initial=0.0)),
}


@declares_rule("scale_to_norm")
def _scale_down(settings: ScaleToNorm, inputs: list[Array], outputs: list[Array]) -> None:
    factor = settings.limit / (float(inputs[0]) + 1e-6)
    if not factor >= 1.0:  # written so that a factor that is nan reaches the gradients, as in plain arithmetic
        for array in outputs:
            np.multiply(array, np.asarray(factor, array.dtype), out=array)


# The scale of a loss: gradients divided by it, and its adaptation


@declares_rule("unscale")
def _divide(inputs: list[Array], outputs: list[Array]) -> None:
    found, *gradients = outputs
    inverse = 1.0 / float(inputs[0])
    finite = True
    for gradient in gradients:
        np.multiply(gradient, np.asarray(inverse, gradient.dtype), out=gradient)
        finite = finite and bool(np.isfinite(gradient).all())
    found[...] = not finite


@declares_rule("adapt_scale")
def _adapt(settings: AdaptScale, inputs: list[Array], outputs: list[Array]) -> None:
    scale, tracker = outputs
    if any([bool(found) for found in inputs]):
        scale *= settings.backoff
        tracker[...] = 0
        return
    tracker += 1
    if tracker >= settings.interval:
        grown = float(scale) * settings.growth
        if np.isfinite(np.float32(grown)):
            scale[...] = grown
        tracker[...] = 0


# Running averages: of the statistics of batches, and of weights


@declares_rule("running_statistics")
def _advance(settings: RunningStatistics, inputs: list[Array], outputs: list[Array]) -> None:
    if settings.counts:
        outputs[-1] += 1
    share = 1.0 / float(outputs[-1]) if settings.momentum is None else settings.momentum
    for old, new, factor in zip(outputs, inputs, settings.factors, strict=False):
        old[...] = old.astype(new.dtype, copy=False) * (1 - share) + new * (share * factor)


@declares_rule("average")
def _average(settings: Averages, inputs: list[Array], outputs: list[Array]) -> None:
    count, number = settings.averaged, outputs.pop()
    weight = 1.0 / (int(number) + 1) if settings.weight is None or not number else settings.weight
    for mine, theirs in zip(outputs[:count], inputs[:count], strict=True):
        for old, new, work in updated([mine], [theirs], scratch=1):
            if weight == 1.0:
                old[...] = new  # exactly
            else:
                work[...] = (new - old) * weight
                old += work
    for mine, theirs in zip(outputs[count:], inputs[count:], strict=True):
        mine[...] = theirs
    number += 1


# Moves of L-BFGS, and updates that are skipped


@declares_rule("move_along")
def _move_along(settings: Along, inputs: list[Array], outputs: list[Array]) -> None:
    way, *origins = inputs
    begin = 0
    for array in outputs:
        end = begin + array.size
        base = origins[0][begin:end].reshape(array.shape) if settings.from_origin else array
        move = (way[begin:end] * settings.distance).reshape(array.shape).astype(array.dtype, copy=False)
        np.add(base, move, out=array)
        begin = end


@declares_rule("unless")
def _unless(settings: Unless, inputs: list[Array], outputs: list[Array]) -> None:
    skip, *others = inputs
    if not skip:
        settings.kernel(others, outputs)
