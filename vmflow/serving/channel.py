"""`Channel`: a bounded queue of chunks from the task that computes them to the task that reads them."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import attrs


@attrs.define(eq=False)
class Channel:
    """A bounded queue of chunks with an end.  One task puts chunks and one gets them.

    Args:
        capacity: how many chunks may wait to be read.
    """

    _capacity: int
    _chunks: deque[Any] = attrs.field(factory=deque)
    _ended: bool = False
    _changed: asyncio.Event = attrs.field(factory=asyncio.Event)

    async def put(self, chunk: Any) -> None:
        """Add a chunk; waits while the channel is full."""
        while len(self._chunks) >= self._capacity:
            await self._change()
        self._chunks.append(chunk)
        self._changed.set()

    async def wait(self) -> bool:
        """Wait for a chunk, or for the end; returns whether there is a chunk."""
        while not self._chunks:
            if self._ended:
                return False
            await self._change()
        return True

    def get(self) -> Any:
        """Take the oldest chunk out; there must be one."""
        chunk = self._chunks.popleft()
        self._changed.set()
        return chunk

    def end(self) -> None:
        """Let the reader see the end after the chunks that are in the channel."""
        self._ended = True
        self._changed.set()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()
