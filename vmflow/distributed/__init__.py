"""``vmflow.distributed``: programs of several ranks.

`simulate` runs all ranks within one process, deterministically.  Experimental: nothing connects processes yet.
"""

from __future__ import annotations

from vmflow.errors import (
    BroadcastWarning as BroadcastWarning,
    CollectiveCancelled as CollectiveCancelled,
    CollectiveError as CollectiveError,
    CollectiveMismatch as CollectiveMismatch,
    CollectiveTimeout as CollectiveTimeout,
    PeerLost as PeerLost,
    SimulationDeadlock as SimulationDeadlock,
)

from . import checkpoint as checkpoint
from .boxing import Boxing as Boxing, record_boxing as record_boxing
from .collectives import (
    all_gather as all_gather,
    all_reduce as all_reduce,
    all_to_all as all_to_all,
    barrier as barrier,
    broadcast as broadcast,
    recv as recv,
    reduce as reduce,
    reduce_scatter as reduce_scatter,
    send as send,
)
from .local_engine import Fault as Fault
from .process import (
    get_local_rank as get_local_rank,
    get_rank as get_rank,
    get_world_size as get_world_size,
)
from .simulation import simulate as simulate
