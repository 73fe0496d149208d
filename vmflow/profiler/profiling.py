"""`profile`: records a block of a program, or some steps of a loop; `record_function`: names a block in the trace."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast

from vmflow import __version__
from vmflow.arguments import whole_number
from vmflow.forking import lock_held_while_forking
from vmflow.vm.virtual_machine import VirtualMachine, current_machine
from vmflow.vm.wakers import running_loop

from . import chrome
from .averages import KeyAverages, make_averages
from .events import Event, Timeline
from .recorder import LISTENING, Recording, current_task
from .records import Trace
from .schedules import ProfilerAction
from .timeline import make_timeline

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_profiled: dict[VirtualMachine, profile] = {}
_profiled_lock = lock_held_while_forking()


class profile:
    """Record the instructions of some virtual machines, from entering the block to leaving it.

    Leaving the block without an exception, in a step that is recorded, waits for the issued instructions: in plain code
    use ``with``, on an event loop ``async with`` (``with`` and `step` do not wait there).  Instructions that still run
    then are marked as unfinished.

    With a schedule, only some steps of a loop are recorded:

        with profile(schedule=schedule(wait=1, warmup=1, active=3), on_trace_ready=save) as prof:
            for batch in batches:
                await step(batch)
                prof.step()

    The trace has a track for every stream, with a slice for each instruction that it ran, and a track for every task
    and thread, with a slice for each instruction issued and for each wait.  Arrows lead from issuing to running to
    waiting.  A scope's slice lasts from entering the scope, or the recording's beginning, to the end of the last
    recorded instruction or wait in the scope.

    Sessions of `vmflow.serving` are recorded as well, on any machine.  Each session is a process of its own in the
    trace: a slice for every request, from its arrival to its end, with its waiting and computing inside; a slice for
    every batch and stream; and counters of the requests that wait and that are computed.  Arrows lead from a request's
    waiting to its batch, to the first instruction that a recorded machine ran for that batch, and to the request's end.

    Args:
        machines: the recorded machines; by default the one that is current on entering.
        schedule: chooses the steps to record, see `schedule`; everything by default.
        on_trace_ready: called with this object at the end of each recording.
        max_events: the most ended events that one recording keeps; further ones are only counted.

    Attributes:
        step_num: the number of steps that have ended.

    Raises:
        TypeError: if an argument is of the wrong kind; on entering, if `schedule` returns no `ProfilerAction`.
        ValueError: if `machines` is empty or has a machine twice, or `max_events` is not positive.
        RuntimeError: on entering, if one of the machines is being recorded already.

    Example:
        >>> with flow.profiler.profile() as prof:
        ...     _ = flow.ones(2) + 1
        >>> [(average.name, average.calls) for average in prof.key_averages() if "add" in average.name]
        [('add_scalar', 1)]
    """

    def __init__(
        self,
        *,
        machines: Sequence[VirtualMachine] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], object] | None = None,
        max_events: int = 500_000,
    ) -> None:
        if machines is not None:
            if not isinstance(machines, Sequence) or not all(
                [isinstance(machine, VirtualMachine) for machine in machines]
            ):
                raise TypeError(f"profile: machines must be a list of virtual machines, not {machines!r}")
            if not machines or len(set(machines)) < len(machines):
                raise ValueError(f"profile: machines must have at least one element, and none twice; got {machines!r}")
        for name, function in (("schedule", schedule), ("on_trace_ready", on_trace_ready)):
            if function is not None and not callable(function):
                raise TypeError(f"profile: {name} must be callable, not {function!r}")
        max_events = whole_number("profile", "max_events", max_events, 1)
        self._chosen = None if machines is None else list(machines)
        self._schedule = schedule
        self._on_trace_ready = on_trace_ready
        self._max_events = max_events
        self._machines: list[VirtualMachine] | None = None
        self._action = ProfilerAction.NONE
        self._recording: Recording | None = None
        self._step_note = -1
        self._trace: Trace | None = None
        self._timeline: Timeline | None = None
        self.step_num = 0

    # Starting and stopping

    def start(self) -> None:
        """Start the profiler, as entering its block does.

        Raises:
            RuntimeError, TypeError: as for entering the block; RuntimeError also if it has started.
        """
        if self._machines is not None:
            raise RuntimeError("the profiler has already been started")
        machines = self._chosen if self._chosen is not None else [current_machine()]
        action = self._action_of(0)
        with _profiled_lock:
            for machine in machines:
                if machine in _profiled or machine.tracer is not None:
                    raise RuntimeError(
                        f"the virtual machine {machine.name!r} is being recorded already; "
                        "leave the other profiler's block first, or mark the part in question with record_function"
                    )
            _profiled.update(dict.fromkeys(machines, self))
        self._machines = list(machines)
        self.step_num = 0
        self._action = action
        self._begin()

    def stop(self) -> None:
        """Stop the profiler, as leaving its block does.

        Raises:
            RuntimeError: if it has not started.
        """
        self._end(finish=True)

    def step(self) -> None:
        """Tell the profiler that a step of the loop has ended and the next one begins.

        Raises:
            RuntimeError: outside the block.
            TypeError: if the schedule returns no `ProfilerAction`.
        """
        if self._machines is None:
            raise RuntimeError("step: the profiler has not been started; call it inside its `with` block")
        before = self._action
        after = self._action_of(self.step_num + 1)
        if self._recording is not None:
            self._recording.close_note(self._step_note)
        self.step_num += 1
        self._action = after
        try:
            if before is ProfilerAction.RECORD_AND_SAVE or (before.records and not after.records):
                self._wait()
                self._save()
            elif before is ProfilerAction.WARMUP and after is not ProfilerAction.WARMUP:
                self._discard()
        finally:
            # The next step begins even if `on_trace_ready` has raised, since leaving the block ends its recording.
            self._begin()

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(finish=kind is None)

    async def __aenter__(self) -> profile:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._action.records:
                for machine in self._machines or []:
                    if machine.state == "running" and not machine.engine.idle():
                        await machine.synchronize()
        finally:
            self._end(finish=False)

    def _action_of(self, step: int) -> ProfilerAction:
        if self._schedule is None:
            return ProfilerAction.RECORD
        action = self._schedule(step)
        if not isinstance(action, ProfilerAction):
            raise TypeError(f"profile: schedule({step}) must return a ProfilerAction, not {action!r}")
        return action

    def _begin(self) -> None:
        """Begin or go on to record the current step, unless the schedule says not to."""
        if self._action is ProfilerAction.NONE:
            return
        if self._recording is None:
            assert self._machines is not None
            self._recording = Recording(self._machines, self._max_events)
            self._recording.attach()
        if self._schedule is not None or self.step_num:
            self._step_note = self._recording.open_note("step", f"step {self.step_num}")

    def _end(self, finish: bool) -> None:
        if self._machines is None:
            raise RuntimeError("the profiler has not been started")
        try:
            if self._action.records:
                if finish:
                    self._wait()
                self._save()
        finally:
            self._discard()
            with _profiled_lock:
                for machine in self._machines:
                    _profiled.pop(machine, None)
            self._machines = None
            self._action = ProfilerAction.NONE

    def _wait(self) -> None:
        """Wait for the recorded machines' issued instructions, unless that would block an event loop."""
        if running_loop() is None:
            for machine in self._machines or []:
                machine.drain()

    def _save(self) -> None:
        recording, self._recording = self._recording, None
        assert recording is not None
        self._trace = recording.finish()
        self._timeline = None
        if self._on_trace_ready is not None:
            self._on_trace_ready(self)

    def _discard(self) -> None:
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.finish()

    # Results

    def events(self) -> list[Event]:
        """The events of the last trace, in the order of their beginnings.

        Raises:
            RuntimeError: if no recording has ended yet.
        """
        return list(self._laid_out().events)

    def key_averages(self) -> KeyAverages:
        """The counts and times of the last trace, summed over all instructions of one name on streams of one name.

        Raises:
            RuntimeError: if no recording has ended yet.
        """
        return make_averages(self._last_trace())

    def export_chrome_trace(self, path: str | PathLike[str]) -> None:
        """Write the last trace as JSON in the Chrome trace event format; compressed, if the name ends with ".gz".

        Raises:
            RuntimeError: if no recording has ended yet.
            OSError: if the file cannot be written.
        """
        chrome.write(path, self._last_trace(), self._laid_out(), __version__)

    @property
    def dropped_events(self) -> int:
        """The number of events beyond `max_events` that the last recording did not keep; RuntimeError without one."""
        return self._last_trace().lost

    def _last_trace(self) -> Trace:
        if self._trace is None:
            raise RuntimeError(
                "nothing was recorded yet: leave the profiler's block, or finish a cycle of its schedule"
            )
        return self._trace

    def _laid_out(self) -> Timeline:
        trace = self._last_trace()
        if self._timeline is None:
            self._timeline = make_timeline(trace)
        return self._timeline


