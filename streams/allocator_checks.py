"""What the books of an allocator say, compared with each other."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from .pieces import BINS, Block, Piece, pieces_of

if TYPE_CHECKING:
    from .allocator import BinAllocator


def contradictions(allocator: BinAllocator) -> list[str]:
    """Where blocks, bins and counters contradict each other; with the allocator's lock held."""
    problems = [it for block in allocator._blocks.values() for it in _contradictions_of_block(allocator, block)]
    problems += _contradictions_of_bins(allocator)
    problems += _contradictions_of_counters(allocator)
    return problems


def _contradictions_of_block(allocator: BinAllocator, block: Block) -> list[str]:
    problems: list[str] = []
    end = 0
    before: Piece | None = None
    for piece in pieces_of(block):
        if piece.block is not block or piece.offset != end or piece.address != block.address + end:
            problems.append(f"{piece!r} does not begin where the one before it ends, at {block.address + end}")
        if piece.nbytes <= 0 or piece.nbytes % allocator.alignment:
            problems.append(f"{piece!r} has {piece.nbytes} bytes, no multiple of {allocator.alignment}")
        if piece.previous is not before:
            problems.append(f"{piece!r} does not know its neighbour {before!r}")
        if piece.free and before is not None and before.free:
            problems.append(f"{before!r} and {piece!r} are both free and were not merged")
        if not piece.free and piece.requested > piece.nbytes:
            problems.append(f"{piece!r} is smaller than the {piece.requested} bytes requested")
        end += piece.nbytes
        before = piece
    if end != block.nbytes or allocator._arrays[block.address].nbytes != block.nbytes:
        problems.append(f"the pieces of the block at {block.address} end at {end}, not at {block.nbytes}")
    return problems


def _contradictions_of_bins(allocator: BinAllocator) -> list[str]:
    problems: list[str] = []
    in_bins: list[Piece] = []
    for number, entries in enumerate(allocator._bins):
        if any(left[:2] >= right[:2] for left, right in pairwise(entries)):
            problems.append(f"bin {number} is not in order")
        low = allocator.alignment << number
        for nbytes, address, piece in entries:
            in_bins.append(piece)
            if not piece.free or piece.nbytes != nbytes or piece.address != address:
                problems.append(f"bin {number} has {nbytes} bytes at {address}, where there is {piece!r}")
            if nbytes < low or (number < BINS - 1 and nbytes >= 2 * low):
                problems.append(f"bin {number} has {nbytes} bytes at {address}, which belong elsewhere")
    in_blocks = [piece for block in allocator._blocks.values() for piece in pieces_of(block) if piece.free]
    if len(in_bins) != len(in_blocks) or set(in_bins) != set(in_blocks):
        problems.append(f"the bins have {len(in_bins)} pieces, and {len(in_blocks)} others are free in the blocks")
    return problems


def _contradictions_of_counters(allocator: BinAllocator) -> list[str]:
    blocks = list(allocator._blocks.values())
    live = [piece for block in blocks for piece in pieces_of(block) if not piece.free]
    problems: list[str] = []
    for name, counted, found in (
        ("allocated bytes", allocator._allocated, sum(it.nbytes for it in live)),
        ("allocations", allocator._live, len(live)),
        ("requested bytes", allocator._requested, sum(it.requested for it in live)),
        ("reserved bytes", allocator._reserved, sum(it.nbytes for it in blocks)),
        ("arrays", len(allocator._arrays), len(blocks)),
    ):
        if counted != found:
            problems.append(f"{counted} {name} are counted, and {found} found")
    return problems
