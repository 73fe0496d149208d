"""``python -m vmflow serve``: serves a saved graph over HTTP until a signal ends it."""

from __future__ import annotations

import math
import os
import signal
import socket
import stat
import sys
from contextlib import suppress
from typing import Any

from vmflow.graph_mode.saving import MANIFEST

from .application import app
from .connections import Limits, connection_limit, server as server_of
from .optional import required
from .session import InferenceSession


def serve(
    folder: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    uds: str | None = None,
    max_queue: int = 256,
    timeout: float | None = None,
    max_connections: int | None = None,
    header_timeout: float = 10.0,
    body_timeout: float = 30.0,
    write_timeout: float = 30.0,
    keep_alive: float = 5.0,
    body_budget: int | None = None,
    drain_delay: float = 0.0,
    drain_timeout: float | None = 30.0,
    reuse_port: bool = False,
    access_log: bool = False,
) -> int:
    """Serve until a signal comes or the session cannot start; print errors, and return the exit code.

    Args:
        folder: where `vmflow.save` has put a graph.
        host, port: to listen on; port 0 chooses a free one, which is printed.
        uds: the path of a socket to listen on instead; only this user can connect to it.
        max_queue, timeout: see `InferenceSession`.
        max_connections, header_timeout, keep_alive: see `Limits`; by default 1000 connections, or fewer if the limit of
            file descriptors requires it.
        body_timeout, write_timeout: see `app` and `Limits`.
        body_budget: MiB; see `app`.
        drain_delay: seconds in which requests are still taken after the signal, while ``GET /ready`` answers 503.
        drain_timeout: seconds after that delay for requests under way; None for as long as they take.
        reuse_port: let other processes listen on the same port.
        access_log: whether to log each request.
    """
    failures: list[BaseException] = []

    def failed(error: BaseException) -> None:
        failures.append(error)
        server.should_exit = True

    try:
        required("uvicorn", "serve", "python -m vmflow serve")
        limits = Limits(
            connection_limit(max_connections), header_timeout, body_timeout, write_timeout, keep_alive=keep_alive
        )
        session = _session(folder, max_queue, timeout)
        application = app(
            session,
            body_budget=None if body_budget is None else body_budget << 20,
            body_timeout=body_timeout,
            write_timeout=write_timeout,
            drain_delay=drain_delay,
            drain_timeout=drain_timeout,
            on_failure=failed,
        )
        if uds is None:
            where, listener = _listen(host, port, reuse_port)
        else:
            where, listener = f"unix:{uds}", listen_in_file_system(uds)
    except (ImportError, ValueError, OSError, TypeError) as error:
        return _say(error)
    server = server_of(
        application,
        listener,
        limits,
        lifespan="on",
        # Without `access_log`, mistakes of clients are not logged: a line for each such request could fill a disk.
        log_level="info" if access_log else "error",
        access_log=access_log,
        timeout_graceful_shutdown=None if drain_timeout is None else math.ceil(drain_timeout) + 5,
    )
    print(f"serving {session.name} on {where}, in batches of up to {session.batch_sizes[-1]}; Ctrl+C ends", flush=True)
    try:
        _run(server)
    finally:
        listener.close()
        if uds is not None:
            with suppress(FileNotFoundError):
                os.unlink(uds)
    return _say(RuntimeError(f"the session could not be started: {failures[0]}")) if failures else 0


def _say(error: Exception) -> int:
    print(f"vmflow serve: {error}", file=sys.stderr)
    return 1


def _session(folder: str, max_queue: int, timeout: float | None) -> InferenceSession:
    if not os.path.isfile(os.path.join(folder, MANIFEST)):
        raise ValueError(
            f"there is no graph in {folder}; give a folder that vmflow.save(graph, folder) has written, of a graph "
            "that was called with batches of each size to serve"
        )
    name = os.path.basename(os.path.abspath(folder))
    return InferenceSession(folder, max_queue=max_queue, timeout=timeout, name=name)


def _listen(host: str, port: int, reuse_port: bool) -> tuple[str, socket.socket]:
    """The URL to print, and the socket that listens there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048, reuse_port=reuse_port)
    except (OSError, OverflowError) as error:
        raise ValueError(
            f"cannot listen on port {port} of {host}: {error}; choose others by --host and --port"
        ) from None
    # Connections inherit TCP_NODELAY.  asyncio sets it only for sockets whose `proto` is given; without it the second
    # part of an answer on a connection that is kept may wait 40 ms for the client to acknowledge the first.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}", listener


def listen_in_file_system(path: str) -> socket.socket:
    """A socket at a path, which only this user can connect to.

    A socket that another process has left there is replaced.

    Raises:
        ValueError: if another process listens there, another file is there, or no socket can be made there.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale_socket(path)
        # The umask is set instead of a later chmod, before which other users could connect.
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


def _remove_stale_socket(path: str) -> None:
    with suppress(FileNotFoundError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        try:
            other.connect(path)
        except ConnectionRefusedError:  # connecting to a file that is no socket is refused, too
            if not stat.S_ISSOCK(os.stat(path).st_mode):
                raise ValueError(f"{path} is there and not a socket; choose another by --uds") from None
            os.unlink(path)
        else:
            raise ValueError(f"another process listens on the socket {path}; choose another by --uds")


def _run(server: Any) -> None:
    """Run the server until it ends; the signal that ended it must not end the process before the caller's cleanup."""
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        server.run(sockets=[])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