def _task_or_thread() -> int:
    """Return a key of the running asyncio task if there is one, else of the current thread."""
    task = current_task()
    return threading.get_ident() if task is None else id(task)


class record_function:
    """A context manager, or decorator, that gives a block or function a named slice in the trace of a profiler.

    ``with`` and ``async with`` do the same.  The slice lasts from entering to leaving the block; instructions issued in
    it may run later.  Several tasks and threads may be inside one object.  Without a profiler it does nothing.  Plain,
    coroutine and generator functions can be decorated.

    Args:
        name: the name in the trace.

    Raises:
        TypeError: if the name is no string, or an async generator is decorated.
        RuntimeError: on leaving a block, if none of the object's blocks is open.

    Example:
        >>> with flow.profiler.profile() as prof:
        ...     with flow.profiler.record_function("augmentation"):
        ...         _ = flow.ones(2) + 1
        >>> [event.name for event in prof.events() if event.kind == "record_function"]
        ['augmentation']
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"record_function: the name must be a string, not {name!r}")
        self.name = name
        # For each task or thread that is inside, the notes of its blocks, the innermost last.
        self._open: dict[int, list[list[tuple[Recording, int]]]] = {}

    def __enter__(self) -> record_function:
        notes = [(recording, recording.open_note("record_function", self.name)) for recording in list(LISTENING)]
        self._open.setdefault(_task_or_thread(), []).append(notes)
        return self

    def __exit__(self, *about: object) -> None:
        here = _task_or_thread()
        if not self._open:
            raise RuntimeError(f"record_function({self.name!r}): a block was left that had not been entered")
        if here not in self._open:
            # The block was entered in another task or thread.
            here = list(self._open)[-1]
        blocks = self._open[here]
        for recording, note in blocks.pop():
            recording.close_note(note)
        if not blocks:
            del self._open[here]

    async def __aenter__(self) -> record_function:
        return self.__enter__()

    async def __aexit__(self, *about: object) -> None:
        self.__exit__()

    def __call__(self, function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        name = self.name
        wrapped: Any
        if inspect.isasyncgenfunction(function):
            raise TypeError("record_function: an async generator cannot be decorated; use `async with` inside it")
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def wrapped(*args: Any, **kwargs: Any) -> Any:
                with record_function(name):
                    return await cast(Any, function)(*args, **kwargs)

        elif inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def wrapped(*args: Any, **kwargs: Any) -> Any:
                with record_function(name):
                    return (yield from cast(Any, function)(*args, **kwargs))

        else:

            @functools.wraps(function)
            def wrapped(*args: Any, **kwargs: Any) -> Any:
                with record_function(name):
                    return function(*args, **kwargs)

        return cast("Callable[Parameters, Result]", wrapped)
