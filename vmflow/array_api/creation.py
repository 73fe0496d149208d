"""Creation functions by the array API standard, version 2024.12."""

from __future__ import annotations

from typing import Any

import numpy as np

import vmflow as flow
from vmflow import dtypes, exchange
from vmflow.arguments import whole_number
from vmflow.devices import device as Device
from vmflow.dtypes import dtype as DType
from vmflow.ops.table import as_tuple
from vmflow.tensors import Tensor

Shape = int | tuple[int, ...]
Place = Device | str | None


def asarray(obj: Any, /, *, dtype: DType | None = None, device: Place = None, copy: bool | None = None) -> Tensor:
    """Make a tensor of `obj`: a tensor, an array, a number, nested sequences, or an object with ``__dlpack__``.

    Args:
        obj: the data, of any shape.
        dtype: of the tensor; None for the dtype of `obj`, for numbers as in `vmflow.tensor`.
        device: of the tensor; None for the device of `obj`, for numbers and numpy arrays the default device.
        copy: True to copy in any case, False never to copy, None to copy if necessary.

    Raises:
        TypeError, OverflowError: as `vmflow.tensor`.
        ValueError: as that, if `obj` cannot be exported, or if `copy` is False and a copy is needed.

    Example:
        >>> flow.array_api.asarray([1, 2])
        tensor([1, 2])
    """
    if not isinstance(obj, (Tensor, np.ndarray)) and hasattr(obj, "__dlpack__"):
        try:
            obj = exchange.from_dlpack(obj, copy=copy)
        except BufferError as error:
            raise ValueError(f"asarray: {error}") from None
        copy = False if copy is False else None  # from_dlpack has made any copy that was needed
    tensor = obj.to(device=device, dtype=dtype) if isinstance(obj, Tensor) else flow.as_tensor(obj, dtype, device)
    shared = tensor._blob.storage is obj._blob.storage if isinstance(obj, Tensor) else _shares_memory(tensor, obj)
    if copy is False and not shared:
        raise ValueError(f"asarray: a {type(obj).__name__} becomes this tensor only by a copy, but copy is False")
    return tensor.clone() if copy and shared else tensor


def _shares_memory(tensor: Tensor, obj: Any) -> bool:
    """Whether `tensor`, made of the numpy array `obj`, uses the array's memory or is empty; False for other objects."""
    if not isinstance(obj, np.ndarray) or tensor.device.type != "cpu":
        return False
    return np.shares_memory(tensor._array(), obj) or (obj.size == 0 and tensor.dtype.numpy == obj.dtype)


def arange(
    start: float, /, stop: float | None = None, step: float = 1, *, dtype: DType | None = None, device: Place = None
) -> Tensor:
    """The vector ``start, start + step, ...`` up to but without `stop`; if `stop` is None, from 0 up to `start`.

    The result is empty if `step` leads away from `stop`, where `vmflow.arange` raises an error.

    Raises:
        ValueError: if `step` is 0, or an argument is not finite.
        TypeError, OverflowError: as `vmflow.arange`.

    Example:
        >>> flow.array_api.arange(1, 7, 2)
        tensor([1, 3, 5])
    """
    if stop is None:
        start, stop = 0, start
    if (stop - start) * step < 0:
        stop = start = start + 0 * stop  # an empty range; the sum keeps the common type, for the dtype
    return flow.arange(start, stop, step, dtype=dtype, device=device)


def empty(shape: Shape, *, dtype: DType | None = None, device: Place = None) -> Tensor:
    """A tensor of this shape with undefined elements.

    Raises:
        TypeError: if a size is no integer.
        ValueError: if a size is negative.

    Example:
        >>> flow.array_api.empty((2, 3)).shape
        vmflow.Size([2, 3])
    """
    return flow.empty(as_tuple(shape), dtype=dtype, device=device)


def empty_like(x: Tensor, /, *, dtype: DType | None = None, device: Place = None) -> Tensor:
    """A tensor of the shape, and by default the dtype and device, of `x` with undefined elements.

    Raises:
        TypeError: if `dtype` is no dtype.

    Example:
        >>> flow.array_api.empty_like(flow.tensor([1, 2])).shape
        vmflow.Size([2])
    """
    return flow.empty_like(x, dtype=dtype, device=device)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: DType | None = None, device: Place = None
) -> Tensor:
    """A matrix with ones on its `k`-th diagonal and zeros elsewhere.

    Raises:
        TypeError: if a size or `k` is no integer.
        ValueError: if a size is negative.

    Example:
        >>> flow.array_api.eye(2, 3, k=1)
        tensor([[0., 1., 0.],
                [0., 0., 1.]])
    """
    rows = whole_number("eye", "n_rows", n_rows)
    columns = rows if n_cols is None else whole_number("eye", "n_cols", n_cols)
    k = whole_number("eye", "k", k)
    if k == 0 or min(rows, columns) < 0:  # `flow.eye` refuses negative sizes in words
        return flow.eye(rows, columns, dtype=dtype, device=device)
    places = flow.arange(columns, device=device) - flow.arange(rows, device=device).unsqueeze(1)
    diagonal: Tensor = places == k
    return diagonal.to(dtype=flow.get_default_dtype() if dtype is None else dtype)


