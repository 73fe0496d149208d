"""The tables of names for users of other libraries: each name of vmflow exists, and absent ones are absent."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import vmflow as flow

from .page import DOCS

pytestmark = pytest.mark.host

PAGES = [DOCS / "coming_from_oneflow.md", DOCS / "coming_from_pytorch.md"]

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def _rows(page: Path) -> list[list[str]]:
    """The cells of the rows of all tables, without headings."""
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    headings = [index for index, row in enumerate([*cells[1:], []]) if _is_rule(row)]
    return [row for index, row in enumerate(cells) if index not in headings and not _is_rule(row)]


def _is_rule(row: list[str]) -> bool:
    return bool(row) and set("".join(row)) <= {"-", " "}


def _names(cell: str) -> list[str]:
    """The names of vmflow in a cell, `flow.add` or a call of it."""
    return re.findall(r"`flow\.([\w.]+)", cell)


def _found(name: str) -> Any:
    thing: Any = flow
    for part in name.split("."):
        thing = getattr(thing, part)
    return thing


@pages
def test_the_names_of_vmflow_exist(page: Path) -> None:
    rows = _rows(page)
    assert len(rows) > 15
    assert len({len(row) for row in rows}) <= 2
    names = [name for row in rows for cell in row[1:] for name in _names(cell)]
    assert len(names) > 15
    for name in names:
        assert _found(name) is not None, name


@pages
def test_names_that_are_said_to_be_absent_are_absent(page: Path) -> None:
    for other, mine, *_ in _rows(page):
        if mine == "absent":
            for name in re.findall(r"`(?:flow|torch)\.([\w.]+)`", other):
                with pytest.raises(AttributeError):
                    _found(name)


@pages
def test_names_that_are_said_to_be_the_same_exist(page: Path) -> None:
    for other, mine, *_ in _rows(page):
        if mine.startswith("the same"):
            for name in _names(other):
                assert _found(name) is not None, name
