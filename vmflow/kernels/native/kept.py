"""Where this process keeps its libraries: in the cache of the user, or, if that is not fit, in a folder of its own."""

from __future__ import annotations

import os

from .cache import Folder, Untrusted, chosen_path, open_folder

# By the process that has made it, since a child must not remove its parent's.
_private: dict[int, str] = {}

# The folders of which it has been said that they are not used.
_told: set[str] = set()


def cache_folder() -> Folder:
    """The folder in which libraries are kept, open: the user's if only this user can write to it, else a private one.

    Raises:
        OSError: if there is no place for the latter either.
    """
    path = chosen_path()
    try:
        return open_folder(path)
    except Untrusted as error:
        _tell(path, str(error))
    except OSError:
        pass  # as where the home is read-only; nothing is wrong with that
    return _private_folder()


def usable_path() -> str | None:
    """The path of the user's folder; None if it is not used."""
    try:
        with open_folder(chosen_path()) as folder:
            return folder.path
    except (OSError, Untrusted):
        return None


def _tell(path: str, problem: str) -> None:
    if path in _told:
        return
    _told.add(path)
    import logging

    logging.getLogger("vmflow.codegen").warning(
        "C kernels are not kept in %s, and not taken from there: %s; a temporary folder is used instead", path, problem
    )


def _private_folder() -> Folder:
    """A folder of this process's own, which is removed at its end."""
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
