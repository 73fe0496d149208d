"""A simulated accelerator: in-order queues, events, and control over when anything happens.

Code that forgets to wait for a device works as long as the device is quick.  A simulated device can be as slow as the
rules allow, or quick and slow by turns, by a seed, so that such code fails, and fails again under the same seed.

Work is a callable that the device calls on the thread that makes the device go on: a host thread that waits, one that
asks for a step, or, in some modes, one that uses a queue or polls an event.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, final

from vmflow.errors import DeviceDeadlock, DeviceLost

from .stream import Event, StreamPolicy

MODES: Final = ("eager", "lazy", "random")

# Steps of a random device between two actions of the host.  Often none, or the host would never be ahead of it;
# sometimes several.
STRIDES: Final = (0, 0, 0, 1, 1, 2, 5)

KINDS: Final = ("compute", "host_to_device", "device_to_host")


def parse_mode(text: str) -> tuple[str, int]:
    """The mode and the seed in `text`, for instance ``"lazy"`` (seed 0) or ``"random:17"``.

    Raises:
        ValueError: it is neither a mode nor a mode, a colon and a seed.
    """
    mode, colon, seed = text.partition(":")
    if mode not in MODES or (colon and not (seed.isascii() and seed.isdecimal())):
        raise ValueError(
            f"a mode is 'eager', 'lazy' or 'random', or one of them and a seed as 'random:17'; not {text!r}"
        )
    return mode, int(seed) if colon else 0


def parse_positive(variable: str, text: str, example: int) -> int:
    """The positive integer in `text`, the value of an environment variable; an error names `example`, too.

    Raises:
        ValueError: if it is no positive integer.
    """
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise ValueError(f"{variable} must be a positive integer such as '{example}', not {text!r}")
    return int(text)


@final
class SimulatedDevice:
    """A simulated accelerator.

    Any thread may use it.  Pieces of work run one at a time; a piece may query events, but not use queues or wait.

    Args:
        name: for people.
        mode: when work runs.  "lazy": when the host waits or asks for a step.  "random": besides, a random number of
            steps after each use of a queue, and before an unreached event is polled.  "eager": as soon as possible.
        seed: decides which queue goes on, and how far; the same actions of one thread always give the same order.

    Attributes:
        ran: the number of pieces of work that have begun, including those that were made to fail.
        enqueued: the number of pieces that were enqueued.
        host_waits: how often `run_until` or `drain` had to wait.

    Raises:
        ValueError: there is no such mode.
    """

    def __init__(self, name: str = "sim:0", mode: str = "lazy", *, seed: int = 0) -> None:
        if mode not in MODES:
            raise ValueError(f"mode must be 'eager', 'lazy' or 'random', not {mode!r}; a seed is a separate argument")
        self.name = name
        self.mode = mode
        self.seed = seed
        self.ran = 0
        self.enqueued = 0
        self.host_waits = 0
        self._random = random.Random(seed)
        self._queues: dict[str, SimulatedQueue] = {}
        self._planted: dict[int, BaseException] = {}
        self._lost = False
        self._lost_by: BaseException | None = None
        # Guards the device and its queues, but is not held while work runs, on the thread `_stepper`.
        self._turn = threading.Condition()
        self._stepper: int | None = None

    # Queues and events

    def queue(self, name: str) -> SimulatedQueue:
        """The queue of that name, made when it is first asked for."""
        with self._turn:
            if name not in self._queues:
                self._queues[name] = SimulatedQueue(self, name)
            return self._queues[name]

    def event(self) -> SimulatedEvent:
        """An event that `SimulatedQueue.record` records later; queues that wait for it are held before that, too."""
        return SimulatedEvent(self)

    # Going on

    def step(self) -> bool:
        """Run the piece of work at the head of one queue; which one, the seed decides.

        Waits for another thread's step to end first.

        Returns:
            Whether there was a queue that could go on.

        Raises:
            RuntimeError: called by work that runs on the device.
        """
        return self._go_on(_never)

    def proceed(self) -> bool:
        """Run the piece of work at the head of one queue, for a host that has nothing else to do; see `step`.

        Returns:
            Whether a piece of work was run; if not, the device has no work left.

        Raises:
            DeviceDeadlock: something is left, and nothing can go on.
            RuntimeError: called by work that runs on the device.
        """
        return self._go_on(self._idle, "its end")

    def run_until(self, event: SimulatedEvent) -> None:
        """Return when `event` has been reached, running the work that it needs, and perhaps some more.

        Raises:
            DeviceDeadlock: nothing can go on and the event has not been reached.
            ValueError: it belongs to another device.
            RuntimeError: called by work that runs on the device.
        """
        self._check_mine(event)
        with self._turn:
            self.admit("wait for an event")
            if event.reached:
                return
            self.host_waits += 1
        while self._go_on(event.has_been_reached, str(event)):
            pass

    def drain(self) -> None:
        """Run all work on the device.

        Raises:
            DeviceDeadlock: something is left, and nothing can go on.
            RuntimeError: called by work that runs on the device.
        """
        with self._turn:
            self.admit("drain it")
            if not self._idle():
                self.host_waits += 1
        while self._go_on(self._idle, "its end"):
            pass

    # From its queues and events

    def admit(self, action: str, event: SimulatedEvent | None = None) -> None:
        """Raise RuntimeError if work on the device attempts `action`, and ValueError if `event` is another device's."""
        if self._stepper == threading.get_ident():
            raise RuntimeError(f"a piece of work that runs on {self.name} tried to {action}: only the host may")
        if event is not None:
            self._check_mine(event)

    def hand_over(self, queue: SimulatedQueue, entry: Piece | Mark) -> None:
        """Put `entry` on `queue`, and let the device go on as its mode says."""
        with self._turn:
            queue.entries.append(entry)
            if isinstance(entry, Piece):
                self.enqueued += 1
            elif len(queue.entries) == 1:
                self._settle(queue)
        if self.mode == "eager":
            while self.step():
                pass
        elif self.mode == "random":
            self._stride()

    def polled(self) -> None:
        """Make a random number of steps if the mode is "random"; called when an unreached event is polled."""
        if self.mode == "random":
            self._stride()

    # Faults

    def fail_after(self, count: int, error: BaseException) -> None:
        """Let the `count`-th piece of work that begins from now on (1: the next one) fail with `error`.

        Raises:
            ValueError: `count` is less than 1.
        """
        if count < 1:
            raise ValueError(f"count must be at least 1, for the next piece of work, not {count}")
        with self._turn:
            self._planted[self.ran + count] = error

    def lose(self, error: BaseException | None = None) -> None:
        """Until `restore`, let work that begins fail with `DeviceLost`, caused by `error`; events are still reached."""
        with self._turn:
            self._lost = True
            self._lost_by = error

    def restore(self) -> None:
        """Let a lost device work again, and forget planted failures whose turn has not come."""
        with self._turn:
            self._lost = False
            self._lost_by = None
            self._planted.clear()

    # For people

    def describe(self) -> str:
        """One line about the device, and one about each queue and its first entry."""
        with self._turn:
            lost = ", lost" if self._lost else ""
            lines = [
                f"{self.name} ({self.mode}, seed {self.seed}{lost}): {self.ran} of {self.enqueued} pieces of work run"
            ]
            lines += [f"  {queue.name}: {queue.describe_head()}" for queue in self._queues.values()]
            return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<SimulatedDevice {self.name} {self.mode}:{self.seed}>"

    # Inside

    def _go_on(self, enough: Callable[[], bool], goal: str = "") -> bool:
        """Run one piece of work and return True; return False without running any if `enough` returns True.

        If no queue can go on, return False without a `goal`, and raise DeviceDeadlock with one.
        """
        with self._turn:
            self.admit("make it go on")
            while not enough() and self._stepper is not None:
                self._turn.wait()
            if enough():
                return False
            able = [queue for queue in self._queues.values() if queue.head_piece() is not None]
            if not able:
                if goal:
                    raise DeviceDeadlock(f"the host waits for {goal}, which can never come:\n{self.describe()}")
                return False
            queue = self._random.choice(able)
            piece = queue.head_piece()
            assert piece is not None
            error = self._begin()
        # The piece stays at the head while it runs, or an event recorded meanwhile would seem to have been reached.
        try:
            if error is None:
                piece.work()
            else:
                piece.fail(error)
        finally:
            with self._turn:
                self._stepper = None
                queue.entries.popleft()
                self._settle(queue)
        return True

    def _begin(self) -> BaseException | None:
        """Note that this thread runs a piece of work; return the error that the piece is to fail with, or None."""
        self._stepper = threading.get_ident()
        self.ran += 1
        planted = self._planted.pop(self.ran, None)
        if not self._lost:
            return planted
        # A new error each time, since its receiver may add notes to it.
        error = DeviceLost(f"{self.name} was lost before this ran")
        error.__cause__ = self._lost_by
        return error

    def _settle(self, queue: SimulatedQueue) -> None:
        """Pass the marks that `queue` has come to, and those that this unblocks: a mark takes no time.

        Then each queue is empty, or its head is a piece of work, or a wait for an event whose `holds` list the queue.
        """
        free = [queue]
        while free:
            queue = free.pop()
            entries = queue.entries
            while entries and isinstance(mark := entries[0], Mark):
                event = mark.event
                if mark.records:
                    event.reached = True
                    free.extend(event.holds)
                    event.holds.clear()
                elif not event.reached:
                    event.holds.append(queue)
                    break
                entries.popleft()
        self._turn.notify_all()

    def _stride(self) -> None:
        """Run a random number of pieces of work, or none while one is running; never wait for that one."""
        with self._turn:
            count = 0 if self._stepping() else self._random.choice(STRIDES)
        for _ in range(count):
            if not self._go_on(self._stepping):
                return

    def _stepping(self) -> bool:
        return self._stepper is not None

    def _idle(self) -> bool:
        return not any(queue.entries for queue in self._queues.values())

    def _check_mine(self, event: SimulatedEvent) -> None:
        if event.device is not self:
            raise ValueError(f"{event} belongs to {event.device.name}, and {self.name} cannot wait for it")


