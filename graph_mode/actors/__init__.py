"""The actor runtime of graphs: each task of a plan is an actor, which acts when all its inputs are full and all its
outputs have a free slot.

Messages alone order the acts: "full" to consumers, "free" back to the producer, and "no more" at the end.  The number
of slots of each register says how far tasks run ahead of each other: more slots allow more pipelining, for more memory.

The code is free of side effects: it has no threads, clocks or arrays, and returns decisions to the caller.
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
