"""The actor runtime of graphs, as a pure core: each task of a plan is an actor that acts when all it reads is full and
all it writes is free.

Nothing but messages orders them: "full" to consumers, "free" back to the producer, and "no more" at the end.  How far
tasks run ahead of each other, and so pipelining and the bound on memory, is the number of slots of each register.
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
