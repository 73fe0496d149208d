"""Real servers and real sockets: clients that leave or read no more, signals, restarts, and the command."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.serving.processes import (
    GOOD,
    PATIENCE,
    Server,
    answer,
    chunks,
    free_port,
    head,
    request,
    served,
    serving,
    until,
)
from vmflow.serving import command

pytest.importorskip("starlette", reason="starlette comes with the serve extra")
pytest.importorskip("uvicorn", reason="uvicorn comes with the serve extra")

pytestmark = [pytest.mark.host, pytest.mark.slow, pytest.mark.timeout(300)]


# Clients


def test_a_client_that_leaves_frees_its_place(tmp_path: Path) -> None:
    with served(tmp_path, "session") as server:
        until(server.ready, "ready")
        for turn in range(1, 4):
            with server.connect() as connection:
                connection.sendall(request("POST", "/predict", b'{"inputs": [2000, 0, 0]}'))
                until(lambda: server.json("/stats")["running"] == 1, "it is computed")
            # The computation would take half a minute.
            assert _given_up(server) == turn
            assert server.ask("POST", "/predict", GOOD)[0] == 200
        stats = server.json("/stats")
        assert (stats["queued"], stats["running"], stats["failed"]) == (0, 0, 0)


def _given_up(server: Server) -> Any:
    """How many requests have been, when none is computed any more."""
    until(lambda: not server.json("/stats")["running"], "it is given up")
    return server.json("/stats")["cancelled"]


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_is_answered_and_takes_no_memory(chunked: bool, tmp_path: Path) -> None:
    parts, part = 512, b" " * 65_536
    with served(tmp_path, "session") as server:
        until(server.ready, "ready")
        before = _resident(server)
        with server.connect() as connection:
            size = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {parts * len(part)}"
            connection.sendall(f"POST /predict HTTP/1.1\r\nHost: test\r\n{size}\r\n\r\n".encode())
            for _ in range(parts):
                connection.sendall(b"10000\r\n" + part + b"\r\n" if chunked else part)
            connection.sendall(b"0\r\n\r\n" if chunked else b"")
            file = connection.makefile("rb")
            assert answer(file)[0] == 413
            connection.sendall(request("POST", "/predict", GOOD))
            assert answer(file)[0] == 200
        assert _resident(server) - before < 8 << 20


def _resident(server: Server) -> int:
    """Bytes of memory."""
    (line,) = [
        value for value in Path(f"/proc/{server.process.pid}/status").read_text().split("\n") if "VmRSS" in value
    ]
    return int(line.split()[1]) << 10


def test_a_client_that_reads_no_more_stops_its_stream(tmp_path: Path) -> None:
    with served(tmp_path, "endless") as server:
        until(server.ready, "ready")
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
            connection.settimeout(PATIENCE)
            connection.connect(("127.0.0.1", server.port))
            connection.sendall(request("POST", "/stream", GOOD))
            file = connection.makefile("rb")
            assert head(file)[0] == 200
            made = _steady(server)
            assert made * 65_536 < 32 << 20  # the buffers of sockets
            reading = chunks(file)
            until(lambda: next(reading) and server.json("/counts")["made"] > made, "it goes on when it is read on")
            file.close()
        until(lambda: server.json("/counts")["closed"] == 1, "it is closed")
        until(lambda: server.json("/stats")["running"] == 0, "its place is free")


def _steady(server: Server) -> int:
    """How many chunks have been made when there are no more of them."""
    seen: list[int] = []

    def steady() -> bool:
        seen.append(server.json("/counts")["made"])
        return len(seen) > 100 and len(set(seen[-100:])) == 1

    until(steady, "no more is made")
    return seen[-1]


# Signals


@pytest.mark.parametrize(
    ("number", "loop"), [(signal.SIGTERM, "asyncio"), (signal.SIGINT, "asyncio"), (signal.SIGTERM, "uvloop")]
)
def test_a_stream_goes_on_while_the_server_drains(number: int, loop: str, tmp_path: Path) -> None:
    _needs(loop)  # other servers than uvicorn keep their signals
    with served(tmp_path, "session", VMFLOW_SERVED_DELAY="0.7", VMFLOW_SERVED_LOOP=loop) as server:
        until(server.ready, "ready")
        assert server.json("/counts")["loop"] == loop
        with server.connect() as connection, connection.makefile("rb") as file:
            connection.sendall(request("POST", "/stream", GOOD))
            assert head(file)[0] == 200
            events = chunks(file)
            assert next(events).startswith(b"data: 0")
            server.told(number)
            until(lambda: server.ask("GET", "/ready")[0] == 503, "it says that it is not ready")
            assert server.ask("POST", "/predict", GOOD)[0] == 200
            status, headers, _ = until(lambda: _refused(server), "it takes nothing new")
            assert (status, headers["connection"]) == (503, "close")
            assert int(headers["retry-after"]) >= 1
            assert server.ask("POST", "/tell/more")[0] == 200
            assert next(events).startswith(b"data: 1")
            assert server.process.poll() is None
            assert server.ask("POST", "/tell/end")[0] == 200
            assert list(events)[-1] == b"event: end\ndata: {}\n\n"
        assert server.ended() == -number
        assert ("Traceback" in server.log.read_text()) == (number == signal.SIGINT)  # that of KeyboardInterrupt
        with pytest.raises(ConnectionRefusedError):
            server.connect()


def _refused(server: Server) -> Any:
    found = server.ask("POST", "/predict", GOOD)
    return found if found[0] != 200 else None


def test_the_second_signal_does_not_wait(tmp_path: Path) -> None:
    with served(tmp_path, "session", VMFLOW_SERVED_DELAY="1000") as server:
        until(server.ready, "ready")
        server.told()
        until(lambda: server.ask("GET", "/ready")[0] == 503, "it drains")
        server.told()
        assert server.ended() == -signal.SIGTERM


def test_a_session_that_cannot_be_started_ends_the_process(tmp_path: Path) -> None:
    with served(tmp_path, "broken") as server:
        assert server.ended() != 0
        assert "cannot be started" in server.log.read_text()
        assert "this model is broken" in server.log.read_text()


# Restarts


class Proxy:
    """Hands each connection to one of the servers that say that they are ready; looks again all the time.

    Attributes:
        servers: all of them.
    """

    def __init__(self) -> None:
        self.servers: list[Server] = []
        self._ready: list[int] = []
        self._turn = 0
        self._connections = 0
        self._looked = asyncio.Event()

    async def look(self) -> None:
        """Keep asking whether the server is ready."""
        while True:
            found = []
            for server in list(self.servers):
                with suppress(OSError, asyncio.IncompleteReadError):
                    if await _ask(server.port, request("GET", "/ready", b"", "Connection: close")) == 200:
                        found.append(server.port)
            self._ready = found
            self._looked.set()
            await asyncio.sleep(0.02)

    def is_ready(self, server: Server) -> bool:
        """Whether it is given connections."""
        return server.port in self._ready

    async def hand_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self._turn += 1
        port = self._ready[self._turn % len(self._ready)]
        self._connections += 1
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(_pipe(reader, there_writer), _pipe(there_reader, writer))
        self._connections -= 1

    def idle(self) -> bool:
        """Whether there are no connections."""
        return not self._connections

    async def until(self, condition: Any) -> None:
        """Return when it holds, after some look."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self._looked.clear()
                await self._looked.wait()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def _ask(port: int, sent: bytes) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    line = await reader.readline()
    await reader.read()
    writer.close()
    await writer.wait_closed()
    if not line:
        raise ConnectionError("no answer")
    return int(line.split()[1])


