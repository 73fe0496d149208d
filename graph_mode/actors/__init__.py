"""The actor runtime of graphs: each task of a plan is an actor, which acts when all its input registers hold a slot,
all its output registers have a free slot, and its buffer, if it has one, holds an item.  See `Kind` for groups of acts.

Messages order the acts: "full" hands a slot to consumers, "free" gives it back to the producer, and "eord" ends a
register.  A register's number of slots limits how far its producer runs ahead: more slots allow more pipelining, for
more memory.

The package starts no threads and touches no clocks or arrays: it returns its decisions to the caller.
"""

from __future__ import annotations

from .bus import Action, RegisterSlot
from .checks import check
from .descriptors import KINDS, RegisterDescriptor, TaskDescriptor
from .identifiers import TaskId, ThreadId
from .messages import Message
from .system import ActorSystem

__all__ = [
    "KINDS",
    "Action",
    "ActorSystem",
    "Message",
    "RegisterDescriptor",
    "RegisterSlot",
    "TaskDescriptor",
    "TaskId",
    "ThreadId",
    "check",
]
