"""Resampling: lines, images and volumes made larger or smaller.

Along each dimension, an element of the result is a weighted sum of a few elements of the input.  A table says of which,
and with which weights; the gradient is the same op with the tables transposed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import numpy as np

from vmflow import interpreter as _interpreter
from vmflow.dtypes import COMPLEX
from vmflow.instructions.blob import Array, meta
from vmflow.kernels.numpy.half import in_single

from .adaptive_pooling import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from .elementwise import CHEAP
from .layer_operands import Sizes, check_floating, is_half, sizes
from .table import Attributes, Form, Inferred, Kinds, Metas, OpExpr, array_module, computed_by

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

# Tables


class _Along(NamedTuple):
    """How one dimension is resampled.

    Attributes:
        filter: "nearest", "nearest-exact", "linear" or "cubic".
        source, target: sizes.
        align_corners: whether the centres of the first and last elements stay in place, not their outer edges.
        scale: input elements per output element where that was given, else 0.
        antialias: whether a filter that shrinks is widened, so that each input element counts.
    """

    filter: str
    source: int
    target: int
    align_corners: bool
    scale: float
    antialias: bool

    def step(self) -> float:
        """Input elements per output element."""
        if self.align_corners:
            return (self.source - 1) / (self.target - 1) if self.target > 1 else 0.0
        return self.scale or self.source / self.target


class _Table(NamedTuple):
    """For each element of the result, which elements count and how much: two arrays (result, taps)."""

    places: Array
    weights: Array


def _cubic(distance: Array, sharpness: float) -> Array:
    """Keys' cubic convolution kernel."""
    x, a = abs(distance), sharpness
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def _nearest(along: _Along) -> _Table:
    # In single precision, as PyTorch has it: the same elements are chosen where the quotient is all but an integer.
    step = np.float32(along.scale) if along.scale else np.float32(along.source) / np.float32(along.target)
    targets = np.arange(along.target, dtype=np.float32)
    if along.filter == "nearest-exact":
        targets = targets + np.float32(0.5)
    places = np.minimum(np.floor(targets * step).astype(np.int64), along.source - 1)
    return _Table(places[:, None], np.ones((along.target, 1)))


def _interpolated(along: _Along) -> _Table:
    targets = np.arange(along.target, dtype=np.float64)
    centres = targets * along.step() if along.align_corners else (targets + 0.5) * along.step() - 0.5
    last = along.source - 1
    if along.filter == "linear":
        centres = np.clip(centres, 0, last)
        below = np.floor(centres).astype(np.int64)
        part = centres - below
        return _Table(np.stack([below, np.minimum(below + 1, last)], 1), np.stack([1 - part, part], 1))
    taps = np.floor(centres)[:, None] + np.arange(-1, 3)
    return _Table(np.clip(taps, 0, last).astype(np.int64), _cubic(taps - centres[:, None], -0.75))


def _antialiased(along: _Along) -> _Table:
    """As Pillow does it: the filter is as wide as an output element, cut off at the edges, and sums up to 1."""
    step = along.step()
    widening = max(step, 1.0)
    support = (1.0 if along.filter == "linear" else 2.0) * widening
    centres = step * (np.arange(along.target) + 0.5)
    first = np.maximum((centres - support + 0.5).astype(np.int64), 0)
    behind = np.minimum((centres + support + 0.5).astype(np.int64), along.source)
    taps = first[:, None] + np.arange(max(int((behind - first).max()), 1))
    distance = (taps - centres[:, None] + 0.5) / widening
    weights = np.maximum(1 - abs(distance), 0.0) if along.filter == "linear" else _cubic(distance, -0.5)
    weights = np.where(taps < behind[:, None], weights, 0.0)
    total = weights.sum(1, keepdims=True)
    return _Table(np.minimum(taps, along.source - 1), weights / np.where(total == 0, 1.0, total))


