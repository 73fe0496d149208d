"""`Process`: the rank of the program that this code runs on.

A launcher sets the rank by the environment variables of PyTorch and OneFlow.  Without them, the program is rank 0 of 1.
In a simulation, a context variable has the rank.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Final, final


@final
class Process:
    """One rank of a program.

    Args:
        rank: its number, from 0 on.
        world_size: the number of ranks.
        local_rank: its number among the ranks of its host.
        local_world_size: the number of ranks on its host.
        checked: whether ranks compare their calls of ops of global tensors, see `checking`.

    Attributes:
        rank, world_size, local_rank, local_world_size, checked: as given.
        order: the outermost order of exchanges, see `comm_scope`; None until it is needed.
    """

    __slots__ = ("checked", "local_rank", "local_world_size", "order", "rank", "world_size")

    def __init__(
        self,
        rank: int = 0,
        world_size: int = 1,
        local_rank: int = 0,
        local_world_size: int = 1,
        checked: bool = False,
    ) -> None:
        self.rank = rank
        self.world_size = world_size
        self.local_rank = local_rank
        self.local_world_size = local_world_size
        self.checked = checked
        self.order: Any = None

    def __repr__(self) -> str:
        return f"<rank {self.rank} of {self.world_size}>"


def process_of(environment: Mapping[str, str]) -> Process:
    """The rank that the environment names, by RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE.

    Raises:
        ValueError: if a variable is no integer from 0 on, a size is 0, or the variables contradict each other.
    """
    world_size = _number(environment, "WORLD_SIZE", 1, least=1)
    rank = _number(environment, "RANK", 0)
    local_world_size = _number(environment, "LOCAL_WORLD_SIZE", world_size, least=1)
    local_rank = _number(environment, "LOCAL_RANK", rank % local_world_size)
    if rank >= world_size or local_rank >= local_world_size or local_world_size > world_size:
        raise ValueError(
            f"RANK={rank}, WORLD_SIZE={world_size}, LOCAL_RANK={local_rank} and LOCAL_WORLD_SIZE={local_world_size} "
            "contradict each other: each rank must be less than its number of ranks"
        )
    return Process(rank, world_size, local_rank, local_world_size, is_checked(environment))


def is_checked(environment: Mapping[str, str]) -> bool:
    """Whether ranks compare ops of global tensors: VMFLOW_DEBUG_COMM is set, and neither empty nor "0"."""
    return environment.get("VMFLOW_DEBUG_COMM", "0") not in ("", "0")


def _number(environment: Mapping[str, str], name: str, default: int, least: int = 0) -> int:
    text = environment.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and int(text) >= least):
        raise ValueError(f"{name} must be an integer from {least} on, not {text!r}")
    return int(text)


# The rank of a simulation that this task or thread belongs to.
SIMULATED: Final[ContextVar[Process | None]] = ContextVar("vmflow.process", default=None)

_alone: Final[list[Process]] = []


def current_process() -> Process:
    """The rank that this code runs on.  Outside of simulations, later calls return the first result.

    Raises:
        ValueError: if the environment is malformed.
    Example:
        >>> flow.env.current_process()
        <rank 0 of 1>
    """
    simulated = SIMULATED.get()
    if simulated is not None:
        return simulated
    if not _alone:
        _alone.append(process_of(os.environ))
    return _alone[0]


def get_rank() -> int:
    """The number of this rank, from 0 on.

    Example:
        >>> flow.distributed.simulate(flow.distributed.get_rank, ranks=3)
        [0, 1, 2]
    """
    return current_process().rank


def get_world_size() -> int:
    """The number of ranks.

    Example:
        >>> flow.distributed.simulate(flow.distributed.get_world_size, ranks=3)
        [3, 3, 3]
    """
    return current_process().world_size


def get_local_rank() -> int:
    """The number of this rank among the ranks of its host.

    Example:
        >>> flow.distributed.simulate(flow.distributed.get_local_rank, ranks=2)
        [0, 1]
    """
    return current_process().local_rank
