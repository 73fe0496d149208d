"""Exceptions of vmflow, and warnings.

    Exception
     +-- RuntimeError
     |    +-- InternalError
     |    +-- VirtualMachineClosed
     |    +-- DeviceUnavailable
     |    +-- DeviceLost
     |    +-- DeviceDeadlock
     |    +-- Cancelled
     |    +-- CollectiveError
     |    |    +-- CollectiveMismatch
     |    |    +-- PeerLost
     |    |    +-- CollectiveCancelled
     |    +-- SimulationDeadlock
     |    +-- LinAlgError
     |    +-- RaceDetected
     +-- TimeoutError
     |    +-- CollectiveTimeout    (also a CollectiveError)
     |    +-- DeadlineExceeded
     +-- MemoryError
     |    +-- OutOfMemory
     +-- ArithmeticError
     |    +-- FloatingPointError
     |         +-- AnomalyDetected
     +-- Warning
          +-- RuntimeWarning
               +-- BlockingCallWarning
               +-- BackPressureWarning
               +-- BroadcastWarning

A mistake in shapes, dtypes or devices raises, at the call, the built-in exception that a PyTorch user expects, such as
ValueError.  A kernel's exception is raised when the kernel's result is read.
"""

from __future__ import annotations


class InternalError(RuntimeError):
    """vmflow's own state is contradictory: a bug.  Please report it with the message.

    Example:
        >>> issubclass(flow.InternalError, RuntimeError)
        True
    """


class VirtualMachineClosed(RuntimeError):
    """A virtual machine that closes or has closed refused an op or a `with` block, or dropped an op issued before.

    Example:
        >>> issubclass(flow.VirtualMachineClosed, RuntimeError)
        True
    """


class DeviceUnavailable(RuntimeError):
    """A device or stream cannot be used here, for example because a library is missing; the message has the reason.

    Example:
        >>> try:
        ...     flow.zeros(2, device="cuda:999")
        ... except flow.DeviceUnavailable as error:
        ...     print(str(error)[:23])
        cuda:999 cannot be used
    """


class DeviceLost(RuntimeError):
    """A device has stopped working, or was opened before this process was forked; its memory is lost here.

    Example:
        >>> issubclass(flow.DeviceLost, RuntimeError)
        True
    """


class DeviceDeadlock(RuntimeError):
    """The host waits for work that a simulated device can never reach.  The message lists the device's queues.

    Example:
        >>> issubclass(flow.errors.DeviceDeadlock, RuntimeError)
        True
    """


class CollectiveError(RuntimeError):
    """The base class of the errors of collectives and messages between ranks.

    Example:
        >>> issubclass(flow.distributed.PeerLost, flow.distributed.CollectiveError)
        True
    """


class CollectiveMismatch(CollectiveError):
    """Two ranks' n-th collective calls, or the two ends of a message, differ; the error's text has both calls' lines.

    Example:
        >>> issubclass(flow.distributed.CollectiveMismatch, flow.distributed.CollectiveError)
        True
    """


class PeerLost(CollectiveError):
    """A rank has ended, left the communication scope without an exception, or could not compute what it was to send.

    Example:
        >>> issubclass(flow.distributed.PeerLost, RuntimeError)
        True
    """


class CollectiveCancelled(CollectiveError):
    """A rank of the process group has left the communication scope by an exception, which the message contains.

    Example:
        >>> issubclass(flow.distributed.CollectiveCancelled, flow.distributed.CollectiveError)
        True
    """


class CollectiveTimeout(CollectiveError, TimeoutError):
    """A rank did not join a collective or send a message in time; the error's text has the ranks and lines that wait.

    Example:
        >>> issubclass(flow.distributed.CollectiveTimeout, TimeoutError)
        True
    """


class SimulationDeadlock(RuntimeError):
    """No rank of a simulation can go on, since they wait; the message has the state of each rank.

    Example:
        >>> issubclass(flow.distributed.SimulationDeadlock, RuntimeError)
        True
    """


class LinAlgError(RuntimeError):
    """A function of linear algebra failed, for example because a matrix has no inverse.

    Example:
        >>> flow.linalg.inv(flow.zeros(2, 2)).tolist()
        Traceback (most recent call last):
        vmflow.errors.LinAlgError: linalg.inv: Singular matrix...
    """


class RaceDetected(RuntimeError):
    """Two accesses to the same memory that nothing orders: a bug of vmflow's, please report it.

    Attributes:
        kind: "read after write", "write after read", "write after write", "reuse of memory" (the memory was given to a
            new tensor while ops may still have used the former tensor) or "use after release".
        earlier, later: descriptions of the two accesses, in the order in which they were launched.

    Example:
        >>> flow.RaceDetected("read after write", "x.add_(1)", "y = x * 2").kind
        'read after write'
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
    """An op was dropped before it began, or the wait for its result was ended, because its scope was cancelled.

    Example:
        >>> with flow.scope() as scope:
        ...     scope.cancel()
        ...     flow.ones(2).tolist()
        Traceback (most recent call last):
        vmflow.errors.Cancelled: dropped, because its scope was cancelled...
    """


class DeadlineExceeded(TimeoutError):
    """An op was dropped before it began, or the wait for its result was ended, at the deadline of its scope.

    Example:
        >>> with flow.scope(deadline=0):
        ...     flow.ones(2).tolist()
        Traceback (most recent call last):
        vmflow.errors.DeadlineExceeded: dropped, because the deadline of its scope has passed...
    """


class OutOfMemory(MemoryError):
    """A device has too little memory left, for example for an op's result.

    Attributes:
        requested: the bytes that were asked for.
        limit: the most bytes of the device that vmflow may take, None without a limit.
        used: the bytes of the device that vmflow had taken, those kept for reuse included.

    Example:
        >>> flow.OutOfMemory("no memory for 8 bytes", requested=8, limit=100, used=96).used
        96
    """

    def __init__(self, message: str, requested: int, limit: int | None, used: int) -> None:
        super().__init__(message)
        self.requested = requested
        self.limit = limit
        self.used = used

    def __reduce__(self) -> tuple[object, ...]:
        return OutOfMemory, (str(self), self.requested, self.limit, self.used)


class AnomalyDetected(FloatingPointError):
    """An op made nan or inf out of finite numbers, while `detect_anomaly` was on.

    Example:
        >>> issubclass(flow.AnomalyDetected, FloatingPointError)
        True
    """


class BlockingCallWarning(RuntimeWarning):
    """A blocking read on a running event loop's thread: nothing else on the loop runs meanwhile.

    Example:
        >>> issubclass(flow.BlockingCallWarning, RuntimeWarning)
        True
    """


class BackPressureWarning(RuntimeWarning):
    """A coroutine issues ops faster than they are computed, and awaits nothing that would slow it down.

    Example:
        >>> issubclass(flow.BackPressureWarning, RuntimeWarning)
        True
    """


class BroadcastWarning(RuntimeWarning):
    """An op has no rule by which ranks could compute parts of its result from split tensors or partial sums.

    Each rank of the placement gathers the operands and computes the whole result.  A process warns once for each op.

    Example:
        >>> issubclass(flow.distributed.BroadcastWarning, RuntimeWarning)
        True
    """