def full(
    shape: Shape, fill_value: bool | int | float | complex, *, dtype: DType | None = None, device: Place = None
) -> Tensor:
    """A tensor of this shape whose elements are all `fill_value`.

    Raises:
        TypeError: if a size is no integer, or `fill_value` is neither a number nor a tensor, or complex for a real
            dtype.
        ValueError: if a size is negative, or `fill_value` has not one element or is out of the dtype's range.
        OverflowError: if neither int64 nor uint64 holds an integer.

    Example:
        >>> flow.array_api.full((2,), 7)
        tensor([7, 7])
    """
    return flow.full(as_tuple(shape), fill_value, dtype=dtype, device=device)


def full_like(
    x: Tensor, /, fill_value: bool | int | float | complex, *, dtype: DType | None = None, device: Place = None
) -> Tensor:
    """A tensor of the shape, and by default the dtype and device, of `x` whose elements are all `fill_value`.

    Raises:
        TypeError: if `fill_value` is neither a number nor a tensor, or complex for a real dtype.
        ValueError: if `fill_value` has not one element or is out of the dtype's range.
        OverflowError: if neither int64 nor uint64 holds an integer.

    Example:
        >>> flow.array_api.full_like(flow.tensor([1, 2]), 7)
        tensor([7, 7])
    """
    return flow.full_like(x, fill_value, dtype=dtype, device=device)


def linspace(
    start: complex,
    stop: complex,
    /,
    num: int,
    *,
    dtype: DType | None = None,
    device: Place = None,
    endpoint: bool = True,
) -> Tensor:
    """A vector of `num` equidistant numbers from `start` to `stop`; without `stop` if `endpoint` is False.

    Raises:
        TypeError: if a limit is neither a number nor a tensor, `num` is no integer, or `vmflow.linspace` refuses the
            dtype.
        ValueError: if `num` is negative, or a limit has several elements or does not fit into an integer dtype.

    Example:
        >>> flow.array_api.linspace(0, 1, 4, endpoint=False)
        tensor([0.0000, 0.2500, 0.5000, 0.7500])
    """
    ends: tuple[Any, Any] = start, stop
    if complex in map(type, ends):
        dtype = dtype or dtypes.of_scalar(complex)
    if endpoint or num < 0:  # which raises an error
        return flow.linspace(*ends, num, dtype=dtype, device=device)
    return flow.linspace(*ends, num + 1, dtype=dtype, device=device)[:-1]


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Coordinate arrays from coordinate vectors.

    The default of `indexing` is "xy"; that of `vmflow.meshgrid` is "ij".

    Raises:
        ValueError: if an array has more than one dimension, or for another `indexing`.

    Example:
        >>> flow.array_api.meshgrid(flow.tensor([1, 2]), flow.tensor([3]))
        [tensor([[1, 2]]), tensor([[3, 3]])]
    """
    return list(flow.meshgrid(*arrays, indexing=indexing))


def ones(shape: Shape, *, dtype: DType | None = None, device: Place = None) -> Tensor:
    """A tensor of this shape whose elements are all 1.

    Raises:
        TypeError: if a size is no integer.
        ValueError: if a size is negative.

    Example:
        >>> flow.array_api.ones((2,))
        tensor([1., 1.])
    """
    return flow.ones(as_tuple(shape), dtype=dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: DType | None = None, device: Place = None) -> Tensor:
    """A tensor of the shape, and by default the dtype and device, of `x` whose elements are all 1.

    Raises:
        TypeError: if `dtype` is no dtype.

    Example:
        >>> flow.array_api.ones_like(flow.tensor([5, 6]))
        tensor([1, 1])
    """
    return flow.ones_like(x, dtype=dtype, device=device)


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """A copy of each matrix in `x` with zeros above its `k`-th diagonal.

    Raises:
        TypeError: if `k` is no integer.
        ValueError: if `x` has fewer than two dimensions.

    Example:
        >>> flow.array_api.tril(flow.tensor([[1, 2], [3, 4]]))
        tensor([[1, 0],
                [3, 4]])
    """
    return flow.tril(x, k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """A copy of each matrix in `x` with zeros below its `k`-th diagonal.

    Raises:
        TypeError: if `k` is no integer.
        ValueError: if `x` has fewer than two dimensions.

    Example:
        >>> flow.array_api.triu(flow.tensor([[1, 2], [3, 4]]))
        tensor([[1, 2],
                [0, 4]])
    """
    return flow.triu(x, k)


def zeros(shape: Shape, *, dtype: DType | None = None, device: Place = None) -> Tensor:
    """A tensor of this shape whose elements are all 0.

    Raises:
        TypeError: if a size is no integer.
        ValueError: if a size is negative.

    Example:
        >>> flow.array_api.zeros((2,))
        tensor([0., 0.])
    """
    return flow.zeros(as_tuple(shape), dtype=dtype, device=device)


def zeros_like(x: Tensor, /, *, dtype: DType | None = None, device: Place = None) -> Tensor:
    """A tensor of the shape, and by default the dtype and device, of `x` whose elements are all 0.

    Raises:
        TypeError: if `dtype` is no dtype.

    Example:
        >>> flow.array_api.zeros_like(flow.tensor([5, 6]))
        tensor([0, 0])
    """
    return flow.zeros_like(x, dtype=dtype, device=device)
