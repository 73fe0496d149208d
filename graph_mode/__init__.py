"""Modules compiled into graphs: the package of `nn.Graph`."""

from __future__ import annotations

from .blocks import Block, BlockConfig, GraphModule
from .config import GraphConfig
from .functions import CompiledFunction, global_function
from .graph import Graph
from .job import Job
from .plan import Plan
from .session import Session, SessionClosed, clear_default_session, default_session, session_of

__all__ = [
    "Block",
    "BlockConfig",
    "CompiledFunction",
    "Graph",
    "GraphConfig",
    "GraphModule",
    "Job",
    "Plan",
    "Session",
    "SessionClosed",
    "clear_default_session",
    "default_session",
    "global_function",
    "session_of",
]
