"""The command's server and its connections: how many, for how long, and attacks in short form.

`tests.benchmarks.serving_attacks` has the long form, with figures.
"""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.serving.attackers import HONEST, Crowd, Watch, asked, at_rest, command, connected, lost, stats, unfinished
from tests.serving.processes import PATIENCE, answer, chunks, head, request, served, until
from vmflow.__main__ import main
from vmflow.serving import connections
from vmflow.serving.command import listen_in_file_system, serve
from vmflow.serving.connections import Acceptor, Connection, Limits, connection_limit

pytest.importorskip("uvicorn", reason="uvicorn comes with the serve extra")
pytest.importorskip("safetensors", reason="safetensors comes with the serve extra")

pytestmark = [pytest.mark.host, pytest.mark.slow, pytest.mark.timeout(300)]

GOOD = b'{"inputs": [' + b"[" + b"[1,1,1,1,1,1,1,1]," * 7 + b"[1,1,1,1,1,1,1,1]]" + b"]}"
PREDICT = request("POST", "/predict", GOOD, "Connection: close")


# Attacks


def test_silent_connections_keep_nobody_out(folder: Path, logs: Path) -> None:
    with command(folder, logs, limit=128) as server, Watch(server) as watch, Crowd(server) as crowd:
        crowd.silent(300)
        assert asked(server, PREDICT, HONEST)[0] == 200
        until(lambda: crowd.ended() >= 200, "those that are too many are ended")
        until(lambda: watch.asked > 20, "it was watched")
    assert watch.missed == 0
    assert watch.worst < 5
    assert watch.descriptors < 128
    assert server.log.stat().st_size < 1000


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_silent_connections_keep_nobody_out_on_either_loop(loop: str, tmp_path: Path) -> None:
    pytest.importorskip(loop, reason=f"{loop} is not installed")
    with served(tmp_path, "session", VMFLOW_SERVED_LIMITS="1", VMFLOW_SERVED_LOOP=loop) as server:
        until(server.ready, "ready")
        with Watch(server) as watch, Crowd(server) as crowd:
            crowd.silent(250)
            until(lambda: crowd.ended() >= 150, "those that are too many are ended")
            until(lambda: watch.asked > 20, "it was watched")
            assert server.json("/counts")["loop"] == loop
            assert server.json("/counts")["connections"] <= 100
        assert watch.missed == 0


def test_slow_clients_do_not_keep_the_server_from_ending(folder: Path, logs: Path) -> None:
    times = ["--body-timeout", "1", "--drain-timeout", "40"]
    with command(folder, logs, *times) as server, Crowd(server) as crowd:
        crowd.sending([unfinished(len(GOOD), 20)] * 5 + [b"", b"POST /predict HTTP/1.1\r\nHost: t"])
        until(lambda: stats(server)["arriving"] == 5, "they have places")
        server.told()
        begin = time.monotonic()
        assert server.ended() == 0
        assert time.monotonic() - begin < 20
        assert crowd.answers() == {408: 5, 0: 2}


@pytest.mark.slow
def test_heads_and_bodies_have_a_time_to_come_in(folder: Path, logs: Path) -> None:
    times = ["--header-timeout", "1", "--body-timeout", "1.5"]
    with command(folder, logs, *times) as server, Crowd(server) as heads, Crowd(server) as bodies:
        heads.silent(5)
        heads.sending([b"POST /predict HTTP/1.1\r\nHost: t"] * 5)
        bodies.sending([unfinished(1000, 20), unfinished(1000, 20, "/live"), unfinished(10**9, 20)])
        for connection in heads.connections:
            assert connection.recv(1) == b""
        assert bodies.answers() == {408: 1, 405: 1, 413: 1}
        for connection in bodies.connections:
            with suppress(ConnectionResetError):
                while connection.recv(1000):
                    pass
        found = until(lambda: at_rest(server), "nothing is under way")
        assert found["rejected"]["slow"] == 1
        assert lost(found) == 0


@pytest.mark.slow
def test_unfinished_bodies_take_places_and_bytes_and_nothing_is_lost(folder: Path, logs: Path) -> None:
    with command(folder, logs, "--max-queue", "8", "--timeout", "2") as server, Crowd(server) as crowd:
        with Watch(server) as watch:
            crowd.sending([unfinished(len(GOOD), len(GOOD) - 1)] * 40)
            # Half of the places are one client's, and one does not wait.
            assert until(lambda: stats(server)["arriving"] == 5, "they have places")
            assert asked(server, PREDICT, HONEST)[0] == 200
            assert dict(crowd.answers()) == {503: 35, 504: 5}
        found = until(lambda: at_rest(server), "nothing is under way")
        assert (found["arrived"], found["done"], lost(found)) == (41, 1, 0)
        assert (found["rejected"]["overloaded"], found["rejected"]["expired"]) == (35, 5)
        assert watch.missed == 0


@pytest.mark.slow
def test_streams_that_nobody_reads_end_and_others_get_their_places(tmp_path: Path) -> None:
    stream = request("POST", "/stream", b'{"inputs": [1, 2, 3]}')
    with served(tmp_path, "unread", VMFLOW_SERVED_LIMITS="1") as server:
        until(server.ready, "ready")
        with Crowd(server) as crowd:
            crowd.sending([stream] * 8)
            until(lambda: stats(server)["running"] == 1, "one of them has one of two places")
            with connected(server, HONEST) as connection, connection.makefile("rb") as file:
                connection.sendall(stream)
                assert head(file)[0] == 200
                reading = chunks(file)
                for _ in range(10):
                    assert next(reading)
            until(lambda: at_rest(server), "each has given its place back")
            assert until(lambda: crowd.ended() == 8, "their connections are ended")
        found = stats(server)
        assert (found["accepted"], found["cancelled"], lost(found)) == (9, 9, 0)


