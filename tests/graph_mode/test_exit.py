"""A program with graphs ends immediately and cleanly, in the middle of anything; and graphs still work after a fork."""

from __future__ import annotations

import os
import textwrap

import pytest

from tests.vm.test_exit import run

DOUBLE = """
class Heavy(flow.nn.Graph):
    def build(self, x):
        for _ in range(20):
            x = x @ x * 0.001
        return x
"""


def program(text: str) -> str:
    return DOUBLE + textwrap.dedent(text)


def test_with_unread_results() -> None:
    code, output, errors = run(
        program(
            """
            graph = Heavy()
            results = [graph(flow.ones(100, 100)) for _ in range(5)]
            print("end")
            """
        )
    )
    assert (code, output, errors) == (0, "end\n", "")


@pytest.mark.parametrize("keep", [True, False])
def test_with_launches_running_on_the_worker(keep: bool) -> None:
    code, output, errors = run(
        program(
            f"""
            async def main():
                global graph, results
                # In development mode asyncio tells of slow callbacks, such as building on a busy machine.
                asyncio.get_running_loop().slow_callback_duration = 60
                graph = Heavy()
                results = [graph(flow.ones(500, 500)) for _ in range(4)]
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                if not {keep}:
                    del graph, results
                print("end")
            asyncio.run(main())
            """
        )
    )
    assert (code, output, errors) == (0, "end\n", "")


def test_on_the_simulated_device() -> None:
    code, output, errors = run(
        program(
            """
            graph = Heavy()
            async def main():
                global results
                # In development mode asyncio tells of slow callbacks, such as building on a busy machine.
                asyncio.get_running_loop().slow_callback_duration = 60
                results = [graph(flow.ones(50, 50, device="sim")) for _ in range(4)]
                await asyncio.sleep(0)
                print("end")
            asyncio.run(main())
            """
        )
    )
    assert (code, output, errors) == (0, "end\n", "")


def test_a_clean_exit() -> None:
    """The graphs end before their session, and that before the machines; a program's own handlers run before all."""
    code, output, errors = run(
        """
        import atexit
        from vmflow.vm.virtual_machine import default_machine
        f = flow.nn.Graph.trace(lambda x: x + 1)
        f(flow.ones(2)).numpy()
        session, machine = flow.default_session(), default_machine()
        compiled, = session.graphs()
        close, close_machine = compiled.close, type(machine).close
        def closing():
            print("graph", session.state, machine.state)
            close()
        def closing_machine(self, *rest):
            print("machine", session.state, self.state)
            close_machine(self, *rest)
        compiled.close = closing
        type(machine).close = closing_machine
        atexit.register(lambda: print("program", f(flow.ones(2)).tolist()))
        """
    )
    assert code == 0, errors
    assert output == "program [2.0, 2.0]\ngraph closed running\nmachine closed running\n"
    assert errors == ""


@pytest.mark.parametrize("daemon", [False, True])
def test_a_thread_calls_while_the_main_thread_exits(daemon: bool) -> None:
    code, output, errors = run(
        f"""
        started = threading.Event()
        f = flow.nn.Graph.trace(lambda x: x * 0.5 + 0.5)
        def work():
            x = flow.ones(8)
            for step in range(10_000_000 if {daemon} else 500):
                x = f(x)
                if step == 50:
                    started.set()
            print(x.tolist()[0])
        threading.Thread(target=work, daemon={daemon}).start()
        started.wait()
        """
    )
    assert code == 0, errors
    assert output == ("" if daemon else "1.0\n")
    assert errors == ""


def test_an_unseen_failure_is_reported_once() -> None:
    code, _, errors = run(
        """
        f = flow.nn.Graph.trace(lambda x, at: (flow.gather(x, 0, at), x + 1))
        bad = f(flow.ones(3), flow.tensor([7]))
        good = f(flow.ones(3), flow.tensor([1]))
        print(good[0].tolist())
        """
    )
    assert code == 0
    assert errors.count("IndexError: ") == 1
    assert errors.count("Traceback") == 1


def test_an_exception_in_main() -> None:
    code, _, errors = run(
        program(
            """
            graph = Heavy()
            results = [graph(flow.ones(100, 100)) for _ in range(5)]
            raise ValueError("on purpose")
            """
        )
    )
    assert code == 1
    assert errors.strip().endswith("ValueError: on purpose")
    assert errors.count("Traceback") == 1


def test_an_exception_while_building() -> None:
    code, _, errors = run(
        """
        @flow.global_function
        def f(x):
            y = x + 1
            raise ValueError("on purpose")
        f(flow.ones(3))
        """
    )
    assert code == 1
    assert errors.strip().endswith("ValueError: on purpose")
    assert errors.count("Traceback") == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("when", ["before", "pending", "never"])
