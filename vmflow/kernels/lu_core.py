"""LU factorization of batches of matrices, written with functions that numpy and CuPy both have."""

from __future__ import annotations

from typing import Any, Final

# The width of a block of columns: LU factorization eliminates these columns one by one, and then updates all columns
# right of the block, by a solve and a product of matrices.
_BLOCK: Final = 32


def lu_factors(xp: Any, matrices: Any, pivoting: bool) -> tuple[Any, Any, Any]:
    """Compute the LU factorization of each matrix, with both factors in one matrix as LAPACK's getrf returns them.

    G. H. Golub and C. F. Van Loan, Matrix Computations (2013), algorithm 3.4.1, by blocks of columns.

    Args:
        xp: numpy or CuPy.
        matrices: (..., m, n), floating-point or complex.
        pivoting: whether rows are exchanged, so that each column's element of largest absolute value, on the diagonal
            or below, comes to the diagonal.

    Returns:
        For each matrix: the strictly lower triangle of L and the upper triangle of U in one matrix; the rows, counted
        from 1, that rows 1 to min(m, n) were exchanged with in turn, int32; and the position of the first 0 on the
        diagonal of U, counted from 1, or 0 if there is none, int32.
    """
    *batch, rows, columns = matrices.shape
    count, steps = 1, min(rows, columns)
    for size in batch:
        count *= size
    factors = matrices.reshape(count, rows, columns).copy()
    pivots = xp.broadcast_to(xp.arange(1, steps + 1, dtype=xp.int32), (count, steps)).copy()
    each = xp.arange(count)
    for begin in range(0, steps, _BLOCK) if count else ():
        end = min(begin + _BLOCK, steps)
        for step in range(begin, end):
            if pivoting:
                chosen = xp.argmax(xp.abs(factors[:, step:, step]), axis=1) + step
                pivots[:, step] = chosen + 1
                above = factors[:, step].copy()
                factors[:, step] = factors[each, chosen]
                factors[each, chosen] = above
            divisor = factors[:, step, step]
            factors[:, step + 1 :, step] /= xp.where(divisor == 0, xp.ones_like(divisor), divisor)[:, None]
            factors[:, step + 1 :, step + 1 : end] -= (
                factors[:, step + 1 :, step, None] * factors[:, step, None, step + 1 : end]
            )
        if end < columns:
            triangle = xp.tril(factors[:, begin:end, begin:end], -1) + xp.eye(end - begin, dtype=factors.dtype)
            right = xp.linalg.solve(triangle, factors[:, begin:end, end:])
            factors[:, begin:end, end:] = right
            factors[:, end:, end:] -= xp.matmul(factors[:, end:, begin:end], right)
    return factors.reshape(matrices.shape), pivots.reshape(*batch, steps), _first_zero(xp, factors).reshape(batch)


def _first_zero(xp: Any, factors: Any) -> Any:
    if not min(factors.shape[1:]):
        return xp.zeros(factors.shape[0], xp.int32)
    zero = xp.diagonal(factors, axis1=1, axis2=2) == 0
    place = xp.argmax(zero, axis=1) + 1
    return xp.where(xp.any(zero, axis=1), place, xp.zeros_like(place)).astype(xp.int32)


def wrong_pivot(pivot: int, size: int) -> IndexError:
    """Return the error of a `pivot` that is not the number of one of `size` rows, which are counted from 1."""
    return IndexError(f"pivot {pivot} is no row of a matrix of {size} rows, which are counted from 1")


def permutations(xp: Any, pivots: Any, size: int) -> Any:
    """Return, for each of `size` rows after the exchanges `pivots` of `lu_factors`, its old position, from 0."""
    *batch, steps = pivots.shape
    count = 1
    for length in batch:
        count *= length
    flat = pivots.reshape(count, steps).astype(xp.int64) - 1
    order = xp.broadcast_to(xp.arange(size, dtype=xp.int64), (count, size)).copy()
    each = xp.arange(count)
    for step in range(steps):
        other = flat[:, step]
        above = order[:, step].copy()
        order[:, step] = order[each, other]
        order[each, other] = above
    return order.reshape(*batch, size)
