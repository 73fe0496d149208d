"""Workers fetch the batches of an iteration, on the consumer's own thread, on others or in processes.

A worker is handed jobs and posts letters to the inbox of the iteration that the job belongs to.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import multiprocessing.util  # noqa: F401 (so that its exit handler is registered before the one below, and runs later)
import os
import threading
import time
import weakref
from collections import deque
from multiprocessing.context import BaseContext
from queue import SimpleQueue
from typing import Any, Final

import attrs

from vmflow.vm.wakers import FutureWaker, ThreadWaker

from .fetch import Fetcher, RanOut, Recipe
from .process import RemoteFetcher, leave_open


@attrs.define(eq=False)
class _Sleeper:
    """A consumer that waits for a letter in its inbox."""

    waker: ThreadWaker | FutureWaker


@attrs.define(eq=False)
class Inbox:
    """Where results arrive for one consumer at a time, which sleeps or suspends until there are some.

    It has no lock, so that posting is safe wherever it happens, in a finalizer too.
    """

    letters: deque[Any] = attrs.field(factory=deque)
    # A weak reference; the waiting frame holds the sleeper.  Otherwise the workers, which know the inbox, would keep a
    # coroutine alive that is never resumed because its loop was closed.
    _sleeper: weakref.ref[_Sleeper] | None = None

    def post(self, letter: object) -> None:
        """Add a letter and wake the consumer; from any thread."""
        self.letters.append(letter)
        known = self._sleeper
        sleeper = None if known is None else known()
        if sleeper is not None:
            sleeper.waker.wake()

    def wait(self, seconds: float | None) -> bool:
        """Block until there is a letter, for this many seconds at most; returns whether there is one."""
        waker = ThreadWaker()
        sleeper = _Sleeper(waker)
        self._sleeper = weakref.ref(sleeper)
        try:
            # A letter posted before the waker was in place did not wake it.
            return bool(self.letters) or waker.sleep(seconds) or bool(self.letters)
        finally:
            self._sleeper = None
            del sleeper

    async def wait_async(self, seconds: float | None, seen: int = 0) -> bool:
        """As `wait`, but suspends the coroutine, until there are more letters than `seen`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        sleeper = _Sleeper(FutureWaker(loop, future))
        self._sleeper = weakref.ref(sleeper)
        try:
            if len(self.letters) <= seen:
                async with asyncio.timeout(seconds):
                    await future
        except TimeoutError:
            return len(self.letters) > seen
        finally:
            self._sleeper = None
            del sleeper
        return True


@attrs.define(eq=False)
class Assignment:
    """The facts that the workers need about one iteration.

    Attributes:
        inbox: where the iteration's results go.
        base_seed: of the iteration's random numbers.
        context: the context variables of the iteration's consumer.
        over: whether the results are no longer needed.
    """

    inbox: Inbox
    base_seed: int
    context: contextvars.Context
    over: bool = False


@attrs.frozen(eq=False)
class Job:
    """A job for a worker: to fetch the batch of `ticket`, or, without a ticket, to call the function `order`."""

    assignment: Assignment
    ticket: int | None
    order: Any


@attrs.frozen
class Letter:
    """The result of a job: a batch or the result of the call; an error; or that the dataset's iterator had ended."""

    ticket: int | None
    value: Any = None
    error: BaseException | None = None
    ran_out: bool = False


@attrs.define(eq=False)
class InlineWorker:
    """A worker without a thread: it does a job in the call of `post` that hands it over."""

    _fetcher: Fetcher | RemoteFetcher
    _assignment: Assignment | None = None
    _context: contextvars.Context = attrs.field(factory=contextvars.copy_context)

    def post(self, job: Job) -> None:
        """Do the job, and post its letter."""
        first = job.assignment is not self._assignment
        if first:
            self._assignment = job.assignment
            self._context = job.assignment.context.copy()
        job.assignment.inbox.post(self._context.run(_done, self._fetcher, job, first))

    def forget(self, assignment: Assignment) -> None:
        """Note that the iteration of `assignment` is over."""
        if assignment is self._assignment:
            self._fetcher.forget()
            self._assignment = None