@pytest.mark.parametrize("mode", ["script", "loop"])
def test_fork(when: str, mode: str) -> None:
    """The child calls graphs that were built before, and builds others."""
    body = {
        "script": "main()",
        "loop": (
            "async def go():\n"
            "    asyncio.get_running_loop().slow_callback_duration = 60\n"  # forking and building take their time
            "    await (flow.ones(600, 600) @ flow.ones(600, 600))\n"
            "    main()\n"
            "asyncio.run(go())"
        ),
    }[mode]
    code, output, errors = run(
        f"""
import warnings
f = flow.nn.Graph.trace(lambda x: x * 2)
weight = flow.zeros(2, requires_grad=True)
step = flow.global_function("train", optimizer=flow.optim.SGD([weight], lr=1.0))(lambda x: (weight * x).sum())
when = {when!r}
def main():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")     # forking with threads, and blocking reads on the loop
        if when != "never":
            before = f(flow.ones(2)), step(flow.ones(2))
            if when == "before":
                before[0].numpy(), before[1].item()
        child = os.fork()
        values = [f(flow.full((size,), 3.0)).tolist() for size in (2, 3)]
        if when != "never":
            values.append(before[0].tolist())
        step(flow.ones(2)).item()
        values.append(weight.tolist())
    if child == 0:
        print("child", values, flush=True)
        os._exit(7)
    print("parent", values, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
        + body
    )
    assert code == 0, errors
    steps = -1.0 if when == "never" else -2.0
    values = [[6.0] * 2, [6.0] * 3, *([[2.0, 2.0]] if when != "never" else []), [steps, steps]]
    assert sorted(output.splitlines()) == [f"child {values}", f"parent {values} 7"]
    assert errors == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fork_while_another_thread_builds() -> None:
    """Its graph is finished before, so that the child finds modules and optimizers whole."""
    code, output, errors = run(
        """
import warnings
weight = flow.zeros(2, requires_grad=True)
optimizer = flow.optim.SGD([weight], lr=1.0)
inside, done = threading.Event(), threading.Event()
def slowly(x):
    inside.set()
    done.wait(20)
    return (weight * x).sum()
step = flow.global_function("train", optimizer=optimizer)(slowly)
thread = threading.Thread(target=lambda: step(flow.ones(2)).item())
thread.start()
inside.wait()
os.register_at_fork(before=done.set)    # called before the framework's own
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    child = os.fork()
if child == 0:
    f = flow.nn.Graph.trace(lambda x: x * 2)
    print("child", f(flow.ones(2)).tolist(), type(optimizer.param_groups[0]["lr"]).__name__, flush=True)
    os._exit(7)
thread.join()
print("parent", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    )
    assert code == 0, errors
    assert sorted(output.splitlines()) == ["child [2.0, 2.0] float", "parent 7"]
    assert errors == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("elsewhere", [True, False])
def test_fork_while_launches_are_being_started(elsewhere: bool, layers: int) -> None:
    """Threads that start launches in the parent do not exist in the child, except the thread that forks."""
    code, output, errors = run(
        f"""
import warnings
from vmflow.graph_mode.job_queue import queue_of
from vmflow.vm.virtual_machine import current_machine
class Graph(flow.nn.Graph):
    def __init__(self):
        super().__init__()
        self.config.allow_fusion(False)
        self.net = flow.nn.Sequential(*[flow.nn.ReLU() for _ in range({layers})])
        for stage, block in enumerate(self.net):
            block.config.set_stage(stage)
    def build(self, x):
        return self.net(x) * 2
f = Graph()
f(flow.ones(2)).tolist()
machine = current_machine()
turns = [queue_of(machine)._turn, *[runtime._turn for runtime in machine.graphs.values()]]
taken, done = threading.Event(), threading.Event()
def take():
    assert all([turn.acquire(blocking=False) for turn in turns])
def give_back():
    for turn in turns:
        turn.release()
def hold():
    take()
    taken.set()
    done.wait(20)
    give_back()
thread = threading.Thread(target=hold)
elsewhere = {elsewhere}
if elsewhere:
    thread.start()
    taken.wait(20)
else:
    take()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")     # forking with threads
    child = os.fork()
if child == 0:
    signal.alarm(20)    # rather than to wait for ever
    if not elsewhere:
        assert not any([turn.acquire(blocking=False) for turn in turns])
        give_back()
    print("child", f(flow.ones(2)).tolist(), flush=True)
    os._exit(7)
if elsewhere:
    done.set()
    thread.join()
else:
    give_back()
print("parent", f(flow.ones(2)).tolist(), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    )
    assert code == 0, errors
    assert sorted(output.splitlines()) == ["child [2.0, 2.0]", "parent [2.0, 2.0] 7"]
    assert errors == ""
