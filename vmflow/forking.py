"""Locks and forks: a forked child has only the thread that forks, so a lock that another thread had stays locked there.

Locks of short sections are taken before a fork and given back after it in both processes: then the child finds the
guarded data whole.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Any, Final, TypeAlias

# RLock is a function; the type of its result has no public name.
Lock: TypeAlias = Any

# How long to wait for one lock, and for all of them together, in seconds; the guarded sections take microseconds.
_MOMENT: Final = 0.005
_PATIENCE: Final = 0.1

_locks: Final[dict[int, weakref.ref[Lock]]] = {}
_held_for_fork: Final = threading.local()


def lock_held_while_forking() -> Lock:
    """A new reentrant lock that no other thread has when a process forks.  Its sections must be short.

    Example:
        >>> from vmflow.forking import lock_held_while_forking
        >>> with lock_held_while_forking():
        ...     pass
    """
    lock = threading.RLock()
    number = id(lock)
    _locks[number] = weakref.ref(lock, lambda _: _locks.pop(number, None))
    return lock


def _before_fork() -> None:
    locks = [lock for lock in [reference() for reference in list(_locks.values())] if lock is not None]
    held: list[Lock] = []
    _held_for_fork.locks = held
    deadline = time.monotonic() + _PATIENCE
    while not _take(locks, held) and time.monotonic() < deadline:
        # The thread that has the missing lock may be waiting for one of these.
        _give_back()


def _take(locks: list[Lock], held: list[Lock]) -> bool:
    """Take all locks, each within a moment, into `held`; returns whether all were taken."""
    for lock in locks:
        if lock.acquire(timeout=_MOMENT):
            held.append(lock)
    return len(held) == len(locks)


def _give_back() -> None:
    held: list[Lock] = _held_for_fork.locks
    while held:
        held.pop().release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_give_back, after_in_child=_give_back)
