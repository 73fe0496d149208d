"""Runs a stage in processes of its own, so that the next one begins anew after any failure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from .child import GRACE
from .findings import Task, doing_file

# Seconds that a process may take to start, and to end by itself.
_START: Final = 30.0

# How often a task is begun anew behind a piece of work that has ended the process.
_MOST_RESTARTS: Final = 3
# In seconds; with less, it is not.
_LEAST: Final = 10.0

# The last characters that a process has written, which are kept if it ended badly.
_TAIL: Final = 6000

# The CPU's kernels are numpy's own on one thread: C kernels that are ready at some time would change the last bits.
_ENVIRONMENT: Final = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VMFLOW_JIT": "0",
}


def run_stage(tasks: Sequence[Task], folder: Path) -> dict[str, Any]:
    """Run the tasks of one stage at the same time; returns their findings together.

    Args:
        tasks: the shards.
        folder: for files of each process.
    """
    began = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(len(tasks)) as pool:
        found = list(pool.map(lambda task: _run_task(task, folder), tasks))
    processes = [each for of_task in found for each in of_task]
    return {**_merged(processes), "seconds": round(time.perf_counter() - began, 2)}


def _run_task(task: Task, folder: Path) -> list[dict[str, Any]]:
    """Run a task; if it has ended its process or its device, go on behind that piece of work in another process."""
    until = time.perf_counter() + task.seconds
    found: list[dict[str, Any]] = []
    while True:
        found.append(_end(task, _start(task, folder), folder))
        position = found[-1]["position"]
        left = until - time.perf_counter()
        if not found[-1]["broken"] or position is None or len(found) > _MOST_RESTARTS or left < _LEAST:
            return found
        task = replace(task, begin=position + 1, seconds=left)


def _files(task: Task, folder: Path) -> tuple[Path, Path]:
    """The findings of a process, and all that it writes."""
    stem = f"{task.stage}-{task.shard}-{task.begin}"
    return folder / f"{stem}.json", folder / f"{stem}.log"


def _start(task: Task, folder: Path) -> subprocess.Popen[bytes]:
    findings, log = _files(task, folder)
    for left_over in (findings, doing_file(findings)):
        left_over.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.cuda.gpu_day.child", json.dumps(asdict(task)), str(findings)]
    with log.open("wb") as output:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, **_ENVIRONMENT}
        )


def _end(task: Task, process: subprocess.Popen[bytes], folder: Path) -> dict[str, Any]:
    """Wait for a process, end it if it does not end by itself, and read its findings."""
    try:
        process.wait(task.seconds + GRACE + _START)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    findings, log = _files(task, folder)
    found: dict[str, Any] = json.loads(findings.read_text()) if findings.exists() else {"status": "running"}
    doing = doing_file(findings)
    found["position"], name = json.loads(doing.read_text()) if doing.exists() else (None, task.stage)
    found["broken"] = found["status"] in ("running", "device lost")
    if found["status"] == "running":
        # It did not live to say how it ended.
        found["status"] = "failed"
        summary = f"the process ended with status {process.returncode}"
        failure = {"name": name, "summary": summary, "error": log.read_text(errors="replace")[-_TAIL:]}
        found["failures"] = [*found.get("failures", []), failure]
    return found


# The worse, the further behind.
_STATUSES: Final = ("ok", "out of time", "failed", "device lost")


def _merged(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for each in found:
        for name, value in each.get("facts", {}).items():
            # Numbers of several processes are counts.
            facts[name] = facts[name] + value if name in facts and isinstance(value, int) else value
    return {
        "status": max([each["status"] for each in found], key=_STATUSES.index),
        "processes": len(found),
        "passed": sum([each.get("passed", 0) for each in found]),
        "facts": facts,
        "failures": [failure for each in found for failure in each.get("failures", [])],
        "figures": [figure for each in found for figure in each.get("figures", [])],
    }
