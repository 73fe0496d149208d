"""Whom vmflow is compared with: the libraries that are wanted and installed, and on how many threads."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from dataclasses import dataclass
from typing import Any, Final

import vmflow as flow

# Whom vmflow can be compared with.
LIBRARIES: Final = ("numpy", "torch", "jax")

# Where libraries read, when they are imported, how many threads to have.
THREAD_VARIABLES: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Company:
    """Who takes part, and how much is asked of them.

    Attributes:
        numpy: whether numpy does.
        torch, jax: the modules, or None.
        quick: whether small sizes will do, to see that everything runs.
    """

    numpy: bool = True
    torch: Any = None
    jax: Any = None
    quick: bool = False

    def names(self) -> tuple[str, ...]:
        """Those who take part, without vmflow."""
        present = {"numpy": self.numpy, "torch": self.torch is not None, "jax": self.jax is not None}
        return tuple([name for name in LIBRARIES if present[name]])


def torch_if_installed(threads: int = 1) -> Any:
    """The module, with so many threads, or None."""
    torch = module_if_installed("torch")
    if torch is not None:
        torch.set_num_threads(threads)
    return torch


def module_if_installed(name: str) -> Any:
    """The module, or None."""
    return importlib.import_module(name) if importlib.util.find_spec(name) is not None else None


def gathered(against: list[str], threads: int, quick: bool) -> Company:
    """Import whoever of `against` is installed, with so many threads.

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
    """What has to be in the environment of a process for its libraries to have so many threads."""
    flags = "" if threads > 1 else "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    return {**dict.fromkeys(THREAD_VARIABLES, str(threads)), "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}


def restart_with_one_thread() -> None:
    """Start this program again with one thread for its libraries, unless that is what it has.

    They are told by its environment, which they read when they are imported.
    """
    wanted = dict.fromkeys(THREAD_VARIABLES, "1")
    if not wanted.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | wanted)
