"""`Arrivals`: requests that have come but not gone in yet."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Arrivals:
    """Requests that are on their way into a session, for whoever closes its door to wait for."""

    def __init__(self) -> None:
        self._there: set[asyncio.Future[None]] = set()

    def __len__(self) -> int:
        return len(self._there)

    @contextmanager
    def one(self) -> Iterator[None]:
        """A block at whose end a request is about to go in: without another await in between."""
        gone_in = asyncio.get_running_loop().create_future()
        self._there.add(gone_in)
        try:
            yield
        finally:
            self._there.discard(gone_in)
            gone_in.set_result(None)

    async def gone_in(self) -> None:
        """Return when those that are there now have gone in, or away; later ones are not waited for."""
        if self._there:
            await asyncio.wait(list(self._there))
