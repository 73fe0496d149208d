"""Work that an asynchronous device has been handed and has not been seen to finish."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from vmflow.instructions.failure import Failure
from vmflow.instructions.instruction import Instruction
from vmflow.streams import Stream
from vmflow.streams.stream import Event, Verdict

from .observers import Observers
from .outcome import Outcome


class InFlight:
    """One instruction in the hands of a device.

    Attributes:
        chain: the instruction of which it is a member that was handed over by itself; None if it is none.
        outcome: how it came out, once the event is reached.
        event: reached when it has ended.
        marks: before and behind it in the device's time, while somebody listens; see `StreamPolicy.mark`.
        verdict: whether the device has found an error, see `StreamPolicy.enqueue`; None if it looks for none.
    """

    __slots__ = ("chain", "event", "instruction", "marks", "outcome", "verdict")

    def __init__(self, instruction: Instruction, chain: Instruction | None) -> None:
        self.instruction = instruction
        self.chain = chain
        self.outcome: Outcome = None
        self.event: Event | None = None
        self.marks: tuple[Any, Any] | None = None
        self.verdict: Verdict | None = None


# Threads that a device is using at this moment.  Code that runs there must not hand more work to a device.
_busy_threads: set[int] = set()


def on_a_device() -> bool:
    """Whether this thread is running something for a device."""
    return bool(_busy_threads) and threading.get_ident() in _busy_threads


# run(instruction, what went wrong already) -> how it came out
Run = Callable[[Instruction, "Failure | None"], Outcome]
# poison(instruction, error) -> the failure
Poison = Callable[[Instruction, BaseException], Failure]


class CompletionTracker:
    """Hands instructions to the asynchronous streams of one machine, and collects them when they have ended.

    Args:
        run: called by the device, on whatever thread, when an instruction's turn has come.
        poison: called by the device instead, if it cannot run any more.
        make_context: of a context for `run`; a device runs one thing at a time per stream.
        observers: of the machine.

    Attributes:
        in_use: whether anything was ever handed to an asynchronous stream.
    """

    def __init__(
        self, run: Run, poison: Poison, make_context: Callable[[], contextvars.Context], observers: Observers
    ) -> None:
        self._observers = observers
        self._run = run
        self._poison = poison
        self._make_context = make_context
        self._contexts: dict[Stream, contextvars.Context] = {}
        self.in_use = False

    def submit(self, instruction: Instruction, failure: Failure | None, chain: Instruction | None = None) -> None:
        """Hand it over; with a failure, it only poisons its outputs, in its turn.

        Args:
            instruction: to be run.
            failure: an earlier one; None if nothing has gone wrong.
            chain: see `InFlight`.
        """
        stream = instruction.stream
        context = self._contexts.get(stream)
        if context is None:
            context = self._contexts[stream] = self._make_context()
            self.in_use = True
        flight = InFlight(instruction, chain)
        inside: Callable[..., Any] = context.run

        def work() -> None:
            me = threading.get_ident()
            _busy_threads.add(me)
            try:
                flight.outcome = inside(self._run, instruction, failure)
            finally:
                _busy_threads.discard(me)

        def fail(error: BaseException) -> None:
            if failure is not None:
                work()  # which has nothing to do for the device
                return
            flight.outcome = self._poison(instruction, error)

        begin = stream.policy.mark() if self._observers.tracer is not None else None
        flight.verdict = stream.policy.enqueue(work, fail)
        if begin is not None:
            flight.marks = begin, stream.policy.mark()
        flight.event = stream.policy.record()
        stream.in_flight.append(flight)

    def take_finished(self) -> list[InFlight]:
        """The instructions that have ended since the last time, each behind all that it had to wait for."""
        found: list[InFlight] = []
        last: int | None = None
        # Between the looks at two streams, both may have gone on.  So one that has ended may have been behind another
        # that was looked at before it ended.
        while True:
            before = len(found)
            for stream in list(self._contexts):
                flights = stream.in_flight
                while flights and (last is None or flights[0].instruction.serial < last) and flights[0].event.query():
                    found.append(flights.popleft())
            if len(found) == before or len(self._contexts) == 1:
                break
            last = max([flight.instruction.serial for flight in found])
        found.sort(key=_serial)
        return found

    def first(self, preferred: Stream) -> InFlight | None:
        """One that is worth waiting for, if there is any: the oldest on `preferred`, else on any stream."""
        for stream in (preferred, *self._contexts):
            try:
                flight: InFlight = stream.in_flight[0]
            except IndexError:  # also if another thread has just collected it
                continue
            return flight
        return None

    def oldest(self) -> list[InFlight]:
        """The oldest of each stream that has something in flight."""
        found: list[InFlight] = []
        for stream in list(self._contexts):
            with suppress(IndexError):  # none, or another thread has just collected it
                found.append(stream.in_flight[0])
        return found

    def busy(self) -> Stream | None:
        """A stream that has something in flight."""
        for stream in self._contexts:
            if stream.in_flight:
                return stream
        return None

    def synchronize(self) -> None:
        """Block until everything has ended."""
        for stream in list(self._contexts):
            stream.policy.synchronize()


def _serial(flight: InFlight) -> int:
    return flight.instruction.serial
