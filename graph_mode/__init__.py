"""Modules compiled into graphs.  This package owns `nn.Graph`; it is the one place that may import everything else."""

from __future__ import annotations

from .blocks import Block, BlockConfig, GraphModule
from .config import GraphConfig
from .graph import Graph
from .job import Job
from .plan import Plan

__all__ = ["Block", "BlockConfig", "Graph", "GraphConfig", "GraphModule", "Job", "Plan"]