def _done(fetcher: Fetcher | RemoteFetcher, job: Job, first: bool) -> Letter:
    """Do the job, the `first` of an iteration or a later one; the letter has its result or error."""
    try:
        if first:
            fetcher.begin(job.assignment.base_seed)
        if job.ticket is None:
            return Letter(None, job.order())
        return Letter(job.ticket, fetcher.fetch(job.ticket, job.order))
    except RanOut:
        return Letter(job.ticket, ran_out=True)
    except BaseException as error:
        return Letter(job.ticket, error=error)


class ThreadWorker:
    """A thread that does its jobs in order, and skips jobs of iterations that are over.

    The thread is a daemon, since the interpreter waits for threads that are no daemons before it calls its exit
    handlers.  No method takes a lock that a finalizer may find taken.

    Args:
        fetcher: fetches the batches; a remote one is ended with the thread.
        name: of the thread.
        ends: gets a letter when the thread ends.
    """

    def __init__(self, fetcher: Fetcher | RemoteFetcher, name: str, ends: Inbox) -> None:
        self._inline = InlineWorker(fetcher)
        self._remote = fetcher if isinstance(fetcher, RemoteFetcher) else None
        self._queue: SimpleQueue[Job | Assignment | None] = SimpleQueue()
        self._ends = ends
        self._stopping = False
        self.thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self.thread.start()

    def post(self, job: Job) -> None:
        """Hand over a job, without waiting."""
        self._queue.put(job)

    def forget(self, assignment: Assignment) -> None:
        """Note that the iteration of `assignment` is over."""
        self._queue.put(assignment)

    def stop(self) -> None:
        """Let the thread end after its present job, and its process now; does not wait."""
        self._stopping = True
        self._queue.put(None)
        if self._remote is not None:
            self._remote.interrupt()

    def _serve(self) -> None:
        try:
            while not self._stopping:
                item = self._queue.get()
                if item is None or self._stopping:
                    break
                if isinstance(item, Assignment):
                    self._inline.forget(item)
                elif not item.assignment.over:
                    self._inline.post(item)
                del item  # the item holds the iteration's inbox, which must not live until the next item comes
        finally:
            if self._remote is not None:
                self._remote.end()
            self._ends.post(None)


class Crew:
    """The workers of a loader for one iteration at a time.

    Args:
        recipe: the settings of the loader.
        threads: how many; with none, jobs are done in the call that hands them over.
        processes: how to start the process behind each thread, None for the threads to do the work.
    """

    def __init__(self, recipe: Recipe, threads: int, processes: BaseContext | None) -> None:
        self._ends = Inbox()
        self.workers: list[InlineWorker | ThreadWorker] = []
        if not threads:
            self.workers.append(InlineWorker(Fetcher(recipe, 0)))
        for number in range(threads):
            fetcher = Fetcher(recipe, number) if processes is None else RemoteFetcher(recipe, number, processes)
            self.workers.append(ThreadWorker(fetcher, f"vmflow-data-{number}", self._ends))
        if threads:
            _crews.add(self)

    def stop(self) -> None:
        """Let all threads end, without waiting.  A second call has no effect."""
        for worker in self._threads():
            worker.stop()

    def join(self, seconds: float | None = None) -> None:
        """Wait until all threads, which were stopped, have ended, for at most `seconds` in all."""
        deadline = None if seconds is None else time.monotonic() + seconds
        for worker in self._threads():
            worker.thread.join(None if deadline is None else max(deadline - time.monotonic(), 0))

    async def join_async(self) -> None:
        """Wait until all threads, which were stopped, have ended; suspends the coroutine."""
        while len(self._ends.letters) < len(self.workers):
            await self._ends.wait_async(None, len(self._ends.letters))
        self.join()  # each thread has posted its last letter, and is about to end

    def _threads(self) -> list[ThreadWorker]:
        return [worker for worker in self.workers if isinstance(worker, ThreadWorker)]


_crews: weakref.WeakSet[Crew] = weakref.WeakSet()

# Seconds for which the interpreter's exit waits, at most, for batches that are being fetched.
_GRACE_SECONDS: Final = 2.0


def _at_exit() -> None:
    leave_open()
    crews = list(_crews)
    for crew in crews:
        crew.stop()
    deadline = time.monotonic() + _GRACE_SECONDS
    for crew in crews:
        crew.join(max(deadline - time.monotonic(), 0))


def _after_fork_in_child() -> None:
    # In a forked child: the threads are the parent's, and so are the processes behind them.
    _crews.clear()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
