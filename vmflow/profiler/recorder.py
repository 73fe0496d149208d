"""`Recording`, with a `MachineRecorder` per machine: records events as cheaply as possible.

A record is one tuple of numbers, names and small objects that hold no array; `records` has the types of these tuples.
Hooks are called on any thread, and by destructors at any point of a program, so the hooks of instructions take no lock,
except to number a new task or thread: appending to a list, and changing a dict, are each atomic in Python.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import attrs

from vmflow.forking import lock_held_while_forking
from vmflow.instructions.failure import Failure
from vmflow.instructions.instruction import Instruction
from vmflow.instructions.scope import scope_of
from vmflow.vm.outcome import Later, Outcome
from vmflow.vm.wakers import running_loop

from .records import (
    DEFERRED,
    DROPPED,
    FAILED,
    RAN,
    UNFINISHED,
    Abandoned,
    Computed,
    Finish,
    Issue,
    Note,
    Run,
    Trace,
    Wait,
)
from .session_recorder import SessionRecorder

if TYPE_CHECKING:
    from vmflow.vm.virtual_machine import VirtualMachine

_now = time.perf_counter_ns
_thread = threading.get_ident


def current_task() -> Any:
    """The running asyncio task; None if there is none."""
    loop = running_loop()
    return None if loop is None else sys.modules["asyncio"].current_task(loop)


@attrs.define(eq=False)
class HostTracks:
    """Gives numbers to the tasks and threads that issue instructions, wait or open notes: the tracks of a trace."""

    names: list[str] = attrs.field(factory=list)
    _threads: threading.local = attrs.field(factory=threading.local)
    # For each task, by id(task), a weak reference and the task's number.  The weak reference tells whether the id still
    # belongs to the task; a strong one would keep the task's result alive.
    _tasks: dict[int, tuple[weakref.ref[Any], int]] = attrs.field(factory=dict)
    # Reentrant, since a destructor may issue an instruction while a number is being assigned.
    _lock: Any = attrs.field(factory=lock_held_while_forking)

    def current(self) -> int:
        """The number of the running asyncio task, or without one of the current thread; assigned at the first call."""
        task = current_task()
        if task is not None:
            known = self._tasks.get(id(task))
            if known is not None and known[0]() is task:
                return known[1]
            number = self._add(f"task {task.get_name()}")
            self._tasks[id(task)] = (weakref.ref(task), number)
            return number
        try:
            number = self._threads.number
        except AttributeError:
            number = self._threads.number = self._add(f"thread {threading.current_thread().name}")
        return number

    def _add(self, name: str) -> int:
        with self._lock:
            self.names.append(name)
            return len(self.names) - 1


class Recording:
    """The events of some machines, and of all serving sessions, from `attach` to `finish`.

    Args:
        machines: the recorded machines.
        max_events: the most ended events that are kept; further ones are only counted.

    Attributes:
        sessions: the recorders of the known sessions, by their keys.
    """

    def __init__(self, machines: list[VirtualMachine], max_events: int) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.max_events = max_events
        self.numbers = itertools.count()
        self.tracks = HostTracks()
        self.begin = _now()
        # Scopes have times of time.monotonic, all other records of time.perf_counter.
        self.monotonic_offset = self.begin - time.monotonic_ns()
        self.wall_clock = time.time()
        self.machines = machines
        self._recorders = [MachineRecorder(self, number, machine) for number, machine in enumerate(machines)]
        self._lost = itertools.count()
        self._open_notes: dict[int, tuple[str, str, int, int]] = {}
        self._session_names: list[str] = []
        self.sessions: dict[int, SessionRecorder] = {}
        # Reentrant, since a destructor may call `session` while the lock is held.
        self._sessions_lock = lock_held_while_forking()

    def attach(self) -> None:
        """Start recording."""
        for machine, recorder in zip(self.machines, self._recorders, strict=True):
            machine.tracer = recorder
        with _recordings_lock:
            LISTENING.append(self)

    def finish(self) -> Trace:
        """Stop recording, and return a `Trace` of at most `max_events` ended events, and of all that have not ended."""
        with _recordings_lock:
            LISTENING.remove(self)
        for machine in self.machines:
            machine.tracer = None
        end = _now()
        # Instructions that still run call their recorder later; those events are left out.
        events = self.events[: self.max_events]
        for recorder in self._recorders:
            events += recorder.unfinished(end)
        for session in list(self.sessions.values()):
            events += session.unfinished(end)
        events += [
            (Note, kind, name, begin, end, track) for kind, name, begin, track in list(self._open_notes.values())
        ]
        names = [machine.name for machine in self.machines]
        lost = next(self._lost) + max(0, len(self.events) - self.max_events)
        tracks, sessions = self.tracks.names, self._session_names
        return Trace(self.begin, end, self.monotonic_offset, self.wall_clock, names, tracks, sessions, events, lost)

    def add(self, event: tuple[Any, ...]) -> None:
        """Append an event to the recording, or only count it as lost if there are `max_events` already."""
        if len(self.events) < self.max_events:
            self.events.append(event)
        else:
            self.lose()

    def lose(self) -> None:
        """Count an event that is not kept, since there are `max_events` already."""
        next(self._lost)

    def session(self, key: int, name: str, load: Callable[[], tuple[int, int]]) -> SessionRecorder:
        """The recorder of a serving session, made and put into `sessions` if there is none.

        Args:
            key: identifies the session, since several sessions may have the same name.
            name: the session's name.
            load: returns the numbers of the session's requests that wait and that are being computed.
        """
        with self._sessions_lock:
            recorder = self.sessions.get(key)
            if recorder is None:
                index = len(self._session_names)
                self._session_names.append(name)
                recorder = self.sessions[key] = SessionRecorder(self, index, load(), _now())
            return recorder

    def open_note(self, kind: str, name: str) -> int:
        """Begin a named slice (of `record_function` or a step), and return the number to pass to `close_note`."""
        number = next(self.numbers)
        self._open_notes[number] = (kind, name, _now(), self.tracks.current())
        return number

    def close_note(self, number: int) -> None:
        """End and record the named slice that `open_note` has begun under `number`; does nothing if there is none."""
        note = self._open_notes.pop(number, None)
        if note is not None:
            kind, name, begin, track = note
            self.add((Note, kind, name, begin, _now(), track))


# The active recordings, which `record_function` and serving sessions notify.  A plain list, since sessions read it for
# every request.
LISTENING: Final[list[Recording]] = []
_recordings_lock = lock_held_while_forking()


class MachineRecorder:
    """The tracer of one virtual machine; the machine calls its hooks as `Tracer` says."""

    def __init__(self, recording: Recording, index: int, machine: VirtualMachine) -> None:
        self._recording = recording
        self._index = index
        self._engine = machine.engine
        self._memory = machine.memory
        # The numbers of instructions that were issued, or awaited, and that no stream has begun to run.
        self._issued: dict[Instruction, int] = {}
        self._running: dict[Instruction, tuple[int, int, int]] = {}
        self._waiting: dict[int, tuple[Any, ...]] = {}

    def issued(self, instruction: Instruction) -> None:
        begin = _now()
        recording = self._recording
        number = next(recording.numbers)
        self._issued[instruction] = number
        # The body of `add` is repeated here and in `ended`, which run for every instruction.
        events = recording.events
        if len(events) >= recording.max_events:
            recording.lose()
            return
        track = recording.tracks.current()
        code, last, name = instruction.code, instruction.last, instruction.name
        events.append((Issue, self._index, number, begin, _now(), track, _thread(), name, code, last))

    def began(self, instruction: Instruction) -> None:
        number = self._issued.pop(instruction, None)
        if number is None:
            number = next(self._recording.numbers)
        self._running[instruction] = (number, _thread(), _now())

    def ended(self, instruction: Instruction, outcome: Outcome) -> None:
        end = _now()
        begun = self._running.pop(instruction, None)
        if begun is None:
            return
        recording = self._recording
        events = recording.events
        if len(events) >= recording.max_events:
            recording.lose()
            return
        if outcome is None:
            state, error = RAN, None
            outputs = getattr(instruction.policy, "outputs", None)
            # An instruction whose operand has failed does not run its kernel: its results hold the operand's failure.
            if outputs and outputs[0].storage.failure is not None:
                failure = outputs[0].storage.failure
                state, error = DROPPED if failure.dropped else FAILED, f"inherited: {message_of(failure.error)}"
        elif isinstance(outcome, Later):
            state, error = DEFERRED, None
        else:
            state, error = DROPPED if outcome.dropped else FAILED, message_of(outcome.error)
        events.append(self._run(instruction, begun, end, state, error))

    def finished(self, instruction: Instruction, failure: Failure | None) -> None:
        error = None if failure is None else message_of(failure.error)
        self._recording.add((Finish, self._index, instruction.serial, _now(), error))

    def computed(self, instruction: Instruction, begin: int, end: int) -> None:
        stream = instruction.stream.name
        self._recording.add((Computed, self._index, instruction.serial, begin, end, stream, instruction.name))

    def abandoned(self, instruction: Instruction) -> None:
        number = self._issued.pop(instruction, None)
        if number is None:
            number = next(self._recording.numbers)
        stream, code, last = instruction.stream.name, instruction.code, instruction.last
        scope = scope_of(instruction)
        self._recording.add((Abandoned, self._index, number, _now(), stream, instruction.name, code, last, scope))

    def awaited(self, instruction: Instruction) -> object:
        recording = self._recording
        number = self._issued.get(instruction)
        if number is None and instruction.serial < 0:
            # The instruction was issued before the recording began, and gets a number now.  One that has a serial
            # needs none: its run is found by the serial.
            number = self._issued[instruction] = next(recording.numbers)
        wait = next(recording.numbers)
        track, scope = recording.tracks.current(), scope_of(instruction)
        name, serial = instruction.name, instruction.serial
        self._waiting[wait] = (self._index, number, serial, track, _thread(), name, scope, _now())
        return wait

    def resumed(self, wait: object) -> None:
        end = _now()
        begun = self._waiting.pop(wait, None) if isinstance(wait, int) else None
        if begun is not None:
            self._recording.add((Wait, *begun, end, True))

    def unfinished(self, end: int) -> list[tuple[Any, ...]]:
        """Make records of the runs and waits that have not ended when the recording does; forget all instructions."""
        records = [self._run(key, begun, end, UNFINISHED, None) for key, begun in list(self._running.items())]
        records += [(Wait, *begun, end, False) for begun in list(self._waiting.values())]
        self._issued.clear()
        self._running.clear()
        self._waiting.clear()
        return records

    def _run(
        self, instruction: Instruction, begun: tuple[int, int, int], end: int, state: str, error: str | None
    ) -> tuple[Any, ...]:
        number, thread, begin = begun
        stream = instruction.stream
        mode = instruction.mode
        allocated = -1
        if stream.allocator is not None:
            # Streams that the program has made have allocators of their own.  The field is read since the public method
            # `statistics` is slow.
            allocated = sum([allocator._allocated for allocator in self._memory.of_device(stream.device)])
        engine = self._engine
        return (
            Run,
            self._index,
            number,
            instruction.serial,
            begin,
            end,
            thread,
            stream.name,
            stream.device,
            instruction.name,
            instruction.code,
            instruction.last,
            None if mode is None else mode.scope,
            None if mode is None else mode.module,
            _bytes_of(instruction),
            state,
            error,
            allocated,
            engine.outstanding(),
        )


def message_of(error: BaseException) -> str:
    """An exception's type and message as text, recorded instead of the exception, which may hold arrays."""
    return f"{type(error).__name__}: {error}"


def _bytes_of(instruction: Instruction) -> int:
    """The number of bytes of an instruction's outputs; without outputs, its own estimate."""
    outputs = getattr(instruction.policy, "outputs", None)
    if not outputs:
        return instruction.nbytes
    if len(outputs) == 1:
        nbytes: int = outputs[0].meta.nbytes
        return nbytes
    return sum([output.meta.nbytes for output in outputs])
