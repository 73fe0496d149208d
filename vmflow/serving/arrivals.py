"""`Arrivals`: requests that have come but not gone in yet."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from .batcher import Batcher


@attrs.define(eq=False)
class Arrivals:
    """Requests that are on their way into a session, for whoever closes its door to wait for."""

    _there: set[Arrival] = attrs.field(factory=set)
    # Set when one has gone in, or away; None if nobody wants to know.
    _left: asyncio.Event | None = None

    def __len__(self) -> int:
        return len(self._there)

    def add(self, arrival: Arrival) -> None:
        """One more is on its way."""
        self._there.add(arrival)

    def remove(self, arrival: Arrival) -> None:
        """One is about to go in: without an await in between."""
        self._there.discard(arrival)
        if self._left is not None:
            self._left.set()

    async def gone_in(self) -> None:
        """Return when those that are there now have gone in, or away; later ones are not waited for."""
        there = set(self._there)
        while there & self._there:
            if self._left is None:
                self._left = asyncio.Event()
            self._left.clear()
            await self._left.wait()


@attrs.frozen(eq=False)
class Arrival:
    """One request on its way in: a block in which it has a place in a queue; see `InferenceSession.arriving`.

    Args:
        arrivals: those of the session.
        batcher: takes it in.
        client: sends it.

    Attributes:
        deadline: on the loop's clock; None for none.
    """

    _arrivals: Arrivals
    _batcher: Batcher
    _client: Hashable
    deadline: float | None

    def __enter__(self) -> Arrival:
        self._batcher.reserve(self._client)
        self._arrivals.add(self)
        return self

    def __exit__(self, *error: object) -> None:
        self._arrivals.remove(self)
        self._batcher.release(self._client)
