"""Products of float32 matrices, computed in C.

BLAS is fast for large matrices.  For smaller ones it copies much; it may cut results across their rows, so that parts
of each row are in another core's cache when the next op computes row by row; and the order of its sums can depend on
the processor's name, the number of threads and the shapes.  Here, the bits of a result's row depend only on that row
of the left operand, and on the other operands.
"""

from __future__ import annotations

from typing import Final, Self

import numpy as np

from vmflow.kernels.choosing import Call
from vmflow.kernels.intra_op import get_num_threads

from . import team
from .addresses import Array, address, is_aligned, is_plain, places_of, plain, realigned
from .arrays import SINGLE, NativeCall
from .call_site import CallSite
from .functions import CFunction, function

# The number of elements given to `function`, enough to have the library compiled: callers have a limit of their own.
_ALWAYS: Final = 1 << 12

_ITEM: Final = SINGLE.itemsize

# The number of multiplications that take as long as an addition of arrays in memory, the unit of `intra_op.LEAST`.
_AS_AN_ADDITION: Final = 12

# The positions in `struct product` of products.c of the addresses of the result, of the vector added to its rows, and
# of the sums of the left operand's rows; the last two addresses may be 0.
_RESULT: Final = 2
_ADDED: Final = 11
_SUMS: Final = 12

# The width of a panel, see panels.h, in floats, on processors with the widest vectors.
_PANEL: Final = 32

# The least rows of a piece if there are more pieces than threads, since each piece packs the right operand for itself.
_ROWS_OF_A_SHARE: Final = 512


class MatrixProduct:
    """A function that computes products of float32 matrices in C.

    Args:
        one: the C function of one product.
        several: the C function of a batch of products.
    """

    def __init__(self, one: CFunction, several: CFunction) -> None:
        self._one = one
        self._several = several
        self._site = CallSite()
        self._with_sums = CallSite()  # a second one, since a site could not tell memory for sums from `added`

    @classmethod
    def of(cls) -> Self | None:
        """Make an instance; None if the C functions may not be used now, or BLAS is faster on this processor."""
        one, several = [function(name, _ALWAYS) for name in ("matrix_product", "matrix_products")]
        return None if one is None or several is None else cls(one, several)

    def __call__(self, left: Array, right: Array, out: Array | None = None, added: Array | None = None) -> Array:
        """Compute ``left @ right`` of matrices, or of batches of matrices that broadcast, plus `added`.

        Args:
            left: (..., rows, depth), not empty.
            right: (..., depth, columns).
            out: memory for the result, or None.
            added: a vector (columns,) that is added to each row of the result; or None.
        """
        found = self._site.result((left, right) if added is None else (left, right, added), out)
        return self._computed(left, right, out, added, None) if found is None else found

    def with_sums(
        self, left: Array, right: Array, out: Array | None = None, sums: Array | None = None
    ) -> tuple[Array, Array]:
        """Compute ``left @ right`` of two matrices, and the sum of each row of `left`.

        Args:
            left, right, out: see `__call__`; the columns of `left` are contiguous, as in a transposed matrix.
            sums: (rows,), contiguous memory for the sums, or None.
        """
        if out is None:
            out = np.empty((left.shape[0], right.shape[1]), SINGLE)
        if sums is None:
            sums = np.empty(len(left), SINGLE)
        if not self._with_sums.again((left, right, sums, out)):
            # Twice transposed, an aligned copy of `left` has contiguous columns, too, which C needs for the sums.
            self._computed(realigned(left.T).T, right, out, None, sums)
        return out, sums

    def _computed(
        self, left: Array, right: Array, wanted: Array | None, added: Array | None, sums: Array | None
    ) -> Array:
        site: CallSite | None = self._site if sums is None else self._with_sums
        if not (_is_in_lines(left) and _is_in_lines(right) and (added is None or is_plain(added))):
            site = None
            left, right, added = _in_lines(left), _in_lines(right), None if added is None else plain(added)
        out = wanted
        if out is None or out.dtype is not SINGLE or _shares(out, left, right, added) or not _takes(out):
            leading = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
            out = np.empty((*leading, left.shape[-2], right.shape[-1]), SINGLE)
        call = self._call(left, right, out, added, sums)
        call.make(site if call.kernel is self._one else None)
        if wanted is None or wanted is out:
            return out
        np.copyto(wanted, out)
        return wanted

    def placed(
        self, left: Array, right: Array, out: Array, added: Array | None = None, sums: Array | None = None
    ) -> Call | None:
        """Prepare the product as one call for arrays that keep their addresses; None if C cannot use them as they lie.

        The call keeps the present number of threads.
        """
        if not (_is_in_lines(left) and _is_in_lines(right) and _takes(out)):
            return None
        if _shares(out, left, right, added) or (added is not None and not is_plain(added)):
            return None
        found = self._call(left, right, out, added, sums)
        call = found.placed()
        # The call for a batch holds the addresses of arrays that `_call` has made.  To keep these arrays alive, they
        # are passed as arguments.
        return (lambda *kept: call[0](*call[1]), found.arrays, None) if found.kernel is self._several else call

    def _call(self, left: Array, right: Array, out: Array, added: Array | None, sums: Array | None) -> NativeCall:
        """Return the call of the C function for one product, or for a batch, of these arrays."""
        (rows, depth), columns = left.shape[-2:], right.shape[-1]
        leading = out.shape[:-2]
        work = out.size * depth / _AS_AN_ADDITION
        of_left, of_right, of_out = _strides(left), _strides(right), out.strides[-2] // _ITEM
        if leading and right.ndim == 2 and left.flags.c_contiguous and out.flags.c_contiguous:
            rows, leading, of_left, of_out = left.size // depth, (), (depth, 1), columns
        strides = *of_left, *of_right, of_out
        further = [(place, value) for place, value in ((_ADDED, added), (_SUMS, sums)) if value is not None]
        words = [address(left), address(right), address(out), rows, columns, depth, *strides, 0, 0]
        for place, value in further:
            words[place] = address(value)
        if leading:
            spread = [np.broadcast_to(array, (*leading, *array.shape[-2:])) for array in (left, right, out)]
            places = np.stack([places_of(value, leading) for value in spread], 1)
            given = np.array(words, np.int64)
            arguments = address(places), len(places), address(given)
            cut = team.Cut(1, ((0, places.strides[0]),))
            return NativeCall(self._several, arguments, lambda: cut, work, (places, given))
        return NativeCall(
            self._one,
            tuple(words),
            lambda: _cut(rows, columns, depth, strides, added is not None, sums is not None),
            work,
            (left, right, *[value for _, value in further], out),
            places=(0, 1, *[place for place, _ in further], _RESULT),
            written=1 if sums is None else 2,
        )


