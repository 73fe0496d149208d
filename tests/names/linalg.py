"""Names of linear algebra."""

from __future__ import annotations

import math
from typing import Any, Final

from .case import Case
from .signal import each, quiet


def _matrix(t: Any, *shape: int) -> Any:
    """Far from singular where it is square."""
    count = math.prod(shape)
    numbers = (t.arange(count, dtype=t.float64) * 1.7).sin().reshape(*shape)
    return numbers + 2 * t.eye(shape[-2], shape[-1], dtype=t.float64)


def _definite(t: Any, *shape: int) -> Any:
    matrix = _matrix(t, *shape)
    return matrix @ matrix.mT


def _powers_of_eigenvalues(t: Any, matrix: Any) -> Any:
    """Sums of powers, which do not depend on the order."""
    found = t.linalg.eigvals(matrix)
    return [found.sum(-1), (found**2).sum(-1), (found**3).sum(-1)]


def _rebuilt(t: Any, matrix: Any) -> Any:
    found, vectors = t.linalg.eig(matrix)
    return [vectors * found.unsqueeze(-2) @ t.linalg.inv(vectors), (vectors.abs() ** 2).sum(-2)]


_SHAPES: Final = ((3, 3), (2, 3, 3), (4, 3), (3, 5), (0, 3, 3), (0, 0), (40, 40), (70, 50))
_SQUARE: Final = ((3, 3), (2, 3, 3), (0, 3, 3), (2, 0, 0), (40, 40))

