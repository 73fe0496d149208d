"""The time of an op on global tensors relative to local ones, and of PyTorch's DTensor relative to its local tensors.

``python -m tests.benchmarks.global_ops [--rounds 15] [--quick]``

There is one rank, so that no data moves: the extra cost is that of finding this out.  Local and global calls take turns
in one run, and figures are medians over the rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import vmflow as flow
from tests.benchmarks.contenders import restart_with_one_thread, torch_if_installed
from tests.benchmarks.tables import Table, conditions
from vmflow import sbp

NUMBERS = 64
CALLS = 1000


def seconds(call: Callable[[], object], calls: int) -> float:
    """The seconds of one call, as the mean of `calls` calls."""
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begin) / calls


def compare(
    table: Table, name: str, local: Callable[[], object], spread: Callable[[], object], rounds: int, calls: int
) -> None:
    """Time a local call and its global counterpart; add a row with both times in microseconds, and their ratio."""
    pairs = [(seconds(local, calls), seconds(spread, calls)) for _ in range(rounds + 1)][1:]
    table.add(
        name,
        local_us=statistics.median([one for one, _ in pairs]) * 1e6,
        global_us=statistics.median([other for _, other in pairs]) * 1e6,
        ratio=statistics.median([other / one for one, other in pairs]),
    )


def backward(x: Any) -> None:
    """Compute a gradient through an addition and a sum."""
    (x + x).sum().backward()


def run(rounds: int, calls: int, torch: Any) -> Table:
    """Compare local and global additions and gradients, and print the table."""
    table = Table("call", ["local us", "global us", "ratio"], width=32)
    table.print_head()
    where = flow.placement("cpu", [0])
    local = flow.ones(NUMBERS)
    spread = local.to_global(where, sbp.split(0))
    compare(table, "vmflow, x + x", lambda: local + local, lambda: spread + spread, rounds, calls)
    leaf, global_leaf = local.clone().requires_grad_(), spread.clone().requires_grad_()
    compare(table, "vmflow, gradient", lambda: backward(leaf), lambda: backward(global_leaf), rounds, calls // 10)
    if torch is not None:
        _torch(table, torch, rounds, calls)
    return table


def _torch(table: Table, torch: Any, rounds: int, calls: int) -> None:
    import torch.distributed as torch_distributed
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511", "RANK": "0", "WORLD_SIZE": "1"}
    torch_distributed.init_process_group("gloo")
    try:
        local = torch.ones(NUMBERS)
        spread = distribute_tensor(local, init_device_mesh("cpu", (1,)), [Shard(0)])
        compare(table, "torch, x + x", lambda: local + local, lambda: spread + spread, rounds, calls)
        leaf, global_leaf = local.clone().requires_grad_(), spread.clone().detach().requires_grad_()
        compare(table, "torch, gradient", lambda: backward(leaf), lambda: backward(global_leaf), rounds, calls // 10)
    finally:
        torch_distributed.destroy_process_group()


def main() -> None:
    """Print the table."""
    restart_with_one_thread()
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.global_ops", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="few calls, to see that everything runs")
    options = parser.parse_args()
    print(conditions())
    run(2 if options.quick else options.rounds, 20 if options.quick else CALLS, torch_if_installed())


if __name__ == "__main__":
    main()
