"""The processor's features and caches, as the system reports them."""

from __future__ import annotations

import functools
import os
from typing import Final

_FOLDER: Final = "/sys/devices/system/cpu/cpu0/cache"

CPUINFO: Final = "/proc/cpuinfo"

_UNITS: Final = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

# The bytes of the last-level cache where the system reports none; also the most that `streamed_from` returns.
USUAL_CACHE: Final = 32 << 20


def first_processor(cpuinfo: str | os.PathLike[str] = CPUINFO) -> list[str] | None:
    """Return the lines about the first processor in the file `cpuinfo`; None if it cannot be read."""
    try:
        with open(cpuinfo, errors="replace") as file:
            return file.read(1 << 13).partition("\n\n")[0].splitlines()
    except OSError:
        return None


def cpu_flags(cpuinfo: str | os.PathLike[str] = CPUINFO) -> frozenset[str]:
    """Return the features of an x86 processor, such as "avx2", from /proc/cpuinfo; empty if none are found there."""
    for line in first_processor(cpuinfo) or []:
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return frozenset(value.split())
    return frozenset()


def has_quick_wide_vectors(cpuinfo: str | os.PathLike[str] = CPUINFO) -> bool:
    """Whether C code should use vectors of 512 bits, where compilers by default choose 256.

    The first processors with AVX-512 lower their clock while they use it, for all code.  Ice Lake, Zen 4 and later ones
    do not; they are recognised by an extension that came with them.  False if the extensions are unknown.
    """
    return "avx512_vbmi2" in cpu_flags(cpuinfo)


def last_level_cache(folder: str | os.PathLike[str] = _FOLDER) -> int:
    """Return the size of the processor's largest cache in bytes, from Linux's `folder`; `USUAL_CACHE` if unknown."""
    sizes: list[int] = []
    try:
        for name in os.listdir(folder):
            if name.startswith("index"):
                with open(os.path.join(folder, name, "size")) as file:
                    text = file.read().strip()
                sizes.append(int(text[:-1]) * _UNITS[text[-1]] if text[-1] in _UNITS else int(text))
    except (OSError, ValueError, IndexError):
        return USUAL_CACHE
    return max(sizes, default=0) or USUAL_CACHE  # some systems report a size of 0


@functools.cache
def streamed_from() -> int:
    """Return the bytes of an elementwise loop's arrays, in all, from which on the loop may write past the cache.

    The number is limited, since a larger cache is that of a whole host, of which a virtual machine has a part.
    """
    return min(last_level_cache(), USUAL_CACHE)
