"""Discrete Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from vmflow.kernels.choosing import Problem

from .arrays import by_arrays


def _whole(xp: Any, array: Any, dims: tuple[int, ...], inverse: bool, norm: Any) -> Any:
    transform = xp.fft.ifftn if inverse else xp.fft.fftn
    return transform(array, axes=dims, norm=norm)


def _to_half(xp: Any, array: Any, dims: tuple[int, ...], norm: Any) -> Any:
    return xp.fft.rfftn(array, axes=dims, norm=norm)


def _from_half(xp: Any, array: Any, dims: tuple[int, ...], length: int, norm: Any) -> Any:
    """`length` is that of the result's last dimension."""
    lengths = [*[array.shape[dim] for dim in dims[:-1]], length]
    return xp.fft.irfftn(array, s=lengths, axes=dims, norm=norm)


# transform(xp, array, *attributes), of which the first are the dimensions
_TRANSFORMS: Final[dict[str, Callable[..., Any]]] = {"fft": _whole, "rfft": _to_half, "irfft": _from_half}


@by_arrays("fft", "rfft", "irfft")
def _transformed(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    if out.size:
        xp.copyto(out, _TRANSFORMS[problem.op](xp, array, *problem.attributes), casting="unsafe")


@by_arrays("weighted_half")
def _weighted_half(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    dim, length, weight = problem.attributes
    weights = xp.full(length // 2 + 1, weight, dtype=array.dtype)
    weights[0] = 1
    if length % 2 == 0:
        weights[-1] = 1
    xp.multiply(array, weights.reshape((-1,) + (1,) * (array.ndim - dim - 1)), out=out)


@by_arrays("frequencies")
def _frequencies(xp: Any, problem: Problem, distance: float, out: Any) -> None:
    _, length, half = problem.attributes
    count = xp.arange(out.size)
    if not half:
        count[(length + 1) // 2 :] -= length
    xp.copyto(out, xp.true_divide(count, length * distance), casting="unsafe")
