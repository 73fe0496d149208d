"""A program ends immediately and cleanly in every way, with or without pending work.

Each case is a program of its own, run as a subprocess: its output, its exit code, and that it ends long before the
time limit, are the test.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import FunctionType

import pytest

from vmflow.graph_mode.program import Program
from vmflow.vm import settings

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 30.0  # generous: the import alone takes most of a second on a busy machine
PRELUDE = """\
import asyncio, logging, os, signal, sys, threading
# Debug mode warns of callbacks that take a tenth of a second, as any may on a busy machine.
logging.getLogger("asyncio").setLevel(logging.ERROR)
# A shell has its background jobs ignore the interrupt, and their children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
import numpy as np
import vmflow as flow
"""


def start(program: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, "-X", "dev", "-W", "error", "-c", PRELUDE + textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def run(program: str) -> tuple[int, str, str]:
    process = start(program)
    try:
        output, errors = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
        pytest.fail(f"the program hung\n{output}\n{errors}")
    return process.returncode, output, errors


def interrupted(process: subprocess.Popen[str]) -> str:
    """The standard error of a program after Ctrl-C, sent when it is ready.

    Python ignores exceptions in destructors, Ctrl-C among them, and says so; then, as a user would, it is sent again.
    """
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=LIMIT)[1]
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    try:
        output, errors = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
    lost = re.match(r"\s*Exception ignored in: .*__del__[^\0]*?KeyboardInterrupt", errors)
    if lost is None:
        pytest.fail(f"the program ignored the interrupt\n{output}\n{errors}")
    return errors[lost.end() :]


def test_end_of_script_with_work_pending() -> None:
    code, output, errors = run(
        """
        x = flow.ones(500, 500)
        for _ in range(20):
            x = x @ x * 0.001
        print("end")
        """
    )
    assert (code, output, errors) == (0, "end\n", "")


def test_end_of_script_while_the_worker_runs() -> None:
    code, output, errors = run(
        """
        async def main():
            asyncio.get_running_loop().slow_callback_duration = 60  # no reports of a slow machine
            x = flow.ones(1500, 1500)
            for _ in range(5):
                x = x @ x * 0.001
            await asyncio.sleep(0)  # one turn: the worker has got work
            await asyncio.sleep(0)
            print("end")
        asyncio.run(main())
        """
    )
    assert (code, output, errors) == (0, "end\n", "")


def test_exception_in_main() -> None:
    code, _, errors = run(
        """
        x = flow.ones(500, 500)
        y = x @ x
        raise ValueError("on purpose")
        """
    )
    assert code == 1
    assert errors.strip().endswith("ValueError: on purpose")
    assert errors.count("Traceback") == 1


def test_exception_in_a_coroutine_with_an_own_machine() -> None:
    code, _, errors = run(
        """
        async def main():
            async with flow.VirtualMachine():
                x = flow.ones(1000, 1000)
                y = [x @ x for _ in range(10)]
                raise ValueError("on purpose")
        asyncio.run(main())
        """
    )
    assert code == 1
    assert errors.strip().endswith("ValueError: on purpose")
    assert errors.count("Traceback") == 1


def test_many_interrupts_are_all_heard() -> None:
    """Wherever in a wait for the worker Ctrl-C comes, it is raised, and the next wait ends."""
    code, output, errors = run(
        """
        import queue, random
        from vmflow.vm import machine_fields
        machine_fields.DEFAULT[:] = [flow.VirtualMachine("default", cpu_worker="always")]
        ready, random = queue.SimpleQueue(), random.Random(0)

        def interrupt():
            while ready.get():
                for _ in range(random.randrange(20_000)):
                    pass
                os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        (flow.ones(2, 2) @ flow.ones(2, 2) * 0.001).numpy()  # Python tells of imports that are interrupted
        heard = 0
        while heard < 300:
            try:
                x = flow.ones(100, 100)
                ready.put(True)
                while True:
                    for _ in range(5):
                        x = x @ x * 0.001
                    x.numpy()
            except KeyboardInterrupt:
                heard += 1
        ready.put(False)
        thread.join()
        print(heard, flow.ones(3).sum().item())
        """
    )
    assert (code, output, errors) == (0, "300 3.0\n", "")


@pytest.mark.parametrize("worker", ["never", "always"])
def test_interrupt_while_waiting(worker: str) -> None:
    """Ctrl-C in the middle of a long chain: the script ends after the kernel that is running."""
    process = start(
        f"""
        from vmflow.vm import machine_fields
        machine_fields.DEFAULT[:] = [flow.VirtualMachine("default", cpu_worker="{worker}")]
        x = flow.ones(300, 300)
        for _ in range(30):
            x = x @ x * 0.001
        x.numpy()
        print("ready")
        while True:
            for _ in range(30):
                x = x @ x * 0.001
            x.numpy()
        """
    )
    errors = interrupted(process)
    assert process.returncode == -signal.SIGINT, errors
    assert errors.strip().endswith("KeyboardInterrupt")
    assert errors.count("Traceback") == 1, errors


@pytest.mark.parametrize("handler", ["signal.default_int_handler", "application"])
def test_an_interrupt_leaves_the_machine_usable(handler: str) -> None:
    """Python's own handler, and one of the application's that raises too, as asyncio's does the second time."""
    code, output, errors = run(
        f"""
        from vmflow.vm.virtual_machine import default_machine
        def application(signum, frame):
            raise KeyboardInterrupt
        signal.signal(signal.SIGINT, {handler})
        signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
        interrupted = 0
        x = flow.ones(64, 64)
        x.copy_(x @ x * (1 / 64)).numpy()  # the first ones import kernels, and look up the kind of processor
        for delay in range(100):
            try:
                # Inside the block: on a busy machine the first alarm is there before the next line is.
                signal.setitimer(signal.ITIMER_REAL, 0.0005 * (delay % 20 + 1))
                while True:
                    for _ in range(10):
                        x.copy_(x @ x * (1 / 64))
                    x.numpy()
            except KeyboardInterrupt:
                interrupted += 1
            default_machine().engine.check_invariants()
            assert np.allclose(x.numpy(), 1.0)
        print(interrupted)
        """
    )
    assert (code, output, errors) == (0, "100\n", "")


