"""What surrounds tensors and networks and is neither: loading data, and exchange with other libraries."""

from __future__ import annotations

from . import checkpoint as checkpoint, data as data, dlpack as dlpack
