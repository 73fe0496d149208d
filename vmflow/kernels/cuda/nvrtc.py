"""NVRTC, the compiler of CUDA C++ as a library.  It needs neither a GPU nor a driver.

The library comes with a wheel, or with a CUDA toolkit.  Neither is needed to import this module; `library` finds and
loads it.  Compiled code is cached on disk beside the C kernels, under a digest of source, options and version.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, NamedTuple, final

from vmflow.kernels.native import cache

Target = Literal["ptx", "cubin"]

# The library's paths in wheels, below a folder of `sys.path`.  The newest comes first, since it compiles for newer
# GPUs.
_WHEELS: Final = (Path("nvidia/cu13/lib/libnvrtc.so.13"), Path("nvidia/cuda_nvrtc/lib/libnvrtc.so.12"))
_NAMES: Final = ("libnvrtc.so.13", "libnvrtc.so.12")
_TOOLKIT: Final = "/usr/local/cuda"

_INSTALL: Final = "pip install 'vmflow[cuda-check]'"

# By `Target`, the part of NVRTC's names of functions that return such code, as in ``nvrtcGetPTX``.
_CODE_OF: Final[dict[str, str]] = {"ptx": "PTX", "cubin": "CUBIN"}

# Matches the beginning of an error message of the compiler: "name(12): error: ...".
_MESSAGE: Final = re.compile(r"^(?P<name>.+)\((?P<line>\d+)\): (?:catastrophic )?error\b", re.MULTILINE)

# The number of source lines shown before and after each line with an error.
_AROUND: Final = 1


class NvrtcMissing(ImportError):
    """NVRTC is missing, or cannot be loaded.  The message says where it was sought or found, and how to install it."""


class CompileError(RuntimeError):
    """The compiler refused a source or an option, or makes no code of the wanted form for the options.

    Attributes:
        name, reason: the source's name, and what is wrong.
        log: the messages of the compiler.
        excerpt: the source lines that the errors name, and the lines around them, with their numbers; or a hint, or "".
    """

    def __init__(self, name: str, reason: str, log: str, excerpt: str) -> None:
        super().__init__(name, reason, log, excerpt)
        self.name = name
        self.reason = reason
        self.log = log
        self.excerpt = excerpt

    def __str__(self) -> str:
        parts = [f"NVRTC cannot compile {self.name}: {self.reason}", self.log.strip(), self.excerpt]
        return "\n".join([part for part in parts if part])


class Compiled(NamedTuple):
    """The output of the compiler.

    Attributes:
        code: PTX, ASCII text without a zero byte at its end, or a cubin, an ELF file.
        log: warnings and remarks; empty if the code comes from the cache.
    """

    code: bytes
    log: str


@final
class Nvrtc:
    """One loaded NVRTC library; its functions may be called from several threads, and release the GIL.

    Attributes:
        path: of the library.
        version: its major and minor number.
        architectures: the compute capabilities for which it compiles, such as 80 for ``compute_80``.

    Args:
        path: of the library, or a name that the loader finds.

    Raises:
        OSError: if the library cannot be loaded.
        AttributeError: if it is not NVRTC.
        RuntimeError: if NVRTC fails to tell its version or architectures.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._functions = ctypes.CDLL(str(path))
        self._functions.nvrtcGetErrorString.restype = ctypes.c_char_p
        self.version = self._version()
        self.architectures = self._architectures()

    def compile(
        self,
        source: str,
        name: str = "kernel.cu",
        options: Sequence[str] = (),
        *,
        to: Target = "ptx",
        keep: bool = True,
    ) -> Compiled:
        """Compile CUDA C++, or take the code from the cache on disk.

        Args:
            source: one translation unit.
            name: for messages, and for line numbers in the code.
            options: NVRTC's, such as ``--gpu-architecture=compute_80``; a cubin needs a real architecture, such as
                ``sm_80``.
            to: "ptx" or "cubin".
            keep: whether code is taken from the cache, and new code kept there.

        Raises:
            CompileError: if the compiler refuses the source or an option, or makes no such code for the options.
            RuntimeError: if NVRTC fails otherwise.
            ValueError: if `to` is neither "ptx" nor "cubin", or `source`, `name` or an option contains NUL.
        """
        if to not in _CODE_OF:
            raise ValueError(f"compile: to must be one of {', '.join(_CODE_OF)}, not {to!r}")
        if "\0" in "".join((source, name, *options)):
            raise ValueError("compile: source, name and options must not contain the character \\0")
        if not keep:
            return self._compile(source, name, options, to)
        key = cache.cache_key("nvrtc", repr(self.version), to, name, repr(tuple(options)), source)
        with cache.cache_folder() as folder:
            code = cache.read(folder, key)
            if code is not None:
                return Compiled(code, "")
            compiled = self._compile(source, name, options, to)
            with suppress(OSError):  # if the disk is full, the source is compiled again next time
                cache.store(folder, key, compiled.code)
        return compiled

    def _compile(self, source: str, name: str, options: Sequence[str], to: Target) -> Compiled:
        program = ctypes.c_void_p()
        self._check(
            self._functions.nvrtcCreateProgram(
                ctypes.byref(program), source.encode(), name.encode(), ctypes.c_int(0), None, None
            )
        )
        try:
            given = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
            status = self._functions.nvrtcCompileProgram(program, ctypes.c_int(len(options)), given)
            log = self._text(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            if status:
                raise CompileError(name, self._reason(status), log, _excerpt(source, name, log))
            code = self._text(program, _CODE_OF[to])
            if not code:
                raise CompileError(
                    name, f"there is no {to} for these options: {' '.join(options) or 'none'}", log, _hint(to)
                )
            return Compiled(code.rstrip(b"\0") if to == "ptx" else code, log)
        finally:
            self._functions.nvrtcDestroyProgram(ctypes.byref(program))

    def _text(self, program: ctypes.c_void_p, part: str) -> bytes:
        """Return the bytes of a compiled program's log or code; `part` is the end of the name of NVRTC's getter."""
        size = ctypes.c_size_t()
        self._check(getattr(self._functions, f"nvrtcGet{part}Size")(program, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(max(size.value, 1))
        if size.value:
            self._check(getattr(self._functions, f"nvrtcGet{part}")(program, buffer))
        return buffer.raw[: size.value]

    def _version(self) -> tuple[int, int]:
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(self._functions.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        return major.value, minor.value

    def _architectures(self) -> tuple[int, ...]:
        count = ctypes.c_int()
        self._check(self._functions.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
        found = (ctypes.c_int * count.value)()
        self._check(self._functions.nvrtcGetSupportedArchs(found))
        return tuple(found)

    def _check(self, status: int) -> None:
        if status:
            raise RuntimeError(f"{self.path}: {self._reason(status)}")

    def _reason(self, status: int) -> str:
        text: bytes = self._functions.nvrtcGetErrorString(status)
        return text.decode()


def _hint(to: Target) -> str:
    return "A cubin needs a real architecture, such as --gpu-architecture=sm_80" if to == "cubin" else ""


def _excerpt(source: str, name: str, log: str) -> str:
    """Return the source lines that the log's errors name, and the lines around them, with line numbers."""
    lines = source.splitlines()
    named = {int(found["line"]) for found in _MESSAGE.finditer(log) if found["name"] == name}
    shown = {line + step for line in named for step in range(-_AROUND, _AROUND + 1)}
    return "\n".join(
        f"{'>' if number in named else ' '}{number:5} | {lines[number - 1]}"
        for number in sorted(shown)
        if 1 <= number <= len(lines)
    )


# Finding the library

_lock = threading.Lock()
_loaded: dict[Path | None, Nvrtc] = {}


def find() -> Path | None:
    """Return the path of the library that `library` loads by default; None if there is none.

    The wheels come first, then the loader's search path, then CUDA_HOME, CUDA_PATH and /usr/local/cuda.  A library from
    the loader's search path is named by its bare file name.
    """
    return next(_candidates(), None)


def _candidates() -> Iterator[Path]:
    for wheel in _WHEELS:
        yield from [Path(folder, wheel) for folder in sys.path if Path(folder, wheel).is_file()]
    for name in _NAMES:
        if _loader_finds(name):
            yield Path(name)
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), _TOOLKIT]
    for home in dict.fromkeys([home for home in homes if home]):
        for name in _NAMES:
            path = Path(home, "lib64", name)
            if path.is_file():
                yield path


def _loader_finds(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def library(path: Path | None = None) -> Nvrtc:
    """Return NVRTC, which the first call with this path loads.

    Args:
        path: of the library to load; None for the first that is found.

    Raises:
        NvrtcMissing: if there is no library, or it cannot be loaded.
    """
    with _lock:
        if path not in _loaded:
            chosen = find() if path is None else path
            if chosen is None:
                raise NvrtcMissing(
                    "NVRTC, the compiler of CUDA C++, was found neither among Python's packages, nor by the loader, "
                    f"nor under CUDA_HOME, CUDA_PATH or {_TOOLKIT}.  Install it by {_INSTALL}"
                )
            try:
                _loaded[path] = Nvrtc(chosen)
            except (OSError, AttributeError) as error:
                raise NvrtcMissing(f"{chosen} cannot be loaded: {error}.  Install another by {_INSTALL}") from error
        return _loaded[path]