def test_interrupt_in_a_coroutine() -> None:
    process = start(
        """
        async def main():
            x = flow.ones(300, 300)
            print("ready")
            while True:
                for _ in range(30):
                    x = x @ x * 0.001
                await x
        asyncio.run(main())
        """
    )
    errors = interrupted(process)
    assert process.returncode == -signal.SIGINT, errors
    assert errors.strip().endswith("KeyboardInterrupt")


KERNEL = """
import atexit
# Something is compiled from a string before the process ends, as by an import in a thread.
atexit.register(lambda: eval("1"))
from vmflow.instructions.instruction import Instruction
from vmflow.instructions.op_call import op_call
from vmflow.vm import machine_fields
from vmflow.vm.virtual_machine import current_machine

def kernel(array, out):
    os.kill(os.getpid(), signal.SIGINT)
    return np.add(array, 1, out=out)

def interrupting(cost=0):
    source, result = flow.ones(2), flow.zeros(2)
    machine = current_machine()
    stream = machine.stream(source.device)
    reads = (machine.access(source._blob.storage, stream),)
    writes = (machine.access(result._blob.storage, stream),)
    policy = op_call("interrupting", kernel, (source._blob,), (result._blob,))
    machine.issue(Instruction(stream, policy, reads, writes, cost), result._blob.storage)
    return result
"""

CTRL_C = {
    "inline": "interrupting()  # HERE",
    "in a turn": "current_machine().observers.inline = False\nx = interrupting()\nx.tolist()  # HERE",
    "on a worker": """
machine_fields.DEFAULT[:] = [flow.VirtualMachine("default", cpu_worker="always")]
x = interrupting(10**9)
while True:
    x.tolist(), (x + 1).tolist()  # HERE
""",
    "in a graph": """
graph = flow.nn.Graph.trace(lambda x: x * 2)
graph(flow.ones(2)).tolist()
from vmflow.graph_mode.program import Program
run = Program.run
def interrupted(self, *arguments):
    os.kill(os.getpid(), signal.SIGINT)
    run(self, *arguments)
Program.run = interrupted
graph(flow.ones(2)).tolist()  # HERE
""",
    "in a coroutine": """
async def main():
    x = interrupting()
    while True:
        x = await (x + 1)
asyncio.run(main())  # HERE
""",
    "on a machine of a coroutine's own": """
async def main():
    async with flow.VirtualMachine():
        x = interrupting(10**9)
        while True:
            x = await (x + 1)
asyncio.run(main())  # HERE
""",
    "in a loader": """
sent = []
def collate(samples):
    if not sent:  # another one would interrupt the traceback as it is printed
        sent.append(os.kill(os.getpid(), signal.SIGINT))
    return flow.stack(samples)
data = [flow.ones(2)] * 1000
while True:
    for batch in flow.utils.data.DataLoader(data, num_workers=2, collate_fn=collate): batch.sum().item()  # HERE
""",
}


