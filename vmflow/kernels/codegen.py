"""Reports on the C kernels (compiler, cache, problems), and waits for the compilation of C and CUDA kernels."""

from __future__ import annotations

import time
from typing import Any

from .background import BACKGROUND
from .native.cache import usable_path
from .native.compiling import CompileError, compiler_command
from .native.loading import LOADER as LOADER


def describe() -> dict[str, Any]:
    """Return the state of the C kernels as a dict.

    Its keys are "mode", "compiler", "libraries" (how many are loaded), "folder" (the cache on disk) and "problem" (why
    no C kernels are used, or no more compiled).  Missing facts are None.
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
    """Return about how many C libraries and CUDA kernels are being compiled or queued."""
    return LOADER.pending() + BACKGROUND.pending()


def settle(timeout: float | None = None) -> bool:
    """Wait for the queued and running compilations of C libraries and CUDA kernels; see `Loader.settle`.

    Returns whether they have ended; this thread compiles, even past `timeout` seconds, if no thread can be started.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    settled = LOADER.settle(timeout)
    return BACKGROUND.wait(None if deadline is None else max(0.0, deadline - time.monotonic())) and settled


def one_line(found: dict[str, Any]) -> str:
    """Turn the dict that `describe` has returned into a line of text."""
    if found["problem"] is not None:
        return f"not in use: {found['problem']}"
    loaded = f"{found['libraries']} libraries loaded" if found["libraries"] else "none loaded so far"
    return f"{loaded}, by {found['compiler']} ({found['mode']}), kept in {found['folder'] or 'no folder'}"


def being_compiled() -> str | None:
    """Return a sentence that tells how many C libraries are being compiled or queued; None if there are no such
    libraries, or they cannot be compiled.
    """
    count = LOADER.pending()
    if not count or LOADER.problem is not None:
        return None
    found = describe()
    if found["compiler"] is None:
        return None
    many = f"{count} libraries" if count > 1 else "1 library"
    kept = f"kept in {found['folder']} for the next process" if found["folder"] is not None else "not kept"
    return f"compiling {many} of C kernels with {found['compiler']}, which takes seconds; they are {kept}"
