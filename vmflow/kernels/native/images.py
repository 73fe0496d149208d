"""Calls of the C functions for images: convolutions, pooling and batch norm.

Each of them computes a result, or returns that C cannot compute it, as in `arrays`.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from vmflow.kernels.choosing import Call

from .addresses import Array, address
from .arrays import INDEX, SINGLE, fits
from .functions import function


def _result(out: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any] = SINGLE) -> Array:
    """`out` if it is memory for a result of this shape, else new memory."""
    return out if out is not None and fits(out, dtype) else np.empty(shape, dtype)


class _OfSizes:
    """A C function of images of certain sizes, with scratch memory.

    Args:
        kernel: the function.
        sizes: the fields of its C struct.
        scratch: the bytes of scratch memory.
        further: the arguments behind that.
    """

    def __init__(self, kernel: Callable[..., Any], sizes: Sequence[int], scratch: int, *further: Any) -> None:
        self._kernel = kernel
        self._sizes = (ctypes.c_int64 * len(sizes))(*sizes)
        self._scratch = scratch
        self._further = further

    def compute(self, arrays: Sequence[Array | None]) -> None:
        """Compute the result from arrays that fit, in the order of the function's arguments."""
        self._compute([None if array is None else address(array) for array in arrays])

    def placed(
        self, arrays: Sequence[Array | None], dtypes: Sequence[np.dtype[Any]] | None = None
    ) -> list[Call] | None:
        """Return `compute` as one call for arrays that stay at their addresses; None if the arrays do not fit.

        Args:
            arrays: see `compute`.
            dtypes: of each; None if all are of float32.
        """
        for array, dtype in zip(arrays, dtypes or [SINGLE] * len(arrays), strict=True):
            if array is not None and not fits(array, dtype):
                return None
        return [(self._compute, ([None if array is None else address(array) for array in arrays],), None)]

    def _compute(self, places: list[int | None]) -> None:
        # The scratch memory is not kept: most of the time it would be unused.
        scratch = np.empty(self._scratch, np.uint8)
        self._kernel(ctypes.addressof(self._sizes), *places, address(scratch), *self._further)


def _made(calls: list[Call] | None) -> bool:
    """Make all calls; return whether there were any: False for None."""
    for call, arguments, _ in calls or ():
        call(*arguments)
    return calls is not None


def _scratch_bytes(counting: Callable[..., int], sizes: Sequence[int]) -> int:
    """The bytes of scratch memory of a function, which C counts in float32 numbers."""
    kept = (ctypes.c_int64 * len(sizes))(*sizes)
    return counting(ctypes.addressof(kept)) * SINGLE.itemsize


class Convolution:
    """The convolutions of float32 of certain sizes, and their gradients.

    The arrays are (samples, channels, height, width), (filters, channels of a group, kernel height, kernel width),
    (filters,) and (samples, filters, rows, columns); for lines, heights and rows are left out.

    Args:
        sizes: as the fields of the C struct of this name; all but the padding are at least 1.
        rank: 2, or 1 for lines, which are images of one row.
        forward, by_input, by_weight: the C functions.

    Attributes:
        forward, by_input, by_weight: see above.
    """

    def __init__(
        self, sizes: tuple[int, ...], rank: int, forward: _OfSizes, by_input: _OfSizes, by_weight: _OfSizes
    ) -> None:
        samples, groups, channels, filters, height, width, down, across, rows, columns = sizes[:10]
        self._given = (samples, groups * channels, *(height, width)[-rank:])
        self._made = (samples, groups * filters, *(rows, columns)[-rank:])
        self._weights = (groups * filters, channels, *(down, across)[-rank:])
        self.forward = forward
        self.by_input = by_input
        self.by_weight = by_weight

    @classmethod
    def of(cls, dtype: np.dtype[Any], sizes: tuple[int, ...], rank: int) -> Self | None:
        """The convolutions of arrays of this dtype and these sizes, see the class; None if C has no functions now."""
        if dtype != SINGLE:
            return None
        products = math.prod(sizes[:4]) * math.prod(sizes[6:10])
        kinds = ("", "_input_gradient", "_weight_gradient", "_scratch")
        found = [kernel.call for kind in kinds if (kernel := function(f"convolution{kind}", products)) is not None]
        if len(found) < len(kinds):
            return None
        scratch = _scratch_bytes(found.pop(), sizes)
        return cls(sizes, rank, *[_OfSizes(kernel, sizes, scratch) for kernel in found])

    def convolved(self, array: Array, weight: Array, bias: Array | None, out: Array | None) -> Array:
        """The convolution, with `bias` unless it is None; into `out` if that is memory for the result."""
        result = _result(out, self._made)
        self.forward.compute([*map(_whole, (array, weight, bias)), result])
        return result

    def input_gradient(self, gradient: Array, weight: Array, out: Array | None) -> Array:
        """The gradient by the input, into `out` if that is memory for the result."""
        result = _result(out, self._given)
        self.by_input.compute([_whole(gradient), _whole(weight), result])
        return result

    def weight_gradient(self, array: Array, gradient: Array, with_bias: bool) -> tuple[Array, ...]:
        """The gradient by the weight and, with `with_bias`, by the bias."""
        by_weight = np.empty(self._weights, SINGLE)
        by_bias = np.empty(self._weights[0], SINGLE) if with_bias else None
        self.by_weight.compute([_whole(array), _whole(gradient), by_weight, by_bias])
        return (by_weight,) if by_bias is None else (by_weight, by_bias)


