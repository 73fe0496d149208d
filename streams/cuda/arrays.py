"""`DeviceArray`: the address and layout of an array in a device's memory."""

from __future__ import annotations

from math import prod
from typing import Any, Final, NoReturn, final

import numpy as np

_BYTE: Final = np.dtype(np.uint8)


@final
class DeviceArray:
    """An array that a CUDA device can use: an address, a shape, strides and a dtype.

    The host cannot read it.  Kernels take it as a pointer; CuPy and other libraries take it by
    ``__cuda_array_interface__``.

    Args:
        pointer: the address of the first element.
        shape: its sizes.
        dtype: of its elements.
        strides: in bytes; None for the C-contiguous layout.
        base: the array of a whole block of memory, of which this array is a view and which it keeps alive; None if
            this array is no such view.
        owner: an object that holds the memory, such as the driver's object of a whole block; or None.

    Attributes:
        pointer, shape, dtype, strides, base, owner: see above; `strides` are never None.
        native: the same array as an object of the driver's array module; None until it is needed.
    """

    __slots__ = ("__weakref__", "base", "dtype", "native", "owner", "pointer", "shape", "strides")

    def __init__(
        self,
        pointer: int,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        strides: tuple[int, ...] | None = None,
        base: DeviceArray | None = None,
        owner: Any = None,
    ) -> None:
        self.pointer = pointer
        self.shape = shape
        self.dtype = dtype
        self.strides = contiguous_strides(shape, dtype.itemsize) if strides is None else strides
        self.base = base
        self.owner = owner
        self.native: Any = None

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def itemsize(self) -> int:
        """The bytes of an element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return self.size * self.dtype.itemsize

    @property
    def root(self) -> DeviceArray:
        """`base`, or this array if `base` is None."""
        return self if self.base is None else self.base

    @property
    def contiguous(self) -> bool:
        """Whether the elements are contiguous, in C's order."""
        if 0 in self.shape:
            return True
        expected = self.dtype.itemsize
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size > 1:
                if stride != expected:
                    return False
                expected *= size
        return True

    def extent(self) -> tuple[int, int]:
        """The address of the array's lowest byte and that behind its highest; equal if there are no elements."""
        low, high = reach_of(self.shape, self.strides, self.dtype.itemsize)
        return self.pointer + low, self.pointer + high

    def strided(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], offset: int = 0, strides: tuple[int, ...] | None = None
    ) -> DeviceArray:
        """Another view of the same memory.

        Args:
            shape, dtype: of the view.
            offset: in bytes, from the first element of this array.
            strides: in bytes; None for the C-contiguous layout.
        """
        return DeviceArray(self.pointer + offset, shape, dtype, strides, self.root, self.owner)

    def owned_by(self, owner: object) -> DeviceArray:
        """Return a new `DeviceArray` of the same memory and layout, which, like its views, keeps `owner` alive."""
        return DeviceArray(self.pointer, self.shape, self.dtype, self.strides, self.root, owner)

    def remember(self, native: Any) -> Any:
        """Keep `native`, this array as an object of the driver's array module, and return it."""
        self.native = native
        return native

    def loose(self) -> DeviceArray:
        """Return an array of the same addresses that does not keep the memory alive."""
        return DeviceArray(self.pointer, self.shape, self.dtype, self.strides)

    def reshape(self, *shape: Any) -> DeviceArray:
        """The elements of a contiguous array in another shape; one size may be -1.

        Raises:
            ValueError: if the array is not contiguous, or if the shape has another number of elements.
        """
        sizes = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
        if -1 in sizes:
            known = prod([size for size in sizes if size != -1])
            sizes = tuple([self.size // max(known, 1) if size == -1 else size for size in sizes])
        if not self.contiguous:
            raise ValueError(f"{self!r} is not contiguous and cannot be reshaped without a copy")
        if prod(sizes) != self.size:
            raise ValueError(f"{self!r} has {self.size} elements, which do not fit the shape {sizes}")
        return self.strided(sizes, self.dtype)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.pointer if self.size else 0, False),
            "strides": None if self.contiguous else self.strides,
            "version": 3,
        }

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(f"{self!r} is in the memory of a device, and the host cannot look inside; copy it first")

    def __repr__(self) -> str:
        return f"<DeviceArray {self.dtype}{list(self.shape)} at {self.pointer:#x}>"


def reach_of(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    """The bytes from an array's first element to its lowest one, and to the end of its highest one."""
    if 0 in shape:
        return 0, 0
    reach = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    return sum([step for step in reach if step < 0]), sum([step for step in reach if step > 0]) + itemsize


def bytes_at(pointer: int, nbytes: int, owner: Any) -> DeviceArray:
    """Make the array of bytes of a whole block of memory at this address."""
    return DeviceArray(pointer, (nbytes,), _BYTE, owner=owner)


def contiguous_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """The strides, in bytes, of a C-contiguous array."""
    strides = [itemsize] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return tuple(strides)
