"""From numpy arrays to products of matrices in C: each function here computes, or says that it cannot.

What BLAS does here it does as well as anybody where matrices are large.  Where they are not, it copies more than it
multiplies; it cuts results across their rows, half of which are then in the cache of another core than whoever treats
them row by row; and it chooses its kernels, and the order of its sums, by the processor's name, the number of threads
and the shapes.  Here a row of the result depends on nothing but its row of the left operand, and on the right one.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np

from vmflow.intra_op import get_num_threads

from . import team
from .arrays import Call, as_call
from .elementwise import address
from .kernels import address_of, function
from .loading import LOADER

Array: TypeAlias = Any

_SINGLE: Final = np.dtype(np.float32)
# Elements for which it is worth compiling; whoever calls has enough of them.
_ALWAYS: Final = 1 << 12

_ITEM: Final = _SINGLE.itemsize
_WORD: Final = np.dtype(np.int64)

# So many products of two numbers take as long as an addition from memory; see `vmflow.intra_op.LEAST`.
_AS_AN_ADDITION: Final = 12

# Forms of products that are kept.
_REMEMBERED: Final = 1 << 12

# See products.c, where vectors are widest; and rows of a piece, at least, where there are more pieces than threads, for
# each packs the other operand for itself.
_PANEL: Final = 32
_ROWS_OF_A_SHARE: Final = 512


def matrix_product(left: Array, right: Array, out: Array | None) -> Array | None:
    """The product of matrices, or of batches of them that broadcast; None if C is not there.

    Args:
        left: (..., rows, depth) of float32, not empty.
        right: (..., depth, columns).
        out: where the result should go, or None.

    Returns:
        The result, which is elsewhere if it cannot be put there.
    """
    kernel = function("matrix_product", _ALWAYS)
    if kernel is None:
        return None
    left, right = _in_lines(left), _in_lines(right)
    if out is None or not _takes(out) or np.may_share_memory(out, left) or np.may_share_memory(out, right):
        leading = left.shape[:-2]
        if right.shape[:-2] != leading:
            leading = np.broadcast_shapes(leading, right.shape[:-2])
        out = np.empty((*leading, left.shape[-2], right.shape[-1]), _SINGLE)
    # Most are like one before, and to find out how to compute one takes as long as many a product.
    key = left.shape, left.strides, right.shape, right.strides, out.strides, get_num_threads()
    form = _forms.get(key)
    if form is None or form.arrived != LOADER.arrived:
        if len(_forms) >= _REMEMBERED:
            _forms.clear()
        form = _forms[key] = _Form(kernel, left, right, out)
    return out if form.compute(left, right, out) else None


def product_call(left: Array, right: Array, out: Array) -> Call | None:
    """`matrix_product` as one call, for arrays that stay where they are; None if it cannot be had.

    The number of threads is that of now.
    """
    kernel = function("matrix_product", _ALWAYS)
    if kernel is None or not (_is_in_lines(left) and _is_in_lines(right) and _takes(out)):
        return None
    if np.may_share_memory(out, left) or np.may_share_memory(out, right):
        return None
    return _Form(kernel, left, right, out).call(left, right, out)


class _Form:
    """How to multiply arrays of certain shapes and strides.

    Args:
        kernel: the C function.
        left, right, out: such arrays.

    Attributes:
        arrived: `Loader.arrived` when it was made: what helps with a product may have come since.
    """

    __slots__ = ("_at", "_kernel", "_leading", "_shared", "_words", "_work", "arrived")

    def __init__(self, kernel: Callable[..., Any], left: Array, right: Array, out: Array) -> None:
        self.arrived = LOADER.arrived
        (rows, depth), columns = left.shape[-2:], right.shape[-1]
        leading = out.shape[:-2]
        of_left, of_right, of_out = _strides(left), _strides(right), out.strides[-2] // _ITEM
        if leading and right.ndim == 2 and left.flags.c_contiguous and out.flags.c_contiguous:
            rows, leading, of_left, of_out = left.size // depth, (), (depth, 1), columns
        strides = *of_left, *of_right, of_out
        words = array("q", (0, 0, 0, rows, columns, depth, *strides))
        self._kernel = kernel
        self._leading = leading
        self._work = out.size * depth / _AS_AN_ADDITION
        cut = _cut(rows, columns, strides)
        # The function takes words, as those do that are shared out.
        shared = None if leading else team.job(address_of(kernel), words, cut, self._work)
        self._words = shared or words
        self._at = len(self._words) - len(words)
        self._shared = shared is not None

    def compute(self, left: Array, right: Array, out: Array) -> bool:
        """Multiply; whether C was still there."""
        if self._leading:
            call = self._call_of_several(left, right, out)
            if call is not None:
                call[0](*call[1])
            return call is not None
        words = self._for(left, right, out)
        if self._shared:
            return team.run(words, self._work)
        self._kernel(words.buffer_info()[0])
        return True

    def call(self, left: Array, right: Array, out: Array) -> Call | None:
        """The same as one call; None if C is not there any more."""
        if self._leading:
            return self._call_of_several(left, right, out)
        words = self._for(left, right, out)
        return team.call_of(words, self._work) if self._shared else (self._kernel, (_kept(words),), None)

    def _for(self, left: Array, right: Array, out: Array) -> array[int]:
        words, at = self._words[:], self._at
        words[at], words[at + 1], words[at + 2] = address(left), address(right), address(out)
        return words

    def _call_of_several(self, left: Array, right: Array, out: Array) -> Call | None:
        kernel = function("matrix_products", _ALWAYS)
        if kernel is None:
            return None
        places = np.stack([_places(it, self._leading) for it in (left, right, out)], 1)
        words = _kept(self._words)
        arguments = address(places), len(places), ctypes.addressof(words)
        cut = team.Cut(1, ((0, places.strides[0]),))
        call, given, _ = as_call("matrix_products", kernel, arguments, lambda: cut, self._work)

        def compute(*of: Any) -> None:
            call(*given)

        return compute, (places, words), None


_forms: dict[tuple[Any, ...], _Form] = {}


def _kept(words: array[int]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * len(words))(*words)


def _places(of: Array, leading: tuple[int, ...]) -> Array:
    """Where each matrix of a batch is that is broadcast to these leading dimensions."""
    of = np.broadcast_to(of, (*leading, *of.shape[-2:]))
    found = np.full(1, address(of), _WORD)
    for count, stride in zip(leading, of.strides, strict=False):
        found = (found[:, np.newaxis] + np.arange(count) * stride).reshape(-1)
    return found


def _cut(rows: int, columns: int, strides: tuple[int, ...]) -> team.Cut:
    """By rows of the result, since who treats it next does so row by row; by columns where there are too few."""
    a_row, _, _, b_column, result_row = strides
    threads = get_num_threads()
    if rows < threads * _PANEL and rows < columns:
        return team.Cut(4, ((1, b_column * _ITEM), (2, _ITEM)), _PANEL, 1)
    shares = max(1, min(4, rows // (threads * _ROWS_OF_A_SHARE)))
    return team.Cut(3, ((0, a_row * _ITEM), (2, result_row * _ITEM)), _PANEL, shares)


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
    if columns == 1 or by_column == _ITEM:
        return bool(by_row % _ITEM == 0)
    return bool((rows == 1 or by_row == _ITEM) and by_column % _ITEM == 0)


def _in_lines(given: Array) -> Array:
    return given if _is_in_lines(given) else given.copy()


def _takes(out: Array) -> bool:
    """Whether a result can be written there."""
    by_row, by_column = out.strides[-2:]
    return bool((by_column == _ITEM or out.shape[-1] == 1) and by_row % _ITEM == 0 and out.dtype == _SINGLE)
