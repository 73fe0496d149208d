"""Matrix factorizations (Cholesky, QR, LU, SVD, eigenvalues), functions that build on them, and the matrix exponential.

Half precision is computed in float32, since cuSOLVER has none.
"""

from __future__ import annotations

from typing import Any

from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.kernels.lu_core import lu_factors, permutations, wrong_pivot
from vmflow.kernels.numpy.decompositions import PADE, PADE_NORM
from vmflow.kernels.numpy.half import computes_in
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, Computation, by_arrays, into_outs
from .checks import check_range
from .linear_algebra import FACTORS, explained, factored, solved

by_arrays("slogdet", "cholesky", "qr", "svd", "svdvals", "eig", "eigh", "lu_factor", "matrix_exp")(factored)


@by_arrays("solve_triangular")
def _solve_triangular(xp: Any, problem: Problem, array: Any, values: Any, out: Any) -> None:
    upper, unitriangular = problem.attributes
    wide = computes_in(problem.outputs[0].dtype)
    # Given an upper triangle, the general solver in effect substitutes back; a lower triangle is reversed into an upper
    # one.
    triangle = xp.triu(array.astype(wide)) if upper else xp.tril(array.astype(wide))[..., ::-1, ::-1]
    if unitriangular:
        diagonal = xp.eye(triangle.shape[-1], dtype=bool)
        triangle = xp.where(diagonal, xp.ones_like(triangle), triangle)
    values = values.astype(wide)
    with explained(xp, "solve_triangular"):
        result = solved(xp, triangle, values if upper else values[..., ::-1, :], out.shape)
    xp.copyto(out, result if upper else result[..., ::-1, :], casting="unsafe")


@by_arrays("pinv")
def _pinv(xp: Any, problem: Problem, array: Any, atol: Any, rtol: Any, out: Any) -> None:
    (hermitian,) = problem.attributes
    if not out.size:
        return
    array = array.astype(computes_in(problem.outputs[0].dtype), copy=False)
    if hermitian:
        array = xp.tril(array) + xp.swapaxes(xp.tril(array, -1), -1, -2).conj()
    with explained(xp, "pinv"):
        u, s, vh = xp.linalg.svd(array, full_matrices=False)
    kept = s > xp.maximum(rtol[..., None] * s[..., :1], atol[..., None])
    inverse = xp.where(kept, 1 / xp.where(kept, s, xp.ones_like(s)), xp.zeros_like(s))
    product = xp.matmul(xp.swapaxes(vh, -1, -2).conj() * inverse[..., None, :], xp.swapaxes(u, -1, -2).conj())
    xp.copyto(out, product, casting="unsafe")


@builds("pivots_to_permutation", package=PACKAGE)
def _build_pivots_to_permutation(problem: Problem) -> Kernel:
    (size,) = problem.attributes
    computation = Computation(_pivots_to_permutation, problem)

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        check_range(launcher, operands[0], 1, size + 1, lambda position, value: wrong_pivot(value, size))
        launcher.call(problem.op, computation, operands, outs)

    return Kernel(into_outs(launch, problem), casts=True)


def _pivots_to_permutation(xp: Any, problem: Problem, pivots: Any, out: Any) -> None:
    (size,) = problem.attributes
    # Pivots out of range are reported when the work has ended; the nearest valid ones stand in for them.
    xp.copyto(out, permutations(xp, xp.clip(pivots, 1, size), size), casting="unsafe")


def _matrix_exp(xp: Any, array: Any) -> tuple[Any, ...]:
    """Compute exp(A) of matrices A by scaling, a Padé approximant of order 13 and squaring (N. J. Higham, The scaling
    and squaring method for the matrix exponential revisited, 2005).
    """
    if not array.size:
        return (array,)
    norm = xp.amax(xp.sum(xp.abs(array), axis=-2), axis=-1)
    halvings = xp.ceil(xp.log2(xp.maximum(norm / PADE_NORM, 1.0)))
    halvings = xp.where(xp.isfinite(norm), halvings, xp.zeros_like(halvings))
    scaled = array / xp.exp2(halvings)[..., None, None].astype(array.dtype)
    power = xp.broadcast_to(xp.eye(array.shape[-1], dtype=array.dtype), array.shape)
    even, odd = xp.zeros_like(array), xp.zeros_like(array)
    for place, coefficient in enumerate(reversed(PADE)):
        if place % 2:
            odd = odd + power * coefficient
        else:
            even = even + power * coefficient
        power = xp.matmul(power, scaled)
    result = solved(xp, even - odd, even + odd, array.shape)
    # The host waits for the number of squarings here, as it waited for the solution.
    for turn in range(int(xp.amax(halvings))):
        result = xp.where((halvings > turn)[..., None, None], xp.matmul(result, result), result)
    return (result,)


FACTORS.update(
    {
        "slogdet": lambda xp, array: tuple(xp.linalg.slogdet(array)),
        "cholesky": lambda xp, array: (xp.linalg.cholesky(array),),
        "qr": lambda xp, array, mode: tuple(xp.linalg.qr(array, mode)),
        "svd": lambda xp, array, whole: tuple(xp.linalg.svd(array, whole)),
        "svdvals": lambda xp, array: (xp.linalg.svd(array, compute_uv=False),),
        "eigh": lambda xp, array, triangle: tuple(xp.linalg.eigh(array, triangle)),
        "eig": lambda xp, array: tuple(xp.linalg.eig(array)),
        "lu_factor": lu_factors,
        "matrix_exp": _matrix_exp,
    }
)
