"""Arrays put together, repeated, turned round and cut along a diagonal."""

from __future__ import annotations

from typing import Any

import numpy as np

from vmflow.kernels.choosing import Problem
from vmflow.streams.cuda.launching import Launcher

from .arrays import by_arrays
from .bits import as_bits
from .checks import check_range
from .scattering import coordinates


def _moved(xp: Any, out: Any, array: Any, value: Any) -> None:
    """Put elements of `array`, seen in another order, into `out`, which may be that array."""
    xp.copyto(as_bits(out), value.copy() if xp.may_share_memory(out, array) else value)


@by_arrays("cat")
def _cat(xp: Any, problem: Problem, *arguments: Any) -> None:
    *arrays, out = arguments
    (axis,) = problem.attributes
    xp.concatenate([as_bits(array.astype(out.dtype, copy=False)) for array in arrays], axis, as_bits(out))


@by_arrays("repeat")
def _repeat(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    (repeats,) = problem.attributes
    xp.copyto(as_bits(out), xp.tile(as_bits(array), repeats).reshape(out.shape))


def _check_repetitions(launcher: Launcher, problem: Problem, operands: tuple[Any, ...]) -> None:
    (array,) = operands

    def explain(position: int, value: int) -> Exception:
        return ValueError(
            f"repeat_interleave: expected {array.size} numbers that are not negative, got {value} at {position}"
        )

    check_range(launcher, array, 0, np.iinfo(np.int64).max, explain)


@by_arrays("repetitions", check=_check_repetitions)
def _repetitions(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    xp.copyto(out, xp.sum(array, dtype=np.int64))


def _changed(problem: Problem, more: int) -> Exception:
    (total,) = problem.attributes
    return RuntimeError(
        f"repeat_interleave: {total + more} repetitions where {total} were counted: they were changed meanwhile"
    )


@by_arrays("repeated_places", verify=_changed)
def _repeated_places(xp: Any, problem: Problem, array: Any, out: Any, more: Any) -> None:
    (total,) = problem.attributes
    xp.copyto(more, xp.sum(array, dtype=np.int64) - total)
    ends = xp.cumsum(array, dtype=np.int64)
    places = xp.searchsorted(ends, xp.arange(total, dtype=np.int64), side="right")
    xp.copyto(out, xp.minimum(places, max(array.size - 1, 0)))


@by_arrays("flip")
def _flip(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    (dims,) = problem.attributes
    bits = as_bits(array)
    _moved(xp, out, array, xp.flip(bits, dims) if dims else bits)


@by_arrays("roll")
def _roll(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    shifts, dims = problem.attributes
    xp.copyto(as_bits(out), xp.roll(as_bits(array), shifts, dims))


@by_arrays("triangle")
def _triangle(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    lower, diagonal = problem.attributes
    rows = coordinates(xp, array.shape[-2], 0, 2) + diagonal
    columns = coordinates(xp, array.shape[-1], 1, 2)
    bits = as_bits(array)
    xp.copyto(as_bits(out), xp.where(columns <= rows if lower else columns >= rows, bits, xp.zeros((), bits.dtype)))
