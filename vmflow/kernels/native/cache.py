"""A cache on disk of compiled libraries, shared by processes.

Each library is one file, named after a digest of all that went into it, and renamed into place when it is complete.  A
digest of the library's bytes follows them in the file, so that a truncated file, which would crash the loader, is never
loaded.

Libraries are code: any user that can write to the folder, or can replace it, runs code as this user.  So the folder is
used only if no other user but root can, and it is opened step by step from ``/``, checking each folder on the path
once that is open.  If the folder is not safe, or cannot be written to, a temporary folder of this process is used.
"""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from typing import Final, NamedTuple

# The bytes that all files in the cache together may take; beyond this, the least recently used are removed.
LIMIT: Final = 64 << 20

_SUFFIX: Final = ".so"
_DIGEST: Final = hashlib.sha256().digest_size

_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_AS_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

# The folder with a path for each open descriptor of this process, on systems that have it.
_BY_DESCRIPTOR: Final = "/proc/self/fd"


class Untrusted(Exception):
    """Raised if the cache folder is not this user's, or others could put libraries into it; the message says why."""


class Folder(NamedTuple):
    """An open folder of libraries; a context manager that closes it.

    Attributes:
        path: the folder's absolute path, without symbolic links.
        descriptor: the file descriptor of the open folder.
    """

    path: str
    descriptor: int

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self.descriptor)

    def place(self, name: str) -> str:
        """Return the path of file `name` in the folder; below /proc/self/fd, if the system has that."""
        by_descriptor = f"{_BY_DESCRIPTOR}/{self.descriptor}"
        return os.path.join(by_descriptor if os.path.isdir(by_descriptor) else self.path, name)


def chosen_path() -> str:
    """Return the path of the cache folder that the user's environment implies; it may be missing or not safe."""
    chosen = os.environ.get("VMFLOW_CACHE_DIR")
    if not chosen:
        chosen = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "vmflow")
    return os.path.realpath(os.path.join(chosen, "kernels"))


def open_folder(path: str) -> Folder:
    """Open a folder that only this user and root can write to or replace; create it, and its parents, if missing.

    Args:
        path: the folder's absolute path, without symbolic links.

    Raises:
        Untrusted: if the folder is not this user's, or other users but root can write to it or replace it.
        OSError: if it cannot be opened, created or written to.
    """
    above, sticky = os.open("/", _AS_FOLDER), False
    so_far = "/"
    try:
        sticky = _check(above, so_far, False)
        for name in [value for value in path.split("/") if value]:
            so_far = os.path.join(so_far, name)
            with suppress(FileExistsError):
                if not _is_there(name, above):
                    os.mkdir(name, 0o700, dir_fd=above)
            below = os.open(name, _AS_FOLDER, dir_fd=above)
            os.close(above)
            above = below
            sticky = _check(above, so_far, sticky)
        _check(above, so_far, True)
        if not os.access(f"{_BY_DESCRIPTOR}/{above}" if os.path.isdir(_BY_DESCRIPTOR) else path, os.W_OK | os.X_OK):
            raise PermissionError(f"{path} cannot be written to")
    except BaseException:
        os.close(above)
        raise
    return Folder(path, above)


