"""The helper threads of C kernels: every piece is computed once, beside other threads and through forks and exits."""

from __future__ import annotations

import os
import signal
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import vmflow as flow
from tests.support import run_program
from vmflow.kernels.expressions.bodies import Operation
from vmflow.kernels.native import team
from vmflow.kernels.native.addresses import address
from vmflow.kernels.native.elementwise import OUTER, Block, Layout, write_loop
from vmflow.kernels.native.loops import Chain

from .support import helpers

pytestmark = [pytest.mark.usefixtures("compiled"), pytest.mark.host]

# Seconds, after which something is locked up.
PATIENCE = 60

TASKS = Path("/proc/self/task")


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = flow.get_num_threads()
    flow.set_num_threads(2)
    yield
    flow.set_num_threads(before)


class Sum:
    """A C function that adds a number to each element of an array, and can be called for any part of it."""

    def __init__(self, length: int, by: float = 1.0) -> None:
        loop = write_loop(["float32"], [Operation("add", (0,), (by,), False, "float32", "float32")], (0,), [False])
        assert loop is not None
        self.array = np.zeros(length, np.float32)
        function = Chain(loop).function()
        assert function is not None
        block = Block(loop, Layout((False, False), length, (1,) * OUTER, ((0,) * OUTER,) * 2))
        self.function = function.by_words
        self.words = block.words([address(self.array)] * 2)
        self.cut = block.cut([4, 4])

    def job(self, work: float = 1e9) -> team.Job | None:
        """A job for the whole array, which counts as so much work."""
        return team.job(self.function, self.words, self.cut, work)


def compute(length: int = 100_000, times: int = 1) -> bool:
    """Whether the results of several threads are right."""
    summed = Sum(length)
    job = summed.job()
    assert job is not None
    for _ in range(times):
        team.run(job, 1e9)
    return bool((summed.array == times).all())


# Pieces


@given(length=st.integers(2 * team.TOGETHER, 5000), threads=st.integers(2, 9), times=st.integers(1, 3))
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_each_element_is_computed_once(length: int, threads: int, times: int) -> None:
    flow.set_num_threads(threads)
    assert compute(length, times)


def test_little_work_is_not_shared() -> None:
    summed = Sum(100_000)
    assert summed.job(2 * team.LEAST - 1) is None
    assert summed.job(2 * team.LEAST) is not None
    assert Sum(team.TOGETHER).job() is None  # one piece
    flow.set_num_threads(1)
    assert summed.job() is None


