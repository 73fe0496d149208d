"""`Arrivals`: requests that have begun to arrive and are not in the queue yet."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from .batcher import Batcher


@attrs.define(eq=False)
class Arrivals:
    """Requests that are arriving at a session, for a drain to wait for."""

    _there: set[Arrival] = attrs.field(factory=set)
    # Set when a request has arrived or was given up; None before the first `gone_in` that has to wait.
    _left: asyncio.Event | None = None

    def __len__(self) -> int:
        return len(self._there)

    def add(self, arrival: Arrival) -> None:
        """Note a request that has begun to arrive."""
        self._there.add(arrival)

    def remove(self, arrival: Arrival) -> None:
        """Note that a request is no longer arriving: it has arrived, or was given up."""
        self._there.discard(arrival)
        if self._left is not None:
            self._left.set()

    async def gone_in(self) -> None:
        """Wait until each request that is arriving now has arrived or was given up; ignore later requests."""
        there = set(self._there)
        while there & self._there:
            if self._left is None:
                self._left = asyncio.Event()
            self._left.clear()
            await self._left.wait()


@attrs.frozen(eq=False)
class Arrival:
    """A block in which a request has a place in a queue while it arrives; see `InferenceSession.arriving`.

    Args:
        arrivals: of the session.
        batcher: holds the place.
        client: the sender of the request; None if unknown.

    Attributes:
        deadline: when the request's time is over, on the loop's clock; None for never.
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
