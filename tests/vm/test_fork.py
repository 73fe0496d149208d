"""A process that forks while another thread computes: every child can compute, and the parent goes on.

Each case is a program of its own.  Another thread is known to be inside a kernel, or in the middle of a build, when the
process forks, because it says so and waits to be told that it happened.
"""

from __future__ import annotations

import os
from types import FunctionType

import pytest

from vmflow.graph_mode.program import Program

from .test_exit import run

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

PRELUDE = """
import time, warnings
warnings.simplefilter("ignore")     # forking with threads
from vmflow.vm.virtual_machine import default_machine

inside, forked = threading.Event(), threading.Event()

def hold(*_):
    inside.set()
    forked.wait(20)

def fork(check):
    begin = time.perf_counter()
    child = os.fork()
    took = time.perf_counter() - begin
    if child == 0:
        signal.alarm(20)            # rather than to wait for ever
        try:
            check()
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(7)
    forked.set()
    assert took < 1, took
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

there = flow.arange(5.0) * 2
there.numpy()

def compute():
    assert (there + 1).tolist() == [1.0, 3.0, 5.0, 7.0, 9.0]
    assert flow.nn.Graph.trace(lambda x: x * 2)(there).tolist() == [0.0, 4.0, 8.0, 12.0, 16.0]
    assert flow.randn(3).isfinite().all().item()
    assert (flow.ones(300, 300) @ flow.ones(300, 300)).max().item() == 300.0

def raises(read):
    try:
        read()
    except RuntimeError as error:
        assert "when the process forked" in str(error), error
    else:
        raise AssertionError("nothing was raised")

def in_another_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    assert inside.wait(20)
    return thread
"""


def passes(program: str) -> None:
    code, output, errors = run(PRELUDE + program)
    assert (code, output, errors) == (0, "7\n", "")


SLOW_OP = """
from vmflow.instructions.op_call import op_call
from vmflow.instructions.instruction import Instruction
from vmflow.instructions.blob import Blob, Storage

def slowly(target, machine):
    '''An op in place of which the kernel waits in the middle.'''
    def kernel(array, out):
        out[:2] += 1
        hold()
        out[2:] += 1
        return out
    blob = target._blob
    policy = op_call("slowly", kernel, (blob,), (blob,))
    stream = machine.stream(target.device)
    dependence = machine.access(blob.storage, stream)
    machine.issue(Instruction(stream, policy, (), (dependence,)), blob.storage)
"""


@pytest.mark.parametrize("at_once", [True, False])
def test_while_another_thread_runs_a_kernel(at_once: bool) -> None:
    """In place, inline or in a drive: the changed tensor raises in the child, and is right in the parent."""
    passes(
        SLOW_OP
        + f"""
torn = flow.zeros(4)
torn.numpy()
if not {at_once}:
    default_machine().high_water = 5_000
    default_machine().observers.gather(True)
    from vmflow.vm import inline

def work():
    slowly(torn, default_machine())
    torn.numpy()

thread = in_another_thread(work)
own = flow.ones(3) * 2              # cannot have begun: it is computed in the child, too
large = flow.ones(1 << 17) * 2

def check():
    assert own.tolist() == [2.0] * 3
    assert large.sum().item() == 1 << 18
    flow.synchronize()
    assert default_machine().back_pressure.outstanding_bytes() == 0
    raises(torn.numpy)
    compute()

code = fork(check)
thread.join()
assert torn.tolist() == [1.0] * 4 and own.tolist() == [2.0] * 3
compute()
print(code)
"""
    )


def test_while_a_worker_runs_a_kernel() -> None:
    """Work that others have queued behind it is dropped in the child; finished results can be read."""
    passes(
        SLOW_OP
        + """
machine = flow.VirtualMachine(cpu_worker="always")
torn, behind = flow.zeros(4), []
torn.numpy()

def work():
    async def main():
        async with machine:
            slowly(torn, machine)
            behind.append(torn + 1)
            await behind[0]
    asyncio.run(main())

thread = in_another_thread(work)

def check():
    raises(torn.numpy)
    raises(behind[0].numpy)
    compute()
    async def main():
        async with flow.VirtualMachine():
            return (await (there * 2)).tolist()
    assert asyncio.run(main())[1] == 4.0

code = fork(check)
thread.join()
assert behind[0].tolist() == [2.0] * 4
print(code)
"""
    )


@pytest.mark.skipif(not isinstance(Program.run, FunctionType), reason="compiled functions cannot be replaced")
def test_while_another_thread_runs_a_graph() -> None:
    """The child can read neither result nor weights of a graph that trains, and calls it again with other weights."""
    passes(
        """
weight = flow.zeros(2, requires_grad=True)
step = flow.global_function("train", optimizer=flow.optim.SGD([weight], lr=1.0))(lambda x: (weight * x).sum())
predict = flow.nn.Graph.trace(lambda x: (x * 3).relu())
step(flow.ones(2)).item(), predict(there).numpy()

from vmflow.graph_mode.program import Program
run, holds = Program.run, [True]
def slow(self, *arguments):
    result = run(self, *arguments)
    if threading.current_thread() is not threading.main_thread():
        hold()
    return result
Program.run = slow

thread = in_another_thread(lambda: step(flow.ones(2)).item())

def check():
    raises(weight.detach().numpy)
    compute()
    assert predict(there).tolist() == [0.0, 6.0, 12.0, 18.0, 24.0]
    with flow.no_grad():
        weight.copy_(flow.zeros(2))
    step(flow.ones(2)).item()
    assert weight.tolist() == [-1.0, -1.0]

code = fork(check)
thread.join()
assert weight.tolist() == [-2.0, -2.0]
step(flow.ones(2)).item()
assert weight.tolist() == [-3.0, -3.0]
print(code)
"""
    )


