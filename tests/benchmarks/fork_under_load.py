"""Fork again and again while another thread computes, and check that every child and the parent work.

For each kind of load, print how many children computed right results, how long `os.fork` took, and whether the other
thread of the parent kept running.

    python -m tests.benchmarks.fork_under_load [FORKS [LOAD ...]]
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable

import vmflow as flow

FORKS = 60
# The seconds after which a child that hangs is killed, and within which the other thread must finish its next rounds.
PATIENCE = 20


class Load:
    """A thread that calls `step` again and again.

    Attributes:
        rounds: the number of finished calls.
        error: the exception that has ended the thread; None if it runs.
    """

    def __init__(self, step: Callable[[], object]) -> None:
        self.rounds = 0
        self.error: BaseException | None = None
        self._step = step
        self._stop = False
        self._round = threading.Condition()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            while not self._stop:
                self._step()
                with self._round:
                    self.rounds += 1
                    self._round.notify_all()
        except BaseException as error:
            self.error = error

    def goes_on(self, more: int = 2) -> bool:
        """Wait for `more` further calls of `step`; return whether they have finished in time."""
        wanted = self.rounds + more
        with self._round:
            return (
                self._round.wait_for(lambda: self.rounds >= wanted or self.error is not None, PATIENCE)
                and not self.error
            )

    def stop(self) -> None:
        """Let the thread end after its present call, and wait for it."""
        self._stop = True
        self._thread.join(PATIENCE)


def eager_small() -> None:
    x = flow.ones(10)
    for _ in range(2000):
        x = x * 0.5 + 0.5
    assert x.sum().item() == 10


def eager_large() -> None:
    x = flow.ones(700, 700)
    for _ in range(10):
        x = (x @ x) * (1 / 700)
    assert abs(x.mean().item() - 1) < 1e-3


def elementwise_large() -> None:
    x = flow.ones(1000, 1000)
    for _ in range(10):
        x = (x.tanh() + x * 2).exp().clamp(max=1.0)
    assert x.max().item() == 1


def in_place() -> None:
    x = flow.zeros(300_000)
    for _ in range(50):
        x.add_(1)
    assert x.min().item() == 50


def random_numbers() -> None:
    for _ in range(200):
        flow.randn(100)
    flow.rand(10).numpy()


def training_eagerly() -> None:
    net = flow.nn.Sequential(flow.nn.Linear(64, 64), flow.nn.ReLU(), flow.nn.Linear(64, 1))
    optimizer = flow.optim.Adam(net.parameters())
    for _ in range(20):
        optimizer.zero_grad()
        net(flow.ones(32, 64)).pow(2).mean().backward()
        optimizer.step()


def on_a_loop() -> None:
    async def main() -> None:
        x = flow.ones(500, 500)
        for _ in range(20):
            x = (x @ x) * (1 / 500)
        assert abs((await x.mean()).item() - 1) < 1e-3

    asyncio.run(main())


async def _with_own_machine() -> None:
    async with flow.VirtualMachine(cpu_worker="always"):
        x = flow.ones(200, 200)
        for _ in range(50):
            x = (x @ x) * (1 / 200)
        assert abs((await x.mean()).item() - 1) < 1e-3


def on_an_own_machine() -> None:
    asyncio.run(_with_own_machine())


def graph_calls() -> Callable[[], None]:
    graph = flow.nn.Graph.trace(lambda x: (x @ x).tanh() * 2 + 1)

    def step() -> None:
        for _ in range(20):
            graph(flow.ones(100, 100)).numpy()

    return step


def graph_training() -> Callable[[], None]:
    weight = flow.zeros(100, 100, requires_grad=True)
    train = flow.global_function("train", optimizer=flow.optim.SGD([weight], lr=0.1))(
        lambda x: (weight * x).tanh().sum()
    )

    def step() -> None:
        for _ in range(20):
            train(flow.ones(100, 100)).item()

    return step


def building_graphs() -> None:
    weight = flow.zeros(10, requires_grad=True)
    train = flow.global_function("train", optimizer=flow.optim.SGD([weight], lr=1.0))(
        lambda x: (weight * x).tanh().sum()
    )
    train(flow.ones(10)).item()


def long_kernel() -> None:
    x = flow.ones(2500, 2500)
    (x @ x).mean().item()


LOADS: dict[str, Callable[[], Callable[[], None]]] = {
    "eager small ops": lambda: eager_small,
    "eager products": lambda: eager_large,
    "large elementwise ops": lambda: elementwise_large,
    "in place": lambda: in_place,
    "random numbers": lambda: random_numbers,
    "training eagerly": lambda: training_eagerly,
    "an event loop with workers": lambda: on_a_loop,
    "a machine of a loop's own": lambda: on_an_own_machine,
    "graph calls": graph_calls,
    "graph training": graph_training,
    "building graphs": lambda: building_graphs,
    "long kernels": lambda: long_kernel,
}


class Shared:
    """A tensor, a module and a graph that are made before all forks, and used in the children."""

    def __init__(self) -> None:
        self.there = flow.arange(10.0) * 2
        self.there.numpy()
        self.net = flow.nn.Linear(4, 1)
        self.graph = flow.nn.Graph.trace(lambda x: x * 2 + 1)
        assert self.graph(flow.ones(3)).tolist() == [3.0] * 3

    def check(self, own: flow.Tensor) -> None:
        """Check in a child that these objects, `own` and new ops, graphs and event loops work."""
        assert own.tolist() == [3.0] * 5
        assert (self.there + 1).sum().item() == 100
        assert self.there.add_(1).tolist()[0] == 1
        assert self.graph(flow.ones(3)).tolist() == [3.0] * 3
        assert flow.nn.Graph.trace(lambda x: x * 3)(flow.ones(2)).tolist() == [3.0] * 2
        x = flow.full((900, 900), 0.5)
        assert abs(((x + x).exp().log() @ x).mean().item() - 450) < 1
        flow.randn(100).numpy()
        self.net(flow.ones(2, 4)).sum().backward()
        assert self.net.weight.grad is not None
        assert self.net.weight.grad.tolist() == [[2.0] * 4]

        async def main() -> float:
            return float((await (self.there * 2).sum()).item())

        assert asyncio.run(main()) == 200


def fork(shared: Shared) -> tuple[float, int]:
    """Fork, and check the objects in the child; return the seconds of the fork and the child's exit code."""
    own = flow.ones(5) + 2  # its value may still be uncomputed when the process forks
    begin = time.perf_counter()
    child = os.fork()
    took = time.perf_counter() - begin
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(PATIENCE)
        try:
            shared.check(own)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return took, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run(name: str, forks: int, shared: Shared) -> bool:
    """Fork `forks` times under one kind of load, print the results, and return whether everything worked."""
    load = Load(LOADS[name]())
    going = load.goes_on()
    taken: list[float] = []
    ends: list[int] = []
    for _ in range(forks):
        took, end = fork(shared)
        taken.append(took)
        ends.append(end)
    going = load.goes_on() and going
    load.stop()
    wrong = sorted({value for value in ends if value})
    milliseconds = [1e3 * value for value in taken]
    print(
        f"{name:28} {ends.count(0):3} of {forks} right {wrong or ''}; "
        f"fork: median {statistics.median(milliseconds):6.1f} ms, "
        f"longest {max(milliseconds):6.1f} ms; the load {'goes on' if going else f'has ended: {load.error!r}'}",
        flush=True,
    )
    return not wrong and going


def main(arguments: list[str]) -> int:
    """Run the loads named in the arguments, or all; return the exit code."""
    warnings.simplefilter("ignore")
    forks = int(arguments[0]) if arguments else FORKS
    shared = Shared()
    return not all([run(name, forks, shared) for name in arguments[1:] or LOADS])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
