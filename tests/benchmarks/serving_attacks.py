"""Attack a server by slow, silent and many clients, and measure whether honest clients are answered meanwhile.

``python -m tests.benchmarks.serving_attacks [--only NAME...] [--times 1]``

Each attack has a server of its own, ``python -m vmflow serve`` or, for streams, the same server with an application
that streams.  Meanwhile a client at another address asks ``GET /live`` again and again, each time over a new
connection, and another client asks for predictions.

- *silent*: sockets that send nothing, several times as many as the server may have file descriptors.
- *dripping*: heads of requests that are sent byte by byte.
- *bodies*: four hundred bodies of 4 MB that are never completed, from one client's address and from many.
- *large*: a hundred JSON bodies of 1.5 MB at the same time, of which eight may wait, for two seconds.
- *unread*: streams that nobody reads, more than the server has streams.

For each attack this prints the most file descriptors, the memory before and at most, how often ``/live`` was asked and
not answered and its worst latency, the outcomes of requests by the server's own counts, how many requests it has lost,
and how many bytes it has printed.  The exit code is 1 if a request was lost, if ``/live`` was not answered, or if an
honest client got no answer.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.contenders import restart_with_one_thread
from tests.serving.attackers import (
    HONEST,
    Beside,
    Crowd,
    Watch,
    asked,
    at_rest,
    command,
    connected,
    lost,
    resident,
    unfinished,
)
from tests.serving.processes import Server, chunks, head, request, serving, until

# The count of numbers in an input, so large that the server allows a body of a little more than 4 MB.
NUMBERS: Final = 160_000
BODY: Final = 4_000_000
MANY: Final = tuple([f"127.0.1.{place}" for place in range(1, 101)])

# The number of streams that run at a time, and the seconds that a stream waits for its reader.
STREAMS: Final = 8
WRITE_TIMEOUT: Final = 2.0


def saved(folder: Path) -> Path:
    """Save a graph that sums `NUMBERS` numbers in a folder; return the graph's folder."""
    import vmflow as flow
    from vmflow import nn

    class Sum(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.with_dynamic_input_shape(size=3)

        def build(self, x: flow.Tensor) -> flow.Tensor:
            return x.sum(1)

    graph = Sum()
    with flow.no_grad():
        for size in (1, 2, 4):
            graph(flow.zeros(size, NUMBERS)).numpy()
    flow.save(graph, folder / "sum")
    return folder / "sum"


def serve_streams() -> None:
    """Serve endless streams, and print the port."""
    from vmflow import serving as vmflow_serving
    from vmflow.serving.connections import Limits, server

    async def endless(model: Any, x: Any) -> AsyncIterator[str]:
        while True:
            yield "x" * 65_536
            await asyncio.sleep(0)

    session = vmflow_serving.InferenceSession(
        lambda x: x.sum(1),
        inputs=vmflow_serving.TensorSpec((3,)),
        graph=False,
        stream=endless,
        max_streams=STREAMS,
    )
    with socket.create_server(("127.0.0.1", 0), backlog=1000) as listener:
        print(f"on port {listener.getsockname()[1]}", flush=True)
        application = vmflow_serving.app(session, write_timeout=WRITE_TIMEOUT)
        limits = Limits(1000, write_timeout=WRITE_TIMEOUT)
        server(application, listener, limits, lifespan="on", log_level="error").run(sockets=[])


class Honest(Beside):
    """A client that asks for predictions, one after the other, until the block ends.

    Attributes:
        statuses: the number of answers by status; status 0 counts requests without an answer.
        worst: the most seconds that an answer took.
    """

    def __init__(self, server: Server, raw: bytes) -> None:
        self.statuses: Counter[int] = Counter()
        self.worst = 0.0
        self._raw = raw
        super().__init__(server, pause=0.05)

    def ask(self) -> None:
        begin = time.perf_counter()
        try:
            status, _ = asked(self._server, self._raw, HONEST)
        except OSError:
            status = 0
        self.statuses[status] += 1
        self.worst = max(self.worst, time.perf_counter() - begin)


def wide(numbers: int) -> bytes:
    """Make a request whose body is an npy file of `numbers` numbers, which the server reads quickly."""
    import numpy as np

    from vmflow.serving.bodies import NPY
    from vmflow.serving.tensor_bytes import write_npy

    body = write_npy(np.zeros(numbers, np.float32))
    lines = f"POST /predict HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Type: {NPY}\r\n"
    return f"{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body


@contextmanager
def measured(name: str, server: Server, raw: bytes, wrong: list[str]) -> Iterator[Callable[[str], None]]:
    """Watch a server during an attack, which is the block; then print the measurements, and note failures in `wrong`.

    It yields a function that adds a line to the printed text.
    """
    before, notes = resident(server), list[str]()
    begin = time.perf_counter()
    with Watch(server) as watch, Honest(server, raw) as honest:
        yield notes.append
    seconds = time.perf_counter() - begin
    found = until(lambda: at_rest(server), "nothing is under way")
    ends = {end: found[end] for end in ("done", "failed", "cancelled", "expired")}
    print(f"{name}: {seconds:.1f} s, {server.log.stat().st_size} bytes printed")
    print(f"  memory {before:.0f} MiB before, {watch.memory:.0f} at most; {watch.descriptors} descriptors at most")
    print(f"  /live: {watch.asked} times, {watch.missed} not answered, worst {watch.worst * 1e3:.0f} ms")
    print(f"  honest client: {dict(sorted(honest.statuses.items()))}, worst {honest.worst * 1e3:.0f} ms")
    rejected = {reason: count for reason, count in found["rejected"].items() if count}
    print(f"  requests: {found['arrived']} arrived, rejected {rejected}, ended {ends}, lost {lost(found)}")
    for note in notes:
        print(f"  {note}")
    if lost(found) or watch.missed or honest.statuses[0]:
        wrong.append(name)


def silent(folder: Path, logs: Path, wrong: list[str]) -> None:
    """Attack by many more silent sockets than the server may have file descriptors."""
    with (
        command(folder, logs, limit=256) as server,
        measured("silent", server, wide(NUMBERS), wrong) as note,
        Crowd(server) as crowd,
    ):
        for _ in range(5):
            crowd.silent(300)
        note(f"{len(crowd.connections)} silent sockets, of which the server has ended {crowd.ended()} at once")
        begin = time.perf_counter()
        until(lambda: crowd.ended() == len(crowd.connections), "all are ended")
        note(f"the rest were ended {time.perf_counter() - begin:.1f} s later")


def dripping(folder: Path, logs: Path, wrong: list[str]) -> None:
    """Attack by five hundred requests whose heads arrive one byte at a time."""
    with (
        command(folder, logs, "--header-timeout", "3") as server,
        measured("dripping", server, wide(NUMBERS), wrong) as note,
        Crowd(server) as crowd,
    ):
        begin = time.perf_counter()
        crowd.sending([b"POST /predict HTTP/1.1\r\nHost: t"] * 500)
        while crowd.ended() < len(crowd.connections):
            for connection in crowd.connections:
                connection.setblocking(True)
            crowd.say(b"e")
            time.sleep(0.2)
        note(f"all of {len(crowd.connections)} were ended after {time.perf_counter() - begin:.1f} s, 3 are allowed")


def bodies_of(name: str, sources: tuple[str, ...] | None) -> Callable[[Path, Path, list[str]], None]:
    """Make an attack by four hundred request bodies that are never completed, from the addresses `sources`."""

    def attack(folder: Path, logs: Path, wrong: list[str]) -> None:
        with (
            command(folder, logs, "--body-timeout", "8") as server,
            measured(name, server, wide(NUMBERS), wrong) as note,
            Crowd(server) if sources is None else Crowd(server, sources) as crowd,
        ):
            crowd.sending([unfinished(BODY, BODY - 1)] * 400)
            note(f"400 bodies of {BODY} bytes but one; answers {dict(sorted(crowd.answers().items()))}")

    return attack


def large(folder: Path, logs: Path, wrong: list[str]) -> None:
    """Attack by a hundred JSON bodies at the same time, which take long to parse."""
    body = b'{"inputs": [' + b"0.1234567," * (NUMBERS - 1) + b"0.5]}"
    raw = request("POST", "/predict", body, "Connection: close")
    with (
        command(folder, logs, "--max-queue", "8", "--timeout", "2") as server,
        measured("large", server, wide(NUMBERS), wrong) as note,
        Crowd(server) as crowd,
    ):
        begin = time.perf_counter()
        crowd.sending([raw] * 100)
        answers = dict(sorted(crowd.answers().items()))
        seconds = time.perf_counter() - begin
        note(f"100 bodies of {len(body)} bytes: {answers}, all of them after {seconds:.1f} s")


def unread(folder: Path, logs: Path, wrong: list[str]) -> None:
    """Attack by a hundred streams that nobody reads, while an honest client reads one stream."""
    post = request("POST", "/predict", b'{"inputs": [1, 2, 3]}', "Connection: close")
    stream = request("POST", "/stream", b'{"inputs": [1, 2, 3]}')
    with serving(logs, ["-m", "tests.benchmarks.serving_attacks", "--serve-streams"], {}) as server:
        until(server.ready, "ready")
        with measured("unread", server, post, wrong) as note, Crowd(server) as crowd:
            crowd.sending([stream] * 100)
            begin = time.perf_counter()
            with connected(server, HONEST) as connection, connection.makefile("rb") as file:
                connection.sendall(stream)
                head(file)
                note(f"an honest stream began after {(time.perf_counter() - begin) * 1e3:.0f} ms")
                reading = chunks(file)
                for _ in range(2000):
                    next(reading)
                note(f"it was read for {time.perf_counter() - begin:.1f} s")
            until(lambda: at_rest(server), "all places are given back")
            seconds = time.perf_counter() - begin
            note(f"100 unread streams of one client have ended after {seconds:.1f} s: it has {STREAMS // 2} of the")
            note(f"{STREAMS} places, and each may be unread for {WRITE_TIMEOUT:.0f} s")


ATTACKS: Final[dict[str, Callable[[Path, Path, list[str]], None]]] = {
    "silent": silent,
    "dripping": dripping,
    "bodies": bodies_of("bodies of one client", None),
    "bodies of many": bodies_of("bodies of many clients", MANY),
    "large": large,
    "unread": unread,
}


def main() -> int:
    """Run the chosen attacks, print the measurements, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.serving_attacks", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--only", nargs="*", choices=list(ATTACKS), default=list(ATTACKS), metavar="NAME")
    parser.add_argument("--times", type=int, default=1, help="that each is done")
    parser.add_argument("--serve-streams", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve_streams:
        serve_streams()
        return 0
    restart_with_one_thread()
    wrong: list[str] = []
    for name in given.only * given.times:
        with tempfile.TemporaryDirectory() as made:
            logs = Path(made) / "logs"
            logs.mkdir()
            ATTACKS[name](saved(Path(made)), logs, wrong)
    print(f"wrong: {', '.join(wrong)}" if wrong else "no request was lost, and all others were answered")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
