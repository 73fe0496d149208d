"""Compiled libraries on disk, from one process to the next.

Each is one file, named after everything that went into it, and renamed into place when it is complete.  The digest of
its bytes follows the library, so that a truncated file, which would crash the loader, is never loaded.

Libraries are code: a user who can write to the folder, or can replace it, runs code as this user.  So the folder is
used only if no other user can, and it is reached from the root by descriptors, each of which is checked once it is
open.  If the folder is not safe, a folder of this process's own is used.
"""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from typing import Final, NamedTuple

# The most bytes of all libraries together; the least recently used libraries are removed first.
LIMIT: Final = 64 << 20

_SUFFIX: Final = ".so"
_DIGEST: Final = hashlib.sha256().digest_size

_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_AS_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

# Paths through the descriptor of an open folder, on systems that have them.
_BY_DESCRIPTOR: Final = "/proc/self/fd"


class Untrusted(Exception):
    """Other users could put libraries into the folder; the message says where, and why."""


class Folder(NamedTuple):
    """An open folder of libraries, to be used as a context manager.

    Attributes:
        path: absolute, without symbolic links.
        descriptor: of the open folder; closed at the end.
    """

    path: str
    descriptor: int

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self.descriptor)

    def place(self, name: str) -> str:
        """The path of a file in the folder; through the descriptor, where the system has such paths."""
        by_descriptor = f"{_BY_DESCRIPTOR}/{self.descriptor}"
        return os.path.join(by_descriptor if os.path.isdir(by_descriptor) else self.path, name)


def chosen_path() -> str:
    """The folder in which the user wants libraries; it need not exist, and may not be safe."""
    chosen = os.environ.get("VMFLOW_CACHE_DIR")
    if not chosen:
        chosen = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "vmflow")
    return os.path.realpath(os.path.join(chosen, "kernels"))


def open_folder(path: str) -> Folder:
    """Open a folder that only this user can write to or replace; create it if it does not exist.

    Args:
        path: absolute, without symbolic links.

    Raises:
        Untrusted: if other users can.
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
    """Return whether others can write to an open folder, but not replace this user's files in it, as in /tmp.

    Args:
        descriptor: of the folder.
        path: for messages.
            ours: whether it must be this user's, and writable by no other: below a folder that all can write to, and
                for the last folder.

    Raises:
        Untrusted: if others can replace its files.
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
    """A name that depends on all the parts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]


def find(folder: Folder, key: str) -> str | None:
    """The name of this key's library; None if there is none.  A damaged file is removed."""
    return None if read(folder, key) is None else key + _SUFFIX


def read(folder: Folder, key: str) -> bytes | None:
    """The bytes that were stored under this key; None if there are none.  A damaged file is removed."""
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
    """Store a library, and remove old ones if there are too many; returns its name.

    Raises:
        OSError: if it cannot be written.
    """
    import secrets

    name = key + _SUFFIX
    temporary = f"{key}.{secrets.token_hex(8)}.part"
    # Some systems' loaders require the execute permission.
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
    """Remove a file; another process may have done so."""
    with suppress(OSError):
        os.unlink(name, dir_fd=folder.descriptor)


def trim(folder: Folder, limit: int, keep: str | None = None) -> None:
    """Remove the least recently used files until the rest takes at most so many bytes.

    Processes that have loaded a library keep it.  Incomplete files are removed the same way.
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

# A folder for each process id, since a forked child must not remove its parent's folder.
_private: dict[int, str] = {}

# The unsafe folders that have been logged.
_warned: set[str] = set()


def cache_folder() -> Folder:
    """Open the folder for libraries: the user's if only this user can write to it, else a private one.

    Raises:
        OSError: if no private folder can be created either.
    """
    path = chosen_path()
    try:
        return open_folder(path)
    except Untrusted as error:
        _warn_once(path, str(error))
    except OSError:
        pass  # as with a read-only home; nothing is wrong with that
    return _private_folder()


def usable_path() -> str | None:
    """The path of the user's folder; None if it is not used."""
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
    """This process's own folder, which is removed at exit."""
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