def _transposed(table: _Table, size: int) -> _Table:
    """The table of the transposed map, whose result has `size` elements."""
    count = table.places.shape[1]
    places, weights = table.places.reshape(-1), table.weights.reshape(-1)
    used = weights != 0
    places, weights = places[used], weights[used]
    origins = np.repeat(np.arange(table.places.shape[0]), count)[used]
    order = np.argsort(places, kind="stable")
    places, weights, origins = places[order], weights[order], origins[order]
    counts = np.bincount(places, minlength=size)
    starts = np.cumsum(counts) - counts
    slots = np.arange(len(places)) - starts[places]
    wide = max(int(counts.max()), 1)
    # What fills a row up refers to one of the row's own elements, so that others' infinities stay out of it.
    first = origins[np.minimum(starts, max(len(origins) - 1, 0))] if len(origins) else np.zeros(size, np.int64)
    result = _Table(np.repeat(first[:, None], wide, 1), np.zeros((size, wide)))
    result.places[places, slots] = origins
    result.weights[places, slots] = weights
    return result


@functools.lru_cache(256)
def _table(along: _Along, transposed: bool) -> _Table:
    if transposed:
        return _transposed(_table(along, False), along.source)
    if along.filter.startswith("nearest"):
        return _nearest(along)
    return _antialiased(along) if along.antialias else _interpolated(along)


# The op.  Attributes: (how along each dimension, whether transposed)

_How = tuple[tuple[_Along, ...], bool]


