"""The exceptions of vmflow, and its warnings.

    Exception
     +-- RuntimeError
     |    +-- InternalError            vmflow contradicts itself: please report it, with the story it prints
     |    +-- VirtualMachineClosed     work was issued to a machine that has been closed
     |    +-- DeviceUnavailable        the device does not exist here, or its library is not installed
     |    +-- DeviceLost               the device stopped working
     |    +-- DeviceDeadlock           the host waits for something that a device can never come to
     |    +-- Cancelled                work was dropped because its scope was cancelled
     |    +-- CollectiveError          ranks could not exchange arrays
     |    |    +-- CollectiveMismatch  they wanted different things
     |    |    +-- PeerLost            one of them has ended, or could not compute its part
     |    |    +-- CollectiveCancelled one of them was left by an exception
     |    +-- SimulationDeadlock       no rank of a simulation can go on
     |    +-- LinAlgError              a matrix has no inverse, or no factors of the kind wanted
     |    +-- RaceDetected             two accesses to one memory were not ordered: please report it
     +-- TimeoutError
     |    +-- CollectiveTimeout        a rank did not come in time
     |    +-- DeadlineExceeded         work was dropped because the deadline of its scope had passed
     +-- MemoryError
     |    +-- OutOfMemory              a device has no room for a result
     +-- ArithmeticError
     |    +-- FloatingPointError
     |         +-- AnomalyDetected     an op made nan or inf out of finite numbers, under `detect_anomaly`
     +-- Warning
          +-- RuntimeWarning
               +-- BlockingCallWarning a blocking read on a running event loop's thread
               +-- BackPressureWarning a coroutine issues more than can be done, and never awaits
               +-- BroadcastWarning    an op of global tensors is computed as a whole on every rank

A caller's mistake raises the built-in ValueError, TypeError, IndexError or RuntimeError that a PyTorch user expects, at
the call.  A kernel's failure raises whatever the kernel raised, when its result is looked at.
"""

from __future__ import annotations


class InternalError(RuntimeError):
    """vmflow contradicts itself.  Please report it, with the story in the message."""


class VirtualMachineClosed(RuntimeError):
    """Work was dropped because, or issued after, its virtual machine was closed."""


class DeviceUnavailable(RuntimeError):
    """The device does not exist on this machine, or the library behind it is not installed."""


class DeviceLost(RuntimeError):
    """The device stopped working; what was on it is gone."""


class DeviceDeadlock(RuntimeError):
    """The host waits for something that the device can never come to.  The message has all its queues."""


class CollectiveError(RuntimeError):
    """Ranks could not exchange arrays."""


class CollectiveMismatch(CollectiveError):
    """At the same place in the order, ranks wanted different exchanges; the message has both ranks' lines."""


class PeerLost(CollectiveError):
    """A rank of the group has ended, or could not compute what it was to give; the message names it."""


class CollectiveCancelled(CollectiveError):
    """A rank of the group has left the communication scope by an exception; the message has that."""


class CollectiveTimeout(CollectiveError, TimeoutError):
    """A rank of the group did not come in time; the message says which, and who waits for it where."""


class SimulationDeadlock(RuntimeError):
    """No rank of a simulation can go on; the message says what each waits for."""


class LinAlgError(RuntimeError):
    """A matrix has no inverse, or no factors of the kind that was wanted; the message names the op."""


class RaceDetected(RuntimeError):
    """Two accesses to the same memory that nothing orders: a mistake of vmflow's, please report it.

    Attributes:
        kind: "read after write", "write after read", "write after write", "reuse of memory" (the memory was handed to
            another while its former user may still be at it) or "use after release".
        earlier, later: what was launched first, and what was launched without waiting for it.
    """

    def __init__(self, kind: str, earlier: str, later: str) -> None:
        super().__init__(kind, earlier, later)
        self.kind = kind
        self.earlier = earlier
        self.later = later

    def __str__(self) -> str:
        return (
            f"{self.kind}: nothing orders two accesses to the same memory\n"
            f"  earlier: {self.earlier}\n"
            f"  later:   {self.later}\n"
            f"the later must wait for an event behind the earlier, or the host must know that the earlier has ended"
        )


class Cancelled(RuntimeError):
    """Work was dropped before it began, because its scope was cancelled."""


class DeadlineExceeded(TimeoutError):
    """Work was dropped before it began, because the deadline of its scope had passed."""


class OutOfMemory(MemoryError):
    """A device has no room for what was asked.

    Attributes:
        requested: bytes that were asked for.
        limit: bytes that the device has, None if it is not known.
        used: bytes of it that were taken.
    """

    def __init__(self, message: str, requested: int, limit: int | None, used: int) -> None:
        super().__init__(message)
        self.requested = requested
        self.limit = limit
        self.used = used

    def __reduce__(self) -> tuple[object, ...]:
        return OutOfMemory, (str(self), self.requested, self.limit, self.used)


class AnomalyDetected(FloatingPointError):
    """An op made nan or inf out of finite numbers, while `detect_anomaly` was on."""


class BlockingCallWarning(RuntimeWarning):
    """A blocking read on a running event loop's thread: nothing else on the loop runs meanwhile."""


class BackPressureWarning(RuntimeWarning):
    """A coroutine issues more than can be done, and awaits nothing that would slow it down."""


class BroadcastWarning(RuntimeWarning):
    """An op of global tensors has no rule by which it could be computed part by part.

    Its operands are put together on every rank, and each computes all of it.  Told once for each op.
    """
