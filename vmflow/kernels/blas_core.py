"""The processor whose kernels numpy's BLAS uses, and whether another's would be worth trying.

OpenBLAS chooses its kernels when it is loaded, by the model of the processor.  A model that it does not know, as new
ones are for a while, gets kernels for an older one.  Only the environment can change that, before numpy is imported; so
this module only gives advice, and BLAS is given fewer products: see `vmflow.kernels.numpy.products`.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from typing import Final

import numpy as np

from .native.processor import cpu_flags as cpu_flags

# The functions that return the core, in the builds for numpy's wheels and in others.
_FUNCTIONS: Final = (
    "scipy_openblas_get_corename64_",
    "scipy_openblas_get_corename",
    "openblas_get_corename64_",
    "openblas_get_corename",
)

# Features that kernels with AVX-512 need, by their names in /proc/cpuinfo; and the kernels' names in OpenBLAS.
_NEEDED: Final = frozenset({"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"})
_WITH_AVX512: Final = frozenset({"skylakex", "cooperlake", "sapphirerapids"})


def libraries() -> list[str]:
    """The files of OpenBLAS that came with numpy; none where numpy was built for a library of the system."""
    # By hand, since the first product calls this, and pathlib takes 5 milliseconds to import.
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
    """The processor whose kernels OpenBLAS uses, such as "Haswell"; None if OpenBLAS does not report it."""
    for path in libraries():
        try:
            # numpy has loaded it already, and this is the same library.
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
    """Advice if BLAS's kernels use only half of the processor's vectors; None if there is nothing to gain.

    Args:
        core: as from `loaded_core`.
        flags: as from `cpu_flags`.
    """
    if core is None or core.lower() in _WITH_AVX512 or not _NEEDED.issubset(flags):
        return None
    return (
        f"BLAS uses its kernels for {core}, and this processor has AVX-512; products of matrices that are not C's, as "
        "those of float64, may be faster with OPENBLAS_CORETYPE=SkylakeX in the environment before Python starts"
    )