@asynccontextmanager
async def proxied(proxy: Proxy) -> AsyncIterator[int]:
    """The port of a proxy that runs."""
    looking = asyncio.create_task(proxy.look())
    listening = await asyncio.start_server(proxy.hand_on, "127.0.0.1", 0, backlog=1000)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()
        looking.cancel()


@pytest.mark.slow
async def test_no_request_fails_while_servers_are_restarted(tmp_path: Path) -> None:
    statuses: list[int] = []
    stop = asyncio.Event()
    proxy = Proxy()

    async def asks(port: int) -> None:
        while not stop.is_set():
            statuses.append(await _ask(port, request("POST", "/predict", GOOD, "Connection: close")))

    with _several(tmp_path, 4, {"VMFLOW_SERVED_DELAY": "0.7"}) as make:
        old = [await asyncio.to_thread(make) for _ in range(2)]
        proxy.servers = list(old)
        async with proxied(proxy) as port:
            await proxy.until(lambda: all([proxy.is_ready(value) for value in old]))
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request("POST", "/stream", GOOD))
            assert b"200" in await reader.readline()
            (streaming,) = [value for value in old if (await asyncio.to_thread(value.json, "/stats"))["running"]]
            clients = [asyncio.create_task(asks(port)) for _ in range(4)]
            for server in old:
                server.told()
                await proxy.until(lambda x=server: not proxy.is_ready(x))
                new = await asyncio.to_thread(make)
                proxy.servers.append(new)
                await proxy.until(lambda x=new: proxy.is_ready(x))
            before = len(statuses)
            await proxy.until(lambda: len(statuses) > before + 50)
            stop.set()
            await asyncio.gather(*clients)
            assert (await asyncio.to_thread(streaming.ask, "POST", "/tell/end"))[0] == 200
            rest = await reader.readuntil(b"event: end\ndata: {}\n\n")
            assert b"event: error" not in rest
            writer.close()
            await writer.wait_closed()
            await proxy.until(proxy.idle)
        for server in old:
            assert await asyncio.to_thread(server.ended) == -signal.SIGTERM
    assert len(statuses) > 100
    assert set(statuses) == {200}


class _several:
    """Makes up to so many servers, which end with the block."""

    def __init__(self, folder: Path, count: int, environment: dict[str, str]) -> None:
        self._making = (served(folder, "session", **environment) for _ in range(count))
        self._made: list[Any] = []

    def __enter__(self) -> Any:
        return self._make

    def _make(self) -> Server:
        manager = next(self._making)
        self._made.append(manager)
        return manager.__enter__()

    def __exit__(self, *error: Any) -> None:
        for manager in self._made:
            manager.__exit__(None, None, None)


