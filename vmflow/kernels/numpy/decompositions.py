"""Matrix factorizations (Cholesky, QR, LU, SVD, eigenvalues), functions that build on them, and the matrix exponential.

Half precision is computed in float32, since LAPACK has none.
"""

from __future__ import annotations

from typing import Final, cast

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.kernels.choosing import Problem, kernel_of
from vmflow.kernels.lu_core import lu_factors, permutations, wrong_pivot

from .half import computes_in
from .linear_algebra import FACTORS, explained, factored

kernel_of("decompositions")(factored)


@kernel_of("solve_triangular")
def _solve_triangular(problem: Problem, array: Array, values: Array, out: Array | None) -> Array:
    upper, unitriangular = cast("tuple[bool, bool]", problem.attributes)
    (output,) = problem.outputs
    wide, to = computes_in(output.dtype), output.dtype.numpy
    # LAPACK gets an upper triangle, which needs no pivots: it only substitutes backwards.
    triangle = np.triu(array) if upper else np.tril(array)[..., ::-1, ::-1]
    triangle = triangle.astype(wide)
    if unitriangular:
        places = range(triangle.shape[-1])
        triangle[..., places, places] = 1
    with explained("solve_triangular"):
        solved = np.linalg.solve(triangle, (values if upper else values[..., ::-1, :]).astype(wide, copy=False))
    return np.ascontiguousarray(solved if upper else solved[..., ::-1, :]).astype(to, copy=False)


# Pseudo-inverses


@kernel_of("pinv")
def _pinv(problem: Problem, array: Array, atol: Array, rtol: Array, out: Array | None) -> Array:
    (hermitian,) = cast("tuple[bool]", problem.attributes)
    (output,) = problem.outputs
    array = array.astype(computes_in(output.dtype), copy=False)
    if hermitian:
        array = np.tril(array) + np.swapaxes(np.tril(array, -1), -1, -2).conj()
    if 0 in output.shape:  # there is nothing to compute
        return np.zeros(output.shape, output.dtype.numpy)
    with explained("pinv"):
        u, s, vh = np.linalg.svd(array, full_matrices=False)
    kept = s > np.maximum(atol[..., None], rtol[..., None] * s[..., :1])
    inverse = np.where(kept, 1 / np.where(kept, s, 1), 0).astype(s.dtype)
    product = np.matmul(np.swapaxes(vh, -1, -2).conj() * inverse[..., None, :], np.swapaxes(u, -1, -2).conj())
    return np.ascontiguousarray(product).astype(output.dtype.numpy, copy=False)


@kernel_of("pivots_to_permutation")
def _pivots_to_permutation(problem: Problem, pivots: Array, out: Array | None) -> Array:
    (size,) = cast("tuple[int]", problem.attributes)
    wrong = pivots[(pivots < 1) | (pivots > size)]
    if wrong.size:
        raise wrong_pivot(int(wrong[0]), size)
    order: Array = permutations(np, pivots, size)
    return order


def _lu_factor(array: Array, pivoting: bool) -> tuple[Array, ...]:
    with np.errstate(all="ignore"):  # numbers may overflow without a warning, as in LAPACK
        return lu_factors(np, array, pivoting)


# The exponential

# Coefficients of exp's diagonal Padé approximant of order 13, from the highest power, and the norm of a matrix up to
# which it has all digits of float64.
PADE: Final = (
    1.0,
    182.0,
    16380.0,
    960960.0,
    40840800.0,
    1323241920.0,
    33522128640.0,
    670442572800.0,
    10559470521600.0,
    129060195264000.0,
    1187353796428800.0,
    7771770303897600.0,
    32382376266240000.0,
    64764752532480000.0,
)
PADE_NORM: Final = 5.371920351148152


def _matrix_exp(array: Array) -> tuple[Array, ...]:
    """Compute exp(A) of matrices A by scaling and squaring.

    N. J. Higham, The scaling and squaring method for the matrix exponential revisited, 2005.
    """
    if not array.size:
        return (array.copy(),)
    norm = np.abs(array).sum(-2).max(-1)
    halvings = np.where(np.isfinite(norm), np.ceil(np.log2(np.maximum(norm / PADE_NORM, 1.0))), 0.0)
    scaled = array / np.exp2(halvings)[..., None, None].astype(array.dtype)
    power: Array = np.broadcast_to(np.eye(array.shape[-1], dtype=array.dtype), array.shape)
    even, odd = np.zeros_like(array), np.zeros_like(array)
    for place, coefficient in enumerate(reversed(PADE)):
        if place % 2:
            odd = odd + power * coefficient
        else:
            even = even + power * coefficient
        power = np.matmul(power, scaled)
    result = np.linalg.solve(even - odd, even + odd)
    for turn in range(int(halvings.max())):
        result = np.where((halvings > turn)[..., None, None], np.matmul(result, result), result)
    return (result,)


FACTORS.update(
    {
        "slogdet": lambda array: tuple(np.linalg.slogdet(array)),
        "cholesky": lambda array: (np.linalg.cholesky(array),),
        "qr": lambda array, mode: tuple(np.linalg.qr(array, mode)),
        "svd": lambda array, whole: tuple(np.linalg.svd(array, whole)),
        "svdvals": lambda array: (np.linalg.svd(array, compute_uv=False),),
        "eigh": lambda array, triangle: tuple(np.linalg.eigh(array, triangle)),
        "eig": lambda array: tuple(np.linalg.eig(array)),
        "lu_factor": _lu_factor,
        "matrix_exp": _matrix_exp,
    }
)
