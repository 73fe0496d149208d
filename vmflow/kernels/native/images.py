"""Calls of the C functions for images: convolutions, pooling and batch norm.

Each of them computes, or says that it cannot, as in `arrays`.
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
    """`out` if that is memory for a result of this shape, else new memory."""
    return out if out is not None and fits(out, dtype) else np.empty(shape, dtype)


class _OfSizes:
    """A C function of images of certain sizes, which works in memory that it is given.

    Args:
        kernel: the function.
        sizes: the fields of its C struct.
        room: the bytes that it works in.
        further: what it takes behind that.
    """

    def __init__(self, kernel: Callable[..., Any], sizes: Sequence[int], room: int, *further: Any) -> None:
        self._kernel = kernel
        self._sizes = (ctypes.c_int64 * len(sizes))(*sizes)
        self._room = room
        self._further = further

    def compute(self, arrays: Sequence[Array | None]) -> None:
        """Compute, of arrays that fit, in the order in which the function takes them."""
        self._compute([None if array is None else address(array) for array in arrays])

    def placed(
        self, arrays: Sequence[Array | None], dtypes: Sequence[np.dtype[Any]] | None = None
    ) -> list[Call] | None:
        """The same as one call, for arrays that stay where they are; None if they do not fit.

        Args:
            arrays: see `compute`.
            dtypes: of each; None if all are of float32.
        """
        for array, dtype in zip(arrays, dtypes or [SINGLE] * len(arrays), strict=True):
            if array is not None and not fits(array, dtype):
                return None
        return [(self._compute, ([None if array is None else address(array) for array in arrays],), None)]

    def _compute(self, places: list[int | None]) -> None:
        # Not kept: most of the time it would lie there unused.
        room = np.empty(self._room, np.uint8)
        self._kernel(ctypes.addressof(self._sizes), *places, address(room), *self._further)


def _made(calls: list[Call] | None) -> bool:
    """Make calls; whether there are any."""
    for call, arguments, _ in calls or ():
        call(*arguments)
    return calls is not None


def _bytes_of_room(counting: Callable[..., int], sizes: Sequence[int]) -> int:
    """The memory that a function works in, which C tells in numbers of float32."""
    kept = (ctypes.c_int64 * len(sizes))(*sizes)
    return counting(ctypes.addressof(kept)) * SINGLE.itemsize


class Convolution:
    """The convolutions of float32 of certain sizes, and their gradients.

    Their arrays are (samples, channels, height, width), (filters, channels of a group, kernel height, kernel width),
    (filters,) and (samples, filters, rows, columns); of lines without heights and rows.

    Args:
        sizes: as the fields of the C struct of this name; all but the padding are at least 1.
        rank: 2, or 1 for lines, which are images of one row.
        forward, by_input, by_weight: the C functions.

    Attributes:
        forward, by_input, by_weight: as given.
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
        """The convolutions of arrays of this dtype and of these sizes, see the class; None if C has none now."""
        if dtype != SINGLE:
            return None
        products = math.prod(sizes[:4]) * math.prod(sizes[6:10])
        kinds = ("", "_input_gradient", "_weight_gradient", "_room")
        found = [it.call for kind in kinds if (it := function(f"convolution{kind}", products)) is not None]
        if len(found) < len(kinds):
            return None
        room = _bytes_of_room(found.pop(), sizes)
        return cls(sizes, rank, *[_OfSizes(kernel, sizes, room) for kernel in found])

    def convolved(self, array: Array, weight: Array, bias: Array | None, out: Array | None) -> Array:
        """The convolution, with `bias` unless it is None; into `out` if that is memory for it."""
        result = _result(out, self._made)
        self.forward.compute([*map(_whole, (array, weight, bias)), result])
        return result

    def input_gradient(self, gradient: Array, weight: Array, out: Array | None) -> Array:
        """The gradient by the input, into `out` if that is memory for it."""
        result = _result(out, self._given)
        self.by_input.compute([_whole(gradient), _whole(weight), result])
        return result

    def weight_gradient(self, array: Array, gradient: Array, with_bias: bool) -> tuple[Array, ...]:
        """The gradient by the weight and, if that is wanted, that by the bias."""
        by_weight = np.empty(self._weights, SINGLE)
        by_bias = np.empty(self._weights[0], SINGLE) if with_bias else None
        self.by_weight.compute([_whole(array), _whole(gradient), by_weight, by_bias])
        return (by_weight,) if by_bias is None else (by_weight, by_bias)