@pytest.mark.parametrize("where", CTRL_C)
def test_ctrl_c_ends_the_process_by_the_signal(where: str) -> None:
    """With the user's line in the traceback, wherever it comes; a shell stops its own loop for nothing else."""
    if where == "in a graph" and not isinstance(Program.run, FunctionType):
        pytest.skip("compiled functions cannot be replaced by interrupting ones")
    if where == "inline" and settings.race_check(None):
        pytest.skip("with the race check, nothing runs inline")
    program = KERNEL + CTRL_C[where]
    code, output, errors = run(program)
    assert (code, output) == (-signal.SIGINT, ""), errors
    assert "\nKeyboardInterrupt" in errors, errors
    line = (PRELUDE + program).split("# HERE")[0].count("\n") + 1
    assert f'File "<string>", line {line}, in <module>' in errors, errors


def test_sys_exit_in_a_coroutine() -> None:
    code, output, errors = run(
        """
        async def main():
            async with flow.VirtualMachine():
                x = flow.ones(1000, 1000)
                y = [x @ x for _ in range(10)]
                sys.exit(3)
        asyncio.run(main())
        """
    )
    assert (code, output, errors) == (3, "", "")


def test_tensors_outlive_their_loop() -> None:
    code, output, errors = run(
        """
        async def main():
            a = flow.ones(3) + 1            # never awaited
            async with flow.VirtualMachine():
                b = flow.ones(3) + 2        # finished as the block ends
            return a, b
        a, b = asyncio.run(main())
        print((a + b).numpy(), a.tolist(), b.tolist())
        """
    )
    assert (code, output, errors) == (0, "[5. 5. 5.] [2.0, 2.0, 2.0] [3.0, 3.0, 3.0]\n", "")


def test_a_second_loop() -> None:
    code, output, errors = run(
        """
        x = flow.zeros(2)
        async def main():
            global x
            x = x + 1
            print((await x).tolist())
            x = x + 1                       # the next loop finishes this
        asyncio.run(main())
        asyncio.run(main())
        print(x.tolist())
        """
    )
    assert (code, output, errors) == (0, "[1.0, 1.0]\n[3.0, 3.0]\n[4.0, 4.0]\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("mode", ["script", "loop"])
def test_fork(mode: str) -> None:
    body = {
        "script": "main()",
        "loop": "async def go():\n    await (flow.ones(600, 600) @ flow.ones(600, 600))\n    main()\nasyncio.run(go())",
    }[mode]
    code, output, errors = run(
        """
import warnings
def main():
    x = flow.ones(4) + 1                    # pending while forking
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")     # forking with threads, and blocking reads on the loop
        child = os.fork()
        value = (x * 10).tolist()
    if child == 0:
        print("child", value, flush=True)
        os._exit(7)
    print("parent", value, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
        + body
    )
    assert code == 0, errors
    assert sorted(output.splitlines()) == ["child [20.0, 20.0, 20.0, 20.0]", "parent [20.0, 20.0, 20.0, 20.0] 7"]
    assert errors == ""


@pytest.mark.parametrize("daemon", [False, True])
def test_a_thread_issues_while_the_main_thread_exits(daemon: bool) -> None:
    code, output, errors = run(
        f"""
        started = threading.Event()
        def work():
            x = flow.ones(8)
            for step in range(10_000_000 if {daemon} else 3000):
                x = x * 0.5 + 0.5
                if step == 100:
                    started.set()
            print(x.tolist()[0])
        threading.Thread(target=work, daemon={daemon}).start()
        started.wait()
        """
    )
    assert code == 0, errors
    assert output == ("" if daemon else "1.0\n")
    assert errors == ""


def test_an_unseen_failure_is_reported_once_at_exit() -> None:
    code, _, errors = run(
        """
        x = flow.ones(3)
        bad = flow.gather(x, 0, flow.tensor([7]))
        good = (x + 1).tolist()
        worse = bad + 1
        worse_still = worse * 2
        print(good)
        """
    )
    assert code == 0
    assert errors.count("IndexError: ") == 1
    assert "never looked at" in errors
    line = 1 + PRELUDE.count("\n") + 2
    assert f"issued at <string>:{line}, in <module>" in errors


def test_no_exit_takes_long() -> None:
    """With a chain of a hundred heavy ops pending the program does not compute them before it ends."""
    begin = time.perf_counter()
    code, _, _ = run("x = flow.ones(10)\n")
    bare = time.perf_counter() - begin
    begin = time.perf_counter()
    code, _, errors = run(
        """
        machine = flow.VirtualMachine(cpu_worker="always")
        from vmflow.vm import machine_fields
        machine_fields.DEFAULT[:] = [machine]
        x = flow.ones(1200, 1200)
        for _ in range(200):
            x = x @ x * 0.001
        """
    )
    assert code == 0, errors
    assert time.perf_counter() - begin < bare + 8
