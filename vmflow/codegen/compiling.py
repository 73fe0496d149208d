"""Running the system's C compiler: which one, with which flags, from source to the bytes of a shared library."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .processor import first_processor, has_quick_wide_vectors

if TYPE_CHECKING:
    import subprocess

# Never -ffast-math, which has no infinities.  What is given instead lets loops be vectorised whose results numpy's are:
# nobody reads errno or the exception flags, and a product and a sum are not made one (-ffp-contract=off).
FLAGS: Final = (
    "-O3",
    "-march=native",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-fwrapv",
    "-std=gnu11",
    "-fPIC",
    "-shared",
    "-pthread",
)

# Known to gcc since 8 and to clang since 6, which are older than the processors for which it is given.
_WIDE_VECTORS: Final = "-mprefer-vector-width=512"

# In the order of preference, where CC does not say.
_NAMES: Final = ("cc", "gcc", "clang")

# Seconds.  A kernel takes one at most; a compiler that takes longer than this hangs.
_PATIENCE: Final = 60.0

# Characters of the compiler's complaints that are repeated in ours.
_SHOWN: Final = 400


class CompileError(Exception):
    """The compiler cannot be run, or has failed; the message says why."""


class NoCompiler(CompileError):
    """There is none."""


def compiler_command() -> tuple[str, ...]:
    """How to call the compiler: what CC says, else what is found by name.

    Raises:
        NoCompiler: if there is none.
    """
    import shlex
    import shutil

    wanted = os.environ.get("CC")
    names = [shlex.split(wanted)] if wanted and wanted.strip() else [[name] for name in _NAMES]
    for name, *options in names:
        path = shutil.which(name)
        if path is not None:
            return (path, *options)
    raise NoCompiler(
        f"CC={wanted} names no program that can be run" if wanted else f"no C compiler was found ({', '.join(_NAMES)})"
    )


def compiler_identity(command: tuple[str, ...]) -> str:
    """What is different for another version of the compiler, without running it."""
    path = os.path.realpath(command[0])
    status = os.stat(path)
    return " ".join([*command, path, str(status.st_size), str(status.st_mtime_ns)])


@cache
def flags() -> tuple[str, ...]:
    """How to compile for this processor."""
    return (*FLAGS, _WIDE_VECTORS) if has_quick_wide_vectors() else FLAGS


@cache
def processor_identity() -> str:
    """What is different for a processor for which other instructions would be chosen."""
    told = first_processor()
    if told is None:
        return f"{platform.machine()} {platform.processor()}"
    telling = ("model", "cpu family", "vendor_id", "flags", "Features", "CPU ")
    return platform.machine() + "".join([line for line in told if line.startswith(telling)])


def compile_library(
    command: tuple[str, ...], source: str, watch: Callable[[subprocess.Popen[str] | None], None]
) -> bytes:
    """Compile C source into a shared library.

    Args:
        command: see `compiler_command`.
        source: one translation unit.
        watch: is given the process while it runs, and None when it has ended, so that it can be killed.

    Raises:
        CompileError: if the compiler cannot be run, fails, or makes nothing.
    """
    import shutil
    import tempfile

    # Not one that removes itself, which complains if the process ends meanwhile.
    folder = tempfile.mkdtemp(prefix="vmflow-")
    try:
        given, made = Path(folder, "kernel.c"), Path(folder, "kernel.so")
        given.write_text(source)
        _run([*command, *flags(), "-o", str(made), str(given), "-lm"], watch)
        if not made.exists():
            raise CompileError(f"{command[0]} said nothing and made no library")
        return made.read_bytes()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(call: list[str], watch: Callable[[subprocess.Popen[str] | None], None]) -> None:
    import subprocess

    quiet = subprocess.DEVNULL
    try:
        process = subprocess.Popen(call, stdin=quiet, stdout=quiet, stderr=subprocess.PIPE, text=True, errors="replace")
    except OSError as error:
        raise CompileError(f"{call[0]} cannot be run: {error}") from error
    with process:
        watch(process)
        try:
            _, complaint = process.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            raise CompileError(f"{call[0]} has not finished within {_PATIENCE:g} s") from None
        finally:
            watch(None)
    if process.returncode:
        raise CompileError(f"{call[0]} failed with {process.returncode}: {complaint.strip()[:_SHOWN]}")
