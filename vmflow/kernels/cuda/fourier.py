"""Discrete Fourier transforms by the array module, such as CuPy, and related ops by kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, by_arrays, into_outs
from .pointwise import apart
from .sources import STORED
from .walks import Walk, along, walk, walked


def _whole(xp: Any, array: Any, dims: tuple[int, ...], inverse: bool, norm: Any) -> Any:
    transform = xp.fft.ifftn if inverse else xp.fft.fftn
    return transform(array, axes=dims, norm=norm)


def _to_half(xp: Any, array: Any, dims: tuple[int, ...], norm: Any) -> Any:
    return xp.fft.rfftn(array, axes=dims, norm=norm)


def _from_half(xp: Any, array: Any, dims: tuple[int, ...], length: int, norm: Any) -> Any:
    """Transform a half spectrum back to a real array, whose last transformed dimension has `length` elements."""
    lengths = [*[array.shape[dim] for dim in dims[:-1]], length]
    return xp.fft.irfftn(array, s=lengths, axes=dims, norm=norm)


# transform(xp, array, *attributes) returns the transform; the first attribute is the dimensions to transform.
_TRANSFORMS: Final[dict[str, Callable[..., Any]]] = {"fft": _whole, "rfft": _to_half, "irfft": _from_half}


@by_arrays("fft", "rfft", "irfft")
def _transformed(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    if out.size:
        xp.copyto(out, _TRANSFORMS[problem.op](xp, array, *problem.attributes), casting="unsafe")


@builds("weighted_half", package=PACKAGE)
def _build_weighted_half(problem: Problem) -> Kernel:
    dim, length, weight = problem.attributes

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (array,), (out,) = operands, outs
        array = apart(launcher, array, out)
        counters = [along(dim, out.ndim)]
        numbers = length, float(weight)
        walk(launcher, _weighted_half(out.dtype.name), out.shape, [walked(out)], [walked(array)], counters, numbers)

    return Kernel(into_outs(launch, problem), casts=True)


@lru_cache(None)
def _weighted_half(dtype: str) -> Walk:
    """Build a program that multiplies a half spectrum by `weight`, except the first element, and the last if the whole
    spectrum's length is even: only these occur once in the whole spectrum.
    """
    lines = (
        "const bool one = place_place == 0 || 2 * place_place == length;",
        f"const {dtype} factor = {{(decltype({dtype}::real))(one ? 1 : weight), 0}};",
        "out[out_place] = x[x_place] * factor;",
    )
    return Walk("weighted_half", (("out", dtype),), (("x", dtype),), ("place",), ("length",), lines, ("weight",))


@builds("frequencies", package=PACKAGE)
def _build_frequencies(problem: Problem) -> Kernel:
    _, length, half = problem.attributes

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (distance,), (out,) = operands, outs
        numbers = length, length if half else (length + 1) // 2, float(length * distance)
        walk(launcher, _frequencies(out.dtype.name), out.shape, [walked(out)], [], [(1,)], numbers)

    return Kernel(into_outs(launch, problem), casts=True)


@lru_cache(None)
def _frequencies(dtype: str) -> Walk:
    lines = (
        "const int64 count = n_place < positive ? n_place : n_place - length;",
        f"out[out_place] = converted<{STORED[dtype]}>(count / whole);",
    )
    return Walk("frequencies", (("out", dtype),), (), ("n",), ("length", "positive"), lines, ("whole",))
