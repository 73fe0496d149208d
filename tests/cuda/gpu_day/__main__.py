"""``python -m tests.cuda.gpu_day``: see the package."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from vmflow.streams.cuda.setting import setting_of

from .findings import Task
from .report import Report
from .running import run_stage

# By stage, its share of the seconds; unused seconds go to the others.
STAGES: Final = {"versions": 40, "ops": 200, "hazards": 60, "training": 80, "figures": 100}
SECONDS: Final = 480.0

# Processes that share the ops, if there are that many cores.
_MOST_SHARDS: Final = 8
# A stage is not begun with less.
_LEAST: Final = 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()}
    report = Report(options.out, time.strftime("%Y-%m-%d %H:%M:%S"), plain)
    until = time.perf_counter() + options.seconds
    for number, name in enumerate(options.stages):
        shares = [STAGES.get(stage, 1) for stage in options.stages[number:]]
        seconds = (until - time.perf_counter()) * shares[0] / sum(shares)
        report.stages[name] = {"status": "running", **_NOTHING}
        report.write()
        found = run_stage(_tasks(name, seconds, options.quick), options.out / "stages") if seconds >= _LEAST else None
        report.stages[name] = {"status": "out of time", **_NOTHING} if found is None else found
        print(_line(name, report.stages[name]), flush=True)
        if report.stages[name]["status"] == "device lost" and not _device_works(options.out):
            report.remark = f"ended by the loss of the device in the stage {name}"
            break
        if name == "versions" and report.stages[name]["status"] != "ok":
            report.remark = "ended because no kernel runs on the device"
            break
    else:
        report.remark = f"ended after {options.seconds - (until - time.perf_counter()):.0f} s"
    report.write()
    good = report.good and len(report.stages) == len(options.stages)
    print(f"{report.remark}; {'nothing was wrong' if good else 'not all is well'}: {options.out / 'report.md'}")
    return 0 if good else 1


_NOTHING: Final[dict[str, Any]] = {
    "processes": 0,
    "passed": 0,
    "facts": {},
    "failures": [],
    "figures": [],
    "seconds": 0,
}


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.cuda.gpu_day", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the folder of the report")
    parser.add_argument("--stages", nargs="+", default=list(STAGES), help=f"some of {', '.join(STAGES)}")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for all of them together")
    parser.add_argument("--quick", action="store_true", help="the smallest sizes, and few ops")
    return parser.parse_args(arguments)


def _tasks(stage: str, seconds: float, quick: bool) -> list[Task]:
    emulated = setting_of(os.environ).kind == "emulated"
    shards = min((os.cpu_count() or 1) // 2, _MOST_SHARDS) if stage == "ops" and not quick else 1
    return [Task(stage, seconds, quick, emulated, shard, max(shards, 1)) for shard in range(max(shards, 1))]


def _device_works(folder: Path) -> bool:
    """Whether a new process can use the device: that of a process that has lost it may only have lost its context."""
    probe = run_stage(_tasks("versions", 30.0, True), folder / "after the loss")
    return bool(probe["status"] == "ok")


def _line(name: str, found: dict[str, Any]) -> str:
    failed = len(found["failures"])
    return f"{name}: {found['status']}, {found['passed']} checks passed, {failed} failed, {found['seconds']} s"


if __name__ == "__main__":
    sys.exit(main())
