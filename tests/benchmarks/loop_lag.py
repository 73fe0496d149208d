"""How late an event loop is while it, or a thread beside it, computes.

``python -m tests.benchmarks.loop_lag [--seconds 10] [--quick] [--json FILE]``

A coroutine sleeps a millisecond at a time and notes how much later than due it goes on, as any other coroutine of the
program would: when its timer has fired it waits for one more turn of the loop.  Meanwhile one of these loads runs:

- *idle*: none.
- *tiny*: chains of 200 additions of 64 numbers, each chain awaited.
- *products*: products of two 1024 x 1024 matrices, each awaited.
- *mix*: five such chains one after the other, and one product, at the same time.

Each load is run by vmflow on the loop, by torch and by numpy in `asyncio.to_thread` (one call per chain or product),
and by torch right in the coroutine, which shows what happens if nothing is done about it.  For throughput the same
vmflow calls are also made by a script without any loop; the loss on the loop includes what the heartbeat itself takes.

*vmflow, device* issues the same ops to a CUDA device of which only the time is simulated, see `clocked_device`: the
host launches them and hears of their ends, and the device takes nothing of the host's processor.
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

# Once through the load, on a loop.
Round = Callable[[], Awaitable[object]]

LOADS = ("tiny", "products", "mix")
CONTENDERS = ("vmflow", "vmflow, device", "torch in thread", "torch direct", "numpy in thread", "vmflow, no loop")

BEAT_SECONDS = 0.001
NUMBERS = 64
CHAINS_PER_PRODUCT = 5

# Ops that a coroutine issues before it lets the loop go on: a sixth of a millisecond, where issuing and running one
# takes four microseconds.  A beat has to wait for two such breaths, one for its timer to be seen and one for its turn.
BREATH = 40
# The same for a device, where launching an op and hearing of its end takes ten times as long.
DEVICE_BREATH = 4


@dataclass(frozen=True)
class Sizes:
    """How much work there is in one go.

    Attributes:
        chain: ops in a chain.
        side: of the matrices.
    """

    chain: int = 200
    side: int = 1024

    def ops(self, load: str) -> int:
        """How many ops going once through `load` takes."""
        return {"tiny": self.chain, "products": 1, "mix": CHAINS_PER_PRODUCT * self.chain + 1}[load]


@dataclass(frozen=True)
class Work:
    """The two kinds of work as plain calls, which return when it is done."""

    chain: Callable[[], Any]
    product: Callable[[], Any]


@dataclass
class Observation:
    """What was seen of one contender under one load.

    Attributes:
        late: seconds by which each beat came too late.
        rounds: how often the load was gone through.
        seconds: how long that took.
    """

    late: list[float] = field(default_factory=list)
    rounds: int = 0
    seconds: float = 0.0


# Work


def array_work(ones: Callable[..., Any], sizes: Sizes) -> Work:
    """By a library whose calls return when the work is done."""
    one, matrix = ones(NUMBERS), ones((sizes.side, sizes.side))

    def chain() -> Any:
        x = one
        for _ in range(sizes.chain):
            x = x + one
        return x

    return Work(chain, lambda: matrix @ matrix)


def vmflow_work(sizes: Sizes) -> Work:
    """By vmflow in a script, which waits by reading the values."""
    work = array_work(flow.ones, sizes)
    return Work(lambda: work.chain().numpy(), lambda: work.product().numpy())


# Loads


def vmflow_rounds(sizes: Sizes, device: str = "cpu", breath: int = BREATH) -> dict[str, Round]:
    """Issue from the coroutine and await the results."""
    one, matrix = flow.ones(NUMBERS, device=device), flow.ones((sizes.side, sizes.side), device=device)
    # A coroutine that issues without awaiting is a coroutine that computes: it has to let others go on by itself.
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
    """One call on a thread for each chain or product."""
    return _loads(partial(asyncio.to_thread, work.chain), partial(asyncio.to_thread, work.product))


def rounds_in_coroutine(work: Work) -> dict[str, Round]:
    """One call in the coroutine for each chain or product; in between the loop may go on."""

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
    """The loads without a loop."""

    def mix() -> None:
        for _ in range(CHAINS_PER_PRODUCT):
            work.chain()
        work.product()

    return {"tiny": work.chain, "products": work.product, "mix": mix}


# Watching


async def watch(once: Round, seconds: float, seen: Observation) -> None:
    """Go through a load again and again, and note how late the beats of the loop come."""
    loop = asyncio.get_running_loop()
    over = False

    async def beat() -> None:
        while not over:
            due = loop.time() + BEAT_SECONDS
            # How late the loop is for a timer is what is measured.
            await asyncio.sleep(BEAT_SECONDS)
            seen.late.append(loop.time() - due)

    await once()  # the first time through fills caches
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
    """Go through a load again and again without a loop."""
    once()
    begin = time.perf_counter()
    elapsed = 0.0
    while elapsed < seconds:
        once()
        seen.rounds += 1
        elapsed = time.perf_counter() - begin
    seen.seconds += elapsed


def run(seconds: float, turns: int, torch: Any, sizes: Sizes) -> Table:
    """Observe every load, everybody for `seconds` in `turns` turns, since a shared machine is slow in phases."""
    with driven([ClockedDriver()], "loop lag"):
        return _run(seconds, turns, torch, sizes)


def _run(seconds: float, turns: int, torch: Any, sizes: Sizes) -> Table:
    table = Table("load, contender", ["beats", "p50 ms", "p90 ms", "p99 ms", "ops/s", "loss %"], width=32)
    table.print_head()
    idle = Observation()
    # Nothing but time is to pass, while the beats are noted.
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
    restart_with_one_thread()  # more would take the loop its core
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
