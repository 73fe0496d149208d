"""Compiled libraries on disk, from one process to the next.

One file each, named after everything that it was made from, and put into place whole.  Behind the library there is the
digest of its bytes, so that a file that was cut off is never handed to the loader, which would crash.
"""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

# What all of them together may take, in bytes; the ones used longest ago go first.
LIMIT: Final = 64 << 20

_SUFFIX: Final = ".so"
_DIGEST: Final = hashlib.sha256().digest_size


def cache_folder() -> Path | None:
    """Where libraries are kept, made if need be; None if there is no place that only this user can write to."""
    chosen = os.environ.get("VMFLOW_CACHE_DIR")
    if chosen:
        folder = Path(chosen)
    else:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        folder = Path(base, "vmflow")
    folder = folder / "kernels"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError:
        return None
    # What others may have put there is not run.
    if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return None
    return folder if os.access(folder, os.W_OK | os.X_OK) else None


def cache_key(*parts: str) -> str:
    """A name for what is made from these."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]


def find(folder: Path, key: str) -> Path | None:
    """The library of this key, whole; what is not whole is removed."""
    path = folder / (key + _SUFFIX)
    try:
        data = path.read_bytes()
    except OSError:
        return None
    if len(data) <= _DIGEST or hashlib.sha256(data[:-_DIGEST]).digest() != data[-_DIGEST:]:
        remove(path)
        return None
    with suppress(OSError):
        os.utime(path)
    return path


def store(folder: Path, key: str, library: bytes) -> Path:
    """Keep a library, and forget old ones if there are too many.

    Raises:
        OSError: if it cannot be written.
    """
    path = folder / (key + _SUFFIX)
    import tempfile

    handle, temporary = tempfile.mkstemp(suffix=".part", dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(library + hashlib.sha256(library).digest())
        # Loaders want it executable on some systems.
        os.chmod(temporary, 0o700)
        os.replace(temporary, path)
    except BaseException:
        remove(Path(temporary))
        raise
    trim(folder, LIMIT, keep=path)
    return path


def remove(path: Path) -> None:
    """Remove a file; another process may have done so."""
    with suppress(OSError):
        path.unlink()


def trim(folder: Path, limit: int, keep: Path | None = None) -> None:
    """Remove what was used longest ago until the rest takes at most so many bytes.

    Whoever has a library loaded keeps it.  What was left half-written goes the same way.
    """
    found: list[tuple[float, int, Path]] = []
    for path in folder.iterdir():
        with suppress(OSError):
            status = path.stat()
            found.append((status.st_mtime, status.st_size, path))
    total = sum([size for _, size, _ in found])
    for _, size, path in sorted(found):
        if total <= limit:
            return
        if path != keep:
            remove(path)
            total -= size
