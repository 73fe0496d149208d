"""The processor's features and caches, as the system reports them."""

from __future__ import annotations

import functools
import os
from typing import Final

_FOLDER: Final = "/sys/devices/system/cpu/cpu0/cache"

CPUINFO: Final = "/proc/cpuinfo"

_UNITS: Final = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

# Used where the system reports nothing.
USUAL_CACHE: Final = 32 << 20


def first_processor(cpuinfo: str | os.PathLike[str] = CPUINFO) -> list[str] | None:
    """The lines in which Linux describes the first processor, which stand for all; None on other systems."""
    try:
        with open(cpuinfo, errors="replace") as file:
            return file.read(1 << 13).partition("\n\n")[0].splitlines()
    except OSError:
        return None


def cpu_flags(cpuinfo: str | os.PathLike[str] = CPUINFO) -> frozenset[str]:
    """The processor's features, in Linux's words; empty where there is no such file."""
    for line in first_processor(cpuinfo) or []:
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return frozenset(value.split())
    return frozenset()


def has_quick_wide_vectors(cpuinfo: str | os.PathLike[str] = CPUINFO) -> bool:
    """Whether to compute in vectors of 512 bits, where compilers by themselves take 256.

    The first processors with AVX-512 are slower while they use it, at all other work too.  Ice Lake, Zen 4
    and later ones are not; they are recognised by an extension that came with them.  False on unknown processors.
    """
    return "avx512_vbmi2" in cpu_flags(cpuinfo)


def last_level_cache(folder: str | os.PathLike[str] = _FOLDER) -> int:
    """The size of the processor's largest cache in bytes."""
    sizes: list[int] = []
    try:
        for name in os.listdir(folder):
            if name.startswith("index"):
                with open(os.path.join(folder, name, "size")) as file:
                    text = file.read().strip()
                sizes.append(int(text[:-1]) * _UNITS[text[-1]] if text[-1] in _UNITS else int(text))
    except (OSError, ValueError, IndexError):
        return USUAL_CACHE
    return max(sizes, default=0) or USUAL_CACHE  # some systems say that it has no size


@functools.cache
def streamed_from() -> int:
    """The number of bytes from which on arrays do not fit into the cache together.

    A result written past the cache takes 0.8 of the time from half of this on, but its next reader may then wait
    longer. A larger cache is that of a whole host, of which a virtual machine has a part.  There, results of 48 MiB
    that no cache holds yet take 0.8 to 0.9 of the time, and those that a cache holds take 1.07 times as long.
    """
    return min(last_level_cache(), USUAL_CACHE)
