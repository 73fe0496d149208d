"""What is done to a job before it is planned: pure functions from a job to a better one, in a fixed order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import attrs

from vmflow.graph_mode.blocks import BlockConfig
from vmflow.graph_mode.config import GraphConfig
from vmflow.graph_mode.job import Job

from .fuse_elementwise import fuse_elementwise


@attrs.frozen
class Settings:
    """What passes go by.

    Attributes:
        config: of the graph.
        blocks: of its blocks, by path.
    """

    config: GraphConfig
    blocks: Mapping[str, BlockConfig] = attrs.field(factory=dict)


Apply: TypeAlias = Callable[[Job, Settings], Job]


@attrs.frozen
class Pass:
    """One of the passes.

    Attributes:
        name: for `GraphConfig.disabled`.
        why: what it is good for, in a line.
        apply: makes the better job, or returns the one it is given.
    """

    name: str
    why: str
    apply: Apply


def _if_fusing(change: Callable[[Job], Job]) -> Apply:
    """A pass that is left out if the graph's settings forbid fusion."""
    return lambda job, settings: change(job) if settings.config.fusion else job


# In the order in which they are applied.
PASSES: Final[tuple[Pass, ...]] = (
    Pass(
        "fuse_elementwise",
        "memory is walked through once for many elementwise ops, in tiles that stay in the cache",
        _if_fusing(fuse_elementwise),
    ),
)


def run_passes(job: Job, settings: Settings) -> Job:
    """The job after all passes that the settings allow."""
    for each in PASSES:
        if each.name not in settings.config.disabled:
            job = each.apply(job, settings)
            job.check()
    return job