def test_while_another_thread_builds_a_graph() -> None:
    """The fork does not wait for its end, and the child finds gradients and learning rates as before."""
    passes(
        """
weight = flow.zeros(2, requires_grad=True)
(weight * 3).sum().backward()
optimizer = flow.optim.SGD([weight], lr=0.5, momentum=0.9)
def slowly(x):
    hold()
    return (weight * x).sum()
step = flow.global_function("train", optimizer=optimizer)(slowly)
thread = in_another_thread(lambda: step(flow.ones(2)).item())

def check():
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert weight.grad.tolist() == [3.0, 3.0]
    assert "__getattribute__" not in flow.nn.Module.__dict__    # reads are recorded by nobody any more
    compute()
    optimizer.step()
    assert weight.tolist() == [-1.5, -1.5]

code = fork(check)
thread.join()
assert optimizer.param_groups[0]["lr"] == 0.5 and weight.grad.tolist() == [3.0, 3.0]
assert weight.tolist() == [-0.5, -0.5]
print(code)
"""
    )


def test_while_another_thread_draws_random_numbers() -> None:
    """Its generator is not locked in the child."""
    passes(
        """
from vmflow.random import default_generator
go_on = threading.Event()
def draw():
    with default_generator._lock:
        inside.set()
        go_on.wait(20)
thread = in_another_thread(draw)
os.register_at_fork(before=go_on.set)   # called before the framework's own
code = fork(compute)
thread.join()
print(code)
"""
    )


@pytest.mark.parametrize("load", ["small", "large", "in place", "graph", "training"])
def test_many_forks_under_load(load: str) -> None:
    """The short form of `tests.benchmarks.fork_under_load`."""
    passes(
        f"""
weight = flow.zeros(30, 30, requires_grad=True)
train = flow.global_function("train", optimizer=flow.optim.SGD([weight], lr=0.1))(lambda x: (weight * x).tanh().sum())
graph = flow.nn.Graph.trace(lambda x: (x @ x).tanh())
x = flow.ones(30, 30)
counter = flow.zeros(100_000)
loads = {{
    "small": lambda: (x * 0.5 + 0.5).numpy(),
    "large": lambda: (flow.ones(300, 300) @ flow.ones(300, 300)).tanh().numpy(),
    "in place": lambda: counter.add_(1).numpy(),
    "graph": lambda: graph(x).numpy(),
    "training": lambda: train(x).item(),
}}
stop = False
def work():
    while not stop:
        loads[{load!r}]()
        inside.set()
thread = in_another_thread(work)
codes = set()
for _ in range(10):
    own = flow.ones(4) + 1
    codes.add(fork(lambda: (compute(), own.sum().item())))
    inside.clear()
    assert inside.wait(20)              # the other thread goes on
stop = True
thread.join()
print(*codes)
"""
    )


def test_instructions_of_this_thread_are_finished_before_a_fork() -> None:
    passes(
        """
x = flow.ones(400, 400)
for _ in range(20):
    x = x @ x * (1 / 400)
def check():
    assert abs(x.mean().item() - 1) < 1e-3
print(fork(check))
"""
    )


def test_an_instruction_forks() -> None:
    """The child goes on in the middle of a turn; the work of a worker has ended there."""
    passes(
        """
codes = []
def callback(array):
    codes.append(fork_here())
def fork_here():
    child = os.fork()
    return None if child == 0 else os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
from vmflow.instructions.instruction import Instruction
from vmflow.instructions.op_call import op_call
def kernel(array, out):
    callback(array)
    return np.add(array, 1, out=out)
blob = there._blob
machine = default_machine()
result = flow.zeros(5)
policy = op_call("forks", kernel, (blob,), (result._blob,))
stream = machine.stream(there.device)
machine.issue(
    Instruction(
        stream, policy, (machine.access(blob.storage, stream),), (machine.access(result._blob.storage, stream),)
    ),
    result._blob.storage,
)
assert result.tolist() == [1.0, 3.0, 5.0, 7.0, 9.0]
compute()
if codes == [None]:
    os._exit(7)
print(*codes)
"""
    )


def test_executors_and_loaders_that_fork() -> None:
    """Programs of the usual kind: a thread trains while processes are started."""
    passes(
        """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
stop = False
def work():
    x = flow.ones(200, 200)
    while not stop:
        (x @ x).tanh().numpy()
        inside.set()
def total(number):
    return (there * number).sum().item()
thread = in_another_thread(work)
context = multiprocessing.get_context("fork")
with ProcessPoolExecutor(2, mp_context=context) as pool:
    assert list(pool.map(total, range(4))) == [0.0, 20.0, 40.0, 60.0]
data = flow.arange(600.0).reshape(200, 3) * 2 + 1
dataset = flow.utils.data.TensorDataset(data)
loader = flow.utils.data.DataLoader(
    dataset, batch_size=50, num_workers=2, worker_kind="process", multiprocessing_context="fork"
)
assert sum([batch.sum().item() for (batch,) in loader]) == 360_000.0
stop = True
thread.join()
print(7)
"""
    )
