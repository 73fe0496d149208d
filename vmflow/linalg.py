"""``vmflow.linalg``: the names under which PyTorch and OneFlow have linear algebra."""

from __future__ import annotations

from .ops.linear_algebra import det as det
from .ops.linear_algebra import inv as inv
from .ops.linear_algebra import matmul as matmul
from .ops.linear_algebra import solve as solve
from .ops.linear_algebra import vector_norm as vector_norm
from .ops.matrix_products import linalg_cross
from .ops.matrix_products import multi_dot as multi_dot

cross = linalg_cross
