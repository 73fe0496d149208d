"""From numpy arrays to products of matrices in C.

What BLAS does here it does as well as anybody where matrices are large.  Where they are not, it copies more than it
multiplies; it cuts results across their rows, half of which are then in the cache of another core than whoever treats
them row by row; and it chooses its kernels, and the order of its sums, by the processor's name, the number of threads
and the shapes.  Here a row of the result depends on nothing but its row of the left operand, and on the right one.
"""

from __future__ import annotations

import ctypes
from array import array
from math import prod
from typing import Any, Final, Self, TypeAlias

import numpy as np

from vmflow.kernels.intra_op import get_num_threads

from . import team
from .addresses import address, is_aligned, is_plain, plain
from .arrays import Call, as_call
from .call_site import CallSite
from .functions import CFunction, function

Array: TypeAlias = Any

# The C functions for one product, and for several.
_Kernels: TypeAlias = tuple[CFunction, CFunction]

_SINGLE: Final = np.dtype(np.float32)
# Elements for which it is worth compiling; whoever calls has enough of them.
_ALWAYS: Final = 1 << 12

_ITEM: Final = _SINGLE.itemsize
_WORD: Final = np.dtype(np.int64)

# So many products of two numbers take as long as an addition from memory; see `intra_op.LEAST`.
_AS_AN_ADDITION: Final = 12

# See products.c: of the words, behind the operands, and those that may be 0.
_RESULT: Final = 2
_ADDED: Final = 11
_SUMS: Final = 12

# See products.c, where vectors are widest; and rows of a piece, at least, where there are more pieces than threads, for
# each packs the other operand for itself.
_PANEL: Final = 32
_ROWS_OF_A_SHARE: Final = 512


class MatrixProduct:
    """Products of matrices of float32, as they are called from one place.

    Each method returns None if C has been switched off meanwhile.

    Args:
        kernels: the C functions for one product, and for several.
    """

    __slots__ = ("_kernels", "_site", "_with_sums")

    def __init__(self, kernels: _Kernels) -> None:
        self._kernels = kernels
        self._site = CallSite()
        self._with_sums = CallSite()  # its own, for what is added may look as the sums do

    @classmethod
    def of(cls) -> Self | None:
        """The products, which are enough to be worth it; None if C has none now."""
        one, several = [function(name, _ALWAYS) for name in ("matrix_product", "matrix_products")]
        return None if one is None or several is None else cls((one, several))

    def call(self, left: Array, right: Array, out: Array | None, added: Array | None = None) -> Array | None:
        """The product of matrices, or of batches of them that broadcast.

        Args:
            left: (..., rows, depth), not empty.
            right: (..., depth, columns).
            out: where the result should go, or None.
            added: (columns,), which is added to each row of the result.

        Returns:
            The result, which is elsewhere if it cannot be put there.
        """
        found = self._site.result((left, right) if added is None else (left, right, added), out)
        return self._found(left, right, out, added, None) if found is None else found

    def call_with_sums(self, left: Array, right: Array, out: Array | None, sums: Array) -> Array | None:
        """The product of two matrices, and the sum of each row of the left one.

        Args:
            left, right, out: see `call`; the rows of `left` lie side by side.
            sums: (rows,), contiguous, where these go.
        """
        if out is None:
            out = np.empty((left.shape[0], right.shape[1]), _SINGLE)
        return out if self._with_sums.again((left, right, sums, out)) else self._found(left, right, out, None, sums)

    def _found(
        self, left: Array, right: Array, out: Array | None, added: Array | None, sums: Array | None
    ) -> Array | None:
        if out is not None and (out.dtype is not _SINGLE or _shares(out, left, right, added) or not _takes(out)):
            out = None
        lie_well = _is_in_lines(left) and _is_in_lines(right) and (added is None or is_plain(added))
        if not lie_well:
            left, right = _in_lines(left), _in_lines(right)
            added = None if added is None else plain(added)
        form = _Form(self._kernels, left, right, out, added, sums)
        if out is None:
            out = np.empty(form.shape, _SINGLE)
        if not form.compute(left, right, out, added, sums):
            return None
        if lie_well:
            form.note(self._site if sums is None else self._with_sums, left, right, out, added, sums)
        return out

    def placed(
        self, left: Array, right: Array, out: Array, added: Array | None = None, sums: Array | None = None
    ) -> Call | None:
        """The same as one call, for arrays that stay where they are; None also if it cannot be had for these.

        The number of threads is that of now.
        """
        if not (_is_in_lines(left) and _is_in_lines(right) and _takes(out)):
            return None
        if _shares(out, left, right, added) or (added is not None and not is_plain(added)):
            return None
        return _Form(self._kernels, left, right, out, added, sums).call(left, right, out, added, sums)


