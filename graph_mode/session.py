"""`Session`: what compiled graphs belong to, from the first that is built to the end of the process.

There is a default one, which opens by itself, and others for blocks.  At exit what was started last ends first: the
graphs, then their session, then the virtual machines.
"""

from __future__ import annotations

import atexit
import itertools
import os
import threading
import weakref
from contextlib import AbstractContextManager, ExitStack
from contextvars import ContextVar
from types import TracebackType
from typing import Final, Literal, Protocol, TypeAlias, final

import vmflow.vm  # noqa: F401 (its handlers for exit come before those below)
from vmflow.forking import lock_held_while_forking

State: TypeAlias = Literal["open", "running", "closed"]


class Closeable(Protocol):
    """What a session owns: a compiled graph."""

    def close(self) -> None:
        """Launch nothing any more; what was launched still runs."""
        ...

    def forget_threads(self) -> None:
        """In a forked child: locks may have been held by threads that are not here."""
        ...


class SessionClosed(RuntimeError):
    """A graph was called, or built, after its session was closed."""


_numbers: Final = itertools.count()

# By their ids, those that somebody still has.
_sessions: Final[weakref.WeakValueDictionary[int, Session]] = weakref.WeakValueDictionary()

# The sessions whose blocks this task or thread is in, the innermost last.
_ENTERED: Final[ContextVar[tuple[Session, ...]]] = ContextVar("vmflow.sessions", default=())


