"""From numpy arrays to the kernels of running.c: running sums and products."""

from __future__ import annotations

from math import prod
from typing import Any, Final, Self, TypeAlias

import numpy as np

from . import team
from .addresses import address, is_plain
from .arrays import NativeCall, clear_of
from .call_site import CallSite
from .functions import CFunction, function

Array: TypeAlias = Any

_TYPES: Final = {np.dtype(np.float32): "float", np.dtype(np.float64): "double", np.dtype(np.int64): "int64_t"}

# Work for an element.
_WORK: Final = 2

# Rows of a piece: as many as are run through at once.  Columns of one: whole lines of the cache.
_ROWS: Final = 8
_COLUMNS: Final = 16


class Running:
    """Running sums, or products, along a dimension, as they are called from one place.

    Args:
        kernel: the C function.
        dtype: of the arrays.
        dim: the dimension.
        reverses: whether it is run through from behind.
    """

    __slots__ = ("_dim", "_dtype", "_kernel", "_reverses", "_site")

    def __init__(self, kernel: CFunction, dtype: np.dtype[Any], dim: int, reverses: bool) -> None:
        self._kernel = kernel
        self._dtype = dtype
        self._dim = dim
        self._reverses = reverses
        self._site = CallSite()

    @classmethod
    def of(cls, name: str, dtype: np.dtype[Any], dim: int, reverses: bool, elements: int) -> Self | None:
        """The op for arrays of this dtype and so many elements; None if C has none now.

        Args:
            name: "cumsum" or "cumprod".
            dtype, elements: of the array.
            dim, reverses: see the class.
        """
        kind = _TYPES.get(dtype)
        if kind is None or not elements:
            return None
        kernel = function(f"{name}_{kind}", elements)
        return None if kernel is None else cls(kernel, dtype, dim, reverses)

    def call(self, array: Array, out: Array | None) -> Array | None:
        """Compute them.

        Args:
            array: contiguous, of at least one dimension.
            out: where the result should go, or None.

        Returns:
            The result, which is elsewhere if it cannot be put there; None if it cannot be computed so.
        """
        found = self._site.result((array,), out)
        return self._found(array, out) if found is None else found

    def _found(self, array: Array, out: Array | None) -> Array | None:
        if type(array) is not np.ndarray or array.dtype != self._dtype or not array.size or not is_plain(array):
            return None
        if out is None or not self._may_go_to(out, array):
            out = np.empty(array.shape, array.dtype)
        shape, itemsize = array.shape, array.itemsize
        outer, size, inner = prod(shape[: self._dim]), shape[self._dim], prod(shape[self._dim + 1 :])

        def cut() -> team.Cut:
            if outer > 1:
                nbytes = size * inner * itemsize
                return team.Cut(2, ((0, nbytes), (1, nbytes)), _ROWS)
            return team.Cut(4, ((0, itemsize), (1, itemsize)), _COLUMNS)

        NativeCall(
            self._kernel,
            (address(array), address(out), outer, size, inner, inner, self._reverses),
            cut,
            array.size * _WORK,
            (array, out),
            in_place=True,
        ).make(self._site)
        return out

    @staticmethod
    def _may_go_to(out: Array, array: Array) -> bool:
        alike = type(out) is np.ndarray and out.dtype is array.dtype and out.shape == array.shape
        return alike and is_plain(out) and out.flags.writeable and clear_of(out, array)
