"""The settings of a virtual machine: their defaults, environment variables and checks."""

from __future__ import annotations

import math
import os
from threading import TIMEOUT_MAX
from typing import Final

from vmflow.streams import CpuStreamPolicy

from .stall_watch import STALL_SECONDS

# By default, a script that issues instructions without waiting runs a turn when this many are pending, or sooner.
GATHER: Final = 32

# By default, above this many unfinished instructions, or bytes of their large results, a thread without a loop that
# issues more waits until at most half as many are left.
HIGH_WATER: Final = 40_000
HIGH_WATER_BYTES: Final = 4 << 30

# The most seconds that exit and, by default, `close` wait for a machine's kernels on the host, and
# `Driver.finish_running` for each busy worker.
GRACE_SECONDS: Final = 2.0


def check(
    window: int,
    turn_budget: float,
    gather: int | None,
    high_water: int,
    high_water_bytes: int,
    drain_timeout: float | None,
    stall_after: float | None,
    cpu_worker: str,
) -> None:
    """Raise `TypeError` or `ValueError` if one of these arguments of `VirtualMachine` is invalid."""
    _whole("window", window)
    check_seconds("turn_budget", turn_budget, positive=True)
    if gather is not None:
        _whole("gather", gather)
    _whole("high_water", high_water)
    _whole("high_water_bytes", high_water_bytes)
    if drain_timeout is not None:
        check_seconds("drain_timeout", drain_timeout)
    if stall_after is not None:
        _check_stall_after("stall_after", stall_after)
    CpuStreamPolicy(worker=cpu_worker)  # raises for an unknown value


def _whole(about: str, number: int) -> None:
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"{about} must be an integer, not {number!r}")
    if number < 1:
        raise ValueError(f"{about} must be at least 1, not {number}")


def check_seconds(about: str, seconds: float, positive: bool = False) -> None:
    """Raise an error unless `seconds`, the argument `about`, is a time for which a thread can sleep.

    Args:
        positive: whether zero is an error, too.

    Raises:
        TypeError: if the value is no int or float, or a bool.
        ValueError: if it is negative, nan, or more than a lock can wait for.
    """
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool):
        raise TypeError(f"{about} must be a number of seconds, not {seconds!r}")
    # The comparison is false for nan.
    if not 0 <= seconds <= TIMEOUT_MAX or (positive and seconds == 0):
        least = "a positive, finite number of seconds" if positive else "a finite number of seconds from 0 on"
        raise ValueError(f"{about} must be {least}, at most {TIMEOUT_MAX:.0f}, not {seconds}")


def _check_stall_after(about: str, seconds: float) -> None:
    """Do as `check_seconds` for a positive number, but permit infinity, which turns the watch for stalls off."""
    if seconds != math.inf:
        check_seconds(about, seconds, positive=True)


def race_check(wanted: bool | None) -> bool:
    """Return `wanted`, or for None whether the variable `VMFLOW_RACE_CHECK` is set and neither empty nor "0"."""
    return os.environ.get("VMFLOW_RACE_CHECK", "0") not in ("", "0") if wanted is None else wanted


def stall_seconds() -> float:
    """Return the default of the argument `stall_after` of `VirtualMachine`: `VMFLOW_STALL_SECONDS`, or a minute.

    Raises:
        ValueError: if the variable is set, and neither a positive number that a lock can wait for nor infinity.
    """
    text = os.environ.get("VMFLOW_STALL_SECONDS")
    if text is None:
        return STALL_SECONDS
    try:
        seconds = float(text)
    except ValueError:
        raise ValueError(f"VMFLOW_STALL_SECONDS must be a number of seconds, not {text!r}") from None
    _check_stall_after("VMFLOW_STALL_SECONDS", seconds)
    return seconds
