"""The switch of compiled kernels, and the state of C kernels: whether they are used, which compiler, and why not."""

from __future__ import annotations

import time
from typing import Any

from .background import BACKGROUND
from .native.cache import usable_path
from .native.compiling import CompileError, compiler_command
from .native.loading import LOADER as LOADER


def describe() -> dict[str, Any]:
    """The mode, the compiler, the number of loaded libraries, their folder, and the problem that prevents them.

    Missing facts are None.
    """
    problem = "switched off, by VMFLOW_JIT=0 or by backends.codegen.mode" if LOADER.mode == "off" else LOADER.problem
    try:
        compiler: str | None = " ".join(compiler_command())
    except CompileError as error:
        compiler, problem = None, problem or str(error)
    return {
        "mode": LOADER.mode,
        "compiler": compiler,
        "libraries": LOADER.loaded(),
        "folder": usable_path(),
        "problem": problem,
    }


def pending() -> int:
    """The number of C libraries and of CUDA kernels that are being compiled, or wait to be."""
    return LOADER.pending() + BACKGROUND.pending()


def settle(timeout: float | None = None) -> bool:
    """Wait for at most so many seconds until nothing is being compiled; returns whether nothing is left."""
    deadline = None if timeout is None else time.monotonic() + timeout
    settled = LOADER.settle(timeout)
    return BACKGROUND.wait(None if deadline is None else max(0.0, deadline - time.monotonic())) and settled


def one_line(found: dict[str, Any]) -> str:
    """The findings of `describe` as text."""
    if found["problem"] is not None:
        return f"not in use: {found['problem']}"
    loaded = f"{found['libraries']} libraries loaded" if found["libraries"] else "none needed so far"
    return f"{loaded}, by {found['compiler']} ({found['mode']}), kept in {found['folder'] or 'no folder'}"


def being_compiled() -> str | None:
    """A sentence on the libraries being compiled: their number, compiler and folder; None if there are none."""
    count = LOADER.pending()
    if not count or LOADER.problem is not None:
        return None
    found = describe()
    if found["compiler"] is None:
        return None
    many = f"{count} libraries" if count > 1 else "1 library"
    kept = f"kept in {found['folder']} for the next process" if found["folder"] is not None else "not kept"
    return f"compiling {many} of C kernels with {found['compiler']}, which takes seconds; they are {kept}"
