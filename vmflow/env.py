"""``vmflow.env``: which of the program's ranks this is, under OneFlow's names.

A launcher tells by RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE; without any, the program is rank 0 of 1.
"""

from __future__ import annotations

from .distributed.process import (
    current_process,
    get_local_rank as get_local_rank,
    get_rank as get_rank,
    get_world_size as get_world_size,
)


def get_node_size() -> int:
    """How many hosts there are, each of which has as many ranks as this one."""
    process = current_process()
    return -(-process.world_size // process.local_world_size)


def is_multi_client() -> bool:
    """Whether every rank runs the program itself; always true, for programs of OneFlow that ask."""
    return True
