"""Calls of the C functions for images: convolutions, pooling and batch norm.

Methods that may return None do so if C cannot compute the result; see `arrays`.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from vmflow.kernels.choosing import Call

from .addresses import Array, address, realigned
from .arrays import INDEX, SINGLE, fits
from .functions import function


def _result(out: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any] = SINGLE) -> Array:
    """Return `out` if it is aligned, contiguous and of this dtype, else a new array of `shape`."""
    return out if out is not None and fits(out, dtype) else np.empty(shape, dtype)


class _OfSizes:
    """A C function of images of certain sizes, called as ``kernel(sizes, *arrays, scratch, *further)``.

    Args:
        kernel: the C function.
        sizes: the fields of the C struct of sizes.
        scratch: the bytes of scratch memory that each call gets.
        further: the arguments behind the scratch memory.
    """

    def __init__(self, kernel: Callable[..., Any], sizes: Sequence[int], scratch: int, *further: Any) -> None:
        self._kernel = kernel
        self._sizes = (ctypes.c_int64 * len(sizes))(*sizes)
        self._scratch = scratch
        self._further = further

    def compute(self, arrays: Sequence[Array | None]) -> None:
        """Call the C function with arrays that it can take, in the order of its arguments; None for a missing one."""
        self._compute([None if array is None else address(array) for array in arrays])

    def placed(
        self, arrays: Sequence[Array | None], dtypes: Sequence[np.dtype[Any]] | None = None
    ) -> list[Call] | None:
        """Prepare one call of the C function for arrays that keep their addresses; None if C cannot take them.

        Args:
            arrays: see `compute`.
            dtypes: the dtype of each array; None if all are of float32.
        """
        for array, dtype in zip(arrays, dtypes or [SINGLE] * len(arrays), strict=True):
            if array is not None and not fits(array, dtype):
                return None
        return [(self._compute, ([None if array is None else address(array) for array in arrays],), None)]

    def _compute(self, places: list[int | None]) -> None:
        # Scratch memory is allocated for each call and not kept, since it would be unused most of the time.
        scratch = np.empty(self._scratch, np.uint8)
        self._kernel(ctypes.addressof(self._sizes), *places, address(scratch), *self._further)


def _made(calls: list[Call] | None) -> bool:
    """Make prepared calls, unless they are None; returns whether they were made."""
    for call, arguments, _ in calls or ():
        call(*arguments)
    return calls is not None


def _scratch_bytes(counting: Callable[..., int], sizes: Sequence[int]) -> int:
    """Return the bytes of scratch memory for `sizes`, from a C function that counts it in float32 numbers."""
    kept = (ctypes.c_int64 * len(sizes))(*sizes)
    return counting(ctypes.addressof(kept)) * SINGLE.itemsize


class Convolution:
    """The float32 convolution of certain sizes, and its gradients.

    Shapes: input (samples, channels, height, width), weight (filters, channels of a group, kernel height, kernel
    width), bias (filters,), result (samples, filters, rows, columns); for 1-D, without height, kernel height and rows.

    Args:
        sizes: the fields of the C struct `convolution`; all but the padding are at least 1.
        rank: 2 for images, 1 for 1-D convolutions, which C computes as images of one row.
        forward: the C function of the result.
        by_input, by_weight: the C functions of the gradients by input and by weight and bias.

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
        """Make an instance for sizes, see the class; None unless `dtype` is float32 and C may be used now."""
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
        """Compute the convolution, plus `bias` unless it is None; into `out` if that is suitable memory."""
        result = _result(out, self._made)
        self.forward.compute([*map(_whole, (array, weight, bias)), result])
        return result

    def input_gradient(self, gradient: Array, weight: Array, out: Array | None) -> Array:
        """Compute the gradient by the input from that of the result; into `out` if that is suitable memory."""
        result = _result(out, self._given)
        self.by_input.compute([_whole(gradient), _whole(weight), result])
        return result

    def weight_gradient(self, array: Array, gradient: Array, with_bias: bool) -> tuple[Array, ...]:
        """Compute the gradient by the weight and, with `with_bias`, by the bias, from input and result's gradient."""
        by_weight = np.empty(self._weights, SINGLE)
        by_bias = np.empty(self._weights[0], SINGLE) if with_bias else None
        self.by_weight.compute([_whole(array), _whole(gradient), by_weight, by_bias])
        return (by_weight,) if by_bias is None else (by_weight, by_bias)


def _whole(array: Array | None) -> Array | None:
    """Return the array as C needs it: float32, aligned and C-contiguous, copied if necessary; None stays None."""
    return array if array is None or fits(array) else np.array(array, SINGLE, order="C")


