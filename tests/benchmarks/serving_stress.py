"""Check that a server under load does not hang, leak memory, mix up answers or answer late.

``python -m tests.benchmarks.serving_stress [--only NAME...] [--seconds 60]``

Each scenario has a uvicorn process of its own that serves `vmflow.serving.app`; its clients run in this process.  Each
finding is printed next to the wanted value; the last line says how many findings are as wanted.

- *overload*: ten times as many requests as the server can compute.
- *disconnects*: clients that leave at random moments, while their requests wait or are computed.
- *swap*: new weights every 200 ms under load.
- *chaos*: clients that leave, deadlines, samples that cannot be computed, batches too large for the memory, bodies that
  are too large or malformed, and streams that nobody reads, all at the same time.
- *scraping*: windows with and without a client that asks for the metrics ten times a second, in turns.
- *invariance*: one sample among random neighbours in its batches, ten thousand times.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.contenders import restart_with_one_thread

WIDTH: Final = 64

# First numbers of special samples: the model fails on a batch with a POISON sample, and runs out of memory on a batch
# with two HUGE samples.
POISON: Final = -7.0
HUGE: Final = -8.0
# The milliseconds that a batch takes, and the most samples in a batch.
BATCH_MILLISECONDS: Final = 100
MOST: Final = 4
CAPACITY: Final = MOST * 1000 / BATCH_MILLISECONDS


# The server


def session() -> Any:
    """Make a session whose batches take `BATCH_MILLISECONDS`, and whose results are the version of its weights."""
    import vmflow as flow
    from vmflow import nn, serving
    from vmflow.context import MODE

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.version = nn.Parameter(flow.zeros(WIDTH))

        def forward(self, x: flow.Tensor) -> flow.Tensor:
            checked = slow(x)
            # Two ops read the weights: if a swap came in between, their results would differ.
            return flow.stack([(checked * 0 + self.version).sum(1), (checked * 0 + self.version).sum(1)], 1) / WIDTH

    def slow(x: flow.Tensor) -> flow.Tensor:
        from tests.vm.gates import call

        def kernel(array: Any) -> Any:
            first = array[:, 0]
            if (first == POISON).any():
                raise ArithmeticError("a sample that cannot be computed")
            if (first == HUGE).sum() > 1:
                raise flow.OutOfMemory("a batch that does not fit", requested=1 << 40, limit=1 << 30, used=0)
            time.sleep(BATCH_MILLISECONDS / 1000)
            return array

        assert MODE.get().interpreter is None
        return call(kernel, x, shape=tuple(x.shape), cost=BATCH_MILLISECONDS * 1_000_000)

    async def numbers(model: Any, inputs: Any) -> AsyncIterator[int]:
        for number in range(10_000):
            await asyncio.sleep(0)
            yield number

    return serving.InferenceSession(
        Model().eval(),
        inputs=serving.TensorSpec((WIDTH,)),
        graph=False,
        max_batch=MOST,
        max_queue=64,
        max_queue_per_client=64,
        stream=numbers,
    )


def fast_session() -> Any:
    """Make a session of a small perceptron, whose results do not depend on the other samples of a batch."""
    from vmflow import nn, serving

    layers = [nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)]
    spec = serving.TensorSpec((WIDTH,))
    return serving.InferenceSession(nn.Sequential(*layers).eval(), inputs=spec, batch_invariant=True)


async def serve(listening: socket.socket, swapping: bool, fast: bool) -> None:
    """Serve a session on a listening socket; ``GET /tasks`` answers with the number of asyncio tasks.

    If `swapping`, the first ``GET /tasks`` also starts a task that swaps the weights every 200 ms.
    """
    import uvicorn

    import vmflow as flow
    from vmflow import serving

    served = fast_session() if fast else session()
    application = serving.app(served)

    async def swap() -> None:
        for version in range(1, 1 << 30):
            await asyncio.sleep(0.2)
            await served.swap({"version": flow.full((WIDTH,), float(version))})

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] != "/tasks":
            await application(scope, receive, send)
            return
        if swapping and not hasattr(served, "swapping"):
            served.swapping = asyncio.create_task(swap())
        body = json.dumps(len(asyncio.all_tasks())).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})

    config = uvicorn.Config(outer, log_level="critical", access_log=False)
    await uvicorn.Server(config).serve(sockets=[listening])


# The clients


class Answer:
    """The answer to one request: its status, body, seconds and headers; status 0 if the connection was lost."""

    def __init__(self, status: int, body: bytes, seconds: float, headers: str = "") -> None:
        self.status, self.body, self.seconds, self.headers = status, body, seconds, headers


def request(method: str, path: str, body: bytes, headers: str) -> bytes:
    """The bytes of an HTTP/1.1 request with this body and further header lines."""
    return f"{method} {path} HTTP/1.1\r\nhost: here\r\ncontent-length: {len(body)}\r\n{headers}\r\n".encode() + body


class Server:
    """A server process, with methods that send it requests."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process, self.port = process, port

    async def ask(self, path: str, body: bytes = b"", headers: str = "", leave_after: float | None = None) -> Answer:
        """Send one request on a connection of its own; drop the connection after `leave_after` seconds."""
        begin = time.perf_counter()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            method = "POST" if body or "predict" in path or "stream" in path else "GET"
            writer.write(request(method, path, body, "connection: close\r\n" + headers))
            async with asyncio.timeout(leave_after):
                answer = await reader.read()
            status, _, rest = answer.partition(b"\r\n")
            heads, _, content = rest.partition(b"\r\n\r\n")
            code = int(status.split()[1]) if status else 0
            return Answer(code, content, time.perf_counter() - begin, heads.decode().lower())
        except (TimeoutError, ConnectionError):
            return Answer(0, b"", time.perf_counter() - begin)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def predict(self, first: float = 0.0, **about: Any) -> Answer:
        """Ask for a prediction for a sample whose first number is `first`."""
        sample = [first, *[0.5] * (WIDTH - 1)]
        content = "content-type: application/json\r\n" + about.pop("headers", "")
        return await self.ask("/predict", json.dumps({"inputs": sample}).encode(), content, **about)

    async def stats(self) -> dict[str, Any]:
        """The session's counts."""
        found: dict[str, Any] = json.loads((await self.ask("/stats")).body)
        return found

    async def tasks(self) -> int:
        """The number of asyncio tasks in the server."""
        return int((await self.ask("/tasks")).body)

    def resident(self) -> float:
        """The MiB of memory of the server's process."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.partition("VmRSS:")[2].split()[0]) / 1024


@contextlib.asynccontextmanager
async def server(swapping: bool = False, fast: bool = False) -> AsyncIterator[Server]:
    """Start a server process; yield it when it is ready, and terminate it at the end."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
        port, handed = listening.getsockname()[1], listening.fileno()
        command = [sys.executable, "-m", "tests.benchmarks.serving_stress", "--serve", str(handed)]
        command += ["--swapping"] * swapping + ["--fast"] * fast
        process = await asyncio.to_thread(subprocess.Popen, command, pass_fds=[handed])
    made = Server(process, port)
    try:
        async with asyncio.timeout(60):
            while (await made.ask("/ready")).status != 200:  # noqa: ASYNC110 (it is in another process)
                await asyncio.sleep(0.05)
        yield made
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait)