def _is_there(name: str, above: int) -> bool:
    try:
        os.stat(name, dir_fd=above, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _check(descriptor: int, path: str, ours: bool) -> bool:
    """Check that other users but root cannot replace an open folder's files; return whether they can add files.

    Args:
        descriptor: the folder's file descriptor.
        path: the folder's path, for messages.
        ours: whether the folder must belong to this user, and be writable by no other: so for the cache folder itself,
            and for folders in one that others can write to, as /tmp.

    Raises:
        Untrusted: if other users can replace the folder's files, or it is not as `ours` demands.
    """
    status = os.fstat(descriptor)
    me = os.getuid()
    if status.st_uid != me and (ours or status.st_uid != 0):
        raise Untrusted(f"{path} belongs to the user {status.st_uid}, who could put code there")
    shared = bool(status.st_mode & _OTHERS_WRITE)
    if shared and (ours or not status.st_mode & stat.S_ISVTX):
        raise Untrusted(f"others can write to {path}, whose mode is {stat.S_IMODE(status.st_mode):o}")
    return shared


def cache_key(*parts: str) -> str:
    """Return a name for a file that depends on all the given strings: a digest of them."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]


def find(folder: Folder, key: str) -> str | None:
    """Return the file name of the library stored under `key`; None if `read` returns None."""
    return None if read(folder, key) is None else key + _SUFFIX


def read(folder: Folder, key: str) -> bytes | None:
    """Return the library stored under `key`; None without a readable, intact file.  A damaged file is removed."""
    name = key + _SUFFIX
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder.descriptor)
        with os.fdopen(descriptor, "rb") as file:
            data = file.read()
    except OSError:
        return None
    if len(data) <= _DIGEST or hashlib.sha256(data[:-_DIGEST]).digest() != data[-_DIGEST:]:
        remove(folder, name)
        return None
    with suppress(OSError):
        os.utime(name, dir_fd=folder.descriptor)
    return data[:-_DIGEST]


def store(folder: Folder, key: str, library: bytes) -> str:
    """Store a library under `key`, and remove old ones if all take too many bytes; returns the file's name.

    Raises:
        OSError: if the file cannot be written.
    """
    import secrets

    name = key + _SUFFIX
    temporary = f"{key}.{secrets.token_hex(8)}.part"
    # The file gets the execute permission, which some systems require to load a shared library.
    made = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(temporary, made, 0o700, dir_fd=folder.descriptor)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(library + hashlib.sha256(library).digest())
        os.replace(temporary, name, src_dir_fd=folder.descriptor, dst_dir_fd=folder.descriptor)
    except BaseException:
        remove(folder, temporary)
        raise
    trim(folder, LIMIT, keep=name)
    return name


def remove(folder: Folder, name: str) -> None:
    """Remove a file from the folder, if possible: another process may have removed it."""
    with suppress(OSError):
        os.unlink(name, dir_fd=folder.descriptor)


def trim(folder: Folder, limit: int, keep: str | None = None) -> None:
    """Remove the least recently used files, except `keep`, until all files take at most `limit` bytes.

    Processes that have loaded a removed library keep using it.  Incomplete files are removed the same way.
    """
    found: list[tuple[float, int, str]] = []
    for name in os.listdir(folder.descriptor):
        with suppress(OSError):
            status = os.stat(name, dir_fd=folder.descriptor, follow_symlinks=False)
            found.append((status.st_mtime, status.st_size, name))
    total = sum([size for _, size, _ in found])
    for _, size, name in sorted(found):
        if total <= limit:
            return
        if name != keep:
            remove(folder, name)
            total -= size


# Which folder

# The temporary cache folder of each process, by process id, since a forked child must not remove its parent's.
_private: dict[int, str] = {}

# The paths of unsafe cache folders about which a warning was logged.
_warned: set[str] = set()


def cache_folder() -> Folder:
    """Open the cache folder: the one from the environment if it is safe and usable, else a temporary one.

    Raises:
        OSError: if no temporary folder can be created either.
    """
    path = chosen_path()
    try:
        return open_folder(path)
    except Untrusted as error:
        _warn_once(path, str(error))
    except OSError:
        pass  # the folder cannot be written to, such as in a read-only home, which is worth no warning
    return _private_folder()


def usable_path() -> str | None:
    """Return the path of the user's cache folder, created if missing; None if it is not safe or cannot be used."""
    try:
        with open_folder(chosen_path()) as folder:
            return folder.path
    except (OSError, Untrusted):
        return None


def _warn_once(path: str, problem: str) -> None:
    if path in _warned:
        return
    _warned.add(path)
    import logging

    logging.getLogger("vmflow.codegen").warning(
        "C kernels are not kept in %s, and not taken from there: %s; a temporary folder is used instead", path, problem
    )


def _private_folder() -> Folder:
    """Open this process's temporary cache folder, which is made at the first call and removed at exit."""
    process = os.getpid()
    if process not in _private:
        import atexit
        import tempfile

        made = os.path.realpath(tempfile.mkdtemp(prefix="vmflow-"))
        _private[process] = made
        atexit.register(_remove, process, made)
    path = _private[process]
    return Folder(path, os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC))


def _remove(process: int, path: str) -> None:
    if os.getpid() == process:
        import shutil

        shutil.rmtree(path, ignore_errors=True)
