"""Resampling (interpolation) by tables: each element of the result is an element, or a weighted sum, of the input.

The host makes the tables of positions and weights, so that CPU and GPU choose the same elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.kernels.numpy.half import computes_in
from vmflow.kernels.numpy.resampling import table
from vmflow.kernels.problems.resampling import Along
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, into_outs
from .pointwise import bits_of, copy_array
from .sources import COMPUTED, STORED
from .walks import Walk, Walked, along, standing, steps_of, walk, walked


@builds("resample", package=PACKAGE)
def _build_resample(problem: Problem) -> Kernel:
    every: Sequence[Along]
    every, transposed = problem.attributes
    chooses = not transposed and every[0].filter.startswith("nearest")
    source = problem.inputs[0].dtype
    wide = source.numpy if chooses else computes_in(source)
    axes = list(enumerate(every, 2))[::-1]

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (array,), (out,) = operands, outs
        if not axes:
            copy_array(launcher, array, out)
        for axis, how in axes:
            size = out.shape[axis]
            shape = (*array.shape[:axis], size, *array.shape[axis + 1 :])
            target = out if axis == 2 else launcher.scratch(shape, wide)
            _resample(launcher, array, axis, how, transposed, None if chooses else wide, target)
            array = target

    return Kernel(into_outs(launch, problem), casts=True)


def _resample(
    launcher: Launcher,
    array: DeviceArray,
    axis: int,
    how: Along,
    transposed: bool,
    wide: np.dtype[Any] | None,
    out: DeviceArray,
) -> None:
    """Resample one dimension: choose elements if `wide` is None, else compute weighted sums in that dtype; if
    `transposed`, by the transposed table, for a gradient.
    """
    if not out.size:
        return
    places = launcher.constant(("places", how, transposed), lambda: table(how, transposed).places)
    own = steps_of(array)
    source = Walked(array, (*own[:axis], 0, *own[axis + 1 :]))
    taps = places.shape[1]
    arrays = [source, Walked(places, along(axis, out.ndim, taps))]
    if wide is None:
        program = _chosen(bits_of(out.dtype))
    else:
        weights = launcher.constant(
            ("weights", how, transposed, wide), lambda: table(how, transposed).weights.astype(wide)
        )
        program = _weighted(array.dtype.name, weights.dtype.name, out.dtype.name)
        arrays.append(standing(weights, out.ndim))
    walk(launcher, program, out.shape, [walked(out)], arrays, (), (own[axis], taps))


@lru_cache(None)
def _chosen(dtype: str) -> Walk:
    lines = ("out[out_place] = x[x_place + places[places_place] * stride];",)
    arrays = (("x", dtype), ("places", "int64"))
    return Walk("chosen", (("out", dtype),), arrays, (), ("stride", "taps"), lines)


@lru_cache(None)
def _weighted(given: str, weights: str, wanted: str) -> Walk:
    lines = (
        f"typedef {COMPUTED[weights]} value;",
        "auto share = [&](int64 tap) {",
        "const int64 at = places_place + tap;",
        "const value weight = converted<value>(weights[at]);",
        "return weight == 0 ? value(0) : converted<value>(x[x_place + places[at] * stride]) * weight;",
        "};",
        "value total = share(0);",
        "for (int64 tap = 1; tap < taps; tap++) total = total + share(tap);",
        f"out[out_place] = converted<{STORED[wanted]}>(total);",
    )
    arrays = (("x", given), ("places", "int64"), ("weights", weights))
    return Walk("weighted_sums", (("out", wanted),), arrays, (), ("stride", "taps"), lines)
