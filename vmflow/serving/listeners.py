"""`listen_in_file_system`: a socket at a path for servers that only programs on this machine are to reach."""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress


def listen_in_file_system(path: str) -> socket.socket:
    """A socket at a path, which only this user can connect to.

    What another process has left there is replaced.

    Raises:
        ValueError: if somebody listens there, or something else is there, or nothing can be made there.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_what_was_left(path)
        # Made so, and not changed afterwards: in between, others could connect.
        before = os.umask(0o177)
        try:
            listener.bind(path)
        finally:
            os.umask(before)
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise ValueError(f"cannot listen on the socket {path}: {error}; choose another by --uds") from None
    except ValueError:
        listener.close()
        raise
    return listener


def _remove_what_was_left(path: str) -> None:
    with suppress(FileNotFoundError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        try:
            other.connect(path)
        except ConnectionRefusedError:  # a file that is no socket refuses, too
            if not _is_socket(path):
                raise ValueError(f"{path} is there and not a socket; choose another by --uds") from None
            os.unlink(path)
        else:
            raise ValueError(f"another process listens on the socket {path}; choose another by --uds")


def _is_socket(path: str) -> bool:
    return stat.S_ISSOCK(os.stat(path).st_mode)
