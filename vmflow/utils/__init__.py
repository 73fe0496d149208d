"""Loading data, checkpointing, and exchange of tensors with other libraries."""

from . import checkpoint as checkpoint, data as data, dlpack as dlpack, tensor as tensor
