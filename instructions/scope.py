"""`Scope`: cancellation, a deadline and a priority that instructions share."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from vmflow.errors import Cancelled, DeadlineExceeded

from .failure import Failure

if TYPE_CHECKING:
    from .instruction import Instruction

# The clock of the deadlines of scopes that are made in this context; a rank of a simulation has the simulation's.
CLOCK: Final[ContextVar[Callable[[], float]]] = ContextVar("CLOCK", default=time.monotonic)


class Scope:
    """A deadline, a priority and a name for the instructions issued within it, which can be cancelled together.

    Cancelling a scope cancels its inner scopes too, except shields and the scopes in them.

    Attributes:
        outer: the scope around this one.
        shield: whether cancelling the outer scopes has no effect here; their priority is inherited nevertheless.
        name: the scope's name in messages and traces.
        priority: higher mostly goes first among the ready instructions of a stream; 0 is ordinary.
        deadline: on the clock of `CLOCK`, the earliest of its own and, unless `shield`, `outer`'s; None for none.
        begun: when the scope was made, on the clock of `time.monotonic`.
        timeout: the seconds from then to the deadline; None without a deadline.
        here: whether a graph called in this scope may run on the calling thread even if it takes long, if no earlier
            instructions are running; inner scopes do not inherit this.
    """

    __slots__ = (
        "__weakref__",
        "_clock",
        "_failure",
        "_wakers",
        "begun",
        "deadline",
        "here",
        "name",
        "outer",
        "priority",
        "shield",
        "timeout",
    )

    def __init__(
        self,
        outer: Scope | None = None,
        name: str | None = None,
        priority: int | None = None,
        deadline: float | None = None,
        shield: bool = False,
        here: bool = False,
    ) -> None:
        self.here = here
        self.outer: Scope | None = outer
        self.shield = shield
        self.name = name
        self.priority: int = 0
        self.deadline: float | None = deadline
        if outer is not None:
            self.priority = outer.priority
            if outer.deadline is not None and not shield:
                self.deadline = outer.deadline if deadline is None else min(deadline, outer.deadline)
        if priority is not None:
            self.priority = priority
        self.begun = time.monotonic()
        self._clock = CLOCK.get()
        self.timeout = None if self.deadline is None else self.deadline - self._clock()
        self._failure: Failure | None = None
        # Wakers of the threads and coroutines that wait for instructions of this scope or of inner ones.  A dict keeps
        # their order, which a set would lose.
        self._wakers: dict[Any, None] = {}

    def cancel(self, error: Exception | None = None) -> None:
        """Have droppable instructions of this scope, or its unshielded inner scopes, dropped if they have not begun.

        Any thread may call this.

        Reading the results of dropped instructions raises `error`, by default `Cancelled`, unless their policy
        `keeps_outputs`; waiters are woken now.  Has no effect if the scope has ended, see `ended`.
        """
        if self._failure is None:
            self._drop(error if error is not None else Cancelled(f"dropped, because {self} was cancelled"))

    def cancelled(self) -> bool:
        """Whether instructions of this scope are dropped, by `cancel` or by the deadline."""
        return self.dropped() is not None

    def dropped(self) -> Failure | None:
        """Return the failure that instructions of this scope get if they are being dropped; None if they are not."""
        failure = self._failure
        scope = self.around()
        while failure is None and scope is not None:
            failure = scope.ended()
            scope = scope.around()
        if failure is not None:
            return failure
        if self.deadline is not None and self._clock() >= self.deadline:
            return self._drop(DeadlineExceeded(f"dropped, because the deadline of {self} has passed"))
        return None

    def ended(self) -> Failure | None:
        """Return the failure with which this scope itself was cancelled, or was found to have expired; or None."""
        return self._failure

    def _drop(self, error: Exception) -> Failure:
        failure = self._failure = Failure(error, dropped=True)
        for waker in list(self._wakers):
            waker.wake()
        return failure

    def add_waker(self, waker: Any) -> None:
        """Have ``waker.wake()`` called when this scope, or an outer one that is not shielded off, ends; see `ended`."""
        scope: Scope | None = self
        while scope is not None:
            scope.add_waker_here(waker)
            scope = scope.around()

    def remove_waker(self, waker: Any) -> None:
        """Undo `add_waker`."""
        scope: Scope | None = self
        while scope is not None:
            scope.remove_waker_here(waker)
            scope = scope.around()

    def add_waker_here(self, waker: Any) -> None:
        """Have ``waker.wake()`` called when this scope itself ends, see `ended`, not for its outer scopes."""
        self._wakers[waker] = None

    def remove_waker_here(self, waker: Any) -> None:
        """Undo `add_waker_here`."""
        self._wakers.pop(waker, None)

    def around(self) -> Scope | None:
        """Return the outer scope whose cancellation cancels this one; None for a shield or without an outer scope."""
        return None if self.shield else self.outer

    def remaining(self) -> float | None:
        """Return the seconds left to the scope's deadline, not below zero; None if it has no deadline."""
        return None if self.deadline is None else max(0.0, self.deadline - self._clock())

    def __repr__(self) -> str:
        about = [repr(self.name)] if self.name is not None else []
        about += [f"priority={self.priority}"] if self.priority else []
        about += ["cancelled"] if self._failure is not None else []
        return f"<scope {' '.join(about)}>" if about else "<scope>"

    def __str__(self) -> str:
        return f"scope {self.name!r}" if self.name is not None else "its scope"


def scope_of(instruction: Instruction) -> Scope | None:
    """Return the scope that an instruction was issued in; None if there was none."""
    mode = instruction.mode
    return mode.scope if mode is not None else None


def priority_of(instruction: Instruction) -> int:
    """Return the priority of the scope that an instruction was issued in; 0 without a scope."""
    scope = scope_of(instruction)
    return 0 if scope is None else scope.priority
