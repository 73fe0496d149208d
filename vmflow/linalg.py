"""``vmflow.linalg``: the names under which PyTorch and OneFlow have linear algebra."""

from __future__ import annotations

from .errors import LinAlgError as LinAlgError
from .ops.linalg.composed import (
    cond as cond,
    diagonal as diagonal,
    linalg_vander,
    tensorinv as tensorinv,
    tensorsolve as tensorsolve,
    vecdot as vecdot,
)
from .ops.linalg.decompositions import (
    cholesky as cholesky,
    eigh as eigh,
    eigvalsh as eigvalsh,
    householder_product as householder_product,
    qr as qr,
    slogdet as slogdet,
    solve_triangular as solve_triangular,
    svd as svd,
    svdvals as svdvals,
)
from .ops.linalg.eigenvalues import eig as eig, eigvals as eigvals
from .ops.linalg.linear_algebra import (
    det as det,
    inv as inv,
    matmul as matmul,
    solve as solve,
)
from .ops.linalg.matrix_functions import matrix_exp as matrix_exp, matrix_power as matrix_power
from .ops.linalg.matrix_products import linalg_cross, multi_dot as multi_dot
from .ops.linalg.pseudo_inverse import lstsq as lstsq, matrix_rank as matrix_rank, pinv as pinv
from .ops.linalg.triangular_factors import (
    cholesky_ex as cholesky_ex,
    inv_ex as inv_ex,
    lu as lu,
    lu_factor as lu_factor,
    lu_factor_ex as lu_factor_ex,
    lu_solve as lu_solve,
    solve_ex as solve_ex,
)
from .ops.reduction.norms import linalg_norm, matrix_norm as matrix_norm, vector_norm as vector_norm

# Functions of these names differ in torch.linalg and in torch; this module has those of torch.linalg.
cross = linalg_cross
norm = linalg_norm
vander = linalg_vander
