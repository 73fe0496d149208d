"""Sends senseless requests to a server, and checks the answers and the server's counts."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final

import attrs
from hypothesis import strategies as st

from tests.serving.hostile import NAMED, ONE, WIDE, Hostile, head
from tests.serving.processes import Server, until

# Seconds in which every request has an answer, or the end of its connection.
HANGS: Final = 5.0

# The errors that sessions count as invalid, by the titles of the answers.
_INVALID: Final = ("InvalidInput", "BadBody", "BadBytes", "TooLarge", "UnknownKind", "NotAcceptable")

_PATHS: Final = (ONE, NAMED, WIDE)


@attrs.define
class Tally:
    """A request and its answer.

    Attributes:
        families: how many requests there were of each.
        statuses: how many answers of each; 0 where the connection was ended without one.
        served, invalid: answers that a session must have counted so.
        unsure: requests of which nobody can say whether a session has seen all of them.
        slowest: seconds.
        wrong: the violated rule, in words.
    """

    families: Counter[str] = attrs.field(factory=Counter)
    statuses: Counter[int] = attrs.field(factory=Counter)
    served: int = 0
    invalid: int = 0
    unsure: int = 0
    slowest: float = 0.0
    wrong: list[str] = attrs.field(factory=list)

    def note(self, request: Hostile, status: int, body: bytes, seconds: float) -> None:
        """Count one request and its answer."""
        self.families[request.family] += 1
        self.statuses[status] += 1
        self.slowest = max(self.slowest, seconds)
        path = request.raw.split(b" ", 2)[1].partition(b"?")[0]
        title = _title(body)
        if status >= 500:
            self.wrong.append(f"{status} {body[:200]!r} for {request.raw[:500]!r}")
        elif status == 200 and path.endswith((b"/predict", b"/stream")):
            self.served += 1
        elif title in _INVALID:
            self.invalid += 1
        elif request.leaves or request.alone:
            self.unsure += 1
        elif status == 0:
            self.wrong.append(f"no answer to {request.raw[:500]!r}")

    def differs(self, counts: list[dict[str, Any]], before: list[dict[str, Any]]) -> list[str]:
        """The differences of the sessions' counts.

        Args:
            counts: of the sessions.
            before: the same, from before these requests.
        """
        found = []
        for count in counts:
            ends = sum([count[end] for end in ("done", "failed", "cancelled", "expired")])
            if count["accepted"] != ends or count["queued"] or count["running"]:
                found.append(f"accepted requests have not all come to one end: {count}")
        seen = {
            "done": sum([count["done"] for count in counts]) - sum([value["done"] for value in before]),
            "rejected": sum([_rejected(count) for count in counts]) - sum([_rejected(value) for value in before]),
            "failed": sum([count["failed"] for count in counts]) - sum([value["failed"] for value in before]),
        }
        wanted = {"done": self.served, "rejected": self.invalid, "failed": 0}
        over = [seen[value] - wanted[value] for value in wanted]
        if min(over) < 0 or sum(over) > self.unsure:
            found.append(f"sessions counted {seen}, clients {wanted} and {self.unsure} more that may be any")
        return found


def _rejected(counts: dict[str, Any]) -> int:
    return sum(counts["rejected"].values())


def _title(body: bytes) -> str:
    if not body.startswith(b'{"title"'):
        return ""
    return str(json.loads(body)["title"])


def counts(server: Server) -> list[dict[str, Any]]:
    """The sessions' counts, when nothing is under way."""

    def quiet() -> Any:
        found = [server.json(path + "/stats") for path in _PATHS]
        return found if not any([value["queued"] or value["running"] for value in found]) else None

    found: list[dict[str, Any]] = until(quiet, "nothing is under way")
    return found


# Sending


