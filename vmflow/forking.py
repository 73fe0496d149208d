"""Locks and forks: a child has only the thread that forked, so a lock that another thread held stays locked forever.

So the locks made here are acquired before a fork and released after it in both processes: then the child finds the
locks free and the data that they guard consistent, unless another thread held one for longer than a fork waits.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Any, Final, TypeAlias

# threading.RLock is a function; the type of its result has no public name.
Lock: TypeAlias = Any

# About the seconds to wait before a fork for one lock, and for all together.
_MOMENT: Final = 0.005
_PATIENCE: Final = 0.1

_locks: Final[dict[int, weakref.ref[Lock]]] = {}
_held_for_fork: Final = threading.local()


def lock_held_while_forking() -> Lock:
    """Make a reentrant lock that a fork acquires if no thread holds it for long.  Hold it for microseconds only.

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
        # The thread that holds the missing lock may be waiting for one of the acquired locks: release them and retry.
        _give_back()


def _take(locks: list[Lock], held: list[Lock]) -> bool:
    """Acquire locks, waiting up to `_MOMENT` for each; append the acquired ones to `held`; return whether all were."""
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
