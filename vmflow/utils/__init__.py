"""What surrounds tensors and networks and is neither: loading data, and exchange with other libraries."""

from . import checkpoint as checkpoint, data as data, dlpack as dlpack, tensor as tensor
