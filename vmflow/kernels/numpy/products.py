"""Products of matrices: in C for float32 if that is available and worth it, otherwise in numpy.

The choice does not depend on the arrays' addresses, so that eager ops and graphs, whose addresses differ, agree to the
bit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import inf
from typing import Final, TypeAlias

import numpy as np

from vmflow import dtypes
from vmflow.instructions.blob import Array
from vmflow.kernels import blas_core
from vmflow.kernels.choosing import Call
from vmflow.kernels.native.products import MatrixProduct as MatrixProduct

# product(left, right, out or None) -> the product, which is `out` unless that is None.
Product: TypeAlias = Callable[[Array, Array, Array | None], Array]

# C computes products of `_LEAST` to `_MOST` multiplications, since BLAS's threads keep their cores busy afterwards.
# Below and above, BLAS may be faster.
_LEAST: Final = 1 << 18
_MOST: Final = 1 << 30

# The fewest rows and columns of a product for C: with fewer, its SIMD vectors would be mostly empty.
_FEWEST: Final = 8


@cache
def _most() -> float:
    """Return `_MOST`, or infinity if BLAS is known to make no use of the processor's AVX-512."""
    narrow = blas_core.hint(blas_core.loaded_core(), blas_core.cpu_flags()) is not None
    return inf if narrow else _MOST


def product_kernel(dtype: dtypes.dtype, rows: int, depth: int, columns: int, batch: int = 1) -> Product:
    """Return a function for one kernel that multiplies `batch` pairs of matrices (rows, depth) and (depth, columns).

    Args:
        dtype: the dtype of the computation.
    """
    in_c = MatrixProduct.of() if is_for_c(dtype, rows, depth, columns, batch) else None
    return np.matmul if in_c is None else in_c


def is_for_c(dtype: dtypes.dtype, rows: int, depth: int, columns: int, batch: int = 1) -> bool:
    """Return whether matrices of these sizes, see `product_kernel`, are for C, if its function may be used."""
    products = batch * rows * depth * columns
    # A column times a row is worth it with few elements, too: numpy multiplies these in slow loops of its own.
    worthwhile = _LEAST <= products <= _most() or (depth == batch == 1)
    return dtype is dtypes.float32 and worthwhile and rows >= _FEWEST and columns >= _FEWEST


def call_of(multiply: Product, left: Array, right: Array, out: Array) -> Call:
    """Return a product as one call, for arrays that stay where they are."""
    return call_with(multiply, left, right, out) or (multiply, (left, right, out), out)


def call_with(
    multiply: Product, left: Array, right: Array, out: Array, added: Array | None = None, sums: Array | None = None
) -> Call | None:
    """Return a product as one call of C, see `MatrixProduct.placed`; None if `multiply` is numpy's, or C cannot."""
    return multiply.placed(left, right, out, added, sums) if isinstance(multiply, MatrixProduct) else None
