"""``vmflow.linalg``: the names under which PyTorch and OneFlow have linear algebra."""

from __future__ import annotations

from .errors import LinAlgError as LinAlgError
from .ops.linalg.decompositions import cholesky as cholesky
from .ops.linalg.decompositions import eigh as eigh
from .ops.linalg.decompositions import eigvalsh as eigvalsh
from .ops.linalg.decompositions import qr as qr
from .ops.linalg.decompositions import slogdet as slogdet
from .ops.linalg.decompositions import solve_triangular as solve_triangular
from .ops.linalg.decompositions import svd as svd
from .ops.linalg.decompositions import svdvals as svdvals
from .ops.linalg.linear_algebra import det as det
from .ops.linalg.linear_algebra import inv as inv
from .ops.linalg.linear_algebra import matmul as matmul
from .ops.linalg.linear_algebra import solve as solve
from .ops.linalg.linear_algebra import vector_norm as vector_norm
from .ops.linalg.matrix_functions import matrix_exp as matrix_exp
from .ops.linalg.matrix_functions import matrix_power as matrix_power
from .ops.linalg.matrix_products import linalg_cross
from .ops.linalg.matrix_products import multi_dot as multi_dot
from .ops.linalg.pseudo_inverse import lstsq as lstsq
from .ops.linalg.pseudo_inverse import matrix_rank as matrix_rank
from .ops.linalg.pseudo_inverse import pinv as pinv
from .ops.reduction.norms import linalg_norm
from .ops.reduction.norms import matrix_norm as matrix_norm

# PyTorch has others of these names at the top.
cross = linalg_cross
norm = linalg_norm
