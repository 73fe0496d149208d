"""`Report` prints a benchmark's rows and whether they meet their bars, and keeps the rows for a JSON file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tests.benchmarks.measure import EAGER, GRAPH, Bar, Case, Result

_WIDTH: Final = 42


class Report:
    """A table of figures, ratios, and the bars (upper limits) that they have to meet.

    Args:
        others: the other libraries, which get columns.
        compiled: whether the core is compiled, on which some bars depend.
        judged: whether figures are compared with their bars.

    Attributes:
        rows: the measured rows, for the JSON file.
    """

    def __init__(self, others: Sequence[str], compiled: bool, judged: bool = True) -> None:
        self._others = tuple(others)
        self._compiled = compiled
        self._judged = judged
        self.rows: list[dict[str, Any]] = []

    def print_head(self) -> None:
        """Print the names of the columns."""
        names = [EAGER, *self._others, *[f"/{other}" for other in self._others]]
        print(f"{'':{_WIDTH}}" + "".join([f"{name:>11}" for name in names]) + "  wanted", flush=True)

    def add(self, case: Case, result: Result) -> None:
        """Print a line for vmflow's eager time and a line for its graph's time, if measured, and keep the rows."""
        ways = [entry for entry in (EAGER, GRAPH) if entry in result.microseconds]
        for way in ways:
            verdicts = {_wanted(bar, case.unit): _met(bar, result) for bar in self._bars(case, way)}
            name = case.name + (f": {GRAPH}" if way == GRAPH else "")
            figures = {
                entry: value for entry, value in result.microseconds.items() if entry == way or entry not in ways
            }
            ratios = {
                entry: value / figure for entry, figure in figures.items() if entry != way for value in [figures[way]]
            }
            self.rows.append({"name": name, "unit": case.unit, "figures": figures, "wanted": verdicts})
            self._print(name, way, case.unit, figures, ratios, verdicts)

    def _print(
        self,
        name: str,
        way: str,
        unit: str,
        figures: dict[str, float],
        ratios: dict[str, float],
        verdicts: dict[str, bool | None],
    ) -> None:
        cells = [format_figure(figures[way], unit)]
        cells += [format_figure(figures[other], unit) if other in figures else "-" for other in self._others]
        cells += [format_ratio(ratios[other]) if other in ratios else "-" for other in self._others]
        remarks = [f"{wanted} {_VERDICTS[met]}" for wanted, met in verdicts.items()]
        remarks += [
            f"({ratio} {format_figure(figures[ratio], unit)}, {format_ratio(ratios[ratio])})"
            for ratio in ratios
            if ratio not in self._others
        ]
        print(f"{name:{_WIDTH}}" + "".join([f"{cell:>11}" for cell in cells]) + "  " + " ".join(remarks), flush=True)

    def print_summary(self) -> None:
        """Print how many bars are met, and list those that are not."""
        verdicts = {(row["name"], wanted): met for row in self.rows for wanted, met in row["wanted"].items()}
        if not verdicts:
            return
        held = [verdict for verdict in verdicts.values() if verdict is not None]
        print(f"{sum(held)} of {len(held)} are what is wanted")
        for (name, wanted), met in verdicts.items():
            if met is False:
                print(f"    not {name}, {wanted}")

    def _bars(self, case: Case, way: str) -> list[Bar]:
        return [bar for bar in case.bars if self._judged and bar.of == way and bar.compiled in (None, self._compiled)]


_VERDICTS: Final = {True: "met", False: "NOT MET", None: "not compared"}


def _wanted(bar: Bar, unit: str) -> str:
    if bar.to is None:
        return f"<= {bar.most:g} {unit}"
    return f"<= {bar.most:g}" + (f" of {bar.to}" if bar.to != "torch" else "")


def _met(bar: Bar, result: Result) -> bool | None:
    """Whether a bar is met; None if its contender was not measured."""
    figure = result.figure(bar)
    return None if figure is None else figure <= bar.most


def format_figure(value: float, unit: str) -> str:
    """Format a figure with its unit; 10,000 microseconds and more are given in milliseconds."""
    if unit != "us":
        return f"{value:,.1f} {unit}"
    if value >= 1e4:
        return f"{value / 1e3:,.1f} ms"
    return f"{value:.2f} us"


def format_ratio(value: float) -> str:
    """Format a ratio with two decimals, or with three if it is below 0.1."""
    return f"{value:.3f}" if value < 0.1 else f"{value:.2f}"
