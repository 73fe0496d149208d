"""The time of an eager model's inference awaited by coroutines, compared with calls in a script.

``python -m tests.benchmarks.awaiting [--rounds 15] [--threads 1] [--json FILE]``

The model is four blocks of a GPT on 8 sequences of 128 tokens, 256 features wide.  *script* calls the model and reads
the result; *awaited* is one coroutine that awaits the result of each call; in *8 coroutines*, 8 of them do so at the
same time, and the figure is the time of one inference.  The same is measured for a graph of the model, and for torch in
the script and by `asyncio.to_thread`.  All take turns within a round; a ratio is that of two medians over the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import vmflow as flow
from tests.benchmarks.contenders import torch_if_installed
from tests.benchmarks.models import GraphOf, gpt_blocks
from tests.benchmarks.tables import Table, conditions

DEPTH: Final = 4
WIDTH: Final = 256
HEADS: Final = 8
SHAPE: Final = (8, 128, WIDTH)

# The number of inferences in one measurement of one contender.
INFERENCES: Final = 8

Contender = Callable[[], float]


def timed(work: Callable[[], object]) -> float:
    """The seconds per inference of `work`, which makes `INFERENCES` inferences."""
    begin = time.perf_counter()
    work()
    return (time.perf_counter() - begin) / INFERENCES


def in_a_script(call: Callable[[], object]) -> Contender:
    """Make a contender that calls the model again and again on this thread."""
    return lambda: timed(lambda: [call() for _ in range(INFERENCES)])


def on_a_loop(call: Callable[[], Awaitable[object]], coroutines: int) -> Contender:
    """Make a contender that awaits the inferences on an event loop, divided among several coroutines."""

    async def several() -> None:
        for _ in range(INFERENCES // coroutines):
            await call()

    async def everybody() -> float:
        await call()  # so that starting the loop and a thread is not measured
        begin = time.perf_counter()
        await asyncio.gather(*[several() for _ in range(coroutines)])
        return (time.perf_counter() - begin) / INFERENCES

    return lambda: asyncio.run(everybody())


def contenders(torch: Any) -> dict[str, Contender]:
    """All contenders by name: vmflow, its graph and torch, in a script and on an event loop."""
    flow.manual_seed(0)
    model = gpt_blocks(flow, DEPTH, WIDTH, HEADS)
    x = flow.randn(*SHAPE)

    def call() -> flow.Tensor:
        with flow.no_grad():
            result: flow.Tensor = model(x)
        return result

    async def awaited() -> object:
        return await call()

    graph = GraphOf(lambda x, _: model(x))
    graph.config.allow_fusion(True)

    def graph_call() -> flow.Tensor:
        with flow.no_grad():
            result: flow.Tensor = graph(x, x)
        return result

    async def graph_awaited() -> object:
        return await graph_call()

    found = {
        "script": in_a_script(lambda: call().numpy()),
        "awaited": on_a_loop(awaited, 1),
        "2 coroutines": on_a_loop(awaited, 2),
        "8 coroutines": on_a_loop(awaited, 8),
        "graph, script": in_a_script(lambda: graph_call().numpy()),
        "graph, 8 coroutines": on_a_loop(graph_awaited, 8),
    }
    if torch is not None:
        theirs = gpt_blocks(torch, DEPTH, WIDTH, HEADS)
        y = torch.randn(*SHAPE)

        def torch_call() -> object:
            with torch.no_grad():
                return theirs(y)

        async def torch_awaited() -> object:
            return await asyncio.to_thread(torch_call)

        found["torch, script"] = in_a_script(torch_call)
        found["torch, 2 threads"] = on_a_loop(torch_awaited, 2)
        found["torch, 8 threads"] = on_a_loop(torch_awaited, 8)
    return found


def run(rounds: int, torch: Any) -> Table:
    """Measure all contenders, taking turns in each of the rounds, and print the table."""
    table = Table("contender", ["ms", "per s", "to script"], width=24)
    table.print_head()
    everybody = contenders(torch)
    for contender in everybody.values():
        contender()
    seconds: dict[str, list[float]] = {name: [] for name in everybody}
    for _ in range(rounds):
        for name, contender in everybody.items():
            seconds[name].append(contender())
    script = statistics.median(seconds["script"])
    for name, found in seconds.items():
        median = statistics.median(found)
        table.add(name, ms=median * 1e3, per_s=1 / median, to_script=median / script)
    return table


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.awaiting", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1, help="of one op")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()
    if os.environ.get("OPENBLAS_NUM_THREADS") != str(options.threads):
        os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(options.threads)
        os.execv(sys.executable, [sys.executable, "-m", "tests.benchmarks.awaiting", *sys.argv[1:]])
    flow.set_num_threads(options.threads)
    torch = torch_if_installed()
    if torch is not None:
        torch.set_num_threads(options.threads)
    said = conditions() + f"; {options.threads} thread(s)"
    print(said)
    table = run(options.rounds, torch)
    if options.json is not None:
        table.write(options.json, said, [])


if __name__ == "__main__":
    main()
