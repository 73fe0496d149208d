"""`CompletionTracker`: the work that asynchronous devices have been given and have not been seen to finish."""

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


class DeviceWork:
    """One instruction that a device has been given.

    Attributes:
        chain: the chain whose members are given to the device one by one, and of which it is one; None otherwise.
        outcome: its result, valid once the event is reached.
        event: reached when it has ended.
        marks: the device's times before and after it, during a recording; see `StreamPolicy.mark`.
        verdict: returns the error that the device has found, see `StreamPolicy.enqueue`; None if it checks nothing.
    """

    __slots__ = ("chain", "event", "instruction", "marks", "outcome", "verdict")

    def __init__(self, instruction: Instruction, chain: Instruction | None) -> None:
        self.instruction = instruction
        self.chain = chain
        self.outcome: Outcome = None
        self.event: Event | None = None
        self.marks: tuple[Any, Any] | None = None
        self.verdict: Verdict | None = None


# Threads that run something for a device now.  Their code must not give more work to a device.
_busy_threads: set[int] = set()


def on_a_device() -> bool:
    """Return whether this thread is running work on behalf of a device."""
    return bool(_busy_threads) and threading.get_ident() in _busy_threads


# run(instruction, an earlier failure) -> its outcome
Run = Callable[[Instruction, "Failure | None"], Outcome]
# poison(instruction, error) -> the failure
Poison = Callable[[Instruction, BaseException], Failure]


class CompletionTracker:
    """Passes instructions to the asynchronous streams of one machine, and collects them when they have ended.

    Args:
        run: called by the device, on any thread, when an instruction's turn has come.
        poison: called by the device instead, if it cannot run any more.
        make_context: makes the context of `run`; one for each stream, since a stream runs one thing at a time.
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
        """Give an instruction to its device; with a failure, it only poisons its outputs when its turn comes.

        Args:
            instruction: the instruction.
            failure: an earlier one; None if there was none.
            chain: see `DeviceWork`.
        """
        stream = instruction.stream
        context = self._contexts.get(stream)
        if context is None:
            context = self._contexts[stream] = self._make_context()
            self.in_use = True
        item = DeviceWork(instruction, chain)
        run_in_context: Callable[..., Any] = context.run

        def work() -> None:
            me = threading.get_ident()
            _busy_threads.add(me)
            try:
                item.outcome = run_in_context(self._run, instruction, failure)
            finally:
                _busy_threads.discard(me)

        def fail(error: BaseException) -> None:
            if failure is not None:
                work()  # it only poisons the outputs
                return
            item.outcome = self._poison(instruction, error)

        begin = stream.policy.mark() if self._observers.tracer is not None else None
        item.verdict = stream.policy.enqueue(work, fail)
        if begin is not None:
            item.marks = begin, stream.policy.mark()
        item.event = stream.policy.record()
        stream.in_flight.append(item)

    def take_finished(self) -> list[DeviceWork]:
        """Remove and return the work that devices have finished since the last call; predecessors come first."""
        finished: list[DeviceWork] = []
        last: int | None = None
        # The streams are queried one after the other, while the device goes on.  An instruction may be seen to have
        # ended whose predecessor, on a stream queried earlier, had not; so the earlier ones are queried again.
        while True:
            before = len(finished)
            for stream in list(self._contexts):
                queue = stream.in_flight
                while queue and (last is None or queue[0].instruction.serial < last) and queue[0].event.query():
                    finished.append(queue.popleft())
            if len(finished) == before or len(self._contexts) == 1:
                break
            last = max([item.instruction.serial for item in finished])
        finished.sort(key=_serial)
        return finished

    def first(self, preferred: Stream) -> DeviceWork | None:
        """Return the oldest unfinished work on the stream `preferred`, else on any stream; None if there is none."""
        for stream in (preferred, *self._contexts):
            try:
                item: DeviceWork = stream.in_flight[0]
            except IndexError:  # also if another thread has just collected it
                continue
            return item
        return None

    def oldest(self) -> list[DeviceWork]:
        """Return the oldest unfinished work of each stream that has some."""
        items: list[DeviceWork] = []
        for stream in list(self._contexts):
            with suppress(IndexError):  # none, or another thread has just collected it
                items.append(stream.in_flight[0])
        return items

    def busy(self) -> Stream | None:
        """A stream that has unfinished work; None if none has."""
        for stream in self._contexts:
            if stream.in_flight:
                return stream
        return None

    def synchronize(self) -> None:
        """Block until everything has ended."""
        for stream in list(self._contexts):
            stream.policy.synchronize()


def _serial(item: DeviceWork) -> int:
    return item.instruction.serial
