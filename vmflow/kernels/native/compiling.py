"""Running the system's C compiler: which one, with which flags, from source to the bytes of a shared library."""

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

# With it, functions in C look at what they are given, and end the process where that cannot be; see functions.h.
_CHECKS: Final = "-DVMFLOW_CHECKS"

# In the order of preference, where CC does not say.
_NAMES: Final = ("cc", "gcc", "clang")

# Seconds.  A library takes a few at the usual priority; a compiler that takes longer than this hangs.
PATIENCE: Final = 60.0

# The lowest priority that there is.
_NICE: Final = 19

# Before a command: it is run once a line can be read.  What it starts inherits its priority, which has to be set before
# that; and Python may have to wait for its lock until it can do so.
_GATE: Final = ("/bin/sh", "-c", 'read -r go && exec "$@"', "sh")

# Characters of the compiler's complaints that are repeated in ours.
_SHOWN: Final = 400


class CompileError(Exception):
    """The compiler cannot be run, or has failed; the message says why."""


class NoCompiler(CompileError):
    """There is none."""


class Stopped(CompileError):
    """The compiler was stopped, or has not finished in time: it may do so another time."""


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
    """A text that differs between versions of the compiler, found without running it."""
    path = os.path.realpath(command[0])
    status = os.stat(path)
    return " ".join([*command, path, str(status.st_size), str(status.st_mtime_ns)])


@cache
def flags() -> tuple[str, ...]:
    """How to compile for this processor; and whatever VMFLOW_C_FLAGS says, such as -fsanitize=undefined."""
    import shlex

    found = (*FLAGS, _WIDE_VECTORS) if has_quick_wide_vectors() else FLAGS
    checks = (_CHECKS,) if os.environ.get("VMFLOW_C_CHECKS") == "1" else ()
    return (*found, *checks, *shlex.split(os.environ.get("VMFLOW_C_FLAGS", "")))


@cache
def processor_identity() -> str:
    """A text that differs between processors for which the compiler chooses other instructions."""
    told = first_processor()
    if told is None:
        return f"{platform.machine()} {platform.processor()}"
    telling = ("model", "cpu family", "vendor_id", "flags", "Features", "CPU ")
    return platform.machine() + "".join([line for line in told if line.startswith(telling)])


class Compilation:
    """One run of the compiler, from C source to a shared library.

    Attributes:
        low: whether it has the lowest priority, so that everything else that wants a core has it first.

    Args:
        command: see `compiler_command`.
        source: one translation unit.
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
        """Compile; the bytes of the library.

        Args:
            patience: the seconds after which it is stopped.

        Raises:
            Stopped: if `stop` was called, before or meanwhile, or it has not finished in time.
            CompileError: if the compiler cannot be run, fails, or makes nothing.
        """
        import shutil
        import tempfile

        # Not one that removes itself, which complains if the process ends meanwhile.
        folder = tempfile.mkdtemp(prefix="vmflow-")
        try:
            given, made = Path(folder, "kernel.c"), Path(folder, "kernel.so")
            given.write_text(self._source)
            self._call([*self._command, *flags(), "-o", str(made), str(given), "-lm"], patience)
            if not made.exists():
                raise CompileError(f"{self._command[0]} said nothing and made no library")
            return made.read_bytes()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def stop(self) -> None:
        """Stop the compiler with all that it has started; any thread may do so, at any time."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                # It may have ended just now, of which macOS says that it is not permitted.
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)

    def _call(self, call: list[str], patience: float) -> None:
        import subprocess

        with self._start(call) as process:
            try:
                # What is written opens the gate.
                _, complaint = process.communicate("\n" if self.low else None, timeout=patience)
            except subprocess.TimeoutExpired:
                self.stop()
                raise Stopped(f"{call[0]} has not finished within {patience:g} s") from None
            except BaseException:
                self.stop()
                raise
            finally:
                # From now on there may be another group of this number, which must not be stopped.
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
                # In a group of its own, since `cc` only starts other programs.  Not in a session of its own: Linux may
                # share the cores out among sessions first, and priorities count only within one.
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
    """Give a process, and what it will start, the lowest priority."""
    # Where a system refuses, it compiles at the usual one.
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, process, _NICE)
        # On Linux, one that is only nice still has its turns, for which BLAS's threads wait that wait for each other.
        if hasattr(os, "SCHED_IDLE"):
            os.sched_setscheduler(process, os.SCHED_IDLE, os.sched_param(0))
