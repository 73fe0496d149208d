"""`CloseableBuffer` is a queue that can end: what sources, wait ticks and callbacks take from.

Puts and the closing come from one thread at a time, takes from one thread at a time, which may be another.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final


@final
class NotYet:
    """Nothing is there, but something may come."""


@final
class Ended:
    """Nothing is there, and nothing will come."""


NOT_YET: Final = NotYet()
ENDED: Final = Ended()


@final
class CloseableBuffer:
    """First in, first out, until it is closed and drained.

    Attributes:
        name: for error messages.
        items: what has been put and not been taken.
        closed: whether nothing may be put any more.
    """

    __slots__ = ("closed", "items", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.items: deque[object] = deque()
        self.closed = False

    def put(self, item: object) -> None:
        """Append an item.

        Raises:
            RuntimeError: if the buffer has been closed.
        """
        if self.closed:
            raise RuntimeError(f"the buffer {self.name!r} has been closed and takes nothing any more")
        self.items.append(item)

    def take(self) -> object:
        """The oldest item, `NOT_YET`, or `ENDED`."""
        # Closed is asked first: what is closed by then has all its items.
        closed = self.closed
        if self.items:
            return self.items.popleft()
        return ENDED if closed else NOT_YET

    def ended(self) -> bool:
        """Whether it is closed and drained."""
        return self.closed and not self.items

    def close(self) -> None:
        """Let nothing be put any more; what is there can still be taken.  Closing twice is closing once."""
        self.closed = True

    def discard(self, count: int) -> list[object]:
        """Remove the `count` youngest items; returns them, the oldest first.

        Raises:
            ValueError: if there are fewer.
        """
        if not 0 <= count <= len(self.items):
            raise ValueError(f"the buffer {self.name!r} holds {len(self.items)} items; cannot discard {count}")
        return [self.items.pop() for _ in range(count)][::-1]