class _Form:
    """How to multiply arrays of certain shapes and strides.

    Args:
        kernels: see `MatrixProduct`.
        left, right, out, added, sums: such arrays, of `MatrixProduct`.

    Attributes:
        shape: of the result.
    """

    __slots__ = ("_at", "_kernel", "_leading", "_several", "_shared", "_words", "_work", "shape")

    def __init__(
        self,
        kernels: _Kernels,
        left: Array,
        right: Array,
        out: Array | None,
        added: Array | None,
        sums: Array | None,
    ) -> None:
        (rows, depth), columns = left.shape[-2:], right.shape[-1]
        leading = left.shape[:-2]
        if right.shape[:-2] != leading:
            leading = np.broadcast_shapes(leading, right.shape[:-2])
        self.shape = (*leading, rows, columns)
        size = prod(self.shape)
        of_left, of_right = _strides(left), _strides(right)
        of_out = columns if out is None else out.strides[-2] // _ITEM
        contiguous = left.flags.c_contiguous and (out is None or out.flags.c_contiguous)
        if leading and right.ndim == 2 and contiguous:
            rows, leading, of_left, of_out = left.size // depth, (), (depth, 1), columns
        strides = *of_left, *of_right, of_out
        words = array("q", (0, 0, 0, rows, columns, depth, *strides, 0, 0))
        self._kernel, self._several = kernels
        self._leading = leading
        self._work = size * depth / _AS_AN_ADDITION
        cut = _cut(rows, columns, depth, strides, added is not None, sums is not None)
        # The function takes words, as those do that are shared out.
        shared = None if leading else team.job(self._kernel.by_words, words, cut, self._work)
        self._words = shared or words
        self._at = len(self._words) - len(words)
        self._shared = shared is not None

    def compute(self, left: Array, right: Array, out: Array, added: Array | None, sums: Array | None) -> bool:
        """Multiply; whether C was still there."""
        if self._leading:
            call, arguments, _ = self._call_of_several(left, right, out, added)
            call(*arguments)
            return True
        words = self._for(left, right, out, added, sums)
        if self._shared:
            return team.run(words, self._work)
        self._kernel.call(words.buffer_info()[0])
        return True

    def call(self, left: Array, right: Array, out: Array, added: Array | None, sums: Array | None) -> Call | None:
        """The same as one call; None if C is not there any more."""
        if self._leading:
            return self._call_of_several(left, right, out, added)
        words = self._for(left, right, out, added, sums)
        return team.call_of(words, self._work) if self._shared else (self._kernel.call, (_kept(words),), None)

    def note(
        self, site: CallSite, left: Array, right: Array, out: Array, added: Array | None, sums: Array | None
    ) -> None:
        """Have such a call remembered, if it can be."""
        if self._leading:
            return
        places, arrays = [0, 1], [left, right]
        for place, further in ((_ADDED, added), (_SUMS, sums)):
            if further is not None:
                places.append(place)
                arrays.append(further)
        site.note(
            0 if self._shared else self._kernel.by_words,
            self._words,
            [self._at + it for it in (*places, _RESULT)],
            (*arrays, out),
            self._work,
            written=1 if sums is None else 2,
        )

    def _for(self, left: Array, right: Array, out: Array, added: Array | None, sums: Array | None) -> array[int]:
        words, at = self._words[:], self._at
        words[at], words[at + 1], words[at + _RESULT] = address(left), address(right), address(out)
        if added is not None:
            words[at + _ADDED] = address(added)
        if sums is not None:
            words[at + _SUMS] = address(sums)
        return words

    def _call_of_several(self, left: Array, right: Array, out: Array, added: Array | None) -> Call:
        places = np.stack([_places(it, self._leading) for it in (left, right, out)], 1)
        words = _kept(self._words)
        if added is not None:
            words[_ADDED] = address(added)
        arguments = address(places), len(places), ctypes.addressof(words)
        cut = team.Cut(1, ((0, places.strides[0]),))
        call, given, _ = as_call(self._several, arguments, lambda: cut, self._work)

        def compute(*of: Any) -> None:
            call(*given)

        return compute, (places, words), None


def _kept(words: array[int]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * len(words))(*words)


def _places(of: Array, leading: tuple[int, ...]) -> Array:
    """Where each matrix of a batch is that is broadcast to these leading dimensions."""
    of = np.broadcast_to(of, (*leading, *of.shape[-2:]))
    found = np.full(1, address(of), _WORD)
    for count, stride in zip(leading, of.strides, strict=False):
        found = (found[:, np.newaxis] + np.arange(count) * stride).reshape(-1)
    return found


def _cut(rows: int, columns: int, depth: int, strides: tuple[int, ...], adds: bool, sums: bool) -> team.Cut:
    """By rows of the result, since who treats it next does so row by row; by columns where there are too few.

    Also by columns where they are longer than the result, as a layer's weights are for fewer samples than features: by
    rows, each thread would read all of them, and whoever changes parts of them later would have to take these out of
    the others' caches.
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


# How arrays lie


def _strides(of: Array) -> tuple[int, int]:
    """Of a matrix by rows and by columns, in elements: one of them is 1."""
    (rows, columns), (by_row, by_column) = of.shape[-2:], of.strides[-2:]
    if columns == 1 or by_column == _ITEM:
        return by_row // _ITEM, 1
    return 1 if rows == 1 else by_row // _ITEM, by_column // _ITEM


def _is_in_lines(of: Array) -> bool:
    """Whether the numbers of rows, or those of columns, lie one behind the other, in whole elements from the next."""
    (rows, columns), (by_row, by_column) = of.shape[-2:], of.strides[-2:]
    if not is_aligned(of):
        return False
    if columns == 1 or by_column == _ITEM:
        return bool(by_row % _ITEM == 0)
    return bool((rows == 1 or by_row == _ITEM) and by_column % _ITEM == 0)


def _in_lines(given: Array) -> Array:
    return given if _is_in_lines(given) else given.copy()


def _shares(out: Array, *read: Array | None) -> bool:
    """Whether a result would be written over what is still to be read."""
    return any([it is not None and np.may_share_memory(out, it) for it in read])


def _takes(out: Array) -> bool:
    """Whether a result can be written there."""
    by_row, by_column = out.strides[-2:]
    if not (out.flags.writeable and is_aligned(out)):
        return False
    return bool((by_column == _ITEM or out.shape[-1] == 1) and by_row % _ITEM == 0 and out.dtype == _SINGLE)
