"""From numpy arrays to the kernels of images: each function here computes, or says that it cannot.

As in `arrays`, which has what rows of numbers need.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any, Final, Self, TypeAlias

import numpy as np

from .addresses import address
from .arrays import Call, fits
from .functions import function

Array: TypeAlias = Any

_SINGLE: Final = np.dtype(np.float32)
_INDEX: Final = np.dtype(np.int64)

_CONVOLUTIONS: Final = (
    "convolution",
    "convolution_input_gradient",
    "convolution_weight_gradient",
    "convolution_room",
)


def _result(out: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any] = _SINGLE) -> Array:
    """`out` if that is memory for a result of this shape, else new memory."""
    return out if out is not None and fits(out, dtype) else np.empty(shape, dtype)


class Convolution:
    """The convolutions of float32 of certain sizes, and their gradients.

    Their arrays are (samples, channels, height, width), (filters, channels of a group, kernel height, kernel width),
    (filters,) and (samples, filters, rows, columns); of lines without heights and rows.

    Args:
        kernels: the C functions, by name.
        sizes: as the fields of the C struct of this name; all but the padding are at least 1.
        rank: 2, or 1 for lines, which are images of one row.
    """

    def __init__(self, kernels: dict[str, Callable[..., Any]], sizes: tuple[int, ...], rank: int) -> None:
        samples, groups, channels, filters, height, width, down, across, rows, columns = sizes[:10]
        self._given = (samples, groups * channels, *(height, width)[-rank:])
        self._made = (samples, groups * filters, *(rows, columns)[-rank:])
        self._weights = (groups * filters, channels, *(down, across)[-rank:])
        self._sizes = (ctypes.c_int64 * len(sizes))(*sizes)
        self._kernels = kernels
        self._room: int = kernels["convolution_room"](ctypes.addressof(self._sizes))

    @classmethod
    def of(cls, dtype: np.dtype[Any], sizes: tuple[int, ...], rank: int) -> Self | None:
        """The convolutions of arrays of this dtype and of these sizes, see the class; None if C has none now."""
        if dtype != _SINGLE:
            return None
        products = math.prod(sizes[:4]) * math.prod(sizes[6:10])
        found = {name: kernel.call for name in _CONVOLUTIONS if (kernel := function(name, products)) is not None}
        return cls(found, sizes, rank) if len(found) == len(_CONVOLUTIONS) else None

    def forward(self, array: Array, weight: Array, bias: Array | None, out: Array | None) -> Array:
        """The convolution, with `bias` unless it is None; into `out` if that is memory for it."""
        return self._call("convolution", (array, weight, bias), _result(out, self._made))

    def input_gradient(self, gradient: Array, weight: Array, out: Array | None) -> Array:
        """The gradient by the input, into `out` if that is memory for it."""
        return self._call("convolution_input_gradient", (gradient, weight), _result(out, self._given))

    def weight_gradient(self, array: Array, gradient: Array, with_bias: bool) -> tuple[Array, ...]:
        """The gradient by the weight and, if that is wanted, that by the bias."""
        by_weight = np.empty(self._weights, _SINGLE)
        by_bias = np.empty(self._weights[0], _SINGLE) if with_bias else None
        self._call("convolution_weight_gradient", (array, gradient), by_weight, by_bias)
        return (by_weight,) if by_bias is None else (by_weight, by_bias)

    def _call(self, name: str, given: tuple[Array | None, ...], *results: Array | None) -> Array:
        whole = [it if it is None or fits(it) else np.array(it, _SINGLE, order="C") for it in (*given, *results)]
        self._compute(self._kernels[name], [None if it is None else address(it) for it in whole])
        return results[0]

    def calls(self, *wanted: tuple[str, tuple[Array | None, ...]]) -> list[Call] | None:
        """Calls of kernels by name over arrays that stay where they are; None if they cannot be had."""
        arrays = [it for _, those in wanted for it in those if it is not None]
        if not all([fits(it) for it in arrays]):
            return None
        return [
            (self._compute, (self._kernels[name], [None if it is None else address(it) for it in those]), None)
            for name, those in wanted
        ]

    def _compute(self, kernel: Callable[..., Any], places: list[int | None]) -> None:
        # Not kept: most of the time it would lie there unused.
        room = np.empty(self._room, _SINGLE)
        kernel(ctypes.addressof(self._sizes), *places, address(room))


class MaxPool:
    """The largest elements of windows of images of float32.

    Args:
        kernel: the C function.
        sizes: as the fields of the C struct `pooling`.
        shape: of what is made.
    """

    def __init__(self, kernel: Callable[..., Any], sizes: tuple[int, ...], shape: tuple[int, ...]) -> None:
        columns, kernel_columns = sizes[4], sizes[6]
        self._kernel = kernel
        self._room = 2 * kernel_columns + columns
        self._sizes = (ctypes.c_int64 * len(sizes))(*sizes)
        self._made = shape

    @classmethod
    def of(cls, dtype: np.dtype[Any], sizes: tuple[int, ...], shape: tuple[int, ...]) -> Self | None:
        """The op for images of this dtype; None if C has none now.

        Args:
            dtype: of the images.
            sizes, shape: see the class.
        """
        planes, height, width = sizes[:3]
        # Places in an image are counted in 32 bits.
        if dtype != _SINGLE or not 0 < height * width < 1 << 31:
            return None
        kernel = function("max_pool", planes * height * width)
        return None if kernel is None else cls(kernel.call, sizes, shape)

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
        places = _result(indices, self._made, _INDEX) if wanted else None
        calls = self.calls(array, result, places)
        if calls is None:
            return None
        for kernel, given, _ in calls:
            kernel(*given)
        return (result,) if places is None else (result, places)

    def calls(self, array: Array, out: Array, indices: Array | None) -> list[Call] | None:
        """The same for arrays that stay where they are."""
        if not fits(array) or not fits(out):
            return None
        if indices is not None and not fits(indices, _INDEX):
            return None
        places = [address(array), address(out), None if indices is None else address(indices)]
        return [(self._compute, (places,), None)]

    def _compute(self, places: list[int | None]) -> None:
        room = np.empty(self._room, np.int64)
        self._kernel(ctypes.addressof(self._sizes), *places, address(room))


class PlaneScatter:
    """Values added up where they belong in planes of zeros.

    Args:
        kernel: the C function.
        shape: of the result: samples, channels, and the size of a plane.
    """

    def __init__(self, kernel: Callable[..., Any], shape: tuple[int, ...]) -> None:
        self._kernel = kernel
        self._shape = shape
        self._planes, self._plane = shape[0] * shape[1], math.prod(shape[2:])

    @classmethod
    def of(cls, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Self | None:
        """The op for values of this dtype and a result of this shape; None if C has none now."""
        elements = math.prod(shape)
        kernel = function("plane_scatter", elements) if dtype == _SINGLE and elements else None
        return None if kernel is None else cls(kernel.call, shape)

    def call(self, values: Array, indices: Array, out: Array | None) -> Array | None:
        """Compute it; None if that is not possible.

        Args:
            values, indices: of images of which each is a plane; indices count within it.
            out: memory for the result, or None.
        """
        if not fits(values) or not fits(indices, _INDEX):
            return None
        result = _result(out, self._shape)
        places = [address(it) for it in (values, indices, result)]
        failed = self._kernel(*places, self._planes, values.size // self._planes, self._plane)
        return None if failed else result


class BatchNorm:
    """Batch norm of float32, and its gradient: of each channel over samples and values.

    Args:
        kernel: the C function, of one of both.
        counting: that which tells what room it needs.
        sizes: how many samples, channels and values.
        shape: of the array.
        eps: added to the variance.
    """

    def __init__(
        self,
        kernel: Callable[..., Any],
        counting: Callable[..., Any],
        sizes: tuple[int, int, int],
        shape: tuple[int, ...],
        eps: float,
    ) -> None:
        self._kernel = kernel
        self._shape, self._channels = shape, sizes[1]
        self._sizes = (ctypes.c_int64 * 3)(*sizes)
        self._eps = eps
        self._room: int = counting(ctypes.addressof(self._sizes))

    @classmethod
    def of(
        cls, name: str, dtype: np.dtype[Any], sizes: tuple[int, int, int], shape: tuple[int, ...], eps: float
    ) -> Self | None:
        """The op for arrays of this dtype; None if C has none now.

        Args:
            name: "batch_norm" or "batch_norm_gradient".
            dtype: of the array.
            sizes, shape, eps: see the class.
        """
        elements = math.prod(sizes)
        if dtype != _SINGLE or not elements:
            return None
        kernel, counting = function(name, elements), function("batch_norm_room", elements)
        return None if kernel is None or counting is None else cls(kernel.call, counting.call, sizes, shape, eps)

    def forward(
        self, array: Array, weight: Array | None, bias: Array | None, out: Array | None
    ) -> tuple[Array, Array, Array] | None:
        """Each channel normalised, and the means and variances; None if that is not possible.

        Args:
            array: contiguous.
            weight, bias: (channels,), or None.
            out: memory for the result, or None.
        """
        made = _result(out, self._shape), np.empty(self._channels, _SINGLE), np.empty(self._channels, _SINGLE)
        return made if self._done((array, weight, bias, *made)) else None

    def gradient(
        self, gradient: Array, array: Array, mean: Array, variance: Array, weight: Array | None, out: Array | None
    ) -> tuple[Array, Array, Array] | None:
        """The gradients by the array, the weight and the bias; None if that is not possible."""
        made = _result(out, self._shape), np.empty(self._channels, _SINGLE), np.empty(self._channels, _SINGLE)
        return made if self._done((gradient, array, mean, variance, weight, *made)) else None

    def calls(self, arrays: Sequence[Array | None]) -> list[Call] | None:
        """The same over arrays that stay where they are; None if it cannot be had."""
        if not all([it is None or fits(it) for it in arrays]):
            return None
        return [(self._compute, ([None if it is None else address(it) for it in arrays],), None)]

    def _done(self, arrays: Sequence[Array | None]) -> bool:
        calls = self.calls(arrays) or []
        for kernel, given, _ in calls:
            kernel(*given)
        return bool(calls)

    def _compute(self, places: list[int | None]) -> None:
        room = np.empty(self._room, _SINGLE)
        self._kernel(ctypes.addressof(self._sizes), *places, address(room), self._eps)
