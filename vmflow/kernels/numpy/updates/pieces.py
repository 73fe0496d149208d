"""Cuts large arrays into small pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.kernels.intra_op import over

# Elements per piece: all arrays of an optimizer's piece should stay in the core's cache between its passes.
PIECE: Final = 1 << 15


def pieces(arrays: Sequence[Array], size: int = PIECE) -> Iterator[list[Array]]:
    """Cut arrays of one shape into matching real floating-point pieces that share their memory.

    For elementwise work only: complex arrays come as their real and their imaginary parts.  Arrays that are not all
    contiguous stay whole.
    """
    if arrays[0].dtype.kind == "c":
        yield from pieces([array.real for array in arrays], size)
        yield from pieces([array.imag for array in arrays], size)
    elif arrays[0].size <= size or not all([array.flags.c_contiguous for array in arrays]):
        yield list(arrays)
    else:
        flat = [array.reshape(-1) for array in arrays]
        for start in range(0, flat[0].size, size):
            yield [array[start : start + size] for array in flat]


def widened(array: Array) -> Array:
    """Return an array of a 16-bit dtype, in which sums and squares lose too much, as float32; others as they are."""
    return array.astype(np.float32) if array.dtype.itemsize == 2 else array


def updated(written: Sequence[Array], read: Sequence[Array], scratch: int) -> Iterator[list[Array]]:
    """Yield the written arrays, the read arrays and scratch arrays of an elementwise update, piece by piece.

    Pieces of 16-bit dtypes come as float32 copies; when the consumer asks for the next piece, the written ones are
    rounded back, so that a long chain of operations is rounded once.
    """
    buffers: list[Array] = []
    for piece in pieces([*written, *read]):
        wide = [widened(array) for array in piece]
        if not buffers or buffers[0].shape != wide[0].shape:
            buffers = [np.empty_like(wide[0]) for _ in range(scratch)]
        yield wide + buffers
        for array, result in zip(piece[: len(written)], wide, strict=False):
            if result is not array:
                array[...] = result


def change_pieces(
    change: Callable[[list[Array]], object], written: Sequence[Array], read: Sequence[Array], scratch: int, cost: int
) -> None:
    """Run an elementwise update, piece by piece, by several threads if that is worth it.

    Args:
        change: called with each piece of `updated`.
        written, read, scratch: see `updated`.
        cost: nanoseconds per element, estimated.
    """
    arrays = [*written, *read]

    def some(part: list[Array]) -> None:
        for piece in updated(part[: len(written)], part[len(written) :], scratch):
            change(piece)

    if not all([array.flags.c_contiguous for array in arrays]):
        some(arrays)
        return
    flat = [array.reshape(-1) for array in arrays]
    over(flat[0].size, flat[0].size * cost, lambda start, stop: some([value[start:stop] for value in flat]), PIECE)
