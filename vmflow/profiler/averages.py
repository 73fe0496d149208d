"""Sums of a trace's times, over all instructions of one name on streams of one name, and a table of the sums."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import attrs

from .records import Trace

# The columns that a table can be sorted by, and names of PyTorch's that stand for some of them.
_SORT_KEYS: Final = ("name", "stream", "calls", "total", "mean", "longest", "host", "device")
_SECOND_NAMES: Final = {
    "count": "calls",
    "cpu_time_total": "total",
    "cpu_time": "mean",
    "self_cpu_time_total": "host",
    "device_time_total": "device",
    "cuda_time_total": "device",
}
_COLUMNS: Final = ("name", "stream", "calls", "total", "mean", "longest", "host", "device", "share")


@attrs.frozen
class Average:
    """Counts and times, in microseconds, of all instructions of one name on streams of one name.

    Attributes:
        calls: the number of runs.
        total, mean, longest: the times that runs took on the host; for CUDA streams, those of launching.  If
            one kernel computed several ops, the last has the kernel's time.
        host: the time that threads spent to issue the instructions: the op's Python code, and the program's own lines
            since the thread last issued, ran or waited for an instruction.  On an event loop it includes time in which
            the loop waited for anything else.
        device: the time in which a CUDA device computed the instructions, by its own clock; 0 on other devices.
        failed, dropped: how many runs failed or were dropped; failures after a run has returned do not count.
    """

    name: str
    stream: str
    calls: int
    total: float
    mean: float
    longest: float
    host: float
    device: float
    failed: int
    dropped: int


class KeyAverages:
    """A sequence of `Average`, the largest total first."""

    def __init__(self, averages: list[Average], waited: float) -> None:
        self._averages = sorted(averages, key=lambda average: -average.total)
        self._waited = waited

    def __iter__(self) -> Iterator[Average]:
        return iter(self._averages)

    def __len__(self) -> int:
        return len(self._averages)

    def __getitem__(self, index: int) -> Average:
        return self._averages[index]

    def table(self, sort_by: str = "total", row_limit: int = 100) -> str:
        """The averages as a table in text, one line each, then the total times of streams, devices and the host.

        Args:
            sort_by: "name", "stream", "calls", "total", "mean", "longest", "host" or "device", or a name of
                PyTorch's, such as "cpu_time_total"; numbers in descending order.
            row_limit: the most averages; -1 for all.

        Raises:
            ValueError: for another `sort_by`, or if `row_limit` is negative and not -1.
        """
        key = _SECOND_NAMES.get(sort_by, sort_by)
        if key not in _SORT_KEYS:
            known = ", ".join([*_SORT_KEYS, *_SECOND_NAMES])
            raise ValueError(f"table: cannot sort by {sort_by!r}; known are {known}")
        if row_limit < -1:
            raise ValueError(f"table: row_limit must be a number of lines, or -1 for all, not {row_limit}")
        ordered = sorted(
            self._averages, key=lambda average: getattr(average, key), reverse=key not in ("name", "stream")
        )
        shown = ordered if row_limit == -1 else ordered[:row_limit]
        total = sum([average.total for average in self._averages])
        device = sum([average.device for average in self._averages])
        rows = [_COLUMNS, *[_row(average, total) for average in shown]]
        if not device:
            at = _COLUMNS.index("device")
            rows = [row[:at] + row[at + 1 :] for row in rows]
        lines = _aligned(rows)
        if len(shown) < len(ordered):
            lines.append(f"and {len(ordered) - len(shown)} more")
        host = sum([average.host for average in self._averages])
        devices = f"; devices {_time(device)}" if device else ""
        lines.append(f"streams {_time(total)}{devices}; host {_time(host)} issuing, {_time(self._waited)} awaiting")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<KeyAverages of {len(self)} kinds of instruction>"


def make_averages(trace: Trace) -> KeyAverages:
    """Sum up the runs of a trace by the names of instruction and stream."""
    host = host_times(trace)
    groups: dict[tuple[str, str], list[Any]] = {}
    for run in trace.runs:
        groups.setdefault((run.name, run.stream), []).append(run)
    device: dict[tuple[str, str], int] = {}
    for work in trace.computed:
        device[work.name, work.stream] = device.get((work.name, work.stream), 0) + work.end - work.begin
    averages: list[Average] = []
    for (name, stream), runs in groups.items():
        times = [(run.end - run.begin) / 1000 for run in runs]
        states = [run.state for run in runs]
        averages.append(
            Average(
                name,
                stream,
                len(runs),
                sum(times),
                sum(times) / len(times),
                max(times),
                sum([host.get(run.number, 0.0) for run in runs]),
                device.get((name, stream), 0) / 1000,
                states.count("failed"),
                states.count("dropped"),
            )
        )
    return KeyAverages(averages, sum([wait.end - wait.begin for wait in trace.waits]) / 1000)


def host_times(trace: Trace) -> dict[int, float]:
    """By instruction number, the microseconds from the issuing thread's last activity to the end of issuing."""
    threads: dict[int, list[tuple[int, int, int]]] = {}
    for issue in trace.issues:
        threads.setdefault(issue.thread, []).append((issue.begin, issue.end, issue.number))
    for run in trace.runs:
        threads.setdefault(run.thread, []).append((run.begin, run.end, -1))
    for wait in trace.waits:
        # Only the wait's two ends count as activities, since the thread may issue and run instructions during the wait.
        threads.setdefault(wait.thread, []).extend([(wait.begin, wait.begin, -1), (wait.end, wait.end, -1)])
    times: dict[int, float] = {}
    for spans in threads.values():
        spans.sort()
        before = spans[0][0]
        for begin, end, number in spans:
            if number >= 0:
                times[number] = (end - min(before, begin)) / 1000
            before = max(before, end)
    return times


def _row(average: Average, total: float) -> tuple[str, ...]:
    share = f"{100 * average.total / total:.1f}%" if total else "-"
    outcomes = (average.failed, "failed"), (average.dropped, "dropped")
    errors = [f"{count} {outcome}" for count, outcome in outcomes if count]
    name = f"{average.name} ({', '.join(errors)})" if errors else average.name
    times = [_time(time) for time in (average.total, average.mean, average.longest, average.host, average.device)]
    return name, average.stream, str(average.calls), *times, share


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            [
                text.ljust(width) if place < 2 else text.rjust(width)
                for place, (text, width) in enumerate(zip(row, widths, strict=True))
            ]
        )
        for row in rows
    ]
    return [lines[0], "-" * len(lines[0]), *lines[1:], "-" * len(lines[0])]


def _time(microseconds: float) -> str:
    """Format a time with a unit: us, ms or s."""
    if microseconds < 1e3:
        return f"{microseconds:.1f} us"
    return f"{microseconds / 1e3:.2f} ms" if microseconds < 1e6 else f"{microseconds / 1e6:.2f} s"
