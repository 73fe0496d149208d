"""The threads of kernels: which computes which piece, and the effects of errors, Ctrl-C, forks and the end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import vmflow as flow
from tests.support import run_program
from vmflow.kernels import intra_op

pytestmark = pytest.mark.host

# Seconds, after which something is locked up.
PATIENCE = 60


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = flow.get_num_threads()
    flow.set_num_threads(2)
    yield
    flow.set_num_threads(before)


def _is_helper() -> bool:
    return threading.current_thread().name.startswith("vmflow-kernel")


class Meeting:
    """Pieces of which the first is the caller's and waits until a helper has begun, or ended, the second."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.ended = threading.Event()


# Pieces


def test_every_piece_is_computed_once() -> None:
    done: list[int] = []
    for count in (1, 2, 3, 10):
        done.clear()
        intra_op.run(done.append, [(number,) for number in range(count)])
        assert sorted(done) == list(range(count))


def test_a_read_only_operand_may_be_the_memory_of_the_result() -> None:
    out = np.ones(4 * intra_op.LEAST, np.float32)
    operand = out.view()
    operand.flags.writeable = False
    assert intra_op.over_elements(np.add, (operand, np.float32(1)), out, out.size)
    assert (out == 2).all()


def test_a_helper_that_looks_twice_computes_nothing_twice() -> None:
    job = intra_op._Job(lambda number: done.append(number), [(0,), (1,), (2,)])
    done: list[int] = []
    job.help()
    job.help()
    assert done == [2, 1, 0]
    job.work()
    job.settle()
    job.check()
    assert done == [2, 1, 0]


def test_a_helper_computes_the_last() -> None:
    meeting = Meeting()
    by_helper: dict[int, bool] = {}

    def piece(number: int) -> None:
        by_helper[number] = _is_helper()
        if number:
            meeting.begun.set()
        else:
            assert meeting.begun.wait(PATIENCE)

    intra_op.run(piece, [(0,), (1,)])
    assert by_helper == {0: False, 1: True}


def test_the_caller_computes_the_pieces_that_no_helper_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intra_op._Pool, "call", lambda pool, job: None)
    done: list[tuple[int, bool]] = []
    intra_op.run(lambda number: done.append((number, _is_helper())), [(0,), (1,), (2,)])
    assert done == [(0, False), (1, False), (2, False)]


def test_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    monkeypatch.setattr(intra_op, "_POOL", intra_op._Pool())
    flow.set_num_threads(3)
    done: list[int] = []
    intra_op.run(done.append, [(0,), (1,), (2,)])
    assert done == [0, 1, 2]


@pytest.mark.parametrize(
    ("count", "work", "multiple", "expected"),
    [
        (10, 0, 1, [(0, 10)]),
        (10, 2 * intra_op.LEAST - 1, 1, [(0, 10)]),
        (10, 2 * intra_op.LEAST, 1, [(0, 5), (5, 10)]),
        (10, 9 * intra_op.LEAST, 1, [(0, 4), (4, 8), (8, 10)]),
        (10, 9 * intra_op.LEAST, 8, [(0, 8), (8, 10)]),
        (10, 9 * intra_op.LEAST, 16, [(0, 10)]),
        (1, 9 * intra_op.LEAST, 1, [(0, 1)]),
        (0, 0, 1, [(0, 0)]),
    ],
)
def test_parts_of_a_range(count: int, work: int, multiple: int, expected: list[tuple[int, int]]) -> None:
    flow.set_num_threads(3)
    found: list[tuple[int, int]] = []
    intra_op.over(count, work, lambda start, stop: found.append((start, stop)), multiple)
    assert sorted(found) == expected


# While the pool is busy


def test_a_piece_that_is_cut_itself_is_computed_by_one() -> None:
    done: list[tuple[int, int, str]] = []

    def inner(outer: int, number: int) -> None:
        done.append((outer, number, threading.current_thread().name))

    intra_op.run(lambda outer: intra_op.run(inner, [(outer, 0), (outer, 1)]), [(0,), (1,)])
    assert sorted([value[:2] for value in done]) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for outer in range(2):
        assert len({thread for which, _, thread in done if which == outer}) == 1