def _infer_resample(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    every, transposed = cast("_How", attributes)
    (source,) = metas
    size = [it.source if transposed else it.target for it in every]
    output = meta((*source.shape[:2], *size), source.dtype, source.device)
    xp = array_module(source.device)
    chooses = not transposed and every[0].filter.startswith("nearest")
    tables = [
        (axis, xp.asarray(table.places), table.weights)
        for axis, table in reversed(list(enumerate([_table(it, transposed) for it in every], 2)))
    ]
    compute = np.dtype(np.float32) if is_half(source) else source.dtype.numpy

    def kernel(array: Array, out: Array | None) -> Array:
        for axis, places, weights in tables:
            if chooses:
                array = xp.take(array, places[:, 0], axis)
                continue
            spread = (1,) * (array.ndim - axis - 1)
            factors = xp.asarray(weights.astype(compute))
            result = None
            for tap in range(places.shape[1]):
                part = xp.take(array, places[:, tap], axis)
                part *= factors[:, tap].reshape(-1, *spread)
                result = part if result is None else xp.add(result, part, result)
            array = result
        return array

    taps = sum([places.shape[1] for _, places, _ in tables])
    cost = (source.numel + output.numel) * taps * CHEAP * 4 + 10000
    return computed_by(output, kernel if chooses else in_single(kernel, is_half(source)), cost)


_RESAMPLE = OpExpr("resample", _infer_resample, Form(1, _How))


@_RESAMPLE.gradient()
def _resample_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    every, transposed = cast("_How", node.attributes)
    return (_interpreter.dispatch(_RESAMPLE, (gradient,), (every, not transposed)),)


# Functions

# Of each mode: the filter, and the numbers of spatial dimensions it is for.
_MODES: Final[dict[str, tuple[str, tuple[int, ...]]]] = {
    "nearest": ("nearest", (1, 2, 3)),
    "nearest-exact": ("nearest-exact", (1, 2, 3)),
    "linear": ("linear", (1,)),
    "bilinear": ("linear", (2,)),
    "bicubic": ("cubic", (2,)),
    "trilinear": ("linear", (3,)),
    "area": ("area", (1, 2, 3)),
}
_AREA: Final[dict[int, Any]] = {1: adaptive_avg_pool1d, 2: adaptive_avg_pool2d, 3: adaptive_avg_pool3d}


def _factors(rank: int, scale_factor: Any) -> tuple[float, ...]:
    given = tuple(scale_factor) if isinstance(scale_factor, (tuple, list)) else (scale_factor,) * rank
    if len(given) != rank or any(isinstance(it, bool) or not isinstance(it, (int, float)) for it in given):
        raise TypeError(f"interpolate: scale_factor must be a number or {rank} of them, not {scale_factor!r}")
    if any(not math.isfinite(it) or it <= 0 for it in given):
        raise ValueError(f"interpolate: scale_factor must be above 0, got {scale_factor!r}")
    return tuple([float(it) for it in given])


def _check_mode(mode: str, rank: int, align_corners: bool | None, antialias: bool) -> None:
    if mode not in _MODES:
        raise ValueError(f"interpolate: mode must be one of {', '.join(_MODES)}, not {mode!r}")
    if rank not in _MODES[mode][1]:
        dimensions = " or ".join([f"{it + 2}" for it in _MODES[mode][1]])
        raise ValueError(
            f"interpolate: mode {mode!r} is for inputs (samples, channels, ...) of {dimensions} dimensions, got "
            f"{rank + 2}"
        )
    if align_corners is not None and _MODES[mode][0] not in ("linear", "cubic"):
        raise ValueError(f"interpolate: align_corners has no meaning for mode {mode!r}; leave it out")
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ValueError(f"interpolate: antialias is for modes bilinear and bicubic, not {mode!r}")


def interpolate(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Make lines, images or volumes larger or smaller.

    Args:
        input: (samples, channels, ...) with one, two or three spatial dimensions.
        size: of the result, one number for all dimensions or one for each.
        scale_factor: instead of `size`, how many times as large the result is, rounded down.
        mode: "nearest", "nearest-exact" (for which centres count), "linear" (three dimensions), "bilinear" or
            "bicubic" (four), "trilinear" (five) or "area" (the mean of what an element covers).
        align_corners: whether the centres of the corner elements stay in place; else their outer edges do.
        recompute_scale_factor: whether elements are placed by the ratio of the sizes instead of `scale_factor`.
        antialias: when shrinking, whether each input element counts (modes bilinear and bicubic).

    Raises:
        TypeError: for dtypes that cannot be weighted, or if sizes or factors are no numbers.
        ValueError: for an unknown mode or one for other numbers of dimensions, if not exactly one of `size` and
            `scale_factor` is given, or if the input or the result is empty.
    """
    rank = input.ndim - 2
    if rank not in (1, 2, 3):
        raise ValueError(
            f"interpolate: expected an input (samples, channels, ...) of 3, 4 or 5 dimensions, got {list(input.shape)}"
        )
    _check_mode(mode, rank, align_corners, antialias)
    if (size is None) == (scale_factor is None):
        raise ValueError("interpolate: give either size or scale_factor")
    if recompute_scale_factor and size is not None:
        raise ValueError("interpolate: recompute_scale_factor has no meaning with size; leave it out")
    given = tuple(input.shape[2:])
    steps = (0.0,) * rank
    if size is not None:
        target = sizes("interpolate", "size", size if isinstance(size, int) else tuple(size), 1, rank)
    else:
        factors = _factors(rank, scale_factor)
        target = tuple([math.floor(have * factor) for have, factor in zip(given, factors, strict=True)])
        steps = steps if recompute_scale_factor else tuple([1 / it for it in factors])
    if not (all(given) and all(target)):
        raise ValueError(f"interpolate: cannot make {list(given)} elements into {list(target)}")
    if mode == "area":
        area: Tensor = _AREA[rank](input, target)
        return area
    return _resampled(input, _MODES[mode][0], target, bool(align_corners), steps, antialias)


def _resampled(
    input: Tensor, filter: str, target: Sizes, align_corners: bool, steps: tuple[float, ...], antialias: bool
) -> Tensor:
    if not filter.startswith("nearest"):
        check_floating("interpolate", input._blob.meta)
    elif input.dtype.category >= COMPLEX:
        raise TypeError(f"interpolate is not defined for {input.dtype.name} tensors")
    along = [
        _Along(filter, source, wanted, align_corners, step, antialias)
        for source, wanted, step in zip(input.shape[2:], target, steps, strict=True)
    ]
    return _interpreter.dispatch(_RESAMPLE, (input,), (tuple(along), False))
