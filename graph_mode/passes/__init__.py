"""Passes improve a job before it is planned: functions without side effects from job to job, in a fixed order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

from vmflow.graph_mode.job import Job

from .common_subexpressions import share_common_subexpressions
from .constant_folding import fold_constants
from .dead_ops import drop_dead_ops
from .fuse_elementwise import fuse_elementwise
from .fuse_updates import fuse_updates
from .identities import drop_identities
from .order import reorder
from .recompute import recompute
from .rematerialize import rematerialize
from .split_biases import split_biases

if TYPE_CHECKING:
    from vmflow.graph_mode.blocks import BlockConfig
    from vmflow.graph_mode.config import GraphConfig


@attrs.frozen
class Settings:
    """The settings that passes read.

    Attributes:
        config: the graph's configuration.
        blocks: the configurations of its blocks, by path.
    """

    config: GraphConfig
    blocks: Mapping[str, BlockConfig] = attrs.field(factory=dict)


Apply: TypeAlias = Callable[[Job, Settings], Job]


@attrs.frozen
class Pass:
    """A pass of `PASSES`.

    Attributes:
        name: the pass's name in `GraphConfig.disabled`.
        why: the gain, and for some passes the reason for their place in the order of passes.
        apply: takes a job and settings, and returns an improved job, or the same job.
    """

    name: str
    why: str
    apply: Apply


def _if_fusing(change: Callable[[Job], Job]) -> Apply:
    """Make the function of a pass that applies `change`, unless the graph's settings forbid fusion."""
    return lambda job, settings: change(job) if settings.config.fusion else job


# All passes, in the order in which they are applied.
PASSES: Final[tuple[Pass, ...]] = (
    Pass("constant_folding", "results that are equal at every launch are computed once", fold_constants),
    Pass(
        "identities",
        "copies and casts that change nothing cost memory and time; before the next pass, which then sees "
        "that their sources are equal",
        drop_identities,
    ),
    Pass(
        "common_subexpressions",
        "equal results are computed once; passes that compute a result again on purpose, to save "
        "memory, have to run later",
        share_common_subexpressions,
    ),
    Pass(
        "dead_ops",
        "unused results are not computed; after the passes that let ops read other buffers",
        drop_dead_ops,
    ),
    Pass("recompute", "results of checkpointed blocks are not kept; after the search for equal ops", recompute),
    Pass(
        "split_biases",
        "bias and activation take one walk through memory; before the next pass, which makes one op of them",
        _if_fusing(split_biases),
    ),
    Pass(
        "fuse_elementwise",
        "many elementwise ops take one walk through memory, in tiles that stay in the cache",
        _if_fusing(fuse_elementwise),
    ),
    Pass("fuse_updates", "several optimizers step together or not at all", _if_fusing(fuse_updates)),
    Pass("order", "lower peak of memory; after all passes that add or remove ops", reorder),
    Pass(
        "rematerialize",
        "values that are quick to compute again are not kept at the peak; after the order is settled",
        rematerialize,
    ),
)


def run_passes(job: Job, settings: Settings, passed: Callable[[str, Job, Job], None] | None = None) -> Job:
    """The job after all passes that the settings allow.

    Args:
        job: as recorded.
        settings: see `Settings`.
        passed: called after each pass that runs with its name, and the job before and after it; None to call nothing.

    Raises:
        ValueError: if `GraphConfig.disabled` names a pass that does not exist.
    """
    for name in sorted(settings.config.disabled):
        require_pass(name)
    for step in PASSES:
        if step.name not in settings.config.disabled:
            before, job = job, step.apply(job, settings)
            if job is not before:
                job.check()
            if passed is not None:
                passed(step.name, before, job)
    return job


def require_pass(name: str) -> None:
    """Raise ValueError unless a pass has this name."""
    names = [step.name for step in PASSES]
    if name not in names:
        raise ValueError(f"there is no pass {name!r} to disable; choose from {', '.join(names)}")
