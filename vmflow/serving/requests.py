"""`Request`: one sample and its state; `RequestQueue`: where requests wait for their turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from vmflow.profiler.session_recorder import Arrival

from .errors import Overloaded

if TYPE_CHECKING:
    from .batcher import Batch

# The states of a request; the last four are final.
QUEUED: Final = "queued"
RUNNING: Final = "running"
DONE: Final = "done"
FAILED: Final = "failed"
CANCELLED: Final = "cancelled"
EXPIRED: Final = "expired"

# How many of one client's requests may overtake a request of a lower priority, for each step between the priorities.
AGEING: Final = 16


class Request:
    """One sample, from its admission to its result.

    Args:
        payload: the checked inputs, for the batcher's `compute`; the queue does not look inside.
        key: only requests of equal keys go into one batch.
        deadline: on the loop's clock; None for none.
        priority: higher goes first.
        client: the sender; None if unknown.

    Attributes:
        future: of the result.
        state: one of the six from `QUEUED` to `EXPIRED`.
        arrived: when this object was made, on the loop's clock.
        timer: ends the request at its deadline; None if none was set.
        rank: the place in the queue; lower goes first.
        number: its number among the accepted requests of the session, from 1; 0 before it is accepted.
        arrival: the record of its arrival; None if there was no recording.
        batch: the last batch that the request was in; None before its turn has come.
        begun: when it left the queue, in nanoseconds of `time.perf_counter_ns`; 0 if there was no recording.
    """

    __slots__ = (
        "arrival",
        "arrived",
        "batch",
        "begun",
        "client",
        "deadline",
        "future",
        "key",
        "number",
        "payload",
        "priority",
        "rank",
        "state",
        "timer",
    )

    def __init__(
        self,
        payload: Any,
        key: Hashable = (),
        deadline: float | None = None,
        priority: int = 0,
        client: Hashable = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.payload = payload
        self.key = key
        self.deadline = deadline
        self.priority = priority
        self.client = client
        self.future: asyncio.Future[Any] = loop.create_future()
        self.state = QUEUED
        self.arrived = loop.time()
        self.timer: asyncio.TimerHandle | None = None
        self.rank = 0
        self.number = 0
        self.arrival: Arrival | None = None
        self.batch: Batch | None = None
        self.begun = 0

    def ended(self) -> bool:
        """Whether the request is done, failed, cancelled or expired."""
        return self.state not in (QUEUED, RUNNING)


class RequestQueue:
    """Requests that wait, bounded; by priority, and fair between clients.

    Each request gets a rank when it arrives, and the lowest rank goes first.  The ranks of one client's requests follow
    each other, while those of different clients lie side by side: start-time fair queueing (Goyal, Vin, Cheng 1996),
    every request counting the same.  A step of priority takes `AGEING` from the rank, so that each client's requests
    overtake one of a lower priority at most about that often.

    Args:
        limit: how many requests may wait, reserved places included; see also `put`.
        limit_per_client: how many of these may be one known client's.

    Attributes:
        passed_over: keys whose requests `peek` and `take` leave in the queue for now.
    """

    def __init__(self, limit: int, limit_per_client: int) -> None:
        self.limit = limit
        self.limit_per_client = limit_per_client
        # For each key, a heap of (rank, serial, request); ended requests stay until they come to the top, or are many.
        self._heaps: dict[Hashable, list[tuple[int, int, Request]]] = {}
        self._serial = count()
        # Numbers of waiting requests: by key, by client, and in all.
        self._together: dict[Hashable, int] = {}
        self._by_client: dict[Hashable, int] = {}
        self._waiting = 0
        # Numbers of places held by arriving requests: in all, and by client.
        self._reserved = 0
        self._reserved_by_client: dict[Hashable, int] = {}
        self.passed_over: set[Hashable] = set()
        # The number of ended requests that are still in the heaps.
        self._stale = 0
        # The rank, before priority, of the request that each waiting client put last; the highest such rank taken.
        self._last: dict[Hashable, int] = {}
        self._now = 0

    def __len__(self) -> int:
        return self._waiting

    def reserve(self, client: Hashable, retry_after: Callable[[], float], spare: Callable[[], int]) -> None:
        """Take a place for a request that is arriving, until `release`.

        Args:
            client: the sender of the request; None if unknown.
            retry_after, spare: as `put`.

        Raises:
            Overloaded: as `put`.
        """
        self._check_limits(client, retry_after, spare)
        self._reserved += 1
        self._reserved_by_client[client] = self._reserved_by_client.get(client, 0) + 1

    def release(self, client: Hashable) -> None:
        """Give up a reserved place."""
        self._reserved -= 1
        left = self._reserved_by_client[client] - 1
        if left:
            self._reserved_by_client[client] = left
        else:
            del self._reserved_by_client[client]

    def _check_limits(self, client: Hashable, retry_after: Callable[[], float], spare: Callable[[], int]) -> None:
        taken = self._waiting + self._reserved
        if taken >= self.limit and taken >= self.limit + spare():
            raise Overloaded(f"{taken} requests are waiting, which is all that may", retry_after())
        if client is None:
            return
        own = self._by_client.get(client, 0)
        if self._reserved:
            own += self._reserved_by_client.get(client, 0)
        if own >= self.limit_per_client and own >= self.limit_per_client + spare():
            raise Overloaded(f"{own} requests of this client are waiting, which is all that may", retry_after())

    def put(self, request: Request, retry_after: Callable[[], float], spare: Callable[[], int] = lambda: 0) -> None:
        """Put a request into the queue.

        Args:
            request: a new one.
            retry_after: returns the seconds after which a refused caller may try again.
            spare: returns how many requests may be accepted beyond the limits.

        Raises:
            Overloaded: if the queue, or the known client's part of it, is full, and `spare` permits no more.
        """
        client, key = request.client, request.key
        self._check_limits(client, retry_after, spare)
        of_client = self._by_client.get(client, 0)
        tag = self._now + 1
        if of_client and self._last[client] >= tag:
            tag = self._last[client] + 1
        self._last[client] = tag
        request.rank = rank = tag - AGEING * request.priority
        heap = self._heaps.get(key)
        if heap is None:
            heap = self._heaps[key] = []
        heappush(heap, (rank, next(self._serial), request))
        self._waiting += 1
        self._together[key] = self._together.get(key, 0) + 1
        self._by_client[client] = of_client + 1

    def take(self, most: int) -> list[Request]:
        """Take the request whose turn it is and others of its key, up to `most` in all; in order."""
        return self._taken(self._first(), most)

    def take_along(self, key: Hashable, most: int) -> list[Request]:
        """Take up to `most` requests of this key, passed over or not; in order."""
        return self._taken(self._heaps.get(key), most)

    def _taken(self, heap: list[tuple[int, int, Request]] | None, most: int) -> list[Request]:
        taken: list[Request] = []
        while heap and len(taken) < most:
            rank, _, request = heappop(heap)
            if request.state != QUEUED:
                self._stale -= 1
                continue
            request.state = RUNNING
            self._left(request)
            passed = rank + AGEING * request.priority
            if passed > self._now:
                self._now = passed
            taken.append(request)
        if heap is not None and not heap and taken:
            del self._heaps[taken[0].key]
        return taken

    def _first(self) -> list[tuple[int, int, Request]] | None:
        """The heap whose first request is the first of all that may be taken; None if there is none."""
        best: list[tuple[int, int, Request]] | None = None
        for key, heap in list(self._heaps.items()):
            if key in self.passed_over:
                continue
            while heap and heap[0][2].state != QUEUED:
                heappop(heap)
                self._stale -= 1
            if not heap:
                del self._heaps[key]
            elif best is None or heap[0][:2] < best[0][:2]:
                best = heap
        return best

    def peek(self) -> tuple[Request, int] | None:
        """The request whose turn it is, and how many of its key wait, with itself; None if none may be taken."""
        heap = self._first()
        return None if heap is None else (heap[0][2], self._together[heap[0][2].key])

    def discard(self, request: Request, state: str) -> None:
        """Take out a waiting request, and set its final state."""
        assert request.state == QUEUED
        request.state = state
        self._left(request)
        self._stale += 1
        # Ended requests must not pile up in the heaps, since the limit of waiting ones is to bound the memory.
        if self._stale > self._waiting + 64:
            for key, heap in list(self._heaps.items()):
                heap[:] = [entry for entry in heap if entry[2].state == QUEUED]
                heapify(heap)
                if not heap:
                    del self._heaps[key]
            self._stale = 0

    def waiting(self) -> list[Request]:
        """All waiting requests, in no order."""
        return [request for heap in self._heaps.values() for _, _, request in heap if request.state == QUEUED]

    def _left(self, request: Request) -> None:
        self._waiting -= 1
        key, client = request.key, request.client
        together = self._together[key] - 1
        if together:
            self._together[key] = together
        else:
            del self._together[key]
        of_client = self._by_client[client] - 1
        if of_client:
            self._by_client[client] = of_client
        else:
            # The next request of a client without waiting ones gets a rank as if it were the client's first.
            del self._by_client[client], self._last[client]
