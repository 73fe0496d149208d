"""Runs the system's C compiler: chooses it and its flags, and turns source into the bytes of a shared library."""

from __future__ import annotations

import os
import platform
import signal
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .processor import first_processor, has_quick_wide_vectors

if TYPE_CHECKING:
    import subprocess

# The flags of the C compiler.  -ffast-math is not among them, since it assumes that no number is infinite.  These flags
# let loops be vectorised and agree with numpy to the bit: errno and the floating-point exception flags are not kept,
# and products and sums are not contracted to fused multiply-adds (-ffp-contract=off).
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

# The flag for vectors of 512 bits, which gcc has since version 8 and clang since 6.
_WIDE_VECTORS: Final = "-mprefer-vector-width=512"

# The flag with which C functions check their arguments, and end the process if they are invalid; see functions.h.
_CHECKS: Final = "-DVMFLOW_CHECKS"

# The names of compilers, in the order of preference, that are tried if the variable CC is not set or blank.
_NAMES: Final = ("cc", "gcc", "clang")

# Seconds after which a compiler at the usual priority is taken to hang, and killed: a library takes a few seconds.
PATIENCE: Final = 60.0

# The nice value of the lowest priority.
_NICE: Final = 19

# A shell command that waits for a line on stdin, and then starts the compiler, whose command follows.  Meanwhile Python
# lowers the shell's priority, which the compiler inherits; Python may need a while, if it waits for the GIL.
_GATE: Final = ("/bin/sh", "-c", 'read -r go && exec "$@"', "sh")

# The most characters of the compiler's error message that a `CompileError` repeats.
_SHOWN: Final = 400


class CompileError(Exception):
    """Raised if the C compiler cannot be used, or has failed; the message says why."""


class NoCompiler(CompileError):
    """Raised if no C compiler is found."""


class Stopped(CompileError):
    """Raised if the C compiler was stopped, or did not finish in time; another attempt may succeed."""


def compiler_command() -> tuple[str, ...]:
    """Return the C compiler's command: the variable CC unless it is blank, else the first of cc, gcc and clang found.

    Raises:
        NoCompiler: if CC names no program, or none of the others is found.
        CompileError: if CC cannot be split into words.
    """
    import shutil

    wanted = os.environ.get("CC", "").strip()
    names = [_words("CC")] if wanted else [[name] for name in _NAMES]
    for name, *options in names:
        path = shutil.which(name)
        if path is not None:
            return (path, *options)
    raise NoCompiler(
        f"CC={wanted} names no program that can be run" if wanted else f"no C compiler was found ({', '.join(_NAMES)})"
    )


def _words(variable: str) -> list[str]:
    """Split an environment variable into words, as a shell does; none if it is not set.  May raise CompileError."""
    import shlex

    value = os.environ.get(variable, "")
    try:
        return shlex.split(value)
    except ValueError as error:
        raise CompileError(f"{variable}={value} cannot be split into words: {error}") from error


def compiler_identity(command: tuple[str, ...]) -> str:
    """Return the compiler's command and its file's path, size and time as a text, to tell versions of it apart."""
    path = os.path.realpath(command[0])
    status = os.stat(path)
    return " ".join([*command, path, str(status.st_size), str(status.st_mtime_ns)])


@cache
def flags() -> tuple[str, ...]:
    """Return the C compiler's flags for this processor, and those of VMFLOW_C_CHECKS and VMFLOW_C_FLAGS; cached.

    Raises:
        CompileError: if VMFLOW_C_FLAGS cannot be split into words.
    """
    found = (*FLAGS, _WIDE_VECTORS) if has_quick_wide_vectors() else FLAGS
    checks = (_CHECKS,) if os.environ.get("VMFLOW_C_CHECKS") == "1" else ()
    return (*found, *checks, *_words("VMFLOW_C_FLAGS"))


@cache
def processor_identity() -> str:
    """Return a text that names the processor, for which the compiler (-march=native) chooses instructions."""
    lines = first_processor()
    if lines is None:
        return f"{platform.machine()} {platform.processor()}"
    telling = ("model", "cpu family", "vendor_id", "flags", "Features", "CPU ")
    return platform.machine() + "".join([line for line in lines if line.startswith(telling)])


class Compilation:
    """One run of the C compiler, from source to the bytes of a shared library.

    Attributes:
        low: whether to give the compiler the lowest priority, so that all other work has the cores first.

    Args:
        command: the compiler's command; see `compiler_command`.
        source: the C source, one translation unit.
        low: see above.
    """

    def __init__(self, command: tuple[str, ...], source: str, low: bool = False) -> None:
        self.low = low
        self._command = command
        self._source = source
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._stopped = False

    def run(self, patience: float = PATIENCE) -> bytes:
        """Compile; returns the bytes of the library.

        Args:
            patience: the seconds after which the compiler is stopped.

        Raises:
            Stopped: if `stop` was called, before or meanwhile, or the compiler has not finished in time.
            CompileError: if the compiler cannot be run, fails, or writes no library; see also `flags`.
            OSError: if the temporary files cannot be written or read.
        """
        import shutil
        import tempfile

        # mkdtemp, because a TemporaryDirectory warns if the process ends before the folder is removed.
        folder = tempfile.mkdtemp(prefix="vmflow-")
        try:
            given, made = Path(folder, "kernel.c"), Path(folder, "kernel.so")
            given.write_text(self._source)
            self._call([*self._command, *flags(), "-o", str(made), str(given), "-lm"], patience)
            if not made.exists():
                raise CompileError(f"{self._command[0]} reported no error and wrote no library")
            return made.read_bytes()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def stop(self) -> None:
        """Stop the compiler and all processes that it has started; any thread may do so, at any time."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                # The compiler may have ended just now; macOS then reports a missing permission.
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)

    def _call(self, call: list[str], patience: float) -> None:
        import subprocess

        with self._start(call) as process:
            try:
                _, complaint = process.communicate("\n" if self.low else None, timeout=patience)
            except subprocess.TimeoutExpired:
                self.stop()
                raise Stopped(f"{call[0]} has not finished within {patience:g} s") from None
            except BaseException:
                self.stop()
                raise
            finally:
                # Once the compiler has ended, another process group may get its number, and `stop` must not kill that.
                with self._lock:
                    self._process = None
        if self._stopped:
            raise Stopped(f"{call[0]} was stopped")
        if process.returncode:
            raise CompileError(f"{call[0]} failed with {process.returncode}: {complaint.strip()[:_SHOWN]}")

    def _start(self, call: list[str]) -> subprocess.Popen[str]:
        import subprocess

        with self._lock:
            if self._stopped:
                raise Stopped(f"{call[0]} was stopped")
            try:
                # The compiler gets a process group of its own, so that `stop` kills the programs that `cc` starts, too.
                # It gets no session of its own: Linux may divide the cores among sessions first, and then priorities
                # count only within a session.
                self._process = subprocess.Popen(
                    [*_GATE, *call] if self.low else call,
                    stdin=subprocess.PIPE if self.low else subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                    errors="replace",
                    process_group=0,
                )
            except OSError as error:
                raise CompileError(f"{call[0]} cannot be run: {error}") from error
            if self.low:
                _lower(self._process.pid)
            return self._process


def _lower(process: int) -> None:
    """Give a process, and its future children, the lowest priority."""
    # If the system refuses the priority, the compiler runs at the usual one.
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, process, _NICE)
        # On Linux, a merely nice process still gets time slices, which delays BLAS's threads, since these wait for each
        # other.
        if hasattr(os, "SCHED_IDLE"):
            os.sched_setscheduler(process, os.SCHED_IDLE, os.sched_param(0))
