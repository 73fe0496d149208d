"""`Prefetch` decides which worker fetches the next batch, and when, and which result the consumer gets next.

`Prefetch` has no thread or clock: events go in, decisions come out.  A batch is known by its ticket, a number;
tickets count the batches in the order of `assign`.  Results are passed through unread.
"""

from __future__ import annotations

from typing import Any, Final

# In place of a result: `NOTHING` if there is none yet, `END` if none will come.
NOTHING: Final = object()
END: Final = object()


class Prefetch:
    """The state of one iteration.

    Args:
        workers: how many workers there are.
        ahead: the most batches for each worker, on average, that may be assigned and not yet taken.
        in_order: whether results are taken in the order of the tickets, or in that of their arrival.

    Attributes:
        on_their_way: how many batches are assigned and not yet taken.
    """

    def __init__(self, workers: int, ahead: int, in_order: bool = True) -> None:
        self._limit = workers * ahead
        self._ahead = ahead
        self._in_order = in_order
        self._active = list(range(workers))  # workers that are not exhausted, in the order of turns
        self._turn = 0
        self._source_ended = False
        self._next_ticket = 0
        self._next_taken = 0
        # The worker of each ticket whose batch has not arrived.
        self._assigned: dict[int, int] = {}
        # For each worker, how many batches are assigned to it and have not arrived.
        self._load = [0] * workers
        # The results not taken, by ticket, in the order of arrival; NOTHING for a ticket without one.
        self._arrived: dict[int, Any] = {}
        self.on_their_way = 0

    def wanted(self) -> int | None:
        """The worker that is to fetch another batch now; None if enough are on their way, or no more will come.

        With `in_order` workers take turns, whatever their speed.  Otherwise the worker with the fewest batches to fetch
        is wanted, if these are fewer than `ahead`.
        """
        if self._source_ended or not self._active or self.on_their_way >= self._limit:
            return None
        if self._in_order:
            return self._active[self._turn % len(self._active)]
        worker = min(self._active, key=self._load.__getitem__)
        return worker if self._load[worker] < self._ahead else None

    def assign(self, worker: int) -> int:
        """Note that `worker`, which was wanted, fetches another batch; returns the batch's ticket."""
        ticket = self._next_ticket
        self._next_ticket += 1
        self._assigned[ticket] = worker
        self._load[worker] += 1
        self._turn = (self._active.index(worker) + 1) % len(self._active)
        self.on_their_way += 1
        return ticket

    def source_ended(self) -> None:
        """Note that no more batches are to be assigned."""
        self._source_ended = True

    def arrived(self, ticket: int, result: Any) -> None:
        """Note the result of a batch: data or an error."""
        self._load[self._assigned.pop(ticket)] -= 1
        self._arrived[ticket] = result

    def ran_out(self, ticket: int) -> None:
        """Note that the worker of `ticket` had nothing left to fetch; `wanted` does not return this worker again."""
        worker = self._assigned[ticket]
        self.arrived(ticket, NOTHING)
        if worker in self._active:
            place = self._active.index(worker)
            del self._active[place]
            if place < self._turn:
                self._turn -= 1
        if not self._in_order:
            del self._arrived[ticket]
            self.on_their_way -= 1

    def take(self) -> Any:
        """Take the next result for the consumer out; `NOTHING` if it has not arrived."""
        if not self._in_order:
            if not self._arrived:
                return NOTHING
            self.on_their_way -= 1
            return self._arrived.pop(next(iter(self._arrived)))
        while self._next_taken in self._arrived:
            result = self._arrived.pop(self._next_taken)
            self._next_taken += 1
            self.on_their_way -= 1
            if result is not NOTHING:
                return result
        return NOTHING

    def finished(self) -> bool:
        """Whether everything was taken and nothing more will come."""
        return self.on_their_way == 0 and (self._source_ended or not self._active)