def _cut(rows: int, columns: int, depth: int, strides: tuple[int, ...], adds: bool, sums: bool) -> team.Cut:
    """Return the `Cut` of a product among threads: by rows of the result, since the next op often works row by row.

    `adds` and `sums` say whether a vector is added, and whether the left operand's rows are summed up.

    Without `sums`, the cut is by columns if there are fewer rows than columns and than `_PANEL` for each thread; or if
    there are fewer rows than `depth`, and at least `_PANEL` columns for each thread, as with a linear layer for fewer
    samples than features: by rows, each thread would read all weights.
    """
    a_row, _, _, b_column, result_row = strides
    threads = get_num_threads()
    few, wide = rows < min(columns, threads * _PANEL), rows < depth and columns >= threads * _PANEL
    if (few or wide) and not sums:
        moves = ((1, b_column * _ITEM), (_RESULT, _ITEM), *([(_ADDED, _ITEM)] if adds else []))
        return team.Cut(4, moves, _PANEL, 1)
    shares = max(1, min(4, rows // (threads * _ROWS_OF_A_SHARE)))
    moves = ((0, a_row * _ITEM), (_RESULT, result_row * _ITEM), *([(_SUMS, _ITEM)] if sums else []))
    return team.Cut(3, moves, _PANEL, shares)


# Layouts of arrays


def _strides(of: Array) -> tuple[int, int]:
    """Return the strides from row to row and from column to column, in elements, of a matrix that C can read."""
    (rows, columns), (by_row, by_column) = of.shape[-2:], of.strides[-2:]
    if columns == 1 or by_column == _ITEM:
        return by_row // _ITEM, 1
    return 1 if rows == 1 else by_row // _ITEM, by_column // _ITEM


def _is_in_lines(of: Array) -> bool:
    """Whether C can read a float32 matrix: aligned, with contiguous rows or columns that lie whole elements apart."""
    (rows, columns), (by_row, by_column) = of.shape[-2:], of.strides[-2:]
    if not is_aligned(of):
        return False
    if columns == 1 or by_column == _ITEM:
        return bool(by_row % _ITEM == 0)
    return bool((rows == 1 or by_row == _ITEM) and by_column % _ITEM == 0)


def _in_lines(given: Array) -> Array:
    return given if _is_in_lines(given) else given.copy()


def _shares(out: Array, *read: Array | None) -> bool:
    """Whether the memory of `out` may overlap with that of an operand."""
    return any([array is not None and np.may_share_memory(out, array) for array in read])


def _takes(out: Array) -> bool:
    """Whether C can write a product to `out`: float32, writeable and aligned, with contiguous rows."""
    by_row, by_column = out.strides[-2:]
    if not (out.flags.writeable and is_aligned(out)):
        return False
    return bool((by_column == _ITEM or out.shape[-1] == 1) and by_row % _ITEM == 0 and out.dtype == SINGLE)
