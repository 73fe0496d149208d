"""Locks and forks: a forked child has only the thread that forks, so a lock that another thread had stays locked there.

Locks of short sections are taken before a fork and given back after it in both processes: then the child finds whole
what they guard.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Any, Final, TypeAlias

# RLock is a function; what it makes has no public name.
Lock: TypeAlias = Any

# What is guarded by such a lock takes microseconds.  Seconds: for one lock, and for all of them together.
_MOMENT: Final = 0.005
_PATIENCE: Final = 0.1

_locks: Final[dict[int, weakref.ref[Lock]]] = {}
_held_for_fork: Final = threading.local()


def lock_held_while_forking() -> Lock:
    """A new reentrant lock that no other thread has when a process forks.  Its sections must be short."""
    lock = threading.RLock()
    number = id(lock)
    _locks[number] = weakref.ref(lock, lambda _: _locks.pop(number, None))
    return lock


def _before_fork() -> None:
    locks = [lock for lock in [value() for value in list(_locks.values())] if lock is not None]
    held: list[Lock] = []
    _held_for_fork.locks = held
    deadline = time.monotonic() + _PATIENCE
    while not _take(locks, held) and time.monotonic() < deadline:
        # Who has the one that could not be had may be waiting for another one.
        _give_back()


def _take(locks: list[Lock], held: list[Lock]) -> bool:
    """Whether all of the locks could be had soon; `held` are those that could."""
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
