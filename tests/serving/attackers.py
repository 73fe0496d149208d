"""Clients that hold a server up: silent, slow, many, and reading nothing; and one that looks how the server does.

All are on this machine; each has a loopback address of its own, by which the server knows clients apart.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

from tests.serving.processes import PATIENCE, Server, answer, head, request, serving, until

# Addresses of watchers, of honest clients, and of attackers.
WATCHER: Final = "127.0.0.2"
HONEST: Final = "127.0.0.3"
ATTACKER: Final = "127.0.0.1"


def connected(server: Server, source: str, timeout: float = PATIENCE) -> socket.socket:
    """A connection from an address."""
    return socket.create_connection(("127.0.0.1", server.port), timeout, source_address=(source, 0))


def asked(server: Server, raw: bytes, source: str, timeout: float = PATIENCE) -> tuple[int, bytes]:
    """The status and the body of an answer to a request from an address."""
    with connected(server, source, timeout) as connection, connection.makefile("rb") as file:
        connection.sendall(raw)
        status, _, body = answer(file)
        return status, body


def stats(server: Server) -> Any:
    """The server's statistics."""
    return json.loads(asked(server, request("GET", "/stats", b"", "Connection: close"), WATCHER)[1])


def lost(found: Any) -> int:
    """How many requests have not ended in any state, by the server's statistics."""
    ended = sum([found[end] for end in ("done", "failed", "cancelled", "expired")])
    now = found["queued"] + found["running"]
    not_let_in = sum(found["rejected"].values()) + found["arriving"]
    differences = found["arrived"] - found["accepted"] - not_let_in, found["accepted"] - ended - now
    return sum([abs(int(each)) for each in differences])


def at_rest(server: Server) -> Any:
    """The server's statistics once nothing is under way."""
    found = stats(server)
    return found if not (found["arriving"] or found["queued"] or found["running"]) else None


def resident(server: Server) -> float:
    """MiB of memory."""
    text = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


def descriptors(server: Server) -> int:
    """How many the server has open."""
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


class Beside:
    """Asks a server again and again on a thread, until the block ends; subclasses define the request by `ask`.

    Args:
        server: which.
        pause: seconds between two times.
    """

    def __init__(self, server: Server, pause: float) -> None:
        self._server = server
        self._pause = pause
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._pause):
            self.ask()

    def ask(self) -> None:
        """Ask once."""
        raise NotImplementedError


class Watch(Beside):
    """Asks ``GET /live`` all the time, over a new connection each time, until the block ends.

    Attributes:
        worst: seconds that an answer took at most.
        asked: how often; `missed`: how many times there was none.
        memory: MiB that the server had at most.
        descriptors: that it had at most.
    """

    def __init__(self, server: Server) -> None:
        self.worst = 0.0
        self.asked = self.missed = 0
        self.memory = 0.0
        self.descriptors = 0
        super().__init__(server, pause=0.005)

    def ask(self) -> None:
        raw = request("GET", "/live", b"", "Connection: close")
        begin = time.perf_counter()
        try:
            good = asked(self._server, raw, WATCHER)[0] == 200
        except OSError:
            good = False
        self.worst = max(self.worst, time.perf_counter() - begin)
        self.asked += 1
        self.missed += not good
        self.memory = max(self.memory, resident(self._server))
        self.descriptors = max(self.descriptors, descriptors(self._server))


class Crowd:
    """Connections of attackers, which are closed at the end of the block.

    Args:
        server: which they attack.
        sources: addresses, in turns.

    Attributes:
        connections: those that could be made.
    """

    def __init__(self, server: Server, sources: tuple[str, ...] = (ATTACKER,)) -> None:
        self.connections: list[socket.socket] = []
        self._server = server
        self._sources = sources

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *error: Any) -> None:
        for connection in self.connections:
            connection.close()

    def silent(self, count: int) -> None:
        """Connections that say nothing."""
        self.sending([b""] * count)

    def sending(self, parts: list[bytes]) -> None:
        """For each part a connection that sends it, and then nothing more; sixteen at a time."""
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(self._send, range(len(parts)), parts))

    def _send(self, place: int, part: bytes) -> None:
        connection = connected(self._server, self._sources[place % len(self._sources)])
        self.connections.append(connection)
        with suppress(OSError):  # it may be ended meanwhile
            connection.sendall(part)

    def say(self, part: bytes) -> int:
        """Send something more on each; how many still could."""
        count = 0
        for connection in self.connections:
            with suppress(OSError):
                connection.sendall(part)
                count += 1
        return count

    def ended(self) -> int:
        """How many connections the server has ended; none of them may have been sent an answer that is longer."""
        return sum([_is_ended(connection) for connection in self.connections])

    def answers(self) -> Counter[int]:
        """How many answers of each status there are, 0 where the connection was ended without one."""
        with ThreadPoolExecutor(16) as pool:
            return Counter(pool.map(_status, self.connections))


def _is_ended(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        while connection.recv(65_536):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _status(connection: socket.socket) -> int:
    connection.settimeout(PATIENCE)
    try:
        with connection.makefile("rb") as file:
            return head(file)[0]
    except OSError:
        return 0


def unfinished(size: int, there: int, path: str = "/predict") -> bytes:
    """A request whose body is said to have so many bytes, of which there are some."""
    lines = f"POST {path} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
    return lines.encode() + b'{"inputs": [' + b" " * (there - 12)


# Servers

_LIMITED: Final = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({0}, {0}))
from vmflow.__main__ import main
sys.exit(main())
"""


@contextmanager
def command(folder: Path, logs: Path, *options: str, limit: int | None = None) -> Iterator[Server]:
    """``python -m vmflow serve`` of a saved graph, when it is ready.

    Args:
        folder: of the graph.
        logs: a folder for its output.
        options: of the command.
        limit: of its descriptors; None for that of this process.
    """
    program = ["-m", "vmflow"] if limit is None else ["-c", _LIMITED.format(limit)]
    with serving(logs, [*program, "serve", str(folder), "--port", "0", *options], {}) as server:
        until(server.ready, "ready")
        yield server
