"""Copies, casts and filling."""

from __future__ import annotations

from typing import Any

import numpy as np

from vmflow import dtypes
from vmflow.instructions.blob import Array
from vmflow.kernels.choosing import Function, Problem, builds
from vmflow.kernels.problems.elementwise import CHEAP

from .spreading import spread
from .ufuncs import constant


@builds("cast", "to_device", "copy_")
def _copy(problem: Problem) -> Function:
    """Build the kernel that copies an array to the output's dtype and shape: cast and broadcast if they differ."""
    (source,), (output,) = problem.inputs, problem.outputs
    loses_imaginary = loses_imaginary_part(source.dtype, output.dtype)
    to, shape, broadcasts = output.dtype.numpy, output.shape, source.shape != output.shape

    def kernel(array: Array, out: Array | None) -> Array:
        if loses_imaginary:
            array = array.real  # numpy would warn
        if out is None:
            return (np.broadcast_to(array, shape) if broadcasts else array).astype(to, order="C")
        copy_transposed(out, array) if lies_across(out, array) else np.copyto(out, array, casting="unsafe")
        return out

    return spread(kernel, output, CHEAP)


def loses_imaginary_part(source: dtypes.dtype, target: dtypes.dtype) -> bool:
    """Return whether a cast drops imaginary parts, of which numpy would warn; a cast to bool drops none."""
    return source.is_complex and not target.is_complex and target is not dtypes.bool_


def lies_across(out: Array, array: Array) -> bool:
    """Return whether `copy_transposed` should pay: for large arrays of one shape, if `out` is contiguous and the
    last two dimensions of `array` are transposed in memory.
    """
    return (
        out.size > 1 << 14
        and out.shape == array.shape
        and out.ndim > 1
        and out.flags.c_contiguous
        and array.strides[-2] == array.itemsize
        and array.strides[-1] > array.itemsize * 16
        and not np.may_share_memory(out, array)
    )


def copy_transposed(out: Array, array: Array) -> None:
    """Copy an array that `lies_across` in strips of its columns: row by row, each cache line would be fetched often.

    A strip is four cache lines of `out` wide; one if the array's columns lie a multiple of a kibibyte apart, since
    their lines share few places in the cache.
    """
    width = max((64 if array.strides[-1] % 1024 == 0 else 256) // out.itemsize, 1)
    for start in range(0, out.shape[-1], width):
        np.copyto(out[..., start : start + width], array[..., start : start + width], casting="unsafe")


@builds("fill")
def _fill(problem: Problem) -> Function:
    (output,) = problem.outputs
    shape, to = output.shape, output.dtype.numpy

    def kernel(value: Any, out: Array | None) -> Array:
        if out is None:
            return np.full(shape, constant(value, to), to)
        out[...] = constant(value, to)
        return out

    return kernel
