"""What is done to a job before it is planned: pure functions from a job to a better one, in a fixed order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from vmflow.graph_mode.job import Job
from vmflow.instructions.blob import Array

if TYPE_CHECKING:
    from vmflow.graph_mode.config import GraphConfig


def run_passes(job: Job, constants: Mapping[int, Array], config: GraphConfig) -> tuple[Job, dict[int, Array]]:
    """The job after all passes that the settings allow, and the constants that it needs."""
    return job, dict(constants)
