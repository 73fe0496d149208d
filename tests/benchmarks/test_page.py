"""The generated part of the benchmarks' Markdown page, made from invented results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.page import BEGIN, END, split_page, write_page

pytestmark = pytest.mark.host

RUN: dict[str, Any] = {
    "conditions": {"date": "2026-01-02", "CPU": "a processor | 2 cores", "threads": "1"},
    "rows": [
        {"name": "op", "unit": "us", "figures": {"vmflow": 3.0, "torch": 4.0, "numpy": 60.0}, "wanted": {}},
        {"name": "op: graph", "unit": "us", "figures": {"graph": 20_000.0, "torch": 10_000.0}, "wanted": {}},
        {"name": "memory", "unit": "MB", "figures": {"vmflow": 30.0, "asyncio": 60.0}, "wanted": {}},
    ],
}

EXPECTED = f"""# Title

{BEGIN}

Command: `python -m tests.benchmarks --threads 1`

- date: 2026-01-02
- CPU: a processor | 2 cores
- threads: 1

| row | vmflow | / numpy | / torch | / asyncio |
| --- | --- | --- | --- | --- |
| op | 3.00 us | 0.050 | 0.75 |  |
| op: graph | 20.0 ms |  | 2.00 |  |
| memory | 30.0 MB |  |  | 0.50 |

{END}

Kept.
"""


def test_the_marked_part_is_replaced_and_the_rest_is_kept(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{BEGIN}\nold figures\n{END}\n\nKept.\n")
    for _ in range(2):
        write_page(page, [RUN], "python -m tests.benchmarks --threads 1")
        assert page.read_text() == EXPECTED


def test_each_run_has_a_table(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{BEGIN}\n{END}\n")
    other = {**RUN, "conditions": {**RUN["conditions"], "threads": "2"}}
    write_page(page, [RUN, other], "command")
    assert page.read_text().count("| row | vmflow |") == 2
    assert page.read_text().count("Command:") == 1


def test_a_bar_in_a_cell_does_not_end_it(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{BEGIN}\n{END}\n")
    write_page(page, [{"conditions": {}, "rows": [{**RUN["rows"][0], "name": "a | b"}]}], "command")
    assert "| a \\| b | 3.00 us |" in page.read_text()


@pytest.mark.parametrize("text", ["", BEGIN, END, f"{END}\n{BEGIN}\n", f"{BEGIN}\n{END}\n{END}\n"])
def test_a_page_without_both_marks_in_order_is_refused(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(ValueError, match="expected one line '<!-- begin"):
        split_page(page)
