"""Servers and clients of ASGI, written by hand: the arguments of an application, and the messages that it sends."""

from __future__ import annotations

import asyncio
from typing import Any


def http_scope(method: str = "POST", path: str = "/", headers: dict[str, str] | None = None) -> dict[str, Any]:
    """A request of HTTP/1.1."""
    raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in (headers or {}).items()]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": raw,
        "client": ("192.0.2.1", 1234),
        "server": ("test", 80),
        "state": {},
    }


class Exchange:
    """One request, as its server sees it.

    Args:
        *parts: of the body, which are there from the beginning.

    Attributes:
        sent: by the application.
        asked: how many messages it has asked for.
    """

    def __init__(self, *parts: bytes) -> None:
        self.sent: list[dict[str, Any]] = []
        self.asked = 0
        self._messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        for place, part in enumerate(parts or (b"",)):
            more = place + 1 < len(parts)
            self._messages.put_nowait({"type": "http.request", "body": part, "more_body": more})

    def leave(self) -> None:
        """The client closes its connection."""
        self._messages.put_nowait({"type": "http.disconnect"})

    async def receive(self) -> dict[str, Any]:
        self.asked += 1
        return await self._messages.get()

    async def send(self, message: Any) -> None:
        self.sent.append(dict(message))

    @property
    def status(self) -> int:
        """The status of the answer."""
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the answer."""
        return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self.sent[0]["headers"]}

    @property
    def body(self) -> bytes:
        """The part of the body that was sent."""
        return b"".join([value.get("body", b"") for value in self.sent[1:]])
