"""Servers in processes of their own, and clients that talk to them over plain sockets."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
PATIENCE: Final = 60.0
PAUSE: Final = 0.005

GOOD: Final = b'{"inputs": [1, 2, 3]}'


def until(condition: Callable[[], Any], goal: str) -> Any:
    """Wait until a condition is true, and return its value."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        # Polling without a pause would take the processor from the other process.
        time.sleep(PAUSE)
    raise AssertionError(f"not within {PATIENCE} s: {goal}")


class Server:
    """A process that serves.

    Args:
        process: that.
        port: on which it does.
        log: its output.
    """

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self.log = log

    def connect(self) -> socket.socket:
        """A connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, dict[str, str], bytes]:
        """The status, the headers and the body of an answer, over a connection of its own."""
        with self.connect() as connection, connection.makefile("rb") as file:
            connection.sendall(request(method, path, body, "Connection: close"))
            return answer(file)

    def json(self, path: str) -> Any:
        """An answer."""
        return json.loads(self.ask("GET", path)[2])

    def ready(self, path: str = "/ready") -> bool:
        """Whether it says so there."""
        if self.process.poll() is not None:
            raise AssertionError(f"the server has ended: {self.log.read_text()}")
        try:
            return self.ask("GET", path)[0] == 200
        except OSError:
            return False

    def told(self, number: int = signal.SIGTERM) -> None:
        """Give it a signal."""
        self.process.send_signal(number)

    def ended(self) -> int:
        """Its exit code, when it has ended."""
        return self.process.wait(PATIENCE)


def request(method: str, path: str, body: bytes = b"", *headers: str) -> bytes:
    """A request of HTTP/1.1."""
    lines = [f"{method} {path} HTTP/1.1", "Host: test", f"Content-Length: {len(body)}", *headers]
    if body:
        lines.append("Content-Type: application/json")
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def answer(file: IO[bytes]) -> tuple[int, dict[str, str], bytes]:
    """The status, the headers and the body of an answer that ends with its connection."""
    status, headers = head(file)
    if headers.get("transfer-encoding") == "chunked":
        return status, headers, b"".join(chunks(file))
    return status, headers, file.read(int(headers["content-length"])) if "content-length" in headers else file.read()


def head(file: IO[bytes]) -> tuple[int, dict[str, str]]:
    """The status and the headers of an answer."""
    first = file.readline()
    if not first:
        raise ConnectionError("the connection ended before there was an answer")
    headers = {}
    while (line := file.readline().strip()) != b"":
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    return int(first.split()[1]), headers


def chunks(file: IO[bytes]) -> Iterator[bytes]:
    """The chunks of a body, to its end."""
    while True:
        line = file.readline()
        if not line:
            raise ConnectionError("the connection ended in the middle of a body")
        size = int(line, 16)
        data = file.read(size)
        file.readline()
        if not size:
            return
        yield data


@contextmanager
def serving(
    folder: Path, command: Sequence[str], environment: dict[str, str], port: int | None = None
) -> Iterator[Server]:
    """A server, until the block ends.

    Args:
        folder: for its output.
        command: behind that of Python.
        environment: beside that of this process.
        port: on which it will be; None if it prints that.
    """
    log = folder / f"log-{len(list(folder.iterdir()))}"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **environment},
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=_hear_interrupts,
            start_new_session=True,
        )
    try:
        server = Server(process, port or _printed_port(process, log), log)
        yield server
    finally:
        # With the processes that it has started: some servers work in these, and they outlive their parent.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _hear_interrupts() -> None:
    # Background processes of a shell ignore Ctrl-C, and so would the server.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _printed_port(process: subprocess.Popen[bytes], log: Path) -> int:
    def printed() -> Any:
        ended = process.poll() is not None
        found = re.search(r"(?:on port |http://[^ ]*:)(\d+)", log.read_text())
        # One that has printed it may have ended since.
        if ended and found is None:
            raise AssertionError(f"the server has ended: {log.read_text()}")
        return found

    return int(until(printed, "the port is printed")[1])


@contextmanager
def served(folder: Path, kind: str, **environment: str) -> Iterator[Server]:
    """An application of `tests.serving.served`, by uvicorn."""
    with serving(folder, ["-m", "tests.serving.served"], {"VMFLOW_SERVED": kind, **environment}) as server:
        yield server


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
