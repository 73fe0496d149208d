"""``report.json``, which has all that was found, and ``report.md``, which people read; written after each stage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

# Failures that the readable report shows in full.
_IN_FULL: Final = 12
_LONGEST: Final = 2500

# Facts of the first stage that the readable report begins with.
_HEAD: Final = (
    *("devices", "cuda", "nvrtc", "nvidia-smi", "packages", "python", "numpy", "vmflow", "commit"),
    *("digest of the sources", "cpu", "settings"),
)


class Report:
    """See the module.

    Args:
        folder: where the files go.
        began: when, for people.
        options: of the command.

    Attributes:
        stages: by name, the findings; see `running.run_stage`.
    """

    def __init__(self, folder: Path, began: str, options: dict[str, Any]) -> None:
        self._folder = folder
        self._began = began
        self._options = options
        self.stages: dict[str, dict[str, Any]] = {}
        self.remark = "has not ended yet"

    @property
    def good(self) -> bool:
        """Whether all stages that were asked for have ended, and nothing was wrong."""
        return bool(self.stages) and all([found["status"] == "ok" for found in self.stages.values()])

    def write(self) -> None:
        """Write both files."""
        content = {
            "began": self._began,
            "options": self._options,
            "good": self.good,
            "remark": self.remark,
            "stages": self.stages,
        }
        (self._folder / "report.json").write_text(json.dumps(content, indent=1))
        (self._folder / "report.md").write_text("\n".join(self._lines()) + "\n")

    def _lines(self) -> Iterator[str]:
        yield "# vmflow on a CUDA device"
        yield ""
        yield f"Begun {self._began}; {self.remark}. {'Nothing was wrong.' if self.good else 'Not all is well.'}"
        yield from _head(self.stages.get("versions", {}).get("facts", {}))
        yield from ("", "## Stages", "", "| stage | status | checks passed | failed | processes | seconds |")
        yield "|---|---|---|---|---|---|"
        for name, found in self.stages.items():
            counts = f"{found['passed']} | {len(found['failures'])} | {found['processes']} | {found['seconds']}"
            yield f"| {name} | {found['status']} | {counts} |"
        yield from _figures([figure for found in self.stages.values() for figure in found["figures"]])
        for name, found in self.stages.items():
            yield from _failures(name, found["failures"])
        for name, found in self.stages.items():
            if name != "versions" and found["facts"]:
                yield from ("", f"## Facts: {name}", "")
                yield from [f"- {key}: {_plain(value)}" for key, value in found["facts"].items()]


def _head(facts: dict[str, Any]) -> Iterator[str]:
    yield ""
    for name in _HEAD:
        if facts.get(name):
            yield f"- {name}: {_plain(facts[name])}"


def _figures(figures: list[dict[str, Any]]) -> Iterator[str]:
    if not figures:
        return
    yield from ("", "## Figures", "", "Medians; the ratio is vmflow's to torch's, of the same way where there is one.")
    yield from ("", "| figure | unit | by contender | ratio | remark |", "|---|---|---|---|---|")
    for figure in figures:
        values = figure["values"]
        shown = ", ".join([f"{name} {_number(value)}" for name, value in values.items()])
        yield f"| {figure['name']} | {figure['unit']} | {shown} | {_ratios(values)} | {figure['remark']} |"


def _ratios(values: dict[str, float]) -> str:
    """vmflow's to torch's, for each way of both."""
    found = []
    for name, value in values.items():
        other = values.get(name.replace("vmflow", "torch"))
        if name.startswith("vmflow") and other:
            found.append(f"{name.removeprefix('vmflow').strip(', ') or 'eager'} {value / other:.2f}")
    return ", ".join(found)


def _failures(stage: str, failures: list[dict[str, str]]) -> Iterator[str]:
    if not failures:
        return
    yield from ("", f"## Failures: {stage}", "")
    for failure in failures:
        yield f"- {failure['name']}: {_plain(failure['summary'])[:200]}"
    for failure in failures[:_IN_FULL]:
        yield from ("", f"{failure['name']}:", "", "```", failure["error"].strip()[-_LONGEST:], "```")


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join([f"{name} {_plain(each)}" for name, each in value.items()])
    if isinstance(value, list):
        return "; ".join([_plain(each) for each in value])
    return _number(value) if isinstance(value, float) else " ".join(str(value).split())


def _number(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
