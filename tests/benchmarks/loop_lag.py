"""The lateness of an event loop's timers while the loop, or a thread beside it, computes.

``python -m tests.benchmarks.loop_lag [--seconds 10] [--quick] [--json FILE]``

A coroutine sleeps a millisecond at a time and notes how much later than due it continues, as any other coroutine of the
program would: when its timer has fired it waits for one more iteration of the loop.  Meanwhile one of these loads runs:

- *idle*: none.
- *tiny*: chains of 200 additions of 64 numbers, each chain awaited.
- *products*: products of two 1024 x 1024 matrices, each awaited.
- *mix*: five such chains one after the other, and one product, at the same time.

Each load is run by vmflow on the loop, by torch and by numpy in `asyncio.to_thread` (one call per chain or product),
and by torch directly in the coroutine, which blocks the loop.  To compare throughput, a script without any loop makes
the same vmflow calls; the loss on the loop includes the time of the coroutine that sleeps.

*vmflow, device* issues the same ops to a CUDA device whose time alone is simulated, see `clocked_device`: the host
launches the ops and polls their ends, and the device takes no time of the host's processor.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import vmflow as flow
from tests.benchmarks.clocked_device import ClockedDriver
from tests.benchmarks.contenders import restart_with_one_thread, torch_if_installed
from tests.benchmarks.tables import Table, conditions
from tests.cuda.emulated import driven

# A function whose awaitable runs a load once on an event loop.
Round = Callable[[], Awaitable[object]]

LOADS = ("tiny", "products", "mix")
CONTENDERS = ("vmflow", "vmflow, device", "torch in thread", "torch direct", "numpy in thread", "vmflow, no loop")

BEAT_SECONDS = 0.001
NUMBERS = 64
CHAINS_PER_PRODUCT = 5

# The number of ops that a coroutine issues before it yields to the loop: a sixth of a millisecond, if issuing and
# running an op takes four microseconds.  A beat has to wait for two such batches: until the loop sees its timer, and
# until its coroutine runs.
BREATH = 40
# The number of ops before a yield for the device, where launching an op and polling its end takes ten times as long.
DEVICE_BREATH = 4


@dataclass(frozen=True)
class Sizes:
    """The sizes of the loads.

    Attributes:
        chain: the number of ops in a chain.
        side: the number of rows and columns of the matrices.
    """

    chain: int = 200
    side: int = 1024

    def ops(self, load: str) -> int:
        """The number of ops in one run of the load `load`."""
        return {"tiny": self.chain, "products": 1, "mix": CHAINS_PER_PRODUCT * self.chain + 1}[load]


@dataclass(frozen=True)
class Work:
    """The two kinds of work, a chain and a product, as plain calls that return when the work is done."""

    chain: Callable[[], Any]
    product: Callable[[], Any]


@dataclass
class Observation:
    """The measurements of one contender under one load.

    Attributes:
        late: the seconds by which each beat came too late.
        rounds: how often the load was run.
        seconds: the time that these runs took.
    """

    late: list[float] = field(default_factory=list)
    rounds: int = 0
    seconds: float = 0.0


# Work


def array_work(ones: Callable[..., Any], sizes: Sizes) -> Work:
    """Make the work by a library whose calls return when the work is done; `ones` is its function of that name."""
    one, matrix = ones(NUMBERS), ones((sizes.side, sizes.side))

    def chain() -> Any:
        x = one
        for _ in range(sizes.chain):
            x = x + one
        return x

    return Work(chain, lambda: matrix @ matrix)


def vmflow_work(sizes: Sizes) -> Work:
    """Make the work by vmflow in a script, which waits for results by reading them."""
    work = array_work(flow.ones, sizes)
    return Work(lambda: work.chain().numpy(), lambda: work.product().numpy())


# Loads


def vmflow_rounds(sizes: Sizes, device: str = "cpu", breath: int = BREATH) -> dict[str, Round]:
    """Make the loads by vmflow: a coroutine issues ops, yields after every `breath` of them, and awaits the results."""
    one, matrix = flow.ones(NUMBERS, device=device), flow.ones((sizes.side, sizes.side), device=device)
    # Issuing ops takes time on the loop, so that a coroutine must yield to others from time to time.
    breathe: Callable[[], Awaitable[None]] = getattr(flow, "checkpoint", partial(asyncio.sleep, 0))

    async def chain() -> None:
        x = one
        for number in range(1, sizes.chain + 1):
            x = x + one
            if number % breath == 0:
                await breathe()
        await x

    async def product() -> None:
        await (matrix @ matrix)

    return _loads(chain, product)


def rounds_in_threads(work: Work) -> dict[str, Round]:
    """Make the loads by one `asyncio.to_thread` call for each chain or product."""
    return _loads(partial(asyncio.to_thread, work.chain), partial(asyncio.to_thread, work.product))


def rounds_in_coroutine(work: Work) -> dict[str, Round]:
    """Make the loads by one blocking call in the coroutine for each chain or product, and a yield after each call."""

    async def direct(call: Callable[[], object]) -> None:
        call()
        await asyncio.sleep(0)

    return _loads(partial(direct, work.chain), partial(direct, work.product))


def _loads(chain: Round, product: Round) -> dict[str, Round]:
    async def chains() -> None:
        for _ in range(CHAINS_PER_PRODUCT):
            await chain()

    async def mix() -> None:
        await asyncio.gather(chains(), product())

    return {"tiny": chain, "products": product, "mix": mix}


def plain_rounds(work: Work) -> dict[str, Callable[[], object]]:
    """Make the loads as plain functions, without an event loop."""

    def mix() -> None:
        for _ in range(CHAINS_PER_PRODUCT):
            work.chain()
        work.product()

    return {"tiny": work.chain, "products": work.product, "mix": mix}


# Watching


async def watch(once: Round, seconds: float, seen: Observation) -> None:
    """Run a load again and again for `seconds`, and note in `seen` how late a sleeping coroutine's beats come."""
    loop = asyncio.get_running_loop()
    over = False

    async def beat() -> None:
        while not over:
            due = loop.time() + BEAT_SECONDS
            # The lateness of this sleep is measured.
            await asyncio.sleep(BEAT_SECONDS)
            seen.late.append(loop.time() - due)

    await once()  # the first run fills caches, and is not counted
    heart = asyncio.create_task(beat())
    await asyncio.sleep(0)
    begin = time.perf_counter()
    while True:
        await once()
        seen.rounds += 1
        elapsed = time.perf_counter() - begin
        if elapsed >= seconds:
            break
    over = True
    seen.seconds += elapsed
    await heart


