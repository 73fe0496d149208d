"""`CloseableBuffer` is a queue that can end.  Tasks that begin or end a launch take items from it: sources, wait
ticks and callbacks.

One thread at a time may put items and close the buffer, and one thread at a time may take items; the two threads may
differ, without a lock.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final


@final
class NotYet:
    """The type of `NOT_YET`: the buffer is empty, but more items may come."""


@final
class Ended:
    """The type of `ENDED`: the buffer is empty, and no more items will come."""


NOT_YET: Final = NotYet()
ENDED: Final = Ended()


@final
class CloseableBuffer:
    """A first-in first-out queue that ends once it is closed and drained.

    Attributes:
        name: for error messages.
        items: the items put and not taken.
        closed: whether it takes no more items.
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
            raise RuntimeError(f"the buffer {self.name!r} has been closed and takes no more items")
        self.items.append(item)

    def take(self) -> object:
        """Remove and return the oldest item; `NOT_YET` or `ENDED` if there is none."""
        # Another thread may put and close meanwhile.  `closed` is read before `items`: a buffer that was closed then
        # gets no further items, so that an empty one has ended.
        closed = self.closed
        if self.items:
            return self.items.popleft()
        return ENDED if closed else NOT_YET

    def ended(self) -> bool:
        """Whether the buffer is closed and drained."""
        return self.closed and not self.items

    def close(self) -> None:
        """Refuse further `put` calls; items in the buffer can still be taken.  Closing twice is allowed."""
        self.closed = True

    def discard(self, count: int) -> list[object]:
        """Remove the `count` youngest items of the buffer, and return them, the oldest first.

        Raises:
            ValueError: if `count` is negative, or the buffer holds fewer items.
        """
        if not 0 <= count <= len(self.items):
            raise ValueError(f"the buffer {self.name!r} holds {len(self.items)} items; cannot discard {count}")
        return [self.items.pop() for _ in range(count)][::-1]
