"""`Session` owns compiled graphs until it is closed.

The process's default session opens by itself; others serve for blocks.  At exit, the sessions are closed with their
graphs, the newest first, and then the virtual machines.
"""

from __future__ import annotations

import atexit
import itertools
import os
import sys
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
    """The methods of a compiled graph that a session calls."""

    def close(self) -> None:
        """Release the memory of runs; earlier launches still run."""
        ...

    def forget_threads(self) -> None:
        """Replace locks in a forked child, where threads that held them do not exist."""
        ...


class SessionClosed(RuntimeError):
    """Raised by calls of a closed session's graphs, and by building in, entering or initializing a closed session.

    Example:
        >>> graph = flow.nn.Graph.trace(lambda x: x + 1)
        >>> with flow.graph.Session():
        ...     graph(flow.tensor(1))
        tensor(2)
        >>> graph(flow.tensor(1))
        Traceback (most recent call last):
        ...
        vmflow.graph_mode.session.SessionClosed: ...
    """


_numbers: Final = itertools.count()

# All sessions that are still referenced, by id.
_sessions: Final[weakref.WeakValueDictionary[int, Session]] = weakref.WeakValueDictionary()

# The sessions whose blocks this context has entered, the innermost last; a new task begins with its creator's.
_ENTERED: Final[ContextVar[tuple[Session, ...]]] = ContextVar("vmflow.sessions", default=())


@final
class Session:
    """Owns compiled graphs, by weak references: unreachable graphs are collected.

    A ``with`` block makes the session the default of the task or thread that enters the block, and of tasks started in
    it; a new `threading.Thread` has the process's default.  The end of the block closes the session.  Calls of its
    graphs then raise `SessionClosed`.

    Attributes:
        id: a number that no other session of the process has.
        state: "open" until a graph is built in it or `try_init` is called, then "running", and in the end "closed".

    Example:
        >>> with flow.graph.Session() as session:
        ...     flow.nn.Graph.trace(lambda x: x + 1)(flow.tensor(1))
        tensor(2)
        >>> session.state
        'closed'
    """

    def __init__(self) -> None:
        self.id = next(_numbers)
        self.state: State = "open"
        self._lock = threading.Lock()
        self._graphs: list[weakref.ref[Closeable]] = []
        _sessions[self.id] = self

    def try_init(self) -> bool:
        """Set the state to "running"; True if it was "open".

        Raises:
            SessionClosed: if the session has been closed.
        """
        with self._lock:
            if self.state == "closed":
                raise SessionClosed(f"session {self.id} has been closed, and runs no graphs; make a new session")
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
        """Register a compiled graph.

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
        """Check that the session is not closed; if it is, a daemon thread at Python's exit waits for ever.

        Args:
            name: the graph's name, for the message.

        Raises:
            SessionClosed: if the session has been closed.
        """
        if self.state != "closed":
            return
        if _exiting.is_set() and threading.current_thread().daemon:
            # The interpreter is about to stop this daemon thread, so let it wait: an exception would only be noise.
            threading.Event().wait()
        raise SessionClosed(
            f"graph {name!r} belongs to a session that has been closed, and cannot run; after "
            "vmflow.clear_default_session() a new graph can be built, also one over the same modules"
        )

    def graphs(self) -> list[Closeable]:
        """The compiled graphs that still exist, in the order in which they were made; none after `close`."""
        with self._lock:
            known = list(self._graphs)
        return [graph for graph in [reference() for reference in known] if graph is not None]

    def close(self) -> None:
        """Close all graphs, the newest first, and refuse new ones.  Earlier launches still run.

        Later calls of `close` change nothing.
        """
        with self._lock:
            if self.state == "closed":
                return
            self.state = "closed"
        for graph in reversed(self.graphs()):
            graph.close()
        self._graphs = []

    def forget_threads(self) -> None:
        """Replace locks in a forked child, where threads that held them do not exist."""
        self._lock = threading.Lock()
        for graph in self.graphs():
            graph.forget_threads()

    def __repr__(self) -> str:
        return f"<Session {self.id} {self.state}, {len(self.graphs())} graphs>"


_default: Session | None = None
_default_lock = lock_held_while_forking()
_exiting: Final = threading.Event()


def session_of(id: int) -> Session:
    """The session with this id.

    Raises:
        ValueError: if there is none, or it is not referenced any more.

    Example:
        >>> session = flow.graph.Session()
        >>> flow.graph.session_of(session.id) is session
        True
    """
    session = _sessions.get(id)
    if session is None:
        raise ValueError(f"there is no session {id}; the sessions are {sorted(_sessions)}")
    return session


def default_session() -> Session:
    """The session that owns newly built graphs: that of the innermost block, else of the process.

    The latter is opened when it is first needed.

    Example:
        >>> with flow.graph.Session() as session:
        ...     flow.default_session() is session
        True
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
    """Close the process's default session with all its graphs; another is opened when it is needed.

    Example:
        >>> session = flow.default_session()
        >>> flow.clear_default_session()
        >>> session.state
        'closed'
    """
    global _default
    with _default_lock:
        session, _default = _default, None
    if session is not None:
        session.close()


# Building a graph temporarily replaces gradients and learning rates of its modules and optimizers.  Two graphs may
# share these, so that only one thread of the process builds graphs at a time.
building: threading.RLock = threading.RLock()


def building_alone() -> threading.RLock:
    """The lock to hold while building a graph."""
    return building


# At exit


def _at_exit() -> None:
    _exiting.set()
    for session in sorted(_sessions.values(), key=lambda session: -session.id):
        session.close()


# Handlers are called in the reverse order of their registration: this one runs before that of the machines, whose
# package has been imported above.
atexit.register(_at_exit)


# Forking: the child must not see modules and optimizers that another thread has temporarily changed to build a graph.

# Seconds that a fork waits for a graph that is being built; after that, the child restores the changes.
_PATIENCE: Final = 0.02

_held_for_fork = threading.local()
_changing: Final = lock_held_while_forking()
_changed: list[ExitStack] = []


class PutBack:
    """A context manager around the building of a graph.

    Args:
        managers: context managers of temporary changes of modules and optimizers, entered in this order and left in the
            reverse one; left in a forked child, too, if the building thread does not exist there.
    """

    def __init__(self, *managers: AbstractContextManager[object]) -> None:
        self._managers = managers
        self._stack = ExitStack()

    def __enter__(self) -> None:
        with _changing:
            _changed.append(self._stack)
            try:
                for manager in self._managers:
                    self._stack.enter_context(manager)
            except BaseException:
                _changed.remove(self._stack)
                self._stack.__exit__(*sys.exc_info())
                raise

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
        # The block is left as if building had raised in its thread, which does not exist in the child.
        for stack in reversed(_changed):
            error = RuntimeError("the process forked while another thread built a graph")
            stack.__exit__(RuntimeError, error, None)
        _changed.clear()
    for session in list(_sessions.values()):
        session.forget_threads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
