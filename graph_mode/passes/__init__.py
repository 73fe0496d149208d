"""What is done to a job before it is planned: pure functions from a job to a better one, in a fixed order."""

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
    Pass("constant_folding", "what is the same at each launch is computed once", fold_constants),
    Pass(
        "identities",
        "copies and casts that change nothing cost memory and time; before the next, which then sees "
        "that what is behind them is the same",
        drop_identities,
    ),
    Pass(
        "common_subexpressions",
        "what is computed twice need not be; what is computed again on purpose, to save "
        "memory, has to be put in behind this",
        share_common_subexpressions,
    ),
    Pass(
        "dead_ops",
        "what nobody sees need not be computed; behind those that let ops read something else",
        drop_dead_ops,
    ),
    Pass("recompute", "what checkpointed blocks make need not be kept; behind what looks for equal ops", recompute),
    Pass(
        "split_biases",
        "a bias and the activation behind it are added in one walk; before the next, which makes one op of them",
        _if_fusing(split_biases),
    ),
    Pass(
        "fuse_elementwise",
        "memory is walked through once for many elementwise ops, in tiles that stay in the cache",
        _if_fusing(fuse_elementwise),
    ),
    Pass("fuse_updates", "several optimizers take their steps as one, which cannot be torn", _if_fusing(fuse_updates)),
    Pass("order", "less memory at a time; behind all that changes what there is to order", reorder),
    Pass(
        "rematerialize",
        "what can be made anew within the time allowed need not be kept at the peak; behind what decides when that is",
        rematerialize,
    ),
)


def run_passes(job: Job, settings: Settings, passed: Callable[[str, Job, Job], None] | None = None) -> Job:
    """The job after all passes that the settings allow.

    Args:
        job: as recorded.
        settings: see `Settings`.
        passed: told of each pass that has run: its name, and the job before and after.

    Raises:
        ValueError: if a pass is to be left out that does not exist.
    """
    for name in sorted(settings.config.disabled):
        require_pass(name)
    for each in PASSES:
        if each.name not in settings.config.disabled:
            before, job = job, each.apply(job, settings)
            if job is not before:
                job.check()
            if passed is not None:
                passed(each.name, before, job)
    return job


def require_pass(name: str) -> None:
    """Raise ValueError unless there is such a pass."""
    names = [each.name for each in PASSES]
    if name not in names:
        raise ValueError(f"there is no pass {name!r} to be disabled; there are {', '.join(names)}")