def test_two_threads_at_once() -> None:
    """While the helper works for one of them, the other computes all of its own."""
    meeting = Meeting()
    done: list[tuple[str, int]] = []

    def slow(number: int) -> None:
        if number:
            meeting.begun.set()
            assert meeting.ended.wait(PATIENCE)

    def quick(number: int) -> None:
        done.append((threading.current_thread().name, number))

    first = threading.Thread(target=intra_op.run, args=(slow, [(0,), (1,)]))
    first.start()
    assert meeting.begun.wait(PATIENCE)
    intra_op.run(quick, [(0,), (1,)])
    assert done == [(threading.current_thread().name, 0), (threading.current_thread().name, 1)]
    meeting.ended.set()
    first.join(PATIENCE)
    assert not first.is_alive()
    test_a_helper_computes_the_last()


def test_many_threads_at_once() -> None:
    array = np.arange(3 * intra_op.LEAST, dtype=np.float32)
    x = flow.tensor(array)
    wrong: list[int] = []

    def work(seed: int) -> None:
        for turn in range(5):
            if not np.array_equal((x + seed * turn).numpy(), array + np.float32(seed * turn)):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert wrong == []


def test_the_number_is_changed_while_pieces_are_computed() -> None:
    done: list[int] = []
    for number in (1, 5, 2):

        def piece(which: int, threads: int = number) -> None:
            flow.set_num_threads(threads)
            done.append(which)

        done.clear()
        intra_op.run(piece, [(which,) for which in range(6)])
        assert sorted(done) == list(range(6))
        assert flow.get_num_threads() == number


# Errors


@pytest.mark.parametrize("failing", [(0,), (1,), (2,), (0, 2), (1, 2), (0, 1, 2)])
def test_an_error_comes_when_all_have_ended(failing: tuple[int, ...]) -> None:
    done: list[int] = []

    def piece(number: int) -> None:
        done.append(number)
        if number in failing:
            raise ValueError(f"of {number}")

    with pytest.raises(ValueError, match=f"of {failing[0]}"):
        intra_op.run(piece, [(0,), (1,), (2,)])
    assert sorted(done) == [0, 1, 2]
    test_a_helper_computes_the_last()


