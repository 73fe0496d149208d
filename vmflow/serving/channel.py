"""`Channel`: chunks from who computes them to who reads them, a bounded number at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import attrs


@attrs.define(eq=False)
class Channel:
    """A bounded queue with an end.  One task puts and one gets.

    Args:
        room: how many chunks may wait to be read.
    """

    _room: int
    _chunks: deque[Any] = attrs.field(factory=deque)
    _ended: bool = False
    _changed: asyncio.Event = attrs.field(factory=asyncio.Event)

    async def put(self, chunk: Any) -> None:
        """Add a chunk as soon as there is room for it."""
        while len(self._chunks) >= self._room:
            await self._change()
        self._chunks.append(chunk)
        self._changed.set()

    async def wait(self) -> bool:
        """Whether there is a chunk; False at the end.  Returns when one of the two is known."""
        while not self._chunks:
            if self._ended:
                return False
            await self._change()
        return True

    def get(self) -> Any:
        """The oldest chunk."""
        chunk = self._chunks.popleft()
        self._changed.set()
        return chunk

    def end(self) -> None:
        """There will be no more chunks behind those that are there."""
        self._ended = True
        self._changed.set()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()
