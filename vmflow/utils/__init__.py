"""What surrounds tensors and networks and is neither: loading data, and exchange with other libraries."""

from __future__ import annotations

from . import checkpoint as checkpoint
from . import data as data
from . import dlpack as dlpack
