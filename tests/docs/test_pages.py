"""The code of each page runs, and prints the text that the page says."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from .page import DOCS, blocks_of, run_page
from .pictures import FOLDER, drawings

pytestmark = pytest.mark.host

PAGES = sorted(DOCS.rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(DOCS)) for page in PAGES])
def test_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(page)
    failed, _ = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert not failed


def test_tutorials_have_code() -> None:
    assert all([blocks_of(page) for page in (DOCS / "tutorials").glob("*.md")])


def test_a_page_whose_code_prints_another_text_fails(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Words.\n\n```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md:4 prints\n2"):
        run_page(page)


def test_an_error_names_the_line_of_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Words.\n\n```python\nx = 1\nawait x\n```\n")
    with pytest.raises(TypeError) as caught:
        run_page(page)
    assert caught.traceback[-1].lineno + 1 == 5


def test_the_pictures_are_those_of_the_graph_and_the_machine() -> None:
    drawn = drawings()
    stored = {name: (FOLDER / f"{name}.svg").read_text(encoding="utf-8") for name in drawn}
    assert stored == drawn, "run python -m tests.docs.pictures"
