"""Blocks taken from a device, and the pieces they are cut into: their sizes and their neighbours."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, Final

from .device_memory import KIB, MIB

# The number of bins, one for each power of two: with the usual alignment of 512 bytes the last bin begins at 256 MiB.
BINS: Final = 20

# Small requests share a block, and middling requests share a larger block.
_SMALL_BELOW: Final = 1 * MIB
_SMALL_BLOCK: Final = 2 * MIB
MIDDLING_BELOW: Final = 10 * MIB
_MIDDLING_BLOCK: Final = 20 * MIB
LARGE_GRANULE: Final = 2 * MIB

# Where the offset of a piece within a page matters (see `device_memory.PAGE`), pieces of whole pages are made a little
# larger from this size on; pieces with a block of their own are not.
STAGGERED_FROM: Final = 64 * KIB
# The bytes added to a block for its larger pieces: usually 512 for each of the 32 pieces of 64 KiB in a small block.
STAGGERED_BYTES: Final = 16 * KIB

# A piece less than twice the request is handed out whole: the rest would be too small for the next request of its kind.
# A rest of at least this size is split off in any case.
SPLIT_OFF: Final = 128 * MIB


class Block:
    """Memory that was taken from the device in one request.

    Attributes:
        address: in the allocator's own count, which lays its blocks end to end in the order in which they were taken;
            not the device's.
        finalizer: counts the bytes as given back when nothing refers to the memory any more.
        first: the piece at the front.  It is never merged into another, so it stays the first.
    """

    __slots__ = ("address", "finalizer", "first", "nbytes")

    def __init__(self, address: int, nbytes: int, finalizer: weakref.finalize[[int], Any]) -> None:
        self.address = address
        self.nbytes = nbytes
        self.finalizer = finalizer
        self.first = Piece(self, 0, nbytes)


class Piece:
    """A part of a block, free or handed out as a whole.

    Neither a piece nor its block refers to the block's array: pieces and blocks refer to each other in circles, and the
    memory must not wait for the garbage collector.
    """

    __slots__ = ("address", "block", "free", "nbytes", "next", "offset", "owner", "previous", "requested")

    def __init__(self, block: Block, offset: int, nbytes: int) -> None:
        self.block = block
        self.address = block.address + offset
        self.offset = offset
        self.nbytes = nbytes
        self.free = True
        self.previous: Piece | None = None
        self.next: Piece | None = None
        self.requested = 0
        self.owner: Any = None

    def __repr__(self) -> str:
        end = self.address + self.nbytes
        return f"<piece {self.address}..{end} {'free' if self.free else f'of {self.owner}'}>"


def cut(piece: Piece, size: int) -> Piece:
    """Make `piece` end after `size` bytes; returns the rest, as a free piece."""
    rest = Piece(piece.block, piece.offset + size, piece.nbytes - size)
    follower = piece.next
    rest.previous = piece
    rest.next = follower
    if follower is not None:
        follower.previous = rest
    piece.next = rest
    piece.nbytes = size
    return rest


def absorb(piece: Piece, follower: Piece) -> None:
    """Make `piece` end where `follower`, the next one, ends."""
    after = follower.next
    piece.nbytes += follower.nbytes
    piece.next = after
    if after is not None:
        after.previous = piece


def pieces_of(block: Block) -> Iterator[Piece]:
    """The pieces of a block in order of address."""
    piece: Piece | None = block.first
    while piece is not None:
        yield piece
        piece = piece.next


def is_idle(block: Block) -> bool:
    """Whether no piece of a block is handed out."""
    return block.first.free and block.first.nbytes == block.nbytes


def block_size(size: int, staggered: bool = False) -> int:
    """The number of bytes to take from the device for a request of `size` bytes.

    Args:
        staggered: whether pieces of whole pages are made larger; then a block for several is larger, too.
    """
    more = STAGGERED_BYTES if staggered else 0
    if size < _SMALL_BELOW:
        return _SMALL_BLOCK + more
    if size < MIDDLING_BELOW:
        return _MIDDLING_BLOCK + more
    return -(-size // LARGE_GRANULE) * LARGE_GRANULE