CASES: Final = [
    *each("linalg.lu", lambda t, s: t.linalg.lu(_matrix(t, *s)), _SHAPES),
    *each("linalg.lu_factor", lambda t, s: t.linalg.lu_factor(_matrix(t, *s)), _SHAPES),
    *each("linalg.lu_factor_ex", lambda t, s: t.linalg.lu_factor_ex(_matrix(t, *s) * 0), _SHAPES),
    *each("linalg.inv_ex", lambda t, s: t.linalg.inv_ex(_matrix(t, *s)), _SQUARE),
    *each("linalg.solve_ex", lambda t, s: t.linalg.solve_ex(_matrix(t, *s), _matrix(t, *s[:-1], 2)), _SQUARE),
    *each("linalg.cholesky_ex", lambda t, s: t.linalg.cholesky_ex(_definite(t, *s)), _SQUARE),
    *each("linalg.eigvals", lambda t, s: _powers_of_eigenvalues(t, _matrix(t, *s)), _SQUARE[:4]),
    *each("linalg.eig", lambda t, s: _rebuilt(t, _matrix(t, *s)), _SQUARE[:4]),
    Case("linalg.inv_ex", lambda t: t.linalg.inv_ex(t.zeros(2, 3, 3)).info),
    Case("linalg.solve_ex", lambda t: t.linalg.solve_ex(_matrix(t, 2, 3, 3), _matrix(t, 4, 3)[:2])),
    Case("linalg.solve_ex", lambda t: t.linalg.solve_ex(_matrix(t, 3, 3), _matrix(t, 2, 3), left=False)),
    Case("linalg.cholesky_ex", lambda t: t.linalg.cholesky_ex(t.tensor([[1.0, 9.0], [2.0, 5.0]]))),
    Case("linalg.cholesky_ex", lambda t: t.linalg.cholesky_ex(t.tensor([[1.0, 2.0], [9.0, 5.0]]), upper=True)),
    Case(
        "linalg.cholesky_ex",
        lambda t: t.linalg.cholesky_ex(t.tensor([[[1.0, 2.0], [2.0, 1.0]], [[0.0, 1], [1, 1]]])).info,
    ),
    Case("linalg.eigvals", lambda t: _powers_of_eigenvalues(t, t.complex(_matrix(t, 3, 3), _matrix(t, 3, 3).mT))),
    Case("linalg.eigvals", lambda t: _powers_of_eigenvalues(t, _matrix(t, 3, 3).float()), tolerance=1e-4),
    *each(
        "linalg.lu_solve",
        lambda t, how: t.linalg.lu_solve(
            *t.linalg.lu_factor(_matrix(t, 2, 3, 3)), _matrix(t, 3, 3), left=how[0], adjoint=how[1]
        ),
        ((True, False), (True, True), (False, False), (False, True)),
    ),
    Case("lu_solve", lambda t: quiet(lambda: t.lu_solve(_matrix(t, 3, 2), *t.linalg.lu_factor(_matrix(t, 3, 3))))),
    Case("Tensor.lu_solve", lambda t: quiet(lambda: _matrix(t, 3, 2).lu_solve(*t.linalg.lu_factor(_matrix(t, 3, 3))))),
    Case("lu_unpack", lambda t: t.lu_unpack(*t.linalg.lu_factor(_matrix(t, 2, 4, 3)))),
    Case("lu_unpack", lambda t: t.lu_unpack(*t.linalg.lu_factor(_matrix(t, 3, 4)), unpack_pivots=False)[1:]),
    Case("lu_unpack", lambda t: t.lu_unpack(*t.linalg.lu_factor(_matrix(t, 3, 4)), unpack_data=False)[0]),
    *each(
        "linalg.cond",
        lambda t, p: t.linalg.cond(_matrix(t, 2, 3, 3), p),
        (None, "fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf),
    ),
    Case("linalg.cond", lambda t: t.linalg.cond(_matrix(t, 2, 3, 4))),
    Case("linalg.cond", lambda t: [t.linalg.cond(t.zeros(2, 2), p) for p in (None, 1, "fro")]),
    Case("linalg.cond", lambda t: t.linalg.cond(t.zeros(3, 0, 0))),
    Case("linalg.diagonal", lambda t: t.linalg.diagonal(_matrix(t, 2, 3, 4), offset=1)),
    Case("linalg.tensorinv", lambda t: t.linalg.tensorinv(_matrix(t, 6, 6).reshape(6, 2, 3), ind=1)),
    Case("linalg.tensorinv", lambda t: t.linalg.tensorinv(_matrix(t, 6, 6).reshape(2, 3, 1, 6))),
    Case("linalg.tensorsolve", lambda t: t.linalg.tensorsolve(_matrix(t, 6, 6).reshape(2, 3, 6), _matrix(t, 2, 3))),
    Case(
        "linalg.tensorsolve",
        lambda t: t.linalg.tensorsolve(_matrix(t, 6, 6).reshape(2, 6, 3), _matrix(t, 2, 3), dims=(1,)),
    ),
    Case("linalg.vander", lambda t: [t.linalg.vander(_matrix(t, 2, 3)), t.linalg.vander(t.arange(4), N=2)]),
    Case("linalg.vander", lambda t: t.linalg.vander(t.complex(_matrix(t, 1, 3), _matrix(t, 1, 3) + 1))),
    Case("vander", lambda t: [t.vander(t.tensor([1, 2, -3])), t.vander(t.tensor([1.0, 2.0]), 4, True)]),
    Case("vander", lambda t: [t.vander(t.tensor([1.0, 2.0]), 0), t.vander(t.tensor([1.0, 2.0]), 1)]),
    Case("linalg.vecdot", lambda t: t.linalg.vecdot(_matrix(t, 2, 3), _matrix(t, 4, 1, 3))),
    Case(
        "linalg.vecdot",
        lambda t: t.linalg.vecdot(
            t.complex(_matrix(t, 3, 2), _matrix(t, 3, 2) + 1), 1j * t.ones(3, 2, dtype=t.float64), dim=0
        ),
    ),
    *each(
        "linalg.householder_product",
        lambda t, how: t.linalg.householder_product(_matrix(t, *how[0]), _matrix(t, *how[0])[..., 0, : how[1]]),
        (((4, 3), 3), ((4, 3), 2), ((2, 3, 3), 3), ((3, 3), 0)),
    ),
    Case("orgqr", lambda t: t.orgqr(_matrix(t, 4, 3), _matrix(t, 4, 3)[0, :2])),
    Case("Tensor.orgqr", lambda t: _matrix(t, 4, 3).orgqr(t.tensor([0.0, 0.5, 2.0], dtype=t.float64))),
    Case("cholesky_inverse", lambda t: [t.cholesky_inverse(_matrix(t, 2, 3, 3), upper) for upper in (False, True)]),
    Case("Tensor.cholesky_inverse", lambda t: _matrix(t, 3, 3).cholesky_inverse()),
    Case(
        "cholesky", lambda t: quiet(lambda: [t.cholesky(_definite(t, 2, 3, 3), upper=upper) for upper in (False, True)])
    ),
    Case("Tensor.cholesky", lambda t: quiet(lambda: _definite(t, 3, 3).cholesky())),
    Case("qr", lambda t: quiet(lambda: [t.qr(_matrix(t, 4, 3)), t.qr(_matrix(t, 4, 3), some=False)])),
    Case("Tensor.qr", lambda t: quiet(lambda: _matrix(t, 4, 3).qr())),
    Case("svd", lambda t: quiet(lambda: [t.svd(_matrix(t, 4, 3))[1], t.svd(_matrix(t, 4, 3), compute_uv=False)])),
    Case(
        "svd",
        lambda t: quiet(
            lambda: [list(tensor.shape) for some in (True, False) for tensor in t.svd(_matrix(t, 2, 4, 3), some)]
        ),
    ),
    Case("Tensor.svd", lambda t: quiet(lambda: _matrix(t, 4, 3).svd().S)),
    Case(
        "dist", lambda t: [t.dist(_matrix(t, 2, 3), _matrix(t, 1, 3), p) for p in (0, 1, 2, 3.5, math.inf, -math.inf)]
    ),
    Case("Tensor.dist", lambda t: _matrix(t, 2, 3).dist(_matrix(t, 2, 3) * 2)),
    Case("linalg.solve", lambda t: t.linalg.solve(_matrix(t, 2, 3, 3), _matrix(t, 4, 3)[:2])),
    Case("linalg.pinv", lambda t: t.linalg.pinv(_matrix(t, 2, 3, 4), atol=t.tensor([0.5, 2.0], dtype=t.float64))),
    Case("linalg.pinv", lambda t: t.linalg.pinv(_matrix(t, 2, 3, 3), 0.5, hermitian=True)),
    Case("linalg.matrix_rank", lambda t: t.linalg.matrix_rank(_matrix(t, 2, 3, 4), tol=t.tensor(2.0, dtype=t.float64))),
    Case("linalg.matrix_rank", lambda t: t.linalg.matrix_rank(_matrix(t, 2, 3, 4), 2.0)),
    *each(
        "linalg.lstsq",
        lambda t, driver: list(t.linalg.lstsq(_matrix(t, 4, 3), _matrix(t, 4, 2), driver=driver)),
        (None, "gels", "gelsy", "gelsd", "gelss"),
    ),
    *each(
        "linalg.matrix_norm",
        lambda t, how: t.linalg.matrix_norm(t.zeros(*how[1]), how[0]),
        (
            (1, (3, 0)),
            (2, (0, 3)),
            (math.inf, (2, 0, 3)),
            ("nuc", (0, 0)),
            (-1, (0, 3)),
            (-math.inf, (3, 0)),
        ),
    ),
    Case("linalg.vector_norm", lambda t: t.linalg.vector_norm(t.ones(3, 0), dim=(0, 1))),
    Case("linalg.norm", lambda t: t.linalg.norm(_matrix(t, 2, 3, 4), 2, (0, 2), keepdim=True)),
]
