"""Runs kernels of many passes over a large array piece by piece, so that all passes over a piece stay in the cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np

from vmflow.instructions.blob import Array

# Bytes of each array in a tile.  Smaller tiles need more calls of ufuncs; larger ones may not fit into a core's cache.
TILE: Final = 1 << 17

# step(*operands, out, *scratch): all of one length and dtype and contiguous; `out` may be one of the operands, the
# scratch arrays are the step's own.
Step: TypeAlias = Callable[..., None]


def in_tiles(step: Step, scratch: int, single: bool) -> Callable[..., Array]:
    """Return a kernel that calls `step` for each tile of its operands, which broadcast.

    Args:
        step: computes a tile.
        scratch: the number of scratch arrays of a tile's length.
        single: whether `step` computes in float32, else in float64.  Operands, of one dtype, are converted to that, and
            the result to their dtype.
    """
    compute = np.dtype(np.float32 if single else np.float64)
    longest = TILE // compute.itemsize

    def kernel(*arguments: Any) -> Array:
        *arrays, out = arguments
        if any([array.shape != arrays[0].shape for array in arrays[1:]]):
            arrays = list(np.broadcast_arrays(*arrays))
        shape, dtype = arrays[0].shape, arrays[0].dtype
        # Contiguous, as `step` needs: `reshape` would return strided views of some arrays.
        flat = [array.ravel() for array in arrays]
        fits = out is not None and out.dtype == dtype and out.shape == shape and out.flags.c_contiguous
        if fits and any([_is_ahead_of(out, array) for array in flat]):
            fits = False
        result = out if fits else np.empty(shape, dtype)
        converts = dtype != compute
        target = result.reshape(-1)
        if target.size <= longest and not converts:
            step(*flat, target, *[np.empty(target.size, compute) for _ in range(scratch)])
            return result
        length = min(longest, target.size)
        work = [np.empty(length, compute) for _ in range(scratch + (len(arrays) + 1 if converts else 0))]
        for start in range(0, target.size, longest):
            piece = target[start : start + longest]
            buffers = work if piece.size == length else [value[: piece.size] for value in work]
            operands = [value[start : start + longest] for value in flat]
            if not converts:
                step(*operands, piece, *buffers)
                continue
            wide = buffers[scratch:]
            for array, operand in zip(wide, operands, strict=False):
                np.copyto(array, operand, casting="unsafe")
            step(*wide, *buffers[:scratch])
            np.copyto(piece, wide[-1], casting="unsafe")
        return result

    return kernel


def by_precision(single: Callable[..., Array], double: Callable[..., Array]) -> Callable[..., Array]:
    """Return a kernel that leaves operands of float64 to `double`, and others to `single`."""

    def chosen(*arguments: Any) -> Array:
        return (double if arguments[0].dtype == np.float64 else single)(*arguments)

    return chosen


def _is_ahead_of(out: Array, array: Array) -> bool:
    """Return whether a tile of `out` may overwrite elements that a later tile reads; identical memory is safe."""
    if not np.may_share_memory(out, array):
        return False
    return bool(out.__array_interface__["data"] != array.__array_interface__["data"])


def polynomial(x: Array, coefficients: tuple[Array, ...], out: Array) -> None:
    """Compute a polynomial in `x` into `out`, which must not be `x`; the constant term comes first."""
    np.multiply(x, coefficients[-1], out)
    for coefficient in coefficients[-2:0:-1]:
        np.add(out, coefficient, out)
        np.multiply(out, x, out)
    np.add(out, coefficients[0], out)


def constants(values: tuple[float, ...], dtype: type[np.floating[Any]]) -> tuple[Array, ...]:
    """Return the numbers as 0-d arrays, which a ufunc takes faster."""
    return tuple([np.array(value, dtype) for value in values])
