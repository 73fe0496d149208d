"""`InferenceSession`: a model that answers single requests, computed in batches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Hashable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from vmflow.context import MODE
from vmflow.instructions.scope import Scope
from vmflow.tensors import Tensor
from vmflow.vm.wakers import running_loop

from .arrivals import Arrival, Arrivals
from .batcher import Batch, Batcher
from .channel import Channel
from .errors import Draining, Expired, InvalidInput, NotReady, ServingError
from .requests import RUNNING, Request
from .runner import Runner
from .specs import Dim, Signature, Specs
from .statistics import Statistics
from .threads import LoopThread, in_thread
from .tracing import SessionTracing

State: TypeAlias = Literal["new", "warming", "ready", "draining", "closed"]

# A function of the model and of the inputs of one request that yields chunks; see `InferenceSession.stream`.
StreamFunction: TypeAlias = Callable[[Any, Any], AsyncIterator[Any]]


class InferenceSession:
    """A model that answers requests, each of one sample, from coroutines and from threads.

        session = serving.InferenceSession(model, inputs=serving.TensorSpec((1, 8, 8)))
        async with session:
            scores = await session.run(image)

    Samples that wait at the same time are computed in batches, which are padded to the next of a few sizes: with
    `graph`, the model is compiled for each size before the session is ready.  In plain code ``with`` runs the session
    on a thread of its own, and `run_sync` waits for the result.

    As a rule, batches of a graph that take less than a millisecond, which is measured, are computed on the loop's
    thread; slower ones on a worker.

    Args:
        model: a module in evaluation mode, a function of tensors, an `nn.Graph`, or a folder in which one was saved.
            The model is called with batches: every input and output has one more dimension in front.
        inputs: a `TensorSpec`, or several in a sequence or by name, as the model takes them; not needed for a folder,
            unless the graph was saved for inputs that differ in more than the batch.
        outputs: the shapes of all results, in the order in which the model nests them, without the dimension of the
            batch.  A `Dim` cuts a padded dimension back to the request's size; by default nothing is cut.
        graph: whether a module or function is compiled; if not, its ops are issued one by one.
        max_batch: the most samples in a batch; ignored if `batch_sizes` are given.
        batch_sizes: to which batches are padded, ascending; by default the powers of two below `max_batch`, and
            `max_batch`.  A saved graph has the sizes that it was saved for.
        batch_invariant: give a sample the same bits with any other samples in its batch.  Warming up tries this with
            random samples (integers are 0), and leaves in `batch_sizes` only the largest size that passes; batches may
            well be slower.
        max_wait: seconds that a request may wait for others although it could be computed.
        max_queue: how many requests, and how many streams, may wait, including those that are `arriving`.
        max_queue_per_client: how many of these may be one client's (None is no client); by default half of them.
        concurrency: batches that are computed at a time.
        timeout: seconds in which a request without a timeout of its own must have its result; None for no limit.
        stream: a function that yields the chunks of a stream for the inputs of one request; see the method `stream`.
        max_streams: streams that run at a time; the others wait as requests do.
        max_streams_per_client: how many of these may be one client's; by default half.
        look_ahead: chunks of a stream that may wait for its reader; one more is computed ahead.
        name: for messages and metrics.

    Attributes:
        state: "new", "warming", "ready", "draining" or "closed".
        statistics: see `Statistics`.
        arrivals: requests that are arriving, which a drain lets in first.
        version: of the weights; goes up with each `swap`.

    Raises:
        TypeError: if `model` cannot be called, or `inputs` are missing or no `TensorSpec`.
        ValueError: for a count that is no positive integer, a `timeout` that is not positive, a negative `max_wait`,
            batch sizes that do not ascend, two `Dim` of one name that differ, a module in training mode, or a saved
            graph whose inputs have no batch or need `inputs`.
        Exception: exceptions of `load_graph`, for a folder.

    Example:
        >>> model, inputs = flow.nn.Linear(2, 1).eval(), flow.serving.TensorSpec((2,))
        >>> _ = flow.nn.init.ones_(model.weight), flow.nn.init.zeros_(model.bias)
        >>> with flow.serving.InferenceSession(model, inputs=inputs, batch_sizes=[1, 4]) as session:
        ...     session.run_sync([1.0, 2.0])
        array([3.], dtype=float32)
    """

    def __init__(
        self,
        model: Any,
        *,
        inputs: Specs | None = None,
        outputs: Sequence[Sequence[int | Dim]] | None = None,
        graph: bool = True,
        max_batch: int = 32,
        batch_sizes: Sequence[int] | None = None,
        batch_invariant: bool = False,
        max_wait: float = 0.0,
        max_queue: int = 256,
        max_queue_per_client: int | None = None,
        concurrency: int = 1,
        timeout: float | None = None,
        stream: StreamFunction | None = None,
        max_streams: int = 8,
        max_streams_per_client: int | None = None,
        look_ahead: int = 1,
        name: str = "session",
    ) -> None:
        counts = {
            "max_batch": max_batch,
            "max_queue": max_queue,
            "concurrency": concurrency,
            "max_streams": max_streams,
            "look_ahead": look_ahead,
        }
        if max_queue_per_client is not None:
            counts["max_queue_per_client"] = max_queue_per_client
        if max_streams_per_client is not None:
            counts["max_streams_per_client"] = max_streams_per_client
        for argument, value in counts.items():
            if type(value) is not int or value < 1:
                raise ValueError(f"InferenceSession: {argument} must be a positive integer, not {value!r}")
        if not max_wait >= 0 or (timeout is not None and not timeout > 0):
            raise ValueError(f"InferenceSession: expected seconds, got max_wait={max_wait!r} and timeout={timeout!r}")
        self.name = name
        self.state: State = "new"
        self.statistics = Statistics()
        self.arrivals = Arrivals()
        self.version = 0
        self.timeout = timeout
        self._runner = Runner(
            model,
            inputs,
            outputs,
            graph=graph,
            batch_sizes=batch_sizes if batch_sizes is not None else _powers_of_two(max_batch),
            invariant=batch_invariant,
            statistics=self.statistics,
        )
        self._stream_function = stream
        self._settings = (max_wait, max_queue, max_queue_per_client or max(1, max_queue // 2), concurrency)
        self._stream_places = (max_streams, max_streams_per_client or max(1, max_streams // 2))
        self._look_ahead = look_ahead
        self._batches: Batcher | None = None
        self._streams: Batcher | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._own_loop: LoopThread | None = None
        self._swapping: asyncio.Lock | None = None

    # Properties

    @property
    def signature(self) -> Signature:
        """The declaration of the session's inputs."""
        return self._runner.signature

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The sizes to which batches are padded."""
        return self._runner.batch_sizes

    @property
    def streams(self) -> bool:
        """Whether the session has a stream function, so that `stream` can be called."""
        return self._stream_function is not None

    def stats(self) -> dict[str, Any]:
        """The state, the version, `Statistics.as_dict`, and how many requests arrive, wait and are computed now."""
        batchers = self._batchers()
        return {
            "state": self.state,
            "version": self.version,
            **self.statistics.as_dict(),
            "arriving": len(self.arrivals),
            "queued": sum([batcher.queued() for batcher in batchers]),
            "running": sum([batcher.running() for batcher in batchers]),
        }

    # Starting and ending

    async def start(self) -> None:
        """Compile and run the model for every size, on a thread; returns when the session is ready, or was closed.

        Raises:
            RuntimeError: if the session was started or closed before, or `batch_invariant` holds for no size.
            ValueError: if results have no batch dimension, or other shapes than `outputs`.
            Exception: exceptions of the model for inputs of the declared shapes.
        """
        if self.state != "new":
            raise RuntimeError(f"session {self.name!r} is {self.state}; make a new one")
        self.state = "warming"
        self._loop = asyncio.get_running_loop()
        self._swapping = asyncio.Lock()
        try:
            await in_thread(self._runner.warm_up, f"{self.name}: warm-up")
        except BaseException:
            self.state = "closed"
            raise
        if self.state != "warming":
            return  # closed meanwhile
        wait, limit, per_client, places = self._settings
        tracing = SessionTracing(self.name)
        self._batches = Batcher(
            self._compute,
            self.statistics,
            self.statistics.batches,
            most=self._runner.batch_sizes[-1],
            places=places,
            wait=wait,
            limit=limit,
            limit_per_client=per_client,
            hurries=True,
            computed_here=self._runner.computes_here,
            tracing=tracing,
        )
        self._streams = Batcher(
            self._run_stream,
            self.statistics,
            self.statistics.streams,
            most=1,
            places=self._stream_places[0],
            places_per_client=self._stream_places[1],
            wait=0.0,
            limit=limit,
            limit_per_client=per_client,
            tracing=tracing,
        )
        self.state = "ready"

    async def drain(self, delay: float = 0.0, timeout: float | None = None) -> bool:
        """Report "not ready", refuse new requests after a delay, and finish the others; returns whether all ended.

        A session that is neither ready nor draining is left as it is, and True returned.

        Args:
            delay: seconds in which requests are still taken, until load balancers have noticed that the session is not
                ready; then until the bodies have arrived that were being read at the end of the delay.
            timeout: seconds after the delay for the requests under way; None for as long as they take.
        """
        if self.state != "ready" and self.state != "draining":
            return True
        self.state = "draining"
        await asyncio.sleep(delay)
        batchers = self._batchers()
        try:
            async with asyncio.timeout(timeout):
                try:
                    await self.arrivals.gone_in()
                finally:
                    for batcher in batchers:
                        batcher.refuse(Draining)
                for batcher in batchers:
                    await batcher.until_idle()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """End immediately: requests that wait or are being computed fail with `NotReady`."""
        self.state = "closed"
        for batcher in self._batchers():
            await batcher.close()
        self._runner.close()

    async def __aenter__(self) -> InferenceSession:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        try:
            if kind is None:
                await self.drain()
        finally:
            await self.close()

    def __enter__(self) -> InferenceSession:
        if self.state != "new":
            raise RuntimeError(f"session {self.name!r} is {self.state}; make a new one")
        self._own_loop = LoopThread(self.name)
        try:
            self._own_loop.call(self.start)
        except BaseException:
            self._own_loop.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        own = self._own_loop
        assert own is not None
        try:
            own.call(lambda: self.__aexit__(kind, error, trace))
        finally:
            own.stop()

    def _batchers(self) -> list[Batcher]:
        return [batcher for batcher in (self._batches, self._streams) if batcher is not None]

    # Requests

    async def run(
        self, inputs: Any, *, timeout: float | None = None, priority: int = 0, client: Hashable = None
    ) -> Any:
        """The result for one sample: numpy arrays, nested as the model returns tensors.

        Cancelling the coroutine takes the request out of the queue, or gives its result up.

        Args:
            inputs: an array, a tensor or nested lists if the session was given one `TensorSpec`; else as many of these,
                in a dict if they were declared by name, or else in a list or a tuple.
            timeout: seconds in which the request must have its result; by default the session's.  The deadline of the
                `flow.scope` around holds as well.
            priority: requests of a higher priority go first; a lower one gets its turn, but later.
            client: the sender; requests of different clients take turns.

        Raises:
            InvalidInput: if the inputs do not fit the session.
            Overloaded: if as many requests wait as may, or as many of the client; `retry_after` says when to try again.
            Draining, NotReady: if the session takes no requests.
            Expired: when the loop notices that the deadline has passed, even while the request is being computed.
            ValueError: if `timeout` is not positive.
            RuntimeError: on another event loop than the session's.
            Exception: exceptions of the model for this sample, or of an op that computes one of the inputs.
        """
        try:
            batches = self._ready(self._batches)
            deadline = self._deadline(timeout)
            if type(inputs) is not np.ndarray:
                await self._read(inputs, batches, client, deadline)
            arrays, sizes = self.signature.arrays(inputs)
            payload, key = self._runner.prepared(arrays, sizes)
            request = Request(payload, key, deadline, priority, client)
            batches.submit(request)
        except ServingError as error:
            self.statistics.reject(error)
            raise
        try:
            return await request.future
        except asyncio.CancelledError:
            batches.cancel(request)
            raise

    def run_sync(self, inputs: Any, *, timeout: float | None = None, priority: int = 0, client: Hashable = None) -> Any:
        """`run` for plain code, on any thread but that of the session's loop.

        Raises:
            RuntimeError: on the thread of the session's loop, which would wait for itself.
            Exception: as `run`.
        """
        loop = self._loop
        if loop is None or loop.is_closed():
            raise NotReady(f"session {self.name!r} has not been started; use it in a `with` block")
        if running_loop() is loop:
            raise RuntimeError(f"run_sync would block the loop of session {self.name!r}; await run() there")
        work = self.run(inputs, timeout=timeout, priority=priority, client=client)
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    async def stream(
        self, inputs: Any, *, timeout: float | None = None, priority: int = 0, client: Hashable = None
    ) -> AsyncGenerator[Any, None]:
        """The chunks that the session's stream function yields for one sample.

            async def tokens(model, prompt):  # the stream function: prompt is an array, without a batch dimension
                codes = flow.from_numpy(prompt[np.newaxis])
                for _ in range(100):
                    with flow.no_grad():
                        best = model(codes)[0, -1].argmax()
                    yield (await best).item()  # one chunk; awaited, since waiting would block the event loop
                    codes = flow.cat([codes, best.reshape(1, 1)], 1)

            session = serving.InferenceSession(model, inputs=spec, stream=tokens)
            async with session, contextlib.aclosing(session.stream([1, 2, 3])) as chunks:
                async for token in chunks:
                    print(token)

        ``examples/stream_tokens.py`` is a whole program.  The stream function is called as ``function(model, inputs)``
        and must return an async iterator, as an async generator function does:

        - *Arguments.*  The model that the session was made of; the function calls the model itself: no batches are
          formed, and nothing is padded or compiled.  The inputs of this one request, checked, as arrays that the
          function may change: of the shape and dtype of the `TensorSpec`, without a batch dimension, each `Dim` in the
          request's size.  One array for a session of one `TensorSpec`; else a tuple of arrays, or a dict by name.
        - *Chunks.*  Objects of any type, passed on as they are.  Over HTTP a chunk must fit into JSON: numbers,
          strings, None, arrays, tensors, and lists and dicts of these.
        - *Running.*  The function runs on the event loop, in a task of its own with the `contextvars` that the session
          was started in, when the request has one of `max_streams` places, and keeps the place until it ends.  It
          records gradients unless it uses ``no_grad``: as a decorator, or in a block without a ``yield``.  It computes
          at most `look_ahead` chunks, and the one that it yields, ahead of the reader: then it waits at its ``yield``.
        - *End.*  The function returns, or raises an exception, which the reader gets after the chunks before it.  When
          the reader closes the iterator, the deadline passes, or the client of an HTTP request leaves or stops reading,
          the function is ended from outside: by `asyncio.CancelledError` at its ``await``, or `GeneratorExit` at its
          ``yield``.  Its ``finally`` blocks run, and may await.

        A reader that leaves before the end should close the iterator, as above: else the function waits at its
        ``yield``, and keeps its place, until garbage is collected.  New weights (`swap`) wait for streams that run.

        Args:
            inputs, priority, client: as `run`.
            timeout: seconds for the whole stream, from when its first chunk is asked for; by default the session's.

        Raises:
            InvalidInput: if the session has no stream function, or as `run`.
            Overloaded, Draining, NotReady, Expired, ValueError, RuntimeError: as `run`.
            Exception: exceptions of the function, after the chunks before them.
        """
        try:
            streams = self._ready_streams()
            deadline = self._deadline(timeout)
            await self._read(inputs, streams, client, deadline)
            arrays, _ = self.signature.arrays(inputs)
            chunks = Channel(self._look_ahead)
            request = Request((arrays, chunks), client, deadline, priority, client)
            streams.submit(request)
        except ServingError as error:
            self.statistics.reject(error)
            raise
        request.future.add_done_callback(lambda _: chunks.end())
        try:
            while await chunks.wait():
                yield chunks.get()
            await request.future
        finally:
            streams.cancel(request)

    def arriving(self, *, client: Hashable = None, stream: bool = False) -> Arrival:
        """Hold a place in the queue for a request that is arriving, in a ``with`` block that receives its body.

        After the block, call `run` or `stream` without an await in between, so that no other request gets the place,
        and with a timeout that ends at the returned object's `deadline` (None for none), which counts from now.  A
        drain waits for the requests in such blocks.

        Args:
            client: as for `run`.
            stream: whether the request is answered by a stream.

        Raises:
            InvalidInput: for a stream, if the session has no stream function.
            NotReady, RuntimeError: as `run`; when the block is entered, also `Overloaded` and `Draining`.  None of them
                is counted as a rejection, see `Statistics.reject`.
        """
        batcher = self._ready_streams() if stream else self._ready(self._batches)
        return Arrival(self.arrivals, batcher, client, self._deadline(None))

    def _ready_streams(self) -> Batcher:
        if self._stream_function is None:
            raise InvalidInput(f"session {self.name!r} has no stream; give it a function as stream=")
        return self._ready(self._streams)

    def _ready(self, batcher: Batcher | None) -> Batcher:
        if batcher is None or self.state == "closed":
            raise NotReady(f"session {self.name!r} is {self.state}, not ready")
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError(f"session {self.name!r} lives on another event loop; use run_sync from other threads")
        return batcher

    async def _read(self, inputs: Any, batcher: Batcher, client: Hashable, deadline: float | None) -> None:
        """Wait for inputs that are tensors or lists of tensors, so that reading their values does not block.

        Meanwhile the request has a place in the queue of `batcher`.

        Raises:
            Overloaded: if that queue is full, or the client has too many requests in it.
            Expired: if the deadline passes before they are computed.
            Exception: that of the op that failed to compute one.
        """
        try:
            values = self.signature.values(inputs)
        except InvalidInput:
            return  # `Signature.arrays` raises it
        tensors: list[Tensor] = []
        for value in values:
            several = isinstance(value, list | tuple) and len(value) and isinstance(value[0], Tensor)
            tensors += [entry for entry in (value if several else (value,)) if isinstance(entry, Tensor)]
        if not tensors:
            return
        limit = asyncio.timeout_at(deadline)
        try:
            with Arrival(self.arrivals, batcher, client, deadline):
                async with limit:
                    for tensor in tensors:
                        await tensor
        except TimeoutError:
            if not limit.expired():
                raise
            raise Expired("the deadline has passed while tensors among the inputs were being computed") from None

    def _deadline(self, timeout: float | None) -> float | None:
        if timeout is None:
            timeout = self.timeout
        elif not timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds, not {timeout!r}")
        scope = MODE.get().scope
        around = scope.deadline if scope is not None else None
        if timeout is None:
            return around
        own = asyncio.get_running_loop().time() + timeout
        return own if around is None else min(own, around)

    # Computing

    def _compute(self, requests: Sequence[Request], batch: Batch) -> Coroutine[Any, Any, Sequence[Any]]:
        priority = max([request.priority for request in requests])
        return self._runner.compute([request.payload for request in requests], requests[0].key, priority, batch)

    async def _run_stream(self, requests: Sequence[Request], batch: Batch) -> Sequence[Any]:
        (request,) = requests
        arrays, chunks = request.payload
        assert self._stream_function is not None
        task = asyncio.current_task()
        assert task is not None
        batch.abandon, batch.kind = task.cancel, "stream"
        # The scope is set in this task's own context, and never left: by it, traces find the stream's instructions.
        around = MODE.get()
        batch.scope = Scope(around.scope, "stream")
        MODE.set(around.replace(scope=batch.scope))
        produced = self._stream_function(self._runner.model, self.signature.packed(arrays))
        try:
            async for chunk in produced:
                if request.state != RUNNING:
                    break
                await chunks.put(chunk)
        finally:
            close = getattr(produced, "aclose", None)
            if close is not None:
                await close()
        return [None]

    # Weights

    async def swap(self, state: Mapping[str, Any]) -> int:
        """Give the model other weights; every response is of one version of the weights, the old or the new one.

        Running batches and streams end with the old weights.  New streams wait for the running ones; until these have
        ended, single requests are answered with the old weights.

        Args:
            state: arrays or tensors, named as in the model's `state_dict`.

        Returns:
            The new version.

        Raises:
            Exception: from the model's `load_state_dict`, if names or shapes do not fit; then a module, a graph or a
                saved graph keeps all its weights.
            TypeError: for a model without `load_state_dict`.
            NotReady, RuntimeError: as `run`.
        """
        batches, streams = self._ready(self._batches), self._streams
        assert streams is not None
        assert self._swapping is not None
        async with self._swapping:
            streams.hold()
            try:
                await streams.until_nothing_runs()
                batches.hold()
                try:
                    await batches.until_nothing_runs()
                    self._runner.load(state)
                    self.version += 1
                finally:
                    batches.go_on()
            finally:
                streams.go_on()
        return self.version

    def __repr__(self) -> str:
        return f"<InferenceSession {self.name!r} {self.state}, version {self.version}>"


def _powers_of_two(most: int) -> tuple[int, ...]:
    sizes = [1 << place for place in range(most.bit_length()) if 1 << place < most]
    return (*sizes, most)
