"""Elements added around arrays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.kernels.numpy.half import computes_in
from vmflow.kernels.numpy.padding import Pairs
from vmflow.kernels.numpy.ufuncs import constant
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, into_outs
from .pointwise import bits_of, copy_array, fill_array
from .sources import COMPUTED, STORED
from .walks import Walk, Walked, along, part_of, steps_of, walk, walked


def _interior(array: DeviceArray, pairs: Pairs) -> DeviceArray:
    """Return a view of the part of an array padded by `pairs` that is not padding."""
    for axis, (before, after) in enumerate(pairs):
        array = part_of(array, axis, before, array.shape[axis] - after)
    return array


@builds("pad", package=PACKAGE)
def _build_pad(problem: Problem) -> Kernel:
    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (array, value), (out,) = operands, outs
        fill_array(launcher, out, constant(value, out.dtype).item())
        copy_array(launcher, array, _interior(out, problem.attributes))

    return Kernel(into_outs(launch, problem), casts=True)


# Borders made of interior elements

# By mode, C++ statements that turn an index `at` in the padding into the index of the element that is copied there.
_BACK = {
    "replicate": "at = within(at, size);",
    "circular": "at = at < 0 ? at + size : at >= size ? at - size : at;",
    "reflect": "at = at < 0 ? -at : at >= size ? 2 * size - 2 - at : at;",
}

# By mode, C++ statements that add to an element's `total` the gradients of its copies in the padding, in front and
# behind.
_FORTH = {
    "replicate": (
        "if (at == 0 && before > 0) {",
        "value border = seen(0);",
        "for (int64 k = 1; k < before; k++) border = border + seen(k);",
        "total = total + border;",
        "}",
        "if (at == size - 1 && after > 0) {",
        "value border = seen(before + size);",
        "for (int64 k = 1; k < after; k++) border = border + seen(before + size + k);",
        "total = total + border;",
        "}",
    ),
    "circular": (
        "if (at >= size - before) total = total + seen(at - (size - before));",
        "if (at < after) total = total + seen(before + size + at);",
    ),
    "reflect": (
        "if (at > 0 && at <= before) total = total + seen(before - at);",
        "if (at < size - 1 && at >= size - 1 - after) total = total + seen(before + 2 * size - 2 - at);",
    ),
}


@builds("pad_borders", package=PACKAGE)
def _build_borders(problem: Problem) -> Kernel:
    mode, pairs = problem.attributes
    axes = _padded(pairs)

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (array,), (out,) = operands, outs
        own = steps_of(array)
        source = Walked(array, tuple([0 if axis in axes else step for axis, step in enumerate(own)]))
        counters = [along(axis, out.ndim) for axis in axes]
        numbers = [number for axis in axes for number in (pairs[axis][0], array.shape[axis], own[axis])]
        walk(launcher, _borders(mode, len(axes), bits_of(out.dtype)), out.shape, [walked(out)], [source], counters,
             numbers)  # fmt: skip

    return Kernel(into_outs(launch, problem), casts=True)


def _padded(pairs: Pairs) -> list[int]:
    return [axis for axis, pair in enumerate(pairs) if any(pair)]


@lru_cache(None)
def _borders(mode: str, padded: int, dtype: str) -> Walk:
    lines = ["int64 place = x_place;"]
    for axis in range(padded):
        lines += [
            "{",
            f"int64 at = p{axis}_place - before{axis};",
            f"const int64 size = size{axis};",
            _BACK[mode],
            f"place += at * stride{axis};",
            "}",
        ]
    lines.append("out[out_place] = x[place];")
    numbers = tuple([f"{name}{axis}" for axis in range(padded) for name in ("before", "size", "stride")])
    counters = tuple([f"p{axis}" for axis in range(padded)])
    return Walk(f"pad_{mode}", (("out", dtype),), (("x", dtype),), counters, numbers, tuple(lines))


@builds("pad_borders_gradient", package=PACKAGE)
def _build_borders_gradient(problem: Problem) -> Kernel:
    mode, pairs = problem.attributes
    axes = _padded(pairs)[::-1]
    wide = computes_in(problem.inputs[0].dtype)

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (array,), (out,) = operands, outs
        if not axes:
            copy_array(launcher, array, out)
        for axis in axes:
            size = out.shape[axis]
            shape = (*array.shape[:axis], size, *array.shape[axis + 1 :])
            target = out if axis == axes[-1] else launcher.scratch(shape, wide)
            _add_borders(launcher, mode, array, axis, pairs[axis], target)
            array = target

    return Kernel(into_outs(launch, problem), casts=True)


def _add_borders(
    launcher: Launcher, mode: str, array: DeviceArray, axis: int, pair: Sequence[int], out: DeviceArray
) -> None:
    """Write the gradient by an array to `out`, from `array`, the gradient by the result of padding it along `axis` by
    `pair`: add the gradients of copies to their elements' gradients.
    """
    own = steps_of(array)
    source = Walked(array, (*own[:axis], 0, *own[axis + 1 :]))
    numbers = (*pair, out.shape[axis], own[axis])
    program = _sums(mode, array.dtype.name, out.dtype.name)
    walk(launcher, program, out.shape, [walked(out)], [source], [along(axis, out.ndim)], numbers)


@lru_cache(None)
def _sums(mode: str, given: str, wanted: str) -> Walk:
    lines = (
        f"typedef {COMPUTED[given]} value;",
        "const int64 at = p_place;",
        "auto seen = [&](int64 index) { return converted<value>(x[x_place + index * stride]); };",
        "value total = seen(before + at);",
        *_FORTH[mode],
        f"out[out_place] = converted<{STORED[wanted]}>(total);",
    )
    numbers = ("before", "after", "size", "stride")
    return Walk(f"sums_of_{mode}", (("out", wanted),), (("x", given),), ("p",), numbers, lines)
