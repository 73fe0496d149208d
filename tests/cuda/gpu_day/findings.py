"""`Findings`: all that a stage finds, kept in a file from the first finding on."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from vmflow.errors import DeviceLost

# Seconds between two writes of the file.
_INTERVAL: Final = 0.5

# Failures that are told in full; of the others, only the last line.
_IN_FULL: Final = 30


def doing_file(findings: Path) -> Path:
    """The file with the present activity of a process, beside that of its findings; it stays if the process dies."""
    return findings.with_suffix(".doing")


class OutOfTime(Exception):
    """A stage has not come to its end within its seconds."""


@dataclass(frozen=True)
class Task:
    """The work of one process.

    Attributes:
        stage: its name.
        seconds: in which it is to end.
        quick: whether the smallest sizes will do.
        emulated: whether the device is emulated, so that sizes have to be small.
        shard, shards: which part of a stage that several processes share.
        begin: the first piece of work to do, if those before have been done, or have ended another process.
    """

    stage: str
    seconds: float
    quick: bool = False
    emulated: bool = False
    shard: int = 0
    shards: int = 1
    begin: int = 0

    @property
    def small(self) -> bool:
        """Whether sizes have to be small."""
        return self.quick or self.emulated


class Findings:
    """See the module.

    Args:
        task: that is being done.
        path: of the file.

    Attributes:
        task: as given.
        status: "running", "ok", "failed", "out of time" or "device lost".
        facts: by name, any values of JSON.
        passed: how many checks have.
        failures: of checks that failed: the name, the error in a line, and its traceback.
        figures: see `figure`.
        position: of the piece of work in hand, if the stage counts them.
        doing: the name of the check that is being made, or was made last.
    """

    def __init__(self, task: Task, path: Path) -> None:
        self.task = task
        self.status = "running"
        self.facts: dict[str, Any] = {}
        self.passed = 0
        self.failures: list[dict[str, str]] = []
        self.figures: list[dict[str, Any]] = []
        self.position: int | None = None
        self.doing = task.stage
        self._path = path
        self._began = time.perf_counter()
        self._written = 0.0
        self.write()

    @contextmanager
    def check(self, name: str) -> Iterator[None]:
        """A block that passes unless it raises; then the stage goes on behind it.

        Raises:
            DeviceLost: nothing can be done after that.
            OutOfTime: before the block, if the time of the stage is over.
        """
        self.keep_to_time(name)
        self.doing = name
        doing_file(self._path).write_text(json.dumps([self.position, name]))
        try:
            yield
        except (DeviceLost, OutOfTime):
            raise
        except Exception as error:
            self.fail(name, error)
        else:
            self.passed += 1
        self._write_sometimes()

    def fail(self, name: str, error: BaseException) -> None:
        """Note that something is wrong."""
        lines = traceback.format_exception(error)
        text = "".join(lines if len(self.failures) < _IN_FULL else lines[-1:])
        summary = traceback.format_exception_only(error)[0].strip()
        self.failures.append({"name": name, "summary": summary, "error": text})

    def fact(self, name: str, value: Any) -> None:
        """Note a fact that is neither right nor wrong."""
        self.facts[name] = value
        self._write_sometimes()

    def figure(self, name: str, unit: str, values: dict[str, float], remark: str = "") -> None:
        """Note a figure.

        Args:
            name: of the row.
            unit: of the values.
            values: by contender, "vmflow" among them; medians.
            remark: an explanation.
        """
        self.figures.append({"name": name, "unit": unit, "values": values, "remark": remark})
        self._write_sometimes()

    def seconds_left(self) -> float:
        """How many seconds of the stage are left."""
        return self.task.seconds - (time.perf_counter() - self._began)

    def keep_to_time(self, step: str) -> None:
        """Go on only if there is time.

        Raises:
            OutOfTime: if there is none.
        """
        if self.seconds_left() <= 0:
            raise OutOfTime(f"the {self.task.seconds:.0f} s were over before {step}, after {self.passed} checks")

    def write(self) -> None:
        """Put all into the file, in one piece."""
        self._written = time.perf_counter()
        content = {
            "status": self.status,
            "seconds": round(self._written - self._began, 2),
            "passed": self.passed,
            "facts": self.facts,
            "failures": self.failures,
            "figures": self.figures,
        }
        draft = self._path.with_suffix(".draft")
        draft.write_text(json.dumps(content))
        draft.replace(self._path)

    def _write_sometimes(self) -> None:
        if time.perf_counter() - self._written > _INTERVAL:
            self.write()
