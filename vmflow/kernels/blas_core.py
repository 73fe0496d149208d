"""The processor for which numpy's BLAS has chosen its kernels, and advice if kernels for another may be faster.

OpenBLAS chooses its kernels when it is loaded, by the model of the processor.  On a model that it does not know, such
as a new one, it uses kernels for an older model.  An environment variable can change that, but only before numpy is
imported; so this module only gives advice.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from typing import Final

import numpy as np

from .native.processor import cpu_flags as cpu_flags

# The names of OpenBLAS's function that returns the processor of its kernels: in numpy's wheels, then in other builds.
_FUNCTIONS: Final = (
    "scipy_openblas_get_corename64_",
    "scipy_openblas_get_corename",
    "openblas_get_corename64_",
    "openblas_get_corename",
)

# The processor's features that OpenBLAS's kernels with AVX-512 need, as in /proc/cpuinfo; and the processors for which
# OpenBLAS has such kernels, by its names.
_NEEDED: Final = frozenset({"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"})
_WITH_AVX512: Final = frozenset({"skylakex", "cooperlake", "sapphirerapids"})


def libraries() -> list[str]:
    """Return the paths of the OpenBLAS libraries in numpy's wheel; none where numpy uses a library of the system."""
    # Without pathlib, whose import takes milliseconds: a program's first large matrix product calls this function.
    package = os.path.dirname(np.__file__)
    folders = (os.path.join(os.path.dirname(package), "numpy.libs"), os.path.join(package, ".dylibs"))
    return sorted(
        [
            os.path.join(folder, name)
            for folder in folders
            if os.path.isdir(folder)
            for name in os.listdir(folder)
            if "openblas" in name
        ]
    )


def loaded_core() -> str | None:
    """Return the processor whose kernels OpenBLAS uses, such as "Haswell"; None if no OpenBLAS of numpy reports it."""
    for path in libraries():
        try:
            # numpy has loaded OpenBLAS from this path already, so CDLL returns the same library.
            library = ctypes.CDLL(path)
        except OSError:
            continue
        for name in _FUNCTIONS:
            function = getattr(library, name, None)
            if function is not None:
                function.restype = ctypes.c_char_p
                function.argtypes = ()
                found: bytes | None = function()
                return None if found is None else found.decode("ascii", "replace")
    return None


def hint(core: str | None, flags: Iterable[str]) -> str | None:
    """Return advice for users if the processor has AVX-512 and BLAS does not use it; None if not, or if `core` is None.

    Args:
        core: the processor for which BLAS has chosen its kernels, as from `loaded_core`.
        flags: the processor's features, as from `cpu_flags`.
    """
    if core is None or core.lower() in _WITH_AVX512 or not _NEEDED.issubset(flags):
        return None
    return (
        f"BLAS uses its kernels for {core}, and this processor has AVX-512; products of matrices that are not C's, as "
        "those of float64, may be faster with OPENBLAS_CORETYPE=SkylakeX in the environment before Python starts"
    )
