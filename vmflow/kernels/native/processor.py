"""The processor's abilities and caches, as the system tells them."""

from __future__ import annotations

import functools
import os
from typing import Final

_FOLDER: Final = "/sys/devices/system/cpu/cpu0/cache"

CPUINFO: Final = "/proc/cpuinfo"

_UNITS: Final = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

# Where the system does not say.
USUAL_CACHE: Final = 32 << 20


def first_processor(cpuinfo: str | os.PathLike[str] = CPUINFO) -> list[str] | None:
    """The lines in which the system describes the first processor, which is as good as all; None where it does not."""
    try:
        with open(cpuinfo, errors="replace") as file:
            return file.read(1 << 13).partition("\n\n")[0].splitlines()
    except OSError:
        return None


def cpu_flags(cpuinfo: str | os.PathLike[str] = CPUINFO) -> frozenset[str]:
    """The processor's abilities, in Linux's words; empty where there is no such file."""
    for line in first_processor(cpuinfo) or []:
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return frozenset(value.split())
    return frozenset()


def has_quick_wide_vectors(cpuinfo: str | os.PathLike[str] = CPUINFO) -> bool:
    """Whether to compute in vectors of 512 bits, where compilers by themselves take 256.

    The first processors with AVX-512 became slower while they did, for all else too.  Those since Ice Lake and Zen 4 do
    not, and are told by an extension that came with them.  False where that is not known.
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
    """From how many bytes on arrays do not fit into the cache together.

    A result written past it takes 0.8 of the time from half of this on, but who reads it next may then have to wait for
    longer.  A cache that the system says is larger is a whole host's, of which a virtual machine on it has a part.
    There 48 MiB that no cache holds yet take 0.8 to 0.9 of the time, and those that one holds take 1.07 times as long.
    """
    return min(last_level_cache(), USUAL_CACHE)
