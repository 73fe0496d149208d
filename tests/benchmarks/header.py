"""The conditions under which figures were measured: date, versions, builds, machine, threads."""

from __future__ import annotations

import ctypes
import datetime
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import vmflow as flow
import vmflow.vm.engine
from tests.benchmarks.contenders import Company
from vmflow.info import collect_info

# The names, in different builds of OpenBLAS, of the function that returns the CPU type of its kernels.
_CORE_NAMES = ("openblas_get_corename", "openblas_get_corename64_", "scipy_openblas_get_corename64_")

# The beginning of the line about C kernels in the text of `show_config`.
_C_KERNELS = "C kernels"


def header(company: Company, threads: int) -> dict[str, str]:
    """The measurement's conditions by topic, in the order in which they are printed."""
    info = collect_info()
    versions = [f"Python {platform.python_version()}", f"numpy {np.__version__}"]
    versions += [f"{value.__name__} {value.__version__}" for value in (company.torch, company.jax) if value is not None]
    cores = os.cpu_count()
    return {
        "date": datetime.date.today().isoformat(),
        "vmflow": f"{flow.__version__}, compiled core: {_compiled(info)}, C kernels: {_c_kernels()}",
        "versions": ", ".join(versions),
        "CPU": f"{_cpu()}, {cores} cores, load average {os.getloadavg()[0]:.1f}",
        "BLAS": f"{info['numpy']['blas'] or 'unknown'}, kernels for {blas_kernels() or 'unknown'}",
        "threads": str(threads),
    }


def core_is_compiled() -> bool:
    """Whether vmflow's core (the engine of its virtual machine) is compiled by mypyc."""
    return not str(vmflow.vm.engine.__file__).endswith(".py")


def _compiled(info: dict[str, Any]) -> str:
    return f"yes (mypyc), {len(info['vmflow']['compiled_modules'])} modules" if core_is_compiled() else "no"


def _c_kernels() -> str:
    """The text of `show_config` about C kernels; versions without C kernels have none."""
    lines = [
        splitline.removeprefix(_C_KERNELS).strip()
        for splitline in flow.show_config().splitlines()
        if splitline.startswith(_C_KERNELS)
    ]
    # The user's home folder is not shown on pages.
    return lines[0].replace(str(Path.home()), "~") if lines else "no"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def blas_kernels() -> str | None:
    """The CPU type whose kernels numpy's OpenBLAS uses; None if numpy has another library."""
    for path in _loaded_libraries("openblas"):
        library = ctypes.CDLL(path)
        for name in _CORE_NAMES:
            function = getattr(library, name, None)
            if function is not None:
                function.restype = ctypes.c_char_p
                return bytes(function()).decode()
    return None


def _loaded_libraries(word: str) -> Iterator[str]:
    """The paths of shared libraries in this process with `word` in their names, numpy's first; none except on Linux."""
    maps = Path("/proc/self/maps")
    lines = maps.read_text().splitlines() if maps.exists() else []
    paths = {line[line.index("/") :] for line in lines if "/" in line and word in line}
    yield from sorted(paths, key=lambda path: ("numpy" not in path, path))