# Other servers and frameworks

SERVED = "tests.serving.served:application"
SERVERS = {
    "uvicorn": lambda port, loop: [SERVED, "--port", str(port), "--loop", loop],
    "hypercorn": lambda port, loop: [SERVED, "--bind", f"127.0.0.1:{port}", "--worker-class", loop],
    "granian": lambda port, loop: [
        *["--interface", "asgi", SERVED, "--port", str(port), "--loop", loop],
        *["--workers-kill-timeout", "5"],
    ],
}
# Each server is watched on both loops, but not with every framework and middleware on both.
CELLS = [
    ("starlette", "plain", "asyncio"),
    ("starlette", "base", "asyncio"),
    ("starlette", "gzip", "asyncio"),
    ("fastapi", "plain", "asyncio"),
    ("fastapi", "base", "uvloop"),
    ("fastapi", "gzip", "asyncio"),
]


def _needs(*modules: str) -> None:
    for needed in modules:
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")


def _counts(server: Server) -> Any:
    try:
        return server.json("/counts")
    except (OSError, ValueError):
        return None


@pytest.mark.parametrize(("framework", "middleware", "loop"), CELLS)
@pytest.mark.parametrize("program", ["uvicorn", "hypercorn", "granian"])
def test_a_client_that_leaves_is_noticed_by_every_server(
    program: str, framework: str, middleware: str, loop: str, tmp_path: Path
) -> None:
    _needs(program, framework, loop)
    port = free_port()
    environment = {"VMFLOW_SERVED": f"{framework} {middleware}"}
    with serving(tmp_path, ["-m", program, *SERVERS[program](port, loop)], environment, port) as server:
        assert until(lambda: _counts(server), "it serves")["loop"] == loop
        with server.connect() as connection:
            sent = request("POST", "/work", b"x" * 100_000).replace(b"application/json", b"text/plain")
            connection.sendall(sent)
            until(lambda: server.json("/counts")["begun"] == 1, "the handler has begun")
            assert server.json("/counts")["cancelled"] == 0
        until(lambda: server.json("/counts")["cancelled"] == 1, "the handler is cancelled")
        with server.connect() as connection, connection.makefile("rb") as file:
            connection.sendall(request("GET", "/chunks", b"", "Accept-Encoding: gzip"))
            assert head(file)[0] == 200
            until(lambda: server.json("/counts")["begun"] == 2, "the stream has begun")
        until(lambda: server.json("/counts")["closed"] == 1, "the stream is closed")
        assert server.json("/counts")["done"] == 0
        assert "Traceback" not in server.log.read_text()


# The command


def test_the_command_serves_a_saved_graph(folder: Path, logs: Path) -> None:
    pytest.importorskip("safetensors", reason="safetensors comes with the io extra")
    with serving(logs, ["-m", "vmflow", "serve", str(folder), "--port", "0"], {}) as server:
        until(server.ready, "ready")
        body = json.dumps({"inputs": [[[1] * 8] * 8]}).encode()
        status, _, told = server.ask("POST", "/predict", body)
        assert status == 200
        assert sum(json.loads(told)["outputs"]) == pytest.approx(1, abs=1e-5)
        assert b"<canvas" in server.ask("GET", "/")[2]
        taken = ["-m", "vmflow", "serve", str(folder), "--port", str(server.port)]
        with serving(logs, taken, {}, server.port) as second:
            assert second.ended() == 1
            assert "--port" in second.log.read_text()
        server.told()
        assert server.ended() == 0
        assert server.log.read_text().startswith("serving digits on http://127.0.0.1:")
        assert server.log.read_text().count("\n") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere connections may not inherit it")
def test_the_parts_of_an_answer_do_not_wait_for_each_other() -> None:
    _, listener = command._listen("127.0.0.1", 0, reuse_port=False)
    with listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_the_command_listens_on_a_socket_in_the_file_system(folder: Path, logs: Path, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with serving(logs, ["-m", "vmflow", "serve", str(folder), "--uds", str(path)], {}, 1) as server:

        def ready() -> bool:
            with socket.socket(socket.AF_UNIX) as connection, suppress(OSError):
                connection.connect(str(path))
                connection.sendall(request("GET", "/ready", b"", "Connection: close"))
                return head(connection.makefile("rb"))[0] == 200
            return False

        until(ready, "ready")
        server.told(signal.SIGINT)
        assert server.ended() == 0


@pytest.mark.parametrize(
    ("where", "says"), [("missing", "vmflow.save(graph, folder)"), (".", "vmflow.save(graph, folder)")]
)
def test_the_command_gives_advice(where: str, says: str, logs: Path) -> None:
    with serving(logs, ["-m", "vmflow", "serve", str(logs / where), "--port", "0"], {}, 1) as server:
        assert server.ended() == 1
        assert says in server.log.read_text()
        assert "Traceback" not in server.log.read_text()
