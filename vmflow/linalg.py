"""``vmflow.linalg``: the names under which PyTorch and OneFlow have linear algebra."""

from __future__ import annotations

from .errors import LinAlgError as LinAlgError
from .ops.decompositions import cholesky as cholesky
from .ops.decompositions import eigh as eigh
from .ops.decompositions import eigvalsh as eigvalsh
from .ops.decompositions import qr as qr
from .ops.decompositions import slogdet as slogdet
from .ops.decompositions import solve_triangular as solve_triangular
from .ops.decompositions import svd as svd
from .ops.decompositions import svdvals as svdvals
from .ops.linear_algebra import det as det
from .ops.linear_algebra import inv as inv
from .ops.linear_algebra import matmul as matmul
from .ops.linear_algebra import solve as solve
from .ops.linear_algebra import vector_norm as vector_norm
from .ops.matrix_functions import matrix_exp as matrix_exp
from .ops.matrix_functions import matrix_power as matrix_power
from .ops.matrix_products import linalg_cross
from .ops.matrix_products import multi_dot as multi_dot
from .ops.norms import linalg_norm
from .ops.norms import matrix_norm as matrix_norm
from .ops.pseudo_inverse import lstsq as lstsq
from .ops.pseudo_inverse import matrix_rank as matrix_rank
from .ops.pseudo_inverse import pinv as pinv

# PyTorch has others of these names at the top.
cross = linalg_cross
norm = linalg_norm