def _whole(array: Array | None) -> Array | None:
    """An array as C takes it, or None."""
    return array if array is None or fits(array) else np.array(array, SINGLE, order="C")


class MaxPool:
    """The largest elements of windows of images of float32.

    Args:
        kernel: the C function.
        shape: of what is made.
    """

    def __init__(self, kernel: _OfSizes, shape: tuple[int, ...]) -> None:
        self._kernel = kernel
        self._made = shape

    @classmethod
    def of(cls, dtype: np.dtype[Any], sizes: tuple[int, ...], shape: tuple[int, ...]) -> Self | None:
        """The op for images of this dtype; None if C has none now.

        Args:
            dtype: of the images.
            sizes: as the fields of the C struct `pooling`.
            shape: of what is made.
        """
        planes, height, width = sizes[:3]
        # Places in an image are counted in 32 bits.
        if dtype != SINGLE or not 0 < height * width < 1 << 31:
            return None
        kernel = function("max_pool", planes * height * width)
        columns, kernel_columns = sizes[4], sizes[6]
        room = (2 * kernel_columns + columns) * INDEX.itemsize
        return None if kernel is None else cls(_OfSizes(kernel.call, sizes, room), shape)

    def largest(
        self, array: Array, out: Array | None, indices: Array | None = None, wanted: bool = False
    ) -> tuple[Array, ...] | None:
        """The largest elements, and where they are in their planes; None if that is not possible.

        Args:
            array: the images.
            out, indices: memory for both, or None.
            wanted: whether indices are.
        """
        result = _result(out, self._made)
        places = _result(indices, self._made, INDEX) if wanted else None
        if not _made(self.placed(array, result, places)):
            return None
        return (result,) if places is None else (result, places)

    def placed(self, array: Array, out: Array, indices: Array | None) -> list[Call] | None:
        """The same for arrays that stay where they are."""
        return self._kernel.placed((array, out, indices), (SINGLE, SINGLE, INDEX))


class PlaneScatter:
    """Values added up where they belong in planes of zeros.

    Args:
        kernel: the C function.
        shape: of the result: samples, channels, and the size of a plane.
    """

    def __init__(self, kernel: Callable[..., Any], shape: tuple[int, ...]) -> None:
        self._kernel = kernel
        self._shape = shape

    @classmethod
    def of(cls, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Self | None:
        """The op for values of this dtype and a result of this shape; None if C has none now."""
        elements = math.prod(shape)
        kernel = function("plane_scatter", elements) if dtype == SINGLE and elements else None
        return None if kernel is None else cls(kernel.call, shape)

    def call(self, values: Array, indices: Array, out: Array | None) -> Array | None:
        """Compute it; None if that is not possible.

        Args:
            values, indices: of images of which each is a plane; indices count within it.
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
        """The op for arrays of this dtype; None if C has none now.

        Args:
            name: "batch_norm" or "batch_norm_gradient".
            dtype: of the array.
            sizes: how many samples, channels and values.
            eps: added to the variance.
        """
        elements = math.prod(sizes)
        if dtype != SINGLE or not elements:
            return None
        kernel, counting = function(name, elements), function("batch_norm_room", elements)
        if kernel is None or counting is None:
            return None
        return cls(kernel.call, sizes, _bytes_of_room(counting.call, sizes), eps)

    def call(self, out: Array | None, first: Array, *others: Array | None) -> tuple[Array, Array, Array] | None:
        """The results: an array like the first one, and two numbers for each channel; None if it cannot compute them.

        Args:
            out: memory for the array, or None.
            first, others: contiguous arrays, or None for those that there are not: the array, weight and bias; or the
                gradient, the array, the mean, the variance and the weight.
        """
        channels = self._sizes[1]
        made = _result(out, first.shape), np.empty(channels, SINGLE), np.empty(channels, SINGLE)
        return made if _made(self.placed((first, *others, *made))) else None
