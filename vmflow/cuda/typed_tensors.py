"""PyTorch's old tensor types for CUDA devices: ``vmflow.cuda.FloatTensor([1, 2])``; see `vmflow.typed_tensors`."""

from __future__ import annotations

from vmflow.typed_tensors import CUDA

BFloat16Tensor = CUDA["BFloat16Tensor"]
BoolTensor = CUDA["BoolTensor"]
ByteTensor = CUDA["ByteTensor"]
CharTensor = CUDA["CharTensor"]
DoubleTensor = CUDA["DoubleTensor"]
FloatTensor = CUDA["FloatTensor"]
HalfTensor = CUDA["HalfTensor"]
IntTensor = CUDA["IntTensor"]
LongTensor = CUDA["LongTensor"]
ShortTensor = CUDA["ShortTensor"]
