"""One iteration over a loader: `Prefetch` decides, a `Crew` works, and the consumer, blocking or awaiting, drives."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import copy_context
from functools import partial
from typing import Any

from vmflow.context import MODE

from .prefetch import END, NOTHING, Prefetch
from .worker import Assignment, Crew, Inbox, Job, Letter


class Iteration:
    """The part that `Batches` and `AsyncBatches` share.  It holds the workers, which do not hold it.

    Args:
        source: for each batch the order to a worker: indices, one index, or a number of samples.
        crew: the workers.
        prefetch: a new `Prefetch`.
        base_seed: of random numbers.
        eager: whether to fetch batches before the consumer asks for them.
        prime: have a worker draw the first order from the source, which is when samplers shuffle.
        release: called with the crew when it is not needed any more, returns whether it ends; must not block.
        timeout: seconds to wait for a batch, None for as long as it takes.
    """

    def __init__(
        self,
        source: Iterator[Any],
        crew: Crew,
        prefetch: Prefetch,
        base_seed: int,
        eager: bool,
        prime: bool,
        release: Callable[[Crew], bool],
        timeout: float | None,
    ) -> None:
        self.inbox = Inbox()
        self.timeout = timeout
        self.crew = crew
        self.over = False
        self.crew_ends = False
        self._source = source
        self._drawn: deque[Letter] = deque()
        self._drawing = prime
        self._prefetch = prefetch
        self._eager = eager
        self._release = release
        self._assignment = Assignment(self.inbox, base_seed, copy_context())
        self.waiting = False
        if prime:
            crew.workers[0].post(Job(self._assignment, None, partial(next, source, NOTHING)))
        elif eager:
            try:
                self._assign()
            except BaseException:
                self.stop()
                raise

    def advance(self) -> Any:
        """Take in the letters that have arrived, and give the workers new orders.

        Returns:
            The next batch; `NOTHING` if it has not arrived, and `END` when there are no more.

        Raises:
            Exception: that of the worker or the sampler; the iteration is then over.
        """
        while not self.over:
            while self.inbox.letters:
                self._open(self.inbox.letters.popleft())
            letter = self._prefetch.take()
            if self._eager or letter is NOTHING:
                self._assign()
            if letter is not NOTHING:
                return self._result(letter)
            if self._prefetch.finished():
                self.stop()
            elif not self.inbox.letters:
                return NOTHING
        return END

    def stop(self) -> None:
        """End the iteration, without waiting.  Also called as a finalizer, on any thread."""
        if self.over:
            return
        self.over = True
        self._assignment.over = True
        for worker in self.crew.workers:
            worker.forget(self._assignment)
        self.crew_ends = self._release(self.crew)
        self.inbox.post(Letter(None))  # wakes the consumer

    def late(self) -> TimeoutError:
        """End the iteration, since a batch has not come within the timeout; return the error to raise."""
        self.stop()
        return TimeoutError(f"DataLoader: no batch came within {self.timeout} seconds")

    def enter(self) -> None:
        """Note that the consumer begins to wait for a batch; only one consumer may at a time."""
        if self.waiting:
            raise RuntimeError("DataLoader: another thread or task is already waiting for this iterator's next batch")
        self.waiting = True

    def _open(self, letter: Letter) -> None:
        if letter.ticket is not None:
            if letter.ran_out:
                self._prefetch.ran_out(letter.ticket)
            else:
                self._prefetch.arrived(letter.ticket, letter)
            return
        self._drawing = False
        self._drawn.append(letter)

    def _assign(self) -> None:
        if self._drawing:
            return
        while (number := self._prefetch.wanted()) is not None:
            drawn = self._draw()
            if drawn.value is NOTHING:
                self._prefetch.source_ended()
                continue
            ticket = self._prefetch.assign(number)
            if drawn.error is not None:
                # The sampler's error ends the iteration; with `in_order` all batches drawn before it come first.
                self._prefetch.source_ended()
                self.inbox.post(Letter(ticket, error=drawn.error))
                continue
            self.crew.workers[number].post(Job(self._assignment, ticket, drawn.value))

    def _draw(self) -> Letter:
        if self._drawn:
            return self._drawn.popleft()
        try:
            return Letter(None, next(self._source, NOTHING))
        except Exception as error:
            return Letter(None, error=error)

    def _result(self, letter: Letter) -> Any:
        if letter.error is None:
            return letter.value
        self.stop()
        try:
            raise letter.error
        finally:
            del letter, self  # the traceback has this frame, and must not keep its objects alive


class Batches(Iterator[Any]):
    """Iterates over a loader, blocking; when it is garbage-collected, its workers end unless they are persistent.

    Args:
        iteration: to drive.
    """

    def __init__(self, iteration: Iteration) -> None:
        self._iteration = iteration
        self._finalizer = weakref.finalize(self, iteration.stop)

    def __next__(self) -> Any:
        recorder = MODE.get().interpreter
        if recorder is not None:
            return next(recorder.batches(self))
        iteration = self._iteration
        iteration.enter()
        deadline = None if iteration.timeout is None else time.monotonic() + iteration.timeout
        try:
            while True:
                batch = iteration.advance()
                if batch is END:
                    raise StopIteration
                if batch is not NOTHING:
                    return batch
                left = None if deadline is None else max(deadline - time.monotonic(), 0)
                if not iteration.inbox.wait(left):
                    raise iteration.late()
        except BaseException:
            # The iteration ends here, also for Ctrl-C, since the traceback may keep this iterator alive for long.
            self._finalizer()
            raise
        finally:
            iteration.waiting = False

    def close(self) -> None:
        """End the iteration, and wait for its workers unless they are kept for another; threads finish their batch."""
        self._finalizer()
        if self._iteration.crew_ends:
            self._iteration.crew.join()


class AsyncBatches(AsyncIterator[Any]):
    """Iterates over a loader, suspending the coroutine; garbage collection ends its workers unless persistent.

    Cancelling a coroutine that waits for a batch does not lose the batch: ``asyncio.wait_for(anext(batches), 1)`` may
    be tried again.

    Args:
        iteration: to drive.
    """

    def __init__(self, iteration: Iteration) -> None:
        self.iteration = iteration
        self.finalizer = weakref.finalize(self, iteration.stop)

    def __anext__(self) -> Any:
        return _next(self)

    async def aclose(self) -> None:
        """End the iteration, and wait for its workers unless they are kept for another; threads finish their batch."""
        self.finalizer()
        if self.iteration.crew_ends:
            await self.iteration.crew.join_async()


async def _next(batches: AsyncBatches) -> Any:
    iteration = batches.iteration
    iteration.enter()
    try:
        # Even if batches come faster than they are used, the event loop's other callbacks get their turn.  No batch has
        # been taken yet, so that a cancellation here loses none.
        await asyncio.sleep(0)
        deadline = None if iteration.timeout is None else time.monotonic() + iteration.timeout
        while True:
            batch = iteration.advance()
            if batch is END:
                raise StopAsyncIteration
            if batch is not NOTHING:
                return batch
            left = None if deadline is None else max(deadline - time.monotonic(), 0)
            if not await iteration.inbox.wait_async(left):
                raise iteration.late()
    finally:
        iteration.waiting = False
        # The traceback of a cancellation has this frame, and must not keep the iterator alive.
        del batches
