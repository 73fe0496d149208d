"""``vmflow.env``: the rank of this process and the number of ranks, under OneFlow's names.

They are those of a simulation inside `simulate`; else a launcher sets RANK, WORLD_SIZE, LOCAL_RANK and
LOCAL_WORLD_SIZE, and without these a process is rank 0 of 1.
"""

from __future__ import annotations

from .distributed.process import (
    current_process,
    get_local_rank as get_local_rank,
    get_rank as get_rank,
    get_world_size as get_world_size,
)


def get_node_size() -> int:
    """How many hosts run the program: the world size divided by the ranks of this host, rounded up.

    Example:
        >>> flow.env.get_node_size()
        1
    """
    process = current_process()
    return -(-process.world_size // process.local_world_size)


def is_multi_client() -> bool:
    """Whether every rank runs the whole program itself, as OneFlow's multi-client mode does; always True.

    Example:
        >>> flow.env.is_multi_client()
        True
    """
    return True
