"""Writes elementwise C loops that run block by block, and may prefetch the memory of the next blocks."""

from __future__ import annotations

from collections.abc import Sequence


def in_blocks(read: Sequence[str], written: Sequence[str], lines: Sequence[str]) -> list[str]:
    """Write the C loop over elements `done` to `n` in whole blocks; the caller writes a loop over the last elements.

    The loop prefetches if a line calls a C function whose name ends in ``_f``, as these take long.  Otherwise the
    processor prefetches early enough by itself.

    Args:
        read, written: the names of the pointers that are read and written.
        lines: the C statements for element `i`.
    """
    asking = [*_asking("read", read), *_asking("write", written)] if any(["_f(" in line for line in lines]) else []
    return _block_by_block(asking, lines, [])


def in_streamed_blocks(read: Sequence[str], lines: Sequence[str], made: Sequence[tuple[str, int, str]]) -> list[str]:
    """Write the C loop of `in_blocks` with streaming stores, which bypass the cache.

    If a result is not aligned to cache lines, or the processor has no such stores, the loops behind it compute all
    elements.  The streamed loop always prefetches what it reads.

    Args:
        read: the names of the pointers that are read.
        lines: the C statements for element `i`.
        made: for each result, the name of its pointer, the number of its operation, and its C type.
    """
    aligned = " | ".join([f"(uintptr_t){to}" for to, _, _ in made])
    blocks = [f"{kind} b{place}[BLOCK] __attribute__((aligned(CACHE_LINE)));" for _, place, kind in made]
    stores = [f"b{place}[j] = t{place};" for _, place, _ in made]
    streams = [f"stream({to} + done, b{place}, sizeof b{place});" for to, place, _ in made]
    loop = _block_by_block([*_asking("read", read), *blocks], [*lines, *stores], streams)
    return ["#ifdef STREAMS", f"if (({aligned}) % CACHE_LINE == 0)", *loop, "#endif"]


def _asking(how: str, pointers: Sequence[str]) -> list[str]:
    return [f"will_{how}({pointer} + done, BLOCK * sizeof *{pointer});" for pointer in pointers]


def _block_by_block(before: Sequence[str], lines: Sequence[str], behind: Sequence[str]) -> list[str]:
    return [
        "for (; done + BLOCK <= n; done += BLOCK) {",
        *[f"    {line}" for line in before],
        "    LANES",
        "    for (int64_t j = 0; j < BLOCK; j++) {",
        "        const int64_t i = done + j;",
        *[f"        {line}" for line in lines],
        "    }",
        *[f"    {line}" for line in behind],
        "}",
    ]
