"""The libraries that vmflow is compared with, if they are requested and installed, and their numbers of threads."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from dataclasses import dataclass
from typing import Any, Final

import vmflow as flow

# The libraries that vmflow can be compared with.
LIBRARIES: Final = ("numpy", "torch", "jax")

# The environment variables from which libraries read their number of threads when they are imported.
THREAD_VARIABLES: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Company:
    """The libraries that a benchmark compares with vmflow, and whether it runs at small sizes.

    Attributes:
        numpy: whether numpy takes part.
        torch, jax: the modules; None for a library that does not take part.
        quick: whether to use small sizes, to check only that everything runs.
    """

    numpy: bool = True
    torch: Any = None
    jax: Any = None
    quick: bool = False

    def names(self) -> tuple[str, ...]:
        """The names of the libraries that take part, without vmflow."""
        present = {"numpy": self.numpy, "torch": self.torch is not None, "jax": self.jax is not None}
        return tuple([name for name in LIBRARIES if present[name]])


def torch_if_installed(threads: int = 1) -> Any:
    """Import torch and set its number of threads; return the module, or None if torch is not installed."""
    torch = module_if_installed("torch")
    if torch is not None:
        torch.set_num_threads(threads)
    return torch


def module_if_installed(name: str) -> Any:
    """Import a module by name; return None if it is not installed."""
    return importlib.import_module(name) if importlib.util.find_spec(name) is not None else None


def gathered(against: list[str], threads: int, quick: bool) -> Company:
    """Import the libraries in `against` that are installed, and set vmflow's and their number of threads.

    Raises:
        ValueError: if one of the names is unknown.
    """
    flow.set_num_threads(threads)
    strangers = sorted(set(against) - set(LIBRARIES))
    if strangers:
        raise ValueError(f"cannot compare with {', '.join(strangers)}; there are {', '.join(LIBRARIES)}")
    return Company(
        numpy="numpy" in against,
        torch=torch_if_installed(threads) if "torch" in against else None,
        jax=module_if_installed("jax") if "jax" in against else None,
        quick=quick,
    )


def thread_environment(threads: int) -> dict[str, str]:
    """The environment variables with which a process must start for its libraries to have `threads` threads."""
    flags = "" if threads > 1 else "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    return {**dict.fromkeys(THREAD_VARIABLES, str(threads)), "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}


def restart_with_one_thread() -> None:
    """Restart this program with one thread for its libraries, unless its environment says so already.

    Libraries read their number of threads from the environment when they are imported, so it cannot be changed later.
    """
    wanted = dict.fromkeys(THREAD_VARIABLES, "1")
    if not wanted.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | wanted)
