"""Serve a multilayer perceptron over HTTP, by vmflow and by torch in the usual ways, and measure the servers.

``python -m tests.benchmarks.serving [--only NAME...] [--seconds 5] [--clients 32]``

Each way is a server process of its own (uvicorn with a plain ASGI function, which differs only in how it computes a
request), and the clients are another process.  For each server: requests per second by 32 clients at a time, the
latency of a single client, and the latency of an answer that needs no model, while the server is idle and while the 32
clients ask.  A third process asks for the latter: in the clients' process, it would wait for them and not for the
server.

At the end, a session is compared with its graph, and with torch in the handler, by one client that asks two servers in
turns: two separate runs of the same server differ by more than these servers do.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from tests.benchmarks.contenders import restart_with_one_thread

SIZES: Final = (784, 512, 512, 10)
MOST: Final = 32

# The number of requests that one server is asked before the other server's turn.
_OF_A_TURN: Final = 50

_THIS: Final = [sys.executable, "-m", "tests.benchmarks.serving"]

# A coroutine function that computes the scores of one request's inputs.
Predict = Callable[[np.ndarray[Any, Any]], Awaitable[np.ndarray[Any, Any]]]


# The servers


async def by_session() -> Predict:
    """Predict by a vmflow session, which batches requests."""
    from vmflow import nn, serving

    session = serving.InferenceSession(_mlp(nn), inputs=serving.TensorSpec((SIZES[0],)), max_batch=MOST)
    await session.start()
    return session.run


async def by_graph() -> Predict:
    """Predict by a call of a vmflow graph for each request, without batches."""
    import vmflow as flow
    from vmflow import nn

    model = _mlp(nn)

    class Predicting(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def build(self, x: flow.Tensor) -> Any:
            with flow.no_grad():
                return self.model(x)

    graph = Predicting()

    async def predict(inputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        scores = await graph(flow.from_numpy(inputs[np.newaxis]))
        found: np.ndarray[Any, Any] = scores.numpy()[0]
        return found

    await predict(np.zeros(SIZES[0], np.float32))
    return predict


async def torch_in_the_handler() -> Predict:
    """Predict by torch, called directly in the request's handler, which blocks the event loop."""
    forward = _torch_forward()

    async def predict(inputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        scores: np.ndarray[Any, Any] = forward(inputs[np.newaxis])[0]
        return scores

    return predict


async def torch_in_threads() -> Predict:
    """Predict by torch in `asyncio.to_thread`, a call for each request."""
    forward = _torch_forward()

    async def predict(inputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        scores: np.ndarray[Any, Any] = (await asyncio.to_thread(forward, inputs[np.newaxis]))[0]
        return scores

    return predict


async def torch_with_batches() -> Predict:
    """Predict by torch with a simple batcher: a queue, and a task that computes all waiting requests in a thread."""
    forward = _torch_forward()
    queue: asyncio.Queue[tuple[np.ndarray[Any, Any], asyncio.Future[Any]]] = asyncio.Queue()

    async def compute() -> None:
        while True:
            waiting = [await queue.get()]
            while len(waiting) < MOST and not queue.empty():
                waiting.append(queue.get_nowait())
            results = await asyncio.to_thread(forward, np.stack([inputs for inputs, _ in waiting]))
            for (_, future), result in zip(waiting, results, strict=True):
                if not future.done():
                    future.set_result(result)

    task = asyncio.create_task(compute())

    async def predict(inputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        assert not task.done()
        future: asyncio.Future[np.ndarray[Any, Any]] = asyncio.get_running_loop().create_future()
        queue.put_nowait((inputs, future))
        return await future

    return predict


async def torch_with_batches_here() -> Predict:
    """Predict by torch with a batcher on the event loop itself.

    All requests that wait are computed one iteration of the loop after the first of them has come.
    """
    forward = _torch_forward()
    waiting: list[tuple[np.ndarray[Any, Any], asyncio.Future[Any]]] = []

    def compute() -> None:
        batch, waiting[:] = waiting[:MOST], waiting[MOST:]
        results = forward(np.stack([inputs for inputs, _ in batch]))
        for (_, future), result in zip(batch, results, strict=True):
            if not future.done():
                future.set_result(result)
        if waiting:
            asyncio.get_running_loop().call_soon(compute)

    async def predict(inputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[np.ndarray[Any, Any]] = loop.create_future()
        if not waiting:
            loop.call_soon(compute)
        waiting.append((inputs, future))
        return await future

    return predict


def _mlp(nn: Any) -> Any:
    """Make the perceptron by vmflow's or torch's `nn`."""
    layers: list[Any] = []
    for columns, rows in pairwise(SIZES):
        layers += [nn.Linear(columns, rows), nn.ReLU()]
    return nn.Sequential(*layers[:-1]).eval()


def _torch_forward() -> Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
    import torch

    torch.set_num_threads(1)
    model = _mlp(torch.nn)

    def forward(batch: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        with torch.inference_mode():
            found: np.ndarray[Any, Any] = model(torch.from_numpy(batch)).numpy()
        return found

    return forward


WAYS: Final[dict[str, Callable[[], Awaitable[Predict]]]] = {
    "vmflow session": by_session,
    "vmflow graph": by_graph,
    "torch in the handler": torch_in_the_handler,
    "torch to_thread": torch_in_threads,
    "torch, batcher by hand": torch_with_batches,
    "torch, batches here": torch_with_batches_here,
}


async def serve(way: str, listening: socket.socket) -> None:
    """Serve POST /predict (float32 bytes in, JSON out) and GET /health on a listening socket, predicting by `way`."""
    import uvicorn

    predict = await WAYS[way]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        if scope["path"] == "/health":
            body = b"ok"
        else:
            parts, more = [], True
            while more:
                message = await receive()
                parts.append(message.get("body", b""))
                more = message.get("more_body", False)
            body = json.dumps((await predict(np.frombuffer(bytearray(b"".join(parts)), np.float32))).tolist()).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})

    config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off")
    await uvicorn.Server(config).serve(sockets=[listening])


# The clients


class Client:
    """A client with one persistent connection, on which it sends one request at a time."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def __aenter__(self) -> Client:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *error: object) -> None:
        self.writer.close()
        await self.writer.wait_closed()

    async def ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        """Send a request and return the body of the answer; an error unless its status is 200."""
        head = f"{method} {path} HTTP/1.1\r\nhost: here\r\ncontent-length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)
        answer = await self.reader.readuntil(b"\r\n\r\n")
        if not answer.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"{path}: {answer[:80]!r}")
        length = int(answer.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        return await self.reader.readexactly(length)


def _sample() -> bytes:
    return np.random.default_rng(1).standard_normal(SIZES[0]).astype(np.float32).tobytes()


async def latencies(port: int, method: str, path: str, body: bytes, seconds: float, pause: float = 0.0) -> list[float]:
    """Send requests one after the other for `seconds`; return the seconds that each answer took."""
    found = []
    end = time.perf_counter() + seconds
    async with Client(port) as client:
        while (begin := time.perf_counter()) < end:
            await client.ask(method, path, body)
            found.append(time.perf_counter() - begin)
            if pause:
                await asyncio.sleep(pause)
    return found


async def load(port: int, seconds: float, clients: int) -> dict[str, float]:
    """Measure a server: requests per second by many clients, and latencies in milliseconds, idle and busy."""
    body = _sample()
    await latencies(port, "POST", "/predict", body, seconds / 10)
    one = await latencies(port, "POST", "/predict", body, seconds)
    idle = await _health(port, seconds)
    health = asyncio.create_task(_health(port, seconds))
    many = await asyncio.gather(*[latencies(port, "POST", "/predict", body, seconds + 1) for _ in range(clients)])
    busy = await health
    return {
        "requests": sum(map(len, many)) / (seconds + 1),
        "one": statistics.median(one) * 1e3,
        "idle": _percentile(idle, 99) * 1e3,
        "busy p50": statistics.median(busy) * 1e3,
        "busy": _percentile(busy, 99) * 1e3,
    }


async def _health(port: int, seconds: float) -> list[float]:
    """Measure the latencies of GET /health, which needs no model, in a process of its own."""
    command = [*_THIS, "--health", str(port), "--seconds", str(seconds)]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    output, _ = await process.communicate()
    found: list[float] = json.loads(output)
    return found


def _percentile(values: list[float], percent: int) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


async def in_turns(ports: Sequence[int], seconds: float) -> list[list[float]]:
    """Ask several servers in turns; return for each round the median milliseconds of a request to each server."""
    rounds: list[list[float]] = []
    body = _sample()
    end = time.perf_counter() + seconds
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(Client(port)) for port in ports]
        while time.perf_counter() < end:
            found = [0.0] * len(ports)
            for place in range(len(ports)):
                # The order rotates from round to round, so that each server is asked first equally often.
                which = (place + len(rounds)) % len(ports)
                times: list[float] = []
                for _ in range(_OF_A_TURN):
                    begin = time.perf_counter()
                    await clients[which].ask("POST", "/predict", body)
                    times.append(time.perf_counter() - begin)
                found[which] = statistics.median(times) * 1e3
            rounds.append(found)
    return rounds


# Servers, and clients in another process


@contextlib.contextmanager
def served(way: str) -> Iterator[int]:
    """Start a server process that predicts by `way`; yield its port, and terminate the process at the end."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
        port, handed = listening.getsockname()[1], listening.fileno()
        server = subprocess.Popen([*_THIS, "--serve", way, str(handed)], pass_fds=[handed])
    # The socket belongs to the server alone now: if the server ends, clients lose their connections.
    try:
        yield port
    finally:
        server.terminate()
        server.wait()


def measured(way: str, seconds: float, clients: int) -> dict[str, float]:
    """Start a server, and measure it by `load` in a client process."""
    with served(way) as port:
        found: dict[str, float] = _asked("--load", port, "--seconds", seconds, "--clients", clients)
    return found


def compared(way: str, other: str, seconds: float) -> tuple[float, float, float]:
    """Compare two servers by one client that asks them in turns.

    Returns:
        The medians of a request's milliseconds by each server, and the median of the rounds' ratios.
    """
    with served(way) as one, served(other) as two:
        rounds: list[list[float]] = _asked("--turns", one, two, "--seconds", seconds)
    first, second = [statistics.median(value) for value in zip(*rounds, strict=True)]
    return first, second, statistics.median([mine / yours for mine, yours in rounds])


def _asked(*arguments: object) -> Any:
    """Run this program with other arguments; return the parsed JSON that it prints."""
    command = [*_THIS, *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Measure all ways, and print a row for each."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.serving", description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(WAYS), help="these ways")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--clients", type=int, default=32, help="that ask at the same time")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--load", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--turns", type=int, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--health", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        asyncio.run(serve(given.serve[0], socket.socket(fileno=int(given.serve[1]))))
        return
    if given.health:
        print(json.dumps(asyncio.run(latencies(given.health, "GET", "/health", b"", given.seconds, 0.002))))
        return
    if given.load:
        print(json.dumps(asyncio.run(load(given.load, given.seconds, given.clients))))
        return
    if given.turns:
        print(json.dumps(asyncio.run(in_turns(given.turns, given.seconds))))
        return
    restart_with_one_thread()
    print(f"{'x'.join(map(str, SIZES))}, {given.clients} clients, {os.cpu_count()} cores, one thread for BLAS")
    print(f"{'':24}{'requests/s':>12}{'one, ms':>10}{'health p99 idle':>17}{'busy p50':>10}{'busy p99, ms':>14}")
    ways = given.only or list(WAYS)
    for way in ways:
        found = measured(way, given.seconds, given.clients)
        print(
            f"{way:24}{found['requests']:12.0f}{found['one']:10.3f}{found['idle']:17.2f}"
            f"{found['busy p50']:10.2f}{found['busy']:14.2f}",
            flush=True,
        )
    session = "vmflow session"
    for other in ("vmflow graph", "torch in the handler"):
        if session in ways and other in ways:
            mine, yours, ratio = compared(session, other, 4 * given.seconds)
            print(f"one client, in turns: {session} {mine:.3f} ms, {other} {yours:.3f} ms; ratio {ratio:.3f}")


if __name__ == "__main__":
    main()
