"""`simulate`: run a program on several ranks within one process, deterministically."""

from __future__ import annotations

import asyncio
import inspect
import math
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextvars import copy_context
from typing import Any, TypeVar, cast, overload

from vmflow.context import MODE
from vmflow.instructions.scope import CLOCK
from vmflow.random import Generator
from vmflow.streams.communication import CHANNEL
from vmflow.vm.virtual_machine import VirtualMachine

from .event_loop import SimulatedEventLoop
from .local_engine import FAULTS, TIMEOUT, Fault, LocalEngine
from .meeting import said_by
from .order import ORDER, check_timeout
from .process import SIMULATED, Process, is_checked
from .scheduler import RankEnded, Scheduler

Result = TypeVar("Result")

# Seconds: so many that no turn of a virtual machine on an event loop ends because of real time.
_TURN_BUDGET = 1e6


@overload
def simulate(
    function: Callable[[], Coroutine[Any, Any, Result]],
    ranks: int = 2,
    seed: int = 0,
    *,
    faults: Sequence[Fault] = (),
    delay: float = 0.0,
    timeout: float = TIMEOUT,
    check: bool | None = None,
    return_exceptions: bool = False,
) -> list[Result]: ...
@overload
def simulate(
    function: Callable[[], Result],
    ranks: int = 2,
    seed: int = 0,
    *,
    faults: Sequence[Fault] = (),
    delay: float = 0.0,
    timeout: float = TIMEOUT,
    check: bool | None = None,
    return_exceptions: bool = False,
) -> list[Result]: ...
def simulate(
    function: Callable[[], Any],
    ranks: int = 2,
    seed: int = 0,
    *,
    faults: Sequence[Fault] = (),
    delay: float = 0.0,
    timeout: float = TIMEOUT,
    check: bool | None = None,
    return_exceptions: bool = False,
) -> list[Any]:
    """Call a function on several ranks, and return their results in a list.

    The ranks are threads of this process that run one at a time.  `seed` decides which rank runs when another one has
    to wait, and how long messages take, by a clock that jumps over waiting.  So a program without other threads runs
    the same way each time.  Each rank has a virtual machine, a default generator (of the seed 0) and a mode of its own,
    which begins as the caller's.

    Args:
        function: of no arguments; a coroutine function gets an event loop on each rank, whose time is the simulation's.
        ranks: the number of ranks.
        seed: decides the order of events.
        faults: the faults of ranks, see `Fault`.
        delay: the most seconds that an exchange takes after its last rank has started it.
        timeout: seconds after which an exchange fails if not all ranks have started it.
        check: whether ranks compare their calls of ops of global tensors, so that where ranks take different ways, the
            results of the first op that differs fail; by default the environment variable VMFLOW_DEBUG_COMM decides.
        return_exceptions: whether exceptions of ranks are returned in place of results.

    Returns:
        The results by rank; None for a rank that was lost or frozen.

    Raises:
        Exception: the first that a rank has raised, with a note that names the rank, unless exceptions are returned.
        ValueError: for less than one rank, a fault of a rank or kind that does not exist, or a timeout that is not
            positive.
        TypeError: if the timeout is no number.

    Example:
        >>> def program():
        ...     return flow.distributed.all_reduce(flow.ones(2)).tolist()
        >>> flow.distributed.simulate(program, ranks=3)
        [[3.0, 3.0], [3.0, 3.0], [3.0, 3.0]]
    """
    if ranks < 1:
        raise ValueError(f"simulate: expected at least one rank, not {ranks}")
    for fault in faults:
        if not 0 <= fault.rank < ranks:
            raise ValueError(f"simulate: there is no rank {fault.rank} for {fault}")
        if fault.kind not in FAULTS:
            raise ValueError(f"simulate: a fault is one of {', '.join(FAULTS)}, not {fault.kind!r}")
    check_timeout("simulate", timeout)
    checked = is_checked(os.environ) if check is None else check
    scheduler = Scheduler(ranks, seed)
    engine = LocalEngine(scheduler, faults, delay, timeout)
    results: list[Any] = [None] * ranks
    errors: list[tuple[int, BaseException]] = []

    def work(rank: int) -> None:
        reason = "has ended"
        try:
            scheduler.wait_for_turn(rank)
            results[rank] = _call(function, engine, rank, checked)
        except RankEnded:  # this rank is frozen; all others have ended or are frozen
            return
        except BaseException as error:
            reason = f"has raised {said_by(error)}"
            error.add_note(f"on rank {rank} of {ranks}, simulated with seed {seed}")
            errors.append((rank, error))
            results[rank] = error
        engine.end(rank, reason)
        scheduler.end(rank)

    threads = [
        threading.Thread(target=copy_context().run, args=(work, rank), name=f"rank {rank}", daemon=True)
        for rank in range(ranks)
    ]
    for thread in threads:
        thread.start()
    scheduler.begin()
    scheduler.wait_until_finished()
    for rank, thread in enumerate(threads):
        scheduler.end_frozen(rank)
        thread.join()
    if errors and not return_exceptions:
        raise errors[0][1]
    return results


def _call(function: Callable[[], Any], engine: LocalEngine, rank: int, checked: bool) -> Any:
    """Call the function on one rank; returns its result when all instructions that it has issued have ended.

    Raises:
        CollectiveMismatch: if ranks have issued different operations in a scope that not all ranks have left, even if
            no failed result was read.
    """
    channel = engine.channels[rank]
    count = len(engine.channels)
    SIMULATED.set(Process(rank, count, rank, count, checked))
    CHANNEL.set(channel)
    CLOCK.set(lambda: engine.scheduler.now)
    ORDER.set(None)
    # No workers, which would run at any time; turns of which none ends by real time, so that their work does not depend
    # on the machine's speed; and no watch for stalls, whose timer would keep the clock going where no rank can go on.
    machine = VirtualMachine(f"rank {rank}", cpu_worker="never", turn_budget=_TURN_BUDGET, stall_after=math.inf)
    MODE.set(MODE.get().replace(machine=machine, generator=Generator().manual_seed(0)))
    try:
        if inspect.iscoroutinefunction(function):
            with asyncio.Runner(loop_factory=lambda: SimulatedEventLoop(engine.scheduler, rank)) as runner:
                try:
                    result = runner.run(cast("Coroutine[Any, Any, Any]", function()))
                except RankEnded:
                    # The loop of a frozen rank cannot cancel its tasks; asyncio must not report them as destroyed.
                    runner.get_loop().set_exception_handler(lambda loop, context: None)
                    raise
        else:
            result = function()
        machine.drain()
        mismatch = engine.mismatch()
        if mismatch is not None:
            raise mismatch
        return result
    finally:
        machine.close()