def test_pieces_are_as_large_as_they_are_worth() -> None:
    summed = Sum(100_000)
    for work, pieces in [(2 * team.LEAST, 2), (5 * team.LEAST, 5), (1e9, 8)]:
        job = summed.job(work)
        assert job is not None
        count, step = job[3:5]
        assert -(-count // step) == pieces
        assert step % team.TOGETHER == 0


def test_any_number_of_threads_is_taken() -> None:
    flow.set_num_threads(1 << 70)
    assert Sum(100_000).job() is not None


def test_a_call_keeps_its_arrays() -> None:
    summed = Sum(100_000)
    job = summed.job()
    assert job is not None
    call = team.call_of(job, 1e9)
    assert call is not None
    run, arguments, _ = call
    for _ in range(3):
        run(*arguments)
    assert (summed.array == 3).all()


# Helpers


def test_there_are_as_many_helpers_as_were_wanted() -> None:
    before = helpers()
    flow.set_num_threads(before + 3)
    assert compute()
    assert helpers() == before + 2
    flow.set_num_threads(2)
    assert compute()
    assert helpers() == before + 2


def test_others_compute_alone_meanwhile() -> None:
    wrong: list[int] = []

    def user(number: int) -> None:
        for length in range(1000, 41_000, 1000):
            if not compute(length + number):
                wrong.append(length)

    threads = [threading.Thread(target=user, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not wrong


def _of_helpers(line: str) -> list[str]:
    """Linux's report on each helper under a heading of ``/proc/self/task/*/status``."""
    found: list[str] = []

    def all_are_there() -> bool:
        found.clear()
        for task in TASKS.iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # of a thread that has ended meanwhile
                if (task / "comm").read_text().strip() == "vmflow-kernel":
                    told = dict(
                        splitline.split(":", 1)
                        for splitline in (task / "status").read_text().splitlines()
                        if ":" in splitline
                    )
                    found.append(told[line].strip())
        return len(found) == helpers()

    # A new thread may not have registered yet.
    _until(all_are_there)
    assert found
    return found


def _until(condition: Callable[[], bool]) -> None:
    """Wait, by asking again, which keeps no helper from its core."""
    waiting = threading.Event()
    for _ in range(PATIENCE * 1000):
        if condition():
            return
        waiting.wait(0.001)
    raise AssertionError("it has not come to that")


@pytest.mark.skipif(not TASKS.exists(), reason="only Linux tells of threads")
def test_helpers_sleep_when_there_is_nothing_to_do_and_are_woken() -> None:
    assert compute()
    for _ in range(3):
        _until(lambda: all([helper.startswith("S") for helper in _of_helpers("State")]))
        assert compute(1_000_000)


@pytest.mark.skipif(not TASKS.exists(), reason="only Linux tells of threads")
def test_helpers_leave_signals_to_others_but_not_those_of_their_own_faults() -> None:
    assert compute()
    blocked = [int(helper, 16) for helper in _of_helpers("SigBlk")]
    assert all([value & 1 << signal.SIGINT - 1 for value in blocked])
    assert not any([value & 1 << signal.SIGSEGV - 1 for value in blocked])


@pytest.mark.skipif(not TASKS.exists(), reason="only Linux tells of threads")
def test_helpers_that_are_not_wanted_any_more_sleep() -> None:
    program = """
    from tests.kernels.test_team import _of_helpers
    flow.set_num_threads(6)
    assert compute() and helpers() == 5
    flow.set_num_threads(2)

    def left_in_peace():
        before = _of_helpers("voluntary_ctxt_switches")
        assert compute(times=200)
        after = _of_helpers("voluntary_ctxt_switches")
        return sum([one == other for one, other in zip(before, after)])

    # A sleeping helper learns with the next job that it is not wanted; and some may have just been started.
    print(max([left_in_peace() for _ in range(10)]))
    flow.set_num_threads(6)
    assert compute(times=20)
    """
    assert int(_run(program)) >= 4


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only where cores can be chosen")
def test_helpers_stay_on_the_cores_of_the_process() -> None:
    program = """
    from tests.kernels.test_team import _of_helpers
    cores = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, cores)
    for _ in range(3):
        assert compute(1_000_000)
    print({int(core) for listed in _of_helpers("Cpus_allowed_list") for core in listed.split(",")} <= set(cores))
    """
    assert _run(program) == "True"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only where cores can be chosen")
def test_helpers_follow_when_the_process_is_told_to_stay_on_fewer_cores() -> None:
    program = """
    from tests.kernels.test_team import _of_helpers, _until
    core = min(os.sched_getaffinity(0))
    for _ in range(3):
        assert compute(1_000_000)
    os.sched_setaffinity(0, [core])
    _until(lambda: compute() and set(_of_helpers("Cpus_allowed_list")) <= {str(core)})
    print(helpers())
    """
    assert _run(program) in ("0", "2")  # of one core from the beginning, or of more


@pytest.mark.skipif(not TASKS.exists(), reason="only Linux tells of threads")
def test_helpers_are_as_urgent_as_the_caller() -> None:
    program = """
    from tests.kernels.test_team import TASKS, _until

    def of_helpers():
        statistics = [(task / "stat").read_text() for task in TASKS.iterdir()]
        return {int(line.rsplit(")", 1)[1].split()[16]) for line in statistics if "(vmflow-kernel)" in line}

    assert compute() and of_helpers() <= {os.nice(0)}
    os.setpriority(os.PRIO_PROCESS, 0, os.nice(0) + 3)
    _until(lambda: compute() and of_helpers() <= {os.nice(0)})
    print(helpers(), of_helpers() <= {os.nice(0)})
    """
    assert _run(program).endswith("True")


# Processes

PROGRAM = """
    import os, sys, threading
    import numpy as np
    import vmflow as flow
    from vmflow.kernels.native import team
    from tests.kernels.support import helpers
    from tests.kernels.test_team import compute
"""


def _run(program: str) -> str:
    return run_program(textwrap.dedent(PROGRAM) + textwrap.dedent(program), VMFLOW_JIT="1", OMP_NUM_THREADS="3")


def test_nothing_starts_for_one_thread() -> None:
    program = """
    flow.set_num_threads(1)
    x = flow.rand(1000, 1000)
    (x + x).exp().softmax(1).sum().item()
    print(helpers())
    """
    assert _run(program) == "0"


def test_a_forked_child_has_helpers_of_its_own() -> None:
    program = """
    assert compute() and helpers() == 2
    child = os.fork()
    if not child:
        os._exit(0 if helpers() == 0 and compute(times=20) and helpers() == 2 else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), compute(times=20))
    """
    assert _run(program) == "0 True"


def test_a_child_forked_while_others_compute() -> None:
    program = """
    stop = threading.Event()

    def user():
        while not stop.is_set():
            compute(times=10)

    threads = [threading.Thread(target=user) for _ in range(2)]
    for thread in threads:
        thread.start()
    codes = []
    for _ in range(20):
        child = os.fork()
        if not child:
            os._exit(0 if compute(times=3) else 1)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    stop.set()
    for thread in threads:
        thread.join()
    print(set(codes))
    """
    assert _run(program) == "{0}"


def test_the_interpreter_ends_while_helpers_watch() -> None:
    program = """
    import atexit
    atexit.register(lambda: print(compute()))
    assert compute()
    """
    assert _run(program) == "True"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only where cores can be chosen")
def test_one_core_is_enough() -> None:
    program = """
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    flow.set_num_threads(3)
    print(compute(times=50), helpers())
    """
    assert _run(program) == "True 0"
