"""`Table` prints a benchmark's rows as they are measured, and keeps them for a JSON file."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import vmflow as flow
from vmflow.info import compiled_modules

# The content of a table's cell: a number, a remark instead of one, or nothing.
Cell = int | float | str | None


class Table:
    """Rows of numbers under named columns.

    Args:
        title: the heading of the first column, which has the rows' names.
        columns: the names of the other columns.
        width: of the first column, in characters.
    """

    def __init__(self, title: str, columns: Sequence[str], width: int = 28) -> None:
        self.title = title
        self.columns = tuple(columns)
        self.width = width
        self.rows: dict[str, dict[str, Cell]] = {}

    def print_head(self) -> None:
        """Print the names of the columns."""
        self._print(self.title, self.columns)

    def add(self, name: str, **cells: Cell) -> None:
        """Print a row and keep it.

        Args:
            name: of the row.
            cells: the cells by column name, with underscores for characters that a Python name cannot have; missing
                cells are empty.

        Raises:
            ValueError: if the row exists already, or a cell belongs to no column.
        """
        if name in self.rows:
            raise ValueError(f"there is a row {name!r} already; give each row a name of its own")
        named = {_key(column): column for column in self.columns}
        strangers = cells.keys() - named.keys()
        if strangers:
            raise ValueError(f"{sorted(strangers)} are not among the columns {sorted(named)}")
        row = {column: cells.get(key) for key, column in named.items()}
        self.rows[name] = row
        self._print(name, [_text(cell) for cell in row.values()])

    def write(self, path: Path, conditions: str, remarks: Sequence[str] = ()) -> None:
        """Write the rows as JSON, together with remarks and the conditions under which the rows were measured."""
        path.write_text(json.dumps({"conditions": conditions, "rows": self.rows, "remarks": list(remarks)}, indent=2))

    def _print(self, name: str, cells: Sequence[str]) -> None:
        widths = [max(11, len(column) + 2) for column in self.columns]
        print(
            f"{name:{self.width}}" + "".join([f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)]),
            flush=True,
        )


def conditions() -> str:
    """The conditions that measurements depend on, as text: versions, whether the core is compiled, and the machine."""
    return (
        f"vmflow {flow.__version__} ({compiled_core()}), Python {platform.python_version()}, numpy {np.__version__}; "
        f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}"
    )


def compiled_core() -> str:
    """A text that says whether vmflow's core is compiled by mypyc."""
    compiled = compiled_modules()
    return f"compiled core: {f'yes (mypyc), {len(compiled)} modules' if compiled else 'no'}"


def _key(column: str) -> str:
    return "".join([letter if letter.isalnum() else "_" for letter in column])


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, str):
        return cell
    if isinstance(cell, int):
        return f"{cell:,}"
    size = abs(cell)
    if size >= 100:
        return f"{cell:,.0f}"
    if size >= 10:
        return f"{cell:.1f}"
    return f"{cell:.2f}" if size >= 0.1 else f"{cell:.3f}"
