"""Products of matrices: C's where they are of float32 and worth a call of it, and otherwise numpy's.

Which it is follows from shapes and dtypes alone, so that eager ops and graphs, whose arrays lie elsewhere, agree to the
bit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import inf
from typing import Final, TypeAlias

import numpy as np

from vmflow import blas_core
from vmflow.codegen import products
from vmflow.codegen.arrays import Call
from vmflow.devices import device as Device
from vmflow.instructions.blob import Array

from .table import array_module

# From two arrays, and where the result should go or None, to the result, which is there.
Product: TypeAlias = Callable[[Array, Array, Array | None], Array]

_SINGLE: Final = np.dtype(np.float32)

# Products of two numbers from which on C is not slower than BLAS, which would call its threads then, and these keep
# their cores from others for a tenth of a second; and up to which that is so: where nothing fits into caches, BLAS at
# its best loses less.
_LEAST: Final = 1 << 18
_MOST: Final = 1 << 29

# Rows and columns: with fewer, vectors are empty.
_FEWEST: Final = 8


@cache
def _most() -> float:
    """Where BLAS leaves half of the processor's vectors out, there is no product for it."""
    narrow = blas_core.hint(blas_core.loaded_core(), blas_core.cpu_flags()) is not None
    return inf if narrow else _MOST


def product_kernel(device: Device, products: float) -> Product:
    """What multiplies matrices there, where that takes so many products of two numbers."""
    xp = array_module(device)
    return matmul if xp is np and _LEAST <= products <= _most() else xp.matmul


def matmul(left: Array, right: Array, out: Array | None = None) -> Array:
    """``numpy.matmul`` of arrays of one dtype."""
    if _is_for_c(left, right):
        found = products.matrix_product(left, right, out)
        if found is not None:
            if out is None or found is out:
                return found
            np.copyto(out, found)
            return out
    return np.matmul(left, right, out)


def matmul_call(left: Array, right: Array, out: Array) -> Call:
    """The same as one call, for arrays that stay where they are and of which `out` is apart from the others."""
    call = products.product_call(left, right, out) if _is_for_c(left, right) else None
    return call or (matmul, (left, right, out), out)


def _is_for_c(left: Array, right: Array) -> bool:
    if left.dtype is not _SINGLE or right.dtype is not _SINGLE or left.ndim < 2 or right.ndim < 2:
        return False
    rows, columns = left.shape[-2], right.shape[-1]
    return bool(rows >= _FEWEST and columns >= _FEWEST and _LEAST <= left.size * columns <= _most())
