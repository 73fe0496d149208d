"""Checks that the books of an allocator agree with each other."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

from .device_memory import Array
from .pieces import BINS, Block, Piece, pieces_of


def contradictions(
    alignment: int,
    blocks: Mapping[int, Block],
    arrays: Mapping[int, Array],
    bins: Sequence[Sequence[Any]],
    counted: Mapping[str, int],
) -> list[str]:
    """The contradictions between blocks, bins and counters; called with the allocator's lock held.

    Args:
        alignment: of the pieces, in bytes.
        blocks, arrays: by address of the block.
        bins: of free pieces, each with its size and address.
        counted: the allocator's own counters, by name.
    """
    problems = [problem for block in blocks.values() for problem in _contradictions_of_block(alignment, block, arrays)]
    problems += _contradictions_of_bins(alignment, blocks.values(), bins)
    problems += _contradictions_of_counters(blocks.values(), {**counted, "arrays": len(arrays)})
    return problems


def _contradictions_of_block(alignment: int, block: Block, arrays: Mapping[int, Array]) -> list[str]:
    problems: list[str] = []
    end = 0
    before: Piece | None = None
    for piece in pieces_of(block):
        if piece.block is not block or piece.offset != end or piece.address != block.address + end:
            problems.append(f"{piece!r} does not begin where the one before it ends, at {block.address + end}")
        if piece.nbytes <= 0 or piece.nbytes % alignment:
            problems.append(f"{piece!r} has {piece.nbytes} bytes, no multiple of {alignment}")
        if piece.previous is not before:
            problems.append(f"{piece!r} does not know its neighbour {before!r}")
        if piece.free and before is not None and before.free:
            problems.append(f"{before!r} and {piece!r} are both free and were not merged")
        if not piece.free and piece.requested > piece.nbytes:
            problems.append(f"{piece!r} is smaller than the {piece.requested} bytes requested")
        end += piece.nbytes
        before = piece
    if end != block.nbytes or arrays[block.address].nbytes != block.nbytes:
        problems.append(f"the pieces of the block at {block.address} end at {end}, not at {block.nbytes}")
    return problems


def _contradictions_of_bins(alignment: int, blocks: Collection[Block], bins: Sequence[Sequence[Any]]) -> list[str]:
    problems: list[str] = []
    in_bins: list[Piece] = []
    for number, entries in enumerate(bins):
        if any(left[:2] >= right[:2] for left, right in pairwise(entries)):
            problems.append(f"bin {number} is not in order")
        low = alignment << number
        for nbytes, address, piece in entries:
            in_bins.append(piece)
            if not piece.free or piece.nbytes != nbytes or piece.address != address:
                problems.append(f"bin {number} has {nbytes} bytes at {address}, where there is {piece!r}")
            if nbytes < low or (number < BINS - 1 and nbytes >= 2 * low):
                problems.append(f"bin {number} has {nbytes} bytes at {address}, which belong elsewhere")
    in_blocks = [piece for block in blocks for piece in pieces_of(block) if piece.free]
    if len(in_bins) != len(in_blocks) or set(in_bins) != set(in_blocks):
        problems.append(f"the bins have {len(in_bins)} pieces, and {len(in_blocks)} others are free in the blocks")
    return problems


def _contradictions_of_counters(blocks: Collection[Block], counted: Mapping[str, int]) -> list[str]:
    live = [piece for block in blocks for piece in pieces_of(block) if not piece.free]
    found = {
        "allocated bytes": sum(piece.nbytes for piece in live),
        "allocations": len(live),
        "requested bytes": sum(piece.requested for piece in live),
        "reserved bytes": sum(block.nbytes for block in blocks),
        "arrays": len(blocks),
    }
    return [
        f"{counted[name]} {name} are counted, and {number} found"
        for name, number in found.items()
        if counted[name] != number
    ]
