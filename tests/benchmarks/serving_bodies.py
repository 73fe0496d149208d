"""The latency of a server's other answers while it parses large JSON bodies.

``python -m tests.benchmarks.serving_bodies [--numbers 150000] [--bodies 10] [--repeat 3]``

A uvicorn process is asked ``GET /live`` every few milliseconds while clients post bodies.  Two kinds of servers take
turns: one parses all bodies on the event loop, the other parses large ones on a thread, as `vmflow.serving.decoding`
does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import socket
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.benchmarks.contenders import restart_with_one_thread
from tests.serving.processes import request, serving, until

# By kind of server, the size in bytes from which a body is parsed on a thread.
WAYS: Final = {"on the loop": 1 << 60, "beside it": 1 << 16}

POSTING: Final = (0, 1, 4)


def serve(numbers: int, large: int) -> None:
    """Serve sums of `numbers` numbers, with bodies of `large` bytes and more parsed on a thread; print the port."""
    import uvicorn

    from vmflow import serving
    from vmflow.serving import decoding

    decoding.LARGE = large  # type: ignore[misc]
    inputs = serving.TensorSpec((numbers,))
    application = serving.app(serving.InferenceSession(lambda x: x.sum(1), inputs=inputs, graph=False, max_batch=4))
    with socket.create_server(("127.0.0.1", 0), backlog=1000) as listener:
        print(f"on port {listener.getsockname()[1]}", flush=True)
        config = uvicorn.Config(application, log_level="warning", loop="asyncio")
        uvicorn.Server(config).run(sockets=[listener])


async def asked(port: int, raw: bytes) -> float:
    """Send a raw request; return the seconds until the answer has come, whose status must be 200."""
    begin = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(raw)
    answer = await reader.read()
    seconds = time.perf_counter() - begin
    writer.close()
    await writer.wait_closed()
    if int(answer.split()[1]) != 200:
        raise AssertionError(f"the server answers {answer[:200]!r}")
    return seconds


async def probed(port: int, body: bytes, clients: int, bodies: int) -> list[float]:
    """The sorted seconds of answers to ``GET /live`` while `clients` clients post `bodies` bodies each.

    Without clients, it asks for one second.
    """
    found: list[float] = []
    live = request("GET", "/live", b"", "Connection: close")

    async def probes() -> None:
        while True:
            found.append(await asked(port, live))
            await asyncio.sleep(0.002)

    async def posts() -> None:
        for _ in range(bodies):
            await asked(port, request("POST", "/predict", body, "Connection: close"))

    probing = asyncio.create_task(probes())
    await (asyncio.gather(*[posts() for _ in range(clients)]) if clients else asyncio.sleep(1))
    probing.cancel()
    await asyncio.wait([probing])
    return sorted(found)


def main() -> None:
    """Measure both kinds of servers, and print percentiles in milliseconds."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.serving_bodies", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--numbers", type=int, default=150_000, help="in each body")
    parser.add_argument("--bodies", type=int, default=10, help="that each client posts")
    parser.add_argument("--repeat", type=int, default=3, help="servers of each way; medians are printed")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve is not None:
        serve(given.numbers, given.serve)
        return
    restart_with_one_thread()
    draw = random.Random(0)
    body = json.dumps({"inputs": [draw.random() for _ in range(given.numbers)]}).encode()
    found: dict[tuple[str, int], list[tuple[float, ...]]] = {}
    for _ in range(given.repeat):
        for way, large in WAYS.items():
            command = ["-m", "tests.benchmarks.serving_bodies", f"--serve={large}", f"--numbers={given.numbers}"]
            with tempfile.TemporaryDirectory() as folder, serving(Path(folder), command, {}) as server:
                until(server.ready, "ready")
                for clients in POSTING:
                    seconds = asyncio.run(probed(server.port, body, clients, given.bodies))
                    each = tuple([seconds[int(len(seconds) * share)] for share in (0.5, 0.95, 0.99)])
                    found.setdefault((way, clients), []).append(each)
    for (way, clients), rounds in found.items():
        p50, p95, p99 = [statistics.median(value) * 1e3 for value in zip(*rounds, strict=True)]
        print(f"{way:12} {clients} posting: p50 {p50:7.1f}  p95 {p95:7.1f}  p99 {p99:7.1f} ms")


if __name__ == "__main__":
    main()
