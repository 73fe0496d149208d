"""Calls of the C functions in running.c: cumsum and cumprod."""

from __future__ import annotations

from math import prod
from typing import Any, Final

import numpy as np

from . import team
from .addresses import Array, address, is_plain
from .arrays import InC, NativeCall, clear_of, takes
from .functions import CFunction

_TYPES: Final = {np.dtype(np.float32): "float", np.dtype(np.float64): "double", np.dtype(np.int64): "int64_t"}

# Work for an element.
_WORK: Final = 2

# Threads share rows in multiples of 8, since the C function goes through 8 rows together, and columns in multiples of
# 16, whole cache lines.
_ROWS: Final = 8
_COLUMNS: Final = 16


class Running(InC):
    """The op "cumsum" or "cumprod" along a dimension, computed in C.

    Args:
        kernel, dtype: see `InC`.
        dim: the dimension, not negative.
        reverses: whether to accumulate from the last element to the first.
    """

    def __init__(self, kernel: CFunction, dtype: np.dtype[Any], dim: int, reverses: bool) -> None:
        super().__init__(kernel, dtype)
        self._dim = dim
        self._reverses = reverses

    @staticmethod
    def _name_in_c(name: str, dtype: np.dtype[Any]) -> str | None:
        return f"{name}_{_TYPES[dtype]}" if dtype in _TYPES else None

    def call(self, array: Array, out: Array | None) -> Array | None:
        """Compute the cumulative sums or products of an array.

        Args:
            array: contiguous, of at least one dimension.
            out: memory for the result, or None.

        Returns:
            The result, in other memory if C cannot write it to `out`; None if C cannot compute it.
        """
        found = self.site.result((array,), out)
        return self._found(array, out) if found is None else found

    def _found(self, array: Array, out: Array | None) -> Array | None:
        if type(array) is not np.ndarray or array.dtype != self.dtype or not array.size or not is_plain(array):
            return None
        if out is None or not takes(out, array.shape, array.dtype) or not clear_of(out, array):
            out = np.empty(array.shape, array.dtype)
        shape, itemsize = array.shape, array.itemsize
        outer, size, inner = prod(shape[: self._dim]), shape[self._dim], prod(shape[self._dim + 1 :])

        def cut() -> team.Cut:
            if outer > 1:
                nbytes = size * inner * itemsize
                return team.Cut(2, ((0, nbytes), (1, nbytes)), _ROWS)
            return team.Cut(4, ((0, itemsize), (1, itemsize)), _COLUMNS)

        NativeCall(
            self.kernel,
            (address(array), address(out), outer, size, inner, inner, self._reverses),
            cut,
            array.size * _WORK,
            (array, out),
            in_place=True,
        ).make(self.site)
        return out