def watch_plain(once: Callable[[], object], seconds: float, seen: Observation) -> None:
    """Run a load again and again for `seconds` without an event loop, and count the runs in `seen`."""
    once()
    begin = time.perf_counter()
    elapsed = 0.0
    while elapsed < seconds:
        once()
        seen.rounds += 1
        elapsed = time.perf_counter() - begin
    seen.seconds += elapsed


def run(seconds: float, turns: int, torch: Any, sizes: Sizes) -> Table:
    """Measure every contender under every load for `seconds`.

    Each contender's time is divided into `turns` turns, since a shared machine is slow in phases.
    """
    with driven([ClockedDriver()], "loop lag"):
        return _run(seconds, turns, torch, sizes)


def _run(seconds: float, turns: int, torch: Any, sizes: Sizes) -> Table:
    table = Table("load, contender", ["beats", "p50 ms", "p90 ms", "p99 ms", "ops/s", "loss %"], width=32)
    table.print_head()
    idle = Observation()
    # The idle load only sleeps while the beats are noted.
    asyncio.run(watch(partial(asyncio.sleep, seconds / 20), seconds, idle))
    _report(table, "idle", idle)
    by_numpy = array_work(partial(np.ones, dtype=np.float32), sizes)
    on_loop = {"vmflow": vmflow_rounds(sizes), "numpy in thread": rounds_in_threads(by_numpy)}
    if flow.cuda.is_available():
        on_loop["vmflow, device"] = vmflow_rounds(sizes, "cuda", DEVICE_BREATH)
    if torch is not None:
        by_torch = array_work(torch.ones, sizes)
        on_loop |= {"torch in thread": rounds_in_threads(by_torch), "torch direct": rounds_in_coroutine(by_torch)}
    plain = plain_rounds(vmflow_work(sizes))
    for load in LOADS:
        seen = {name: Observation() for name in CONTENDERS if name in on_loop or name == "vmflow, no loop"}
        for _ in range(turns):
            for name, observation in seen.items():
                if name in on_loop:
                    asyncio.run(watch(on_loop[name][load], seconds / turns, observation))
                else:
                    watch_plain(plain[load], seconds / turns, observation)
        speeds = {name: value.rounds * sizes.ops(load) / value.seconds for name, value in seen.items()}
        for name, observation in seen.items():
            loss = (1 - speeds[name] / speeds["vmflow, no loop"]) * 100 if name == "vmflow" else None
            _report(table, f"{load}, {name}", observation, speeds[name], loss)
    return table


def _report(table: Table, name: str, seen: Observation, speed: float | None = None, loss: float | None = None) -> None:
    cells: dict[str, float] = {}
    if seen.late:
        p50, p90, p99 = (np.percentile(seen.late, (50, 90, 99)) * 1e3).tolist()
        cells = {"beats": len(seen.late), "p50_ms": p50, "p90_ms": p90, "p99_ms": p99}
    table.add(name, **cells, ops_s=speed, loss__=loss)


def main() -> None:
    """Print the table."""
    os.environ["VMFLOW_CUDA"] = "emulated"
    restart_with_one_thread()  # more threads would take the core that the loop needs
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.loop_lag", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each contender runs each load")
    parser.add_argument("--quick", action="store_true", help="0.7 seconds each, instead")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()
    torch = torch_if_installed()
    said = conditions() + f"; one BLAS thread; switch interval {sys.getswitchinterval() * 1e3:g} ms"
    if torch is not None:
        said += f"; torch {torch.__version__}, one thread"
    print(said)
    print("how late a beat of 1 ms comes; on a shared machine p90 and p99 are mostly noise")
    print("loss: of vmflow's ops/s on the loop against a script without one")
    seconds, turns = (0.7, 1) if options.quick else (options.seconds, 4)
    table = run(seconds, turns, torch, Sizes())
    remarks = [] if torch is not None else ["torch is not installed"]
    for remark in remarks:
        print(remark)
    if options.json is not None:
        table.write(options.json, said, remarks)


if __name__ == "__main__":
    main()