def test_one_more_connection_ends_the_one_that_has_been_silent_longest(folder: Path, logs: Path) -> None:
    with (
        command(folder, logs, "--max-connections", "4") as server,
        Crowd(server) as crowd,
        connected(server, HONEST) as kept,
        kept.makefile("rb") as file,
    ):
        for _ in range(6):
            crowd.silent(1)
            kept.sendall(request("POST", "/predict", GOOD))
            assert answer(file)[0] == 200  # of the client with fewer connections
        assert crowd.connections[0].recv(1) == b""
        assert crowd.connections[1].recv(1) == b""
        crowd.connections[-1].sendall(PREDICT)
        assert head(crowd.connections[-1].makefile("rb"))[0] == 200


@pytest.mark.slow
def test_large_answers_that_nobody_reads_end_with_their_connections(tmp_path: Path) -> None:
    with served(tmp_path, "large answers", VMFLOW_SERVED_LIMITS="1") as server:
        until(server.ready, "ready")
        with Crowd(server) as crowd:
            crowd.sending([request("POST", "/predict", b'{"inputs": [1, 2, 3]}')] * 3)
            until(lambda: stats(server)["done"] == 3, "they are answered")
            for connection in crowd.connections:
                connection.settimeout(PATIENCE)
            # Not a byte of them is read until the server has given them up.
            until(lambda: _there(server) <= 1, "only the asking client is connected")
        assert stats(server)["done"] == 3


def _there(server: Any) -> int:
    return int(server.json("/counts")["connections"])


# The socket in the file system


def test_a_socket_in_the_file_system_is_its_users_alone(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with listen_in_file_system(str(path)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(ValueError, match="another process listens"):
            listen_in_file_system(str(path))
    with listen_in_file_system(str(path)), socket.socket(socket.AF_UNIX) as client:  # the old socket is replaced
        client.connect(str(path))


def test_nothing_else_is_removed_for_a_socket(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(ValueError, match="not a socket"):
        listen_in_file_system(str(path))
    assert path.read_text() == "mine"
    with pytest.raises(ValueError, match="--uds"):
        listen_in_file_system(str(tmp_path / "missing" / "socket"))
    with pytest.raises(ValueError, match="--uds"):
        listen_in_file_system(str(tmp_path / ("x" * 200)))


# Limits


def test_there_are_no_more_connections_than_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 1024))
    assert connection_limit(None) == 192
    assert connection_limit(100) == 100
    with pytest.raises(ValueError, match=r"ulimit -n"):
        connection_limit(200)
    with pytest.raises(ValueError, match="positive"):
        connection_limit(0)
    for unlimited in (100_000, resource.RLIM_INFINITY):
        monkeypatch.setattr(resource, "getrlimit", lambda which, x=unlimited: (x, x))
        assert connection_limit(None) == connections.MOST
        assert connection_limit(5000) == 5000


@pytest.mark.parametrize("option", ["header_timeout", "body_timeout", "write_timeout", "keep_alive"])
def test_limits_that_do_not_fit_are_refused(option: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match=option):
        Limits(10, **{option: 0.0})
    options: dict[str, Any] = {option: float("nan")}
    assert serve(str(folder), port=0, **options) == 1
    assert option in capsys.readouterr().err


async def test_a_lack_of_descriptors_is_logged_once_and_survived(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Exhausted:
        """A listener that has none for a while."""

        def __init__(self, listener: socket.socket) -> None:
            self.listener = listener
            self.failures = 0

        def accept(self) -> Any:
            if self.failures < 20:
                self.failures += 1
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return self.listener.accept()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.listener, name)

    made: asyncio.Future[asyncio.BaseTransport] = asyncio.get_running_loop().create_future()
    ended = asyncio.Event()
    clients: list[Any] = []

    class Protocol(asyncio.Protocol):
        def __init__(self, connection: Connection, lost: Any) -> None:
            clients.append(connection.client)
            self.transport: Any = None
            self._connection, self._lost = connection, lost
            connection.protocol = self

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport
            made.set_result(transport)

        def connection_lost(self, exc: Exception | None) -> None:
            self._lost(self._connection)
            ended.set()

    monkeypatch.setattr(connections, "_PAUSE", 0.001)
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        exhausted: Any = Exhausted(listener)
        acceptor = Acceptor(exhausted, Limits(10), Protocol)
        acceptor.open()
        async with asyncio.timeout(PATIENCE):
            transport = await made
            acceptor.leave()  # it would look for requests, of which this protocol knows nothing
            acceptor.shut()
            client.close()
            transport.close()
            await ended.wait()
    assert clients == ["127.0.0.1"]
    assert exhausted.failures == 20
    assert caplog.text.count("no connection can be accepted") == 1


def test_the_limits_are_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    said = capsys.readouterr().out
    for option in ("--max-connections", "--header-timeout", "--body-timeout", "--write-timeout", "--keep-alive"):
        assert option in said
    assert "--body-budget" in said
