"""The turn lock: one owner at a time, for any threads and interruptions."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from vmflow.vm.turn_lock import TurnLock


def elsewhere(function: Callable[[], object]) -> list[object]:
    """The result of `function` on another thread."""
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found


def test_one_has_it() -> None:
    lock = TurnLock()
    assert not lock.locked()
    assert lock.acquire()
    assert lock.locked()
    assert lock.owner == threading.get_ident()
    assert elsewhere(lambda: lock.acquire(blocking=False)) == [False]
    assert elsewhere(lambda: lock.acquire(timeout=0.01)) == [False]
    lock.release()

    def take_and_give_back() -> bool:
        with lock:
            return lock.locked()

    assert elsewhere(take_and_give_back) == [True]
    assert not lock.locked()


def test_it_is_not_given_twice_to_one_thread() -> None:
    lock = TurnLock()
    with lock:
        assert not lock.acquire(blocking=False)
        assert not lock.acquire(timeout=0)
        assert lock.locked()
    assert not lock.locked()


def test_a_free_lock_cannot_be_released() -> None:
    with pytest.raises(RuntimeError, match="nobody has"):
        TurnLock().release()


def test_a_waiting_thread_gets_the_lock_when_it_is_released() -> None:
    lock = TurnLock()
    waiting = threading.Event()
    order: list[str] = []

    def wait() -> None:
        waiting.set()
        with lock:
            order.append("waited")

    lock.acquire()
    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait()
    order.append("had it")
    lock.release()
    thread.join()
    assert order == ["had it", "waited"]
    assert not lock.locked()


def test_many_threads_exclude_each_other() -> None:
    lock = TurnLock()
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        for _ in range(300):
            with lock:
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 1800
    assert set(most) == {1}
    assert not lock.locked()


def test_a_function_is_called_once_when_the_lock_is_free() -> None:
    lock = TurnLock()
    found: list[object] = []

    def function() -> None:
        found.append(lock.owner)
        lock.wake()  # as another thread may do at the same time

    lock.when_free(function)
    assert found == [None]
    with lock:
        lock.when_free(function)
        lock.when_free(function)
        assert elsewhere(lock.wake) == [None]
        assert found == [None]
        assert lock.wanted()
    assert found == [None] * 3
    assert not lock.wanted()
    assert not lock.locked()


def test_a_function_may_take_the_lock_and_wait_again() -> None:
    lock = TurnLock()
    found: list[bool] = []

    def function() -> None:
        found.append(lock.acquire(blocking=False))
        if len(found) == 1:
            lock.when_free(function)
        lock.release()

    lock.acquire()
    lock.when_free(function)
    lock.release()
    assert found == [True, True]
    assert not lock.locked()


@pytest.mark.parametrize("mine", [True, False])
def test_in_a_forked_child_only_the_forking_thread_keeps_it(mine: bool) -> None:
    lock = TurnLock()
    if mine:
        lock.acquire()
    else:
        elsewhere(lock.acquire)
    lock.renew()
    assert lock.locked() is mine
    assert lock.acquire(blocking=False) is not mine
