"""`Batcher`: joins single requests into batches, and delivers a batch's results to the callers of its requests.

Unless `wait` or `hold` forbids it, a batch of as many waiting requests of one key as possible begins as soon as a place
to compute is free.  A batch is computed in the next turn of the loop, with the requests for it that arrive until
then.  If the loop's own thread computes it, the batch waits until it is full, or a turn in which no such request
arrives.  A request that comes alone, as the one before it did, may be computed in the call that submits it: see
`hurries`.

Each request ends once, in `_ended`: done, failed, cancelled or expired.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Hashable, Sequence
from functools import partial
from typing import Any, Final

from vmflow.instructions.scope import Scope
from vmflow.profiler.recorder import LISTENING

from .errors import Draining, Expired, NotReady
from .pace import Pace
from .requests import CANCELLED, DONE, EXPIRED, FAILED, QUEUED, RUNNING, Request, RequestQueue
from .statistics import Statistics, Work
from .tracing import SessionTracing

_log: Final = logging.getLogger(__name__)

# The most results of a batch that are delivered in one turn of the loop, unless the batch is cancelled.  Other
# work runs only between turns, but each turn costs time, too.
_DELIVERED_TOGETHER: Final = 32

# compute(requests, their batch) -> a coroutine of the results, in the order of the requests
Compute = Callable[[Sequence[Request], "Batch"], Coroutine[Any, Any, Sequence[Any]]]


class Batch:
    """Requests that are computed together.

    Attributes:
        requests: the number of requests.
        wanted: the number of requests that have not ended.
        number: its number among the batches and streams of the session, from 1; 0 before it is computed.
        again: whether the batch is a half of one that has failed.

    `compute` may set these; `kind`, `size` and `scope` are for traces:
        abandon: called when all requests have ended, the last without a result; None for nothing.
        kind: "batch" or "stream".
        size: the number of places that the batch was padded to; 0 for a stream.
        scope: of the instructions issued for the batch.
        pace: notes how long the batch took; None if that is not measured.
    """

    __slots__ = ("abandon", "again", "kind", "number", "pace", "requests", "scope", "size", "wanted")

    def __init__(self, requests: int) -> None:
        self.requests = self.wanted = requests
        self.number = 0
        self.again = False
        self.abandon: Callable[[], object] | None = None
        self.kind = "batch"
        self.size = 0
        self.scope: Scope | None = None
        self.pace: Pace | None = None


class Batcher:
    """Admits requests, batches them and delivers their results or errors.

    Belongs to the loop that is running when it is made.  Its methods must be called there, except `queued` and
    `running`, which any thread may call.

    Args:
        compute: see `Compute`; if it fails for several requests, they are tried in halves, so that one that cannot be
            computed fails alone and one batch that is too large for the memory becomes two.
        statistics, work: the counters of requests, and of batches.
        most: the most requests in a batch.
        places: how many batches are computed at a time.
        wait: seconds that a request may wait for others although there is a place to compute.
        limit, limit_per_client: see `RequestQueue`.
        places_per_client: how many of the places one known client may have; None for all.  If a number is given, each
            batch must be of one request, whose key is its client.
        hurries: whether a request that comes alone may be computed in the call of `submit`, as far as `compute` gets
            without waiting; never with a `wait`.  The first step of `compute` then has no task of its own, and must use
            nothing that asks for the current task, such as `asyncio.timeout`.
        computed_here: a function of a number of requests and their key: whether the loop's thread computes such a
            batch.  That thread then reads no requests, so the batch first waits until it is full, or no more of its key
            arrive.
        tracing: passes events on to recordings; by default a new `SessionTracing`.
    """

    def __init__(
        self,
        compute: Compute,
        statistics: Statistics,
        work: Work,
        *,
        most: int,
        places: int,
        wait: float,
        limit: int,
        limit_per_client: int,
        places_per_client: int | None = None,
        hurries: bool = False,
        computed_here: Callable[[int, Hashable], bool] = lambda count, key: False,
        tracing: SessionTracing | None = None,
    ) -> None:
        self._compute = compute
        self._statistics = statistics
        self._work = work
        self._most = most
        self._places = places
        self._places_per_client = places_per_client
        self._places_of: dict[Hashable, int] = {}
        self._wait = wait
        self._queue = RequestQueue(limit, limit_per_client)
        self._loop = asyncio.get_running_loop()
        # A batch belongs to no single request: its task gets a copy of the context in which the batcher was made.
        self._context = contextvars.copy_context()
        self._tasks: set[asyncio.Task[None]] = set()
        self._computed_here = computed_here
        # Whether requests that come alone are computed in `submit`; whether the last batch had one request; whether a
        # request was computed in `submit` in this turn of the loop; and whether one is being computed there now.
        self._hurries = hurries and not wait
        self._alone = True
        self._hurried = False
        self._computing_here = False
        self._running = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._held = False
        self._refusing: type[Draining] | type[NotReady] | None = None
        self._tracing = SessionTracing("batcher") if tracing is None else tracing
        self._tracing.loads.append(self._load)
        # Set when nothing waits and nothing is computed; None if nobody waits for that.
        self._idle: asyncio.Event | None = None

    # Load

    def queued(self) -> int:
        """How many requests wait."""
        return len(self._queue)

    def running(self) -> int:
        """How many requests are in batches that have begun, and have not ended."""
        return self._running

    def _load(self) -> tuple[int, int]:
        return len(self._queue), self._running

    def expected_wait(self) -> float:
        """Estimate the seconds until the waiting requests and one more end, by the mean time of batches; at least 1."""
        batches = math.ceil((len(self._queue) + 1) / self._most) + len(self._tasks)
        return max(1.0, batches * self._work.computing.mean() / self._places)

    # Requests

    def reserve(self, client: Hashable) -> None:
        """Take a place in the queue for a request that is arriving, until `release`.

        Raises:
            Overloaded: as `RequestQueue.put`.
            Draining, NotReady: if the session takes no more requests.
        """
        self._look_whether_open()
        self._queue.reserve(client, self.expected_wait, self._spare)

    def release(self, client: Hashable) -> None:
        """Give up a reserved place; submit the request with no await between, so that no other takes the place."""
        self._queue.release(client)

    def _look_whether_open(self) -> None:
        if self._refusing is not None:
            raise self._refusing("nothing new is taken: the session is ending")

    def _spare(self) -> int:
        """Return how many places to compute are free; 0 if requests wait, or if `hold` forbids batches."""
        if self._held or len(self._queue):
            return 0
        return self._places - len(self._tasks) - self._computing_here

    def submit(self, request: Request) -> None:
        """Put a request into the queue, or compute it in this call: see `hurries`.  A request whose deadline is past
        already is not computed, and ends as expired.

        Raises:
            Overloaded: as `RequestQueue.put`.
            Draining, NotReady: if the session takes no more requests.
        """
        self._look_whether_open()
        due = request.deadline is not None and request.deadline <= self._loop.time()
        hurry = self._alone and not due and self._would_hurry()
        if not hurry:
            self._queue.put(request, self.expected_wait, self._spare)
        self._statistics.accepted += 1
        request.number = self._statistics.accepted
        if LISTENING:
            self._tracing.arrived(request)
        if due:
            self._expire(request)
            return
        if request.deadline is not None:
            request.timer = self._loop.call_at(request.deadline, self._expire, request)
        if hurry:
            self._compute_in_submit(request)
        elif len(self._tasks) < self._places:
            self._pump()

    def cancel(self, request: Request) -> None:
        """Cancel a request whose caller waits no more; do nothing if the request has ended."""
        if not request.ended():
            self._end(request, CANCELLED, None)

    def _expire(self, request: Request) -> None:
        if not request.ended():
            after = self._loop.time() - request.arrived
            doing = "waited" if request.state == QUEUED else "was being computed"
            error = Expired(f"the deadline has passed while the request {doing}, after {after:.3f} s")
            self._end(request, EXPIRED, error)

    def _end(self, request: Request, state: str, outcome: Any) -> None:
        """End a request without a result: `outcome` is the exception for its future, or None to cancel the future."""
        self._ended(request, state, outcome, self._loop.time())
        self._look_whether_idle()

    def _ended(self, request: Request, state: str, outcome: Any, now: float) -> None:
        statistics = self._statistics
        statistics.ends[state] += 1
        statistics.serving.add(now - request.arrived)
        if request.timer is not None:
            request.timer.cancel()
        if request.state == QUEUED:
            statistics.never_ran += 1
            self._queue.discard(request, state)
        else:
            request.state = state
            self._running -= 1
            batch = request.batch
            assert batch is not None
            batch.wanted -= 1
            if not batch.wanted and batch.abandon is not None and state != DONE:
                batch.abandon()
        if LISTENING:
            self._tracing.ended(request, outcome)
        future = request.future
        if not future.done():
            if state == DONE:
                future.set_result(outcome)
            elif outcome is None:
                future.cancel()
            else:
                future.set_exception(outcome)
                future.exception()  # retrieved, since asyncio logs an error that no caller has retrieved

    # Batches

    def hold(self) -> None:
        """Begin no batch until `go_on`."""
        self._held = True

    def go_on(self) -> None:
        """Begin batches again."""
        self._held = False
        self._pump()

    def _pump(self) -> None:
        """Begin batches while a place is free and the next request need not wait for others; none during `hold`."""
        while not self._held and len(self._tasks) + self._computing_here < self._places:
            first = self._queue.peek()
            if first is None:
                return
            request, together = first
            release = "full" if together >= self._most else "free"
            if release == "free" and self._wait > 0:
                due = request.arrived + self._wait
                if self._loop.time() < due:
                    self._wake_at(due)
                    return
                release = "waited"
            self._begin(self._queue.take(self._most), release)

    def _wake_at(self, moment: float) -> None:
        if self._alarm is not None:
            if self._alarm.when() <= moment:
                return
            self._alarm.cancel()
        self._alarm = self._loop.call_at(moment, self._alarmed)

    def _alarmed(self) -> None:
        self._alarm = None
        self._pump()

    def _begin(self, requests: list[Request], release: str) -> None:
        self._alone = len(requests) == 1
        self._work.begun[release] += 1
        batch = Batch(len(requests))
        self._put_into(batch, requests, self._loop.time())
        run = self._run(requests, batch)
        self._start(run, run, requests, self._context.copy())

    def _start(
        self,
        whole: Coroutine[Any, Any, Any],
        left: Coroutine[Any, Any, None],
        requests: list[Request],
        context: contextvars.Context,
    ) -> None:
        """Run `left` in a task that takes a place; at the task's end close `whole`, which `left` is or awaits."""
        task = self._loop.create_task(left, context=context)
        self._tasks.add(task)
        self._count_places(requests[0].client, 1)
        task.add_done_callback(partial(self._over, whole, requests))

    def _would_hurry(self) -> bool:
        """Whether `submit` may compute a request now: `hurries` and `hold` permit it, no request waits, no batch runs.

        `submit` computes at most one request in a turn of the loop, and none during a recording.
        """
        if not self._hurries or self._hurried or self._held or self._computing_here or LISTENING:
            return False
        return not (self._tasks or len(self._queue))

    def _compute_in_submit(self, request: Request) -> None:
        batch = Batch(1)
        requests, begin = [request], request.arrived
        left = False
        # No call from here to the `try`, since KeyboardInterrupt may be raised in a call: a running request must be
        # counted, and in a batch.
        request.batch = batch
        self._running += 1
        request.state = RUNNING
        try:
            self._computing_here = True
            self._loop.call_soon(self._turned, context=self._context)
            self._hurried = True
            batch.number = next(self._tracing.batches)
            self._work.begun["free"] += 1
            self._statistics.waiting.add(0.0)
            context = self._context.copy()
            computing = self._compute(requests, batch)
            results, waiting = _stepped(context, computing)
            if results is not None:
                (result,) = results
                now = self._computed(batch, 1, begin)
                if request.state == RUNNING:
                    self._ended(request, DONE, result, now)
            else:
                left = True
                rest = self._run(requests, batch, _rest(computing, waiting), begin)
                self._start(computing, rest, requests, context)
        except asyncio.CancelledError:
            pass  # the batch was cancelled, not the task that submits
        except Exception as error:
            if request.state == RUNNING:
                self._end(request, FAILED, error)
        finally:
            self._computing_here = False
            if not left:
                self._fail_running(requests)
            if len(self._queue):
                self._pump()
            self._look_whether_idle()

    def _count_places(self, client: Hashable, more: int) -> None:
        """Add `more` to a known client's running batches; at `places_per_client`, the client's other requests wait."""
        if self._places_per_client is None or client is None:
            return
        taken = self._places_of.pop(client, 0) + more
        if taken:
            self._places_of[client] = taken
        if taken >= self._places_per_client:
            self._queue.passed_over.add(client)
        else:
            self._queue.passed_over.discard(client)

    def _put_into(self, batch: Batch, requests: list[Request], now: float) -> None:
        waiting = self._statistics.waiting
        self._running += len(requests)
        for request in requests:
            waiting.add(now - request.arrived)
            request.batch = batch
        if LISTENING:
            self._tracing.begun(requests)

    def _turned(self) -> None:
        self._hurried = False

    def _over(self, run: Coroutine[Any, Any, None], requests: list[Request], task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._count_places(requests[0].client, -1)
        # If the task was cancelled before its first step, a coroutine that `submit` had begun is still open.
        run.close()
        self._fail_running(requests)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a batch has ended in a way that nobody expected", exc_info=error)
        self._pump()
        self._look_whether_idle()

    async def _run(
        self, requests: list[Request], batch: Batch, begun: Awaitable[Sequence[Any]] | None = None, begin: float = 0.0
    ) -> None:
        """Compute requests, with waiting ones of the same key unless the computation has begun.

        Args:
            begun, begin: see `_attempt`.
        """
        try:
            came = begun is None and self._take_along(requests, batch)
            while came and len(requests) < self._most and self._computed_here(len(requests), requests[0].key):
                await asyncio.sleep(0)
                came = self._take_along(requests, batch)
            await self._attempt(requests, batch, begun, begin)
        finally:
            self._fail_running(requests)

    def _take_along(self, requests: list[Request], batch: Batch) -> bool:
        """Add waiting requests of the same key to `requests`, and count them in `batch`; return whether any was added.

        The batch has at most `most` requests then; `hold` forbids additions.
        """
        if self._held or not len(self._queue):
            return False
        others = self._queue.take_along(requests[0].key, self._most - len(requests))
        if not others:
            return False
        self._alone = False
        batch.requests += len(others)
        batch.wanted += len(others)
        self._put_into(batch, others, self._loop.time())
        requests += others
        return True

    def _fail_running(self, requests: list[Request]) -> None:
        """Fail the requests that are still running after their computation, as a cancellation of it leaves them."""
        for request in requests:
            if request.state == RUNNING:
                self._end(request, FAILED, NotReady("the session has stopped in the middle of the request"))

    async def _attempt(
        self,
        requests: Sequence[Request],
        batch: Batch | None = None,
        begun: Awaitable[Sequence[Any]] | None = None,
        begin: float = 0.0,
    ) -> None:
        """Compute the requests that are still wanted; if that fails, each half, since one request may be the cause.

        Args:
            requests: of one batch.
            batch: their batch; None for a half of one that has failed.
            begun: the rest of their computation, if that has begun; else None.
            begin: when their computation began, on the loop's clock; ignored if `begun` is None.
        """
        wanted = [request for request in requests if request.state == RUNNING] if begun is None else requests
        if not wanted:
            return
        if batch is None or len(wanted) < batch.requests:
            again = batch is None
            batch = Batch(len(wanted))
            batch.again = again
            for request in wanted:
                request.batch = batch
        if begun is None:
            batch.number = next(self._tracing.batches)
            begin = self._loop.time()
            if LISTENING:
                self._tracing.batch_began(batch)
            begun = self._compute(wanted, batch)
        try:
            results = await begun
            if len(results) != len(wanted):
                raise ValueError(f"{len(results)} results were computed for {len(wanted)} requests")
        except BaseException as error:
            if LISTENING:
                self._tracing.batch_ended(batch, error)
            if not isinstance(error, Exception):
                raise
            if len(wanted) == 1:
                if wanted[0].state == RUNNING:
                    self._end(wanted[0], FAILED, error)
                return
            for half in (wanted[: len(wanted) // 2], wanted[len(wanted) // 2 :]):
                await self._attempt(half)
            return
        if LISTENING:
            self._tracing.batch_ended(batch, None)
        end = self._computed(batch, len(wanted), begin)
        outcomes = list(zip(wanted, results, strict=True))
        self._deliver(outcomes[:_DELIVERED_TOGETHER], end)
        for start in range(_DELIVERED_TOGETHER, len(outcomes), _DELIVERED_TOGETHER):
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                self._deliver(outcomes[start:], self._loop.time())  # they have been computed
                raise
            self._deliver(outcomes[start : start + _DELIVERED_TOGETHER], self._loop.time())

    def _computed(self, batch: Batch, requests: int, begin: float) -> float:
        """Count a batch that ends now; tell the batch's pace, if any, the duration; return the loop's time."""
        end = self._loop.time()
        if batch.pace is not None:
            batch.pace.took(end - begin)
        self._work.batches += 1
        self._work.samples += requests
        self._work.computing.add(end - begin)
        return end

    def _deliver(self, outcomes: Sequence[tuple[Request, Any]], now: float) -> None:
        for request, result in outcomes:
            if request.state == RUNNING:
                self._ended(request, DONE, result, now)
        self._look_whether_idle()

    # The end

    def refuse(self, why: type[Draining] | type[NotReady]) -> None:
        """Take no more requests; `submit` and `reserve` raise this error instead."""
        self._refusing = why

    async def until_nothing_runs(self) -> None:
        """Wait until no batch is being computed; call `hold` before, so that none begins."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    async def until_idle(self) -> None:
        """Wait until no request waits and none is computed."""
        while not self._is_idle():
            if self._idle is None:
                self._idle = asyncio.Event()
            await self._idle.wait()

    def _is_idle(self) -> bool:
        return not self._tasks and not self._computing_here and not len(self._queue)

    def _look_whether_idle(self) -> None:
        if self._idle is not None and self._is_idle():
            self._idle.set()
            self._idle = None

    async def close(self) -> None:
        """Refuse new requests, fail the waiting ones, cancel the running batches, and wait for the ends of these."""
        self._refusing = NotReady
        for request in self._queue.waiting():
            self._end(request, FAILED, NotReady("the session was closed before the request had its turn"))
        if self._alarm is not None:
            self._alarm.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _stepped(
    context: contextvars.Context, begun: Coroutine[Any, Any, Sequence[Any]]
) -> tuple[Sequence[Any] | None, Any]:
    """Run a coroutine's first step in `context`: return its result and None if it has ended, else None and a value.

    The value is the future that the coroutine waits for, or None after ``asyncio.sleep(0)``.
    """
    try:
        return None, context.run(begun.send, None)
    except StopIteration as end:
        return end.value, None


@types.coroutine
def _rest(begun: Coroutine[Any, Any, Any], waiting: Any) -> Generator[Any, Any, Any]:
    """Return a generator for a task that goes on with a coroutine, which has begun and yielded `waiting`."""
    while True:
        try:
            value = yield waiting
        except BaseException as error:
            step = partial(begun.throw, error)
        else:
            step = partial(begun.send, value)
        try:
            waiting = step()
        except StopIteration as end:
            return end.value