def test_an_error_of_a_kernel_is_that_of_its_op() -> None:
    x = flow.ones(3 * intra_op.LEAST, dtype=flow.int64)
    y = flow.ones(3 * intra_op.LEAST, dtype=flow.int64)
    y[-1] = 0
    with pytest.raises(ZeroDivisionError):
        (x // y).numpy()
    assert (x + y)[-1].item() == 1


def test_helpers_are_silent_as_kernels_are() -> None:
    meeting = Meeting()
    found: list[float] = []

    def piece(number: int) -> None:
        if number:
            found.append(float(np.log(np.float32(-1)) + np.float32(1e38) * np.float32(1e38)))
            meeting.ended.set()
        else:
            assert meeting.ended.wait(PATIENCE)

    with np.errstate(all="raise"):
        intra_op.run(piece, [(0,), (1,)])
    assert np.isnan(found[0])


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals cannot be sent to threads here")
@pytest.mark.parametrize("times", [1, 2])
def test_control_c_waits_for_the_pieces(times: int) -> None:
    meeting = Meeting()
    arrived: list[int] = []
    main = threading.get_ident()
    ended: list[int] = []

    def handler(number: int, frame: object) -> None:
        if len(arrived) < times:
            arrived.append(number)
            raise KeyboardInterrupt

    def piece(number: int) -> None:
        if number == 0:
            assert meeting.begun.wait(PATIENCE)
            return
        meeting.begun.set()
        # One that comes just before the caller begins to wait is seen when the next one comes.
        while len(arrived) < times:
            signal.pthread_kill(main, signal.SIGINT)
            os.sched_yield()
        for _ in range(1000):
            os.sched_yield()  # a thread that has not waited is far ahead by now
        ended.append(number)

    before = signal.signal(signal.SIGINT, handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            intra_op.run(piece, [(0,), (1,)])
        assert ended == [1]
    finally:
        signal.signal(signal.SIGINT, before)
    test_a_helper_computes_the_last()


def test_control_c_in_the_callers_piece_lets_nobody_begin_another() -> None:
    meeting = Meeting()
    done: list[int] = []

    def piece(number: int) -> None:
        if number == 0:
            assert meeting.begun.wait(PATIENCE)
            raise KeyboardInterrupt
        meeting.begun.set()
        done.append(number)

    with pytest.raises(KeyboardInterrupt):
        intra_op.run(piece, [(0,), (1,)])
    assert done == [1]
    assert intra_op._POOL.owner is None
    test_a_helper_computes_the_last()


# The number


@pytest.mark.parametrize("wrong", [0, -1, -100])
def test_numbers_that_are_not_positive(wrong: int) -> None:
    with pytest.raises(ValueError, match=f"must be at least 1, not {wrong}"):
        flow.set_num_threads(wrong)
    assert flow.get_num_threads() == 2


@pytest.mark.parametrize("wrong", [1.0, "2", None, True])
def test_invalid_numbers_of_threads(wrong: object) -> None:
    with pytest.raises(TypeError, match="must be an integer"):
        flow.set_num_threads(wrong)  # type: ignore[arg-type]
    assert flow.get_num_threads() == 2


def test_the_number_is_shown() -> None:
    flow.set_num_threads(np.int64(5))  # type: ignore[arg-type]
    assert "other kernels 5" in flow.show_config()


@pytest.mark.parametrize(("said", "expected"), [("3", "3"), ("0", None), ("many", None), ("", None), ("4,2", None)])
def test_the_usual_number(said: str, expected: str | None) -> None:
    program = "import vmflow as flow; print(flow.get_num_threads())"
    assert run_program(program, OMP_NUM_THREADS=said) == (expected or str(len(os.sched_getaffinity(0))))


# Processes

LARGE = """
    import os, threading
    import numpy as np
    import vmflow as flow
    from vmflow.kernels import intra_op

    def helpers():
        return sum(thread.name.startswith("vmflow-kernel") for thread in threading.enumerate())

    def compute():
        x = flow.ones(4 * intra_op.LEAST)
        return bool(((x + x) == 2).all().item())
"""


def test_nothing_starts_at_import_nor_for_one_thread() -> None:
    program = LARGE + "    print(threading.active_count(), compute(), helpers())\n"
    assert run_program(program, OMP_NUM_THREADS="1", VMFLOW_JIT="0") == "1 True 0"


def test_as_many_helpers_as_are_wanted() -> None:
    program = LARGE + "    print(compute(), helpers(), compute(), helpers())\n"
    assert run_program(program, OMP_NUM_THREADS="3", VMFLOW_JIT="0") == "True 2 True 2"


def test_a_forked_child_has_helpers_of_its_own() -> None:
    program = (
        LARGE
        + """
    assert compute() and helpers() == 1
    child = os.fork()
    if not child:
        assert helpers() == 0 and intra_op._POOL.helpers == 0
        os._exit(0 if compute() and helpers() == 1 else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), compute())
    """
    )
    assert run_program(program, OMP_NUM_THREADS="2", VMFLOW_JIT="0") == "0 True"


def test_a_child_forked_while_the_pool_is_busy() -> None:
    program = (
        LARGE
        + """
    begun, forked = threading.Event(), threading.Event()

    def piece(number):
        if number:
            begun.set()
            forked.wait(60)

    thread = threading.Thread(target=intra_op.run, args=(piece, [(0,), (1,)]))
    thread.start()
    assert begun.wait(60)
    child = os.fork()
    if not child:
        os._exit(0 if compute() and helpers() == 1 else 1)
    forked.set()
    thread.join()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), compute())
    """
    )
    assert run_program(program, OMP_NUM_THREADS="2", VMFLOW_JIT="0") == "0 True"


def test_the_interpreter_ends_and_so_may_kernels_at_its_end() -> None:
    program = (
        LARGE
        + """
    import atexit
    atexit.register(lambda: print(compute()))
    assert compute() and helpers() == 3
    """
    )
    assert run_program(program, OMP_NUM_THREADS="4", VMFLOW_JIT="0") == "True"