class Report:
    """Prints findings next to wanted values, and counts how many are as wanted."""

    def __init__(self) -> None:
        self.met = self.all = 0

    def line(self, what: str, found: object, good: bool | None = None, wanted: str = "") -> None:
        """Print one finding; `good` says whether it is as wanted, None if no value is wanted."""
        verdict = "" if good is None else "met" if good else "NOT MET"
        self.met, self.all = self.met + (good is True), self.all + (good is not None)
        print(f"  {what:54}{found!s:>18}  {wanted:28}{verdict}", flush=True)


def p99(values: list[float]) -> float:
    """The 99th percentile."""
    return sorted(values)[len(values) * 99 // 100] if values else 0.0


def adds_up(stats: dict[str, Any]) -> bool:
    """Whether a session's counts add up: every accepted request has ended in exactly one way, and none is left."""
    ends = sum([stats[name] for name in ("done", "failed", "cancelled", "expired")])
    return bool(stats["accepted"] == ends and stats["queued"] == stats["running"] == 0)


async def quiet(it: Server) -> dict[str, Any]:
    """Wait until no request waits or is computed; return the session's counts."""
    async with asyncio.timeout(30):
        while (stats := await it.stats())["queued"] or stats["running"]:  # noqa: ASYNC110 (it is in another process)
            await asyncio.sleep(0.01)
    return stats


async def overload(report: Report, seconds: float) -> None:
    async with server() as it:
        alone = statistics.median([(await it.predict()).seconds for _ in range(20)])
        answers: list[Answer] = []
        memory: list[float] = []
        pending: set[asyncio.Task[None]] = set()

        async def one() -> None:
            answers.append(await it.predict())

        end = time.perf_counter() + seconds
        count, begin = 0, time.perf_counter()
        while (now := time.perf_counter()) < end:
            while count < (now - begin) * 10 * CAPACITY and len(pending) < 400:
                task = asyncio.create_task(one())
                pending.add(task)
                task.add_done_callback(pending.discard)
                count += 1
            if int((now - begin) / seconds * 20) > len(memory):
                memory.append(it.resident())
            await asyncio.sleep(0.002)
        await asyncio.gather(*pending)
        recovered = time.perf_counter()
        while (await it.predict()).seconds > 2 * alone + 0.01:
            pass
        recovered = time.perf_counter() - recovered
        served = [each.seconds for each in answers if each.status == 200]
        shed = [each for each in answers if each.status == 503]
        bound = (64 / MOST + 2) * BATCH_MILLISECONDS / 1000
        report.line("offered, served, shed per second", _rates(seconds, count, len(served), len(shed)))
        others = len(answers) - len(served) - len(shed)
        report.line("other answers", others, others == 0, "none")
        report.line("served p99, ms", round(p99(served) * 1e3), None, f"queue x service {bound * 1e3:.0f} ms")
        seconds_shed = [each.seconds for each in shed]
        middle, most = statistics.median(seconds_shed) * 1e3, p99(seconds_shed) * 1e3
        report.line("shed p50, p99, ms", f"{middle:.0f}, {most:.0f}", middle < 20, "< 20")
        told = all(["retry-after" in each.headers for each in shed])
        report.line("shed with Retry-After", told, told, "all")
        half = len(memory) // 2
        growth = max(memory[half:]) - max(memory[:half])
        report.line("growth of memory in the second half, MiB", round(growth, 1), growth < 5, "< 5")
        report.line("until a request is answered as before, s", round(recovered, 2), recovered < 1, "< 1")
        report.line("counts add up", adds_up(await quiet(it)), adds_up(await it.stats()), "yes")


def _rates(seconds: float, *counts: int) -> str:
    return ", ".join([f"{count / seconds:.0f}" for count in counts])


async def disconnects(report: Report, seconds: float) -> None:
    async with server() as it:
        draw = random.Random(0)
        delays = []
        for _ in range(200):
            leaving = asyncio.create_task(it.predict(leave_after=draw.uniform(0.001, BATCH_MILLISECONDS / 1000)))
            await leaving
            begin = time.perf_counter()
            stats = await it.stats()
            while stats["queued"] or stats["running"]:
                stats = await it.stats()
            delays.append(time.perf_counter() - begin)
        stats = await quiet(it)
        asking = statistics.median([(await it.ask("/stats")).seconds for _ in range(50)])
        report.line("left while waiting or computed", stats["cancelled"])
        report.line("until capacity is free, p50 ms", round(statistics.median(delays) * 1e3, 1))
        over = statistics.median(delays) - asking
        report.line("of that beyond asking for it once, ms", round(over * 1e3, 1), over < 0.002, "< 2")
        report.line("counts add up", adds_up(stats), adds_up(stats), "yes")


async def swap(report: Report, seconds: float) -> None:
    async with server(swapping=True) as it:
        await it.tasks()  # starts the swapping
        seen: Counter[float] = Counter()
        torn = failed = 0

        async def client(end: float) -> None:
            nonlocal torn, failed
            while time.perf_counter() < end:
                answer = await it.predict()
                if answer.status != 200:
                    failed += 1
                    continue
                one, other = json.loads(answer.body)["outputs"]
                torn += one != other or one != round(one)
                seen[one] += 1

        await asyncio.gather(*[client(time.perf_counter() + seconds / 2) for _ in range(16)])
        report.line("answers, versions seen", f"{sum(seen.values())}, {len(seen)}")
        report.line("failed", failed, failed == 0, "none")
        report.line("of no one version", torn, torn == 0, "none")
        versions = (await it.stats())["version"]
        report.line("swaps", versions, versions > seconds / 2 * 2, f"> {seconds:.0f}")


async def chaos(report: Report, seconds: float) -> None:
    async with server() as it:
        for _ in range(20):
            await it.predict()
        tasks, memory = await it.tasks(), it.resident()
        draw = random.Random(0)
        found: Counter[str] = Counter()
        wrong: list[str] = []

        def check(what: str, answer: Answer, *statuses: int) -> None:
            found[f"{what} {answer.status}"] += 1
            if answer.status not in (*statuses, 503):
                wrong.append(f"{what}: {answer.status} {answer.body[:80]!r}")

        json_type = "content-type: application/json\r\n"

        async def unread_stream() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", it.port)
            body = json.dumps({"inputs": [0.0] * WIDTH}).encode()
            writer.write(request("POST", "/stream", body, json_type))
            await reader.read(100)
            await asyncio.sleep(draw.uniform(0, 0.5))
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

        actions: list[Callable[[], Awaitable[None]]] = []

        def action(what: str, ask: Callable[[], Awaitable[Answer]], *statuses: int) -> None:
            async def act() -> None:
                check(what, await ask(), *statuses)

            actions.append(act)

        action("served", it.predict, 200)
        action("served", it.predict, 200)
        action("leaves", lambda: it.predict(leave_after=draw.uniform(0, 0.05)), 0, 200)
        action("deadline", lambda: it.predict(headers="x-request-timeout: 0.03\r\n"), 200, 504)
        action("poison", lambda: it.predict(POISON), 500)
        action("memory", lambda: it.predict(HUGE), 200)
        action("nonsense", lambda: it.ask("/predict", draw.randbytes(200), json_type), 400, 422)
        action("shape", lambda: it.ask("/predict", b'{"inputs": [1, 2]}', json_type), 422)
        action("too large", lambda: it.ask("/predict", b"[" * 3_000_000, json_type), 400, 413, 0)
        action("type", lambda: it.ask("/predict", b"x", "content-type: text/plain\r\n"), 415)
        actions.append(unread_stream)

        async def client(end: float) -> None:
            while time.perf_counter() < end:
                await draw.choice(actions)()

        await asyncio.gather(*[client(time.perf_counter() + seconds) for _ in range(24)])
        stats = await quiet(it)
        fresh = await it.predict()
        async with asyncio.timeout(10):
            while (left := await it.tasks()) > tasks:  # noqa: ASYNC110 (it is in another process)
                await asyncio.sleep(0.05)
        report.line("answers", sum(found.values()))
        for what, count in sorted(found.items()):
            report.line(f"  {what}", count)
        report.line("answers that should not be", len(wrong), not wrong, "none")
        for each in wrong[:5]:
            print(f"    {each}")
        report.line("a fresh request", fresh.status, fresh.status == 200, "200")
        report.line("tasks before and after", f"{tasks}, {left}", left <= tasks, "no more")
        report.line("memory before and after, MiB", f"{memory:.0f}, {it.resident():.0f}")
        report.line("counts add up", adds_up(stats), adds_up(stats), "yes")


async def scraping(report: Report, seconds: float) -> None:
    async with server(fast=True) as it:
        rates: dict[bool, list[float]] = {False: [], True: []}

        async def client(end: float) -> int:
            count = 0
            while time.perf_counter() < end:
                count += (await it.predict()).status == 200
            return count

        async def scrape() -> None:
            while True:
                assert (await it.ask("/metrics")).status == 200
                await asyncio.sleep(0.1)

        for window in range(max(4, round(seconds / 2))):
            scraped = window % 2 == 1
            asking = [asyncio.create_task(scrape())] if scraped else []
            begin = time.perf_counter()
            counts = await asyncio.gather(*[client(begin + 1) for _ in range(16)])
            rates[scraped].append(sum(counts) / (time.perf_counter() - begin))
            for task in asking:
                task.cancel()
                await asyncio.wait([task])
        without, with_it = [statistics.median(rates[number]) for number in (False, True)]
        report.line("answers a second without and with it", f"{without:.0f}, {with_it:.0f}")
        report.line("fewer by, %", round(100 * (1 - with_it / without), 1), with_it > 0.98 * without, "< 2")


async def invariance(report: Report, seconds: float) -> None:
    async with server(fast=True) as it:
        draw = random.Random(0)
        seen: Counter[bytes] = Counter()
        failed = 0

        async def client(count: int) -> None:
            nonlocal failed
            for _ in range(count):
                same = draw.random() < 0.5
                answer = await it.predict(0.25 if same else draw.uniform(-9, 9))
                failed += answer.status != 200
                if same:
                    seen[answer.body] += 1

        await asyncio.gather(*[client(625) for _ in range(32)])
        stats = await it.stats()
        report.line("answers for one sample", seen.total())
        report.line("in a batch, on average", round(stats["samples"] / stats["batches"], 1))
        report.line("different ones", len(seen), len(seen) == 1, "1")
        report.line("failed", failed, failed == 0, "none")


SCENARIOS: Final = {
    "overload": overload,
    "disconnects": disconnects,
    "swap": swap,
    "chaos": chaos,
    "scraping": scraping,
    "invariance": invariance,
}


def main() -> None:
    """Run the scenarios."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.serving_stress", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--only", nargs="+", choices=list(SCENARIOS), help="these scenarios")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each scenario that lasts")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--swapping", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--fast", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve is not None:
        asyncio.run(serve(socket.socket(fileno=given.serve), given.swapping, given.fast))
        return
    restart_with_one_thread()
    report = Report()
    for name in given.only or SCENARIOS:
        print(name)
        asyncio.run(SCENARIOS[name](report, given.seconds))
    print(f"{report.met} of {report.all} are what is wanted")


if __name__ == "__main__":
    main()