@final
class SimulatedQueue:
    """One in-order queue of a simulated device; made by `SimulatedDevice.queue`.

    Its length counts unfinished work, and the waits and events that the queue has not passed.

    Attributes:
        device: the device that it belongs to.
        name: for people.
        entries: the work, waits and events in it; only the device changes them.
    """

    def __init__(self, device: SimulatedDevice, name: str) -> None:
        self.device = device
        self.name = name
        self.entries: deque[Piece | Mark] = deque()
        self._recorded = 0

    @property
    def busy(self) -> bool:
        """Whether anything stands in it."""
        return bool(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __bool__(self) -> bool:
        # An idle queue is true as well; by its length it would be false.
        return True

    def enqueue(self, work: Callable[[], None], fail: Callable[[BaseException], None]) -> None:
        """Let the device call `work` behind everything enqueued here before, or `fail` with the reason why it cannot.

        An exception of either comes out of the call that made the device go on; the piece of work counts as run.

        Raises:
            RuntimeError: called by work that runs on the device.
        """
        self.device.admit("enqueue more")
        self.device.hand_over(self, Piece(work, fail))

    def record(self, event: SimulatedEvent | None = None) -> SimulatedEvent:
        """An event that is reached when this queue has run all work, and passed all waits, that it holds so far.

        Args:
            event: one from `SimulatedDevice.event`, instead of a new one.

        Raises:
            ValueError: `event` has been recorded before, or belongs to another device.
            RuntimeError: called by work that runs on the device.
        """
        self.device.admit("record an event", event)
        if event is None:
            event = SimulatedEvent(self.device)
        if event.label:
            raise ValueError(f"{event} has been recorded already, and an event is recorded once: make another")
        self._recorded += 1
        event.label = f"event {self._recorded} of {self.name}"
        self.device.hand_over(self, Mark(event, records=True))
        return event

    def wait(self, event: SimulatedEvent) -> None:
        """Hold back what is enqueued here from now on until `event`, of any queue of the same device, is reached.

        Raises:
            ValueError: it belongs to another device.
            RuntimeError: called by work that runs on the device.
        """
        self.device.admit("wait for an event", event)
        self.device.hand_over(self, Mark(event, records=False))

    def head_piece(self) -> Piece | None:
        """The piece of work at the head of the queue, or None if the queue is idle or held by an event."""
        head = self.entries[0] if self.entries else None
        return head if isinstance(head, Piece) else None

    def describe_head(self) -> str:
        """Describe the queue: the number of its entries, and the first of them."""
        if not self.entries:
            return "idle"
        head = self.entries[0]
        if isinstance(head, Mark):
            return f"{len(self.entries)} left, held by {head.event}"
        return f"{len(self.entries)} left, next is {getattr(head.work, '__qualname__', type(head.work).__name__)}"

    def __repr__(self) -> str:
        return f"<SimulatedQueue {self.name} of {self.device.name}: {self.describe_head()}>"


@final
class SimulatedEvent:
    """A point in a queue; made by `SimulatedQueue.record`, or ahead of that by `SimulatedDevice.event`.

    Attributes:
        device: the device that it belongs to.
        label: for people; empty until the event has been recorded.
        reached: whether the queue in which it is recorded has come past it.
        holds: the queues whose heads wait for it; only the device changes them.
    """

    def __init__(self, device: SimulatedDevice) -> None:
        self.device = device
        self.label = ""
        self.reached = False
        self.holds: list[SimulatedQueue] = []

    def query(self) -> bool:
        """Whether the event has been reached.  In mode "random", the device may make some steps first.

        Work that runs on the device may ask too; the device makes no steps then.
        """
        if not self.reached:
            self.device.polled()
        return self.reached

    def synchronize(self) -> None:
        """Run work until the event has been reached, as `SimulatedDevice.run_until` does."""
        self.device.run_until(self)

    def has_been_reached(self) -> bool:
        """Whether the event has been reached; unlike `query`, this never lets the device go on."""
        return self.reached

    def __str__(self) -> str:
        return self.label or "an event that was never recorded"

    def __repr__(self) -> str:
        return f"<SimulatedEvent {self} {'reached' if self.reached else 'not reached'}>"


@final
class Piece:
    """A piece of work in a queue: the function to call, and the one to call if the first cannot be called."""

    __slots__ = ("fail", "work")

    def __init__(self, work: Callable[[], None], fail: Callable[[BaseException], None]) -> None:
        self.work = work
        self.fail = fail


@final
class Mark:
    """A place in a queue where an event is reached (`records`), or must have been reached before the queue goes on."""

    __slots__ = ("event", "records")

    def __init__(self, event: SimulatedEvent, records: bool) -> None:
        self.event = event
        self.records = records


class SimulatedStreamPolicy(StreamPolicy):
    """A stream that hands its work to a queue of a simulated device.

    Args:
        kind: "compute", "host_to_device" or "device_to_host"; or "compute:1" and so on, one for each further stage
            of a pipeline.
        queue: the queue.

    Raises:
        ValueError: there is no such kind.
    """

    asynchronous = True

    def __init__(self, kind: str, queue: SimulatedQueue) -> None:
        if kind not in KINDS and not (kind.startswith("compute:") and kind.removeprefix("compute:").isdecimal()):
            raise ValueError(f"kind must be 'compute', 'host_to_device' or 'device_to_host', not {kind!r}")
        self.kind = kind
        self.queue = queue

    def on_scheduler_thread(self, cost: int, loop_attached: bool) -> bool:
        # In mode "lazy", enqueueing takes so little time that a worker would not pay.
        return True

    def enqueue(self, work: Callable[[], None], fail: Callable[[BaseException], None]) -> None:
        self.queue.enqueue(work, fail)

    def record(self, timing: bool = False) -> SimulatedEvent:
        return self.queue.record()

    def wait(self, event: Event) -> None:
        if not isinstance(event, SimulatedEvent):
            raise ValueError(f"{event!r} is no event of a simulated device, and {self!r} cannot wait for it")
        self.queue.wait(event)

    def synchronize(self) -> None:
        self.queue.record().synchronize()

    def await_progress(self, event: Event, wake: Callable[[], None]) -> bool:
        """Let the device make a step if it has work, then call `wake`, on this thread; return True.

        Raises:
            DeviceDeadlock: something is left on the device, and nothing can go on.
        """
        self.queue.device.proceed()
        wake()
        return True

    def __repr__(self) -> str:
        return f"SimulatedStreamPolicy({self.kind!r}, {self.queue.name!r} of {self.queue.device.name!r})"


def _never() -> bool:
    return False