@final
class Session:
    """Owns compiled graphs, weakly: one that nobody can call any more goes by itself.

    A block makes it the default one, for the task or thread that enters it and those that it starts, and closes it:

        with flow.graph.Session() as session:
            graph = TrainGraph(model)
            graph(x)                   # built in this session
        graph(x)                       # raises SessionClosed

    Attributes:
        id: a number that no other session of the process has.
        state: "open" until a graph is built in it, then "running", and in the end "closed".
    """

    def __init__(self) -> None:
        self.id = next(_numbers)
        self.state: State = "open"
        self._lock = threading.Lock()
        self._graphs: list[weakref.ref[Closeable]] = []
        _sessions[self.id] = self

    def try_init(self) -> bool:
        """Be running; whether it was not before.

        Raises:
            SessionClosed: if it has been closed.
        """
        with self._lock:
            if self.state == "closed":
                raise SessionClosed(f"session {self.id} has been closed, and runs no graph any more; make a new one")
            started = self.state == "open"
            self.state = "running"
        return started

    def __enter__(self) -> Session:
        self.require_open("a new graph")
        _ENTERED.set((*_ENTERED.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        entered = list(_ENTERED.get())
        if self in entered:
            entered.reverse()
            entered.remove(self)
            _ENTERED.set(tuple(reversed(entered)))
        self.close()

    def own(self, graph: Closeable, name: str) -> None:
        """Take a graph that has been compiled.

        Raises:
            SessionClosed: if the session has been closed; the graph is closed as well.
        """
        with self._lock:
            closed = self.state == "closed"
            if not closed:
                self.state = "running"
                self._graphs = [known for known in self._graphs if known() is not None]
                self._graphs.append(weakref.ref(graph))
        if closed:
            graph.close()
            self.require_open(name)

    def require_open(self, name: str) -> None:
        """Make sure that graphs can still be built and called.

        Args:
            name: of the graph, for the message.

        Raises:
            SessionClosed: if they cannot.
        """
        if self.state != "closed":
            return
        if _exiting.is_set() and threading.current_thread().daemon:
            # The interpreter is about to stop this thread wherever it is; an exception would only be noise.
            threading.Event().wait()
        raise SessionClosed(
            f"graph {name!r} belongs to a session that has been closed, and cannot run any more; after "
            "vmflow.clear_default_session() a new graph can be built, also one over the same modules"
        )

    def graphs(self) -> list[Closeable]:
        """The compiled graphs that somebody can still call, in the order in which they were made."""
        with self._lock:
            known = list(self._graphs)
        return [graph for graph in [it() for it in known] if graph is not None]

    def close(self) -> None:
        """Close all graphs, the newest first, and take no other.  What was launched still runs.

        Later calls change nothing.
        """
        with self._lock:
            if self.state == "closed":
                return
            self.state = "closed"
        for graph in reversed(self.graphs()):
            graph.close()
        self._graphs = []

    def forget_threads(self) -> None:
        """In a forked child: locks may have been held by threads that are not here."""
        self._lock = threading.Lock()
        for graph in self.graphs():
            graph.forget_threads()

    def __repr__(self) -> str:
        return f"<Session {self.id} {self.state}, {len(self.graphs())} graphs>"


_default: Session | None = None
_default_lock = lock_held_while_forking()
_exiting: Final = threading.Event()


def session_of(id: int) -> Session:
    """The session of this id.

    Raises:
        ValueError: if there is none, or nobody has it any more.
    """
    session = _sessions.get(id)
    if session is None:
        raise ValueError(f"there is no session {id}; there are {sorted(_sessions)}")
    return session


def default_session() -> Session:
    """The session to which graphs go that are built now: of the innermost block of one, else of the process.

    The latter is opened by the first who asks for it.
    """
    global _default
    entered = _ENTERED.get()
    if entered:
        return entered[-1]
    if _default is None:
        with _default_lock:
            if _default is None:
                _default = Session()
    return _default


def clear_default_session() -> None:
    """Close the process's default session with all its graphs; the next graph that is built opens another."""
    global _default
    with _default_lock:
        session, _default = _default, None
    if session is not None:
        session.close()


# Building a graph puts other gradients and learning rates into its modules and optimizers for a while.  Two graphs may
# share these, so that one is built at a time in the whole process.
building: threading.RLock = threading.RLock()


def building_alone() -> threading.RLock:
    """The lock to hold while a graph is built."""
    return building


# At exit


def _at_exit() -> None:
    _exiting.set()
    for session in sorted(_sessions.values(), key=lambda session: -session.id):
        session.close()


# Handlers are called in the reverse order of their registration: this comes before that of the machines, whose package
# has been imported above.
atexit.register(_at_exit)


# Forking: the child must not find modules and optimizers as they are while another thread builds a graph of them.

# How long a fork waits for a graph that is being built, in seconds; then the child puts back what building has changed.
_PATIENCE: Final = 0.02

_held_for_fork = threading.local()
_changing: Final = lock_held_while_forking()
_changed: list[ExitStack] = []


class PutBack:
    """A block that builds a graph: managers of what it changes of modules and optimizers for a while.

    Args:
        managers: entered in this order, left in the reverse one; in a forked child, too, if this thread is not there.
    """

    def __init__(self, *managers: AbstractContextManager[object]) -> None:
        self._managers = managers
        self._stack = ExitStack()

    def __enter__(self) -> None:
        with _changing:
            _changed.append(self._stack)
            for manager in self._managers:
                self._stack.enter_context(manager)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _changing:
            try:
                self._stack.__exit__(kind, error, trace)
            finally:
                _changed.remove(self._stack)


def _before_fork() -> None:
    _held_for_fork.lock = building if building.acquire(timeout=_PATIENCE) else None


def _after_fork_in_parent() -> None:
    if _held_for_fork.lock is not None:
        _held_for_fork.lock.release()


def _after_fork_in_child() -> None:
    global building
    if _held_for_fork.lock is not None:
        _held_for_fork.lock.release()
    else:
        building = threading.RLock()
        # As if building had raised, in the thread that is not here.
        for stack in reversed(_changed):
            error = RuntimeError("the process forked while another thread built a graph")
            stack.__exit__(RuntimeError, error, None)
        _changed.clear()
    for session in list(_sessions.values()):
        session.forget_threads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