async def fired(port: int, requests: Iterable[Hostile], tally: Tally, connections: int = 8) -> None:
    """Send requests over several connections, each of which is kept as long as it can be.

    Args:
        port: of the server.
        requests: in order.
        tally: the counter.
        connections: how many at a time.
    """
    waiting = iter(requests)
    await asyncio.gather(*[_client(port, waiting, tally) for _ in range(connections)])


async def _client(port: int, waiting: Iterator[Hostile], tally: Tally) -> None:
    connection: _Connection | None = None
    for request in waiting:
        if connection is None:
            connection = _Connection(*await asyncio.open_connection("127.0.0.1", port))
        begin = time.perf_counter()
        try:
            async with asyncio.timeout(HANGS):
                status, body, again = await connection.ask(request)
        except TimeoutError:
            tally.wrong.append(f"no answer within {HANGS} s to {request.raw[:500]!r}")
            status, body, again = 0, b"", False
        tally.note(request, status, body, time.perf_counter() - begin)
        if not again:
            await connection.close()
            connection = None
    if connection is not None:
        await connection.close()


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, request: Hostile) -> tuple[int, bytes, bool]:
        """The status and the body of the answer, and whether the connection can be used again.

        The status is 0 if the server ends the connection instead.
        """
        try:
            self._writer.write(request.raw)
            if request.leaves:
                self._writer.write_eof()
            status, headers = await self._head()
            while status == 100:
                status, headers = await self._head()
            body = await self._body(headers)
        except (asyncio.IncompleteReadError, OSError):
            return 0, b"", False
        again = headers.get(b"connection") != b"close" and not request.leaves and not request.alone
        return status, body, again

    async def _head(self) -> tuple[int, dict[bytes, bytes]]:
        first, *lines = (await self._reader.readuntil(b"\r\n\r\n")).strip().split(b"\r\n")
        pairs = [line.partition(b":")[::2] for line in lines]
        return int(first.split()[1]), {name.lower(): value.strip().lower() for name, value in pairs}

    async def _body(self, headers: dict[bytes, bytes]) -> bytes:
        if headers.get(b"transfer-encoding") != b"chunked":
            return await self._reader.readexactly(int(headers.get(b"content-length", b"0")))
        parts = []
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            parts.append(await self._reader.readexactly(size))
            await self._reader.readexactly(2)
        await self._reader.readexactly(2)
        return b"".join(parts)

    async def close(self) -> None:
        """End it."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            return  # which has ended it, too


# From the server's own description


def described_requests(server: Server) -> st.SearchStrategy[Hostile]:
    """Requests that fit the descriptions of the sessions, and requests that nearly do.

    Needs schemathesis.
    """
    import schemathesis

    strategies = []
    for path, ending in ((ONE, "/stream"), (NAMED, "/predict")):
        schema = schemathesis.openapi.from_dict(server.json(path + "/openapi.json"))
        for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):
            cases = schema[ending]["POST"].as_strategy(generation_mode=mode)
            strategies.append(cases.filter(_lasts).map(partial(_sent, path)))
    return st.one_of(strategies)


def _lasts(case: Any) -> bool:
    """Whether its deadline cannot pass before it is answered, which would be an error of its own making."""
    try:
        return not 0 < float((case.headers or {}).get("X-Request-Timeout", 60)) < 60
    except (TypeError, ValueError):
        return True


def _sent(path: str, case: Any) -> Hostile:
    import requests

    made = requests.Request(**case.as_transport_kwargs(base_url="http://test" + path)).prepare()
    body = _bytes(made.body or b"")
    lines = [_bytes(name) + b": " + _bytes(value) for name, value in made.headers.items()]
    where = str(made.path_url)
    assert made.method is not None
    return Hostile("described", head(where, *lines, method=made.method) + body)


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


_GOOD_BODY: Final = b'{"inputs": [[1, 2.5, -3]]}'
GOOD: Final = Hostile("valid", head(ONE + "/predict", b"Content-Length: %d" % len(_GOOD_BODY)) + _GOOD_BODY)