class MaxPool:
    """Max pooling of float32 images.

    Args:
        kernel: the C function.
        shape: the shape of the result.
    """

    def __init__(self, kernel: _OfSizes, shape: tuple[int, ...]) -> None:
        self._kernel = kernel
        self._made = shape

    @classmethod
    def of(cls, dtype: np.dtype[Any], sizes: tuple[int, ...], shape: tuple[int, ...]) -> Self | None:
        """Make an instance for images of `dtype`; None if C has no function for them that may be used now.

        Args:
            dtype: the dtype of the images.
            sizes: the fields of the C struct `pooling`.
            shape: the shape of the result.
        """
        planes, height, width = sizes[:3]
        # The C function counts positions within a plane in 32 bits.
        if dtype != SINGLE or not 0 < height * width < 1 << 31:
            return None
        kernel = function("max_pool", planes * height * width)
        columns, kernel_columns = sizes[4], sizes[6]
        scratch = (2 * kernel_columns + columns) * INDEX.itemsize
        return None if kernel is None else cls(_OfSizes(kernel.call, sizes, scratch), shape)

    def largest(
        self, array: Array, out: Array | None, indices: Array | None = None, wanted: bool = False
    ) -> tuple[Array, ...] | None:
        """Compute each window's largest element and, if wanted, its index in its plane; None if C cannot.

        Args:
            array: the images.
            out, indices: memory for the elements and for their indices, or None.
            wanted: whether to return indices.
        """
        result = _result(out, self._made)
        places = _result(indices, self._made, INDEX) if wanted else None
        if not _made(self.placed(array, result, places)):
            return None
        return (result,) if places is None else (result, places)

    def placed(self, array: Array, out: Array, indices: Array | None) -> list[Call] | None:
        """Prepare max pooling as a call for arrays that keep their addresses; None if C cannot take them."""
        return self._kernel.placed((array, out, indices), (SINGLE, SINGLE, INDEX))


class PlaneScatter:
    """The op "plane_scatter", which max pooling's gradient needs: adds values up at their indices in planes of zeros.

    Args:
        kernel: the C function.
        shape: the shape of the result: samples, channels, and the sizes of a plane.
    """

    def __init__(self, kernel: Callable[..., Any], shape: tuple[int, ...]) -> None:
        self._kernel = kernel
        self._shape = shape

    @classmethod
    def of(cls, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Self | None:
        """Make an instance for a result's shape; None if it is empty, `dtype` is not float32, or C may not be used."""
        elements = math.prod(shape)
        kernel = function("plane_scatter", elements) if dtype == SINGLE and elements else None
        return None if kernel is None else cls(kernel.call, shape)

    def call(self, values: Array, indices: Array, out: Array | None) -> Array | None:
        """Add each value to a plane of zeros at its index; None if C cannot, or an index is out of range.

        Args:
            values: the values, plane by plane.
            indices: the position of each value in its plane.
            out: memory for the result, or None.
        """
        if not fits(values) or not fits(indices, INDEX):
            return None
        result = _result(out, self._shape)
        places = [address(array) for array in (values, indices, result)]
        planes, plane = self._shape[0] * self._shape[1], math.prod(self._shape[2:])
        return None if self._kernel(*places, planes, values.size // planes, plane) else result


class BatchNorm(_OfSizes):
    """Batch norm of float32 arrays (samples, channels, values), which normalizes each channel, or its gradients."""

    @classmethod
    def of(cls, name: str, dtype: np.dtype[Any], sizes: tuple[int, int, int], eps: float) -> Self | None:
        """Make an instance for arrays of `dtype`; None if they are empty, not float32, or C may not be used now.

        Args:
            name: "batch_norm" or "batch_norm_gradient".
            dtype: the dtype of the arrays.
            sizes: the numbers of samples, of channels, and of a channel's values in one sample.
            eps: the number that is added to the variance.
        """
        elements = math.prod(sizes)
        if dtype != SINGLE or not elements:
            return None
        kernel, counting = function(name, elements), function("batch_norm_scratch", elements)
        if kernel is None or counting is None:
            return None
        return cls(kernel.call, sizes, _scratch_bytes(counting.call, sizes), eps)

    def call(self, out: Array | None, first: Array, *others: Array | None) -> tuple[Array, Array, Array] | None:
        """Compute batch norm, with each channel's mean and variance; or its gradients by input, weight and bias.

        None if C cannot compute them.

        Args:
            out: memory for the first result, which has the shape of `first`, or None.
            first, others: contiguous arrays, or None for missing ones: the input, weight and bias; or the result's
                gradient, the input, the mean, the variance and the weight.
        """
        channels = self._sizes[1]
        made = _result(out, first.shape), np.empty(channels, SINGLE), np.empty(channels, SINGLE)
        given = [realigned(array) for array in (first, *others)]  # kept alive here, as a call knows only addresses
        return made if _made(self.placed((*given, *made))) else None
