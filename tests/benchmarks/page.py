"""Writes the rows of a benchmark run, with its conditions, into the marked part of a Markdown page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.contenders import LIBRARIES
from tests.benchmarks.measure import EAGER, GRAPH
from tests.benchmarks.report import format_figure, format_ratio

BEGIN: Final = "<!-- begin: written by python -m tests.benchmarks --page -->"
END: Final = "<!-- end: written by python -m tests.benchmarks --page -->"


def split_page(path: Path) -> tuple[str, str]:
    """Read a page; return the texts before and after its marked part, each with its mark.

    Raises:
        ValueError: if the page does not have both marks once, in order.
    """
    text = path.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"{path}: expected one line {BEGIN!r} and behind it one line {END!r}; add them to the page")
    before, rest = text.split(BEGIN)
    return before + BEGIN, END + rest.split(END)[1]


def write_page(path: Path, runs: Sequence[Mapping[str, Any]], command: str) -> None:
    """Replace the marked part of a page, and keep the rest.

    Args:
        path: of the page.
        runs: the conditions and rows for each number of threads, as in the file that ``--json`` writes.
        command: the command by which the rows were measured.

    Raises:
        ValueError: if the page lacks a mark.
    """
    before, behind = split_page(path)
    path.write_text(f"{before}\n\n{_generated(runs, command)}\n{behind}", encoding="utf-8")


def _generated(runs: Sequence[Mapping[str, Any]], command: str) -> str:
    """The Markdown for the marked part: the command, and for each run its conditions and its table."""
    lines = [f"Command: `{command}`", ""]
    for run in runs:
        lines += [f"- {topic}: {text}" for topic, text in run["conditions"].items()] + [""]
        lines += _table(run["rows"]) + [""]
    return "\n".join(lines)


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The lines of a Markdown table: vmflow's time in each row, and its ratio to each other contender's time."""
    present = {name for row in rows for name in row["figures"]} - {EAGER, GRAPH}
    columns = [*[name for name in LIBRARIES if name in present], *sorted(present - set(LIBRARIES))]
    lines = [_line(["row", "vmflow", *[f"/ {name}" for name in columns]]), _line(["---"] * (2 + len(columns)))]
    for row in rows:
        figures = row["figures"]
        own = figures[EAGER] if EAGER in figures else figures[GRAPH]
        ratios = [format_ratio(own / figures[name]) if name in figures else "" for name in columns]
        lines.append(_line([row["name"], format_figure(own, row["unit"]), *ratios]))
    return lines


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join([cell.replace("|", "\\|") for cell in cells]) + " |"
