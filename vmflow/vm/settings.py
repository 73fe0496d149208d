"""The settings of a virtual machine: their defaults, environment variables and checks."""

from __future__ import annotations

import os
from typing import Final

from vmflow.streams import CpuStreamPolicy

from .stall_watch import STALL_SECONDS

# By default, a script that issues instructions without waiting runs a turn when this many are pending, or sooner: often
# enough to keep memory low, rarely enough to spread the cost of a turn.
GATHER: Final = 32

# By default, a thread without a loop that issues more than this many unfinished instructions, or bytes of their large
# results, waits until half as many are left.  An instruction takes about a kilobyte with its operands.
HIGH_WATER: Final = 40_000
HIGH_WATER_BYTES: Final = 4 << 30

# The most seconds that exit, and by default `close`, wait for a machine's kernels on the host, as nothing can interrupt
# numpy.
GRACE_SECONDS: Final = 2.0


def check(
    turn_budget: float,
    gather: int | None,
    high_water: int,
    high_water_bytes: int,
    drain_timeout: float | None,
    stall_after: float | None,
    cpu_worker: str,
) -> None:
    """Raise `ValueError` for invalid arguments of `VirtualMachine`."""
    if turn_budget <= 0:
        raise ValueError(f"turn_budget must be positive, not {turn_budget}")
    for mark, about in ((high_water, "high_water"), (high_water_bytes, "high_water_bytes"), (gather, "gather")):
        if mark is not None and mark < 1:
            raise ValueError(f"{about} must be at least 1, not {mark}")
    if drain_timeout is not None and not drain_timeout >= 0:
        raise ValueError(f"drain_timeout must be a number of seconds that is not negative, not {drain_timeout}")
    if stall_after is not None and not stall_after > 0:
        raise ValueError(f"stall_after must be a positive number of seconds, not {stall_after}")
    CpuStreamPolicy(worker=cpu_worker)  # raises for an unknown value


def race_check(wanted: bool | None) -> bool:
    """Whether a machine gets a race check: as `wanted`, or for None as the variable `VMFLOW_RACE_CHECK` says."""
    return os.environ.get("VMFLOW_RACE_CHECK", "0") not in ("", "0") if wanted is None else wanted


def stall_seconds() -> float:
    """Return the default of the argument `stall_after` of `VirtualMachine`: `VMFLOW_STALL_SECONDS`, or a minute."""
    return float(os.environ.get("VMFLOW_STALL_SECONDS", STALL_SECONDS))
