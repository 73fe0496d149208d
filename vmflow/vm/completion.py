"""`CompletionTracker`: passes instructions to asynchronous devices, and notices when the devices have finished them."""

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
    """One instruction that was passed to an asynchronous device.

    Attributes:
        chain: the `Chain` instruction that passes its members, such as this one, one by one; None without one.
        outcome: the outcome of running the instruction; valid once the event is reached.
        event: a device event that is reached when the instruction has ended.
        marks: the device's times before and after the instruction, see `StreamPolicy.mark`; None if no times are taken.
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


# The identifiers of threads that now run an instruction of an asynchronous stream, as its policy or a simulated device
# calls it.  They must not run turns, which would pass more work to devices in the middle of the instruction.
_busy_threads: set[int] = set()


def on_a_device() -> bool:
    """Whether this thread is running an instruction of an asynchronous stream."""
    return bool(_busy_threads) and threading.get_ident() in _busy_threads


# A function that runs an instruction: run(instruction, the failure of its preparation or None) -> its outcome
Run = Callable[[Instruction, "Failure | None"], Outcome]
# A function that lets an instruction's outputs hold a failure: poison(instruction, error) -> the failure
Poison = Callable[[Instruction, BaseException], Failure]


class CompletionTracker:
    """Passes instructions to the asynchronous streams of one machine, and collects them when they have ended.

    Args:
        run: runs an instruction; the stream's policy calls it, immediately or when the device has come to the
            instruction, then on any thread.
        poison: fails an instruction; called instead if the device cannot run the instruction.
        make_context: makes the `contextvars.Context` in which a stream calls `run`.
        observers: the machine's tracer and race check.

    Attributes:
        in_use: whether an instruction was passed to an asynchronous stream before.
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
        """Pass an instruction to its device, where, with a `failure`, the instruction only poisons its outputs.

        Args:
            failure: the failure of the instruction's preparation; None if there was none.
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
                work()  # with a failure, `work` only poisons the outputs
                return
            item.outcome = self._poison(instruction, error)

        begin = stream.policy.mark() if self._observers.tracer is not None else None
        item.verdict = stream.policy.enqueue(work, fail)
        if begin is not None:
            item.marks = begin, stream.policy.mark()
        item.event = stream.policy.record()
        stream.in_flight.append(item)

    def take_finished(self) -> list[DeviceWork]:
        """Collect instructions that devices have ended, and return them, each behind its predecessors."""
        finished: list[DeviceWork] = []
        last: int | None = None
        # The streams are queried one after the other, while the device goes on working.  An instruction may be found to
        # have ended while its predecessor, on a stream that was queried before, had not.  So all streams are queried
        # again, up to the last instruction found.
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
        """Return the oldest uncollected instruction on stream `preferred`, else on some other; None if none is left."""
        for stream in (preferred, *self._contexts):
            try:
                item: DeviceWork = stream.in_flight[0]
            except IndexError:  # the stream has none, or another thread has just collected it
                continue
            return item
        return None

    def oldest(self) -> list[DeviceWork]:
        """Return the oldest uncollected instruction of each asynchronous stream that has one."""
        items: list[DeviceWork] = []
        for stream in list(self._contexts):
            with suppress(IndexError):  # the stream has none, or another thread has just collected it
                items.append(stream.in_flight[0])
        return items

    def busy(self) -> Stream | None:
        """Return an asynchronous stream that has uncollected instructions; None if none has."""
        for stream in self._contexts:
            if stream.in_flight:
                return stream
        return None

    def synchronize(self) -> None:
        """Block until the devices have ended all instructions passed to them."""
        for stream in list(self._contexts):
            stream.policy.synchronize()


def _serial(item: DeviceWork) -> int:
    return item.instruction.serial
