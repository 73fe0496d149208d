"""Creation by the array API standard."""

from __future__ import annotations

from typing import Any

import numpy as np

import vmflow as flow
from vmflow import dtypes, exchange
from vmflow.devices import device as Device
from vmflow.dtypes import dtype as DType
from vmflow.tensors import Tensor

Shape = int | tuple[int, ...]
Place = Device | str | None


def _sizes(shape: Shape) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def asarray(obj: Any, /, *, dtype: DType | None = None, device: Place = None, copy: bool | None = None) -> Tensor:
    """A tensor of a tensor, an array, numbers, nested sequences of numbers, or what has ``__dlpack__``.

    Args:
        obj: the data.
        dtype: None for that of the data.
        device: None for that of the data.
        copy: True to copy in any case, False never to copy, None as necessary.

    Raises:
        ValueError: if `copy` is False and a copy is needed.
    """
    if not isinstance(obj, (Tensor, np.ndarray)) and hasattr(obj, "__dlpack__"):
        try:
            obj = exchange.from_dlpack(obj, copy=copy)
        except BufferError as error:
            raise ValueError(f"asarray: {error}") from None
        copy = False if copy is False else None  # if it had to be, it is a copy by now
    made = obj.to(device=device, dtype=dtype) if isinstance(obj, Tensor) else flow.as_tensor(obj, dtype, device)
    shared = made._blob.storage is obj._blob.storage if isinstance(obj, Tensor) else _lies_in(made, obj)
    if copy is False and not shared:
        raise ValueError(f"asarray: a {type(obj).__name__} becomes this tensor by a copy only, and copy is False")
    return made.clone() if copy and shared else made


def _lies_in(made: Tensor, obj: Any) -> bool:
    """Whether a tensor made of `obj` shares its memory."""
    if not isinstance(obj, np.ndarray) or made.device.type != "cpu":
        return False
    return np.shares_memory(made._array(), obj) or (obj.size == 0 and made.dtype.numpy == obj.dtype)


def arange(
    start: float, /, stop: float | None = None, step: float = 1, *, dtype: DType | None = None, device: Place = None
) -> Tensor:
    """``start, start + step, ...`` up to but without `stop`; nothing if `step` leads away from it."""
    if stop is None:
        start, stop = 0, start
    if (stop - start) * step < 0:
        stop = start = start + 0 * stop  # both of the type that they make together
    return flow.arange(start, stop, step, dtype=dtype, device=device)


def empty(shape: Shape, *, dtype: DType | None = None, device: Place = None) -> Tensor:
    """A tensor whose elements are whatever was in memory."""
    return flow.empty(_sizes(shape), dtype=dtype, device=device)


def empty_like(x: Tensor, /, *, dtype: DType | None = None, device: Place = None) -> Tensor:
    """As `empty`, of the shape of `x`."""
    return flow.empty_like(x, dtype=dtype, device=device)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: DType | None = None, device: Place = None
) -> Tensor:
    """A matrix with ones on its `k`-th diagonal."""
    columns = n_rows if n_cols is None else n_cols
    if k == 0:
        return flow.eye(n_rows, columns, dtype=dtype, device=device)
    rows = flow.arange(n_rows, device=device).unsqueeze(1)
    found: Tensor = (flow.arange(columns, device=device) - rows) == k
    return found.to(dtype or flow.get_default_dtype())


def full(
    shape: Shape, fill_value: bool | int | float | complex, *, dtype: DType | None = None, device: Place = None
) -> Tensor:
    """A tensor of `fill_value`."""
    return flow.full(_sizes(shape), fill_value, dtype=dtype, device=device)


def full_like(
    x: Tensor, /, fill_value: bool | int | float | complex, *, dtype: DType | None = None, device: Place = None
) -> Tensor:
    """A tensor of `fill_value`, of the shape of `x`."""
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
    """`num` values from `start` to `stop` at equal distances; without `stop` if `endpoint` is False."""
    ends: tuple[Any, Any] = start, stop
    if complex in map(type, ends):
        dtype = dtype or dtypes.of_scalar(complex)
    if endpoint:
        return flow.linspace(*ends, num, dtype=dtype, device=device)
    return flow.linspace(*ends, num + 1, dtype=dtype, device=device)[:-1]


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Coordinate matrices from coordinate vectors."""
    return list(flow.meshgrid(*arrays, indexing=indexing))


def ones(shape: Shape, *, dtype: DType | None = None, device: Place = None) -> Tensor:
    """A tensor of ones."""
    return flow.ones(_sizes(shape), dtype=dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: DType | None = None, device: Place = None) -> Tensor:
    """Ones in the shape of `x`."""
    return flow.ones_like(x, dtype=dtype, device=device)


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Each matrix with zeros above its `k`-th diagonal."""
    return flow.tril(x, k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Each matrix with zeros below its `k`-th diagonal."""
    return flow.triu(x, k)


def zeros(shape: Shape, *, dtype: DType | None = None, device: Place = None) -> Tensor:
    """A tensor of zeros."""
    return flow.zeros(_sizes(shape), dtype=dtype, device=device)


def zeros_like(x: Tensor, /, *, dtype: DType | None = None, device: Place = None) -> Tensor:
    """Zeros in the shape of `x`."""
    return flow.zeros_like(x, dtype=dtype, device=device)
