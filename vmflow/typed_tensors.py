"""PyTorch's older ways to make tensors, one for each dtype: ``FloatTensor([1, 2])``, ``LongTensor(2, 3)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import dtypes
from .dtypes import dtype as DType
from .instructions.blob import Size
from .ops.creation.creation import empty, tensor
from .tensors import Tensor


def _maker(name: str, dtype: DType) -> Callable[..., Tensor]:
    def make(*data: Any) -> Tensor:
        if all(isinstance(it, int) for it in data) or (len(data) == 1 and isinstance(data[0], Size)):
            return empty(*data, dtype=dtype)
        return tensor(*data, dtype=dtype)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"A {dtype.name} tensor of this data, or, of integers, uninitialised of that shape."
    return make


BoolTensor = _maker("BoolTensor", dtypes.bool_)
ByteTensor = _maker("ByteTensor", dtypes.uint8)
DoubleTensor = _maker("DoubleTensor", dtypes.float64)
FloatTensor = _maker("FloatTensor", dtypes.float32)
HalfTensor = _maker("HalfTensor", dtypes.float16)
IntTensor = _maker("IntTensor", dtypes.int32)
LongTensor = _maker("LongTensor", dtypes.int64)
