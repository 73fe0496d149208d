"""`schedule` and `ProfilerAction`: the choice of the steps of a loop to record."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from vmflow.arguments import whole_number


class ProfilerAction(Enum):
    """The action of a profiler during one step of a loop; see `schedule`.

    Raises:
        ValueError: for another value than those of the members.

    Example:
        >>> flow.profiler.ProfilerAction.RECORD.records, flow.profiler.ProfilerAction.WARMUP.records
        (True, False)
    """

    NONE = 0
    # The step is recorded, and its records are discarded.
    WARMUP = 1
    RECORD = 2
    # The last step of a recording.
    RECORD_AND_SAVE = 3

    @property
    def records(self) -> bool:
        """Whether the records of a step with this action are kept."""
        return self in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0
) -> Callable[[int], ProfilerAction]:
    """Make a function from the number of a step, counted from 0, to the profiler's action during the step.

    Args:
        wait: the number of steps at the beginning of each cycle that are not recorded.
        warmup: the number of steps after `wait` whose recording is discarded.
        active: the number of steps after `warmup` that are recorded, at least one.
        repeat: the number of cycles; 0 to repeat until the loop ends.
        skip_first: the number of steps before the first cycle, which are not recorded.

    Raises:
        TypeError: if an argument is no integer.
        ValueError: if an argument is negative, or `active` is 0.

    Example:
        >>> action = flow.profiler.schedule(wait=1, warmup=1, active=2)
        >>> [action(step).name for step in range(5)]
        ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE', 'NONE']
    """
    counts = {"wait": wait, "warmup": warmup, "active": active, "repeat": repeat, "skip_first": skip_first}
    for name, count in counts.items():
        whole_number("schedule", name, count, 0)
    if active == 0:
        raise ValueError("schedule: active must be at least 1, or nothing would ever be recorded")
    cycle = wait + warmup + active

    def action_of(step: int) -> ProfilerAction:
        position = step - skip_first
        if position < 0 or (repeat and position >= repeat * cycle):
            return ProfilerAction.NONE
        position %= cycle
        if position < wait:
            return ProfilerAction.NONE
        if position < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if position < cycle - 1 else ProfilerAction.RECORD_AND_SAVE

    return action_of