def _whole(array: Array | None) -> Array | None:
    """Return the array aligned and without gaps, a copy if necessary; None for None."""
    return array if array is None or fits(array) else np.array(array, SINGLE, order="C")


class MaxPool:
    """The largest elements of windows of images of float32.

    Args:
        kernel: the C function.
        shape: of the result.
    """

    def __init__(self, kernel: _OfSizes, shape: tuple[int, ...]) -> None:
        self._kernel = kernel
        self._made = shape

    @classmethod
    def of(cls, dtype: np.dtype[Any], sizes: tuple[int, ...], shape: tuple[int, ...]) -> Self | None:
        """The op for images of this dtype; None if C has no function now.

        Args:
            dtype: of the images.
            sizes: as the fields of the C struct `pooling`.
            shape: of the result.
        """
        planes, height, width = sizes[:3]
        # Indices within an image are counted in 32 bits.
        if dtype != SINGLE or not 0 < height * width < 1 << 31:
            return None
        kernel = function("max_pool", planes * height * width)
        columns, kernel_columns = sizes[4], sizes[6]
        scratch = (2 * kernel_columns + columns) * INDEX.itemsize
        return None if kernel is None else cls(_OfSizes(kernel.call, sizes, scratch), shape)

    def largest(
        self, array: Array, out: Array | None, indices: Array | None = None, wanted: bool = False
    ) -> tuple[Array, ...] | None:
        """The largest elements, and their indices in their planes; None if C cannot compute them.

        Args:
            array: the images.
            out, indices: memory for both, or None.
            wanted: whether to return indices.
        """
        result = _result(out, self._made)
        places = _result(indices, self._made, INDEX) if wanted else None
        if not _made(self.placed(array, result, places)):
            return None
        return (result,) if places is None else (result, places)

    def placed(self, array: Array, out: Array, indices: Array | None) -> list[Call] | None:
        """Return the calls of `largest` for arrays that stay at their addresses."""
        return self._kernel.placed((array, out, indices), (SINGLE, SINGLE, INDEX))


class PlaneScatter:
    """Values added up at their indices in planes of zeros.

    Args:
        kernel: the C function.
        shape: of the result: samples, channels, and the size of a plane.
    """

    def __init__(self, kernel: Callable[..., Any], shape: tuple[int, ...]) -> None:
        self._kernel = kernel
        self._shape = shape

    @classmethod
    def of(cls, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Self | None:
        """The op for values of this dtype and a result of this shape; None if C has no function now."""
        elements = math.prod(shape)
        kernel = function("plane_scatter", elements) if dtype == SINGLE and elements else None
        return None if kernel is None else cls(kernel.call, shape)

    def call(self, values: Array, indices: Array, out: Array | None) -> Array | None:
        """Compute the result; None if C cannot.

        Args:
            values, indices: of images whose planes are separate; indices count within a plane.
            out: memory for the result, or None.
        """
        if not fits(values) or not fits(indices, INDEX):
            return None
        result = _result(out, self._shape)
        places = [address(array) for array in (values, indices, result)]
        planes, plane = self._shape[0] * self._shape[1], math.prod(self._shape[2:])
        return None if self._kernel(*places, planes, values.size // planes, plane) else result


class BatchNorm(_OfSizes):
    """Batch norm of float32, and its gradient: of each channel over samples and values."""

    @classmethod
    def of(cls, name: str, dtype: np.dtype[Any], sizes: tuple[int, int, int], eps: float) -> Self | None:
        """The op for arrays of this dtype; None if C has no function now.

        Args:
            name: "batch_norm" or "batch_norm_gradient".
            dtype: of the array.
            sizes: the numbers of samples, channels and values.
            eps: added to the variance.
        """
        elements = math.prod(sizes)
        if dtype != SINGLE or not elements:
            return None
        kernel, counting = function(name, elements), function("batch_norm_scratch", elements)
        if kernel is None or counting is None:
            return None
        return cls(kernel.call, sizes, _scratch_bytes(counting.call, sizes), eps)

    def call(self, out: Array | None, first: Array, *others: Array | None) -> tuple[Array, Array, Array] | None:
        """The results: an array like the first one, and two numbers for each channel; None if C cannot compute them.

        Args:
            out: memory for the array, or None.
            first, others: contiguous arrays, or None for missing ones: the array, weight and bias; or the gradient, the
                array, the mean, the variance and the weight.
        """
        channels = self._sizes[1]
        made = _result(out, first.shape), np.empty(channels, SINGLE), np.empty(channels, SINGLE)
        return made if _made(self.placed((first, *others, *made))) else None
